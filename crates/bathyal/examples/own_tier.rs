//! A tier of your own: it counts how often searches read each megabyte of an index.
//!
//!     cargo run --release -p bathyal --example own_tier
//!
//! The tier here is a layer over the one that `Index::open` would use: what it does not count is forwarded. A
//! tier over bytes of another kind implements `Tier` and `Queue` instead.

use bathyal::tier::{LayerQueue, LayerTier, Queue, Read, Tier, TierError};
use bathyal::{
    BuildOptions, Control, Element, Error, Index, OpenOptions, SearchOptions, Silent, VectorFile, WrapTier,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MEGABYTE: u64 = 1 << 20;

fn main() -> Result<(), Error> {
    for (megabyte, reads) in run()?.iter().enumerate() {
        println!("megabyte {megabyte}: {reads} reads");
    }
    Ok(())
}

/// Builds an index, searches it through a [`HeatMap`], and returns the reads of each megabyte.
fn run() -> Result<Vec<u64>, Error> {
    let folder = tempfile::tempdir().map_err(|error| Error::Internal(error.to_string()))?;
    let values = (0..20_000 * 64_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8);
    let data = VectorFile::from_rows(Element::U8, 64, values.collect())?;
    let path = folder.path().join("index");
    bathyal::build(&data, &path, &BuildOptions::default(), &Silent)?;

    let reads: Arc<[AtomicU64]> = (0..64).map(|_| AtomicU64::new(0)).collect();
    let counted = reads.clone();
    let wrap: WrapTier = Arc::new(move |tier| Ok(Arc::new(HeatMap { tier, reads: counted.clone() })));
    let index = Index::open(&path, &OpenOptions { wrap: Some(wrap), ..OpenOptions::default() })?;
    let queries = data.rows(0..100).unwrap_or_default().to_vec();
    let queries = VectorFile::from_rows(Element::U8, 64, queries)?;
    let found = index.search(&queries, &SearchOptions::default(), Control::default())?;
    println!("{} reads for {} queries", found.totals.reads, queries.count());

    let megabytes = index.tier().len().div_ceil(MEGABYTE) as usize;
    Ok(reads.iter().take(megabytes).map(|reads| reads.load(Ordering::Relaxed)).collect())
}

/// Counts the reads of each megabyte of `tier`; the last counter also takes what lies beyond it.
struct HeatMap {
    tier: Arc<dyn Tier>,
    reads: Arc<[AtomicU64]>,
}

impl LayerTier for HeatMap {
    fn below(&self) -> &dyn Tier {
        &*self.tier
    }

    fn queue_over(&self, queue: Box<dyn Queue>, _depth: u32) -> Box<dyn Queue> {
        Box::new(CountingQueue { queue, reads: self.reads.clone() })
    }
}

/// The queue of one thread.
struct CountingQueue {
    queue: Box<dyn Queue>,
    reads: Arc<[AtomicU64]>,
}

impl LayerQueue for CountingQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // SAFETY: the caller keeps the contract of `submit`, which is the same for the queue below.
        let taken = unsafe { self.queue.submit(reads) }?;
        for read in &reads[..taken] {
            let megabyte = (read.offset / MEGABYTE) as usize;
            self.reads[megabyte.min(self.reads.len() - 1)].fetch_add(1, Ordering::Relaxed);
        }
        Ok(taken)
    }
}

#[test]
fn reads_of_searches_are_counted() {
    assert!(run().unwrap().iter().sum::<u64>() > 100);
}
