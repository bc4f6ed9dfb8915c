//! The beginning and the publication of a build, for all families.

use super::StageTimes;
use super::options::{BuildReport, Details, Target};
use crate::error::IndexError;
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_store::{Draft, ProgressFn, StoreError, StoreExt};
use bathyal_vectors::progress::Progress;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The record of a build that is being published, for a later process if this one is killed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The fingerprint of the build; empty if the data cannot be recognised.
    pub(crate) fingerprint: String,
    /// Links of a graph.
    pub(crate) links: u64,
}

/// The state with which a build begins.
pub(crate) enum Start<J> {
    /// Nothing is finished.
    Anew,
    /// An earlier process has finished the stages in this journal.
    After(J),
    /// All stages are finished; only the publication is missing.
    Finished(Box<Manifest>, Note),
}

impl Target<'_> {
    /// Begins a build, or continues a killed one with the same fingerprint: from the journal that `journal`
    /// finds in its draft, or from its publication.
    pub(crate) fn start<J>(
        &self,
        fingerprint: Option<&str>,
        journal: impl Fn(&dyn Draft, &str) -> Option<J>,
    ) -> Result<(Box<dyn Draft>, Start<J>), IndexError> {
        let state = |draft: &dyn Draft| {
            let fingerprint = fingerprint?;
            let Some(note) = draft.publication_note() else {
                return journal(draft, fingerprint).map(Start::After);
            };
            let note: Note =
                serde_json::from_str(note).ok().filter(|n: &Note| n.fingerprint == fingerprint)?;
            let manifest = Manifest::load(draft).ok()?;
            Some(Start::Finished(Box::new(manifest), note))
        };
        let (draft, found) = self.store.resume(self.name, self.replace, state)?;
        Ok((draft, found.unwrap_or(Start::Anew)))
    }
}

/// Publishes a finished build, after uploading its files if the store needs that.
pub(crate) fn publish(
    draft: Box<dyn Draft>,
    manifest: &Manifest,
    note: &Note,
    progress: &dyn Progress,
) -> Result<(), IndexError> {
    let manifest = manifest.laid_out(draft.as_ref())?;
    draft.replace(MANIFEST_NAME, &manifest.to_bytes()?)?;
    let files = manifest.files.iter().map(|file| file.name.as_str());
    let names: Vec<&str> = files.chain([MANIFEST_NAME]).collect();
    let note = serde_json::to_string(note).map_err(|e| IndexError::Internal(e.to_string()))?;
    let uploaded = report_stage(progress, "uploading", |report| draft.upload(&names, &note, report));
    let draft = keep_draft(draft, uploaded.map_err(IndexError::from))?;
    draft.publish(&names, &note).map_err(|error| with_resume_advice(error.into()))
}

/// Returns the draft if `result` is no error. After an error of a remote store, the draft is kept, so that a
/// later build can continue it.
pub(crate) fn keep_draft(
    draft: Box<dyn Draft>,
    result: Result<(), IndexError>,
) -> Result<Box<dyn Draft>, IndexError> {
    match result {
        Ok(()) => Ok(draft),
        Err(IndexError::Store(error)) if error.is_remote() => {
            draft.leave()?;
            Err(with_resume_advice(error.into()))
        }
        Err(error) => Err(error),
    }
}

/// Adds to an error of a store how to continue.
fn with_resume_advice(error: IndexError) -> IndexError {
    match error {
        IndexError::Store(error) => {
            error.with_advice("; the work so far is kept, and the same command continues it").into()
        }
        other => other,
    }
}

/// Reports long work of a store to `progress` as the stage `name`, which begins with the first byte to
/// transfer.
pub(crate) fn report_stage(
    progress: &dyn Progress,
    name: &str,
    work: impl FnOnce(&ProgressFn<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let begun = AtomicBool::new(false);
    work(&|done, total| {
        if total > 0 && !begun.swap(true, Relaxed) {
            progress.stage(name, total);
        }
        progress.advance(done);
        !progress.cancelled()
    })
}

/// Publishes a build that an earlier process has finished.
pub(crate) fn publish_finished(
    draft: Box<dyn Draft>,
    manifest: &Manifest,
    note: &Note,
    threads: usize,
    planned: u64,
    details: Details,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    publish(draft, manifest, note, progress)?;
    Ok(BuildReport::new(manifest, threads, planned, StageTimes::begin(), details))
}
