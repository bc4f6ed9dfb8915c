//! The queue of one thread over TCP: operations out, answers in, in the same order.
//!
//! Nothing but the queue's own thread writes to a caller's buffer, so a queue that is dropped leaves none in danger.

use super::reaching::{RETRY, Reaching};
use super::session::Session;
use super::sockets::{self, Watched};
use super::source::Source;
use crate::wire::{ANSWER_BYTES, Answer, Head, Outcome, Verb};
use bathyal_tier::contract::{Action, Operation, WriteQueue};
use bathyal_tier::wake_socket::{WakeSocket, wake_sockets};
use bathyal_tier::{Completion, FaultKind, Queue, Read, ReadFault, Span, TierError};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Bytes that are received at once.
const INPUT_BYTES: usize = 64 << 10;
/// What is left of a read from so many bytes on comes straight to where it belongs.
const DIRECT_BYTES: usize = 16 << 10;

/// A connection, and the key by which the region is asked for on it.
type Connection = (TcpStream, u64);

/// An operation that was sent.
struct Awaited {
    id: u64,
    head: Head,
    /// Where the bytes of a read go.
    into: *mut u8,
    /// Where the number goes that was there.
    old: *mut u64,
    /// Whether it is one of several that are linked.
    chained: bool,
    /// Bytes that the answer has promised, and those of them that are there.
    promised: Option<u32>,
    filled: u32,
}

impl Awaited {
    /// Whether it does the same when it is done twice.
    fn is_repeatable(&self) -> bool {
        self.head.verb == Verb::Read && !self.chained
    }
}

/// Ends a wait.
struct Call(WakeSocket);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        // A pipe that is full has woken already.
        let _ = (&self.0).write(&[0]);
    }
}

/// See the module's description.
pub(super) struct RemoteQueue {
    source: Arc<Source>,
    /// The region's key when its generation was opened, and the one by which it is asked for now.
    opened: u64,
    region: u64,
    depth: usize,
    /// `None` when it was lost and nothing has been asked since.
    stream: Option<TcpStream>,
    output: Vec<u8>,
    /// Bytes of the output that are sent.
    sent: usize,
    input: Box<[u8]>,
    /// Bytes of the input that are there and not used.
    from: usize,
    to: usize,
    awaited: VecDeque<Awaited>,
    /// What is over without an answer.
    ended: Vec<Completion>,
    /// When the node last said anything, or was first asked.
    heard: Instant,
    /// Whether all that is awaited was sent a second time, and nothing has come since.
    repeated: bool,
    timeout: Duration,
    reaching: Reaching<Connection>,
    call: Option<(WakeSocket, Waker)>,
}

// SAFETY: addresses. Who may touch what lies there is the contract of [`Queue::submit`], whichever thread holds the queue.
unsafe impl Send for RemoteQueue {}

impl RemoteQueue {
    /// One that connects when it is first used.
    pub(super) fn new(source: Arc<Source>, opened: u64, depth: u32) -> RemoteQueue {
        let (timeout, reaching) = (source.session().timeout(), Reaching::new(source.clone()));
        RemoteQueue {
            source,
            opened,
            region: opened,
            depth: depth.max(1) as usize,
            stream: None,
            output: Vec::new(),
            sent: 0,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            from: 0,
            to: 0,
            awaited: VecDeque::new(),
            ended: Vec::new(),
            heard: Instant::now(),
            repeated: false,
            timeout,
            reaching,
            call: None,
        }
    }

    /// One that is connected, for whoever changes something.
    pub(super) fn for_writing(
        source: Arc<Source>,
        opened: u64,
        depth: u32,
    ) -> Result<RemoteQueue, TierError> {
        let mut queue = RemoteQueue::new(source, opened, depth);
        let connection = connect(&queue.source, opened).map_err(|fault| {
            let place = queue.source.session().path().display().to_string();
            TierError::Parameter(format!("{place}: there is no connection for data: {}", fault.kind.words()))
        })?;
        queue.take(connection);
        Ok(queue)
    }

