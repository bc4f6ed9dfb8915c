//! What a collection held at a moment: searched, counted and read while others write.

use crate::error::CollectionError;
use crate::filter::Filter;
use crate::ids::{Id, Ids};
use crate::search::{Found, Question};
use crate::state::{Cursor, Fetched, Located, State};
use arrow_array::RecordBatch;
use bathyal_index::StoredVectors;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::sync::Arc;

/// A collection as it was at a moment. Its segments stay for as long as it is kept.
#[derive(Clone)]
pub struct Snapshot {
    state: Arc<State>,
}

/// What is wanted of rows.
#[derive(Debug, Clone, Default)]
pub struct Fetch {
    /// Columns, by name; `None` means all.
    pub columns: Option<Vec<String>>,
    /// Fields of vectors, by name.
    pub vectors: Vec<String>,
}

/// The same as numbers.
#[derive(Debug, Clone)]
struct Wanted {
    columns: Vec<usize>,
    fields: Vec<usize>,
}

/// Rows, and what was wanted of them.
#[derive(Debug, Clone)]
pub struct Gotten {
    /// Of the ids that were asked for, the places of those that were found.
    pub places: Vec<u32>,
    /// Their ids.
    pub ids: Ids,
    /// The columns that were wanted.
    pub columns: RecordBatch,
    /// The vectors of each field that was wanted.
    pub vectors: Vec<StoredVectors>,
}

/// A walk over rows in the order of their ids.
pub struct Scan {
    state: Arc<State>,
    cursor: Cursor,
    wanted: Wanted,
}

impl Snapshot {
    pub(crate) fn new(state: Arc<State>) -> Snapshot {
        Snapshot { state }
    }

    /// The last record of the log that is in it: rises with every batch that is written.
    pub fn sequence(&self) -> u64 {
        self.state.sequence
    }

    /// Answers all `queries`.
    ///
    /// # Errors
    /// As [`Collection::search`](crate::Collection::search).
    pub fn search(
        &self,
        queries: &VectorFile,
        question: &Question,
        control: Control<'_>,
    ) -> Result<Found, CollectionError> {
        self.state.search(queries, question, control)
    }

    /// The rows with these ids, in their order; ids of which there is no row are left out.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for ids of the other kind, columns or fields that there are not; damage and device errors.
    pub fn get(&self, ids: &Ids, what: &Fetch, control: Control<'_>) -> Result<Gotten, CollectionError> {
        let wanted = self.wanted(what)?;
        let found = self.state.find(ids)?;
        let places = (0..).zip(&found).filter(|(_, found)| found.is_some()).map(|(at, _)| at).collect();
        let rows: Vec<Located> = found.into_iter().flatten().collect();
        let Fetched { ids, columns, vectors } =
            self.state.fetch(&rows, &wanted.columns, &wanted.fields, control)?;
        Ok(Gotten { places, ids, columns, vectors })
    }

    /// How many rows there are, or match.
    ///
    /// # Errors
    /// [`CollectionError::Filter`] and [`CollectionError::Parameter`] for a filter that does not fit; damage and device errors;
    /// cancellation and deadline of `control`.
    pub fn count(&self, filter: Option<&Filter>, control: Control<'_>) -> Result<u64, CollectionError> {
        let Some(filter) = filter else { return Ok(self.state.live()) };
        let sets = self.state.matching(Some(&filter.bind(self.state.schema())?), &control)?;
        Ok(sets.iter().map(|set| u64::from(set.count())).sum())
    }

    /// All rows, or those that match, in the order of their ids, from the first above `after` on.
    ///
    /// # Errors
    /// As [`Snapshot::count`].
    pub fn scan(
        &self,
        filter: Option<&Filter>,
        what: &Fetch,
        after: Option<&Id>,
        control: Control<'_>,
    ) -> Result<Scan, CollectionError> {
        let wanted = self.wanted(what)?;
        let filter = filter.map(|filter| filter.bind(self.state.schema())).transpose()?;
        let chosen = self.state.matching(filter.as_ref(), &control)?;
        let cursor = Cursor::over(&self.state, 0..self.state.parts() as u32, &chosen, after)?;
        Ok(Scan { state: self.state.clone(), cursor, wanted })
    }

    fn wanted(&self, what: &Fetch) -> Result<Wanted, CollectionError> {
        let schema = self.state.schema();
        let columns = match &what.columns {
            None => (0..schema.columns.len()).collect(),
            Some(names) => names.iter().map(|name| schema.column(name)).collect::<Result<_, _>>()?,
        };
        let fields = what.vectors.iter().map(|name| schema.field(Some(name))).collect::<Result<_, _>>()?;
        Ok(Wanted { columns, fields })
    }
}

impl Scan {
    /// Up to `most` further rows; `None` at the end.
    ///
    /// # Errors
    /// Damage and device errors; cancellation and deadline of `control`.
    pub fn next(&mut self, most: usize, control: Control<'_>) -> Result<Option<Fetched>, CollectionError> {
        let rows = self.cursor.next(&self.state, most.max(1))?;
        if rows.is_empty() {
            return Ok(None);
        }
        self.state.fetch(&rows, &self.wanted.columns, &self.wanted.fields, control).map(Some)
    }
}
