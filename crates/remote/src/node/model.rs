//! Compares a data connection with a plain model of memory, under random operations that arrive in random
//! pieces.

use super::NodeCounters;
use super::data::{DataConnection, NextStep};
use super::region_memory::NodeRegion;
use super::session::Session;
use crate::wire::{OperationHead, Outcome, RESPONSE_HEAD_BYTES, ResponseHead, Verb};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LEN: usize = 5000;
const KEY: u64 = 77;

/// Returns the next pseudo-random number (SplitMix64, shortened).
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

/// A stream that transfers a random number of bytes at a time, or none.
struct Pipe {
    input: Vec<u8>,
    consumed: usize,
    output: Vec<u8>,
    seed: u64,
}

impl Pipe {
    fn random_len(&mut self, most: usize) -> io::Result<usize> {
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
        let now = self.random_len(out.len().min(self.input.len() - self.consumed))?;
        out[..now].copy_from_slice(&self.input[self.consumed..][..now]);
        self.consumed += now;
        Ok(now)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let now = self.random_len(bytes.len())?;
        self.output.extend_from_slice(&bytes[..now]);
        Ok(now)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Executes an operation on the model. Returns the expected response.
fn expected(memory: &mut [u8], write: bool, head: &OperationHead, bytes: &[u8]) -> (ResponseHead, Vec<u8>) {
    let failed = |outcome| (ResponseHead { outcome, old: 0 }, Vec::new());
    let inside = head.offset.checked_add(u64::from(head.len)).is_some_and(|end| end <= LEN as u64);
    let at = head.offset as usize;
    if head.region != KEY {
        return failed(Outcome::Unknown);
    }
    if head.verb == Verb::Read {
        let available = memory.get(at..).map_or(&[][..], |rest| &rest[..rest.len().min(head.len as usize)]);
        return (ResponseHead { outcome: Outcome::Done(available.len() as u32), old: 0 }, available.to_vec());
    }
    if !write {
        return failed(Outcome::Denied);
    }
    if !inside {
        return failed(Outcome::Outside);
    }
    if head.verb == Verb::Write {
        memory[at..][..bytes.len()].copy_from_slice(bytes);
        return (ResponseHead { outcome: Outcome::Done(head.len), old: 0 }, Vec::new());
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
    (ResponseHead { outcome: Outcome::Done(8), old }, Vec::new())
}

fn random_head(seed: &mut u64, memory: &[u8]) -> OperationHead {
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
            let current = memory.get(offset as usize & !7..).and_then(|rest| rest.first_chunk());
            let current = current.map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let expected = if mix(seed).is_multiple_of(2) { current } else { mix(seed) };
            // One offset in four is not a multiple of 8.
            let offset = if mix(seed).is_multiple_of(4) { offset | 1 } else { offset & !7 };
            (offset, Verb::CompareAndSwap { expected, new: mix(seed) }, 8)
        }
    };
    OperationHead { verb, linked: mix(seed).is_multiple_of(3), len, region, offset }
}

#[test]
fn a_data_connection_behaves_like_the_model() {
    for round in 0..200 {
        let mut seed = round;
        let write = !mix(&mut seed).is_multiple_of(5);
        let region = Arc::new(NodeRegion::new(KEY, LEN as u64, Arc::new(AtomicU64::new(1 << 20))).unwrap());
        let session = Arc::new(Session::new([0; 16], 1, write));
        session.hold(&region);
        let mut memory = vec![0; LEN];
        let (mut input, mut expected_output, mut chain_failed) = (Vec::new(), Vec::new(), false);
        for _ in 0..60 {
            let head = random_head(&mut seed, &memory);
            let bytes: Vec<u8> = match head.verb {
                Verb::Write => (0..head.len).map(|i| (u64::from(i) + round) as u8).collect(),
                _ => Vec::new(),
            };
            input.extend(head.encode());
            input.extend(&bytes);
            let (response, sent) = if chain_failed {
                (ResponseHead { outcome: Outcome::Skipped, old: 0 }, Vec::new())
            } else {
                expected(&mut memory, write, &head, &bytes)
            };
            chain_failed = head.linked && !matches!(response.outcome, Outcome::Done(_));
            expected_output.extend(response.encode());
            expected_output.extend(sent);
        }
        // Invalid bytes end the connection, after the responses to the operations before them.
        let all = input.len();
        let mut data = DataConnection::new(Pipe { input, consumed: 0, output: Vec::new(), seed }, session);
        let counters = NodeCounters::default();
        for _ in 0..100_000 {
            assert_ne!(data.advance(&counters), NextStep::Close, "round {round}");
            if data.stream().consumed == all && data.stream().output.len() == expected_output.len() {
                break;
            }
        }
        assert!(data.stream().output == expected_output, "round {round}");
        assert_eq!(counters.operations.load(Ordering::Relaxed), 60);
        let mut stored = vec![0; LEN];
        assert_eq!(region.tier().unwrap().read(0, &mut stored), Ok(LEN as u32));
        assert!(stored == memory, "round {round}");
        data.stream().input.extend([0xFF; 40]);
        let ended = (0..1000).any(|_| data.advance(&counters) == NextStep::Close);
        assert!(ended && data.stream().output.len() == expected_output.len(), "round {round}");
        assert!(expected_output.len() > 60 * RESPONSE_HEAD_BYTES);
    }
}
