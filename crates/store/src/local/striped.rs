//! Striped objects of a generation, whose parts are outside its folder.

use super::folder::Folder;
use crate::contract::{Append, Backing, Object};
use crate::disk::{Disk, DiskFile, write_all};
use crate::error::StoreError;
use crate::stripe::{HEADER_BYTES, PartOffset, Parts, Table};
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The length of an object in bytes and the checksums of its parts.
#[derive(Debug)]
struct WrittenObject {
    len: u64,
    checksums: Vec<u32>,
}

/// The locations of the parts of a generation.
#[derive(Debug)]
pub(super) struct Stripes {
    table: Table,
    moved: Vec<PathBuf>,
    /// True for a draft, whose objects may not have been written yet.
    draft: bool,
    /// The objects that this process wrote from the first byte on, by name.
    written: Mutex<BTreeMap<String, WrittenObject>>,
}

impl Stripes {
    /// Reads the locations of a published generation in `folder`.
    pub(super) fn published(
        disk: &dyn Disk,
        folder: &Path,
        moved: &[PathBuf],
    ) -> Result<Option<Arc<Stripes>>, StoreError> {
        Stripes::read(disk, folder, moved, false)
    }

    /// Reads the locations of a draft whose objects are in `folder`.
    pub(super) fn of_draft(disk: &dyn Disk, folder: &Path) -> Result<Option<Arc<Stripes>>, StoreError> {
        Stripes::read(disk, folder, &[], true)
    }

    fn read(
        disk: &dyn Disk,
        folder: &Path,
        moved: &[PathBuf],
        draft: bool,
    ) -> Result<Option<Arc<Stripes>>, StoreError> {
        let table = Table::read(disk, folder)?;
        let written = Mutex::default();
        Ok(table.map(|table| Arc::new(Stripes { table, moved: moved.to_vec(), draft, written })))
    }

    /// Returns true if the generation at `folder` still has this table.
    pub(super) fn are_current(&self, disk: &dyn Disk, folder: &Path) -> bool {
        Table::read(disk, folder).is_ok_and(|table| table.as_ref() == Some(&self.table))
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<String, WrittenObject>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the striped objects that exist.
    pub(super) fn existing_objects(&self, disk: &dyn Disk) -> Vec<String> {
        let exists = |object: &&str| self.table.holds(disk, object, &self.moved);
        self.table.objects().filter(exists).map(str::to_string).collect()
    }

    /// Opens the parts of the object `name` of the generation in `folder`.
    pub(super) fn open(&self, disk: &dyn Disk, folder: &Path, name: &str) -> Result<Parts, StoreError> {
        if self.draft && !self.table.holds(disk, name, &[]) {
            return Err(StoreError::Missing { what: "file", path: folder.join(name) });
        }
        let parts = Parts::open(disk, &self.table, folder, name, &self.moved)?;
        Ok(match self.written().get(name) {
            Some(object) => parts.with_checksums(object.len, object.checksums.clone()),
            None => parts,
        })
    }

    /// Opens the object `name` of a draft in `folder` for appending after its first `from` bytes, or creates
    /// it.
    pub(super) fn append(
        self: &Arc<Self>,
        disk: &dyn Disk,
        folder: &Path,
        name: &str,
        from: u64,
    ) -> Result<StripedAppend, StoreError> {
        self.written().remove(name);
        let (table, layout) = (&self.table, self.table.layout());
        let mut parts = Vec::new();
        let mut checksums = vec![0; layout.parts as usize];
        if from > 0 {
            let written = self.open(disk, folder, name)?;
            if written.len() < from {
                let (path, len) = (folder.join(name), written.len());
                return Err(StoreError::Short { path, offset: 0, wanted: from, len });
            }
            for (part, checksum) in checksums.iter_mut().enumerate() {
                *checksum = written.checksum(part, layout.share(from, part))?;
            }
        }
        for (part, folder) in table.folders().enumerate() {
            let path = table.path(name, part);
            let file = disk.create(&path).map_err(|e| StoreError::io("create", &path, e))?;
            let cut = |len| file.set_len(len).map_err(|e| StoreError::io("cut", &path, e));
            if from > 0 {
                cut(HEADER_BYTES + layout.share(from, part))?;
            } else {
                cut(0)?;
                let header = table.header(name, part).encode();
                write_all(file.as_ref(), &header, 0).map_err(|e| StoreError::io("write", &path, e))?;
                file.sync().map_err(|e| StoreError::io("sync", &path, e))?;
                disk.sync_folder(folder).map_err(|e| StoreError::io("sync the directory", folder, e))?;
            }
            parts.push((file, path));
        }
        Ok(StripedAppend { stripes: self.clone(), name: name.to_string(), parts, checksums, at: from })
    }
}

/// A striped object of a generation.
#[derive(Debug)]
pub(super) struct StripedObject {
    folder: Folder,
    /// The path that it would have if it were not striped.
    address: PathBuf,
    parts: Parts,
}

impl StripedObject {
    pub(super) fn new(folder: Folder, address: PathBuf, parts: Parts) -> StripedObject {
        StripedObject { folder, address, parts }
    }
}

impl Object for StripedObject {
    fn address(&self) -> &Path {
        &self.address
    }

    fn len(&self) -> u64 {
        self.parts.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.parts.read_at(offset, out)
    }

    fn backing(&self) -> Result<Backing, StoreError> {
        Ok(Backing::Parts(self.parts.clone()))
    }

    fn tier(&self, options: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
        let tier = self.parts.tier(options);
        // The parts are removed when another generation is published.
        self.folder.check_current()?;
        Ok(tier?)
    }
}

/// Parts that are being written.
#[derive(Debug)]
pub(super) struct StripedAppend {
    stripes: Arc<Stripes>,
    name: String,
    parts: Vec<(Arc<dyn DiskFile>, PathBuf)>,
    /// The checksum of the bytes written to each part, without its header.
    checksums: Vec<u32>,
    at: u64,
}

impl Append for StripedAppend {
    fn append(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let PartOffset { part, offset, run } = self.stripes.table.layout().locate(self.at);
            let (unit, rest) = bytes.split_at(bytes.len().min(usize::try_from(run).unwrap_or(usize::MAX)));
            let (file, path) = &self.parts[part];
            write_all(file.as_ref(), unit, HEADER_BYTES + offset)
                .map_err(|e| StoreError::io("write", path, e))?;
            self.checksums[part] = crc32c::crc32c_append(self.checksums[part], unit);
            self.at += unit.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        for (file, path) in &self.parts {
            file.sync().map_err(|e| StoreError::io("sync", path, e))?;
        }
        let object = WrittenObject { len: self.at, checksums: self.checksums.clone() };
        self.stripes.written().insert(self.name.clone(), object);
        Ok(())
    }
}
