//! Figure 14: longer vectors, made as in the paper by repeating each vector several times (section 5.4). The
//! nearest neighbours stay the same.

use bathyal_console::Failure;
use bathyal_index::families::graph::DEFAULT_MAX_DEGREE;
use bathyal_index::format::pages::{PAGE_BYTES, PageLayout};
use bathyal_kernels::Element;
use bathyal_kernels::quantize::Codec;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use serde::Serialize;

use super::measure::{GustannExperiment, RECALLS};
use super::rows::SearchRow;
use super::subjects::GustannSubject;
use crate::sets::DataSet;
use crate::workload::{QuerySet, make_folders};

/// Most vectors and queries of a set that are repeated: one index is built for each length.
const MOST_COPIED: (usize, usize) = (25_000, 500);
/// Lengths in a quick run, which only shows that everything works.
const QUICK: usize = 2;
/// Indexes that a card searches: a graph with one record at a time, and groups.
const SUBJECTS: [GustannSubject; 2] = [GustannSubject::GraphAlone, GustannSubject::Cluster];

/// An index over repeated vectors.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CopyRow {
    /// Repeats of each vector.
    pub(super) copies: usize,
    /// Bytes of a graph record on disk: vector, links and the rest.
    pub(super) stored_bytes: usize,
    #[serde(flatten)]
    pub(super) row: SearchRow,
}

impl GustannExperiment<'_> {
    /// Measures indexes over vectors of each length, made from the first vectors of `set`.
    pub(super) fn measure_copies(&self, set: &DataSet) -> Result<Vec<CopyRow>, Failure> {
        let count = set.base.count().min(MOST_COPIED.0);
        let (base, queries) = (&set.base, &set.query_set.queries);
        let first = VectorFile::from_rows(base.element(), base.dim(), rows(base, count, 1))?;
        let query_count = queries.count().min(MOST_COPIED.1);
        let few = VectorFile::from_rows(queries.element(), queries.dim(), rows(queries, query_count, 1))?;
        let k = self.arguments.k as usize;
        let exact = exact_neighbors(&first, &few, self.arguments.metric, k, None, &self.console.progress())?;
        let mut all = lengths(base.element(), base.dim());
        if self.arguments.quick {
            all.truncate(QUICK);
        }
        let mut copied = Vec::new();
        for copies in all {
            let repeated = |file: &VectorFile, count| {
                VectorFile::from_rows(file.element(), file.dim() * copies, rows(file, count, copies))
            };
            let set = DataSet {
                name: set.name.clone(),
                folder: set.folder.join(format!("{count}-x{copies}")),
                base: repeated(base, count)?,
                query_set: QuerySet { queries: repeated(queries, query_count)?, exact: exact.clone() },
            };
            make_folders(&set.folder, &self.arguments.output)?;
            for subject in SUBJECTS {
                let rows = self.search(&set, subject, &RECALLS[..1])?;
                let layout = record_layout(base.element(), base.dim() * copies);
                let stored_bytes = layout.map_or(0, |layout| layout.record_bytes());
                copied.extend(rows.into_iter().map(|row| CopyRow { copies, stored_bytes, row }));
            }
        }
        Ok(copied)
    }
}

/// Returns the first `count` rows of `file`, each repeated `copies` times.
fn rows(file: &VectorFile, count: usize, copies: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * copies * file.row_bytes());
    for row in 0..count {
        (0..copies).for_each(|_| bytes.extend_from_slice(file.row(row)));
    }
    bytes
}

fn record_layout(element: Element, dim: usize) -> Option<PageLayout> {
    PageLayout::new(element, u32::try_from(dim).ok()?, DEFAULT_MAX_DEGREE, PAGE_BYTES).ok()
}

/// Returns the numbers of copies: 1, 2, 4 and so on, and the largest for which a record fits a page and codes
/// are no product codes, which no card scores.
fn lengths(element: Element, dim: usize) -> Vec<usize> {
    let fits = |copies: &usize| {
        let has_plane_codes = dim * copies <= Codec::MOST_AXES_DIM;
        has_plane_codes
            && record_layout(element, dim * copies).is_some_and(|layout| layout.records_per_page() > 0)
    };
    let most = (1..).take_while(fits).last().unwrap_or(1);
    let doubled = std::iter::successors(Some(1), |copies| Some(2 * copies));
    doubled.take_while(|copies| *copies < most).chain([most]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_grow_up_to_a_page() {
        // Besides the vector, a record has 8 bytes and 64 links of 4 bytes.
        assert_eq!(lengths(Element::F32, 96), [1, 2, 4, 8, 9]);
        assert_eq!(lengths(Element::F32, 384), [1, 2]);
        assert_eq!(lengths(Element::F32, 960), [1]);
        // Up to 1,536 dimensions, codes are bit planes.
        assert_eq!(lengths(Element::U8, 128), [1, 2, 4, 8, 12]);
        // A vector that does not fit a page is measured once, without copies.
        assert_eq!(lengths(Element::F32, 1536), [1]);
    }

    #[test]
    fn copies_of_a_row_are_adjacent() {
        let file = VectorFile::from_rows(Element::U8, 2, vec![1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(rows(&file, 2, 2), [1, 2, 1, 2, 3, 4, 3, 4]);
    }
}
