//! The graph while it grows: fixed room for every vector's neighbours, read without locks.
//!
//! A reader may see a list that is half old and half new. Every number in it is still a vector's id, which is
//! all that a search needs, so readers take no lock; writers of one list exclude each other by a spin lock.

use super::walk::Links;
use crate::error::IndexError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// Lists may grow to this multiple of the maximum degree before they are pruned back, as in DiskANN: pruning
/// each time an edge is added would cost several times more.
const GROWTH: f32 = 1.3;

/// Neighbour lists of all vectors.
pub(crate) struct Adjacency {
    /// For each vector its degree, then `room` ids.
    words: Vec<AtomicU32>,
    locks: Vec<AtomicBool>,
    room: usize,
}

/// Exclusive right to change one list.
pub(crate) struct WriteGuard<'a> {
    list: &'a [AtomicU32],
    lock: &'a AtomicBool,
}

impl Adjacency {
    /// Bytes that lists for `count` vectors take.
    pub(crate) fn planned_bytes(count: u64, max_degree: u32) -> u64 {
        count * ((room(max_degree) as u64 + 1) * 4 + 1)
    }

    /// Empty lists.
    ///
    /// # Errors
    /// [`IndexError::NoMemory`].
    pub(crate) fn new(count: usize, max_degree: u32) -> Result<Adjacency, IndexError> {
        let room = room(max_degree);
        let wanted = count.saturating_mul(room + 1);
        let mut words = crate::allocate::try_with_capacity("the links of a graph", wanted)?;
        bathyal_tier::advise_huge_pages(&mut words);
        words.resize_with(wanted, || AtomicU32::new(0));
        let mut locks = crate::allocate::try_with_capacity("the locks of a graph", count)?;
        locks.resize_with(count, || AtomicBool::new(false));
        Ok(Adjacency { words, locks, room })
    }

    /// Number of vectors.
    pub(crate) fn count(&self) -> usize {
        self.locks.len()
    }

    #[inline]
    fn list(&self, id: u32) -> &[AtomicU32] {
        let start = id as usize * (self.room + 1);
        &self.words[start..start + self.room + 1]
    }

    /// Number of neighbours of `id`.
    #[inline]
    pub(crate) fn degree(&self, id: u32) -> usize {
        (self.list(id)[0].load(Ordering::Acquire) as usize).min(self.room)
    }

    /// The neighbours of `id`, one by one.
    #[inline]
    pub(crate) fn neighbors(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let list = self.list(id);
        let degree = (list[0].load(Ordering::Acquire) as usize).min(self.room);
        list[1..=degree].iter().map(|n| n.load(Ordering::Relaxed))
    }

    /// A hash of all lists, by which graphs that several threads have grown differ.
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

    /// Waits for the right to change the list of `id`.
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
    /// Replaces the list; ids beyond its room are dropped.
    pub(crate) fn set(&self, neighbors: impl ExactSizeIterator<Item = u32>) {
        let degree = neighbors.len().min(self.list.len() - 1);
        for (slot, id) in self.list[1..].iter().zip(neighbors) {
            slot.store(id, Ordering::Relaxed);
        }
        self.list[0].store(degree as u32, Ordering::Release);
    }

    /// Adds `id` if it is not there; false when the list is full.
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

fn room(max_degree: u32) -> usize {
    (max_degree as f32 * GROWTH).ceil() as usize
}
