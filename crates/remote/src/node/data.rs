//! A data connection of the node. It executes operations in order and responds in the same order. Its memory
//! is two buffers of fixed size, whatever the client requests.

use super::NodeCounters;
use super::region_memory::NodeRegion;
use super::regions::RegionMap;
use super::session::Session;
use crate::wire::{OPERATION_HEAD_BYTES, OperationHead, Outcome, RESPONSE_HEAD_BYTES, ResponseHead, Verb};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of each of the two buffers of a connection.
const BUFFER_BYTES: usize = 256 << 10;
/// Rounds of receiving, executing and sending before other connections get their turn.
const ROUNDS: usize = 16;

/// Result of advancing a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The connection waits for its client.
    Wait,
    /// There is more to do without waiting.
    Again,
    /// The connection must be closed.
    Close,
}

/// An operation in progress.
enum OperationInProgress {
    /// A read that sends `left` more bytes, from `offset` on.
    Reading { region: Arc<NodeRegion>, offset: u64, left: u32 },
    /// A write that receives `left` more bytes. They are written at `offset`, or discarded if `outcome` is a
    /// failure already; `offset` may be anything then.
    Writing { region: Option<Arc<NodeRegion>>, offset: u64, left: u32, outcome: Outcome },
}

/// State of a data connection.
pub(super) struct DataConnection<S> {
    stream: S,
    session: Arc<Session>,
    /// Regions of the session when they were last fetched.
    regions: RegionMap,
    /// The value of [`Session::changes`] at that time.
    seen_changes: u64,
    /// Region of the last operation.
    last: Option<Arc<NodeRegion>>,
    input: Box<[u8]>,
    /// Range of the received bytes in `input` that have not been used.
    from: usize,
    to: usize,
    output: Box<[u8]>,
    /// Number of sent bytes, and of all bytes, in `output`.
    sent: usize,
    filled: usize,
    in_progress: Option<OperationInProgress>,
    /// True if the previous operation failed and this one is linked to it.
    chain_failed: bool,
}

impl<S: Read + Write> DataConnection<S> {
    pub(super) fn new(stream: S, session: Arc<Session>) -> DataConnection<S> {
        let buffer = || vec![0; BUFFER_BYTES].into_boxed_slice();
        DataConnection {
            stream,
            session,
            regions: RegionMap::new(),
            seen_changes: 0,
            last: None,
            input: buffer(),
            from: 0,
            to: 0,
            output: buffer(),
            sent: 0,
            filled: 0,
            in_progress: None,
            chain_failed: false,
        }
    }

    pub(super) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    pub(super) fn is_closed(&self) -> bool {
        self.session.is_closed()
    }

    /// Fetches the session's regions if they have changed.
    pub(super) fn refresh_regions(&mut self) {
        let changes = self.session.changes();
        if changes != self.seen_changes {
            self.seen_changes = changes;
            self.regions = self.session.regions();
            self.last = None;
        }
    }

