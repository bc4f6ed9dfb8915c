//! The queue of one thread over RDMA: operations are posted in lists, each of which the device is told of once and tells of
//! once.
//!
//! A device may write into a caller's buffer until the operation has finished or the connection is gone, so whoever gives
//! operations up ends the connection first.

use super::fabric::{Fabric, Link};
use super::reaching::Reaching;
use super::session::Session;
use super::source::Source;
use crate::control::ExposedMemory;
use crate::verbs::{Access, Finished, Registration, Work, WorkRequest};
use bathyal_tier::contract::{Action, Operation, WriteQueue};
use bathyal_tier::{Completion, FaultKind, Queue, Read, ReadFault, Span, TierError};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// How long a wait asks the device without a pause, which is what an answer of a good network takes several times over.
const SPINNING: Duration = Duration::from_micros(20);
/// How long it then lets others have the processor between two looks, before it sleeps.
const YIELDING: Duration = Duration::from_millis(1);
/// How long it sleeps between two looks.
const SLEEP: Duration = Duration::from_micros(50);
/// How often a wait looks whether the node has hung up.
const HANG_UP_LOOK: Duration = Duration::from_millis(10);

/// An operation that has not ended.
#[derive(Debug)]
struct Awaited {
    /// Its length is that of the bytes that there are.
    operation: Operation,
    /// Whether it is one of several that are linked.
    chained: bool,
    /// Whether reads and atomics before it have to have ended.
    fenced: bool,
    inline: bool,
    /// The key of the registration that its bytes of here lie in.
    key: u32,
    /// That registration, if it is for this operation alone.
    _own: Option<Registration>,
}

impl Awaited {
    /// Whether it does the same when it is done twice.
    fn is_repeatable(&self) -> bool {
        matches!(self.operation.action, Action::Read { .. }) && !self.chained
    }
}

/// A connection, and the region over it.
pub(super) struct Connection {
    link: Link,
    memory: ExposedMemory,
}

/// Ends a wait.
#[derive(Default)]
struct Call(AtomicBool);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Where a device puts the numbers that were there before.
struct Numbers {
    registration: Registration,
    words: Box<[AtomicU64]>,
}

/// What a queue is of.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) source: Arc<Source>,
    pub(super) fabric: Arc<Fabric>,
    /// The region's key when its generation was opened.
    pub(super) opened: u64,
    pub(super) len: u64,
}

impl Place {
    fn connect(&self, depth: u32) -> Result<Connection, ReadFault> {
        self.source.connect(self.opened, |session: &Arc<Session>, key| {
            let link = self.fabric.link(session, depth)?;
            let memory = session.expose(key, self.len)?;
            Ok(Connection { link, memory })
        })
    }
}

/// See the module's description.
pub(super) struct RdmaQueue {
    /// `None` when it was lost and nothing has been asked since. Before what it may write to: it ends first.
    connection: Option<Connection>,
    /// In the order in which they are posted; of them, how many the device has, and the number of the first.
    awaited: VecDeque<Awaited>,
    posted: usize,
    first: u64,
    /// What is over without the device.
    ended: Vec<Completion>,
    finished: Vec<Finished>,
    regions: Vec<Registration>,
    numbers: Option<Numbers>,
    place: Place,
    depth: usize,
    /// Work requests that are posted as one list.
    doorbell: usize,
    reaching: Reaching<Connection>,
    /// When anything last finished, or was first posted.
    heard: Instant,
    /// Whether all that is awaited was asked a second time, and nothing has come since.
    repeated: bool,
    timeout: Duration,
    call: Arc<Call>,
}

// SAFETY: addresses. Who may touch what lies there is the contract of [`Queue::submit`], whichever thread holds the queue.
unsafe impl Send for RdmaQueue {}

impl RdmaQueue {
    /// One that connects when it is first used.
    pub(super) fn new(place: Place, depth: u32, doorbell: u32) -> RdmaQueue {
        let depth = depth.clamp(1, place.fabric.domain().device().most_work_requests()) as usize;
        RdmaQueue {
            connection: None,
            awaited: VecDeque::new(),
            posted: 0,
            first: 0,
            ended: Vec::new(),
            finished: Vec::new(),
            regions: Vec::new(),
            numbers: None,
            depth,
            doorbell: doorbell.max(1) as usize,
            reaching: Reaching::new(place.source.clone()),
            heard: Instant::now(),
            repeated: false,
            timeout: place.source.session().timeout(),
            call: Arc::default(),
            place,
        }
    }

