//! A data connection of the node: operations in, answers out, in the same order, with no more memory than two buffers
//! whatever is asked.

use super::Counts;
use super::memory::Region;
use super::regions::Held;
use super::session::Session;
use crate::wire::{ANSWER_BYTES, Answer, HEAD_BYTES, Head, Outcome, Verb};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of each of the two buffers of a connection.
const BUFFER_BYTES: usize = 256 << 10;
/// Rounds after which the other connections have their turn.
const ROUNDS: usize = 16;

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits for its peer.
    Wait,
    /// There is more to do at once.
    Again,
    /// It is over.
    Close,
}

/// An operation that is under way.
enum Doing {
    /// Sends `left` bytes from `offset` on.
    Reading { region: Arc<Region>, offset: u64, left: u32 },
    /// Takes `left` bytes from the peer: to where they belong, or to nowhere if the write ends with `outcome` already; then
    /// `offset` may be anything.
    Writing { region: Option<Arc<Region>>, offset: u64, left: u32, outcome: Outcome },
}

/// See the module's description.
pub(super) struct Data<S> {
    stream: S,
    session: Arc<Session>,
    /// What the session held when it was last looked at.
    regions: Held,
    seen_changes: u64,
    /// The region that was asked for last.
    last: Option<Arc<Region>>,
    input: Box<[u8]>,
    /// Bytes of the input that are there and not used.
    from: usize,
    to: usize,
    output: Box<[u8]>,
    /// Bytes of the output that are there and not sent.
    sent: usize,
    filled: usize,
    doing: Option<Doing>,
    /// Whether the operation before was linked to this one, and failed.
    broken: bool,
}

impl<S: Read + Write> Data<S> {
    pub(super) fn new(stream: S, session: Arc<Session>) -> Data<S> {
        let buffer = || vec![0; BUFFER_BYTES].into_boxed_slice();
        Data {
            stream,
            session,
            regions: Held::new(),
            seen_changes: 0,
            last: None,
            input: buffer(),
            from: 0,
            to: 0,
            output: buffer(),
            sent: 0,
            filled: 0,
            doing: None,
            broken: false,
        }
    }

    pub(super) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    pub(super) fn is_closed(&self) -> bool {
        self.session.is_closed()
    }

    /// Lets go of regions that the session has let go of.
    pub(super) fn look(&mut self) {
        let changes = self.session.changes();
        if changes != self.seen_changes {
            self.seen_changes = changes;
            self.regions = self.session.regions();
            self.last = None;
        }
    }

