//! Checks of a tier's queues, read by read.

use super::{Breach, LEN, MakeFailing, Outcome, content, ensure, first_difference};
use crate::backend::sim::random::SplitMix64;
use crate::buffers::{Buffer, BufferPool};
use crate::contract::{Completion, Queue, Read, Span, Tier};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DEPTH: u32 = 8;

/// Longest single wait; every device answers sooner.
const WAIT: Duration = Duration::from_millis(200);

/// Consecutive waits without a completion after which a read counts as lost.
const MOST_WAITS: u32 = 100;

/// A queue with its own buffers. The queue is declared first, so that it is dropped first.
struct Bench {
    queue: Box<dyn Queue>,
    pool: BufferPool,
    addressable: bool,
    alignment: u64,
    tier: Arc<dyn Tier>,
    /// True while another thread wakes the queue, so that waits without a completion do not count.
    woken: bool,
}

impl Bench {
    fn new(tier: &Arc<dyn Tier>, depth: u32) -> Result<Bench, Breach> {
        let queue = tier.open(depth)?;
        let pool = BufferPool::new(64, 64 << 10, u64::MAX, crate::BUFFER_ALIGNMENT);
        let profile = tier.profile();
        let (addressable, alignment) = (profile.addressable, u64::from(profile.alignment));
        Ok(Bench { queue, pool, addressable, alignment, tier: tier.clone(), woken: false })
    }

    /// Makes an aligned read, with a buffer if the tier is not addressable.
    fn read(&mut self, id: u64, offset: u64, len: u32) -> Result<(Read, Option<Buffer>), Breach> {
        let offset = offset & !(self.alignment - 1);
        let len = len.next_multiple_of(self.alignment as u32);
        if self.addressable {
            return Ok((Read { id, offset, len, buffer: std::ptr::null_mut(), round: 0 }, None));
        }
        let buffer = self.pool.take(len as usize).ok_or(Breach("out of memory".into()))?;
        Ok((Read { id, offset, len, buffer: buffer.start.as_ptr(), round: 0 }, Some(buffer)))
    }

    /// Submits all of `reads`, waiting while the queue is full, and reaps every completion.
    fn serve(&mut self, reads: &[Read]) -> Result<Vec<Completion>, Breach> {
        let (mut done, mut next, mut idle) = (Vec::new(), 0, 0);
        while done.len() < reads.len() {
            if next < reads.len() {
                let empty = self.queue.in_flight() == 0;
                // SAFETY: no buffer is released before its completion has been reaped.
                let taken = unsafe { self.queue.submit(&reads[next..])? };
                ensure!(taken <= reads.len() - next, "{taken} reads taken of {}", reads.len() - next);
                ensure!(taken > 0 || !empty, "an empty queue takes no read");
                next += taken;
            }
            let before = done.len();
            self.queue.reap(&mut done, Some(WAIT))?;
            let in_flight = self.queue.in_flight();
            ensure!(
                in_flight == next - done.len(),
                "{in_flight} in flight, {next} taken, {} done",
                done.len()
            );
            idle = if done.len() == before && !self.woken { idle + 1 } else { 0 };
            ensure!(idle < MOST_WAITS, "a read never completes; {} of {} did", done.len(), reads.len());
        }
        Ok(done)
    }

    /// Checks the length and the bytes of one completed read.
    fn compare(&self, read: &Read, completion: &Completion) -> Outcome {
        let expected = self.tier.len().saturating_sub(read.offset).min(u64::from(read.len));
        let got = completion.result.map_err(|e| Breach(format!("{read:?} failed: {e:?}")))?;
        ensure!(u64::from(got) == expected, "{read:?}: {got} bytes arrived of {expected}");
        if got == 0 {
            return Ok(());
        }
        let bytes = if self.addressable {
            let mapped = self.queue.map(Span::at(read.offset, got));
            mapped.ok_or_else(|| Breach(format!("{read:?} completed but is not mapped")))?
        } else {
            // SAFETY: the read has completed with this many bytes, and its buffer was not released.
            unsafe { std::slice::from_raw_parts(read.buffer, got as usize) }
        };
        match first_difference(read.offset, bytes) {
            Some(at) => Err(Breach(format!("{read:?}: wrong byte at offset {at}"))),
            None => Ok(()),
        }
    }

