//! Where an index is built, and how it gets its name: what the builds of all families have in common.

use super::Stages;
use super::options::{BuildReport, Details, Target};
use crate::error::IndexError;
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_store::{Draft, ProgressFn, StoreError, StoreExt};
use bathyal_vectors::progress::Progress;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a build says of itself as it publishes, for one that comes after it if it is killed meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// What was built from and how; empty if nobody can recognise that.
    pub(crate) fingerprint: String,
    /// Links of a graph.
    pub(crate) links: u64,
}

/// What a build begins with.
pub(crate) enum Start<J> {
    /// Nothing.
    Anew,
    /// What an earlier process has finished.
    After(J),
    /// All of it: only the name is missing.
    Finished(Box<Manifest>, Note),
}

impl Target<'_> {
    /// Begins a build, or goes on with one of the same fingerprint that was killed: from what `journal` finds in its draft,
    /// or from where it was published.
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

/// Gives a finished build its name, once all of it is where it is published from.
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
    let uploaded = attend(progress, "uploading", |attend| draft.upload(&names, &note, attend));
    let draft = kept(draft, uploaded.map_err(IndexError::from))?;
    draft.publish(&names, &note).map_err(|error| going_on(error.into()))
}

/// The draft, if `result` is none of an error; where a store that is elsewhere failed it is left for whoever goes on with it.
pub(crate) fn kept(
    draft: Box<dyn Draft>,
    result: Result<(), IndexError>,
) -> Result<Box<dyn Draft>, IndexError> {
    match result {
        Ok(()) => Ok(draft),
        Err(IndexError::Store(error)) if error.is_remote() => {
            draft.leave()?;
            Err(going_on(error.into()))
        }
        Err(error) => Err(error),
    }
}

/// An error of a store that is elsewhere, with what is left to do.
fn going_on(error: IndexError) -> IndexError {
    match error {
        IndexError::Store(error) => {
            error.with_advice("; what was done so far is kept, and the same command goes on with it").into()
        }
        other => other,
    }
}

/// Shows long work of a store as the stage `name`, which begins with the first byte that there is to move.
pub(crate) fn attend(
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

/// Gives a build its name that an earlier process has finished.
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
    Ok(BuildReport::new(manifest, threads, planned, Stages::begin(), details))
}
