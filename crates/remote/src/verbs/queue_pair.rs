//! Reliable connections between two devices.

use super::abi;
use super::device::{Gid, PortAddress, numbers_of};
use super::domain::{Access, Domain};
use super::library::{checked, failed};
use bathyal_tier::{FaultKind, ReadFault};
use serde::{Deserialize, Serialize};
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of inline data, the bytes of a write that travel within its work request, where the device
/// supports it. A larger value makes every work request of a connection larger.
const INLINE_BYTES: u32 = 128;
/// Number of times that a packet is sent again; 7 is the maximum.
const RETRIES: u8 = 7;
/// Range of [`AckTimeout`]: half a millisecond to half a second for each try. An emulated device needs some
/// time, and a packet lost at the end of a message is sent again only after this time.
const TIMEOUTS: std::ops::RangeInclusive<u8> = 7..=17;
/// Unit of a device's timeouts, in nanoseconds: the value `t` means 2 to the power of `t` times this.
const TIMEOUT_UNIT_NS: u128 = 4096;
/// Maximum number of routers on a packet's way.
const HOP_LIMIT: u8 = 64;
/// Bits of a packet's sequence number.
const PACKET_BITS: u32 = 24;
/// Maximum number of completions taken by one poll.
const POLL_BATCH: usize = 32;

/// Description of one end of a connection, which the other end needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Endpoint {
    /// Number of the queue pair.
    pub(crate) queue_pair: u32,
    /// Sequence number of the first packet that it sends.
    first_packet: u32,
    pub(crate) gid: Gid,
    /// Number of the port in its subnet; used by InfiniBand.
    lid: u16,
    pub(crate) is_ethernet: bool,
    /// Maximum bytes of a packet: 1 means 256, 5 means 4,096.
    mtu: u8,
    /// Maximum number of the other end's reads and atomic operations in flight.
    reads: u8,
}

/// Time to wait for the acknowledgement of a packet, as an exponent for [`TIMEOUT_UNIT_NS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AckTimeout(u8);

impl AckTimeout {
    /// Returns the value with which all tries together detect a lost peer within half of `timeout`.
    pub(crate) fn within(timeout: Duration) -> AckTimeout {
        let try_units = timeout.as_nanos() / 2 / u128::from(RETRIES + 1) / TIMEOUT_UNIT_NS;
        let exponent = try_units.max(1).ilog2() as u8;
        AckTimeout(exponent.clamp(*TIMEOUTS.start(), *TIMEOUTS.end()))
    }
}

/// Operation of a work request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Reads the peer's bytes into local memory.
    Read,
    /// Writes local bytes to the peer's memory. `inline`: they are copied when the request is posted, and
    /// need no registration.
    Write { inline: bool },
    /// Replaces the peer's number if it has the expected value. Stores its old value in local memory.
    CompareAndSwap { expected: u64, new: u64 },
    /// Adds to the peer's number. Stores its old value in local memory.
    FetchAndAdd { by: u64 },
}

/// A work request for a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkRequest {
    /// Identifies its completion.
    pub(crate) id: u64,
    pub(crate) work: Work,
    /// True if it begins only after all reads and atomic operations before it have ended.
    pub(crate) fenced: bool,
    /// Address of the local bytes, and the key of the registration that contains them.
    pub(crate) local: u64,
    pub(crate) local_key: u32,
    pub(crate) len: u32,
    /// Address of the peer's bytes, and the remote key of their registration.
    pub(crate) remote: u64,
    pub(crate) remote_key: u32,
}

/// A work request that has ended. All requests posted before it have ended, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FinishedRequest {
    pub(crate) id: u64,
    /// If this is an error, the connection accepts no more work, and requests posted later are not executed.
    pub(crate) result: Result<(), ReadFault>,
}

/// One end of a reliable connection, with a completion queue of its own.
pub(crate) struct QueuePair {
    domain: Arc<Domain>,
    completions: NonNull<c_void>,
    raw: NonNull<abi::QueuePair>,
    poll: abi::PollCq,
    post: abi::PostSend,
    number: u32,
    first_packet: u32,
    depth: u32,
    max_inline: u32,
    /// Buffers for a list of requests.
    requests: Vec<abi::SendRequest>,
    entries: Vec<abi::ScatterEntry>,
}

// SAFETY: the library's functions may be called by any thread, and each object is freed once.
unsafe impl Send for QueuePair {}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "QueuePair({} of {:?})", self.number, self.domain)
    }
}

/// Guard that frees a completion queue unless a queue pair takes it over.
struct CompletionQueueGuard<'d>(&'d Domain, NonNull<c_void>);

