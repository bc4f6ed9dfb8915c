//! The constants of this machine's processor: measured once, and kept in the user's cache folder.

use super::measure::measure;
use super::processor::Processor;
use bathyal_kernels::Isa;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Says `reference` where nothing is to be measured, and `measured` where it is but not kept; another value is as good as none.
const VARIABLE: &str = "BATHYAL_PROCESSOR";
/// Of the measurements: what others measured is measured again.
const VERSION: u32 = 1;
/// Longest file that is read; what is kept is a tenth of it.
const LONGEST_FILE: u64 = 4096;

/// What is kept, with what it is the truth about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    version: u32,
    /// The processor as the system calls it.
    model: String,
    isa: String,
    processor: Processor,
}

/// The constants of the processor that this runs on: read from the user's cache folder, or measured in some milliseconds
/// and kept there. Found once a process.
pub(crate) fn of_this_machine() -> &'static Processor {
    static FOUND: OnceLock<Processor> = OnceLock::new();
    FOUND.get_or_init(|| match std::env::var(VARIABLE).ok().as_deref() {
        Some("reference") => Processor::REFERENCE,
        Some("measured") => measure(),
        _ => find(
            cache_folder(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")).as_deref(),
            measure,
        ),
    })
}

/// Where programs of this user keep what they can make again: absolute, or none.
fn cache_folder(cache: Option<std::ffi::OsString>, home: Option<std::ffi::OsString>) -> Option<PathBuf> {
    let absolute = |path: std::ffi::OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let folder = cache.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")))?;
    Some(folder.join("bathyal"))
}

/// What `folder` keeps of this processor, or else what `measure` says, which is kept then if it can be.
fn find(folder: Option<&Path>, measure: impl FnOnce() -> Processor) -> Processor {
    let (model, isa) = (model(), Isa::best().name().to_owned());
    // Homes may be shared by different machines.
    let words = |text: &str| text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let name = format!("processor-{}-{}-{VERSION}.json", words(&model), words(&isa));
    let path = folder.map(|folder| folder.join(&name));
    let known = path.as_deref().and_then(read);
    let ours = |kept: &Kept| (kept.version, &kept.model, &kept.isa) == (VERSION, &model, &isa);
    if let Some(kept) = known.filter(|kept| ours(kept) && kept.processor.is_possible()) {
        return kept.processor;
    }
    let processor = measure();
    if let Some(path) = path {
        // Without it, the next process measures again.
        let _ = write(&path, &Kept { version: VERSION, model, isa, processor });
    }
    processor
}

fn read(path: &Path) -> Option<Kept> {
    // Not a pipe or a device, which may never end.
    let file = std::fs::metadata(path).ok().filter(|file| file.is_file() && file.len() <= LONGEST_FILE);
    file.and_then(|_| serde_json::from_slice(&std::fs::read(path).ok()?).ok())
}

/// Writes a file under another name first, so that nobody reads a part of it.
fn write(path: &Path, kept: &Kept) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let draft = path.with_extension(format!("{}.draft", std::process::id()));
    let written = std::fs::write(&draft, serde_json::to_string_pretty(kept)? + "\n");
    let moved = written.and_then(|()| std::fs::rename(&draft, path));
    if moved.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    moved
}

/// The processor as the system calls it; its architecture where it has no name.
fn model() -> String {
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |key: &str| {
        let line = told.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    // Arm processors have numbers for names.
    let parts = || Some(format!("{} {}", of("CPU implementer")?, of("CPU part")?));
    let name = of("model name").or_else(parts).unwrap_or_default();
    format!("{} {name}", std::env::consts::ARCH).trim().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other() -> Processor {
        Processor { access_ns: 64.0, ..Processor::REFERENCE }
    }

    fn not_again() -> Processor {
        panic!("measured again")
    }

    #[test]
    fn what_was_measured_is_kept_for_this_processor() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cache/bathyal");
        assert_eq!(find(Some(&folder), other), other());
        assert_eq!(find(Some(&folder), not_again), other());
        let files: Vec<PathBuf> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        // Damaged, foreign, impossible, endless: measured again, and kept.
        let whole = std::fs::read_to_string(&files[0]).unwrap();
        let foreign = whole.replace("\"version\": 1", "\"version\": 0");
        let impossible = whole.replace("64.0", "-64.0");
        let long = format!("{whole}{}", " ".repeat(5000));
        for bad in [&whole[..whole.len() / 2], "", "{}", &foreign, &impossible, &long] {
            std::fs::write(&files[0], bad).unwrap();
            assert_eq!(find(Some(&folder), || Processor::REFERENCE), Processor::REFERENCE, "{bad}");
            assert_eq!(find(Some(&folder), not_again), Processor::REFERENCE);
        }
    }

    #[test]
    fn without_a_folder_nothing_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for folder in [None, Some(file.join("below").as_path())] {
            assert_eq!(find(folder, other), other());
        }
        let path = |text: &str| Some(std::ffi::OsString::from(text));
        assert_eq!(cache_folder(path("/c"), path("/h")), Some(PathBuf::from("/c/bathyal")));
        assert_eq!(cache_folder(path("c"), path("/h")), Some(PathBuf::from("/h/.cache/bathyal")));
        assert_eq!((cache_folder(None, path("")), cache_folder(None, None)), (None, None));
    }
}
