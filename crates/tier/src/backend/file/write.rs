//! Writing files so that nobody ever sees half of one.

use crate::contract::TierWrite;
use crate::error::TierError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file under construction: written beside its final name, synced and renamed by
/// [`TierWrite::publish`], removed when dropped before.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    building: PathBuf,
    target: PathBuf,
    published: bool,
}

impl FileWriter {
    /// Begins a file that will be called `target`.
    pub fn create(target: impl AsRef<Path>) -> Result<FileWriter, TierError> {
        let target = target.as_ref().to_path_buf();
        let mut name = target.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".building-{}", std::process::id()));
        let building = target.with_file_name(name);
        let file = File::create(&building).map_err(|e| TierError::io("create", &building, e))?;
        Ok(FileWriter { file, building, target, published: false })
    }
}

impl TierWrite for FileWriter {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TierError> {
        self.file.write_all_at(bytes, offset).map_err(|e| TierError::io("write", &self.target, e))
    }

    fn publish(mut self: Box<Self>) -> Result<(), TierError> {
        self.file.sync_all().map_err(|e| TierError::io("sync", &self.target, e))?;
        std::fs::rename(&self.building, &self.target)
            .map_err(|e| TierError::io("rename", &self.target, e))?;
        self.published = true;
        sync_directory(self.target.parent().unwrap_or(Path::new(".")))
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.published {
            // The file has no reader yet; if it cannot be removed either, it is at worst litter.
            let _ = std::fs::remove_file(&self.building);
        }
    }
}

/// Replaces the whole content of `target` atomically.
pub fn replace_file(target: impl AsRef<Path>, bytes: &[u8]) -> Result<(), TierError> {
    let mut writer = Box::new(FileWriter::create(target)?);
    writer.write_at(0, bytes)?;
    writer.publish()
}

/// Makes the names in a directory durable.
pub fn sync_directory(path: impl AsRef<Path>) -> Result<(), TierError> {
    let path = if path.as_ref().as_os_str().is_empty() { Path::new(".") } else { path.as_ref() };
    let sync = File::open(path).and_then(|d| d.sync_all());
    sync.map_err(|e| TierError::io("sync the directory", path, e))
}