    /// Notes an operation to be sent; `bytes` follow it.
    fn put(&mut self, awaited: Awaited, bytes: &[u8]) {
        if self.awaited.is_empty() {
            self.heard = Instant::now();
        }
        self.output.extend_from_slice(&awaited.head.encode());
        self.output.extend_from_slice(bytes);
        self.awaited.push_back(awaited);
    }

    fn put_read(&mut self, read: &Read) {
        let head =
            Head { verb: Verb::Read, linked: false, len: read.len, region: self.region, offset: read.offset };
        let (into, old) = (read.buffer, std::ptr::null_mut());
        self.put(Awaited { id: read.id, head, into, old, chained: false, promised: None, filled: 0 }, &[]);
    }

    /// Sees that there is a connection, or will be. Without one, all that is awaited has failed, or waits for the node to come
    /// back. Nobody waits here: a connection is made by a thread of its own, which ends the wait of this one.
    fn connected(&mut self) {
        if self.stream.is_some() || self.awaited.is_empty() {
            return;
        }
        let opened = self.opened;
        let call = &mut self.call;
        match self.reaching.look(move |source| connect(source, opened), || waker(call)) {
            Some(Ok(connection)) => {
                self.take(connection);
                self.put_again();
            }
            Some(Err(fault)) => self.fail(fault),
            None => {}
        }
    }

    fn take(&mut self, (stream, region): Connection) {
        (self.stream, self.region) = (Some(stream), region);
        self.reaching.forget();
        self.heard = Instant::now();
    }

    /// Says anew all that is awaited: reads, each from its first byte on.
    fn put_again(&mut self) {
        self.output.clear();
        self.sent = 0;
        for awaited in &mut self.awaited {
            awaited.head.region = self.region;
            (awaited.promised, awaited.filled) = (None, 0);
            self.output.extend_from_slice(&awaited.head.encode());
        }
    }

    /// Ends all that is awaited.
    fn fail(&mut self, fault: ReadFault) {
        self.forget();
        self.repeated = false;
        let failed = |awaited: Awaited| Completion { id: awaited.id, result: Err(fault) };
        self.ended.extend(self.awaited.drain(..).map(failed));
    }

    /// Gives the connection up, and what is half on its way.
    fn forget(&mut self) {
        self.stream = None;
        self.output.clear();
        (self.sent, self.from, self.to) = (0, 0, 0);
    }

    /// The connection is lost: what can be asked again is, once, by another one.
    fn lose(&mut self, error: &io::Error) {
        let errno = match error.kind() {
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            _ => error.raw_os_error().unwrap_or(libc::ECONNRESET),
        };
        let lost = ReadFault { kind: FaultKind::LostPeer, errno };
        if std::mem::replace(&mut self.repeated, true) {
            self.fail(lost);
            return;
        }
        self.forget();
        let (again, over): (Vec<_>, Vec<_>) = self.awaited.drain(..).partition(Awaited::is_repeatable);
        // Whether it was done is not known.
        self.ended.extend(over.into_iter().map(|awaited| Completion { id: awaited.id, result: Err(lost) }));
        self.awaited.extend(again);
        self.connected();
    }

    /// Sends and receives what can be without waiting.
    fn pump(&mut self, done: &mut Vec<Completion>) {
        self.connected();
        let Err(error) = self.send_out().and_then(|()| self.take_in(done)) else {
            if self.stream.is_some() && !self.awaited.is_empty() && self.heard.elapsed() > self.timeout {
                self.lose(&ErrorKind::TimedOut.into());
            }
            done.append(&mut self.ended);
            return;
        };
        self.lose(&error);
        done.append(&mut self.ended);
    }

