//! Reads in doorbell batches (d-HNSW, section 3.2): a batch is one round trip, and the next one begins when
//! all of its reads have arrived. The layer counts round trips, with or without a limit.

use crate::contract::{Queue, Read, Tier};
use crate::error::TierError;
use crate::forward::{LayerQueue, LayerTier};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of all queues of a [`DoorbellTier`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DoorbellCounts {
    /// Batches submitted, which are round trips.
    pub doorbells: u64,
    /// Reads in the batches.
    pub reads: u64,
    /// Bytes requested by the reads.
    pub bytes: u64,
}

impl DoorbellCounts {
    /// Returns the counts since `before`.
    pub fn since(&self, before: &DoorbellCounts) -> DoorbellCounts {
        DoorbellCounts {
            doorbells: self.doorbells.saturating_sub(before.doorbells),
            reads: self.reads.saturating_sub(before.reads),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

#[derive(Debug, Default)]
struct DoorbellCounters {
    doorbells: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl DoorbellCounters {
    fn count(&self, taken: &[Read]) {
        if taken.is_empty() {
            return;
        }
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        self.reads.fetch_add(taken.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(taken.iter().map(|read| u64::from(read.len)).sum(), Ordering::Relaxed);
    }
}

/// A tier that submits reads in doorbell batches and counts them. Clones share the counts.
#[derive(Clone)]
pub struct DoorbellTier {
    tier: Arc<dyn Tier>,
    most: Option<NonZeroU32>,
    counters: Arc<DoorbellCounters>,
}

impl DoorbellTier {
    /// Makes a tier whose queues each have at most one batch in flight, of at most `reads` reads.
    pub fn new(tier: Arc<dyn Tier>, reads: NonZeroU32) -> DoorbellTier {
        DoorbellTier { tier, most: Some(reads), counters: Arc::default() }
    }

    /// Makes a tier without a limit, which counts every submission as a batch.
    pub fn unlimited(tier: Arc<dyn Tier>) -> DoorbellTier {
        DoorbellTier { tier, most: None, counters: Arc::default() }
    }

    /// Returns the counts of all queues so far. They are exact when no search is running.
    pub fn counts(&self) -> DoorbellCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let DoorbellCounters { doorbells, reads, bytes } = &*self.counters;
        DoorbellCounts { doorbells: load(doorbells), reads: load(reads), bytes: load(bytes) }
    }
}

impl LayerTier for DoorbellTier {
    fn below(&self) -> &dyn Tier {
        &*self.tier
    }

    fn queue_over(&self, queue: Box<dyn Queue>, _depth: u32) -> Box<dyn Queue> {
        let most = self.most.map_or(usize::MAX, |most| most.get() as usize);
        let (limited, counters) = (self.most.is_some(), self.counters.clone());
        Box::new(DoorbellQueue { queue, most, limited, counters })
    }
}

struct DoorbellQueue {
    queue: Box<dyn Queue>,
    most: usize,
    limited: bool,
    counters: Arc<DoorbellCounters>,
}

impl LayerQueue for DoorbellQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let batch_in_flight = self.limited && self.queue.in_flight() > 0;
        let batch = if batch_in_flight { &[] } else { &reads[..reads.len().min(self.most)] };
        // A submission of no reads checks lent bytes, so it is passed on, too.
        // SAFETY: the same reads under the same contract.
        let taken = unsafe { self.queue.submit(batch)? };
        self.counters.count(&batch[..taken.min(batch.len())]);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sim::{LatencyDistribution, SimOptions, SimTier};
    use std::time::Duration;

    const READS: usize = 10;
    const LEN: u32 = 512;

    /// Reads all `READS` blocks through `queue`, submitting the rest again and again. Returns how many reads
    /// each successful submission took.
    fn read_all(queue: &mut dyn Queue) -> Vec<usize> {
        let mut buffers = vec![0_u8; READS * LEN as usize];
        let read = |at: usize, buffers: &mut [u8]| Read {
            id: at as u64,
            offset: (at * LEN as usize) as u64,
            len: LEN,
            buffer: buffers[at * LEN as usize..].as_mut_ptr(),
            round: 0,
        };
        let reads: Vec<Read> = (0..READS).map(|at| read(at, &mut buffers)).collect();
        let (mut left, mut batches, mut done) = (&reads[..], Vec::new(), Vec::new());
        while done.len() < READS {
            // SAFETY: the buffers outlive the loop, which ends when all reads have completed.
            let taken = unsafe { queue.submit(left).unwrap() };
            left = &left[taken..];
            batches.extend((taken > 0).then_some(taken));
            queue.reap(&mut done, Some(Duration::from_secs(5))).unwrap();
        }
        assert!(left.is_empty() && done.iter().all(|completion| completion.result == Ok(LEN)));
        batches
    }

    fn device() -> Arc<dyn Tier> {
        // Random latencies: the reads of a batch arrive one by one and out of order.
        let latency = LatencyDistribution::Uniform { low_ns: 1_000, high_ns: 90_000 };
        Arc::new(SimTier::new(
            vec![7; READS * LEN as usize],
            SimOptions { latency, alignment: 1, ..SimOptions::default() },
        ))
    }

    #[test]
    fn one_batch_is_in_flight_at_a_time_and_every_batch_is_counted() {
        for (most, batches) in [(1, vec![1; 10]), (4, vec![4, 4, 2]), (16, vec![10])] {
            let tier = DoorbellTier::new(device(), NonZeroU32::new(most).unwrap());
            let mut queue = tier.open(64).unwrap();
            assert_eq!(read_all(&mut *queue), batches);
            let (reads, bytes) = (READS as u64, READS as u64 * u64::from(LEN));
            let once = DoorbellCounts { doorbells: batches.len() as u64, reads, bytes };
            assert_eq!(tier.counts(), once);
            // Queues and clones share the counts.
            read_all(&mut *tier.clone().open(64).unwrap());
            assert_eq!(tier.counts().since(&once), once);
        }
    }

    #[test]
    fn a_batch_waits_for_the_last_read_of_the_previous_one() {
        let tier = DoorbellTier::new(device(), NonZeroU32::new(2).unwrap());
        let mut queue = tier.open(64).unwrap();
        let mut buffers = [[0_u8; LEN as usize]; 3];
        let mut at = 0;
        let reads = buffers.each_mut().map(|buffer| {
            at += 1;
            Read { id: at, offset: 0, len: LEN, buffer: buffer.as_mut_ptr(), round: 0 }
        });
        let mut done = Vec::new();
        // SAFETY: the buffers outlive the queue's reads, all of which are reaped below.
        unsafe {
            assert_eq!(queue.submit(&reads).unwrap(), 2);
            while done.len() < 2 {
                assert_eq!(queue.submit(&reads[2..]).unwrap(), 0, "{done:?}");
                let before = done.len();
                queue.reap(&mut done, Some(Duration::from_secs(5))).unwrap();
                assert!(done.len() > before);
            }
            assert_eq!(queue.submit(&reads[2..]).unwrap(), 1);
        }
        while queue.in_flight() > 0 {
            queue.reap(&mut done, Some(Duration::from_secs(5))).unwrap();
        }
        assert_eq!((done.len(), tier.counts().doorbells), (3, 2));
    }

    #[test]
    fn without_a_limit_submissions_are_only_counted() {
        let tier = DoorbellTier::unlimited(device());
        let mut queue = tier.open(64).unwrap();
        assert_eq!(read_all(&mut *queue), [READS]);
        assert_eq!((tier.counts().doorbells, tier.counts().reads), (1, READS as u64));
    }
}
