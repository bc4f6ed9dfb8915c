//! What goes over a data connection: a hello, then operations, and their answers in the same order.
//!
//! All numbers are little-endian. An operation is a head of [`HEAD_BYTES`], and behind that of a write, its bytes. An
//! answer is a head of [`ANSWER_BYTES`], and behind that of a read, the bytes that there are.

use bathyal_tier::{FaultKind, ReadFault};

/// The first bytes of a data connection, before the ticket; the last of them is the protocol's version.
pub const MAGIC: [u8; 8] = *b"BTHYMEM\x01";
/// Bytes of a ticket: what a session's data connections are known by.
pub const TICKET_BYTES: usize = 16;
/// Bytes of the hello.
pub const HELLO_BYTES: usize = MAGIC.len() + TICKET_BYTES;
/// What is answered to a hello that is welcome.
pub const WELCOME: u8 = 1;
/// Bytes of an operation's head.
pub const HEAD_BYTES: usize = 40;
/// Bytes of an answer's head.
pub const ANSWER_BYTES: usize = 16;

/// What is done at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Sends the bytes there.
    Read,
    /// Puts the bytes that follow there.
    Write,
    /// Replaces a number if it is the expected one.
    CompareAndSwap {
        /// What has to be there.
        expected: u64,
        /// What comes in its place.
        new: u64,
    },
    /// Adds to a number.
    FetchAndAdd {
        /// What is added.
        by: u64,
    },
}

impl Verb {
    fn code(self) -> u8 {
        match self {
            Verb::Read => 1,
            Verb::Write => 2,
            Verb::CompareAndSwap { .. } => 3,
            Verb::FetchAndAdd { .. } => 4,
        }
    }
}

/// An operation without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What is done.
    pub verb: Verb,
    /// The next operation is done if this one was.
    pub linked: bool,
    /// Bytes that it moves: 8 of a number.
    pub len: u32,
    /// Which region.
    pub region: u64,
    /// The first byte in the region.
    pub offset: u64,
}

/// Bytes that are no operation: the connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbled;

impl Head {
    /// The bytes of the head.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.verb.code();
        bytes[1] = u8::from(self.linked);
        let (first, second) = match self.verb {
            Verb::Read | Verb::Write => (0, 0),
            Verb::CompareAndSwap { expected, new } => (expected, new),
            Verb::FetchAndAdd { by } => (by, 0),
        };
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        for (at, number) in [self.region, self.offset, first, second].into_iter().enumerate() {
            bytes[8 + at * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// The operation that the bytes are.
    ///
    /// # Errors
    /// [`Garbled`] for bytes that no peer sends: another verb, a length of 0, a number that is not of 8 bytes, or anything
    /// in the gaps.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, Garbled> {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let len = u32::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
        let (first, second) = (number(24), number(32));
        let verb = match bytes[0] {
            1 => Verb::Read,
            2 => Verb::Write,
            3 => Verb::CompareAndSwap { expected: first, new: second },
            4 => Verb::FetchAndAdd { by: first },
            _ => return Err(Garbled),
        };
        let head = Head { verb, linked: bytes[1] == 1, len, region: number(8), offset: number(16) };
        let numbers = matches!(verb, Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. });
        let fits = if numbers { len == 8 } else { len > 0 };
        // Whatever it would not have written itself is no head.
        if fits && head.encode() == *bytes { Ok(head) } else { Err(Garbled) }
    }
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// So many bytes were moved; of a read, they follow.
    Done(u32),
    /// It lies outside the region, or a number not at a multiple of 8.
    Outside,
    /// The session holds no such region.
    Unknown,
    /// The session did not ask to write.
    Denied,
    /// One that it was linked to failed.
    Skipped,
    /// The memory is gone.
    Gone,
}

impl Outcome {
    fn code(self) -> u8 {
        match self {
            Outcome::Done(_) => 0,
            Outcome::Outside => 1,
            Outcome::Unknown => 2,
            Outcome::Denied => 3,
            Outcome::Skipped => 4,
            Outcome::Gone => 5,
        }
    }

