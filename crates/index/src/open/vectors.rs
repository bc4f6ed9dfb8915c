//! Vectors back by their ids, whatever the family and the tier.

use super::Index;
use super::pool::Pool;
use crate::allocate::{try_with_capacity, try_zeros};
use crate::error::IndexError;
use crate::family::rows::Rows;
use crate::form::Form;
use crate::form::inserted::IndexRow;
use crate::query::FAR_LATENCY_NS;
use crate::query::changes::Changes;
use bathyal_kernels::Element;
use bathyal_tier::{Control, Cx, Engine, EngineOptions, Span};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Units that are read together, and how many such reads are under way at once.
const UNITS_AT_ONCE: u64 = 16;
const READS_UNDER_WAY: u64 = 4;
/// Units that are read by an engine that was kept for lone queries: opening one takes longer than reading so few.
const FEW_UNITS: usize = 256;
/// Vectors whose places are looked up one by one where it is not known yet where all lie.
const FEW_LOCATED: usize = 64;
/// The part of the memory for searches that knowing where each vector lies may take.
const LOCATED_SHARE: u64 = 16;
/// The unit of a vector that none was found for.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Vectors that an index holds, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredVectors {
    /// Type of the components: that of the vectors as they were given.
    pub element: Element,
    /// Dimensions.
    pub dim: usize,
    /// `vectors x dim` elements, little-endian.
    pub bytes: Vec<u8>,
}

/// The vectors that are wanted, as they are found.
struct Wanted {
    form: Form,
    /// Ids, rising, and where among the answers each belongs.
    ids: Vec<(u32, u32)>,
    found: Vec<bool>,
    answers: Vec<u8>,
    /// One vector, decoded.
    values: Vec<f32>,
}

impl Wanted {
    fn new(form: Form, dim: usize, ids: &[u32]) -> Result<Wanted, IndexError> {
        let mut wanted = try_with_capacity("the ids that are asked for", ids.len())?;
        wanted.extend(ids.iter().copied().zip(0..));
        wanted.sort_unstable();
        let bytes = ids.len().saturating_mul(form.given().row_bytes(dim));
        Ok(Wanted {
            form,
            found: try_zeros("the ids that are asked for", ids.len())?,
            ids: wanted,
            answers: try_zeros("the vectors that are asked for", bytes)?,
            values: Vec::new(),
        })
    }

    /// Takes the vector `id`, if it is wanted.
    fn take(&mut self, id: u32, row: IndexRow<'_>) {
        let first = self.ids.partition_point(|wanted| wanted.0 < id);
        let same = self.ids[first..].partition_point(|wanted| wanted.0 == id);
        if same == 0 || self.found[first] {
            return;
        }
        self.found[first..first + same].fill(true);
        let mut given = Vec::new();
        let row = self.form.given_row(row, &mut self.values, &mut given);
        for (_, at) in &self.ids[first..first + same] {
            let start = *at as usize * row.len();
            self.answers[start..start + row.len()].copy_from_slice(row);
        }
    }

    /// The ids that were not found, rising.
    fn missing(&self) -> impl Iterator<Item = u32> {
        self.ids.iter().zip(&self.found).filter(|(_, found)| !**found).map(|((id, _), _)| *id)
    }
}

impl Index {
    /// The vectors of these ids, in their order; an id may be there more than once.
    ///
    /// They come as they were given: of an index that stores something smaller (`store_as`) as f32, with what the smaller element
    /// has left of them, and those of f32 under cosine with length 1, as which they are stored.
    ///
    /// Where vectors do not lie in the order of their ids, a file of family `cluster` says where each lies. It is read where that is
    /// needed for few ids, and once and whole for more, if the memory budget allows 4 bytes a vector. Other families, and indexes
    /// that were built without that file, are read once from beginning to end, the first time; then the index knows where each lies,
    /// if its budget allows that. Where it does not, each call reads all: ask for many at once then. What is read at a time is
    /// bounded; the answer is the caller's.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for an id that no vector has, or one that was deleted; damage and device errors; cancellation and
    /// deadline of `control`.
    pub fn vectors(&self, ids: &[u32], control: Control<'_>) -> Result<StoredVectors, IndexError> {
        self.check_process()?;
        let form = Form::from_manifest(&self.manifest);
        let form = form.map_err(|reason| IndexError::damaged(&self.directory, "the manifest", reason))?;
        let mut wanted = Wanted::new(form, self.dim(), ids)?;
        let changes = self.changing.as_ref().map(|changing| changing.now());
        let rows = self.opened.rows();
        if self.opened.in_place().is_some() {
            self.walk(&*rows, 0..rows.units(), control, |_, id, row| {
                wanted.take(id, IndexRow::Stored(row));
                Ok(())
            })?;
            if let Some(id) = wanted.missing().next() {
                return Err(self.no_vector(id));
            }
        } else {
            self.take_fixed(&*rows, changes.as_ref(), &mut wanted, control)?;
        }
        Ok(StoredVectors { element: form.given(), dim: self.dim(), bytes: wanted.answers })
    }

