//! Reliable connections between two devices.

use super::abi;
use super::device::{Gid, Place, numbers_of};
use super::domain::{Access, Domain};
use super::library::{checked, failed};
use bathyal_tier::{FaultKind, ReadFault};
use serde::{Deserialize, Serialize};
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a write that travel within its work request, if the device has room for so many: more make every work request of
/// a connection larger.
const INLINE_BYTES: u32 = 128;
/// How often a packet is sent again; 7 is the most that there is.
const RETRIES: u8 = 7;
/// The least and the most of [`Patience`]: half a millisecond and half a second for each try. A device that is emulated needs
/// some, and a packet that was lost at the end of a message is sent again after so long.
const TIMEOUTS: std::ops::RangeInclusive<u8> = 7..=17;
/// The unit of a device's timeouts, in nanoseconds: one of `t` is 2 to the power of `t` times this.
const TIMEOUT_UNIT_NS: u128 = 4096;
/// Routers that a packet may pass.
const HOPS: u8 = 64;
/// Numbers of packets have so many bits.
const PACKET_BITS: u32 = 24;
/// Completions that are taken at once.
const TAKEN: usize = 32;

/// One end of a connection, as the other end has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Endpoint {
    /// The number of the queue pair.
    pub(crate) queue_pair: u32,
    /// The number of the first packet that is sent.
    first_packet: u32,
    pub(crate) gid: Gid,
    /// The port's number in its subnet, of InfiniBand.
    lid: u16,
    pub(crate) is_ethernet: bool,
    /// Bytes of a packet at most: 1 is 256, 5 is 4,096.
    mtu: u8,
    /// Reads and atomics that are served at once.
    reads: u8,
}

/// How long one packet is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience(u8);

impl Patience {
    /// The one that finds a peer lost within half of `timeout`, by all tries together.
    pub(crate) fn within(timeout: Duration) -> Patience {
        let each = timeout.as_nanos() / 2 / u128::from(RETRIES + 1) / TIMEOUT_UNIT_NS;
        let exponent = each.max(1).ilog2() as u8;
        Patience(exponent.clamp(*TIMEOUTS.start(), *TIMEOUTS.end()))
    }
}

/// What a work request does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Fills bytes here with the peer's.
    Read,
    /// Puts bytes of here to the peer; `inline`: they are copied when it is posted, and need no key.
    Write { inline: bool },
    /// Replaces the peer's number if it is the expected one; here comes what it was.
    CompareAndSwap { expected: u64, new: u64 },
    /// Adds to the peer's number; here comes what it was.
    FetchAndAdd { by: u64 },
}

/// One operation that a device is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkRequest {
    /// What its completion is known by.
    pub(crate) id: u64,
    pub(crate) work: Work,
    /// It begins when all reads and atomics before it have ended.
    pub(crate) fenced: bool,
    /// Bytes of here, and the key of the registration that they lie in.
    pub(crate) local: u64,
    pub(crate) local_key: u32,
    pub(crate) len: u32,
    /// The same of the peer.
    pub(crate) remote: u64,
    pub(crate) remote_key: u32,
}

/// A work request that has ended, and with it all that were posted before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finished {
    pub(crate) id: u64,
    /// `Err`: the connection takes nothing any more, and what was posted later is not done.
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
    most_inline: u32,
    /// Room for what is posted together.
    requests: Vec<abi::SendRequest>,
    pieces: Vec<abi::Piece>,
}

// SAFETY: the library's functions may be called by any thread; what is made here is freed once.
unsafe impl Send for QueuePair {}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "QueuePair({} of {:?})", self.number, self.domain)
    }
}

/// Frees a completion queue unless a queue pair takes it over.
struct Completions<'d>(&'d Domain, NonNull<c_void>);

impl Drop for Completions<'_> {
    fn drop(&mut self) {
        // SAFETY: no queue pair uses it.
        unsafe { (self.0.device().library.ibv_destroy_cq)(self.1.as_ptr()) };
    }
}

