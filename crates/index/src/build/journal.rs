//! The journal of a build: the record of its finished stages, from which a killed build continues. This is
//! the shared part of the journals of all families. A journal is a small file that is replaced after each
//! stage.

use crate::build::options::BuildOptions;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::appender::Written;
use crate::format::identity::Identity;
use crate::format::seal;
use bathyal_store::{Draft, Generation, GenerationExt};
use bathyal_vectors::{RowReader, VectorFile};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The file name of the journal, which is never published.
pub(crate) const JOURNAL_NAME: &str = "journal.json";
/// The most bytes of a journal that is read. Usual ones have a few kilobytes.
const LARGEST_JOURNAL: u64 = 16 << 20;
/// Rows of the data that a fingerprint covers.
const FINGERPRINT_ROWS: usize = 256;

/// Replaces the journal in `directory`. The files that it names were synced before.
pub(crate) fn write(directory: &dyn Draft, journal: &impl Serialize) -> Result<(), IndexError> {
    let json = serde_json::to_vec(journal).map_err(|e| IndexError::Internal(e.to_string()))?;
    Ok(directory.replace(JOURNAL_NAME, &seal::sealed(json))?)
}

/// Returns the bytes of the journal in `directory`, if there is one.
pub(crate) fn read(directory: &dyn Generation) -> Option<Vec<u8>> {
    let object = directory.get(JOURNAL_NAME).ok()?;
    if object.len() > LARGEST_JOURNAL { None } else { directory.read(JOURNAL_NAME).ok() }
}

/// Parses a journal that [`write`] wrote.
///
/// # Errors
/// A sentence if the journal is damaged.
pub(crate) fn parse<J: DeserializeOwned>(bytes: &[u8]) -> Result<J, String> {
    serde_json::from_slice(seal::unsealed(bytes)?).map_err(|e| e.to_string())
}

/// Returns the sentence `what` as an error unless `holds` is true.
pub(crate) fn require(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_string()) }
}

/// Returns true if the file `name` in `directory` is at least as long as the bytes written to it.
pub(crate) fn holds(directory: &dyn Generation, name: &str, written: &Written) -> bool {
    written.bytes == 0 || directory.len_of(name).is_some_and(|len| len >= written.bytes)
}

/// Returns the fingerprint of a build: the data, everything else that determines its result, and the version
/// `steps` of the family's intermediate files. `None` for vectors in memory, which cannot be recognised, and
/// for those that cannot be read.
pub(crate) fn fingerprint(
    data: &SourceVectors<'_>,
    options: &BuildOptions,
    identity: Identity,
    steps: u32,
) -> Option<String> {
    // The identity covers the metric, the seed and the family's options.
    Some(format!(
        "{}, steps {steps} of {}; {}; {:?} bytes, {} threads, {} queries",
        options.family.family(),
        env!("CARGO_PKG_VERSION"),
        source(data.given(), options, identity)?,
        options.memory_bytes,
        options.thread_count(),
        options.calibration_queries,
    ))
}

/// Describes the data and the queries (file, length, modification time, and a sample of the rows), and the
/// identity of the index.
fn source(data: &VectorFile, options: &BuildOptions, identity: Identity) -> Option<String> {
    let of_file = |file: &VectorFile| {
        let rows = file.count().min(FINGERPRINT_ROWS);
        let mut reader = RowReader::new(file, 0);
        let sample = (0..rows).try_fold(0, |crc, i| {
            let row = reader.row((i as u64 * file.count() as u64 / rows as u64) as usize);
            row.ok().map(|row| crc32c::crc32c_append(crc, row))
        })?;
        Some(format!("{} {sample:08x}", file.identity()?))
    };
    let queries = match &options.calibration {
        Some(queries) => of_file(queries)?,
        None => "none".into(),
    };
    Some(format!("index {identity}; data {}; queries {queries}", of_file(data)?))
}
