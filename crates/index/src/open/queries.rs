//! Checks of queries and of vectors to insert.

use super::Index;
use super::stored::StoredIndex;
use crate::error::IndexError;
use crate::extent;
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::VectorFile;
use std::borrow::Cow;
use std::ops::Range;

impl Index {
    /// Refuses queries that do not fit the index, and values in `rows` for which no distance is defined.
    pub(super) fn check_queries(&self, queries: &VectorFile, rows: Range<usize>) -> Result<(), IndexError> {
        self.stored.check_vectors(queries, rows, ("queries", "query"))
    }

    /// Returns `vectors` in the element of this index: an index of bits also accepts bytes, with eight bits
    /// each. Methods of the index accept either. Callers that compare vectors with those of the index by
    /// other means need this conversion.
    pub fn in_own_element<'a>(&self, vectors: &'a VectorFile) -> Cow<'a, VectorFile> {
        self.stored.in_own_element(vectors)
    }
}

impl StoredIndex {
    /// Returns `vectors` in the element of this index ([`Index::in_own_element`]).
    fn in_own_element<'a>(&self, vectors: &'a VectorFile) -> Cow<'a, VectorFile> {
        let bits = if self.element() == Element::B1 { vectors.as_bits() } else { None };
        bits.map_or(Cow::Borrowed(vectors), Cow::Owned)
    }

    /// Refuses vectors that do not fit the index. `all` and `one` name them in errors.
    pub(super) fn check_vectors(
        &self,
        queries: &VectorFile,
        rows: Range<usize>,
        (all, one): (&str, &str),
    ) -> Result<(), IndexError> {
        let queries = &*self.in_own_element(queries);
        let refuse =
            |what: String| Err(IndexError::Parameter(format!("{}: {what}", queries.path().display())));
        if queries.dim() != self.dim() {
            return refuse(format!(
                "the {all} have {} dimensions, the index has {}",
                queries.dim(),
                self.dim()
            ));
        }
        if queries.element() != self.element() {
            return refuse(format!(
                "the {all} are {}, the index holds {}; convert them with `bathyal convert`",
                queries.element(),
                self.element()
            ));
        }
        if rows == (0..queries.count()) {
            queries.check_finite()?
        } else {
            queries.check_rows(rows.clone())?
        }
        extent::check_queries(queries, rows.clone(), self.metric(), self.manifest().stored_scale())?;
        if self.metric() == Metric::Cosine {
            let zero = |row: &usize| !extent::has_direction(self.element(), queries.row(*row));
            if let Some(row) = rows.clone().find(zero) {
                return refuse(format!(
                    "{one} {row} is all zeros, which has no direction and so no cosine distance"
                ));
            }
        }
        Ok(())
    }
}
