//! Random operations, in pieces as a network delivers them, beside the plainest memory that there is.

use super::Counts;
use super::data::{Data, Next};
use super::memory::Region;
use super::session::Session;
use crate::wire::{ANSWER_BYTES, Answer, Head, Outcome, Verb};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LEN: usize = 5000;
const KEY: u64 = 77;

/// The next number of a sequence.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

/// A connection that delivers and takes some bytes at a time, or none.
struct Pipe {
    input: Vec<u8>,
    given: usize,
    output: Vec<u8>,
    seed: u64,
}

impl Pipe {
    fn some(&mut self, most: usize) -> io::Result<usize> {
        match mix(&mut self.seed) % 8 {
            _ if most == 0 => Err(ErrorKind::WouldBlock.into()),
            0 => Err(ErrorKind::WouldBlock.into()),
            1 => Err(ErrorKind::Interrupted.into()),
            2 => Ok(1),
            _ => Ok(1 + mix(&mut self.seed) as usize % most),
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let now = self.some(out.len().min(self.input.len() - self.given))?;
        out[..now].copy_from_slice(&self.input[self.given..][..now]);
        self.given += now;
        Ok(now)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let now = self.some(bytes.len())?;
        self.output.extend_from_slice(&bytes[..now]);
        Ok(now)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the node has to do, done plainly.
fn expected(memory: &mut [u8], write: bool, head: &Head, bytes: &[u8]) -> (Answer, Vec<u8>) {
    let failed = |outcome| (Answer { outcome, old: 0 }, Vec::new());
    let inside = head.offset.checked_add(u64::from(head.len)).is_some_and(|end| end <= LEN as u64);
    let at = head.offset as usize;
    if head.region != KEY {
        return failed(Outcome::Unknown);
    }
    if head.verb == Verb::Read {
        let there = memory.get(at..).map_or(&[][..], |rest| &rest[..rest.len().min(head.len as usize)]);
        return (Answer { outcome: Outcome::Done(there.len() as u32), old: 0 }, there.to_vec());
    }
    if !write {
        return failed(Outcome::Denied);
    }
    if !inside {
        return failed(Outcome::Outside);
    }
    if head.verb == Verb::Write {
        memory[at..][..bytes.len()].copy_from_slice(bytes);
        return (Answer { outcome: Outcome::Done(head.len), old: 0 }, Vec::new());
    }
    if !at.is_multiple_of(8) {
        return failed(Outcome::Outside);
    }
    let number = &mut memory[at..][..8];
    let old = u64::from_le_bytes(number.try_into().unwrap());
    let new = match head.verb {
        Verb::CompareAndSwap { expected, new } if expected == old => new,
        Verb::FetchAndAdd { by } => old.wrapping_add(by),
        _ => old,
    };
    number.copy_from_slice(&new.to_le_bytes());
    (Answer { outcome: Outcome::Done(8), old }, Vec::new())
}

fn random_head(seed: &mut u64, memory: &[u8]) -> Head {
    let region = if mix(seed).is_multiple_of(10) { mix(seed) } else { KEY };
    let len = 1 + (mix(seed) % [8, 100, 6000, 300_000][mix(seed) as usize % 4]) as u32;
    let offset = match mix(seed) % 8 {
        0 => u64::MAX - mix(seed) % 100,
        1 => LEN as u64 - mix(seed) % 20,
        _ => mix(seed) % LEN as u64,
    };
    let (offset, verb, len) = match mix(seed) % 4 {
        0 => (offset, Verb::Read, len),
        1 => (offset, Verb::Write, len),
        2 => (offset & !7, Verb::FetchAndAdd { by: mix(seed) }, 8),
        _ => {
            let there = memory.get(offset as usize & !7..).and_then(|rest| rest.first_chunk());
            let right = there.map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let expected = if mix(seed).is_multiple_of(2) { right } else { mix(seed) };
            // One in four is not where numbers lie.
            let offset = if mix(seed).is_multiple_of(4) { offset | 1 } else { offset & !7 };
            (offset, Verb::CompareAndSwap { expected, new: mix(seed) }, 8)
        }
    };
    Head { verb, linked: mix(seed).is_multiple_of(3), len, region, offset }
}

#[test]
fn a_connection_does_what_the_plainest_memory_does() {
    for round in 0..200 {
        let mut seed = round;
        let write = !mix(&mut seed).is_multiple_of(5);
        let region = Arc::new(Region::new(KEY, LEN as u64, Arc::new(AtomicU64::new(1 << 20))).unwrap());
        let session = Arc::new(Session::new([0; 16], 1, write));
        session.hold(&region);
        let mut memory = vec![0; LEN];
        let (mut input, mut wanted, mut broken) = (Vec::new(), Vec::new(), false);
        for _ in 0..60 {
            let head = random_head(&mut seed, &memory);
            let bytes: Vec<u8> = match head.verb {
                Verb::Write => (0..head.len).map(|i| (u64::from(i) + round) as u8).collect(),
                _ => Vec::new(),
            };
            input.extend(head.encode());
            input.extend(&bytes);
            let (answer, sent) = if broken {
                (Answer { outcome: Outcome::Skipped, old: 0 }, Vec::new())
            } else {
                expected(&mut memory, write, &head, &bytes)
            };
            broken = head.linked && !matches!(answer.outcome, Outcome::Done(_));
            wanted.extend(answer.encode());
            wanted.extend(sent);
        }
        // Bytes that are no operation end the connection, behind the answers to all that was asked before.
        let all = input.len();
        let mut data = Data::new(Pipe { input, given: 0, output: Vec::new(), seed }, session);
        let counts = Counts::default();
        for _ in 0..100_000 {
            assert_ne!(data.advance(&counts), Next::Close, "round {round}");
            if data.stream().given == all && data.stream().output.len() == wanted.len() {
                break;
            }
        }
        assert!(data.stream().output == wanted, "round {round}");
        assert_eq!(counts.operations.load(Ordering::Relaxed), 60);
        let mut there = vec![0; LEN];
        assert_eq!(region.tier().unwrap().read(0, &mut there), Ok(LEN as u32));
        assert!(there == memory, "round {round}");
        data.stream().input.extend([0xFF; 40]);
        let ended = (0..1000).any(|_| data.advance(&counts) == Next::Close);
        assert!(ended && data.stream().output.len() == wanted.len(), "round {round}");
        assert!(wanted.len() > 60 * ANSWER_BYTES);
    }
}