    /// Puts bytes into the output, which has room for them.
    fn put(&mut self, bytes: &[u8]) {
        self.output[self.filled..][..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Does what can be done without waiting.
    pub(super) fn advance(&mut self, counts: &Counts) -> Next {
        for _ in 0..ROUNDS {
            let took = match self.take_in() {
                Ok(took) => took,
                Err(()) => return Next::Close,
            };
            let before = (self.from, self.filled);
            if self.work(counts).is_err() {
                return Next::Close;
            }
            let worked = before != (self.from, self.filled);
            match self.send_out() {
                Ok(sent) if !took && !worked && !sent => return Next::Wait,
                Ok(_) => {}
                Err(()) => return Next::Close,
            }
        }
        Next::Again
    }

    /// Receives what is there and has room; whether anything was.
    fn take_in(&mut self) -> Result<bool, ()> {
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

    /// Sends what is to be sent; whether anything was.
    fn send_out(&mut self) -> Result<bool, ()> {
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

    /// Carries out operations as far as they are there and their answers have room.
    fn work(&mut self, counts: &Counts) -> Result<(), ()> {
        loop {
            match self.doing.take() {
                Some(Doing::Reading { region, offset, left }) => {
                    let room = self.output.len() - self.filled;
                    let now = room.min(left as usize);
                    let part = &mut self.output[self.filled..][..now];
                    let read = region.tier().map(|tier| tier.read(offset, part));
                    if now > 0 && read != Some(Ok(now as u32)) {
                        // The head has promised more.
                        return Err(());
                    }
                    self.filled += now;
                    let left = left - now as u32;
                    if left > 0 {
                        self.doing =
                            Some(Doing::Reading { region, offset: offset.wrapping_add(now as u64), left });
                        return Ok(());
                    }
                }
                Some(Doing::Writing { region, offset, left, mut outcome }) => {
                    let now = (self.to - self.from).min(left as usize);
                    let part = &self.input[self.from..][..now];
                    let whole = matches!(outcome, Outcome::Done(_));
                    if let Some(tier) =
                        region.as_ref().and_then(|region| region.tier()).filter(|_| whole && now > 0)
                        && let Err(fault) = tier.write(offset, part)
                    {
                        outcome = Outcome::of(Err(fault));
                    }
                    self.from += now;
                    let left = left - now as u32;
                    if left > 0 || self.output.len() - self.filled < ANSWER_BYTES {
                        self.doing = Some(Doing::Writing {
                            region,
                            offset: offset.wrapping_add(now as u64),
                            left,
                            outcome,
                        });
                        return Ok(());
                    }
                    self.answer(Answer { outcome, old: 0 });
                }
                None => {
                    let there = self.to - self.from;
                    if there < HEAD_BYTES || self.output.len() - self.filled < ANSWER_BYTES {
                        return Ok(());
                    }
                    let bytes: &[u8; HEAD_BYTES] =
                        self.input[self.from..][..HEAD_BYTES].try_into().map_err(|_| ())?;
                    let head = Head::decode(bytes).map_err(|_| ())?;
                    self.from += HEAD_BYTES;
                    self.begin(&head, counts);
                }
            }
        }
    }

    /// Sends the head of an answer, and notes whether what is linked to the operation is done.
    fn answer(&mut self, answer: Answer) {
        self.put(&answer.encode());
        self.broken = self.broken && !matches!(answer.outcome, Outcome::Done(_));
    }

    fn begin(&mut self, head: &Head, counts: &Counts) {
        counts.operations.fetch_add(1, Relaxed);
        let skipped = std::mem::take(&mut self.broken);
        // Of what this one is linked to; an answer of success takes it back.
        self.broken = head.linked;
        let region = if skipped { Err(Outcome::Skipped) } else { self.find(head) };
        match head.verb {
            Verb::Read => match region {
                Ok(region) => {
                    let left = region.bytes.saturating_sub(head.offset).min(u64::from(head.len)) as u32;
                    self.answer(Answer { outcome: Outcome::Done(left), old: 0 });
                    counts.sent_bytes.fetch_add(u64::from(left), Relaxed);
                    if left > 0 {
                        self.doing = Some(Doing::Reading { region, offset: head.offset, left });
                    }
                }
                Err(outcome) => self.answer(Answer { outcome, old: 0 }),
            },
            Verb::Write => {
                counts.received_bytes.fetch_add(u64::from(head.len), Relaxed);
                let (region, outcome) = match region {
                    Ok(region) => (Some(region), Outcome::Done(head.len)),
                    Err(outcome) => (None, outcome),
                };
                self.doing = Some(Doing::Writing { region, offset: head.offset, left: head.len, outcome });
            }
            Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. } => {
                let answer = match region {
                    Ok(region) => change(&region, head),
                    Err(outcome) => Answer { outcome, old: 0 },
                };
                self.answer(answer);
            }
        }
    }

    /// The region of an operation that may be done on it.
    fn find(&mut self, head: &Head) -> Result<Arc<Region>, Outcome> {
        self.look();
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

/// Changes a number.
fn change(region: &Region, head: &Head) -> Answer {
    let Some(tier) = region.tier() else { return Answer { outcome: Outcome::Outside, old: 0 } };
    if region.is_of_devices() {
        return Answer { outcome: Outcome::Denied, old: 0 };
    }
    let changed = match head.verb {
        Verb::CompareAndSwap { expected, new } => tier.compare_and_swap(head.offset, expected, new),
        Verb::FetchAndAdd { by } => tier.fetch_and_add(head.offset, by),
        Verb::Read | Verb::Write => return Answer { outcome: Outcome::Outside, old: 0 },
    };
    let outcome = Outcome::of(changed.map(|_| 8));
    Answer { outcome, old: changed.unwrap_or(0) }
}