    /// One that is connected, for whoever changes something.
    pub(super) fn for_writing(place: Place, depth: u32, doorbell: u32) -> Result<RdmaQueue, TierError> {
        let mut queue = RdmaQueue::new(place, depth, doorbell);
        let node = queue.place.source.session().path().display().to_string();
        let refused = |why: &str| TierError::Parameter(format!("{node}: there is no RDMA connection: {why}"));
        let words: Box<[AtomicU64]> = (0..queue.depth).map(|_| AtomicU64::new(0)).collect();
        let (start, bytes) = (words.as_ptr().cast_mut().cast(), size_of_val(&*words));
        // SAFETY: the words are dropped behind the registration, and are atomic: the device changes them.
        let registration =
            unsafe { Registration::new(queue.place.fabric.domain(), start, bytes, Access::Filled) };
        let registration = registration.map_err(|e| refused(&e.to_string()))?;
        queue.numbers = Some(Numbers { registration, words });
        let connection = queue.place.connect(queue.depth as u32);
        queue.take(connection.map_err(|fault| refused(fault.kind.words()))?);
        Ok(queue)
    }

    fn take(&mut self, connection: Connection) {
        self.connection = Some(connection);
        self.reaching.forget();
        self.heard = Instant::now();
    }

    /// Takes a chain: each operation is noted to be posted, or has ended already. Not where memory that is locked is short, and
    /// what is under way will give some back: whether it was taken.
    fn note(&mut self, chain: &[Operation]) -> bool {
        let (mut broken, mut reads, mut noted) = (false, false, 0);
        for operation in chain {
            let (id, skipped) = (operation.id, ReadFault::of(FaultKind::Skipped));
            if broken {
                self.ended.push(Completion { id, result: Err(skipped) });
                continue;
            }
            match self.prepare(operation, chain.len() > 1, reads) {
                Ok(Some(awaited)) => {
                    if self.awaited.is_empty() {
                        (self.heard, self.repeated) = (Instant::now(), false);
                    }
                    self.awaited.push_back(awaited);
                    noted += 1;
                }
                Ok(None) => self.ended.push(Completion { id, result: Ok(0) }),
                Err(fault) if noted == 0 && fault.errno == libc::ENOMEM && !self.awaited.is_empty() => {
                    return false;
                }
                Err(fault) => {
                    self.ended.push(Completion { id, result: Err(fault) });
                    broken = true;
                }
            }
            reads = !matches!(operation.action, Action::Write { .. });
        }
        // What is noted next does not follow it.
        if let (1.., Some(last)) = (noted, self.awaited.back_mut()) {
            last.operation.linked = false;
        }
        true
    }

    /// Finds what a device needs for an operation; `None` for a read where the tier has no bytes any more.
    ///
    /// What the node's device would refuse is refused here: there, it would end the connection.
    fn prepare(
        &self,
        operation: &Operation,
        chained: bool,
        fenced: bool,
    ) -> Result<Option<Awaited>, ReadFault> {
        let mut operation = *operation;
        let (outside, len) = (ReadFault::system(libc::EINVAL), u64::from(operation.action.len()));
        let left = self.place.len.saturating_sub(operation.offset);
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
        if len > self.place.fabric.domain().device().most_message_bytes() {
            return Err(ReadFault::system(libc::EMSGSIZE));
        }
        let (mut inline, mut own) = (false, None);
        let key = match operation.action {
            Action::Read { into, .. } => self.key(into, len, Access::Filled, &mut own)?,
            Action::Write { .. } if len <= self.place.fabric.most_inline() => {
                inline = true;
                0
            }
            Action::Write { from, .. } => self.key(from.cast_mut(), len, Access::Sent, &mut own)?,
            _ => {
                let numbers = self.numbers.as_ref().ok_or(ReadFault::of(FaultKind::Denied))?;
                numbers.registration.local_key()
            }
        };
        Ok(Some(Awaited { operation, chained, fenced, inline, key, _own: own }))
    }

    /// The key of bytes of here: of a region that they lie in, or of a registration of their `own`.
    fn key(
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
        // SAFETY: the bytes are the operation's until it has ended, by the contract of `Queue::submit`.
        let registration = unsafe { Registration::new(self.place.fabric.domain(), start, len, access) };
        let registration = registration.map_err(|e| match e.kind() {
            ErrorKind::OutOfMemory => ReadFault::system(libc::ENOMEM),
            _ => ReadFault::system(libc::EFAULT),
        })?;
        Ok(own.insert(registration).local_key())
    }