impl Drop for CompletionQueueGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: no queue pair uses it.
        unsafe { (self.0.device().library.ibv_destroy_cq)(self.1.as_ptr()) };
    }
}

impl QueuePair {
    /// Creates a queue pair that takes up to `depth` work requests at once. Its peer has `access` to
    /// registered memory.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        depth: u32,
        access: Option<Access>,
        first_packet: u32,
    ) -> io::Result<QueuePair> {
        let (library, context) = (domain.device().library, domain.device().context());
        // SAFETY: the context is of an open device, which its domain keeps open.
        let (poll, post) = unsafe { ((*context).poll_cq(), (*context).post_send()) };
        let (poll, post) = poll.zip(post).ok_or_else(|| io::Error::other("the device cannot be polled"))?;
        let entries = c_int::try_from(depth).map_err(io::Error::other)?;
        let null = std::ptr::null_mut();
        // SAFETY: the device is open, and there is no event channel.
        let completions = NonNull::new(unsafe { (library.ibv_create_cq)(context, entries, null, null, 0) });
        let completions = completions.ok_or_else(|| failed("no completion queue can be created"))?;
        let completions = CompletionQueueGuard(domain, completions);
        let raw = create(domain, completions.1, depth, INLINE_BYTES)
            .or_else(|_| create(domain, completions.1, depth, 0));
        let (raw, max_inline) = raw?;
        let completions = std::mem::ManuallyDrop::new(completions).1;
        // SAFETY: the library has returned a valid queue pair.
        let number = unsafe { raw.as_ref().number };
        let first_packet = first_packet & ((1 << PACKET_BITS) - 1);
        let (requests, entries) = (Vec::new(), Vec::new());
        let domain = domain.clone();
        let pair = QueuePair {
            domain,
            completions,
            raw,
            poll,
            post,
            number,
            first_packet,
            depth,
            max_inline,
            requests,
            entries,
        };
        let initial = abi::QueuePairAttributes {
            state: abi::STATE_INIT,
            port: pair.port_address().port,
            access: access.map_or(0, Access::flags) as u32,
            ..Default::default()
        };
        let set = abi::SET_STATE | abi::SET_PKEY_INDEX | abi::SET_PORT | abi::SET_ACCESS;
        pair.modify("a queue pair cannot be initialized", initial, set)?;
        Ok(pair)
    }

    fn port_address(&self) -> &PortAddress {
        &self.domain.device().port_address
    }

    fn modify(&self, what: &str, mut to: abi::QueuePairAttributes, set: c_int) -> io::Result<()> {
        let library = self.domain.device().library;
        // SAFETY: the queue pair is valid, and the attributes in the mask are set.
        checked(what, unsafe { (library.ibv_modify_qp)(self.raw.as_ptr(), &raw mut to, set) })
    }

    /// Returns the description of this end, for the other end.
    pub(crate) fn endpoint(&self) -> Endpoint {
        let PortAddress { gid, lid, is_ethernet, mtu, .. } = *self.port_address();
        let reads = self.domain.device().limits.served_reads;
        Endpoint {
            queue_pair: self.number,
            first_packet: self.first_packet,
            gid,
            lid,
            is_ethernet,
            mtu,
            reads,
        }
    }

    /// Connects to `peer` for receiving; with `ack_timeout` also for sending.
    pub(crate) fn connect(&self, peer: &Endpoint, ack_timeout: Option<AckTimeout>) -> io::Result<()> {
        let (port_address, limits) = (self.port_address(), self.domain.device().limits);
        if port_address.is_ethernet != peer.is_ethernet {
            return Err(io::Error::other("one device uses Ethernet, and the other InfiniBand"));
        }
        let address = abi::Address {
            gid: numbers_of(peer.gid),
            sgid_index: port_address.gid_index,
            hop_limit: HOP_LIMIT,
            dlid: peer.lid,
            is_global: u8::from(port_address.is_ethernet || peer.lid == 0),
            port: port_address.port,
            ..Default::default()
        };
        let receiving = abi::QueuePairAttributes {
            state: abi::STATE_READY_TO_RECEIVE,
            path_mtu: c_int::from(port_address.mtu.min(peer.mtu).max(1)),
            dest_qp_num: peer.queue_pair,
            rq_psn: peer.first_packet,
            max_dest_rd_atomic: limits.served_reads,
            // 0.64 ms. It concerns receive requests, which are not used.
            min_rnr_timer: 12,
            address,
            ..Default::default()
        };
        let set = abi::SET_STATE
            | abi::SET_ADDRESS
            | abi::SET_PATH_MTU
            | abi::SET_DEST_QP
            | abi::SET_RQ_PSN
            | abi::SET_MAX_DEST_RD_ATOMIC
            | abi::SET_MIN_RNR_TIMER;
        self.modify("the peer's device cannot be addressed", receiving, set)?;
        let Some(AckTimeout(timeout)) = ack_timeout else { return Ok(()) };
        let sending = abi::QueuePairAttributes {
            state: abi::STATE_READY_TO_SEND,
            timeout,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES,
            sq_psn: self.first_packet,
            max_rd_atomic: limits.initiated_reads.min(peer.reads).max(1),
            ..Default::default()
        };
        let set = abi::SET_STATE
            | abi::SET_TIMEOUT
            | abi::SET_RETRY_CNT
            | abi::SET_RNR_RETRY
            | abi::SET_SQ_PSN
            | abi::SET_MAX_RD_ATOMIC;
        self.modify("the connection cannot be used", sending, set)
    }

    /// Returns the maximum number of work requests in flight.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the maximum length of inline data, in bytes.
    pub(crate) fn max_inline(&self) -> u32 {
        self.max_inline
    }

    /// Posts `work` as one list with one doorbell. One completion reports the end of the last request, or the
    /// first failure.
    ///
    /// # Errors
    /// [`io::Error`]; the device may have accepted some of the requests.
    ///
    /// # Safety
    /// The local bytes of each request are registered in this domain by the given key, except for inline
    /// writes. They belong to the device until the request has [`FinishedRequest`] or the queue pair is
    /// dropped. At most [`QueuePair::depth`] requests are in flight, including these.
    pub(crate) unsafe fn post(&mut self, work: impl ExactSizeIterator<Item = WorkRequest>) -> io::Result<()> {
        self.requests.clear();
        self.entries.clear();
        let count = work.len();
        if count == 0 {
            return Ok(());
        }
        // The vectors must not move later, because the addresses of their elements are taken below.
        self.entries.reserve(count);
        self.requests.reserve(count);
        for request in work {
            self.entries.push(abi::ScatterEntry {
                address: request.local,
                length: request.len,
                lkey: request.local_key,
            });
            self.requests.push(to_send_request(&request));
        }
        let (first, entries) = (self.requests.as_mut_ptr(), self.entries.as_mut_ptr());
        for (at, request) in self.requests.iter_mut().enumerate() {
            request.entries = entries.wrapping_add(at);
            request.next = first.wrapping_add(at + 1);
        }
        if let Some(last) = self.requests.last_mut() {
            last.next = std::ptr::null_mut();
            last.flags |= abi::SIGNALED;
        }
        let mut refused = std::ptr::null_mut();
        // SAFETY: the list ends in a null pointer and stays where it is during the call; the caller vouches
        // for the bytes.
        let code = unsafe { (self.post)(self.raw.as_ptr(), first, &raw mut refused) };
        checked("the device accepts no work requests", code)
    }

    /// Appends the finished requests to `finished`.
    pub(crate) fn poll(&mut self, finished: &mut Vec<FinishedRequest>) -> io::Result<()> {
        let mut batch = [abi::WorkCompletion::default(); POLL_BATCH];
        loop {
            // SAFETY: the completion queue is valid, and the array has room for this many completions.
            let count =
                unsafe { (self.poll)(self.completions.as_ptr(), POLL_BATCH as c_int, batch.as_mut_ptr()) };
            let count =
                usize::try_from(count).map_err(|_| io::Error::other("the device cannot be polled"))?;
            let to_finished =
                |one: &abi::WorkCompletion| FinishedRequest { id: one.id, result: outcome(one.status) };
            finished.extend(batch.iter().take(count).map(to_finished));
            if count < POLL_BATCH {
                return Ok(());
            }
        }
    }
}

