//! The lists of a graph while it grows. Each list has the same capacity, and is read without a lock.
//!
//! A reader may see a list that is half old and half new. Every number in it is still the id of a vector, and
//! a search needs nothing more, so readers take no lock. Writers of one list exclude each other by a spin
//! lock.

use super::walk::Links;
use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// Capacity of a list as a multiple of the maximum degree, as in DiskANN. Pruning a list each time a link is
/// added would take several times as long.
const GROWTH: f32 = 1.3;

/// The lists of neighbours of all vectors.
pub(crate) struct Adjacency {
    /// For each vector: its degree, then `capacity` ids.
    words: Vec<AtomicU32>,
    locks: Vec<AtomicBool>,
    /// Most ids of a list.
    capacity: usize,
}

/// Lock of one list, which gives the right to change it.
pub(crate) struct WriteGuard<'a> {
    list: &'a [AtomicU32],
    lock: &'a AtomicBool,
}

impl Adjacency {
    /// Returns the bytes of the lists of `count` vectors.
    pub(crate) fn planned_bytes(count: u64, max_degree: u32) -> u64 {
        count * ((capacity(max_degree) as u64 + 1) * 4 + 1)
    }

    /// Creates an empty list for each of `count` vectors.
    ///
    /// # Errors
    /// [`IndexError::NoMemory`].
    pub(crate) fn new(count: usize, max_degree: u32) -> Result<Adjacency, IndexError> {
        let capacity = capacity(max_degree);
        let word_count = count.saturating_mul(capacity + 1);
        let mut words = try_with_capacity("the links of a graph", word_count)?;
        bathyal_tier::advise_huge_pages(&mut words);
        words.resize_with(word_count, || AtomicU32::new(0));
        let mut locks = try_with_capacity("the locks of a graph", count)?;
        locks.resize_with(count, || AtomicBool::new(false));
        Ok(Adjacency { words, locks, capacity })
    }

    /// Returns the number of vectors.
    pub(crate) fn count(&self) -> usize {
        self.locks.len()
    }

    #[inline]
    fn list(&self, id: u32) -> &[AtomicU32] {
        let start = id as usize * (self.capacity + 1);
        &self.words[start..start + self.capacity + 1]
    }

    /// Returns the number of neighbours of `id`.
    #[inline]
    pub(crate) fn degree(&self, id: u32) -> usize {
        (self.list(id)[0].load(Ordering::Acquire) as usize).min(self.capacity)
    }

    /// Returns the neighbours of `id`.
    #[inline]
    pub(crate) fn neighbors(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let list = self.list(id);
        let degree = (list[0].load(Ordering::Acquire) as usize).min(self.capacity);
        list[1..=degree].iter().map(|n| n.load(Ordering::Relaxed))
    }

    /// Returns a hash of all lists. It distinguishes graphs that several threads have grown from the same
    /// input.
    pub(crate) fn hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        let mut bytes = Vec::new();
        for id in 0..self.count() as u32 {
            bytes.clear();
            bytes.extend((self.degree(id) as u32).to_le_bytes());
            self.neighbors(id).for_each(|neighbor| bytes.extend(neighbor.to_le_bytes()));
            hash.update(&bytes);
        }
        hash.digest()
    }

    /// Waits for the lock of the list of `id`.
    pub(crate) fn lock(&self, id: u32) -> WriteGuard<'_> {
        let lock = &self.locks[id as usize];
        while lock.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::hint::spin_loop();
        }
        WriteGuard { list: self.list(id), lock }
    }
}

impl Links for Adjacency {
    #[inline]
    fn links(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        self.neighbors(id)
    }

    #[inline]
    fn prefetch(&self, id: u32) {
        let list = self.list(id);
        bathyal_tier::prefetch(list.as_ptr().cast(), size_of_val(list));
    }
}

impl WriteGuard<'_> {
    /// Replaces the list. Ids beyond its capacity are dropped.
    pub(crate) fn set(&self, neighbors: impl ExactSizeIterator<Item = u32>) {
        let degree = neighbors.len().min(self.list.len() - 1);
        for (slot, id) in self.list[1..].iter().zip(neighbors) {
            slot.store(id, Ordering::Relaxed);
        }
        self.list[0].store(degree as u32, Ordering::Release);
    }

    /// Adds `id` if the list does not contain it. Returns false if the list is full.
    pub(crate) fn add(&self, id: u32) -> bool {
        let degree = self.list[0].load(Ordering::Relaxed) as usize;
        if self.list[1..=degree].iter().any(|n| n.load(Ordering::Relaxed) == id) {
            return true;
        }
        if degree + 1 >= self.list.len() {
            return false;
        }
        self.list[degree + 1].store(id, Ordering::Relaxed);
        self.list[0].store(degree as u32 + 1, Ordering::Release);
        true
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.lock.store(false, Ordering::Release);
    }
}

/// Returns the most ids of a list.
fn capacity(max_degree: u32) -> usize {
    (max_degree as f32 * GROWTH).ceil() as usize
}