    /// Appends bytes to the output, which must have room for them.
    fn push_output(&mut self, bytes: &[u8]) {
        self.output[self.filled..][..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Receives, executes and sends as far as possible without waiting.
    pub(super) fn advance(&mut self, counters: &NodeCounters) -> NextStep {
        for _ in 0..ROUNDS {
            let received = match self.receive() {
                Ok(received) => received,
                Err(()) => return NextStep::Close,
            };
            let before = (self.from, self.filled);
            if self.execute(counters).is_err() {
                return NextStep::Close;
            }
            let executed = before != (self.from, self.filled);
            match self.send() {
                Ok(sent) if !received && !executed && !sent => return NextStep::Wait,
                Ok(_) => {}
                Err(()) => return NextStep::Close,
            }
        }
        NextStep::Again
    }

    /// Receives what fits the input buffer. Returns true if anything arrived.
    fn receive(&mut self) -> Result<bool, ()> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.from > 0 && self.to == self.input.len() {
            self.input.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        if self.to == self.input.len() {
            return Ok(false);
        }
        match self.stream.read(&mut self.input[self.to..]) {
            Ok(0) => Err(()),
            Ok(got) => {
                self.to += got;
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(_) => Err(()),
        }
    }

    /// Sends bytes of the output buffer. Returns true if any were sent.
    fn send(&mut self) -> Result<bool, ()> {
        if self.sent == self.filled {
            return Ok(false);
        }
        match self.stream.write(&self.output[self.sent..self.filled]) {
            Ok(0) => Err(()),
            Ok(sent) => {
                self.sent += sent;
                if self.sent == self.filled {
                    (self.sent, self.filled) = (0, 0);
                }
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(_) => Err(()),
        }
    }

    /// Executes the received operations as far as the output buffer has room for the responses.
    fn execute(&mut self, counters: &NodeCounters) -> Result<(), ()> {
        loop {
            match self.in_progress.take() {
                Some(OperationInProgress::Reading { region, offset, left }) => {
                    let room = self.output.len() - self.filled;
                    let now = room.min(left as usize);
                    let part = &mut self.output[self.filled..][..now];
                    let read = region.tier().map(|tier| tier.read(offset, part));
                    if now > 0 && read != Some(Ok(now as u32)) {
                        // The response's head has announced more bytes.
                        return Err(());
                    }
                    self.filled += now;
                    let left = left - now as u32;
                    if left > 0 {
                        self.in_progress = Some(OperationInProgress::Reading {
                            region,
                            offset: offset.wrapping_add(now as u64),
                            left,
                        });
                        return Ok(());
                    }
                }
                Some(OperationInProgress::Writing { region, offset, left, mut outcome }) => {
                    let now = (self.to - self.from).min(left as usize);
                    let part = &self.input[self.from..][..now];
                    let has_succeeded = matches!(outcome, Outcome::Done(_));
                    if let Some(tier) =
                        region.as_ref().and_then(|region| region.tier()).filter(|_| has_succeeded && now > 0)
                        && let Err(fault) = tier.write(offset, part)
                    {
                        outcome = Outcome::from_result(Err(fault));
                    }
                    self.from += now;
                    let left = left - now as u32;
                    if left > 0 || self.output.len() - self.filled < RESPONSE_HEAD_BYTES {
                        self.in_progress = Some(OperationInProgress::Writing {
                            region,
                            offset: offset.wrapping_add(now as u64),
                            left,
                            outcome,
                        });
                        return Ok(());
                    }
                    self.respond(ResponseHead { outcome, old: 0 });
                }
                None => {
                    let available = self.to - self.from;
                    if available < OPERATION_HEAD_BYTES
                        || self.output.len() - self.filled < RESPONSE_HEAD_BYTES
                    {
                        return Ok(());
                    }
                    let bytes: &[u8; OPERATION_HEAD_BYTES] =
                        self.input[self.from..][..OPERATION_HEAD_BYTES].try_into().map_err(|_| ())?;
                    let head = OperationHead::decode(bytes).map_err(|_| ())?;
                    self.from += OPERATION_HEAD_BYTES;
                    self.begin(&head, counters);
                }
            }
        }
    }

    /// Appends a response's head to the output. Clears `chain_failed` if the operation succeeded.
    fn respond(&mut self, response: ResponseHead) {
        self.push_output(&response.encode());
        self.chain_failed = self.chain_failed && !matches!(response.outcome, Outcome::Done(_));
    }

    fn begin(&mut self, head: &OperationHead, counters: &NodeCounters) {
        counters.operations.fetch_add(1, Relaxed);
        let skipped = std::mem::take(&mut self.chain_failed);
        // Assume that a linked operation fails; a successful response clears this.
        self.chain_failed = head.linked;
        let region = if skipped { Err(Outcome::Skipped) } else { self.checked_region(head) };
        match head.verb {
            Verb::Read => match region {
                Ok(region) => {
                    let left = region.bytes.saturating_sub(head.offset).min(u64::from(head.len)) as u32;
                    self.respond(ResponseHead { outcome: Outcome::Done(left), old: 0 });
                    counters.sent_bytes.fetch_add(u64::from(left), Relaxed);
                    if left > 0 {
                        self.in_progress =
                            Some(OperationInProgress::Reading { region, offset: head.offset, left });
                    }
                }
                Err(outcome) => self.respond(ResponseHead { outcome, old: 0 }),
            },
            Verb::Write => {
                counters.received_bytes.fetch_add(u64::from(head.len), Relaxed);
                let (region, outcome) = match region {
                    Ok(region) => (Some(region), Outcome::Done(head.len)),
                    Err(outcome) => (None, outcome),
                };
                self.in_progress = Some(OperationInProgress::Writing {
                    region,
                    offset: head.offset,
                    left: head.len,
                    outcome,
                });
            }
            Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. } => {
                let response = match region {
                    Ok(region) => execute_atomic(&region, head),
                    Err(outcome) => ResponseHead { outcome, old: 0 },
                };
                self.respond(response);
            }
        }
    }

    /// Returns the region of an operation, after checking that the session may execute it.
    fn checked_region(&mut self, head: &OperationHead) -> Result<Arc<NodeRegion>, Outcome> {
        self.refresh_regions();
        if self.last.as_ref().is_none_or(|last| last.key != head.region) {
            self.last = self.regions.get(&head.region).cloned();
        }
        let region = self.last.clone().ok_or(Outcome::Unknown)?;
        if head.verb == Verb::Read {
            return Ok(region);
        }
        if !self.session.write {
            return Err(Outcome::Denied);
        }
        let inside = head.offset.checked_add(u64::from(head.len)).is_some_and(|end| end <= region.bytes);
        if inside { Ok(region) } else { Err(Outcome::Outside) }
    }
}

/// Executes an atomic operation.
fn execute_atomic(region: &NodeRegion, head: &OperationHead) -> ResponseHead {
    let Some(tier) = region.tier() else { return ResponseHead { outcome: Outcome::Outside, old: 0 } };
    if region.has_device_atomics() {
        return ResponseHead { outcome: Outcome::Denied, old: 0 };
    }
    let changed = match head.verb {
        Verb::CompareAndSwap { expected, new } => tier.compare_and_swap(head.offset, expected, new),
        Verb::FetchAndAdd { by } => tier.fetch_and_add(head.offset, by),
        Verb::Read | Verb::Write => return ResponseHead { outcome: Outcome::Outside, old: 0 },
    };
    let outcome = Outcome::from_result(changed.map(|_| 8));
    ResponseHead { outcome, old: changed.unwrap_or(0) }
}