    /// Reads `spans`, given as offset and length: submits the reads, matches the ids of completions, compares
    /// bytes and releases the buffers.
    fn verify(&mut self, spans: &[(u64, u32)]) -> Outcome {
        let mut reads = HashMap::new();
        let mut submitted = Vec::new();
        for (i, (offset, len)) in spans.iter().enumerate() {
            // The caller chooses ids, so these are neither small nor in order.
            let id = u64::MAX - (i as u64) * 0x1_0000_0001;
            let (read, buffer) = self.read(id, *offset, *len)?;
            reads.insert(id, (read, buffer));
            submitted.push(read);
        }
        for completion in self.serve(&submitted)? {
            let id = completion.id;
            let Some((read, buffer)) = reads.remove(&id) else {
                return Err(Breach(format!("id {id:#x} completed twice or was never submitted")));
            };
            self.compare(&read, &completion)?;
            buffer.into_iter().for_each(|b| self.pool.release(b));
        }
        ensure!(self.queue.in_flight() == 0, "{} in flight after all completed", self.queue.in_flight());
        Ok(())
    }
}

/// Returns offsets and lengths of `n` random spans of up to `longest` bytes within the tier.
fn random_spans(seed: u64, n: usize, longest: u64) -> Vec<(u64, u32)> {
    let mut random = SplitMix64::new(seed, 0);
    let mut span = || {
        let len = 1 + random.below(longest);
        (random.below(LEN as u64 - len), len as u32)
    };
    (0..n).map(|_| span()).collect()
}

pub(super) fn profile(tier: &Arc<dyn Tier>) -> Outcome {
    let profile = tier.profile();
    let alignment = profile.alignment;
    ensure!(tier.len() == LEN as u64 && !tier.is_empty(), "length {} instead of {LEN}", tier.len());
    ensure!(alignment.is_power_of_two() && alignment <= 4096, "alignment {alignment}");
    ensure!(profile.granularity > 0 && profile.depth > 0, "granularity or depth of 0: {profile:?}");
    ensure!(!profile.kind.is_empty() && !profile.method.is_empty(), "no name: {profile:?}");
    Ok(())
}

pub(super) fn ids_and_bytes(tier: &Arc<dyn Tier>) -> Outcome {
    for depth in [1, DEPTH, 64] {
        let mut bench = Bench::new(tier, depth)?;
        bench.verify(&random_spans(1, 300, 9000))?;
        bench.verify(&random_spans(2, 3, 1 << 20))?;
    }
    let mut bench = Bench::new(tier, DEPTH)?;
    if !bench.addressable {
        let (start, len) = bench.pool.region();
        // SAFETY: the bench drops its queue before the pool.
        unsafe { bench.queue.register(start, len)? };
    }
    bench.verify(&random_spans(3, 100, 60_000))
}

pub(super) fn end_of_tier(tier: &Arc<dyn Tier>) -> Outcome {
    let mut bench = Bench::new(tier, DEPTH)?;
    let len = LEN as u64;
    let beyond = len.next_multiple_of(bench.alignment);
    bench.verify(&[
        (len - 1, 1),
        (len - 1, 8192),
        (len - 5000, 100_000),
        (beyond, 512),
        (beyond + (1 << 20), 512),
    ])
}

pub(super) fn back_pressure(tier: &Arc<dyn Tier>) -> Outcome {
    let mut bench = Bench::new(tier, 4)?;
    let (mut reads, mut buffers) = (Vec::new(), Vec::new());
    for id in 0..32 {
        let (read, buffer) = bench.read(id, id * 10_007, 4096)?;
        reads.push(read);
        buffers.push(buffer);
    }
    let mut taken = 0;
    for _ in 0..3 {
        // SAFETY: the buffers are not released before the end of this function, after all completions.
        let more = unsafe { bench.queue.submit(&reads[taken..])? };
        ensure!(taken + more > 0, "an empty queue takes no read");
        taken += more;
        ensure!(taken <= 4, "a queue of depth 4 holds {taken} reads");
        ensure!(bench.queue.in_flight() == taken, "{} in flight of {taken}", bench.queue.in_flight());
    }
    let mut done = Vec::new();
    for _ in 0..MOST_WAITS {
        bench.queue.reap(&mut done, Some(WAIT))?;
        if done.len() == taken {
            break;
        }
    }
    let mut ids: Vec<_> = done.iter().map(|c| c.id).collect();
    ids.sort_unstable();
    ensure!(
        ids == (0..taken as u64).collect::<Vec<_>>(),
        "the reads taken are not a prefix: {ids:?} of {taken}"
    );
    for completion in &done {
        bench.compare(&reads[completion.id as usize], completion)?;
    }
    let rest = bench.serve(&reads[taken..])?;
    ensure!(rest.len() + taken == reads.len(), "{} reads completed of 32", rest.len() + taken);
    Ok(())
}