impl QueuePair {
    /// One that takes up to `depth` work requests at once, and whose peer may do `access` to registered memory.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        depth: u32,
        access: Option<Access>,
        first_packet: u32,
    ) -> io::Result<QueuePair> {
        let (library, context) = (domain.device().library, domain.device().context());
        // SAFETY: the context of an open device, which its domain keeps open.
        let (poll, post) = unsafe { ((*context).poll_cq(), (*context).post_send()) };
        let (poll, post) = poll.zip(post).ok_or_else(|| io::Error::other("the device cannot be polled"))?;
        let entries = c_int::try_from(depth).map_err(io::Error::other)?;
        let null = std::ptr::null_mut();
        // SAFETY: an open device; no channel for events.
        let completions = NonNull::new(unsafe { (library.ibv_create_cq)(context, entries, null, null, 0) });
        let completions = completions.ok_or_else(|| failed("no completion queue is to be had"))?;
        let completions = Completions(domain, completions);
        let raw = create(domain, completions.1, depth, INLINE_BYTES)
            .or_else(|_| create(domain, completions.1, depth, 0));
        let (raw, most_inline) = raw?;
        let completions = std::mem::ManuallyDrop::new(completions).1;
        // SAFETY: the library has made it.
        let number = unsafe { raw.as_ref().number };
        let first_packet = first_packet & ((1 << PACKET_BITS) - 1);
        let (requests, pieces) = (Vec::new(), Vec::new());
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
            most_inline,
            requests,
            pieces,
        };
        let begun = abi::QueuePairAttributes {
            state: abi::STATE_INIT,
            port: pair.place().port,
            access: access.map_or(0, Access::flags) as u32,
            ..Default::default()
        };
        let set = abi::SET_STATE | abi::SET_PKEY_INDEX | abi::SET_PORT | abi::SET_ACCESS;
        pair.modify("a connection cannot be begun", begun, set)?;
        Ok(pair)
    }

    fn place(&self) -> &Place {
        &self.domain.device().place
    }

    fn modify(&self, what: &str, mut to: abi::QueuePairAttributes, set: c_int) -> io::Result<()> {
        let library = self.domain.device().library;
        // SAFETY: a queue pair, and attributes of which those of the mask are set.
        checked(what, unsafe { (library.ibv_modify_qp)(self.raw.as_ptr(), &raw mut to, set) })
    }

    /// What the other end has to know.
    pub(crate) fn endpoint(&self) -> Endpoint {
        let Place { gid, lid, is_ethernet, mtu, .. } = *self.place();
        let reads = self.domain.device().limits.reads_served;
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

    /// Takes what `peer` sends; with `patience` also sends to it.
    pub(crate) fn connect(&self, peer: &Endpoint, patience: Option<Patience>) -> io::Result<()> {
        let (place, limits) = (self.place(), self.domain.device().limits);
        if place.is_ethernet != peer.is_ethernet {
            return Err(io::Error::other("one device is of Ethernet, the other of InfiniBand"));
        }
        let address = abi::Address {
            gid: numbers_of(peer.gid),
            sgid_index: place.gid_index,
            hop_limit: HOPS,
            dlid: peer.lid,
            is_global: u8::from(place.is_ethernet || peer.lid == 0),
            port: place.port,
            ..Default::default()
        };
        let receiving = abi::QueuePairAttributes {
            state: abi::STATE_READY_TO_RECEIVE,
            path_mtu: c_int::from(place.mtu.min(peer.mtu).max(1)),
            dest_qp_num: peer.queue_pair,
            rq_psn: peer.first_packet,
            max_dest_rd_atomic: limits.reads_served,
            // 0.64 ms; for receives, of which there are none.
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
        let Some(Patience(timeout)) = patience else { return Ok(()) };
        let sending = abi::QueuePairAttributes {
            state: abi::STATE_READY_TO_SEND,
            timeout,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES,
            sq_psn: self.first_packet,
            max_rd_atomic: limits.reads_asked.min(peer.reads).max(1),
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

    /// Work requests that it takes at once.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Bytes of a write that may travel within its work request.
    pub(crate) fn most_inline(&self) -> u32 {
        self.most_inline
    }

    /// Hands `work` over as one list, for which the device is told once and tells once, when the last has ended or any has failed.
    ///
    /// # Errors
    /// [`io::Error`]; some of them may have been taken.
    ///
    /// # Safety
    /// The bytes of here that the requests name are registered in this domain by the keys that they name (but for writes
    /// inline), and belong to the device until the request has [`Finished`] or this is dropped. There is room for them: those
    /// posted and not finished are [`QueuePair::depth`] at most.
    pub(crate) unsafe fn post(&mut self, work: impl ExactSizeIterator<Item = WorkRequest>) -> io::Result<()> {
        self.requests.clear();
        self.pieces.clear();
        let count = work.len();
        if count == 0 {
            return Ok(());
        }
        // The addresses of their elements are taken below.
        self.pieces.reserve(count);
        self.requests.reserve(count);
        for one in work {
            self.pieces.push(abi::Piece { address: one.local, length: one.len, lkey: one.local_key });
            self.requests.push(request(&one));
        }
        let (first, pieces) = (self.requests.as_mut_ptr(), self.pieces.as_mut_ptr());
        for (at, request) in self.requests.iter_mut().enumerate() {
            request.pieces = pieces.wrapping_add(at);
            request.next = first.wrapping_add(at + 1);
        }
        if let Some(last) = self.requests.last_mut() {
            last.next = std::ptr::null_mut();
            last.flags |= abi::SIGNALED;
        }
        let mut refused = std::ptr::null_mut();
        // SAFETY: a list that ends, whose parts stay where they are during the call; their bytes are as the caller says.
        let code = unsafe { (self.post)(self.raw.as_ptr(), first, &raw mut refused) };
        checked("the device takes no work", code)
    }

    /// Appends what has finished.
    pub(crate) fn poll(&mut self, finished: &mut Vec<Finished>) -> io::Result<()> {
        let mut taken = [abi::WorkCompletion::default(); TAKEN];
        loop {
            // SAFETY: a completion queue, and room for so many.
            let count = unsafe { (self.poll)(self.completions.as_ptr(), TAKEN as c_int, taken.as_mut_ptr()) };
            let count =
                usize::try_from(count).map_err(|_| io::Error::other("the device cannot be polled"))?;
            let each = |one: &abi::WorkCompletion| Finished { id: one.id, result: outcome(one.status) };
            finished.extend(taken.iter().take(count).map(each));
            if count < TAKEN {
                return Ok(());
            }
        }
    }
}

impl Drop for QueuePair {
    /// From here on the device touches nothing that was posted.
    fn drop(&mut self) {
        let library = self.domain.device().library;
        // SAFETY: each once, the queue pair before the completion queue that it uses.
        unsafe {
            (library.ibv_destroy_qp)(self.raw.as_ptr());
            (library.ibv_destroy_cq)(self.completions.as_ptr());
        }
    }
}

/// A queue pair, and the bytes that may travel within its work requests.
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
    let mut about = abi::QueuePairInit {
        context: std::ptr::null_mut(),
        send_cq: completions.as_ptr(),
        recv_cq: completions.as_ptr(),
        shared_receive_queue: std::ptr::null_mut(),
        capacity,
        kind: abi::RELIABLE_CONNECTION,
        signal_all: 0,
    };
    // SAFETY: a domain and a completion queue of one device.
    let made = unsafe { (domain.device().library.ibv_create_qp)(domain.raw(), &raw mut about) };
    let made = NonNull::new(made).ok_or_else(|| failed("no connection is to be had"))?;
    // What was asked for is what is used: devices round up.
    Ok((made, about.capacity.max_inline_data.min(inline)))
}

/// A work request without its neighbours.
fn request(one: &WorkRequest) -> abi::SendRequest {
    let bytes = abi::Target { bytes: abi::Bytes { remote_address: one.remote, rkey: one.remote_key } };
    let number = |compare_add, swap| abi::Target {
        number: abi::Number { remote_address: one.remote, compare_add, swap, rkey: one.remote_key },
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
        pieces: std::ptr::null_mut(),
        piece_count: 1,
        opcode,
        flags,
        immediate: 0,
        target,
        unused: [0; 7],
    }
}

/// What became of a work request, by the status of its completion.
fn outcome(status: c_int) -> Result<(), ReadFault> {
    let lost = |errno| Err(ReadFault { kind: FaultKind::LostPeer, errno });
    match status {
        abi::STATUS_SUCCESS => Ok(()),
        // The peer's device refuses: the key, the bounds or the right to do this.
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
    fn a_peer_is_lost_within_the_time_that_it_has() {
        for (millis, exponent) in [(1, 7), (10, 7), (1000, 13), (10_000, 17), (3_600_000, 17)] {
            let Patience(found) = Patience::within(Duration::from_millis(millis));
            assert_eq!(found, exponent, "{millis}");
            let all = (u128::from(RETRIES + 1) * TIMEOUT_UNIT_NS) << found;
            assert!(all <= u128::from(millis) * 1_000_000 || found == *TIMEOUTS.start(), "{millis}: {all}");
        }
    }

    #[test]
    fn what_the_peer_refuses_is_no_lost_connection() {
        let kind = |status| outcome(status).unwrap_err().kind;
        assert_eq!(kind(10), FaultKind::Denied);
        assert_eq!(kind(9), FaultKind::Denied);
        assert_eq!(kind(12), FaultKind::LostPeer);
        assert_eq!(kind(5), FaultKind::LostPeer);
        assert_eq!(kind(21), FaultKind::Device);
        assert!(outcome(0).is_ok());
    }

    #[test]
    fn an_endpoint_comes_back_as_it_went() {
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
