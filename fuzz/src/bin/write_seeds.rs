//! Writes the initial corpora of fuzzing to a folder: valid files for every reader, and files that once broke
//! a reader.

use std::path::{Path, PathBuf};

use bathyal_fuzz::{GROUPS, Reader, readers};
// The flags of fuzz targets make every program call this library.
use libfuzzer_sys as _;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "corpus".into()));
    let all = readers();
    for reader in &all {
        let grouped = GROUPS.iter().any(|(_, readers)| readers.contains(&reader.name));
        assert!(grouped, "{} is not in GROUPS", reader.name);
    }
    for (group, readers) in GROUPS {
        std::fs::create_dir_all(folder.join(group))?;
        for (selector, name) in readers.iter().enumerate() {
            let reader = all.iter().find(|reader| reader.name == *name).expect("a known reader");
            let seeds = (reader.seeds)().into_iter().enumerate();
            let named = seeds.map(|(index, seed)| (index.to_string(), seed));
            for (number, seed) in named.chain(found(reader)?) {
                let bytes = [&[selector as u8], &seed[..]].concat();
                std::fs::write(folder.join(group).join(format!("{name}-{number}")), bytes)?;
            }
        }
    }
    Ok(())
}

/// Returns names and contents of the files that once broke a reader.
fn found(reader: &Reader) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let folder = Path::new(reader.found).join(reader.name);
    let Ok(entries) = folder.read_dir() else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    Ok(files)
}

/// The entry point that libFuzzer's library requires. This program is not a fuzz target, but is built with
/// the same flags, so that the readers are compiled only once.
#[unsafe(no_mangle)]
fn rust_fuzzer_test_input(_: &[u8]) -> i32 {
    0
}
