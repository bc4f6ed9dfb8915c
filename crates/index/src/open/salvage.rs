//! Salvage of the vectors of a damaged index from all pages and records that are undamaged.

use super::{Index, OpenOptions};
use crate::error::IndexError;
use crate::families;
use crate::family::EachVector;
use crate::family::rows::StoredRows;
use crate::form::Form;
use crate::form::inserted::IndexRow;
use crate::format::manifest::Manifest;
use bathyal_store::{Generation, Object};
use bathyal_tier::Control;
use bathyal_vectors::progress::{Progress, Silent};

/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;
/// The most faults that are described; the others are only counted.
const MOST_FAULTS: usize = 20;

/// The losses of a salvage.
#[derive(Debug, Default)]
pub struct SalvageReport {
    /// Damaged pages, records or lists.
    pub lost_units: u64,
    /// Descriptions of the first of them, as sentences.
    pub faults: Vec<String>,
}

impl SalvageReport {
    fn record_loss(&mut self, error: &dyn std::fmt::Display) {
        self.lost_units += 1;
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(error.to_string());
        }
    }
}

/// Returns true if an error means that data is missing or damaged. A repair continues without that data.
pub fn is_loss(error: &IndexError) -> bool {
    match error {
        IndexError::Store(error) => error.is_loss(),
        IndexError::Damaged { .. } | IndexError::NotAnIndex { .. } | IndexError::Read { .. } => true,
        _ => false,
    }
}

/// Calls `each` with the id and the bytes, as [`Index::vectors`] returns them, of every undamaged vector of
/// the index in `directory`. A vector may be passed more than once. Each page, record or list is checked on
/// its own by its checksum, which data of another index does not match. For `flat`, `cluster`, `lsh` and
/// `graph`, only the manifest has to be undamaged (and the codec of a graph). An index of another family has
/// to be opened, so that all data that it keeps in memory has to be undamaged.
///
/// # Errors
/// Damage of data without which no vector can be found; the errors of `each`; cancellation by `progress`;
/// device errors.
pub fn salvage_vectors(
    directory: &dyn Generation,
    progress: &dyn Progress,
    each: &mut EachVector<'_>,
) -> Result<SalvageReport, IndexError> {
    let manifest = Manifest::load(directory)?;
    let stored = families::stored(directory.address(), &manifest)?;
    let form = Form::from_manifest(&manifest);
    let form = form.map_err(|reason| IndexError::damaged(directory.address(), "the manifest", reason))?;
    let (mut values, mut given) = (Vec::new(), Vec::new());
    let mut decode =
        |id: u32, stored: &[u8]| each(id, form.given_row(IndexRow::Stored(stored), &mut values, &mut given));
    match stored.rows_alone(directory, &manifest)? {
        Some(rows) => {
            let object = directory.get(&manifest.paged_file().name)?;
            salvage_file(&*rows, &*object, progress, &mut decode)
        }
        None => {
            let index = Index::open_in(directory, &OpenOptions::default(), &Silent)?;
            salvage_index(&index, progress, &mut decode)
        }
    }
}

/// Reads units from a file, many at once, or one by one if that fails.
fn salvage_file(
    rows: &dyn StoredRows,
    object: &dyn Object,
    progress: &dyn Progress,
    each: &mut EachVector<'_>,
) -> Result<SalvageReport, IndexError> {
    let (mut salvaged, mut bytes, mut unit) = (SalvageReport::default(), Vec::new(), 0);
    progress.stage("salvaging vectors", u64::from(rows.units()));
    while unit < rows.units() {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let start = rows.span(unit).offset;
        let end_of = |unit: u32| rows.span(unit).offset + u64::from(rows.span(unit).len);
        let fits = |next: &u32| {
            let after = rows.span(*next).offset >= end_of(*next - 1);
            after && end_of(*next) - start <= READ_BYTES
        };
        let next = (unit + 1..rows.units()).take_while(fits).last().map_or(unit + 1, |last| last + 1);
        bytes.resize((end_of(next - 1) - start) as usize, 0);
        let read = object.read_at(start, &mut bytes);
        let together = match read {
            Ok(()) => true,
            Err(error) if error.is_loss() => false,
            Err(error) => return Err(error.into()),
        };
        for unit in unit..next {
            let span = rows.span(unit);
            let at = (span.offset - start) as usize;
            let unit_bytes = &mut bytes[at..at + span.len as usize];
            let read = if together { Ok(()) } else { object.read_at(span.offset, unit_bytes) };
            let outcome = read.map_err(IndexError::from).and_then(|()| rows.read(unit, unit_bytes, each));
            record_loss(outcome, &mut salvaged)?;
        }
        progress.advance(u64::from(next));
        unit = next;
    }
    Ok(salvaged)
}

/// Reads the units of an open index, many at once, or one by one if that fails.
fn salvage_index(
    index: &Index,
    progress: &dyn Progress,
    each: &mut EachVector<'_>,
) -> Result<SalvageReport, IndexError> {
    let (mut salvaged, rows) = (SalvageReport::default(), index.loaded.opened().rows());
    progress.stage("salvaging vectors", u64::from(rows.units()));
    let at_once = index.loaded.units_at_once() as u32;
    for first in (0..rows.units()).step_by(at_once as usize) {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let units = first..first.saturating_add(at_once).min(rows.units());
        let mut walk = |units| index.walk(&*rows, units, Control::default(), |_, id, row| each(id, row));
        if walk(units.clone()).is_err() {
            for unit in units {
                record_loss(walk(unit..unit + 1), &mut salvaged)?;
            }
        }
        progress.advance(u64::from(first));
    }
    Ok(salvaged)
}

/// Records a loss in `salvaged`, and returns other errors.
fn record_loss(outcome: Result<(), IndexError>, salvaged: &mut SalvageReport) -> Result<(), IndexError> {
    match outcome {
        Err(error) if is_loss(&error) => salvaged.record_loss(&error),
        outcome => return outcome,
    }
    Ok(())
}