pub(super) fn nothing_in_flight(tier: &Arc<dyn Tier>) -> Outcome {
    let mut bench = Bench::new(tier, DEPTH)?;
    let mut done = Vec::new();
    // SAFETY: no reads, no buffers.
    let taken = unsafe { bench.queue.submit(&[])? };
    ensure!(taken == 0 && bench.queue.in_flight() == 0, "{taken} reads taken of none");
    bench.queue.reap(&mut done, None)?;
    // If this waited, the suite would hang here.
    bench.queue.reap(&mut done, Some(Duration::from_secs(3600)))?;
    ensure!(done.is_empty(), "completions without reads: {done:?}");
    bench.verify(&[(0, 100)])?;
    bench.queue.reap(&mut done, Some(Duration::from_secs(3600)))?;
    ensure!(done.is_empty(), "completions without reads: {done:?}");
    Ok(())
}

pub(super) fn reap_without_wait(tier: &Arc<dyn Tier>) -> Outcome {
    let mut bench = Bench::new(tier, DEPTH)?;
    let (read, _buffer) = bench.read(77, 4096, 4096)?;
    // SAFETY: the buffer is not released before the completion.
    let taken = unsafe { bench.queue.submit(&[read])? };
    ensure!(taken == 1, "{taken} reads taken of 1");
    let mut done = Vec::new();
    let mut polls = 0_u64;
    while done.is_empty() {
        bench.queue.reap(&mut done, None)?;
        bench.queue.reap(&mut done, Some(Duration::ZERO))?;
        polls += 1;
        ensure!(polls < 1 << 32, "reaping without waiting never returns the completion");
    }
    ensure!(done.len() == 1 && done[0].id == 77, "unexpected completions: {done:?}");
    bench.compare(&read, &done[0])
}

pub(super) fn woken_waits(tier: &Arc<dyn Tier>) -> Outcome {
    let mut bench = Bench::new(tier, DEPTH)?;
    let Some(waker) = bench.queue.waker() else { return Ok(()) };
    // A wake with nothing in flight causes no completion.
    waker.wake_by_ref();
    let mut done = Vec::new();
    bench.queue.reap(&mut done, Some(Duration::from_secs(3600)))?;
    ensure!(done.is_empty(), "completions after a wake without reads: {done:?}");
    bench.woken = true;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                waker.wake_by_ref();
                std::thread::yield_now();
            }
        });
        let outcome = (0..20).try_for_each(|seed| bench.verify(&random_spans(seed, 30, 9000)));
        over.store(true, Ordering::Relaxed);
        outcome
    })?;
    bench.woken = false;
    bench.verify(&random_spans(1, 30, 9000))
}

pub(super) fn dropped_in_flight(tier: &Arc<dyn Tier>) -> Outcome {
    const MARK: u8 = 0x3C;
    for round in 0..20 {
        let Bench { mut queue, mut pool, addressable, alignment, .. } = Bench::new(tier, DEPTH)?;
        let mut reads = Vec::new();
        for id in 0..u64::from(DEPTH) {
            let buffer = if addressable { None } else { pool.take(8192) };
            let buffer = buffer.map_or(std::ptr::null_mut(), |b| b.start.as_ptr());
            let offset = (id * 99_991 + round) & !(alignment - 1);
            reads.push(Read { id, offset, len: 8192, buffer, round: 0 });
        }
        // SAFETY: the pool outlives the queue.
        let taken = unsafe { queue.submit(&reads)? };
        ensure!(taken > 0, "an empty queue takes no read");
        drop(queue);
        for read in reads.iter().filter(|r| !r.buffer.is_null()) {
            // SAFETY: the queue was dropped, so nothing else touches the buffers.
            unsafe { std::ptr::write_bytes(read.buffer, MARK, 8192) };
        }
        // A device that still writes into the buffers has time to do so here.
        Bench::new(tier, DEPTH)?.verify(&random_spans(round, 20, 9000))?;
        for read in reads.iter().filter(|r| !r.buffer.is_null()) {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(read.buffer, 8192) };
            ensure!(bytes.iter().all(|b| *b == MARK), "{read:?} was written to after its queue was dropped");
        }
    }
    Ok(())
}

