//! The files of an index, for tests that compare, copy or replace them.

use bathyal_index::format::manifest::{MANIFEST_NAME, Manifest};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the names of all files of the index at `path`, the manifest first.
pub fn names(path: &Path) -> Vec<String> {
    let files = Manifest::read(path).unwrap().files.into_iter().map(|file| file.name);
    std::iter::once(MANIFEST_NAME.to_owned()).chain(files).collect()
}

/// Returns the bytes of all files of the index at `path`, by name. The manifest comes without the duration of
/// the build, and without its checksum.
pub fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let content = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let mut bytes = std::fs::read(entry.path()).unwrap();
        if name == MANIFEST_NAME {
            let text = String::from_utf8(bytes).unwrap();
            let differs = |line: &&str| line.contains("build_seconds") || line.starts_with("crc32c");
            bytes = text.lines().filter(|line| !differs(line)).collect::<Vec<_>>().join("\n").into_bytes();
        }
        (name, bytes)
    };
    path.read_dir().unwrap().map(content).collect()
}

/// Replaces the file `name` of the index at `path`, and its length and checksum in the manifest.
pub fn replace(path: &Path, name: &str, bytes: &[u8]) {
    let mut manifest = Manifest::read(path).unwrap();
    let entry = manifest.files.iter_mut().find(|file| file.name == name).unwrap();
    (entry.bytes, entry.crc32c) = (bytes.len() as u64, crc32c::crc32c(bytes));
    std::fs::write(path.join(name), bytes).unwrap();
    write_manifest(path, &manifest);
}

/// Replaces the manifest of the index at `path`.
pub fn write_manifest(path: &Path, manifest: &Manifest) {
    std::fs::write(path.join(MANIFEST_NAME), manifest.to_bytes().unwrap()).unwrap();
}

/// Copies the files of an index, for a test that changes them.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
