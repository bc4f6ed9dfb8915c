//! Stored vectors by their ids, in every family and on every tier.

use super::Index;
use super::control::check_control;
use super::loaded::Loaded;
use super::pool::Pool;
use crate::allocate::{try_with_capacity, try_zeros};
use crate::error::IndexError;
use crate::family::rows::StoredRows;
use crate::form::Form;
use crate::form::inserted::IndexRow;
use crate::query::changes::Changes;
use bathyal_kernels::Element;
use bathyal_tier::{Control, Cx, Engine, EngineOptions, Span};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Units that one batch of reads contains.
const UNITS_AT_ONCE: u64 = 16;
/// The most such batches in flight at once.
const READS_UNDER_WAY: u64 = 4;
/// Up to so many units are read by a spare engine of lone queries: opening one takes longer than reading so
/// few.
const FEW_UNITS: usize = 256;
/// The most vectors whose units are looked up one by one while the table of all units is not loaded.
const FEW_LOCATED: usize = 64;
/// The table of all units may take this fraction (1/16) of the memory for searches.
const LOCATED_SHARE: u64 = 16;
/// The entry of a vector that was not found in any unit.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Vectors of an index, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredVectors {
    /// Type of the components: that of the given vectors.
    pub element: Element,
    /// Dimensions.
    pub dim: usize,
    /// `vectors x dim` elements, row-major, little-endian.
    pub bytes: Vec<u8>,
}

/// The vectors of a request by ids, filled in as they are found.
struct RequestedVectors {
    form: Form,
    /// The ids in ascending order, each with its row in `rows`.
    ids: Vec<(u32, u32)>,
    found: Vec<bool>,
    rows: Vec<u8>,
    /// One vector, decoded.
    values: Vec<f32>,
}

impl RequestedVectors {
    fn new(form: Form, dim: usize, ids: &[u32]) -> Result<RequestedVectors, IndexError> {
        let mut sorted = try_with_capacity("the ids that are asked for", ids.len())?;
        sorted.extend(ids.iter().copied().zip(0..));
        sorted.sort_unstable();
        let bytes = ids.len().saturating_mul(form.given().row_bytes(dim));
        Ok(RequestedVectors {
            form,
            found: try_zeros("the ids that are asked for", ids.len())?,
            ids: sorted,
            rows: try_zeros("the vectors that are asked for", bytes)?,
            values: Vec::new(),
        })
    }

    /// Copies the vector `id` to its rows, if it is requested and not found yet.
    fn fill(&mut self, id: u32, row: IndexRow<'_>) {
        let first = self.ids.partition_point(|requested| requested.0 < id);
        let same = self.ids[first..].partition_point(|requested| requested.0 == id);
        if same == 0 || self.found[first] {
            return;
        }
        self.found[first..first + same].fill(true);
        let mut given = Vec::new();
        let row = self.form.given_row(row, &mut self.values, &mut given);
        for (_, at) in &self.ids[first..first + same] {
            let start = *at as usize * row.len();
            self.rows[start..start + row.len()].copy_from_slice(row);
        }
    }

    /// Returns the ids that were not found, in ascending order.
    fn missing(&self) -> impl Iterator<Item = u32> {
        self.ids.iter().zip(&self.found).filter(|(_, found)| !**found).map(|((id, _), _)| *id)
    }
}

impl Index {
    /// Returns the vectors with these ids, in the order of `ids`. An id may occur more than once.
    ///
    /// The vectors have the element in which they were given. An index with a smaller stored form
    /// (`store_as`) returns f32 with the precision of the stored form. Vectors of f32 under cosine are
    /// returned with length 1, as they are stored.
    ///
    /// If vectors are not in the order of their ids, an index of family `cluster` has a file with the
    /// position of each. For few ids, parts of that file are read. For more, it is read once as a whole, if
    /// the memory budget allows 4 bytes per vector. In other families, and in indexes without that file, the
    /// first call reads the whole index once, and the positions are kept if the budget allows it. If it does
    /// not, each call reads the whole index: request many ids at once then. The memory of reading is bounded;
    /// that of the result is not.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for an id that no vector has, or whose vector was deleted; damage and device
    /// errors; cancellation and deadline of `control`.
    pub fn vectors(&self, ids: &[u32], control: Control<'_>) -> Result<StoredVectors, IndexError> {
        self.check_process()?;
        let form = self.stored.form()?;
        let mut requested = RequestedVectors::new(form, self.dim(), ids)?;
        let changes = self.changing.as_ref().map(|changing| changing.now());
        let rows = self.loaded.opened().rows();
        if self.loaded.opened().in_place().is_some() {
            self.walk(&*rows, 0..rows.units(), control, |_, id, row| {
                requested.fill(id, IndexRow::Stored(row));
                Ok(())
            })?;
            if let Some(id) = requested.missing().next() {
                return Err(self.no_vector(id));
            }
        } else {
            self.fill_from_fixed(&*rows, changes.as_ref(), &mut requested, control)?;
        }
        Ok(StoredVectors { element: form.given(), dim: self.dim(), bytes: requested.rows })
    }

