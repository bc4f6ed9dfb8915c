//! Format of a data connection: the client sends a hello, then operations. The node responds to the
//! operations in their order.
//!
//! All numbers are little-endian. An operation is a head of [`OPERATION_HEAD_BYTES`]; a write's bytes follow
//! it. A response is a head of [`RESPONSE_HEAD_BYTES`]; the bytes of a read follow it, which are fewer than
//! requested at the end of a region.

use bathyal_tier::{FaultKind, ReadFault};

/// First bytes of a data connection, before the ticket. The last byte is the version of the protocol.
pub const MAGIC: [u8; 8] = *b"BTHYMEM\x01";
/// Bytes of a ticket, which tells the node the session that a data connection belongs to.
pub const TICKET_BYTES: usize = 16;
/// Bytes of the hello: magic and ticket.
pub const HELLO_BYTES: usize = MAGIC.len() + TICKET_BYTES;
/// Byte with which the node accepts a hello.
pub const WELCOME: u8 = 1;
/// Bytes of an operation's head.
pub const OPERATION_HEAD_BYTES: usize = 40;
/// Bytes of a response's head.
pub const RESPONSE_HEAD_BYTES: usize = 16;

/// Kind of an operation on a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Reads bytes.
    Read,
    /// Writes the bytes that follow the head.
    Write,
    /// Replaces an 8-byte number if it has the expected value.
    CompareAndSwap {
        /// Value that the number must have.
        expected: u64,
        /// Value that replaces it.
        new: u64,
    },
    /// Adds to an 8-byte number, modulo 2^64.
    FetchAndAdd {
        /// Value to add.
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

/// Head of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationHead {
    /// Kind of the operation.
    pub verb: Verb,
    /// True if the next operation is executed only after this one succeeds.
    pub linked: bool,
    /// Bytes to read or write; 8 for an operation on a number.
    pub len: u32,
    /// Key of the region.
    pub region: u64,
    /// Offset of the first byte in the region.
    pub offset: u64,
}

/// Error for bytes that are not a valid head: the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedHead;

impl OperationHead {
    /// Encodes the head.
    pub fn encode(&self) -> [u8; OPERATION_HEAD_BYTES] {
        let mut bytes = [0; OPERATION_HEAD_BYTES];
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

    /// Decodes a head.
    ///
    /// # Errors
    /// [`MalformedHead`] for an unknown verb, a length of 0, a number whose length is not 8, or a nonzero
    /// byte in a gap.
    pub fn decode(bytes: &[u8; OPERATION_HEAD_BYTES]) -> Result<OperationHead, MalformedHead> {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let len = u32::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
        let (first, second) = (number(24), number(32));
        let verb = match bytes[0] {
            1 => Verb::Read,
            2 => Verb::Write,
            3 => Verb::CompareAndSwap { expected: first, new: second },
            4 => Verb::FetchAndAdd { by: first },
            _ => return Err(MalformedHead),
        };
        let head = OperationHead { verb, linked: bytes[1] == 1, len, region: number(8), offset: number(16) };
        let numbers = matches!(verb, Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. });
        let fits = if numbers { len == 8 } else { len > 0 };
        // Re-encoding finds nonzero bytes in the gaps.
        if fits && head.encode() == *bytes { Ok(head) } else { Err(MalformedHead) }
    }
}

/// Result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This many bytes were read or written. The bytes of a read follow.
    Done(u32),
    /// The bytes lie outside the region, or a number's offset is not a multiple of 8.
    Outside,
    /// The session does not hold the region.
    Unknown,
    /// The session may not write.
    Denied,
    /// A preceding operation of the chain failed.
    Skipped,
    /// The memory of the region is gone.
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

    /// Converts the outcome to the result of a completion.
    pub fn result(self) -> Result<u32, ReadFault> {
        match self {
            Outcome::Done(len) => Ok(len),
            Outcome::Outside => Err(ReadFault::system(libc::EINVAL)),
            Outcome::Unknown => Err(ReadFault::of(FaultKind::Forgotten)),
            Outcome::Denied => Err(ReadFault::of(FaultKind::Denied)),
            Outcome::Skipped => Err(ReadFault::of(FaultKind::Skipped)),
            Outcome::Gone => Err(ReadFault::of(FaultKind::Gone)),
        }
    }

    /// Converts the result of an operation on a region's memory.
    pub fn from_result(result: Result<u32, ReadFault>) -> Outcome {
        match result {
            Ok(len) => Outcome::Done(len),
            Err(fault) if fault.kind == FaultKind::Gone => Outcome::Gone,
            Err(fault) if fault.kind == FaultKind::Denied => Outcome::Denied,
            Err(_) => Outcome::Outside,
        }
    }
}

