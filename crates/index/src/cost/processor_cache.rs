//! The cache of the constants of this machine's processor: they are measured once, and kept in the user's
//! cache folder.

use super::measure::measure;
use super::processor::Processor;
use bathyal_kernels::Isa;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The environment variable that turns the cache off: `reference` uses [`Processor::REFERENCE`], and
/// `measured` measures without keeping the result. Other values have no effect.
const VARIABLE: &str = "BATHYAL_PROCESSOR";
/// The version of the measurements. Constants of another version are measured again.
const VERSION: u32 = 2;
/// The most bytes of a file that is read, ten times those of a valid one.
const LONGEST_FILE: u64 = 4096;

/// The content of the file: the constants, and the processor for which they hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CachedProcessor {
    version: u32,
    /// The system's name of the processor.
    model: String,
    isa: String,
    processor: Processor,
}

/// Returns the constants of this machine's processor: from the user's cache folder, or measured in some
/// milliseconds and kept there. Each process does this once.
pub(crate) fn processor_of_this_machine() -> &'static Processor {
    static FOUND: OnceLock<Processor> = OnceLock::new();
    FOUND.get_or_init(|| match std::env::var(VARIABLE).ok().as_deref() {
        Some("reference") => Processor::REFERENCE,
        Some("measured") => measure(),
        // A program with debug assertions is slower than those that would use its constants later.
        _ if cfg!(debug_assertions) => measure(),
        _ => find(
            cache_folder(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")).as_deref(),
            measure,
        ),
    })
}

/// Returns the folder for this program in the user's cache folder; `None` if that is not an absolute path.
fn cache_folder(cache: Option<std::ffi::OsString>, home: Option<std::ffi::OsString>) -> Option<PathBuf> {
    let absolute = |path: std::ffi::OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let folder = cache.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")))?;
    Some(folder.join("bathyal"))
}

/// Returns the constants of this processor in `folder`, or those that `measure` returns, which are then
/// written to `folder` if possible.
fn find(folder: Option<&Path>, measure: impl FnOnce() -> Processor) -> Processor {
    let (model, isa) = (model(), Isa::best().name().to_owned());
    // The name contains the model, since different machines may share a home folder.
    let words = |text: &str| text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let name = format!("processor-{}-{}-{VERSION}.json", words(&model), words(&isa));
    let path = folder.map(|folder| folder.join(&name));
    let cached = path.as_deref().and_then(read);
    let matches =
        |cached: &CachedProcessor| (cached.version, &cached.model, &cached.isa) == (VERSION, &model, &isa);
    if let Some(cached) = cached.filter(|cached| matches(cached) && cached.processor.is_possible()) {
        return cached.processor;
    }
    let processor = measure();
    if let Some(path) = path {
        // If this fails, the next process measures again.
        let _ = write(&path, &CachedProcessor { version: VERSION, model, isa, processor });
    }
    processor
}

fn read(path: &Path) -> Option<CachedProcessor> {
    // A pipe or a device is not read: it may never end.
    let file = std::fs::metadata(path).ok().filter(|file| file.is_file() && file.len() <= LONGEST_FILE);
    file.and_then(|_| serde_json::from_slice(&std::fs::read(path).ok()?).ok())
}

/// Writes the file under another name and renames it, so that no process reads a part of it.
fn write(path: &Path, cached: &CachedProcessor) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let draft = path.with_extension(format!("{}.draft", std::process::id()));
    let written = std::fs::write(&draft, serde_json::to_string_pretty(cached)? + "\n");
    let moved = written.and_then(|()| std::fs::rename(&draft, path));
    if moved.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    moved
}

/// Returns the architecture and the system's name of the processor.
fn model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value_of = |key: &str| {
        let line = info.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    // Arm processors have numbers instead of names.
    let numbers = || Some(format!("{} {}", value_of("CPU implementer")?, value_of("CPU part")?));
    let name = value_of("model name").or_else(numbers).unwrap_or_default();
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
    fn measured_constants_are_cached_for_this_processor() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cache/bathyal");
        assert_eq!(find(Some(&folder), other), other());
        assert_eq!(find(Some(&folder), not_again), other());
        let files: Vec<PathBuf> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        // If a file is damaged, foreign, impossible or too long, the constants are measured and cached again.
        let whole = std::fs::read_to_string(&files[0]).unwrap();
        let foreign = whole.replace("\"version\": 2", "\"version\": 1");
        let impossible = whole.replace("64.0", "-64.0");
        let long = format!("{whole}{}", " ".repeat(5000));
        for bad in [&whole[..whole.len() / 2], "", "{}", &foreign, &impossible, &long] {
            std::fs::write(&files[0], bad).unwrap();
            assert_eq!(find(Some(&folder), || Processor::REFERENCE), Processor::REFERENCE, "{bad}");
            assert_eq!(find(Some(&folder), not_again), Processor::REFERENCE);
        }
    }

    #[test]
    fn without_a_folder_nothing_is_cached() {
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
