//! The rows that a query requests from lists that it does not read whole, as one bit for each row.

use crate::format::runs::{SectionFault, each_run};

/// The number of an unused table entry. No list has this number.
const FREE: u32 = u32::MAX;
/// The position of the marks of a list that is read whole, which has no marks.
const WHOLE: u32 = u32::MAX;

/// A list in the hash table, and the position of its marks.
#[derive(Debug, Clone, Copy)]
struct HashedList {
    list: u32,
    marks: u32,
}

const UNUSED: HashedList = HashedList { list: FREE, marks: 0 };

/// A list with requested rows: its first place, and the position and number of the words with its marks.
#[derive(Debug, Clone, Copy)]
struct ListMarks {
    first: u32,
    marks: u32,
    words: u32,
}

/// The rows to which addresses in grouped lists refer, without those of lists that are read whole.
///
/// Lists are found by hash. A query meets some hundreds of lists, so the table stays in the first-level
/// cache.
#[derive(Debug, Clone)]
pub(super) struct WantedRows {
    table: Vec<HashedList>,
    used: usize,
    parts: Vec<ListMarks>,
    marks: Vec<u64>,
}

impl WantedRows {
    pub(super) fn new() -> WantedRows {
        WantedRows { table: vec![UNUSED; 256], used: 0, parts: Vec::new(), marks: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.table.fill(UNUSED);
        self.used = 0;
        self.parts.clear();
        self.marks.clear();
    }

    /// Marks a list as read whole.
    pub(super) fn read_whole(&mut self, list: u32) {
        self.find_or_insert(list, WHOLE);
    }

    /// Returns the position of the marks of `list`, and true if the list is new. A new list gets the position
    /// `marks`.
    #[inline(always)]
    fn find_or_insert(&mut self, list: u32, marks: u32) -> (u32, bool) {
        let mask = self.table.len() - 1;
        // Fibonacci hashing; the upper half is well mixed.
        let mut at = (u64::from(list).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let entry = self.table[at];
            if entry.list == list {
                return (entry.marks, false);
            }
            if entry.list == FREE {
                self.table[at] = HashedList { list, marks };
                self.used += 1;
                if self.used * 2 > self.table.len() {
                    self.grow();
                }
                return (marks, true);
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![UNUSED; self.table.len() * 2];
        let old = std::mem::replace(&mut self.table, larger);
        self.used = 0;
        for entry in old.into_iter().filter(|entry| entry.list != FREE) {
            self.find_or_insert(entry.list, entry.marks);
        }
    }

    /// Adds the `members` addresses of a section. List `i` has the places from `firsts[i]` to `firsts[i +
    /// 1]`.
    ///
    /// # Errors
    /// The fault in the section.
    pub(super) fn add(&mut self, section: &[u8], members: u32, firsts: &[u32]) -> Result<(), SectionFault> {
        each_run(section, members, firsts, |run| {
            let (start, is_new) = self.find_or_insert(run.list, self.marks.len() as u32);
            if start == WHOLE {
                return Ok(());
            }
            let words = run.stored.div_ceil(64);
            if is_new {
                self.marks.resize((start + words) as usize, 0);
                self.parts.push(ListMarks { first: run.first, marks: start, words });
            }
            run.mark(&mut self.marks[start as usize..(start + words) as usize])
        })
    }

    /// Calls `take` with the first place and the length of each series of consecutive rows, in the order of
    /// the file.
    pub(super) fn each_series(&mut self, mut take: impl FnMut(u32, u32)) {
        self.parts.sort_unstable_by_key(|part| part.first);
        for part in &self.parts {
            let words = &self.marks[part.marks as usize..(part.marks + part.words) as usize];
            for (first, word) in (part.first..).step_by(64).zip(words) {
                let mut left = *word;
                while left != 0 {
                    let start = left.trailing_zeros();
                    let count = (left >> start).trailing_ones();
                    take(first + start, count);
                    // The carry of the addition clears the series.
                    left &= left.wrapping_add(1 << start);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::runs::encode_section;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeSet;

    #[test]
    fn rows_of_lists_read_whole_are_excluded_and_none_is_repeated() {
        let mut random = StdRng::seed_from_u64(11);
        let mut wanted = WantedRows::new();
        for lists in [3_usize, 40, 900] {
            let mut firsts = vec![0_u32];
            (0..lists).for_each(|list| firsts.push(firsts[list] + random.random_range(0..150)));
            let end = firsts[lists];
            for _ in 0..20 {
                wanted.clear();
                let whole: BTreeSet<u32> = (0..3).map(|_| random.random_range(0..lists as u32)).collect();
                whole.iter().for_each(|list| wanted.read_whole(*list));
                let mut expected = BTreeSet::new();
                for _ in 0..6 {
                    let share = random.random_range(0.0..0.5);
                    let places: Vec<u32> = (0..end).filter(|_| random.random_bool(share)).collect();
                    let mut section = Vec::new();
                    encode_section(&places, &firsts, &mut section);
                    wanted.add(&section, places.len() as u32, &firsts).expect("a sound section");
                    let read = |place: &u32| {
                        whole
                            .iter()
                            .any(|list| (firsts[*list as usize]..firsts[*list as usize + 1]).contains(place))
                    };
                    expected.extend(places.into_iter().filter(|place| !read(place)));
                }
                let mut found = Vec::new();
                wanted.each_series(|first, count| found.extend(first..first + count));
                assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
