//! The set of ids that a query has visited. It is cleared for every query; it is small enough for the cache,
//! and never shrinks.

/// The content of a free slot. No vector has this id.
const EMPTY: u32 = u32::MAX;

/// An open-addressed hash set of ids below `u32::MAX`.
#[derive(Debug, Clone)]
pub(crate) struct VisitedSet {
    slots: Vec<u32>,
    used: usize,
}

impl VisitedSet {
    /// Creates a set that holds about `expected` ids before it grows.
    pub(crate) fn new(expected: usize) -> VisitedSet {
        VisitedSet { slots: vec![EMPTY; (expected * 2).next_power_of_two().max(64)], used: 0 }
    }

    /// Removes all ids.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(EMPTY);
        self.used = 0;
    }

    /// Returns true if `id` has been inserted.
    #[inline]
    pub(crate) fn contains(&self, id: u32) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = hash(id) & mask;
        loop {
            match self.slots[at] {
                slot if slot == id => return true,
                EMPTY => return false,
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Inserts `id`; returns true if it is new.
    #[inline]
    pub(crate) fn insert(&mut self, id: u32) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = hash(id) & mask;
        loop {
            let slot = self.slots[at];
            if slot == id {
                return false;
            }
            if slot == EMPTY {
                self.slots[at] = id;
                self.used += 1;
                if self.used * 2 > self.slots.len() {
                    self.grow();
                }
                return true;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![EMPTY; self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, larger);
        self.used = 0;
        for id in old.into_iter().filter(|id| *id != EMPTY) {
            self.insert(id);
        }
    }
}

#[inline]
fn hash(id: u32) -> usize {
    // Fibonacci hashing: the upper half of the product is well mixed.
    (u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_a_hash_set() {
        let mut set = VisitedSet::new(4);
        let mut model = std::collections::HashSet::new();
        for round in 0..3_u32 {
            set.clear();
            model.clear();
            for i in 0..5000_u32 {
                let id = i.wrapping_mul(2_654_435_761).wrapping_add(round) % 3000;
                assert_eq!(set.contains(id), model.contains(&id));
                assert_eq!(set.insert(id), model.insert(id));
            }
        }
    }
}
