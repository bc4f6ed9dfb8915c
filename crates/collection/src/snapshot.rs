//! Snapshots: search, count and read a collection as it was at a moment, while others write.

use crate::error::CollectionError;
use crate::filter::Filter;
use crate::ids::{Id, Ids};
use crate::schema::Schema;
use crate::search::{CollectionAuditRequest, FoundRows, SearchRequest};
use crate::state::{Cursor, FetchedRows, Located, State};
use arrow_array::RecordBatch;
use bathyal_index::{AuditReport, StoredVectors, WarmReport, with_control};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::Arc;

/// A collection as it was at a moment. Its segments are kept until the snapshot is dropped.
#[derive(Clone)]
pub struct Snapshot {
    state: Arc<State>,
}

/// The columns and vectors to fetch for each row.
#[derive(Debug, Clone, Default)]
pub struct Projection {
    /// Names of columns; `None` means all.
    pub columns: Option<Vec<String>>,
    /// Names of vector fields.
    pub vectors: Vec<String>,
}

/// A [`Projection`] resolved to numbers of columns and fields.
#[derive(Debug, Clone)]
struct ResolvedProjection {
    columns: Vec<usize>,
    fields: Vec<usize>,
}

/// Rows that were looked up by their ids.
#[derive(Debug, Clone)]
pub struct RowsById {
    /// For each row, the position of its id among the requested ids.
    pub places: Vec<u32>,
    /// Ids of the rows.
    pub ids: Ids,
    /// The requested columns.
    pub columns: RecordBatch,
    /// The vectors of each requested field.
    pub vectors: Vec<StoredVectors>,
}

/// Rows that were drawn at random.
#[derive(Debug, Clone)]
pub struct SampledRows {
    /// The rows.
    pub rows: FetchedRows,
    /// Number of rows from which they were drawn.
    pub of: u64,
}

/// Iterator over rows in the order of their ids.
pub struct Scan {
    state: Arc<State>,
    cursor: Cursor,
    resolved: ResolvedProjection,
}