impl Drop for QueuePair {
    /// Destroys the queue pair. After this the device does not access the bytes of posted requests.
    fn drop(&mut self) {
        let library = self.domain.device().library;
        // SAFETY: each is freed once, the queue pair before the completion queue that it uses.
        unsafe {
            (library.ibv_destroy_qp)(self.raw.as_ptr());
            (library.ibv_destroy_cq)(self.completions.as_ptr());
        }
    }
}

/// Creates a queue pair. Returns it with its maximum length of inline data.
fn create(
    domain: &Domain,
    completions: NonNull<c_void>,
    depth: u32,
    inline: u32,
) -> io::Result<(NonNull<abi::QueuePair>, u32)> {
    let capacity = abi::Capacity {
        max_send_wr: depth,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: inline,
    };
    let mut init = abi::QueuePairInit {
        context: std::ptr::null_mut(),
        send_cq: completions.as_ptr(),
        recv_cq: completions.as_ptr(),
        shared_receive_queue: std::ptr::null_mut(),
        capacity,
        kind: abi::RELIABLE_CONNECTION,
        signal_all: 0,
    };
    // SAFETY: the domain and the completion queue are valid and of one device.
    let pair = unsafe { (domain.device().library.ibv_create_qp)(domain.raw(), &raw mut init) };
    let pair = NonNull::new(pair).ok_or_else(|| failed("no queue pair can be created"))?;
    // Devices round up; use no more than was requested.
    Ok((pair, init.capacity.max_inline_data.min(inline)))
}

