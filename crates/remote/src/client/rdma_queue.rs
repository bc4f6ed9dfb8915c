//! The queue of one thread over RDMA. It posts operations in lists, each with one doorbell and one
//! completion.
//!
//! A device may write to a caller's buffer until the operation has finished or the connection is destroyed.
//! The queue therefore destroys the connection before it gives up operations.

use super::fabric::{Fabric, Link};
use super::operations::{Operations, Pending};
use super::reconnector::Reconnector;
use super::session::Session;
use super::source::RegionSource;
use crate::control::ExposedMemory;
use crate::verbs::{Access, FinishedRequest, Registration, Work, WorkRequest};
use bathyal_tier::contract::{Action, Operation, WriteQueue};
use bathyal_tier::{Completion, FaultKind, Queue, Read, ReadFault, Span, TierError};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Time for which a wait polls the device without a pause: several times the response time of a good network.
const SPIN_TIME: Duration = Duration::from_micros(20);
/// Time for which it then yields the processor between polls, before it sleeps.
const YIELD_TIME: Duration = Duration::from_millis(1);
/// Sleep between polls.
const SLEEP: Duration = Duration::from_micros(50);
/// Interval at which a wait checks whether the node has ended the session.
const HANG_UP_CHECK: Duration = Duration::from_millis(10);

/// An operation that has not ended.
#[derive(Debug)]
struct PendingOperation {
    /// The operation. The length of a read is cut at the end of the tier.
    operation: Operation,
    /// True if it is one of several linked operations.
    is_linked: bool,
    /// True if it must begin after the reads and atomic operations before it have ended.
    fenced: bool,
    inline: bool,
    /// Key of the registration that contains its local bytes.
    key: u32,
    /// The registration, if it serves this operation alone.
    _own: Option<Registration>,
}

impl Pending for PendingOperation {
    fn id(&self) -> u64 {
        self.operation.id
    }

    fn is_repeatable(&self) -> bool {
        matches!(self.operation.action, Action::Read { .. }) && !self.is_linked
    }
}

/// A connection, and the region as registered for it.
pub(super) struct Connection {
    link: Link,
    memory: ExposedMemory,
}

/// Flag that ends a wait.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Buffers into which the device writes the old values of atomic operations.
struct OldValues {
    registration: Registration,
    words: Box<[AtomicU64]>,
}

/// A region of a node, and the RDMA connection to it.
#[derive(Clone)]
pub(super) struct RdmaRegion {
    pub(super) source: Arc<RegionSource>,
    pub(super) fabric: Arc<Fabric>,
    /// Key of the region when its generation was opened.
    pub(super) opened: u64,
    pub(super) len: u64,
}

impl RdmaRegion {
    fn connect(&self, depth: u32) -> Result<Connection, ReadFault> {
        self.source.connect(self.opened, |session: &Arc<Session>, key| {
            let link = self.fabric.link(session, depth)?;
            let memory = session.expose(key, self.len)?;
            Ok(Connection { link, memory })
        })
    }
}

/// A queue for one region of a node.
pub(super) struct RdmaQueue {
    /// `None` before the first operation, and after the connection was lost. It is the first field, because
    /// it must be dropped before the memory that the device may write.
    connection: Option<Connection>,
    operations: Operations<PendingOperation>,
    /// Number of pending operations, from the front, that the device has.
    posted: usize,
    /// Number of the first pending operation.
    first: u64,
    finished: Vec<FinishedRequest>,
    regions: Vec<Registration>,
    old_values: Option<OldValues>,
    region: RdmaRegion,
    /// Maximum number of work requests in one list.
    doorbell: usize,
    reconnector: Reconnector<Connection>,
    wake_flag: Arc<WakeFlag>,
}

// SAFETY: the pointers are plain addresses. The contract of [`Queue::submit`] says who may access the memory,
// whichever thread holds the queue.
unsafe impl Send for RdmaQueue {}

impl RdmaQueue {
    /// Creates a queue that connects when it is first used.
    pub(super) fn new(region: RdmaRegion, depth: u32, doorbell: u32) -> RdmaQueue {
        let depth = depth.clamp(1, region.fabric.domain().device().max_work_requests());
        RdmaQueue {
            connection: None,
            operations: Operations::new(depth, region.source.session().timeout()),
            posted: 0,
            first: 0,
            finished: Vec::new(),
            regions: Vec::new(),
            old_values: None,
            doorbell: doorbell.max(1) as usize,
            reconnector: Reconnector::new(region.source.clone()),
            wake_flag: Arc::default(),
            region,
        }
    }

