//! Bounded lists of neighbours whose order never depends on the order of arrival: by distance, then
//! by id.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A vector's id and its distance from the query. Ordered by distance, then id, totally.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Neighbor {
    /// The smaller, the nearer.
    pub distance: f32,
    /// Row number of the vector.
    pub id: u32,
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
        self.distance.total_cmp(&other.distance).then(self.id.cmp(&other.id))
    }
}

/// The `k` nearest of what was pushed, whatever the order of the pushes.
#[derive(Clone, Debug)]
pub struct TopK {
    // The worst one kept is at the top.
    heap: BinaryHeap<Neighbor>,
    k: usize,
}

impl TopK {
    /// An empty list that keeps `k` neighbours.
    pub fn new(k: usize) -> TopK {
        TopK { heap: BinaryHeap::new(), k }
    }

    /// Offers a neighbour; true where it is kept for now. NaN never is.
    #[inline]
    pub fn push(&mut self, id: u32, distance: f32) -> bool {
        if distance.is_nan() {
            return false;
        }
        let neighbor = Neighbor { distance, id };
        if self.heap.len() < self.k {
            self.heap.push(neighbor);
            return true;
        }
        match self.heap.peek_mut() {
            Some(mut worst) if neighbor < *worst => {
                *worst = neighbor;
                true
            }
            _ => false,
        }
    }

    /// The worst distance kept; infinite while there is room.
    #[inline]
    pub fn threshold(&self) -> f32 {
        match self.heap.peek() {
            Some(worst) if self.heap.len() >= self.k => worst.distance,
            _ if self.k == 0 => f32::NEG_INFINITY,
            _ => f32::INFINITY,
        }
    }

    /// Neighbours held.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True where nothing was kept.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The neighbours, nearest first.
    pub fn into_sorted(self) -> Vec<Neighbor> {
        self.heap.into_sorted_vec()
    }

    /// Appends the neighbours to `out`, nearest first, and empties the list for its next use.
    pub fn drain_sorted(&mut self, out: &mut Vec<Neighbor>) {
        let start = out.len();
        out.extend(self.heap.drain());
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

/// Maps a distance and an id to an integer of the same order.
#[inline]
fn key_of(neighbor: Neighbor) -> u64 {
    // Adding zero turns -0.0 into 0.0, so that the two tie and the id decides.
    let bits = (neighbor.distance + 0.0).to_bits();
    let ordered = bits ^ (((bits as i32 >> 31) as u32) | 0x8000_0000);
    (u64::from(ordered) << 32) | u64::from(neighbor.id)
}

/// The inverse of [`key_of`].
#[inline]
fn neighbor_of(key: u64) -> Neighbor {
    let ordered = (key >> 32) as u32;
    let mask = if ordered & 0x8000_0000 != 0 { 0x8000_0000 } else { 0xffff_ffff };
    Neighbor { distance: f32::from_bits(ordered ^ mask), id: key as u32 }
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
        let key = key_of(neighbor);
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
        Some(neighbor_of(self.keys[self.cursor - 1]))
    }

    /// The worst distance held; infinite while there is room.
    #[inline]
    pub fn threshold(&self) -> f32 {
        match self.keys.last() {
            Some(&worst) if self.keys.len() >= self.capacity => neighbor_of(worst).distance,
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
        self.keys.iter().map(|&key| neighbor_of(key))
    }
}
