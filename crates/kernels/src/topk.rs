//! Bounded lists of neighbours whose order never depends on the order of arrival: by distance, then
//! by id.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A vector's id and its distance from the query. Ordered by distance, then id, totally: `-0.0` ties
/// with `0.0`, and NaN comes last.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Neighbor {
    /// The smaller, the nearer.
    pub distance: f32,
    /// Row number of the vector.
    pub id: u32,
}

impl Neighbor {
    /// Distance and id as one integer of the same order.
    #[inline]
    fn key(self) -> u64 {
        // Adding zero turns -0.0 into 0.0, so that the two tie and the id decides.
        let bits = (self.distance + 0.0).to_bits();
        let ordered = bits ^ (((bits as i32 >> 31) as u32) | SIGN);
        (u64::from(ordered) << 32) | u64::from(self.id)
    }

    /// The inverse of [`Neighbor::key`].
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

/// The `k` nearest of what was pushed, whatever the order of the pushes.
#[derive(Clone, Debug)]
pub struct TopK {
    // Keys of neighbours; the worst one kept is at the top.
    heap: BinaryHeap<u64>,
    k: usize,
}

impl TopK {
    /// An empty list that keeps `k` neighbours. Memory is taken as they come.
    pub fn new(k: usize) -> TopK {
        TopK { heap: BinaryHeap::new(), k }
    }

    /// Forgets all neighbours and keeps `k` from now on; memory stays.
    pub fn reset(&mut self, k: usize) {
        self.heap.clear();
        self.k = k;
    }

    /// Offers a neighbour; true where it is kept for now. NaN never is.
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

    /// The worst distance kept; infinite while there is room. What is farther need not be pushed;
    /// what is equally far may still win by its id.
    #[inline]
    pub fn threshold(&self) -> f32 {
        match self.heap.peek() {
            Some(&worst) if self.heap.len() >= self.k => Neighbor::from_key(worst).distance,
            _ if self.k == 0 => f32::NEG_INFINITY,
            _ => f32::INFINITY,
        }
    }

    /// Neighbours held.
    #[inline]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True where there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The neighbours, in no order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Neighbor> + '_ {
        self.heap.iter().copied().map(Neighbor::from_key)
    }

    /// The neighbours, nearest first.
    pub fn into_sorted(self) -> Vec<Neighbor> {
        let keys = self.heap.into_sorted_vec();
        keys.into_iter().map(Neighbor::from_key).collect()
    }

    /// Appends the neighbours to `out`, nearest first, and empties the list for its next use.
    pub fn drain_sorted(&mut self, out: &mut Vec<Neighbor>) {
        let start = out.len();
        out.extend(self.heap.drain().map(Neighbor::from_key));
        out[start..].sort_unstable();
    }
}

/// The candidates of a graph search: the nearest so far, sorted, each marked once it is expanded.
///
/// The list holds at most `search_list` (L in DiskANN) of them. The caller's visited set keeps an id
/// from being inserted twice.
#[derive(Clone, Debug)]
pub struct CandidateList {
    // (distance key, id): eight bytes a candidate, compared as one integer.
    keys: Vec<u64>,
    // Apart from the keys, so that these keep the whole range of ids.
    expanded: Vec<bool>,
    capacity: usize,
    // Every candidate before it is expanded.
    cursor: usize,
}

impl CandidateList {
    /// An empty list that holds `capacity` candidates.
    pub fn new(capacity: usize) -> CandidateList {
        CandidateList {
            keys: Vec::with_capacity(capacity),
            expanded: Vec::with_capacity(capacity),
            capacity,
            cursor: 0,
        }
    }

    /// Empties the list for a search that holds `capacity` candidates; memory is kept.
    pub fn reset(&mut self, capacity: usize) {
        self.keys.clear();
        self.expanded.clear();
        self.keys.reserve(capacity);
        self.expanded.reserve(capacity);
        self.capacity = capacity;
        self.cursor = 0;
    }

    /// Inserts a candidate at its place by distance, then id; true where it is kept. NaN never is.
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
        let position = self.keys.partition_point(|&held| held < key);
        self.keys.insert(position, key);
        self.expanded.insert(position, false);
        self.cursor = self.cursor.min(position);
        true
    }

    /// The nearest candidate that was not expanded yet, now marked as expanded.
    #[inline]
    pub fn next_unexpanded(&mut self) -> Option<Neighbor> {
        while *self.expanded.get(self.cursor)? {
            self.cursor += 1;
        }
        self.expanded[self.cursor] = true;
        self.cursor += 1;
        Some(Neighbor::from_key(self.keys[self.cursor - 1]))
    }

    /// The candidate that [`CandidateList::next_unexpanded`] would return, left unexpanded: to prefetch it.
    #[inline]
    pub fn peek_unexpanded(&self) -> Option<Neighbor> {
        let ahead = self.expanded.get(self.cursor..)?.iter().position(|expanded| !expanded)?;
        Some(Neighbor::from_key(self.keys[self.cursor + ahead]))
    }

    /// The worst distance held; infinite while there is room. A tie may still win by its id.
    #[inline]
    pub fn threshold(&self) -> f32 {
        match self.keys.last() {
            Some(&worst) if self.keys.len() >= self.capacity => Neighbor::from_key(worst).distance,
            _ if self.capacity == 0 => f32::NEG_INFINITY,
            _ => f32::INFINITY,
        }
    }

    /// Candidates held.
    #[inline]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True where there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The candidates, nearest first, expanded or not.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Neighbor> + '_ {
        self.keys.iter().map(|&key| Neighbor::from_key(key))
    }
}

#[cfg(test)]
mod tests;
