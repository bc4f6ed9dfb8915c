//! Figure 16: other queries. The paper makes a million of ten thousand, so that nothing is left in a cache; here nothing is cached, so
//! that it is where queries lie, not how many there are, that could matter.

use bathyal_console::Failure;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use serde::Serialize;

use super::measure::{Lab, RECALLS};
use super::rows::Row;
use super::subjects::Subject;
use super::walk::spread;
use crate::numbers::median;
use crate::sets::Set;
use crate::workload::Questions;

/// Queries of each kind, at most.
const QUERIES: usize = 1000;
/// Of the set's own, a smaller set.
const FEW: usize = 10;
/// Of a perturbed query's components, one in so many is that of another query.
const PERTURBED: u64 = 10;
const SUBJECTS: [Subject; 3] = [Subject::GraphAlone, Subject::Graph, Subject::Cluster];

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// The set's queries.
    Own,
    /// The first tenth of them.
    Few,
    /// Vectors of the index.
    Held,
    /// The set's, with a component in ten of another query.
    Perturbed,
    /// Every component of another query: the same numbers, and nothing of how they go together.
    Scrambled,
}

const KINDS: [Kind; 5] = [Kind::Own, Kind::Few, Kind::Held, Kind::Perturbed, Kind::Scrambled];

impl Kind {
    /// Its queries, as bytes.
    fn rows(self, set: &Set) -> Vec<u8> {
        let own = &set.asked.queries;
        let count = own.count().min(QUERIES);
        let first = |count: usize| (0..count).flat_map(|row| own.row(row)).copied().collect();
        match self {
            Kind::Own => first(count),
            Kind::Few => first((count / FEW).max(1)),
            Kind::Held => {
                let ids = spread(set.base.count(), count);
                ids.iter().flat_map(|id| set.base.row(*id as usize)).copied().collect()
            }
            Kind::Perturbed => mixed(own, count, PERTURBED),
            Kind::Scrambled => mixed(own, count, 1),
        }
    }
}

/// The first rows of `file`; of their components, one in `every` is that of some other row.
fn mixed(file: &VectorFile, count: usize, every: u64) -> Vec<u8> {
    // Of bits, eight at once.
    let size = file.element().row_bytes(1);
    let mut random = Random(0x6775_7374);
    let mut bytes = Vec::with_capacity(count * file.row_bytes());
    for row in 0..count {
        for component in 0..file.row_bytes() / size {
            let other = random.below(file.count() as u64) as usize;
            let from = if random.below(every) == 0 { other } else { row };
            bytes.extend_from_slice(&file.row(from)[component * size..][..size]);
        }
    }
    bytes
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(end)) >> 64) as u64
    }
}

/// An index that was asked for recall 0.9 by some queries.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Queried {
    pub(super) kind: Kind,
    pub(super) queries: usize,
    /// How far the nearest vector is from the middle query.
    pub(super) nearest: f64,
    #[serde(flatten)]
    pub(super) row: Row,
}

impl Lab<'_> {
    pub(super) fn ask_others(&self, set: &Set) -> Result<Vec<Queried>, Failure> {
        let mut queried = Vec::new();
        for kind in KINDS {
            let queries = VectorFile::from_rows(set.base.element(), set.base.dim(), kind.rows(set))?;
            let (metric, k) = (self.arguments.metric, self.arguments.k as usize);
            let exact = exact_neighbors(&set.base, &queries, metric, k, None, &self.console.progress())?;
            let nearest = (0..exact.queries()).filter_map(|query| exact.distances(query)?.first().copied());
            let nearest = median(nearest.map(f64::from).collect());
            let count = queries.count();
            let set = Set {
                name: set.name.clone(),
                folder: set.folder.clone(),
                base: set.base.clone(),
                asked: Questions { queries, exact },
            };
            for subject in SUBJECTS {
                let rows = self.search(&set, subject, &RECALLS[..1])?;
                queried.extend(rows.into_iter().map(|row| Queried { kind, queries: count, nearest, row }));
            }
        }
        Ok(queried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_kernels::Element;

    #[test]
    fn components_come_from_other_queries() {
        // Row r holds r in each component.
        let rows: Vec<u8> = (0..100_u8).flat_map(|row| [row; 200]).collect();
        let file = VectorFile::from_rows(Element::U8, 200, rows).unwrap();
        let kept = |every| {
            let mixed = mixed(&file, 50, every);
            assert_eq!(mixed.len(), 50 * 200);
            let of = |(at, value): (usize, &u8)| usize::from(*value) == at / 200;
            mixed.iter().enumerate().filter(|component| of(*component)).count() as f64 / mixed.len() as f64
        };
        assert!((0.88..0.93).contains(&kept(10)), "{}", kept(10));
        // By chance a component's own row is drawn.
        assert!(kept(1) < 0.02, "{}", kept(1));
    }

    #[test]
    fn a_component_is_moved_whole() {
        let rows = [0x0102_u16, 0x0304, 0x0506].map(u16::to_le_bytes).concat();
        let file = VectorFile::from_rows(Element::F16, 1, rows).unwrap();
        let mixed = mixed(&file, 3, 1);
        let values: Vec<u16> =
            mixed.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
        assert!(values.iter().all(|value| [0x0102, 0x0304, 0x0506].contains(value)), "{values:x?}");
    }
}