impl Snapshot {
    pub(crate) fn new(state: Arc<State>) -> Snapshot {
        Snapshot { state }
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Returns the sequence number of the last log record in the snapshot. It grows with every batch that is
    /// written.
    pub fn sequence(&self) -> u64 {
        self.state.sequence
    }

    /// Returns the ids, fields of vectors and columns of its rows.
    pub fn schema(&self) -> &Schema {
        self.state.schema()
    }

    /// Answers all `queries`.
    ///
    /// # Errors
    /// As [`Collection::search`](crate::Collection::search).
    pub fn search(
        &self,
        queries: &VectorFile,
        request: &SearchRequest,
        control: Control<'_>,
    ) -> Result<FoundRows, CollectionError> {
        Ok(self.state.search(queries, request, control)?.found)
    }

    /// Answers `queries` by searches for some recalls, and exactly.
    ///
    /// # Errors
    /// As [`Collection::audit`](crate::Collection::audit).
    pub fn audit(
        &self,
        queries: &VectorFile,
        request: &CollectionAuditRequest,
        progress: &dyn Progress,
    ) -> Result<AuditReport, CollectionError> {
        with_control(progress, |control| self.state.audit(queries, request, control, progress))
    }

    /// Opens the indexes of all segments, and answers queries that are made from them.
    ///
    /// # Errors
    /// As [`Collection::search`](crate::Collection::search).
    pub fn warm(&self, request: &SearchRequest, control: Control<'_>) -> Result<WarmReport, CollectionError> {
        self.state.warm(request, control)
    }

    /// Returns the rows with these ids, in the order of `ids`; unknown ids are left out.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for ids of the wrong kind and for unknown columns or fields; damage and
    /// device errors; cancellation and deadline of `control`.
    pub fn get(
        &self,
        ids: &Ids,
        what: &Projection,
        control: Control<'_>,
    ) -> Result<RowsById, CollectionError> {
        let resolved = self.resolve(what)?;
        let found = self.state.find(ids)?;
        let places = (0..).zip(&found).filter(|(_, found)| found.is_some()).map(|(at, _)| at).collect();
        let rows: Vec<Located> = found.into_iter().flatten().collect();
        let FetchedRows { ids, columns, vectors } =
            self.state.fetch(&rows, &resolved.columns, &resolved.fields, control)?;
        Ok(RowsById { places, ids, columns, vectors })
    }

    /// Counts the rows, or those that match `filter`.
    ///
    /// # Errors
    /// [`CollectionError::Filter`] and [`CollectionError::Parameter`] for a filter that does not fit the
    /// schema; damage and device errors; cancellation and deadline of `control`.
    pub fn count(&self, filter: Option<&Filter>, control: Control<'_>) -> Result<u64, CollectionError> {
        let Some(filter) = filter else { return Ok(self.state.live()) };
        let sets = self.state.matching(Some(&filter.bind(self.state.schema())?), &control)?;
        Ok(sets.iter().map(|set| u64::from(set.count())).sum())
    }

    /// Returns the rows, or those that match `filter`, in the order of their ids, beginning after the id
    /// `after`.
    ///
    /// # Errors
    /// As [`Snapshot::count`].
    pub fn scan(
        &self,
        filter: Option<&Filter>,
        what: &Projection,
        after: Option<&Id>,
        control: Control<'_>,
    ) -> Result<Scan, CollectionError> {
        let resolved = self.resolve(what)?;
        let filter = filter.map(|filter| filter.bind(self.state.schema())).transpose()?;
        let selected = self.state.matching(filter.as_ref(), &control)?;
        let cursor = Cursor::new(&self.state, 0..self.state.parts() as u32, &selected, after)?;
        Ok(Scan { state: self.state.clone(), cursor, resolved })
    }

    /// Returns up to `count` of the rows that match `filter`, drawn at random.
    ///
    /// # Errors
    /// As [`Snapshot::count`].
    pub fn sample(
        &self,
        filter: Option<&Filter>,
        what: &Projection,
        (count, seed): (usize, u64),
        control: Control<'_>,
    ) -> Result<SampledRows, CollectionError> {
        let resolved = self.resolve(what)?;
        let filter = filter.map(|filter| filter.bind(self.state.schema())).transpose()?;
        let sets = self.state.matching(filter.as_ref(), &control)?;
        let of: usize = sets.iter().map(|set| set.count() as usize).sum();
        let mut random = StdRng::seed_from_u64(seed);
        let mut chosen = rand::seq::index::sample(&mut random, of, count.min(of)).into_vec();
        chosen.sort_unstable();
        let (mut rows, mut chosen, mut first) = (Vec::with_capacity(chosen.len()), chosen.as_slice(), 0);
        for (part, set) in (0_u32..).zip(&sets) {
            let end = first + set.count() as usize;
            let (here, others) = chosen.split_at(chosen.partition_point(|at| *at < end));
            let (mut members, mut next) = (set.iter(), first);
            for at in here {
                rows.extend(members.nth(at - next).map(|row| Located { part, row }));
                next = at + 1;
            }
            (chosen, first) = (others, end);
        }
        let rows = self.state.fetch(&rows, &resolved.columns, &resolved.fields, control)?;
        Ok(SampledRows { rows, of: of as u64 })
    }

    fn resolve(&self, what: &Projection) -> Result<ResolvedProjection, CollectionError> {
        let schema = self.state.schema();
        let columns = match &what.columns {
            None => (0..schema.columns.len()).collect(),
            Some(names) => names.iter().map(|name| schema.column(name)).collect::<Result<_, _>>()?,
        };
        let fields = what.vectors.iter().map(|name| schema.field(Some(name))).collect::<Result<_, _>>()?;
        Ok(ResolvedProjection { columns, fields })
    }
}

impl Scan {
    /// Returns up to `most` further rows; `None` at the end.
    ///
    /// # Errors
    /// Damage and device errors; cancellation and deadline of `control`.
    pub fn next(
        &mut self,
        most: usize,
        control: Control<'_>,
    ) -> Result<Option<FetchedRows>, CollectionError> {
        let rows = self.cursor.next(&self.state, most.max(1))?;
        if rows.is_empty() {
            return Ok(None);
        }
        self.state.fetch(&rows, &self.resolved.columns, &self.resolved.fields, control).map(Some)
    }
}
