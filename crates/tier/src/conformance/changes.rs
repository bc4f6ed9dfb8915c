//! Checks of writable tiers: writes, atomic operations on numbers, and the order of linked operations.

use super::{Breach, LEN, Outcome, ensure, first_difference};
use crate::contract::{Action, Completion, Operation, Read, Tier, WriteQueue, WriteTier};
use crate::error::{FaultKind, TierError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const DEPTH: u32 = 8;
const WAIT: Duration = Duration::from_millis(200);
/// Consecutive waits without a completion after which an operation counts as lost.
const MOST_WAITS: u32 = 100;

fn writable(tier: &Arc<dyn Tier>) -> Result<&dyn WriteTier, Breach> {
    tier.writable().ok_or_else(|| Breach("a writable tier is no longer writable".into()))
}

fn linked(id: u64, offset: u64, action: Action) -> Operation {
    Operation { id, offset, action, linked: true }
}

fn last(id: u64, offset: u64, action: Action) -> Operation {
    Operation { id, offset, action, linked: false }
}

/// Submits all of `operations` and returns their completions, in the order of the operations.
///
/// The memory that they point to must be valid until this returns, which is when all have completed.
fn carry_out(queue: &mut dyn WriteQueue, operations: &[Operation]) -> Result<Vec<Completion>, Breach> {
    let (mut done, mut next, mut idle) = (Vec::new(), 0, 0);
    while done.len() < operations.len() {
        if next < operations.len() {
            let empty = queue.in_flight() == 0;
            // SAFETY: the callers below do not touch the memory of the operations until the last completion.
            let taken = unsafe { queue.submit_operations(&operations[next..])? };
            ensure!(taken > 0 || !empty, "an empty queue takes no operation");
            next += taken;
            ensure!(next <= operations.len(), "{next} operations taken of {}", operations.len());
            ensure!(next == 0 || !operations[next - 1].linked, "a chain was taken in part");
        }
        let before = done.len();
        queue.reap(&mut done, Some(WAIT))?;
        idle = if done.len() == before { idle + 1 } else { 0 };
        ensure!(idle < MOST_WAITS, "an operation never completes; {} of {next} did", done.len());
    }
    let find = |operation: &Operation| done.iter().find(|ended| ended.id == operation.id).copied();
    let sorted: Option<Vec<_>> = operations.iter().map(find).collect();
    sorted.ok_or_else(|| Breach("an operation completed under another's id".into()))
}

fn read(queue: &mut dyn WriteQueue, offset: u64, len: usize) -> Result<Vec<u8>, Breach> {
    let mut bytes = vec![0; len];
    let action = Action::Read { into: bytes.as_mut_ptr(), len: len as u32 };
    let ended = carry_out(queue, &[last(1, offset, action)])?[0];
    ensure!(ended.result == Ok(len as u32), "a read of {len} bytes at {offset}: {:?}", ended.result);
    Ok(bytes)
}

pub(super) fn writes(tier: &Arc<dyn Tier>) -> Outcome {
    let mut queue = writable(tier)?.open_write(DEPTH)?;
    let (start, bytes) = (100_003, (0..50_001_u32).map(|i| (i * 7) as u8).collect::<Vec<_>>());
    let action = Action::Write { from: bytes.as_ptr(), len: bytes.len() as u32 };
    let ended = carry_out(queue.as_mut(), &[last(9, start, action)])?[0];
    ensure!(ended.result == Ok(bytes.len() as u32), "a write ended with {:?}", ended.result);
    ensure!(read(queue.as_mut(), start, bytes.len())? == bytes, "other bytes were read than were written");
    // The bytes before and after are unchanged, and a queue for reading sees the write.
    let before = read(queue.as_mut(), start - 1000, 1000)?;
    let after = read(queue.as_mut(), start + bytes.len() as u64, 1000)?;
    let wrong = first_difference(start - 1000, &before)
        .or_else(|| first_difference(start + bytes.len() as u64, &after));
    ensure!(wrong.is_none(), "a write changed the byte at {wrong:?} outside its span");
    let (mut reader, mut seen, mut done) = (tier.open(1)?, vec![0; bytes.len()], Vec::new());
    let read = Read { id: 3, offset: start, len: seen.len() as u32, buffer: seen.as_mut_ptr(), round: 0 };
    // SAFETY: the buffer is used only after the queue, with all its reads, was dropped.
    let taken = unsafe { reader.submit(&[read])? };
    for _ in 0..MOST_WAITS {
        if done.is_empty() && taken == 1 {
            reader.reap(&mut done, Some(WAIT))?;
        }
    }
    drop(reader);
    ensure!(done.len() == 1 && seen == bytes, "a queue for reading does not see a write");
    Ok(())
}

pub(super) fn atomic_numbers(tier: &Arc<dyn Tier>) -> Outcome {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 200;
    let (sum, counter) = (4096_u64, 4104_u64);
    let mut queue = writable(tier)?.open_write(DEPTH)?;
    let zeros = [0_u8; 16];
    let action = Action::Write { from: zeros.as_ptr(), len: 16 };
    carry_out(queue.as_mut(), &[last(1, sum, action)])?;
    let seen = AtomicU64::new(0);
    let count = || -> Outcome {
        let mut queue = writable(tier)?.open_write(DEPTH)?;
        for _ in 0..ROUNDS {
            let mut old = 0_u64;
            let add = Action::FetchAndAdd { by: 3, old: &raw mut old };
            let ended = carry_out(queue.as_mut(), &[last(1, sum, add)])?[0];
            ensure!(ended.result == Ok(8), "an addition ended with {:?}", ended.result);
            // The previous numbers are 0, 3, 6 ..., each seen once.
            seen.fetch_add(old, Ordering::Relaxed);
            let mut held = 0_u64;
            loop {
                let mut old = 0_u64;
                let swap = Action::CompareAndSwap { expected: held, new: held + 1, old: &raw mut old };
                let ended = carry_out(queue.as_mut(), &[last(2, counter, swap)])?[0];
                ensure!(ended.result == Ok(8), "a comparison ended with {:?}", ended.result);
                if old == held {
                    break;
                }
                held = old;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or(Err(Breach("a thread panicked".into()))))
    })?;
    let all = THREADS * ROUNDS;
    let both = read(queue.as_mut(), sum, 16)?;
    let expected: Vec<u8> = [3 * all, all].iter().flat_map(|number| number.to_le_bytes()).collect();
    ensure!(both == expected, "after {all} changes, the two numbers are {both:?}");
    ensure!(seen.into_inner() == 3 * all * (all - 1) / 2, "two additions saw the same number");
    let mut old = 7_u64;
    let wrap = Action::FetchAndAdd { by: u64::MAX - 3 * all + 6, old: &raw mut old };
    carry_out(queue.as_mut(), &[last(1, sum, wrap)])?;
    let wrapped = read(queue.as_mut(), sum, 8)?;
    ensure!(
        old == 3 * all && wrapped == 5_u64.to_le_bytes(),
        "an addition does not wrap around: {wrapped:?}"
    );
    Ok(())
}

pub(super) fn chains(tier: &Arc<dyn Tier>) -> Outcome {
    const ROUNDS: u64 = 60;
    let (data, flag) = (8192_u64, 20_480_u64);
    let tier = writable(tier)?;
    let mut queue = tier.open_write(DEPTH)?;
    let zero = 0_u64;
    let action = Action::Write { from: (&raw const zero).cast(), len: 8 };
    carry_out(queue.as_mut(), &[last(1, flag, action)])?;
    std::thread::scope(|scope| {
        let write = move || -> Outcome {
            let mut queue = tier.open_write(DEPTH)?;
            for round in 1..=ROUNDS {
                let (bytes, mut old) = (vec![round as u8; 3000], 0_u64);
                let write = Action::Write { from: bytes.as_ptr(), len: 3000 };
                let set_flag = Action::CompareAndSwap { expected: round - 1, new: round, old: &raw mut old };
                let ended = carry_out(queue.as_mut(), &[linked(1, data, write), last(2, flag, set_flag)])?;
                ensure!(
                    ended.iter().all(|ended| ended.result.is_ok()) && old == round - 1,
                    "{ended:?}, {old}"
                );
            }
            Ok(())
        };
        let writer = scope.spawn(write);
        let mut seen = 0;
        while seen < ROUNDS {
            let (mut number, mut bytes) = (0_u64, vec![0_u8; 3000]);
            let read_flag = Action::FetchAndAdd { by: 0, old: &raw mut number };
            let read_data = Action::Read { into: bytes.as_mut_ptr(), len: 3000 };
            carry_out(queue.as_mut(), &[linked(1, flag, read_flag), last(2, data, read_data)])?;
            // The data must be as new as the flag that was seen, or newer.
            let old = bytes.iter().position(|byte| u64::from(*byte) < number);
            ensure!(old.is_none(), "flag {number} was seen before byte {old:?} of its data");
            seen = number;
            if writer.is_finished() && seen < ROUNDS && number == seen {
                seen = u64::from_le_bytes(read(queue.as_mut(), flag, 8)?.try_into().unwrap_or_default());
                ensure!(seen == ROUNDS, "the writer ended after {seen} rounds");
            }
        }
        writer.join().unwrap_or(Err(Breach("a thread panicked".into())))
    })
}

pub(super) fn failing_chains(tier: &Arc<dyn Tier>) -> Outcome {
    let mut queue = writable(tier)?.open_write(DEPTH)?;
    let (offset, mark, mut old) = (40_960_u64, [0xEE_u8; 64], 5_u64);
    let before = read(queue.as_mut(), offset, 64)?;
    let write = Action::Write { from: mark.as_ptr(), len: 64 };
    let add = Action::FetchAndAdd { by: 1, old: &raw mut old };
    // Writes outside and across the end, and a number at an unaligned offset.
    let len = LEN as u64;
    for (bad, action) in [(len, write), (len - 63, write), (u64::MAX - 8, write), (offset + 4, add)] {
        let chain =
            [linked(1, bad, action), linked(2, offset, write), last(3, offset, add), last(4, offset, add)];
        let ended = carry_out(queue.as_mut(), &chain)?;
        let fault = |at: usize| ended[at].result.err().map(|fault| fault.kind);
        ensure!(fault(0).is_some_and(|kind| kind != FaultKind::Skipped), "{bad}: {:?}", ended[0]);
        ensure!(
            fault(1) == Some(FaultKind::Skipped) && fault(2) == Some(FaultKind::Skipped),
            "linked operations after a failure are not skipped: {ended:?}"
        );
        ensure!(ended[3].result == Ok(8), "an operation of another chain fails: {:?}", ended[3]);
        let mut number = 0_u64;
        let undo = Action::FetchAndAdd { by: u64::MAX, old: &raw mut number };
        carry_out(queue.as_mut(), &[last(1, offset, undo)])?;
        ensure!(read(queue.as_mut(), offset, 64)? == before, "a chain that failed has changed bytes");
    }
    let mut olds = vec![0_u64; 3 * DEPTH as usize];
    let chain = |olds: &mut [u64], len: usize| -> Vec<Operation> {
        let operation = |(i, old): (usize, &mut u64)| {
            let action = Action::FetchAndAdd { by: 0, old };
            Operation { id: i as u64, offset, action, linked: (i + 1) % len != 0 }
        };
        olds.iter_mut().enumerate().map(operation).collect()
    };
    // The depth is not a multiple of three. A chain longer than the depth is refused.
    let ended = carry_out(queue.as_mut(), &chain(&mut olds, 3))?;
    ensure!(ended.iter().all(|ended| ended.result == Ok(8)), "{ended:?}");
    let long = chain(&mut olds, 3 * DEPTH as usize);
    // SAFETY: the chain is refused, so nothing is taken.
    let refused = unsafe { queue.submit_operations(&long) };
    ensure!(
        matches!(refused, Err(TierError::Parameter(_))) && queue.in_flight() == 0,
        "a chain longer than the depth of the queue is not refused: {refused:?}"
    );
    Ok(())
}