    /// Creates a connected queue for writing.
    pub(super) fn for_writing(region: RdmaRegion, depth: u32, doorbell: u32) -> Result<RdmaQueue, TierError> {
        let mut queue = RdmaQueue::new(region, depth, doorbell);
        let node = queue.region.source.session().path().display().to_string();
        let refused = |why: &str| TierError::Parameter(format!("{node}: there is no RDMA connection: {why}"));
        let words: Box<[AtomicU64]> = (0..queue.operations.depth()).map(|_| AtomicU64::new(0)).collect();
        let (start, bytes) = (words.as_ptr().cast_mut().cast(), size_of_val(&*words));
        // SAFETY: the words are dropped after the registration, and are atomic, because the device changes
        // them.
        let registration =
            unsafe { Registration::new(queue.region.fabric.domain(), start, bytes, Access::LocalWrite) };
        let registration = registration.map_err(|e| refused(&e.to_string()))?;
        queue.old_values = Some(OldValues { registration, words });
        let connection = queue.region.connect(queue.operations.depth() as u32);
        queue.set_connection(connection.map_err(|fault| refused(fault.kind.words()))?);
        Ok(queue)
    }

    fn set_connection(&mut self, connection: Connection) {
        self.connection = Some(connection);
        self.reconnector.reset();
        self.operations.note_progress();
    }

    /// Adds a chain of linked operations. Each one becomes pending, or ends with a completion. Returns false,
    /// and adds nothing, if too little memory can be locked and pending operations will release some.
    fn add_chain(&mut self, chain: &[Operation]) -> bool {
        let (mut chain_failed, mut after_read, mut added) = (false, false, 0);
        for operation in chain {
            let (id, skipped) = (operation.id, ReadFault::of(FaultKind::Skipped));
            if chain_failed {
                self.operations.end(id, Err(skipped));
                continue;
            }
            match self.prepare(operation, chain.len() > 1, after_read) {
                Ok(Some(pending)) => {
                    self.operations.push(pending);
                    added += 1;
                }
                Ok(None) => self.operations.end(id, Ok(0)),
                Err(ReadFault { errno: libc::ENOMEM, .. })
                    if added == 0 && !self.operations.pending.is_empty() =>
                {
                    return false;
                }
                Err(fault) => {
                    self.operations.end(id, Err(fault));
                    chain_failed = true;
                }
            }
            after_read = !matches!(operation.action, Action::Write { .. });
        }
        // The next chain is not linked to this one.
        if let (1.., Some(last)) = (added, self.operations.pending.back_mut()) {
            last.operation.linked = false;
        }
        true
    }

    /// Prepares an operation for the device. Returns `None` for a read past the end of the tier.
    ///
    /// Operations that the node's device would refuse are refused here, because its refusal ends the
    /// connection.
    fn prepare(
        &self,
        operation: &Operation,
        is_linked: bool,
        fenced: bool,
    ) -> Result<Option<PendingOperation>, ReadFault> {
        let mut operation = *operation;
        let (outside, len) = (ReadFault::system(libc::EINVAL), u64::from(operation.action.len()));
        let left = self.region.len.saturating_sub(operation.offset);
        match &mut operation.action {
            Action::Read { len, .. } => *len = left.min(u64::from(*len)) as u32,
            Action::Write { .. } if len > left => return Err(outside),
            Action::Write { .. } => {}
            _ if len > left || !operation.offset.is_multiple_of(8) => return Err(outside),
            _ => {}
        }
        let len = operation.action.len();
        if len == 0 {
            return Ok(None);
        }
        if len > self.region.fabric.domain().device().max_message_bytes() {
            return Err(ReadFault::system(libc::EMSGSIZE));
        }
        let (mut inline, mut own) = (false, None);
        let key = match operation.action {
            Action::Read { into, .. } => self.local_key_of(into, len, Access::LocalWrite, &mut own)?,
            Action::Write { .. } if len <= self.region.fabric.max_inline() => {
                inline = true;
                0
            }
            Action::Write { from, .. } => {
                self.local_key_of(from.cast_mut(), len, Access::LocalRead, &mut own)?
            }
            _ => {
                let old_values = self.old_values.as_ref().ok_or(ReadFault::of(FaultKind::Denied))?;
                old_values.registration.local_key()
            }
        };
        Ok(Some(PendingOperation { operation, is_linked, fenced, inline, key, _own: own }))
    }

    /// Returns the key of local bytes: of a registered region that contains them, or of a new registration,
    /// which is stored in `own`.
    fn local_key_of(
        &self,
        start: *mut u8,
        len: u32,
        access: Access,
        own: &mut Option<Registration>,
    ) -> Result<u32, ReadFault> {
        let len = len as usize;
        if let Some(region) = self.regions.iter().find(|region| region.holds(start, len)) {
            return Ok(region.local_key());
        }
        // SAFETY: the bytes belong to the operation until it has ended, by the contract of `Queue::submit`.
        let registration = unsafe { Registration::new(self.region.fabric.domain(), start, len, access) };
        let registration = registration.map_err(|e| match e.kind() {
            ErrorKind::OutOfMemory => ReadFault::system(libc::ENOMEM),
            _ => ReadFault::system(libc::EFAULT),
        })?;
        Ok(own.insert(registration).local_key())
    }