    /// Sees that there is a connection, or will be, and that it has all that is awaited. Without one, all that is awaited has
    /// failed, or waits for the node to come back. Nobody waits here.
    fn post(&mut self) {
        if self.connection.is_none() && !self.awaited.is_empty() {
            let (place, depth, call) = (self.place.clone(), self.depth as u32, self.call.clone());
            let connect = move |_: &Source| place.connect(depth);
            match self.reaching.look(connect, || Some(Waker::from(call))) {
                Some(Ok(connection)) => self.take(connection),
                Some(Err(fault)) => self.fail(fault),
                None => {}
            }
        }
        while let Some(connection) = &mut self.connection
            && self.posted < self.awaited.len()
        {
            let to = self.awaited.len().min(self.posted + self.doorbell);
            let (first, numbers, memory) = (self.first, self.numbers.as_ref(), connection.memory);
            let list = self.awaited.range(self.posted..to).enumerate();
            let posted = self.posted;
            let list =
                list.map(|(at, awaited)| request(awaited, first + (posted + at) as u64, memory, numbers));
            // SAFETY: keys of registrations that this queue or the operation has; the bytes are the device's by the contract
            // of `Queue::submit`, and the queue is no deeper than the connection.
            let taken = unsafe { connection.link.pair.post(list) };
            self.posted = to;
            if let Err(error) = taken {
                self.lose(error.raw_os_error().unwrap_or(libc::EIO));
            }
        }
    }

    /// Takes what has finished, without waiting.
    fn pump(&mut self, done: &mut Vec<Completion>) {
        self.post();
        let mut finished = std::mem::take(&mut self.finished);
        let polled = self.connection.as_mut().map(|connection| connection.link.pair.poll(&mut finished));
        for Finished { id, result } in finished.drain(..) {
            self.heard = Instant::now();
            // Those before it were posted before it, and have not failed.
            self.retire(id, done);
            match result {
                Ok(()) => self.retire(id + 1, done),
                Err(fault) => {
                    self.refuse(fault);
                    break;
                }
            }
        }
        self.finished = finished;
        if let Some(Err(error)) = polled {
            self.lose(error.raw_os_error().unwrap_or(libc::EIO));
        } else if self.posted > 0 && self.heard.elapsed() > self.timeout {
            self.lose(libc::ETIMEDOUT);
        }
        done.append(&mut self.ended);
    }

    /// Ends all before the one with the number `end`: they are done.
    fn retire(&mut self, end: u64, done: &mut Vec<Completion>) {
        while self.first < end && self.posted > 0 {
            let Some(Awaited { operation, .. }) = self.awaited.pop_front() else { break };
            if let Action::CompareAndSwap { old, .. } | Action::FetchAndAdd { old, .. } = operation.action
                && let Some(numbers) = &self.numbers
            {
                let number = numbers.words[slot(self.first, &numbers.words)].load(Ordering::Acquire);
                // SAFETY: room for the old number by the contract of `WriteQueue::submit_operations`.
                unsafe { old.write_unaligned(number) };
            }
            done.push(Completion { id: operation.id, result: Ok(operation.action.len()) });
            self.first += 1;
            self.posted -= 1;
            self.repeated = false;
        }
    }

    /// The first of what is awaited has failed, and with it the connection.
    ///
    /// The device of a node that ends refuses what it is asked before it falls silent. So a read that is refused is asked again
    /// once, as one that is lost: the node says whether it is there.
    fn refuse(&mut self, fault: ReadFault) {
        let may_be_lost = self.awaited.front().is_some_and(Awaited::is_repeatable) && !self.repeated;
        if fault.kind == FaultKind::LostPeer || may_be_lost || self.has_hung_up() {
            self.lose(if fault.kind == FaultKind::LostPeer { fault.errno } else { libc::ECONNRESET });
            return;
        }
        self.end_connection();
        let mut result = fault;
        while let Some(Awaited { operation, .. }) = self.awaited.pop_front() {
            self.first += 1;
            self.ended.push(Completion { id: operation.id, result: Err(result) });
            if !operation.linked {
                break;
            }
            result = ReadFault::of(FaultKind::Skipped);
        }
        self.repeated = false;
        self.sort_out(libc::ECONNRESET);
    }

    /// The connection is lost: what can be asked again is, once, by another one.
    fn lose(&mut self, errno: i32) {
        if std::mem::replace(&mut self.repeated, true) {
            self.fail(ReadFault { kind: FaultKind::LostPeer, errno });
            return;
        }
        self.end_connection();
        self.sort_out(errno);
    }

    /// Of what is awaited without a connection, keeps what can be asked again; of the rest is not known whether it was done.
    fn sort_out(&mut self, errno: i32) {
        let lost = ReadFault { kind: FaultKind::LostPeer, errno };
        let (again, over): (Vec<_>, Vec<_>) = self.awaited.drain(..).partition(Awaited::is_repeatable);
        let failed = |awaited: Awaited| Completion { id: awaited.operation.id, result: Err(lost) };
        self.ended.extend(over.into_iter().map(failed));
        self.awaited.extend(again);
    }

