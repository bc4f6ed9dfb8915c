//! The queue of one thread over TCP. It sends operations and receives the responses in the same order.
//!
//! Only the queue's own thread writes to a caller's buffer, so the buffers are safe once the queue is
//! dropped.

use super::operations::{Operations, Pending};
use super::reconnector::{RETRY, Reconnector};
use super::session::Session;
use super::sockets::{self, PolledSocket};
use super::source::RegionSource;
use crate::wire::{OperationHead, Outcome, RESPONSE_HEAD_BYTES, ResponseHead, Verb};
use bathyal_tier::contract::{Action, Operation, WriteQueue};
use bathyal_tier::wake_socket::{WakeSocket, wake_sockets};
use bathyal_tier::{Completion, FaultKind, Queue, Read, ReadFault, Span, TierError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Bytes of the input buffer.
const INPUT_BYTES: usize = 64 << 10;
/// A read with at least this many missing bytes receives them directly into the caller's buffer.
const DIRECT_BYTES: usize = 16 << 10;

/// A connection, and the current key of the region.
type Connection = (TcpStream, u64);

/// An operation whose response has not arrived completely.
struct PendingOperation {
    id: u64,
    head: OperationHead,
    /// Buffer for the bytes of a read.
    into: *mut u8,
    /// Buffer for the old value of an atomic operation.
    old: *mut u64,
    /// True if it is one of several linked operations.
    is_linked: bool,
    /// Number of bytes of a read that the response's head has announced.
    announced: Option<u32>,
    /// Number of these bytes that have arrived.
    filled: u32,
}

impl Pending for PendingOperation {
    fn id(&self) -> u64 {
        self.id
    }

    fn is_repeatable(&self) -> bool {
        self.head.verb == Verb::Read && !self.is_linked
    }
}

/// Wakes a waiting queue.
struct QueueWaker(WakeSocket);

impl Wake for QueueWaker {
    fn wake(self: Arc<Self>) {
        // If the pipe is full, the queue has been woken already.
        let _ = (&self.0).write(&[0]);
    }
}

/// A queue for one region of a node.
pub(super) struct TcpQueue {
    source: Arc<RegionSource>,
    /// Key of the region when its generation was opened.
    opened: u64,
    /// Key of the region on the current connection.
    region: u64,
    /// `None` before the first operation, and after the connection was lost.
    stream: Option<TcpStream>,
    output: Vec<u8>,
    /// Number of bytes of `output` that have been sent.
    sent: usize,
    input: Box<[u8]>,
    /// Range of the received bytes in `input` that have not been used.
    from: usize,
    to: usize,
    operations: Operations<PendingOperation>,
    reconnector: Reconnector<Connection>,
    wakeup: Option<(WakeSocket, Waker)>,
}

// SAFETY: the pointers are plain addresses. The contract of [`Queue::submit`] says who may access the memory,
// whichever thread holds the queue.
unsafe impl Send for TcpQueue {}

impl TcpQueue {
    /// Creates a queue that connects when it is first used.
    pub(super) fn new(source: Arc<RegionSource>, opened: u64, depth: u32) -> TcpQueue {
        let (timeout, reconnector) = (source.session().timeout(), Reconnector::new(source.clone()));
        TcpQueue {
            source,
            opened,
            region: opened,
            stream: None,
            output: Vec::new(),
            sent: 0,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            from: 0,
            to: 0,
            operations: Operations::new(depth, timeout),
            reconnector,
            wakeup: None,
        }
    }

    /// Creates a connected queue for writing.
    pub(super) fn for_writing(
        source: Arc<RegionSource>,
        opened: u64,
        depth: u32,
    ) -> Result<TcpQueue, TierError> {
        let mut queue = TcpQueue::new(source, opened, depth);
        let connection = connect(&queue.source, opened).map_err(|fault| {
            let place = queue.source.session().path().display().to_string();
            TierError::Parameter(format!(
                "{place}: no data connection could be opened: {}",
                fault.kind.words()
            ))
        })?;
        queue.set_connection(connection);
        Ok(queue)
    }

    /// Adds an operation to the output. `bytes` follow its head.
    fn push_operation(&mut self, pending: PendingOperation, bytes: &[u8]) {
        self.output.extend_from_slice(&pending.head.encode());
        self.output.extend_from_slice(bytes);
        self.operations.push(pending);
    }

    fn push_read(&mut self, read: &Read) {
        let head = OperationHead {
            verb: Verb::Read,
            linked: false,
            len: read.len,
            region: self.region,
            offset: read.offset,
        };
        let (into, old) = (read.buffer, std::ptr::null_mut());
        self.push_operation(
            PendingOperation { id: read.id, head, into, old, is_linked: false, announced: None, filled: 0 },
            &[],
        );
    }

    fn push_chain(&mut self, chain: &[Operation]) {
        let is_linked = chain.len() > 1;
        for (at, Operation { id, offset, action, .. }) in chain.iter().enumerate() {
            let OperationBuffers { into, old, bytes } = buffers_of(*action);
            let head = OperationHead {
                verb: verb_of(*action),
                linked: at + 1 < chain.len(),
                len: action.len(),
                region: self.region,
                offset: *offset,
            };
            let (id, announced, filled) = (*id, None, 0);
            self.push_operation(
                PendingOperation { id, head, into, old, is_linked, announced, filled },
                bytes,
            );
        }
    }

    /// Takes a connection that the background thread has made, or starts one that makes it. Pending
    /// operations are sent again over a new connection, and fail if there will be none. Does not block.
    fn poll_connection(&mut self) {
        if self.stream.is_some() || self.operations.pending.is_empty() {
            return;
        }
        let opened = self.opened;
        let wakeup = &mut self.wakeup;
        match self.reconnector.poll(move |source| connect(source, opened), || waker(wakeup)) {
            Some(Ok(connection)) => {
                self.set_connection(connection);
                self.resend_all();
            }
            Some(Err(fault)) => self.fail(fault),
            None => {}
        }
    }

    fn set_connection(&mut self, (stream, region): Connection) {
        (self.stream, self.region) = (Some(stream), region);
        self.reconnector.reset();
        self.operations.note_progress();
    }

    /// Puts the heads of all pending reads into the output again. Each read starts over.
    fn resend_all(&mut self) {
        self.output.clear();
        self.sent = 0;
        for pending in &mut self.operations.pending {
            pending.head.region = self.region;
            (pending.announced, pending.filled) = (None, 0);
            self.output.extend_from_slice(&pending.head.encode());
        }
    }

    /// Fails all pending operations.
    fn fail(&mut self, fault: ReadFault) {
        self.close_connection();
        self.operations.fail_all(fault);
    }

    /// Closes the connection and discards partial input and output.
    fn close_connection(&mut self) {
        self.stream = None;
        self.output.clear();
        (self.sent, self.from, self.to) = (0, 0, 0);
    }

    /// Handles a lost connection: reads are sent again once over another one, and the other operations fail.
    fn handle_loss(&mut self, error: &io::Error) {
        let errno = match error.kind() {
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            _ => error.raw_os_error().unwrap_or(libc::ECONNRESET),
        };
        if !self.operations.begin_repetition() {
            self.fail(ReadFault { kind: FaultKind::LostPeer, errno });
            return;
        }
        self.close_connection();
        self.operations.keep_repeatable(errno);
        self.poll_connection();
    }

    /// Sends and receives as far as possible without waiting.
    fn advance(&mut self, done: &mut Vec<Completion>) {
        self.poll_connection();
        if let Err(error) = self.send().and_then(|()| self.receive(done)) {
            self.handle_loss(&error);
        } else if self.stream.is_some() && !self.operations.pending.is_empty() && self.operations.is_overdue()
        {
            self.handle_loss(&ErrorKind::TimedOut.into());
        }
        done.append(&mut self.operations.ended);
    }

    fn send(&mut self) -> io::Result<()> {
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

    fn receive(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        while !self.operations.pending.is_empty() {
            self.process_input(done)?;
            let Some(stream) = &mut self.stream else { return Ok(()) };
            let rest = self.operations.pending.front().and_then(|front| {
                let left = (front.announced? - front.filled) as usize;
                Some((front.into.wrapping_add(front.filled as usize), left))
            });
            let got = match rest {
                Some((into, left)) if left >= DIRECT_BYTES => {
                    // SAFETY: by the contract of `Queue::submit` the buffer has room for the requested bytes,
                    // and belongs to this read alone. The announced bytes are at most the requested ones.
                    unsafe { sockets::receive(stream, into, left) }
                }
                _ if self.operations.pending.is_empty() => return Ok(()),
                _ => {
                    // The remaining input is shorter than a head.
                    self.input.copy_within(self.from..self.to, 0);
                    (self.from, self.to) = (0, self.to - self.from);
                    stream.read(&mut self.input[self.to..])
                }
            };
            match got {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => {
                    self.operations.note_progress();
                    match (rest, self.operations.pending.front_mut()) {
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

    /// Processes the received bytes, except for an incomplete head at their end.
    fn process_input(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        while let Some(front) = self.operations.pending.front_mut() {
            let available = &self.input[self.from..self.to];
            let Some(announced) = front.announced else {
                let Some(bytes) = available.first_chunk::<RESPONSE_HEAD_BYTES>() else { return Ok(()) };
                let invalid = || io::Error::new(ErrorKind::InvalidData, "the node's response is invalid");
                let response = ResponseHead::decode(bytes).map_err(|_| invalid())?;
                let is_read = front.head.verb == Verb::Read;
                if let Outcome::Done(len) = response.outcome
                    && (len > front.head.len || (!is_read && len != front.head.len))
                {
                    return Err(invalid());
                }
                self.from += RESPONSE_HEAD_BYTES;
                if let (true, Outcome::Done(len)) = (is_read, response.outcome) {
                    front.announced = Some(len);
                    continue;
                }
                if !front.old.is_null() && matches!(response.outcome, Outcome::Done(_)) {
                    // SAFETY: `old` has room for a number by the contract of `WriteQueue::submit_operations`.
                    unsafe { front.old.write_unaligned(response.old) };
                }
                done.push(Completion { id: front.id, result: response.outcome.result() });
                self.operations.take_answered();
                continue;
            };
            let now = available.len().min((announced - front.filled) as usize);
            // SAFETY: by the contract of `Queue::submit` the buffer has room for the requested bytes, and
            // belongs to this read alone. The announced bytes are at most the requested ones.
            unsafe {
                let into = front.into.add(front.filled as usize);
                std::ptr::copy_nonoverlapping(available.as_ptr(), into, now);
            }
            self.from += now;
            front.filled += now as u32;
            if front.filled < announced {
                return Ok(());
            }
            done.push(Completion { id: front.id, result: Ok(announced) });
            self.operations.take_answered();
        }
        Ok(())
    }

    /// Waits until the node has sent something, output can be sent, or the queue is woken. Returns true if it
    /// was woken.
    fn wait(&self, timeout: Duration) -> bool {
        let stream = self.stream.as_ref();
        let mut watched = [
            stream.map_or_else(PolledSocket::none, |stream| {
                PolledSocket::new(stream, true, self.sent < self.output.len())
            }),
            self.wakeup
                .as_ref()
                .map_or_else(PolledSocket::none, |(bell, _)| PolledSocket::new(bell, true, false)),
        ];
        sockets::wait(&mut watched, timeout) && watched[1].is_ready()
    }

    /// Clears wake-ups, so that they do not end the next wait. Returns true if there was one.
    fn clear_wakeups(&mut self) -> bool {
        let Some((bell, _)) = &mut self.wakeup else { return false };
        let mut was_woken = false;
        let mut bytes = [0; 64];
        while matches!(bell.read(&mut bytes), Ok(1..)) {
            was_woken = true;
        }
        was_woken
    }
}

impl Queue for TcpQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let taken = reads.len().min(self.operations.room());
        reads[..taken].iter().for_each(|read| self.push_read(read));
        self.poll_connection();
        if let Err(error) = self.send() {
            self.handle_loss(&error);
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        done.append(&mut self.operations.ended);
        self.advance(done);
        let Some(wait) = wait else { return Ok(()) };
        let end = Instant::now() + wait;
        while done.len() == before && !self.operations.pending.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // Limit the wait, in order to notice a silent node, or one that has come back.
            let limit = if self.stream.is_some() { self.operations.timeout() } else { RETRY };
            if self.wait(left.min(limit)) && self.clear_wakeups() {
                break;
            }
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

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.operations.in_flight()
    }

    fn give_up(&mut self) {
        // Closing the connection discards responses that are still to come.
        self.fail(ReadFault::of(FaultKind::LostPeer));
        self.reconnector.reset();
    }

    fn waker(&mut self) -> Option<Waker> {
        waker(&mut self.wakeup)
    }
}

impl WriteQueue for TcpQueue {
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError> {
        // Operations that change something may block until there is a connection.
        if self.stream.is_none()
            && self.operations.pending.is_empty()
            && let Ok(connection) = connect(&self.source, self.opened)
        {
            self.set_connection(connection);
        }
        let mut taken = 0;
        for chain in operations.chunk_by(|before, _| before.linked) {
            if !self.operations.admits(chain)? {
                break;
            }
            if self.stream.is_some() {
                self.push_chain(chain);
            } else {
                self.operations.fail_chain(chain);
            }
            taken += chain.len();
        }
        if let Err(error) = self.send() {
            self.handle_loss(&error);
        }
        Ok(taken)
    }
}

/// Opens a data connection for the region that had the key `opened` when its generation was opened.
fn connect(source: &RegionSource, opened: u64) -> Result<Connection, ReadFault> {
    source.connect(opened, |session: &Arc<Session>, key| Ok((session.data()?, key)))
}

/// Returns the waker of a queue, which the first wakeup creates.
fn waker(wakeup: &mut Option<(WakeSocket, Waker)>) -> Option<Waker> {
    if wakeup.is_none() {
        let (bell, rope) = wake_sockets().ok()?;
        *wakeup = Some((bell, Waker::from(Arc::new(QueueWaker(rope)))));
    }
    wakeup.as_ref().map(|(_, waker)| waker.clone())
}

fn verb_of(action: Action) -> Verb {
    match action {
        Action::Read { .. } => Verb::Read,
        Action::Write { .. } => Verb::Write,
        Action::CompareAndSwap { expected, new, .. } => Verb::CompareAndSwap { expected, new },
        Action::FetchAndAdd { by, .. } => Verb::FetchAndAdd { by },
    }
}

/// Buffers of an operation. Those that it does not use are null or empty.
struct OperationBuffers<'b> {
    /// For the bytes read.
    into: *mut u8,
    /// For the old value.
    old: *mut u64,
    /// The bytes to send.
    bytes: &'b [u8],
}

/// Returns the buffers of an operation. The caller keeps all of them valid until the operation has ended.
fn buffers_of<'b>(action: Action) -> OperationBuffers<'b> {
    let none = OperationBuffers { into: std::ptr::null_mut(), old: std::ptr::null_mut(), bytes: &[] };
    match action {
        Action::Read { into, .. } => OperationBuffers { into, ..none },
        Action::Write { from, len } => {
            // SAFETY: `from` has `len` readable bytes by the contract of `WriteQueue::submit_operations`;
            // they are copied at once.
            OperationBuffers { bytes: unsafe { std::slice::from_raw_parts(from, len as usize) }, ..none }
        }
        Action::CompareAndSwap { old, .. } | Action::FetchAndAdd { old, .. } => {
            OperationBuffers { old, ..none }
        }
    }
}