    /// Posts all pending operations. Without a connection, takes one that the background thread has made, or
    /// starts one that makes it; the operations fail if there will be none. Does not block.
    fn post(&mut self) {
        if self.connection.is_none() && !self.operations.pending.is_empty() {
            let (region, wake_flag) = (self.region.clone(), self.wake_flag.clone());
            let depth = self.operations.depth() as u32;
            let connect = move |_: &RegionSource| region.connect(depth);
            match self.reconnector.poll(connect, || Some(Waker::from(wake_flag))) {
                Some(Ok(connection)) => self.set_connection(connection),
                Some(Err(fault)) => self.fail(fault),
                None => {}
            }
        }
        while let Some(connection) = &mut self.connection
            && self.posted < self.operations.pending.len()
        {
            let pending = &self.operations.pending;
            let to = pending.len().min(self.posted + self.doorbell);
            let (first, old_values, memory) = (self.first, self.old_values.as_ref(), connection.memory);
            let list = pending.range(self.posted..to).enumerate();
            let posted = self.posted;
            let list =
                list.map(|(at, pending)| request(pending, first + (posted + at) as u64, memory, old_values));
            // SAFETY: the keys are of registrations that this queue or the operation holds. The bytes belong
            // to the device by the contract of `Queue::submit`, and the queue is no deeper than the
            // connection.
            let taken = unsafe { connection.link.pair.post(list) };
            self.posted = to;
            if let Err(error) = taken {
                self.handle_loss(error.raw_os_error().unwrap_or(libc::EIO));
            }
        }
    }

    /// Takes the finished operations, without waiting.
    fn advance(&mut self, done: &mut Vec<Completion>) {
        self.post();
        let mut finished = std::mem::take(&mut self.finished);
        let polled = self.connection.as_mut().map(|connection| connection.link.pair.poll(&mut finished));
        for FinishedRequest { id, result } in finished.drain(..) {
            self.operations.note_progress();
            // The operations before it have ended without an error.
            self.complete_before(id, done);
            match result {
                Ok(()) => self.complete_before(id + 1, done),
                Err(fault) => {
                    self.handle_failure(fault);
                    break;
                }
            }
        }
        self.finished = finished;
        if let Some(Err(error)) = polled {
            self.handle_loss(error.raw_os_error().unwrap_or(libc::EIO));
        } else if self.posted > 0 && self.operations.is_overdue() {
            self.handle_loss(libc::ETIMEDOUT);
        }
        done.append(&mut self.operations.ended);
    }

    /// Completes all operations with numbers before `end`.
    fn complete_before(&mut self, end: u64, done: &mut Vec<Completion>) {
        while self.first < end && self.posted > 0 {
            let Some(PendingOperation { operation, .. }) = self.operations.take_answered() else { break };
            if let Action::CompareAndSwap { old, .. } | Action::FetchAndAdd { old, .. } = operation.action
                && let Some(old_values) = &self.old_values
            {
                let number =
                    old_values.words[word_index(self.first, &old_values.words)].load(Ordering::Acquire);
                // SAFETY: `old` has room for a number by the contract of `WriteQueue::submit_operations`.
                unsafe { old.write_unaligned(number) };
            }
            done.push(Completion { id: operation.id, result: Ok(operation.action.len()) });
            self.first += 1;
            self.posted -= 1;
        }
    }

    /// Handles the failure of the first pending operation, with which the connection has ended.
    ///
    /// The device of a stopping node refuses operations before it falls silent. So a read that is refused is
    /// posted once more over a new connection, like after a loss: the node tells whether it is there.
    fn handle_failure(&mut self, fault: ReadFault) {
        let is_repeatable = self.operations.pending.front().is_some_and(Pending::is_repeatable);
        let may_be_lost = is_repeatable && !self.operations.was_repeated();
        if fault.kind == FaultKind::LostPeer || may_be_lost || self.has_hung_up() {
            self.handle_loss(if fault.kind == FaultKind::LostPeer { fault.errno } else { libc::ECONNRESET });
            return;
        }
        self.end_connection();
        let mut result = fault;
        while let Some(PendingOperation { operation, .. }) = self.operations.take_answered() {
            self.first += 1;
            self.operations.end(operation.id, Err(result));
            if !operation.linked {
                break;
            }
            result = ReadFault::of(FaultKind::Skipped);
        }
        self.operations.keep_repeatable(libc::ECONNRESET);
    }

