//! Figure 14: longer vectors, made as the paper makes them, by writing each several times behind itself (section 5.4). Who is near to
//! whom stays as it was.

use bathyal_console::Failure;
use bathyal_index::families::graph::DEFAULT_MAX_DEGREE;
use bathyal_index::format::pages::{PAGE_BYTES, PageLayout};
use bathyal_kernels::Element;
use bathyal_kernels::quantize::Codec;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use serde::Serialize;

use super::measure::{Lab, RECALLS};
use super::rows::Row;
use super::subjects::Subject;
use crate::sets::Set;
use crate::workload::{Questions, make_folders};

/// Vectors and queries of a set that are copied, at most: an index is built for each length.
const COPIED: (usize, usize) = (25_000, 500);
/// Copies in a run that is only to show that everything works.
const QUICK: usize = 2;
/// What a card searches, a record at a time and group by group.
const SUBJECTS: [Subject; 2] = [Subject::GraphAlone, Subject::Cluster];

/// An index over vectors that are each there several times.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Copied {
    pub(super) copies: usize,
    /// Of a graph on disk: vector, links and what is beside them.
    pub(super) stored_bytes: usize,
    #[serde(flatten)]
    pub(super) row: Row,
}

impl Lab<'_> {
    pub(super) fn copy(&self, set: &Set) -> Result<Vec<Copied>, Failure> {
        let count = set.base.count().min(COPIED.0);
        let (base, queries) = (&set.base, &set.asked.queries);
        let first = VectorFile::from_rows(base.element(), base.dim(), rows(base, count, 1))?;
        let asked = queries.count().min(COPIED.1);
        let few = VectorFile::from_rows(queries.element(), queries.dim(), rows(queries, asked, 1))?;
        let k = self.arguments.k as usize;
        let exact = exact_neighbors(&first, &few, self.arguments.metric, k, None, &self.console.progress())?;
        let mut all = lengths(base.element(), base.dim());
        if self.arguments.quick {
            all.truncate(QUICK);
        }
        let mut copied = Vec::new();
        for copies in all {
            let of = |file: &VectorFile, count| {
                VectorFile::from_rows(file.element(), file.dim() * copies, rows(file, count, copies))
            };
            let set = Set {
                name: set.name.clone(),
                folder: set.folder.join(format!("{count}-x{copies}")),
                base: of(base, count)?,
                asked: Questions { queries: of(queries, asked)?, exact: exact.clone() },
            };
            make_folders(&set.folder, &self.arguments.output)?;
            for subject in SUBJECTS {
                let rows = self.search(&set, subject, &RECALLS[..1])?;
                let stored_bytes =
                    stored(base.element(), base.dim() * copies).map_or(0, |layout| layout.record_bytes());
                copied.extend(rows.into_iter().map(|row| Copied { copies, stored_bytes, row }));
            }
        }
        Ok(copied)
    }
}

/// The first rows of `file`, each so many times in a row.
fn rows(file: &VectorFile, count: usize, copies: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * copies * file.row_bytes());
    for row in 0..count {
        (0..copies).for_each(|_| bytes.extend_from_slice(file.row(row)));
    }
    bytes
}

fn stored(element: Element, dim: usize) -> Option<PageLayout> {
    PageLayout::new(element, u32::try_from(dim).ok()?, DEFAULT_MAX_DEGREE, PAGE_BYTES).ok()
}

/// Once, twice, four times and so on, until a record fills a page as well as it can, or codes would be product codes, which no card
/// scores.
fn lengths(element: Element, dim: usize) -> Vec<usize> {
    let fits = |copies: &usize| {
        let is_of_planes = dim * copies <= Codec::MOST_AXES_DIM;
        is_of_planes && stored(element, dim * copies).is_some_and(|layout| layout.records_per_page() > 0)
    };
    let most = (1..).take_while(fits).last().unwrap_or(1);
    let doubled = std::iter::successors(Some(1), |copies| Some(2 * copies));
    doubled.take_while(|copies| *copies < most).chain([most]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_grow_to_a_page() {
        // Beside the vector a record has 8 bytes and 64 links of 4.
        assert_eq!(lengths(Element::F32, 96), [1, 2, 4, 8, 9]);
        assert_eq!(lengths(Element::F32, 384), [1, 2]);
        assert_eq!(lengths(Element::F32, 960), [1]);
        // Of 1,536 dimensions codes are of bit planes yet.
        assert_eq!(lengths(Element::U8, 128), [1, 2, 4, 8, 12]);
        // What does not fit into a page is measured as it is.
        assert_eq!(lengths(Element::F32, 1536), [1]);
    }

    #[test]
    fn copies_follow_each_other() {
        let file = VectorFile::from_rows(Element::U8, 2, vec![1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(rows(&file, 2, 2), [1, 2, 1, 2, 3, 4, 3, 4]);
    }
}
