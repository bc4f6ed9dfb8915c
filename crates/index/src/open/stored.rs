//! An index as it is stored: its path, its manifest and its family. Nothing of it is loaded.

use crate::error::IndexError;
use crate::families;
use crate::family::Stored;
use crate::form::Form;
use crate::format::manifest::Manifest;
use crate::query::Counter;
use bathyal_kernels::{Element, Metric};
use bathyal_store::Generation;
use std::path::{Path, PathBuf};

/// An index as it is stored, after its manifest was checked.
pub(super) struct StoredIndex {
    /// The folder or the address.
    path: PathBuf,
    manifest: Manifest,
    element: Element,
    metric: Metric,
    family: Box<dyn Stored>,
    /// The counters that only the family has.
    own_counters: &'static [Counter],
}

impl StoredIndex {
    /// Reads the manifest of the index in `directory`.
    ///
    /// # Errors
    /// [`IndexError`]: no index there, a later version, a damaged manifest.
    pub(super) fn read(directory: &dyn Generation) -> Result<StoredIndex, IndexError> {
        let manifest = Manifest::load(directory)?;
        let path = directory.address().to_path_buf();
        let wrong = |reason| IndexError::damaged(&path, "the manifest", reason);
        let (element, metric) = (manifest.element().map_err(wrong)?, manifest.metric().map_err(wrong)?);
        let family = families::stored(&path, &manifest)?;
        let own_counters = families::find(&manifest.family)?.counters;
        Ok(StoredIndex { path, manifest, element, metric, family, own_counters })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn element(&self) -> Element {
        self.element
    }

    pub(super) fn metric(&self) -> Metric {
        self.metric
    }

    pub(super) fn dim(&self) -> usize {
        self.manifest.dim as usize
    }

    /// Returns the number of vectors of the build.
    pub(super) fn vectors(&self) -> u64 {
        self.manifest.vectors
    }

    /// Returns the index as its family sees it.
    pub(super) fn family(&self) -> &dyn Stored {
        &*self.family
    }

    /// Returns the counters that only the family has.
    pub(super) fn own_counters(&self) -> &'static [Counter] {
        self.own_counters
    }

    /// Returns the form of its vectors.
    ///
    /// # Errors
    /// [`IndexError::Damaged`].
    pub(super) fn form(&self) -> Result<Form, IndexError> {
        Form::from_manifest(&self.manifest).map_err(|reason| self.damaged(reason))
    }

    /// Returns the error for a manifest that is damaged.
    pub(super) fn damaged(&self, reason: String) -> IndexError {
        IndexError::damaged(&self.path, "the manifest", reason)
    }

    /// Returns the error for a call that this index does not support.
    pub(super) fn refusal(&self, reason: impl std::fmt::Display) -> IndexError {
        IndexError::Parameter(format!("{}: {reason}", self.path.display()))
    }
}
