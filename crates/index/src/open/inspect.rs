//! `inspect`: describes the content of an index.

use super::calibrations::Calibrations;
use super::change_log::{self, ChangeCounts};
use crate::calibrate::given_queries::QueryCalibration;
use crate::error::IndexError;
use crate::families;
use crate::family::Description;
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use crate::locate::find;
use bathyal_object::StoreOptions;
use bathyal_store::{Backing, Generation, GenerationExt};
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::path::Path;

/// A part of a striped file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// The file's name in the manifest.
    pub file: String,
    /// The number of the part, from 1.
    pub part: usize,
    /// Its path.
    pub path: String,
    /// Bytes of the file in this part.
    pub bytes: u64,
}

/// The description of an index.
#[derive(Debug, Clone, Serialize)]
pub struct InspectReport {
    /// The manifest, field by field.
    pub manifest: Manifest,
    /// Bytes of all files, including the manifest and the log of changes.
    pub index_bytes: u64,
    /// Bytes of the vectors alone.
    pub data_bytes: u64,
    /// `index_bytes / data_bytes`.
    pub amplification: f64,
    /// Bytes of the file that searches read from a tier, divided by those of the vectors alone.
    pub paged_amplification: f64,
    /// The parts of its striped files, in their order; absent in JSON if no file is striped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartReport>,
    /// The changes since the index was built; absent in JSON if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<ChangeCounts>,
    /// The calibrations with queries of its user, in the order of their names; absent in JSON if there are
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calibrations: Vec<QueryCalibration>,
    /// Bytes of an unfinished record at the end of the log of changes. Its writer is running, or was killed;
    /// the change was not acknowledged.
    #[serde(skip_serializing_if = "is_zero")]
    pub unfinished_change_bytes: u64,
    /// The description by its family.
    #[serde(flatten, serialize_with = "facts")]
    pub description: Description,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Serializes the description as keys of the report.
fn facts<S: Serializer>(description: &Description, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("read_bytes", &description.read_bytes)?;
    map.serialize_entry("records_per_page", &description.records_per_page)?;
    map.serialize_entry("padding_share", &description.padding_share)?;
    for fact in &description.facts {
        map.serialize_entry(fact.name, &fact.value)?;
    }
    map.end()
}

/// Reads the index at `path` and describes it.
///
/// # Errors
/// [`IndexError`]: no index, or a record that cannot be read. `verify` reports damage in more detail.
pub fn inspect(path: impl AsRef<Path>, progress: &dyn Progress) -> Result<InspectReport, IndexError> {
    inspect_in(find(path, &[], &StoreOptions::default())?.as_ref(), progress)
}

/// Describes an index in any store, as [`inspect`] does.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_in(directory: &dyn Generation, progress: &dyn Progress) -> Result<InspectReport, IndexError> {
    let manifest = Manifest::load(directory)?;
    let stored = families::stored(directory.address(), &manifest)?;
    let description = stored.describe(directory, &manifest, progress)?;
    let (changed, unfinished_change_bytes) = change_log::summary(directory, &manifest, &*stored)?;
    let of_manifest = directory.len_of(MANIFEST_NAME).unwrap_or(0);
    let index_bytes = manifest.index_bytes() + of_manifest + changed.log_bytes;
    Ok(InspectReport {
        index_bytes,
        data_bytes: manifest.data_bytes,
        amplification: index_bytes as f64 / manifest.data_bytes as f64,
        paged_amplification: manifest.paged_file().bytes as f64 / manifest.data_bytes as f64,
        parts: parts(directory, &manifest)?,
        changed: (changed.log_bytes > 0).then_some(changed),
        calibrations: Calibrations::of(directory).all(&manifest)?.calibrations.clone(),
        unfinished_change_bytes,
        description,
        manifest,
    })
}

/// Returns the parts of all striped files.
fn parts(directory: &dyn Generation, manifest: &Manifest) -> Result<Vec<PartReport>, IndexError> {
    let mut found = Vec::new();
    for entry in manifest.files.iter().filter(|file| file.stripe.is_some()) {
        let Backing::Parts(parts) = manifest.open_file(directory, entry)?.backing()? else { continue };
        let all = (1..).zip(parts.paths().zip(parts.lengths()));
        found.extend(all.map(|(part, (path, bytes))| PartReport {
            file: entry.name.clone(),
            part,
            path: path.display().to_string(),
            bytes,
        }));
    }
    Ok(found)
}