    /// Returns the ids of its vectors, as ascending ranges.
    ///
    /// # Errors
    /// As [`Index::vectors`] for an index that is changed in place, which is read for this. Other indexes
    /// return no error.
    pub fn ids(&self, control: Control<'_>) -> Result<Vec<Range<u32>>, IndexError> {
        let Some(changing) = &self.changing else {
            if self.loaded.opened().in_place().is_none() {
                return Ok(std::iter::once(0..self.stored.vectors() as u32).collect());
            }
            self.check_process()?;
            let (rows, mut ids) = (self.loaded.opened().rows(), Vec::new());
            self.walk(&*rows, 0..rows.units(), control, |_, id, _| {
                ids.push(id);
                Ok(())
            })?;
            ids.sort_unstable();
            return Ok(ranges(ids.into_iter()));
        };
        let changes = changing.now();
        Ok(ranges((0..changes.next()).filter(|id| changes.has(*id))))
    }

    /// Fills in vectors of an index whose files do not change after the build.
    fn fill_from_fixed(
        &self,
        rows: &dyn StoredRows,
        changes: Option<&Arc<Changes>>,
        requested: &mut RequestedVectors,
        control: Control<'_>,
    ) -> Result<(), IndexError> {
        // Inserted vectors are in memory.
        let mut places = try_with_capacity("the ids that are asked for", requested.ids.len())?;
        for at in 0..requested.ids.len() {
            let id = requested.ids[at].0;
            if let Some(row) = changes.and_then(|changes| changes.inserted_row(id)) {
                requested.fill(id, IndexRow::Inserted(row));
                continue;
            }
            let place = changes.map_or_else(
                || (u64::from(id) < self.stored.vectors()).then_some(id),
                |changes| changes.place(id),
            );
            places.push(place.ok_or_else(|| self.no_vector(id))?);
        }
        if places.is_empty() {
            return Ok(());
        }
        match self.units_of(rows, places, control)? {
            Some(units) => self.walk(rows, units.into_iter(), control, |_, id, row| {
                requested.fill(id, IndexRow::Stored(row));
                Ok(())
            })?,
            None => self.locate(rows, requested, control)?,
        }
        match requested.missing().next() {
            Some(id) => Err(rows.set().damaged(format!("vector {id}"), "it is not where it should be")),
            None => Ok(()),
        }
    }

    /// Returns the units of the vectors at these places of the build, in ascending order; `None` if only
    /// reading all vectors can find them.
    fn units_of(
        &self,
        rows: &dyn StoredRows,
        mut places: Vec<u32>,
        control: Control<'_>,
    ) -> Result<Option<Vec<u32>>, IndexError> {
        let ordered = rows.unit_of(0).is_some();
        if !ordered && places.len() > FEW_LOCATED && self.may_locate() {
            self.locate_all(control)?;
        }
        let table = self.known_places.located();
        let located = |place: u32| table?.get(place as usize).copied();
        let positions = self.loaded.opened().positions();
        let mut units: Vec<u32> = match positions.filter(|_| !ordered && table.is_none()) {
            Some(positions) => {
                places.sort_unstable();
                places.dedup();
                positions.pages_of(&places, self.loaded.is_far())?
            }
            None if !ordered && table.is_none() => return Ok(None),
            None => places
                .iter()
                .map(|place| rows.unit_of(*place).or_else(|| located(*place)).unwrap_or(NOWHERE))
                .collect(),
        };
        units.retain(|unit| *unit < rows.units());
        units.sort_unstable();
        units.dedup();
        Ok(Some(units))
    }

    /// Loads the table of the unit of each vector, if the index has a file of positions.
    pub(super) fn locate_all(&self, control: Control<'_>) -> Result<(), IndexError> {
        let located = self.known_places.located().is_some();
        if let Some(positions) = self.loaded.opened().positions().filter(|_| !located) {
            self.known_places.set_located(positions.pages(&|| check_control(control))?);
        }
        Ok(())
    }

    /// Reads all vectors once, fills in the requested ones, and keeps the unit of each vector if there is
    /// memory for it.
    fn locate(
        &self,
        rows: &dyn StoredRows,
        requested: &mut RequestedVectors,
        control: Control<'_>,
    ) -> Result<(), IndexError> {
        let vectors = self.stored.vectors() as usize;
        let keeps = self.may_locate();
        let mut units: Vec<u32> =
            try_with_capacity("the positions of the vectors", if keeps { vectors } else { 0 })?;
        units.resize(if keeps { vectors } else { 0 }, NOWHERE);
        self.walk(rows, 0..rows.units(), control, |unit, id, row| {
            rows.set().check_id(id, || format!("unit {unit}"))?;
            if let Some(unit_of_id) = units.get_mut(id as usize) {
                *unit_of_id = unit;
            }
            requested.fill(id, IndexRow::Stored(row));
            Ok(())
        })?;
        if keeps {
            self.known_places.set_located(units);
        }
        Ok(())
    }

