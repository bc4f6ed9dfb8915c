//! A copy of an index from any place to any other: folders of this machine, object stores and nodes. Every file is the same byte for
//! byte, and is compared with the checksums of the manifest on its way.

use super::convert_stripes::convert_stripes_in;
use crate::error::IndexError;
use crate::families;
use crate::format::manifest::Manifest;
use crate::locate::{find, holding};
use bathyal_object::StoreOptions;
use bathyal_store::Replace;
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::Path;

/// How an index is copied.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// How the store that is read is reached.
    pub from: StoreOptions,
    /// How the store that is written is reached.
    pub to: StoreOptions,
    /// Whether to replace an index that is already there.
    pub overwrite: bool,
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// Number of vectors.
    pub vectors: u64,
    /// Bytes of all files but the manifest.
    pub index_bytes: u64,
}

/// Copies the index at `source` to `target`, each a folder or an address. Nothing appears at `target` before all is complete;
/// a copy of the same that was killed is continued.
///
/// # Errors
/// [`IndexError::Exists`] if something is at `target` and may not be replaced; [`IndexError::Parameter`] for an index that was
/// changed and not compacted; damage of the source; a full disk; a store that does not answer; cancellation.
pub fn copy(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: &CopyOptions,
    progress: &dyn Progress,
) -> Result<Copied, IndexError> {
    let source = find(source, &[], &options.from)?;
    let family = families::find(&Manifest::load(source.as_ref())?.family)?;
    let target = holding(target, &options.to)?.striped(None, family.striped)?;
    let replace = if options.overwrite { Replace::Generation } else { Replace::Never };
    let made = convert_stripes_in(source.as_ref(), target.store(), &target.name, replace, progress)?;
    Ok(Copied { vectors: made.vectors, index_bytes: made.index_bytes })
}
