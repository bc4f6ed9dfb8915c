//! Notes and lines about the parts of a striped index.

use std::fmt::Write as _;
use std::path::PathBuf;

use bathyal_console::byte_size;
use bathyal_index::open::PartStats;

/// Returns a note for each of `folders` on the device of an earlier one: dividing reads between them gains
/// nothing.
pub(super) fn shared_devices(folders: &[PathBuf]) -> Vec<String> {
    #[cfg(unix)]
    let device =
        |folder: &PathBuf| folder.metadata().map(|found| std::os::unix::fs::MetadataExt::dev(&found)).ok();
    // The letter of the drive, or the share.
    #[cfg(not(unix))]
    let device = |folder: &PathBuf| {
        let whole = folder.canonicalize().ok()?;
        whole.components().next().map(|first| first.as_os_str().to_owned())
    };
    let shared = |at: usize| {
        let before = folders[..at].iter().find(|other| device(other) == device(&folders[at]))?;
        let (one, other) = (before.display(), folders[at].display());
        Some(format!("{one} and {other} are on the same device, so striping over both is not faster"))
    };
    (0..folders.len()).filter_map(shared).collect()
}

/// Returns a line for each part, with its reads.
pub(super) fn lines(parts: &[PartStats]) -> String {
    let mut text = String::new();
    for (number, part) in (1..).zip(parts) {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\npart {number:<11} {} reads, {}, p99 {} us: {}",
            part.reads,
            byte_size::format(part.bytes),
            part.p99_us,
            part.path
        );
    }
    text
}
