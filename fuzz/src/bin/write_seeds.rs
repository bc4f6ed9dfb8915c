//! Writes valid files of every reader below the folder given, as the corpora from which fuzzing begins.

use std::path::PathBuf;

use bathyal_fuzz::{GROUPS, targets::TARGETS};

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "corpus".into()));
    for (group, readers) in GROUPS {
        std::fs::create_dir_all(folder.join(group))?;
        for (selector, reader) in readers.iter().enumerate() {
            let seeds = TARGETS.iter().find(|target| target.name == *reader).map_or(vec![], |t| (t.seeds)());
            for (index, seed) in seeds.into_iter().enumerate() {
                let bytes = [&[selector as u8], &seed[..]].concat();
                std::fs::write(folder.join(group).join(format!("{reader}-{index}")), bytes)?;
            }
        }
    }
    Ok(())
}