/// Head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead {
    /// Result of the operation.
    pub outcome: Outcome,
    /// Previous value of the number, for an operation on one; otherwise 0.
    pub old: u64,
}

impl ResponseHead {
    /// Encodes the head.
    pub fn encode(&self) -> [u8; RESPONSE_HEAD_BYTES] {
        let mut bytes = [0; RESPONSE_HEAD_BYTES];
        bytes[0] = self.outcome.code();
        if let Outcome::Done(len) = self.outcome {
            bytes[4..8].copy_from_slice(&len.to_le_bytes());
        }
        bytes[8..].copy_from_slice(&self.old.to_le_bytes());
        bytes
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// [`MalformedHead`] for an unknown outcome, or a nonzero byte in a gap.
    pub fn decode(bytes: &[u8; RESPONSE_HEAD_BYTES]) -> Result<ResponseHead, MalformedHead> {
        let len = u32::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
        let old = u64::from_le_bytes(std::array::from_fn(|i| bytes[8 + i]));
        let outcome = match bytes[0] {
            0 => Outcome::Done(len),
            1 => Outcome::Outside,
            2 => Outcome::Unknown,
            3 => Outcome::Denied,
            4 => Outcome::Skipped,
            5 => Outcome::Gone,
            _ => return Err(MalformedHead),
        };
        let head = ResponseHead { outcome, old };
        if head.encode() == *bytes { Ok(head) } else { Err(MalformedHead) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_heads_decode_to_the_same_heads() {
        let verbs = [
            Verb::Read,
            Verb::Write,
            Verb::CompareAndSwap { expected: 3, new: u64::MAX },
            Verb::FetchAndAdd { by: 1 << 60 },
        ];
        for verb in verbs {
            for linked in [false, true] {
                let head = OperationHead { verb, linked, len: 8, region: u64::MAX - 1, offset: 1 << 50 };
                assert_eq!(OperationHead::decode(&head.encode()), Ok(head));
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
            let response = ResponseHead { outcome, old: 77 };
            assert_eq!(ResponseHead::decode(&response.encode()), Ok(response));
        }
    }

    /// Changes each byte of a head to every value: the result is either refused, or encodes to the same bytes
    /// again.
    #[test]
    fn decoding_checks_every_byte() {
        let head =
            OperationHead { verb: Verb::FetchAndAdd { by: 5 }, linked: true, len: 8, region: 1, offset: 2 }
                .encode();
        let response = ResponseHead { outcome: Outcome::Outside, old: 0 }.encode();
        for (at, value) in (0..OPERATION_HEAD_BYTES).flat_map(|at| (0..=255).map(move |value| (at, value))) {
            let mut bytes = head;
            bytes[at] = value;
            if let Ok(head) = OperationHead::decode(&bytes) {
                assert_eq!(head.encode(), bytes, "byte {at} as {value}");
            }
            if at < RESPONSE_HEAD_BYTES {
                let mut bytes = response;
                bytes[at] = value;
                if let Ok(response) = ResponseHead::decode(&bytes) {
                    assert_eq!(response.encode(), bytes, "byte {at} as {value}");
                }
            }
        }
        // Numbers have 8 bytes, and reads and writes at least one.
        for (verb, len) in [(Verb::Read, 0), (Verb::Write, 0), (Verb::FetchAndAdd { by: 1 }, 4)] {
            let head = OperationHead { verb, linked: false, len, region: 1, offset: 0 };
            assert_eq!(OperationHead::decode(&head.encode()), Err(MalformedHead));
        }
    }
}