    fn send_out(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.sent < self.output.len() {
            match stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    fn take_in(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        while !self.awaited.is_empty() {
            self.use_input(done)?;
            let Some(stream) = &mut self.stream else { return Ok(()) };
            let rest = self.awaited.front().and_then(|front| {
                let left = (front.promised? - front.filled) as usize;
                Some((front.into.wrapping_add(front.filled as usize), left))
            });
            let got = match rest {
                Some((into, left)) if left >= DIRECT_BYTES => {
                    // SAFETY: by the contract of `Queue::submit` the buffer holds as many writable bytes as were asked for, which
                    // is what was promised at most, and they are this read's alone.
                    unsafe { sockets::receive(stream, into, left) }
                }
                _ if self.awaited.is_empty() => return Ok(()),
                _ => {
                    // What is left of the input is less than a head.
                    self.input.copy_within(self.from..self.to, 0);
                    (self.from, self.to) = (0, self.to - self.from);
                    stream.read(&mut self.input[self.to..])
                }
            };
            match got {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => {
                    self.heard = Instant::now();
                    match (rest, self.awaited.front_mut()) {
                        (Some((_, left)), Some(front)) if left >= DIRECT_BYTES => front.filled += got as u32,
                        _ => self.to += got,
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Uses up what was received, but for part of a head.
    fn use_input(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        while let Some(front) = self.awaited.front_mut() {
            let there = &self.input[self.from..self.to];
            let Some(promised) = front.promised else {
                let Some(bytes) = there.first_chunk::<ANSWER_BYTES>() else { return Ok(()) };
                let nonsense = || io::Error::new(ErrorKind::InvalidData, "the node's answer makes no sense");
                let answer = Answer::decode(bytes).map_err(|_| nonsense())?;
                let reads = front.head.verb == Verb::Read;
                if let Outcome::Done(len) = answer.outcome
                    && (len > front.head.len || (!reads && len != front.head.len))
                {
                    return Err(nonsense());
                }
                self.from += ANSWER_BYTES;
                if let (true, Outcome::Done(len)) = (reads, answer.outcome) {
                    front.promised = Some(len);
                    continue;
                }
                if !front.old.is_null() && matches!(answer.outcome, Outcome::Done(_)) {
                    // SAFETY: room for the old number by the contract of `WriteQueue::submit_operations`.
                    unsafe { front.old.write_unaligned(answer.old) };
                }
                done.push(Completion { id: front.id, result: answer.outcome.result() });
                self.repeated = false;
                self.awaited.pop_front();
                continue;
            };
            let now = there.len().min((promised - front.filled) as usize);
            // SAFETY: by the contract of `Queue::submit` the buffer holds as many writable bytes as were asked for, which is
            // what was promised at most, and they are this read's alone.
            unsafe {
                let into = front.into.add(front.filled as usize);
                std::ptr::copy_nonoverlapping(there.as_ptr(), into, now);
            }
            self.from += now;
            front.filled += now as u32;
            if front.filled < promised {
                return Ok(());
            }
            done.push(Completion { id: front.id, result: Ok(promised) });
            self.repeated = false;
            self.awaited.pop_front();
        }
        Ok(())
    }

    /// Sleeps until the node says something, what is to be sent can be, or the queue is woken; whether it was.
    fn sleep(&self, most: Duration) -> bool {
        let stream = self.stream.as_ref();
        let mut places = [
            stream.map_or_else(Watched::none, |stream| {
                Watched::of(stream, true, self.sent < self.output.len())
            }),
            self.call.as_ref().map_or_else(Watched::none, |(bell, _)| Watched::of(bell, true, false)),
        ];
        sockets::wait(&mut places, most) && places[1].is_ready()
    }

    /// Hears calls, so that the next wait does not.
    fn answer_call(&mut self) -> bool {
        let Some((bell, _)) = &mut self.call else { return false };
        let mut rung = false;
        let mut bytes = [0; 64];
        while matches!(bell.read(&mut bytes), Ok(1..)) {
            rung = true;
        }
        rung
    }
}

impl Queue for RemoteQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let taken = reads.len().min(self.depth - self.in_flight());
        reads[..taken].iter().for_each(|read| self.put_read(read));
        self.connected();
        if let Err(error) = self.send_out() {
            self.lose(&error);
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        done.append(&mut self.ended);
        self.pump(done);
        let Some(wait) = wait else { return Ok(()) };
        let end = Instant::now() + wait;
        while done.len() == before && !self.awaited.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // A node that says nothing is noticed in time, and one that comes back.
            let most = if self.stream.is_some() { self.timeout } else { RETRY };
            if self.sleep(left.min(most)) && self.answer_call() {
                break;
            }
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

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.awaited.len() + self.ended.len()
    }

    fn give_up(&mut self) {
        // What is still to come would come on this connection.
        self.fail(ReadFault::of(FaultKind::LostPeer));
        self.reaching.forget();
    }

    fn waker(&mut self) -> Option<Waker> {
        waker(&mut self.call)
    }
}

impl WriteQueue for RemoteQueue {
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError> {
        // Whoever changes something waits for the connection.
        if self.stream.is_none()
            && self.awaited.is_empty()
            && let Ok(connection) = connect(&self.source, self.opened)
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
            if self.stream.is_none() {
                // Changes wait for nobody: what is there when the node comes back is not known.
                let lost = ReadFault::of(FaultKind::LostPeer);
                self.ended.extend(chain.iter().map(|one| Completion { id: one.id, result: Err(lost) }));
                taken += chain.len();
                continue;
            }
            for (at, operation) in chain.iter().enumerate() {
                let (into, old, bytes) = parts(operation.action);
                let head = Head {
                    verb: verb(operation.action),
                    linked: at + 1 < chain.len(),
                    len: operation.action.len(),
                    region: self.region,
                    offset: operation.offset,
                };
                let chained = chain.len() > 1;
                let awaited =
                    Awaited { id: operation.id, head, into, old, chained, promised: None, filled: 0 };
                self.put(awaited, bytes);
            }
            taken += chain.len();
        }
        if let Err(error) = self.send_out() {
            self.lose(&error);
        }
        Ok(taken)
    }
}

/// A data connection for a region by the key that it had when it was opened.
fn connect(source: &Source, opened: u64) -> Result<Connection, ReadFault> {
    source.connect(opened, |session: &Arc<Session>, key| Ok((session.data()?, key)))
}

/// What ends a queue's wait, made when it is first asked for.
fn waker(call: &mut Option<(WakeSocket, Waker)>) -> Option<Waker> {
    if call.is_none() {
        let (bell, rope) = wake_sockets().ok()?;
        *call = Some((bell, Waker::from(Arc::new(Call(rope)))));
    }
    call.as_ref().map(|(_, waker)| waker.clone())
}

fn verb(action: Action) -> Verb {
    match action {
        Action::Read { .. } => Verb::Read,
        Action::Write { .. } => Verb::Write,
        Action::CompareAndSwap { expected, new, .. } => Verb::CompareAndSwap { expected, new },
        Action::FetchAndAdd { by, .. } => Verb::FetchAndAdd { by },
    }
}

/// Where what comes back goes, and what is sent. The bytes are those of the caller, who keeps them until the operation is over.
fn parts<'b>(action: Action) -> (*mut u8, *mut u64, &'b [u8]) {
    let (no_bytes, no_number) = (std::ptr::null_mut(), std::ptr::null_mut());
    match action {
        Action::Read { into, .. } => (into, no_number, &[]),
        Action::Write { from, len } => {
            // SAFETY: `len` readable bytes by the contract of `WriteQueue::submit_operations`; they are copied at once.
            (no_bytes, no_number, unsafe { std::slice::from_raw_parts(from, len as usize) })
        }
        Action::CompareAndSwap { old, .. } | Action::FetchAndAdd { old, .. } => (no_bytes, old, &[]),
    }
}
