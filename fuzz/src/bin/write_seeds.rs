//! Writes valid files of every reader, and those that once broke one, below the folder given, as the corpora from which
//! fuzzing begins.

use std::path::{Path, PathBuf};

use bathyal_fuzz::{GROUPS, targets::TARGETS};

/// Folders of files by reader, which the tests read too.
const FOUND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/index/tests/mutations/found");

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "corpus".into()));
    for target in &TARGETS {
        let grouped = GROUPS.iter().any(|(_, readers)| readers.contains(&target.name));
        assert!(grouped, "{} is in none of GROUPS", target.name);
    }
    for (group, readers) in GROUPS {
        std::fs::create_dir_all(folder.join(group))?;
        for (selector, reader) in readers.iter().enumerate() {
            let seeds = TARGETS.iter().find(|target| target.name == *reader).map_or(vec![], |t| (t.seeds)());
            let named = seeds.into_iter().enumerate().map(|(index, seed)| (index.to_string(), seed));
            for (name, seed) in named.chain(found(reader)?) {
                let bytes = [&[selector as u8], &seed[..]].concat();
                std::fs::write(folder.join(group).join(format!("{reader}-{name}")), bytes)?;
            }
        }
    }
    Ok(())
}

/// Names and contents of the files that once broke a reader.
fn found(reader: &str) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let folder = Path::new(FOUND).join(reader);
    let Ok(entries) = folder.read_dir() else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    Ok(files)
}