    /// Ends all that is awaited.
    fn fail(&mut self, fault: ReadFault) {
        self.end_connection();
        self.repeated = false;
        let failed = |awaited: Awaited| Completion { id: awaited.operation.id, result: Err(fault) };
        self.ended.extend(self.awaited.drain(..).map(failed));
    }

    /// From here on no device touches what is awaited.
    fn end_connection(&mut self) {
        self.connection = None;
        self.posted = 0;
    }

    /// Lets time pass in a wait that began so long ago.
    fn pause(&self, waited: Duration) {
        if waited < SPINNING {
            std::hint::spin_loop();
        } else if waited < YIELDING && self.connection.is_some() {
            std::thread::yield_now();
        } else {
            std::thread::sleep(SLEEP);
        }
    }

    fn has_hung_up(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.link.session.has_hung_up())
    }
}

/// Where the old number of the operation with this number goes: no two that are posted have the same place.
fn slot(number: u64, words: &[AtomicU64]) -> usize {
    (number % words.len() as u64) as usize
}

/// What the device is asked for.
fn request(awaited: &Awaited, id: u64, memory: ExposedMemory, numbers: Option<&Numbers>) -> WorkRequest {
    let number = numbers.map_or(0, |numbers| {
        numbers.registration.start() + (slot(id, &numbers.words) * size_of::<u64>()) as u64
    });
    let (work, local) = match awaited.operation.action {
        Action::Read { into, .. } => (Work::Read, into as u64),
        Action::Write { from, .. } => (Work::Write { inline: awaited.inline }, from as u64),
        Action::CompareAndSwap { expected, new, .. } => (Work::CompareAndSwap { expected, new }, number),
        Action::FetchAndAdd { by, .. } => (Work::FetchAndAdd { by }, number),
    };
    WorkRequest {
        id,
        work,
        fenced: awaited.fenced,
        local,
        local_key: awaited.key,
        len: awaited.operation.action.len(),
        remote: memory.address.wrapping_add(awaited.operation.offset),
        remote_key: memory.key,
    }
}

impl Queue for RdmaQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let room = self.depth - self.in_flight();
        let mut taken = 0;
        for Read { id, offset, len, buffer, .. } in reads.iter().take(room) {
            let action = Action::Read { into: *buffer, len: *len };
            if !self.note(&[Operation { id: *id, offset: *offset, action, linked: false }]) {
                break;
            }
            taken += 1;
        }
        self.post();
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        self.pump(done);
        let Some(wait) = wait else { return Ok(()) };
        let began = Instant::now();
        let mut next_look = HANG_UP_LOOK;
        while done.len() == before && !self.awaited.is_empty() {
            let waited = began.elapsed();
            if waited >= wait || self.call.0.swap(false, Ordering::Acquire) {
                break;
            }
            if waited >= next_look {
                next_look = waited + HANG_UP_LOOK;
                if self.has_hung_up() {
                    self.lose(libc::ECONNRESET);
                }
            }
            self.pause(waited);
            self.pump(done);
        }
        Ok(())
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// None: what lies elsewhere is read into buffers.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        // SAFETY: the caller keeps the region allocated until this queue is dropped.
        let registered =
            unsafe { Registration::new(self.place.fabric.domain(), region, len, Access::Filled) };
        // Without, each operation registers its own bytes, or says why it cannot.
        self.regions.extend(registered);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.awaited.len() + self.ended.len()
    }

    fn give_up(&mut self) {
        self.fail(ReadFault::of(FaultKind::LostPeer));
        self.reaching.forget();
    }

    fn waker(&mut self) -> Option<Waker> {
        Some(Waker::from(self.call.clone()))
    }
}

impl WriteQueue for RdmaQueue {
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError> {
        // Whoever changes something waits for the connection.
        if self.connection.is_none()
            && self.awaited.is_empty()
            && let Ok(connection) = self.place.connect(self.depth as u32)
        {
            self.take(connection);
        }
        let mut taken = 0;
        for chain in operations.chunk_by(|before, _| before.linked) {
            if chain.len() > self.depth {
                return Err(TierError::Parameter(format!(
                    "{} linked operations do not fit a queue of depth {}: open it deeper, or link fewer",
                    chain.len(),
                    self.depth
                )));
            }
            if chain.len() > self.depth - self.in_flight() {
                break;
            }
            if self.connection.is_none() {
                // Changes wait for nobody: what is there when the node comes back is not known.
                let lost = ReadFault::of(FaultKind::LostPeer);
                self.ended.extend(chain.iter().map(|one| Completion { id: one.id, result: Err(lost) }));
            } else if !self.note(chain) {
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
            Some(Connection { link, .. }) if self.posted == 0 => self.place.fabric.keep(link),
            // Ends with what is under way, before the registrations do.
            lost => drop(lost),
        }
    }
}