    /// Handles a lost connection: reads are posted again once over another one, and the other operations
    /// fail.
    fn handle_loss(&mut self, errno: i32) {
        if !self.operations.begin_repetition() {
            self.fail(ReadFault { kind: FaultKind::LostPeer, errno });
            return;
        }
        self.end_connection();
        self.operations.keep_repeatable(errno);
    }

    /// Fails all pending operations.
    fn fail(&mut self, fault: ReadFault) {
        self.end_connection();
        self.operations.fail_all(fault);
    }

    /// Destroys the connection. After this the device does not access the bytes of pending operations.
    fn end_connection(&mut self) {
        self.connection = None;
        self.posted = 0;
    }

    /// Pauses between polls, depending on how long the wait has lasted.
    fn pause(&self, waited: Duration) {
        if waited < SPIN_TIME {
            std::hint::spin_loop();
        } else if waited < YIELD_TIME && self.connection.is_some() {
            std::thread::yield_now();
        } else {
            std::thread::sleep(SLEEP);
        }
    }

    fn has_hung_up(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.link.session.has_hung_up())
    }
}

/// Returns the index of the word for the old value of operation number `number`. Operations that are posted
/// at the same time have different words.
fn word_index(number: u64, words: &[AtomicU64]) -> usize {
    (number % words.len() as u64) as usize
}

/// Builds the work request of an operation.
fn request(
    pending: &PendingOperation,
    id: u64,
    memory: ExposedMemory,
    old_values: Option<&OldValues>,
) -> WorkRequest {
    let number = old_values.map_or(0, |old_values| {
        old_values.registration.start() + (word_index(id, &old_values.words) * size_of::<u64>()) as u64
    });
    let (work, local) = match pending.operation.action {
        Action::Read { into, .. } => (Work::Read, into as u64),
        Action::Write { from, .. } => (Work::Write { inline: pending.inline }, from as u64),
        Action::CompareAndSwap { expected, new, .. } => (Work::CompareAndSwap { expected, new }, number),
        Action::FetchAndAdd { by, .. } => (Work::FetchAndAdd { by }, number),
    };
    WorkRequest {
        id,
        work,
        fenced: pending.fenced,
        local,
        local_key: pending.key,
        len: pending.operation.action.len(),
        remote: memory.address.wrapping_add(pending.operation.offset),
        remote_key: memory.key,
    }
}

impl Queue for RdmaQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let mut taken = 0;
        for Read { id, offset, len, buffer, .. } in reads.iter().take(self.operations.room()) {
            let action = Action::Read { into: *buffer, len: *len };
            if !self.add_chain(&[Operation { id: *id, offset: *offset, action, linked: false }]) {
                break;
            }
            taken += 1;
        }
        self.post();
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        self.advance(done);
        let Some(wait) = wait else { return Ok(()) };
        let began = Instant::now();
        let mut next_check = HANG_UP_CHECK;
        while done.len() == before && !self.operations.pending.is_empty() {
            let waited = began.elapsed();
            if waited >= wait || self.wake_flag.0.swap(false, Ordering::Acquire) {
                break;
            }
            if waited >= next_check {
                next_check = waited + HANG_UP_CHECK;
                if self.has_hung_up() {
                    self.handle_loss(libc::ECONNRESET);
                }
            }
            self.pause(waited);
            self.advance(done);
        }
        Ok(())
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// Returns `None`: bytes of another machine are always read into buffers.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        // SAFETY: the caller keeps the region allocated until this queue is dropped.
        let registered =
            unsafe { Registration::new(self.region.fabric.domain(), region, len, Access::LocalWrite) };
        // If this fails, each operation registers its own bytes, or reports why it cannot.
        self.regions.extend(registered);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.operations.in_flight()
    }

    fn give_up(&mut self) {
        self.fail(ReadFault::of(FaultKind::LostPeer));
        self.reconnector.reset();
    }

    fn waker(&mut self) -> Option<Waker> {
        Some(Waker::from(self.wake_flag.clone()))
    }
}

impl WriteQueue for RdmaQueue {
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError> {
        // Operations that change something may block until there is a connection.
        if self.connection.is_none()
            && self.operations.pending.is_empty()
            && let Ok(connection) = self.region.connect(self.operations.depth() as u32)
        {
            self.set_connection(connection);
        }
        let mut taken = 0;
        for chain in operations.chunk_by(|before, _| before.linked) {
            if !self.operations.admits(chain)? {
                break;
            }
            if self.connection.is_none() {
                self.operations.fail_chain(chain);
            } else if !self.add_chain(chain) {
                break;
            }
            taken += chain.len();
        }
        self.post();
        Ok(taken)
    }
}

impl Drop for RdmaQueue {
    fn drop(&mut self) {
        match self.connection.take() {
            Some(Connection { link, .. }) if self.posted == 0 => self.region.fabric.keep(link),
            // Destroy the connection, with the operations in flight, before the registrations.
            lost => drop(lost),
        }
    }
}