/// Converts a work request to the library's form, without the links of its list.
fn to_send_request(one: &WorkRequest) -> abi::SendRequest {
    let bytes =
        abi::WorkTarget { bytes: abi::RemoteBytes { remote_address: one.remote, rkey: one.remote_key } };
    let number = |compare_add, swap| abi::WorkTarget {
        number: abi::RemoteNumber { remote_address: one.remote, compare_add, swap, rkey: one.remote_key },
    };
    let (opcode, target) = match one.work {
        Work::Read => (abi::RDMA_READ, bytes),
        Work::Write { .. } => (abi::RDMA_WRITE, bytes),
        Work::CompareAndSwap { expected, new } => (abi::COMPARE_AND_SWAP, number(expected, new)),
        Work::FetchAndAdd { by } => (abi::FETCH_AND_ADD, number(by, 0)),
    };
    let mut flags = if one.fenced { abi::FENCE } else { 0 };
    if matches!(one.work, Work::Write { inline: true }) {
        flags |= abi::INLINE;
    }
    abi::SendRequest {
        id: one.id,
        next: std::ptr::null_mut(),
        entries: std::ptr::null_mut(),
        entry_count: 1,
        opcode,
        flags,
        immediate: 0,
        target,
        unused: [0; 7],
    }
}

/// Converts the status of a completion to the result of its request.
fn outcome(status: c_int) -> Result<(), ReadFault> {
    let lost = |errno| Err(ReadFault { kind: FaultKind::LostPeer, errno });
    match status {
        abi::STATUS_SUCCESS => Ok(()),
        // The peer's device refuses the key, the bounds or the access.
        abi::STATUS_REMOTE_ACCESS | abi::STATUS_REMOTE_INVALID_REQUEST => {
            Err(ReadFault { kind: FaultKind::Denied, errno: libc::EACCES })
        }
        abi::STATUS_REMOTE_OPERATION => Err(ReadFault::of(FaultKind::Gone)),
        abi::STATUS_RETRIES_EXCEEDED | abi::STATUS_NOT_READY => lost(libc::ETIMEDOUT),
        abi::STATUS_FLUSHED => lost(libc::ECONNRESET),
        abi::STATUS_LOCAL_PROTECTION => Err(ReadFault { kind: FaultKind::Device, errno: libc::EFAULT }),
        _ => Err(ReadFault { kind: FaultKind::Device, errno: libc::EIO }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tries_together_fit_half_of_the_timeout() {
        for (millis, exponent) in [(1, 7), (10, 7), (1000, 13), (10_000, 17), (3_600_000, 17)] {
            let AckTimeout(found) = AckTimeout::within(Duration::from_millis(millis));
            assert_eq!(found, exponent, "{millis}");
            let all = (u128::from(RETRIES + 1) * TIMEOUT_UNIT_NS) << found;
            assert!(all <= u128::from(millis) * 1_000_000 || found == *TIMEOUTS.start(), "{millis}: {all}");
        }
    }

    #[test]
    fn refused_access_is_no_lost_connection() {
        let kind = |status| outcome(status).unwrap_err().kind;
        assert_eq!(kind(10), FaultKind::Denied);
        assert_eq!(kind(9), FaultKind::Denied);
        assert_eq!(kind(12), FaultKind::LostPeer);
        assert_eq!(kind(5), FaultKind::LostPeer);
        assert_eq!(kind(21), FaultKind::Device);
        assert!(outcome(0).is_ok());
    }

    #[test]
    fn an_endpoint_survives_serialization() {
        let gid = "::ffff:10.0.0.7".parse().unwrap();
        let endpoint = Endpoint {
            queue_pair: 17,
            first_packet: 1 << 23,
            gid,
            lid: 3,
            is_ethernet: true,
            mtu: 5,
            reads: 16,
        };
        let text = serde_json::to_string(&endpoint).unwrap();
        assert_eq!(serde_json::from_str::<Endpoint>(&text).unwrap(), endpoint);
        for damaged in ["queue_pair\":-1", "queue_pair\":4294967296"] {
            assert!(serde_json::from_str::<Endpoint>(&text.replace("queue_pair\":17", damaged)).is_err());
        }
    }
}