    /// The ids that its vectors have: ranges that rise.
    ///
    /// # Errors
    /// As [`Index::vectors`], of an index that is changed where it lies, which is read for this; of no other.
    pub fn ids(&self, control: Control<'_>) -> Result<Vec<Range<u32>>, IndexError> {
        let Some(changing) = &self.changing else {
            if self.opened.in_place().is_none() {
                return Ok(std::iter::once(0..self.manifest.vectors as u32).collect());
            }
            self.check_process()?;
            let (rows, mut ids) = (self.opened.rows(), Vec::new());
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

    /// Takes vectors of an index whose files stay as they were built.
    fn take_fixed(
        &self,
        rows: &dyn Rows,
        changes: Option<&Arc<Changes>>,
        wanted: &mut Wanted,
        control: Control<'_>,
    ) -> Result<(), IndexError> {
        // Those that were inserted are in memory.
        let mut places = try_with_capacity("the ids that are asked for", wanted.ids.len())?;
        for at in 0..wanted.ids.len() {
            let id = wanted.ids[at].0;
            if let Some(row) = changes.and_then(|changes| changes.inserted_row(id)) {
                wanted.take(id, IndexRow::Inserted(row));
                continue;
            }
            let place = changes.map_or_else(
                || (u64::from(id) < self.manifest.vectors).then_some(id),
                |changes| changes.place(id),
            );
            places.push(place.ok_or_else(|| self.no_vector(id))?);
        }
        if places.is_empty() {
            return Ok(());
        }
        match self.units_of(rows, places, control)? {
            Some(units) => self.walk(rows, units.into_iter(), control, |_, id, row| {
                wanted.take(id, IndexRow::Stored(row));
                Ok(())
            })?,
            None => self.locate(rows, wanted, control)?,
        }
        match wanted.missing().next() {
            Some(id) => Err(rows.set().damaged(format!("vector {id}"), "it is not where it should be")),
            None => Ok(()),
        }
    }

    /// The units of the vectors that were built at these places, rising; `None` where nothing but the vectors says it.
    fn units_of(
        &self,
        rows: &dyn Rows,
        mut places: Vec<u32>,
        control: Control<'_>,
    ) -> Result<Option<Vec<u32>>, IndexError> {
        let ordered = rows.unit_of(0).is_some();
        if !ordered && places.len() > FEW_LOCATED && self.may_locate() {
            self.locate_all(control)?;
        }
        let known = self.located();
        let located = |place: u32| known?.get(place as usize).copied();
        let mut units: Vec<u32> = match self.opened.positions().filter(|_| !ordered && known.is_none()) {
            Some(positions) => {
                places.sort_unstable();
                places.dedup();
                positions.pages_of(&places, self.is_far())?
            }
            None if !ordered && known.is_none() => return Ok(None),
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

    /// Whether each read takes its time, as those of a store far away do.
    pub(super) fn is_far(&self) -> bool {
        self.profile.latency_ns >= FAR_LATENCY_NS
    }

    /// Notes where all vectors lie, of an index that has a file of that.
    pub(super) fn locate_all(&self, control: Control<'_>) -> Result<(), IndexError> {
        if let Some(positions) = self.opened.positions().filter(|_| self.located().is_none()) {
            self.set_located(positions.pages(&|| go_on(control))?);
        }
        Ok(())
    }

    /// Reads all vectors once, and notes where each lies if there is memory for it.
    fn locate(&self, rows: &dyn Rows, wanted: &mut Wanted, control: Control<'_>) -> Result<(), IndexError> {
        let vectors = self.manifest.vectors as usize;
        let kept = self.may_locate();
        let mut units: Vec<u32> = try_with_capacity("where vectors lie", if kept { vectors } else { 0 })?;
        units.resize(if kept { vectors } else { 0 }, NOWHERE);
        self.walk(rows, 0..rows.units(), control, |unit, id, row| {
            rows.set().check_id(id, || format!("unit {unit}"))?;
            if let Some(of) = units.get_mut(id as usize) {
                *of = unit;
            }
            wanted.take(id, IndexRow::Stored(row));
            Ok(())
        })?;
        if kept {
            self.set_located(units);
        }
        Ok(())
    }

    /// Tells `each` of the vectors (unit, id, as it is stored) of `units`.
    pub(super) fn walk(
        &self,
        rows: &dyn Rows,
        units: impl Iterator<Item = u32>,
        control: Control<'_>,
        each: impl FnMut(u32, u32, &[u8]) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let at_once = self.units_at_once();
        let width = (self.walk_frames() / (2 * at_once)).clamp(1, READS_UNDER_WAY);
        if units.size_hint().1.is_some_and(|units| units <= FEW_UNITS) {
            let pool = Pool::of_this_process();
            if let Some(mut lent) = pool.lend_to_read(&self.tenant)? {
                let walked = self.walk_on(&mut lent.engine, width, rows, units, control, each);
                pool.take_back(&self.tenant, lent);
                return walked;
            }
        }
        let buffers = 2 * at_once * width * self.engine.frame_bytes as u64;
        let options = EngineOptions {
            depth: self.engine.depth.min((at_once * width) as u32),
            buffer_budget_bytes: buffers.min(self.engine.buffer_budget_bytes),
            ..self.engine
        };
        let mut engine = Engine::new(self.tier.clone(), options)?;
        self.walk_on(&mut engine, width, rows, units, control, each)
    }

    /// The same by this engine, which does `width` reads at once.
    fn walk_on(
        &self,
        engine: &mut Engine,
        width: u64,
        rows: &dyn Rows,
        units: impl Iterator<Item = u32>,
        control: Control<'_>,
        each: impl FnMut(u32, u32, &[u8]) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let at_once = self.units_at_once();
        let (each, failure) = (RefCell::new(each), RefCell::new(None));
        let mut units = units.filter(|unit| rows.span(*unit).len > 0);
        let next = |cx: &Cx| {
            let some: Vec<u32> = match *failure.borrow() {
                Some(_) => Vec::new(),
                None => units.by_ref().take(at_once as usize).collect(),
            };
            let (cx, each) = (cx.clone(), &each);
            (!some.is_empty()).then_some(async move { read_units(&cx, rows, &some, each).await })
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

    /// Buffers that a walk has.
    fn walk_frames(&self) -> u64 {
        (self.engine.buffer_budget_bytes / self.engine.frame_bytes.max(1) as u64).max(1)
    }

    /// Units that a walk reads together.
    pub(super) fn units_at_once(&self) -> u64 {
        // As many buffers again are on their way.
        (self.walk_frames() / 2).clamp(1, UNITS_AT_ONCE)
    }

    /// Whether a budget of memory leaves room for knowing where each vector lies.
    pub(super) fn may_locate(&self) -> bool {
        let bytes = self.manifest.vectors * size_of::<u32>() as u64;
        self.split.budget.is_none() || bytes <= self.split.searches / LOCATED_SHARE
    }

    /// Where vectors lie, by id, if somebody has asked before.
    pub(super) fn located(&self) -> Option<&[u32]> {
        self.known_places.located.get().map(Vec::as_slice)
    }

    /// Takes where vectors lie.
    pub(super) fn set_located(&self, units: Vec<u32>) {
        // Whoever else has found them meanwhile has found the same.
        let _ = self.known_places.located.set(units);
    }

    fn no_vector(&self, id: u32) -> IndexError {
        let (path, end) = (self.directory.display(), self.next_id());
        let why = if id < end { "it was deleted".into() } else { format!("ids are below {end}") };
        IndexError::Parameter(format!("{path}: there is no vector {id}: {why}"))
    }
}

/// Reads units and tells `each` of their vectors.
async fn read_units(
    cx: &Cx,
    rows: &dyn Rows,
    units: &[u32],
    each: &RefCell<impl FnMut(u32, u32, &[u8]) -> Result<(), IndexError>>,
) -> Result<(), IndexError> {
    let tell = |unit: u32, id: u32, row: &[u8]| (each.borrow_mut())(unit, id, row);
    if rows.moving(units[0]).is_some() {
        for unit in units {
            let Some(mut moving) = rows.moving(*unit) else { continue };
            loop {
                let span = [moving.span()];
                let batch = cx.read(&span).await.map_err(|source| rows.set().failed(source))?;
                if moving.arrived(batch.bytes(0), &mut |id, row| tell(*unit, id, row))? {
                    break;
                }
            }
        }
        return Ok(());
    }
    let spans: Vec<Span> = units.iter().map(|unit| rows.span(*unit)).collect();
    let batch = cx.read(&spans).await.map_err(|source| rows.set().failed(source))?;
    for (at, unit) in units.iter().enumerate() {
        rows.read(*unit, batch.bytes(at), &mut |id, row| tell(*unit, id, row))?;
    }
    Ok(())
}

/// An error once the caller waits no longer.
pub(super) fn go_on(control: Control<'_>) -> Result<(), IndexError> {
    let cancelled = control.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
    let late = control.deadline.is_some_and(|deadline| Instant::now() >= deadline);
    match (cancelled, late) {
        (true, _) => Err(IndexError::Cancelled),
        (false, true) => Err(IndexError::Deadline),
        (false, false) => Ok(()),
    }
}

/// Numbers that rise as ranges.
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