    /// The same as a reader is told.
    pub fn result(self) -> Result<u32, ReadFault> {
        match self {
            Outcome::Done(len) => Ok(len),
            Outcome::Outside => Err(ReadFault::system(libc::EINVAL)),
            Outcome::Unknown => Err(ReadFault::of(FaultKind::Changed)),
            Outcome::Denied => Err(ReadFault::of(FaultKind::Denied)),
            Outcome::Skipped => Err(ReadFault::of(FaultKind::Skipped)),
            Outcome::Gone => Err(ReadFault::of(FaultKind::Gone)),
        }
    }

    /// What became of an operation on memory.
    pub fn of(result: Result<u32, ReadFault>) -> Outcome {
        match result {
            Ok(len) => Outcome::Done(len),
            Err(fault) if fault.kind == FaultKind::Gone => Outcome::Gone,
            Err(fault) if fault.kind == FaultKind::Denied => Outcome::Denied,
            Err(_) => Outcome::Outside,
        }
    }
}

/// The head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// How the operation ended.
    pub outcome: Outcome,
    /// The number that was there before, of an operation on one.
    pub old: u64,
}

impl Answer {
    /// The bytes of the head.
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[0] = self.outcome.code();
        if let Outcome::Done(len) = self.outcome {
            bytes[4..8].copy_from_slice(&len.to_le_bytes());
        }
        bytes[8..].copy_from_slice(&self.old.to_le_bytes());
        bytes
    }

    /// The answer that the bytes are.
    ///
    /// # Errors
    /// [`Garbled`] for bytes that no node sends.
    pub fn decode(bytes: &[u8; ANSWER_BYTES]) -> Result<Answer, Garbled> {
        let len = u32::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
        let old = u64::from_le_bytes(std::array::from_fn(|i| bytes[8 + i]));
        let outcome = match bytes[0] {
            0 => Outcome::Done(len),
            1 => Outcome::Outside,
            2 => Outcome::Unknown,
            3 => Outcome::Denied,
            4 => Outcome::Skipped,
            5 => Outcome::Gone,
            _ => return Err(Garbled),
        };
        let answer = Answer { outcome, old };
        if answer.encode() == *bytes { Ok(answer) } else { Err(Garbled) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_answers_come_back_as_they_went() {
        let verbs = [
            Verb::Read,
            Verb::Write,
            Verb::CompareAndSwap { expected: 3, new: u64::MAX },
            Verb::FetchAndAdd { by: 1 << 60 },
        ];
        for verb in verbs {
            for linked in [false, true] {
                let head = Head { verb, linked, len: 8, region: u64::MAX - 1, offset: 1 << 50 };
                assert_eq!(Head::decode(&head.encode()), Ok(head));
            }
        }
        let outcomes = [
            Outcome::Done(u32::MAX),
            Outcome::Outside,
            Outcome::Unknown,
            Outcome::Denied,
            Outcome::Skipped,
            Outcome::Gone,
        ];
        for outcome in outcomes {
            let answer = Answer { outcome, old: 77 };
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    /// Of every head that one byte makes another, what is decoded is written as it was read, and the rest is refused.
    #[test]
    fn no_byte_is_ignored() {
        let head =
            Head { verb: Verb::FetchAndAdd { by: 5 }, linked: true, len: 8, region: 1, offset: 2 }.encode();
        let answer = Answer { outcome: Outcome::Outside, old: 0 }.encode();
        for (at, value) in (0..HEAD_BYTES).flat_map(|at| (0..=255).map(move |value| (at, value))) {
            let mut bytes = head;
            bytes[at] = value;
            if let Ok(head) = Head::decode(&bytes) {
                assert_eq!(head.encode(), bytes, "byte {at} as {value}");
            }
            if at < ANSWER_BYTES {
                let mut bytes = answer;
                bytes[at] = value;
                if let Ok(answer) = Answer::decode(&bytes) {
                    assert_eq!(answer.encode(), bytes, "byte {at} as {value}");
                }
            }
        }
        // An operation on a number takes 8 bytes, and none takes nothing.
        for (verb, len) in [(Verb::Read, 0), (Verb::Write, 0), (Verb::FetchAndAdd { by: 1 }, 4)] {
            let head = Head { verb, linked: false, len, region: 1, offset: 0 };
            assert_eq!(Head::decode(&head.encode()), Err(Garbled));
        }
    }
}