    /// Reads `units`, and calls `each` with the unit, the id and the stored bytes of each of their vectors.
    pub(super) fn walk(
        &self,
        rows: &dyn StoredRows,
        units: impl Iterator<Item = u32>,
        control: Control<'_>,
        each: impl FnMut(u32, u32, &[u8]) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let at_once = self.loaded.units_at_once();
        let width = (self.loaded.walk_frames() / (2 * at_once)).clamp(1, READS_UNDER_WAY);
        if units.size_hint().1.is_some_and(|units| units <= FEW_UNITS) {
            let (pool, client) = (Pool::of_this_process(), &self.contexts.here().client);
            if let Some(mut borrowed) = pool.borrow_engine_to_read(client)? {
                let walked = self.loaded.walk_on(&mut borrowed.engine, width, rows, units, control, each);
                pool.return_engine(client, borrowed);
                return walked;
            }
        }
        let engine = self.loaded.engine();
        let buffers = 2 * at_once * width * engine.frame_bytes as u64;
        let options = EngineOptions {
            depth: engine.depth.min((at_once * width) as u32),
            buffer_budget_bytes: buffers.min(engine.buffer_budget_bytes),
            ..engine
        };
        let mut engine = Engine::new(self.loaded.tier().clone(), options)?;
        self.loaded.walk_on(&mut engine, width, rows, units, control, each)
    }

    /// Returns true if the memory budget has space for the unit of each vector.
    pub(super) fn may_locate(&self) -> bool {
        self.plan.can_spare(self.stored.vectors() * size_of::<u32>() as u64, 0, LOCATED_SHARE)
    }

    fn no_vector(&self, id: u32) -> IndexError {
        let end = self.next_id();
        let why = if id < end { "it was deleted".into() } else { format!("ids are below {end}") };
        self.stored.refusal(format!("there is no vector {id}: {why}"))
    }
}

impl Loaded {
    /// Reads `units` with `engine`, which keeps `width` batches of reads in flight.
    fn walk_on(
        &self,
        engine: &mut Engine,
        width: u64,
        rows: &dyn StoredRows,
        units: impl Iterator<Item = u32>,
        control: Control<'_>,
        each: impl FnMut(u32, u32, &[u8]) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let at_once = self.units_at_once();
        let (each, failure) = (RefCell::new(each), RefCell::new(None));
        let mut units = units.filter(|unit| rows.span(*unit).len > 0);
        let next = |cx: &Cx| {
            let block: Vec<u32> = match *failure.borrow() {
                Some(_) => Vec::new(),
                None => units.by_ref().take(at_once as usize).collect(),
            };
            let (cx, each) = (cx.clone(), &each);
            (!block.is_empty()).then_some(async move { read_units(&cx, rows, &block, each).await })
        };
        let sink = |outcome: Result<(), IndexError>| {
            if let Err(error) = outcome {
                failure.borrow_mut().get_or_insert(error);
            }
        };
        let outcome = engine.run(width as usize, next, sink, control);
        if control.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Err(IndexError::Cancelled);
        }
        match failure.into_inner() {
            Some(error) => Err(error),
            None => Ok(outcome?),
        }
    }

    /// Returns the number of read buffers of a walk.
    fn walk_frames(&self) -> u64 {
        (self.engine().buffer_budget_bytes / self.engine().frame_bytes.max(1) as u64).max(1)
    }

    /// Returns the number of units that a walk reads in one batch.
    pub(super) fn units_at_once(&self) -> u64 {
        // Half of the buffers: the others are for reads in flight.
        (self.walk_frames() / 2).clamp(1, UNITS_AT_ONCE)
    }
}

/// Reads units in one batch, and calls `each` with their vectors.
async fn read_units(
    cx: &Cx,
    rows: &dyn StoredRows,
    units: &[u32],
    each: &RefCell<impl FnMut(u32, u32, &[u8]) -> Result<(), IndexError>>,
) -> Result<(), IndexError> {
    let call_each = |unit: u32, id: u32, row: &[u8]| (each.borrow_mut())(unit, id, row);
    if rows.moving(units[0]).is_some() {
        for unit in units {
            let Some(mut moving) = rows.moving(*unit) else { continue };
            loop {
                let span = [moving.span()];
                let batch = cx.read(&span).await.map_err(|source| rows.set().failed(source))?;
                if moving.arrived(batch.bytes(0), &mut |id, row| call_each(*unit, id, row))? {
                    break;
                }
            }
        }
        return Ok(());
    }
    let spans: Vec<Span> = units.iter().map(|unit| rows.span(*unit)).collect();
    let batch = cx.read(&spans).await.map_err(|source| rows.set().failed(source))?;
    for (at, unit) in units.iter().enumerate() {
        rows.read(*unit, batch.bytes(at), &mut |id, row| call_each(*unit, id, row))?;
    }
    Ok(())
}

/// Joins ascending numbers to ranges.
fn ranges(numbers: impl Iterator<Item = u32>) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            Some(last) if last.end > number => {}
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}
