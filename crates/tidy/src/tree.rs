//! The files of the repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// One file of the repository.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path from the root of the repository, with `/` between the parts.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Text of the file; `None` if it is not UTF-8.
    pub text: Option<String>,
}

impl SourceFile {
    /// Returns true if the name ends in one of `extensions` (without the dot).
    pub fn has_extension(&self, extensions: &[&str]) -> bool {
        let extension = Path::new(&self.name).extension().and_then(OsStr::to_str);
        extension.is_some_and(|found| extensions.contains(&found))
    }

    /// Returns true if the file holds only tests: it is in a `tests` or `testdata` folder, or its name is
    /// `tests.rs`.
    pub fn is_test(&self) -> bool {
        let mut parts = self.name.split('/');
        parts.any(|part| part == "tests" || part == "testdata" || part == "tests.rs")
    }
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// Reads all files below `root` that git does not ignore, including hidden files, in the order of their
/// names.
///
/// # Errors
/// A sentence that names the file or folder that cannot be read.
pub fn files(root: &Path) -> Result<Vec<SourceFile>, String> {
    let mut builder = ignore::WalkBuilder::new(root);
    // Only the ignore files of the repository count, not those of the user.
    builder.hidden(false).git_global(false).git_exclude(false).ignore(false).require_git(false);
    builder.filter_entry(|entry| entry.file_name() != ".git");
    let mut files = Vec::new();
    for entry in builder.build() {
        let entry = entry.map_err(|e| format!("cannot walk the repository: {e}"))?;
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        let bytes = std::fs::read(path).map_err(|e| format!("{}: cannot read: {e}", path.display()))?;
        let relative = path.strip_prefix(root).unwrap_or(path);
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        let size = bytes.len() as u64;
        files.push(SourceFile { name: parts.join("/"), bytes: size, text: String::from_utf8(bytes).ok() });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}