/// Checks that each abandoned read completes once, possibly with a fault, and that later reads work.
pub(super) fn abandoned_reads(tier: &Arc<dyn Tier>) -> Outcome {
    for round in 0..20 {
        let mut bench = Bench::new(tier, DEPTH)?;
        let (mut reads, mut buffers) = (Vec::new(), Vec::new());
        for (id, (offset, len)) in (0..).zip(random_spans(round, DEPTH as usize, 9000)) {
            let (read, buffer) = bench.read(id, offset, len)?;
            reads.push(read);
            buffers.extend(buffer);
        }
        // SAFETY: no buffer is released before its completion has been reaped.
        let taken = unsafe { bench.queue.submit(&reads)? };
        bench.queue.give_up();
        let (mut done, mut waits) = (Vec::new(), 0);
        while done.len() < taken {
            bench.queue.reap(&mut done, Some(WAIT))?;
            waits += 1;
            ensure!(waits < MOST_WAITS, "only {} of {taken} abandoned reads end", done.len());
        }
        let mut ids: Vec<u64> = done.iter().map(|ended: &Completion| ended.id).collect();
        ids.sort_unstable();
        ensure!(ids.iter().copied().eq(0..taken as u64), "of {taken} abandoned reads, {ids:?} ended");
        for ended in done.iter().filter(|ended| ended.result.is_ok()) {
            bench.compare(&reads[ended.id as usize], ended)?;
        }
        buffers.into_iter().for_each(|buffer| bench.pool.release(buffer));
        bench.verify(&random_spans(round, 20, 9000))?;
    }
    Ok(())
}

pub(super) fn mapped_bytes(tier: &Arc<dyn Tier>) -> Outcome {
    let queue = tier.open(1)?;
    let len = LEN as u64;
    for (offset, n) in [(0, 1), (0, 4096), (12_345, 100_001), (len - 1, 1), (len - 9000, 9000)] {
        match (tier.profile().addressable, queue.map(Span::at(offset, n))) {
            (true, Some(bytes)) => {
                ensure!(bytes.len() == n as usize, "{} bytes mapped of {n}", bytes.len());
                let wrong = first_difference(offset, bytes);
                ensure!(wrong.is_none(), "wrong byte at offset {wrong:?}");
            }
            (false, None) => {}
            (true, None) => return Err(Breach(format!("span {offset}+{n} lies inside but is not mapped"))),
            (false, Some(_)) => return Err(Breach("a tier that is not addressable maps bytes".into())),
        }
    }
    if let Some(bytes) = queue.lend() {
        ensure!(tier.profile().addressable, "a tier that is not addressable lends bytes");
        ensure!(bytes.len() as u64 == tier.len(), "{} bytes lent of {}", bytes.len(), tier.len());
        let same = queue.map(Span::at(0, 1)).is_some_and(|mapped| mapped.as_ptr() == bytes.as_ptr());
        ensure!(same, "lent and mapped bytes have different addresses");
        let wrong = first_difference(0, bytes);
        ensure!(wrong.is_none(), "wrong byte lent at offset {wrong:?}");
    }
    for (offset, n) in [(len - 1, 2), (len, 1), (0, u32::MAX), (u64::MAX, 1), (u64::MAX - 7, u32::MAX)] {
        ensure!(queue.map(Span::at(offset, n)).is_none(), "span {offset}+{n} lies outside but is mapped");
    }
    Ok(())
}

pub(super) fn concurrent_queues(tier: &Arc<dyn Tier>) -> Outcome {
    let run = |seed: u64| Bench::new(tier, DEPTH)?.verify(&random_spans(seed, 200, 20_000));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || run(seed))).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or(Err(Breach("a thread panicked".into()))))
    })
}

pub(super) fn damaged_byte(make: MakeFailing<'_>) -> Outcome {
    const BAD: u64 = 100_000;
    let tier = make(content(LEN), BAD);
    let mut bench = Bench::new(&tier, DEPTH)?;
    let mut reads = Vec::new();
    for id in 0..7 {
        let offset = if id == 3 { BAD } else { 500_000 + id * 20_000 };
        reads.push(bench.read(id, offset, 8192)?.0);
    }
    for round in 0..3 {
        for completion in bench.serve(&reads)? {
            if completion.id == 3 {
                ensure!(
                    completion.result.is_err(),
                    "round {round}: a read of a damaged byte succeeded: {completion:?}"
                );
            } else {
                bench.compare(&reads[completion.id as usize], &completion)?;
            }
        }
    }
    Ok(())
}
