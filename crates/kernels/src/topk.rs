//! Bounded lists of neighbours. Their order is by distance, then by id, and does not depend on the order of
//! insertion.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A vector's id and its distance from the query. The total order is by distance, then id; `-0.0` equals
/// `0.0`, and NaN comes last.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Neighbor {
    /// Distance; smaller is nearer.
    pub distance: f32,
    /// Row number of the vector.
    pub id: u32,
}

impl Neighbor {
    /// Packs distance and id into one integer with the same order.
    #[inline]
    fn key(self) -> u64 {
        // Adding zero turns -0.0 into 0.0, so that the two are equal and ordered by id.
        let bits = (self.distance + 0.0).to_bits();
        let ordered = bits ^ (((bits as i32 >> 31) as u32) | SIGN);
        (u64::from(ordered) << 32) | u64::from(self.id)
    }

    /// Inverts [`Neighbor::key`].
    #[inline]
    fn from_key(key: u64) -> Neighbor {
        let ordered = (key >> 32) as u32;
        let bits = if ordered & SIGN != 0 { ordered ^ SIGN } else { !ordered };
        Neighbor { distance: f32::from_bits(bits), id: key as u32 }
    }
}

const SIGN: u32 = 1 << 31;

impl PartialEq for Neighbor {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Neighbor {}

impl PartialOrd for Neighbor {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Neighbor {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// The `k` nearest of the neighbours that were pushed, in any order of the pushes.
#[derive(Clone, Debug)]
pub struct TopK {
    // Keys of neighbours; the worst one is at the top.
    heap: BinaryHeap<u64>,
    k: usize,
}

impl TopK {
    /// Creates an empty list that keeps `k` neighbours. Memory grows with the neighbours.
    pub fn new(k: usize) -> TopK {
        TopK { heap: BinaryHeap::new(), k }
    }

    /// Removes all neighbours and sets the number to keep to `k`. Memory stays allocated.
    pub fn reset(&mut self, k: usize) {
        self.heap.clear();
        self.k = k;
    }

    /// Adds a neighbour if it is among the `k` nearest so far, and returns true if so. NaN is never added.
    #[inline]
    pub fn push(&mut self, id: u32, distance: f32) -> bool {
        if distance.is_nan() {
            return false;
        }
        let key = Neighbor { distance, id }.key();
        if self.heap.len() < self.k {
            self.heap.push(key);
            return true;
        }
        match self.heap.peek_mut() {
            Some(mut worst) if key < *worst => {
                *worst = key;
                true
            }
            _ => false,
        }
    }

    /// Returns the worst distance in the list; infinity while it is not full. A push of a farther neighbour
    /// has no effect; one at the same distance may still be added because of its id.
    #[inline]
    pub fn threshold(&self) -> f32 {
        match self.heap.peek() {
            Some(&worst) if self.heap.len() >= self.k => Neighbor::from_key(worst).distance,
            _ if self.k == 0 => f32::NEG_INFINITY,
            _ => f32::INFINITY,
        }
    }

    /// Returns the number of neighbours.
    #[inline]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns true if the list is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Iterates over the neighbours, in no order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Neighbor> + '_ {
        self.heap.iter().copied().map(Neighbor::from_key)
    }

    /// Returns the neighbours, nearest first.
    pub fn into_sorted(self) -> Vec<Neighbor> {
        let keys = self.heap.into_sorted_vec();
        keys.into_iter().map(Neighbor::from_key).collect()
    }

    /// Appends the neighbours to `out`, nearest first, and empties the list. Its memory stays allocated.
    pub fn drain_sorted(&mut self, out: &mut Vec<Neighbor>) {
        let start = out.len();
        out.extend(self.heap.drain().map(Neighbor::from_key));
        out[start..].sort_unstable();
    }
}

/// The candidates of a graph search: the nearest vectors so far, sorted, each with a mark if it is expanded.
///
/// The list holds at most `search_list` (L in DiskANN) candidates. The caller's visited set ensures that no
/// id is inserted twice.
#[derive(Clone, Debug)]
pub struct CandidateList {
    // (distance key, id): eight bytes for each candidate, compared as one integer.
    keys: Vec<u64>,
    // Separate from the keys, so that an id can use all its 32 bits.
    expanded: Vec<bool>,
    capacity: usize,
    // All candidates before this position are expanded.
    cursor: usize,
}

impl CandidateList {
    /// Creates an empty list for `capacity` candidates.
    pub fn new(capacity: usize) -> CandidateList {
        CandidateList {
            keys: Vec::with_capacity(capacity),
            expanded: Vec::with_capacity(capacity),
            capacity,
            cursor: 0,
        }
    }

    /// Empties the list for a search with `capacity` candidates. Memory stays allocated.
    pub fn reset(&mut self, capacity: usize) {
        self.keys.clear();
        self.expanded.clear();
        self.keys.reserve(capacity);
        self.expanded.reserve(capacity);
        self.capacity = capacity;
        self.cursor = 0;
    }

    /// Inserts a candidate in order of distance, then id, and returns true unless it is too far for the full
    /// list. NaN is never inserted.
    #[inline]
    pub fn insert(&mut self, neighbor: Neighbor) -> bool {
        if neighbor.distance.is_nan() {
            return false;
        }
        let key = neighbor.key();
        if self.keys.len() >= self.capacity {
            match self.keys.last() {
                Some(&worst) if key < worst => {
                    self.keys.pop();
                    self.expanded.pop();
                }
                _ => return false,
            }
        }
        let position = self.keys.partition_point(|&present| present < key);
        self.keys.insert(position, key);
        self.expanded.insert(position, false);
        self.cursor = self.cursor.min(position);
        true
    }

    /// Returns the nearest candidate that is not expanded, and marks it as expanded.
    #[inline]
    pub fn next_unexpanded(&mut self) -> Option<Neighbor> {
        while *self.expanded.get(self.cursor)? {
            self.cursor += 1;
        }
        self.expanded[self.cursor] = true;
        self.cursor += 1;
        Some(Neighbor::from_key(self.keys[self.cursor - 1]))
    }

    /// Returns the candidate that [`CandidateList::next_unexpanded`] would return, without marking it. Used
    /// to prefetch it.
    #[inline]
    pub fn peek_unexpanded(&self) -> Option<Neighbor> {
        let ahead = self.expanded.get(self.cursor..)?.iter().position(|expanded| !expanded)?;
        Some(Neighbor::from_key(self.keys[self.cursor + ahead]))
    }

    /// Returns the worst distance in the list; infinity while it is not full. A candidate at the same
    /// distance may still be inserted because of its id.
    #[inline]
    pub fn threshold(&self) -> f32 {
        match self.keys.last() {
            Some(&worst) if self.keys.len() >= self.capacity => Neighbor::from_key(worst).distance,
            _ if self.capacity == 0 => f32::NEG_INFINITY,
            _ => f32::INFINITY,
        }
    }

    /// Returns the number of candidates.
    #[inline]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if the list is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Iterates over all candidates, nearest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Neighbor> + '_ {
        self.keys.iter().map(|&key| Neighbor::from_key(key))
    }
}

#[cfg(test)]
mod tests;
