//! `verify`: compares every byte of an index with its checksums, and runs the checks of its family.

use super::calibrations::Calibrations;
use super::change_log;
use crate::error::IndexError;
use crate::families;
use crate::family::{VerifyReport, Verifying};
use crate::format::loading::load;
use crate::format::manifest::{FileEntry, Manifest};
use crate::format::striped::damaged_parts;
use crate::locate::find;
use bathyal_object::StoreOptions;
use bathyal_store::Generation;
use bathyal_vectors::progress::Progress;
use std::path::Path;

/// Checks the whole index at `path`. Damage is in the report and is not an error.
///
/// # Errors
/// Conditions under which the check cannot run: no index, no permission, cancellation.
pub fn verify(path: impl AsRef<Path>, progress: &dyn Progress) -> Result<VerifyReport, IndexError> {
    verify_in(find(path, &[], &StoreOptions::default())?.as_ref(), progress)
}

/// Checks an index in any store, as [`verify`] does.
///
/// # Errors
/// As [`verify`].
pub fn verify_in(directory: &dyn Generation, progress: &dyn Progress) -> Result<VerifyReport, IndexError> {
    let mut report = VerifyReport::empty();
    let read = Manifest::load(directory).and_then(|manifest| {
        families::stored(directory.address(), &manifest).map(|stored| (manifest, stored))
    });
    let (manifest, stored) = match read {
        Err(damage @ IndexError::Damaged { .. }) => {
            report.fault(damage.to_string());
            return Ok(report);
        }
        other => other?,
    };
    let paged = manifest.paged_file();
    progress.stage("verifying", paged.bytes);
    for entry in manifest.files.iter().filter(|entry| entry.name != paged.name) {
        match load(directory, &manifest, entry) {
            Err(damage @ (IndexError::Damaged { .. } | IndexError::Store(_))) => {
                report.fault(damage.to_string());
                fault_parts(directory, &manifest, entry, &mut report);
            }
            Err(other) => return Err(other),
            Ok(bytes) => report.bytes += bytes.len() as u64,
        }
    }
    match manifest.open_file(directory, paged) {
        Err(damage) => report.fault(damage.to_string()),
        Ok(object) => {
            let verifying = Verifying { directory, object: object.as_ref(), manifest: &manifest, progress };
            let before = report.fault_count;
            stored.verify(&verifying, &mut report)?;
            if report.fault_count > before {
                fault_parts(directory, &manifest, paged, &mut report);
            }
        }
    }
    match change_log::summary(directory, &manifest, &*stored) {
        Err(damage @ (IndexError::Damaged { .. } | IndexError::Store(_))) => report.fault(damage.to_string()),
        Err(other) => return Err(other),
        Ok((changed, _)) => {
            report.bytes += changed.log_bytes;
            report.vectors = (report.vectors + changed.inserted).saturating_sub(changed.deleted);
        }
    }
    match Calibrations::of(directory).all(&manifest) {
        Err(damage @ (IndexError::Damaged { .. } | IndexError::Store(_))) => report.fault(damage.to_string()),
        Err(other) => return Err(other),
        Ok(calibrations) => report.bytes += calibrations.end,
    }
    Ok(report)
}

/// If a damaged file is striped, reports which of its parts are damaged.
fn fault_parts(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &FileEntry,
    report: &mut VerifyReport,
) {
    let object = manifest.open_file(directory, entry);
    // If the file cannot be opened, that has been reported already.
    let Ok(parts) = object.and_then(|object| damaged_parts(object.as_ref(), entry)) else { return };
    for (path, reason) in parts {
        report.first_fault(IndexError::damaged(path, "its content", reason).to_string());
    }
}
