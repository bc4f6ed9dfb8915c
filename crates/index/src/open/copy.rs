//! Copies an index between folders, object stores and memory nodes. Every file of the copy is identical, and
//! is compared with the checksums of the manifest during the copy.

use super::calibrations::CopiedCalibrations;
use super::convert_stripes::{StripeConversion, convert_stripes_in};
use crate::error::IndexError;
use crate::families;
use crate::format::manifest::Manifest;
use crate::locate::{find, holding};
use bathyal_object::StoreOptions;
use bathyal_store::Replace;
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::Path;

/// Options of a copy.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// Options of the store of the source.
    pub from: StoreOptions,
    /// Options of the store of the target.
    pub to: StoreOptions,
    /// True to replace an index at the target.
    pub overwrite: bool,
}

/// The report of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Number of vectors.
    pub vectors: u64,
    /// Bytes of all files but the manifest.
    pub index_bytes: u64,
    /// The calibrations with given queries.
    #[serde(flatten)]
    pub calibrations: CopiedCalibrations,
}

/// Copies the index at `source` to `target`, each a folder or an address. The copy appears at `target` when
/// it is complete. A copy of the same index that was killed is continued.
///
/// # Errors
/// [`IndexError::Exists`] if something is at `target` and may not be replaced; [`IndexError::Parameter`] for
/// an index that was changed and not compacted; damage of the source; a full disk; a store that does not
/// answer; cancellation.
pub fn copy(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: &CopyOptions,
    progress: &dyn Progress,
) -> Result<CopyReport, IndexError> {
    let source = find(source, &[], &options.from)?;
    let family = families::find(&Manifest::load(source.as_ref())?.family)?;
    let target = holding(target, &options.to)?.striped(None, family.striped)?;
    let replace = if options.overwrite { Replace::Generation } else { Replace::Never };
    let made = convert_stripes_in(source.as_ref(), target.store(), &target.name, replace, progress)?;
    let StripeConversion { vectors, index_bytes, calibrations, .. } = made;
    Ok(CopyReport { vectors, index_bytes, calibrations })
}
