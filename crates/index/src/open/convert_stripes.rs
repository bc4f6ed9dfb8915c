//! Copies an index to other disks: from one to several, from several to one, or to another number of them.
//! Every file of the copy is identical, and so are answers, recall and counters of searches.

use super::calibrations::{CopiedCalibrations, copy_calibrations};
use super::change_log;
use crate::build::options::{StripeOptions, Target};
use crate::build::publishing::{Note, Start, keep_draft, publish, report_stage};
use crate::error::IndexError;
use crate::families;
use crate::format::identity::Identity;
use crate::format::manifest::Manifest;
use crate::locate::{find, holding};
use bathyal_object::StoreOptions;
use bathyal_store::{Draft, Generation, GenerationExt, Replace, Store};
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The object of a draft with the fingerprint of the copied index: a killed copy of the same index is
/// continued.
const COPYING: &str = "copying";

/// Options of a copy to other disks.
#[derive(Debug, Clone, Default)]
pub struct StripeConversionOptions {
    /// The disks that the copy is striped over; `None` keeps all its files in its folder.
    pub stripe: Option<StripeOptions>,
    /// Folders of the parts of the source index, if they were moved, in any order.
    pub from: Vec<PathBuf>,
    /// True to replace an index at the target, which may be the source.
    pub overwrite: bool,
}

/// The report of a copy to other disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StripeConversion {
    /// Number of vectors.
    pub vectors: u64,
    /// Bytes of all files but the manifest.
    pub index_bytes: u64,
    /// Parts of the file that searches read in the source; 1 if it was not striped.
    pub parts_before: usize,
    /// Parts of that file in the copy.
    pub parts: usize,
    /// The calibrations with given queries.
    #[serde(flatten)]
    pub calibrations: CopiedCalibrations,
}

/// Copies the index at `source` to `target`, to the disks of `options`. The copy appears at `target` when it
/// is complete.
///
/// # Errors
/// [`IndexError::Exists`] if something is at `target` and may not be replaced; [`IndexError::Parameter`] for
/// an index of format version 1; damage of the source; folders over which the copy cannot be striped; a full
/// disk; cancellation.
pub fn convert_stripes(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: &StripeConversionOptions,
    progress: &dyn Progress,
) -> Result<StripeConversion, IndexError> {
    let source = find(source, &options.from, &StoreOptions::default())?;
    let family = families::find(&Manifest::load(source.as_ref())?.family)?;
    let striping = options.stripe.as_ref().map(|stripe| stripe.striping(family.striped)).transpose()?;
    let target = holding(target, &StoreOptions::default())?.striped(striping, family.striped)?;
    let replace = if options.overwrite { Replace::Generation } else { Replace::Never };
    convert_stripes_in(source.as_ref(), target.store(), &target.name, replace, progress)
}

/// Copies an index from any store to any other, under the name `name`. The target store stripes it as it is
/// configured.
///
/// # Errors
/// As [`convert_stripes`].
pub fn convert_stripes_in(
    source: &dyn Generation,
    store: &dyn Store,
    name: &str,
    replace: Replace,
    progress: &dyn Progress,
) -> Result<StripeConversion, IndexError> {
    let manifest = Manifest::load(source)?;
    let address = source.address();
    let stored = families::stored(address, &manifest)?;
    if change_log::summary(source, &manifest, &*stored)?.0.log_bytes > 0 {
        return Err(IndexError::Parameter(format!(
            "{}: was changed since it was built, and a copy would not contain the changes; compact it first \
             (`bathyal compact`)",
            address.display()
        )));
    }
    if manifest.identity.is_none() {
        return Err(IndexError::Parameter(format!(
            "{}: the index has format version 1, whose parts could not be distinguished from those of other \
             indexes; build it again",
            address.display()
        )));
    }
    let target = Target { store, name, replace };
    let paused = stored.pause(source, &manifest)?;
    // The manifest contains the checksums of all files, so its checksum identifies the content of the index.
    let content =
        Identity::of(&serde_json::to_string(&manifest).map_err(|e| IndexError::Internal(e.to_string()))?);
    // A killed copy of an index that others may have changed is not continued.
    let moment =
        if paused.is_some() { format!(" at {:?}", std::time::SystemTime::now()) } else { String::new() };
    let fingerprint = format!("copy of {content} by {}{moment}", env!("CARGO_PKG_VERSION"));
    let begun = |draft: &dyn Draft, fingerprint: &str| {
        draft.read(COPYING).ok().filter(|copied| copied == fingerprint.as_bytes())
    };
    let (mut draft, start) = target.start(Some(&fingerprint), begun)?;
    if matches!(start, Start::Anew) {
        draft.replace(COPYING, fingerprint.as_bytes())?;
    }
    let mut manifest = manifest;
    if !matches!(start, Start::Finished(..)) {
        let copied = copy(source, &mut manifest, paused.is_some(), draft.as_ref(), progress);
        draft = keep_draft(draft, copied)?;
    }
    drop(paused);
    let copied = manifest.laid_out(draft.as_ref())?;
    publish(draft, &copied, &Note { fingerprint, links: 0 }, progress)?;
    let calibrations = copy_calibrations(source, store, name, &copied)?;
    let parts =
        |manifest: &Manifest| manifest.paged_file().stripe.as_ref().map_or(1, |stripe| stripe.parts.len());
    Ok(StripeConversion {
        vectors: manifest.vectors,
        index_bytes: manifest.index_bytes(),
        parts_before: parts(&manifest),
        parts: parts(&copied),
        calibrations,
    })
}

/// Copies all files, and compares their checksums with those of the manifest. If the file that searches read
/// may be `changed`, the manifest of the copy gets its new checksum instead.
fn copy(
    source: &dyn Generation,
    manifest: &mut Manifest,
    changed: bool,
    draft: &dyn Draft,
    progress: &dyn Progress,
) -> Result<(), IndexError> {
    let files = &manifest.files;
    let objects = files.iter().map(|file| manifest.open_file(source, file)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let mut checksums = Vec::new();
    report_stage(progress, "copying", |report| {
        checksums = draft.adopt(source, &names, report)?;
        Ok(())
    })?;
    let paged = manifest.paged_file().name.clone();
    for ((file, object), found) in manifest.files.iter_mut().zip(objects).zip(checksums) {
        if changed && file.name == paged {
            file.crc32c = found;
        }
        if found != file.crc32c {
            let reason = format!("checksum {found:08x}, the manifest says {:08x}", file.crc32c);
            return Err(IndexError::damaged(object.address(), "its content", reason));
        }
    }
    Ok(())
}
