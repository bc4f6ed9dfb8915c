//! The vectors of a damaged index: those on pages and in records that are whole, whatever else of it is lost.

use super::{Index, OpenOptions};
use crate::error::IndexError;
use crate::families;
use crate::family::EachVector;
use crate::family::rows::Rows;
use crate::form::Form;
use crate::form::inserted::IndexRow;
use crate::format::manifest::Manifest;
use bathyal_store::{Generation, Object};
use bathyal_tier::Control;
use bathyal_vectors::progress::{Progress, Silent};

/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;
/// Places that are told of; the others are counted.
const TOLD: usize = 20;

/// What of the vectors of an index could not be read.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Pages, records or lists that are not what was written.
    pub lost_units: u64,
    /// The first of them, and what was found there, in sentences.
    pub faults: Vec<String>,
}

impl Salvaged {
    fn lose(&mut self, error: &dyn std::fmt::Display) {
        self.lost_units += 1;
        if self.faults.len() < TOLD {
            self.faults.push(error.to_string());
        }
    }
}

/// Whether an error says that bytes are not there, or not what was written: a repair goes on without them.
pub fn is_loss(error: &IndexError) -> bool {
    match error {
        IndexError::Store(error) => error.is_loss(),
        IndexError::Damaged { .. } | IndexError::NotAnIndex { .. } | IndexError::Read { .. } => true,
        _ => false,
    }
}

/// Tells `each` of all vectors of the index in `directory` that are whole: the id, and the vector as [`Index::vectors`] gives it.
/// One may be told of more than once. Every page, record or list is looked at on its own, under its checksum, which no other
/// index's fits. `flat`, `cluster`, `lsh` and `graph` need nothing else but the manifest (and the codec of a graph); others have
/// to be opened, which takes all that is kept in memory.
///
/// # Errors
/// Damage, of what no vector is found without; what `each` returns; cancellation by `progress`; device errors.
pub fn salvage_vectors(
    directory: &dyn Generation,
    progress: &dyn Progress,
    each: &mut EachVector<'_>,
) -> Result<Salvaged, IndexError> {
    let manifest = Manifest::load(directory)?;
    let stored = families::stored(directory.address(), &manifest)?;
    let form = Form::from_manifest(&manifest);
    let form = form.map_err(|reason| IndexError::damaged(directory.address(), "the manifest", reason))?;
    let (mut values, mut given) = (Vec::new(), Vec::new());
    let mut tell =
        |id: u32, stored: &[u8]| each(id, form.given_row(IndexRow::Stored(stored), &mut values, &mut given));
    match stored.rows_alone(directory, &manifest)? {
        Some(rows) => {
            let object = directory.get(&manifest.paged_file().name)?;
            by_reads(&*rows, &*object, progress, &mut tell)
        }
        None => {
            let index = Index::open_in(directory, &OpenOptions::default(), &Silent)?;
            by_walks(&index, progress, &mut tell)
        }
    }
}

/// Reads units from a file, many at once, and each alone where that fails.
fn by_reads(
    rows: &dyn Rows,
    object: &dyn Object,
    progress: &dyn Progress,
    tell: &mut EachVector<'_>,
) -> Result<Salvaged, IndexError> {
    let (mut salvaged, mut bytes, mut unit) = (Salvaged::default(), Vec::new(), 0);
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
            let own = &mut bytes[at..at + span.len as usize];
            let read = if together { Ok(()) } else { object.read_at(span.offset, own) };
            let outcome = read.map_err(IndexError::from).and_then(|()| rows.read(unit, own, tell));
            lose(outcome, &mut salvaged)?;
        }
        progress.advance(u64::from(next));
        unit = next;
    }
    Ok(salvaged)
}

/// Reads the units of an open index, many at once, and each alone where that fails.
fn by_walks(
    index: &Index,
    progress: &dyn Progress,
    tell: &mut EachVector<'_>,
) -> Result<Salvaged, IndexError> {
    let (mut salvaged, rows) = (Salvaged::default(), index.opened.rows());
    progress.stage("salvaging vectors", u64::from(rows.units()));
    let at_once = index.units_at_once() as u32;
    for first in (0..rows.units()).step_by(at_once as usize) {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let units = first..first.saturating_add(at_once).min(rows.units());
        let mut walk = |units| index.walk(&*rows, units, Control::default(), |_, id, row| tell(id, row));
        if walk(units.clone()).is_err() {
            for unit in units {
                lose(walk(unit..unit + 1), &mut salvaged)?;
            }
        }
        progress.advance(u64::from(first));
    }
    Ok(salvaged)
}

fn lose(outcome: Result<(), IndexError>, salvaged: &mut Salvaged) -> Result<(), IndexError> {
    match outcome {
        Err(error) if is_loss(&error) => salvaged.lose(&error),
        outcome => return outcome,
    }
    Ok(())
}
