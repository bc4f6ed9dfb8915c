//! `verify`: every byte of an index against its checksums, and whatever its family can say of them.

use crate::error::IndexError;
use crate::families;
use crate::family::{VerifyReport, Verifying};
use crate::format::loading::load;
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_store::Generation;
use bathyal_store::local::LocalStore;
use bathyal_vectors::progress::Progress;
use std::path::Path;

/// Checks the whole index at `path`. Damage is reported, not returned as an error; errors are for what keeps
/// the check from running: no index, no permission, cancellation.
pub fn verify(path: impl AsRef<Path>, progress: &dyn Progress) -> Result<VerifyReport, IndexError> {
    verify_in(LocalStore::open_at(path.as_ref(), MANIFEST_NAME)?.as_ref(), progress)
}

/// The same for an index in any store.
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
                report.fault(damage.to_string())
            }
            Err(other) => return Err(other),
            Ok(bytes) => report.bytes += bytes.len() as u64,
        }
    }
    match manifest.open_file(directory, paged) {
        Err(damage) => report.fault(damage.to_string()),
        Ok(object) => {
            let verifying = Verifying { directory, object: object.as_ref(), manifest: &manifest, progress };
            stored.verify(&verifying, &mut report)?;
        }
    }
    Ok(report)
}
