//! Figure 16: other queries. The paper makes a million queries from ten thousand, so that caches do not help.
//! Here nothing is cached, so only the distribution of the queries could matter, not their number.

use bathyal_console::Failure;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use serde::Serialize;

use super::measure::{GustannExperiment, RECALLS};
use super::rows::SearchRow;
use super::subjects::GustannSubject;
use super::walk::spread;
use crate::numbers::median;
use crate::sets::DataSet;
use crate::workload::QuerySet;

/// Most queries of each kind.
const QUERIES: usize = 1000;
/// Divisor of the number of queries for the kind `few`.
const FEW: usize = 10;
/// A perturbed query takes one in this many components from another query.
const PERTURBED: u64 = 10;
const SUBJECTS: [GustannSubject; 3] =
    [GustannSubject::GraphAlone, GustannSubject::Graph, GustannSubject::Cluster];

/// A kind of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum QueryKind {
    /// The set's queries.
    Own,
    /// The first tenth of them.
    Few,
    /// Vectors of the index.
    Held,
    /// The set's queries, with one component in ten from another query.
    Perturbed,
    /// Queries whose components all come from other queries: the same values without their correlation.
    Scrambled,
}

const KINDS: [QueryKind; 5] =
    [QueryKind::Own, QueryKind::Few, QueryKind::Held, QueryKind::Perturbed, QueryKind::Scrambled];

impl QueryKind {
    /// Returns the queries as bytes, row-major.
    fn rows(self, set: &DataSet) -> Vec<u8> {
        let queries = &set.query_set.queries;
        let count = queries.count().min(QUERIES);
        let first = |count: usize| (0..count).flat_map(|row| queries.row(row)).copied().collect();
        match self {
            QueryKind::Own => first(count),
            QueryKind::Few => first((count / FEW).max(1)),
            QueryKind::Held => {
                let ids = spread(set.base.count(), count);
                ids.iter().flat_map(|id| set.base.row(*id as usize)).copied().collect()
            }
            QueryKind::Perturbed => mixed(queries, count, PERTURBED),
            QueryKind::Scrambled => mixed(queries, count, 1),
        }
    }
}

/// Returns the first `count` rows of `file`, with one in `every` components from some other row.
fn mixed(file: &VectorFile, count: usize, every: u64) -> Vec<u8> {
    // Bits move in groups of eight.
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

/// A SplitMix64 generator.
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

/// An index searched at recall 0.9 with queries of one kind.
#[derive(Clone, Debug, Serialize)]
pub(super) struct QueryRow {
    pub(super) kind: QueryKind,
    pub(super) queries: usize,
    /// Median over queries of the distance to the nearest vector.
    pub(super) nearest: f64,
    #[serde(flatten)]
    pub(super) row: SearchRow,
}

impl GustannExperiment<'_> {
    /// Measures the indexes with each kind of queries.
    pub(super) fn measure_other_queries(&self, set: &DataSet) -> Result<Vec<QueryRow>, Failure> {
        let mut queried = Vec::new();
        for kind in KINDS {
            let queries = VectorFile::from_rows(set.base.element(), set.base.dim(), kind.rows(set))?;
            let (metric, k) = (self.arguments.metric, self.arguments.k as usize);
            let exact = exact_neighbors(&set.base, &queries, metric, k, None, &self.console.progress())?;
            let nearest = (0..exact.queries()).filter_map(|query| exact.distances(query)?.first().copied());
            let nearest = median(nearest.map(f64::from).collect());
            let count = queries.count();
            let set = DataSet {
                name: set.name.clone(),
                folder: set.folder.clone(),
                base: set.base.clone(),
                query_set: QuerySet { queries, exact },
            };
            for subject in SUBJECTS {
                let rows = self.search(&set, subject, &RECALLS[..1])?;
                queried.extend(rows.into_iter().map(|row| QueryRow { kind, queries: count, nearest, row }));
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
    fn mixed_components_come_from_other_queries() {
        // Each component of row r is r.
        let rows: Vec<u8> = (0..100_u8).flat_map(|row| [row; 200]).collect();
        let file = VectorFile::from_rows(Element::U8, 200, rows).unwrap();
        let kept = |every| {
            let mixed = mixed(&file, 50, every);
            assert_eq!(mixed.len(), 50 * 200);
            let is_from_own_row = |(at, value): (usize, &u8)| usize::from(*value) == at / 200;
            let from_own_row =
                mixed.iter().enumerate().filter(|component| is_from_own_row(*component)).count();
            from_own_row as f64 / mixed.len() as f64
        };
        assert!((0.88..0.93).contains(&kept(10)), "{}", kept(10));
        // The random row is sometimes the component's own.
        assert!(kept(1) < 0.02, "{}", kept(1));
    }

    #[test]
    fn components_of_two_bytes_move_whole() {
        let rows = [0x0102_u16, 0x0304, 0x0506].map(u16::to_le_bytes).concat();
        let file = VectorFile::from_rows(Element::F16, 1, rows).unwrap();
        let mixed = mixed(&file, 3, 1);
        let values: Vec<u16> =
            mixed.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
        assert!(values.iter().all(|value| [0x0102, 0x0304, 0x0506].contains(value)), "{values:x?}");
    }
}
