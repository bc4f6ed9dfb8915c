//! The table of the locations of parts. It is a file in the folder of the generation, or one of its objects,
//! and is written before any part.

use super::header::{HEADER_BYTES, PartHeader};
use super::part::PartBytes;
use super::{MOST_PARTS, MOST_STRIPE_BYTES, StripeLayout, Striping, UNIT_STEP};
use crate::disk::{Disk, DiskFile, read_exact, write_all};
use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file name of the table. No object has this name.
pub const TABLE_NAME: &str = "stripe.json";
/// The largest accepted length of a table, which exceeds that of the most parts with the longest names.
const MAX_TABLE_BYTES: u64 = 1 << 20;
const VERSION: u32 = 1;

/// The locations of the parts of a generation: in local folders, or at addresses of stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    version: u32,
    /// The unique number of the draft, as 16 hexadecimal digits.
    key: String,
    /// The inode number of the folder that the table was written into; a copy of the folder has another one.
    /// 0 for parts at addresses.
    owner: u64,
    /// The name of the generation, with which the names of parts begin.
    name: String,
    stripe_bytes: u32,
    /// The folder or address of each part; all are absolute paths, or all are addresses.
    folders: Vec<String>,
    /// The names of the striped objects, some of which may not exist.
    objects: Vec<String>,
}

/// Returns true if a text is the address of a store and not a local folder.
fn is_address(text: &str) -> bool {
    text.contains("://")
}

/// Returns a random number.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Table {
    /// Makes the table of a new draft of the generation `name`, with a new key.
    pub fn new(name: &str, striping: &Striping) -> Table {
        Table {
            version: VERSION,
            key: format!("{:016x}", random()),
            owner: 0,
            name: name.to_string(),
            stripe_bytes: striping.stripe_bytes,
            folders: striping.folders.clone(),
            objects: striping.objects.clone(),
        }
    }

    /// Formats the table for [`Table::parse`]: JSON, and a line with its checksum.
    ///
    /// # Errors
    /// [`StoreError::Irregular`] if the table cannot be formatted as JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        let failed = |e: serde_json::Error| StoreError::Irregular {
            path: PathBuf::from(TABLE_NAME),
            reason: e.to_string(),
        };
        let json = serde_json::to_vec_pretty(self).map_err(failed)?;
        Ok([&json[..], format!("\ncrc32c {:08x}\n", crc32c::crc32c(&json)).as_bytes()].concat())
    }

    /// Writes the table of a new draft of the generation `name` into the draft's folder of objects. On
    /// return, the table survives a power failure.
    pub(crate) fn begin(
        disk: &dyn Disk,
        folder: &Path,
        name: &str,
        striping: &Striping,
    ) -> Result<(), StoreError> {
        let path = folder.join(TABLE_NAME);
        let failed = |e| StoreError::io("write", &path, e);
        let owner = disk.stat(folder).map_err(|e| StoreError::io("look at", folder, e))?.identity.1;
        // The key is chosen so that no part has the path of an existing file.
        let table = loop {
            let table = Table { owner, ..Table::new(name, striping) };
            if table.paths().all(|path| disk.stat(&path).is_err()) {
                break table;
            }
        };
        let text = table.to_bytes()?;
        let file = disk.create(&path).map_err(failed)?;
        write_all(file.as_ref(), &text, 0).map_err(failed)?;
        file.sync().map_err(failed)?;
        disk.sync_folder(folder).map_err(|e| StoreError::io("sync the directory", folder, e))
    }

    /// Reads the table in `folder`; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::Irregular`] if it is damaged.
    pub(crate) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<Table>, StoreError> {
        let path = folder.join(TABLE_NAME);
        let file = match disk.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == ErrorKind::InvalidInput => {
                return Err(StoreError::Irregular { path, reason: e.to_string() });
            }
            Err(e) => return Err(StoreError::io("open", path, e)),
        };
        let damaged = |what: String| StoreError::Irregular {
            path: path.clone(),
            reason: format!("is damaged: {what}; restore it from a copy, or build the index again"),
        };
        let len = file.length().map_err(|e| StoreError::io("read the length of", &path, e))?;
        if len > MAX_TABLE_BYTES {
            return Err(damaged(format!("it has {len} bytes")));
        }
        let mut bytes = vec![0; len as usize];
        read_exact(file.as_ref(), &mut bytes, 0).map_err(|e| StoreError::io("read", &path, e))?;
        Table::parse(&bytes).map(Some).map_err(damaged)
    }

    /// Parses the bytes that [`Table::to_bytes`] wrote.
    ///
    /// # Errors
    /// A sentence that says what is damaged.
    pub fn parse(bytes: &[u8]) -> Result<Table, String> {
        let cut = || "it does not end with a checksum".to_string();
        let lines = bytes.strip_suffix(b"\n").ok_or_else(cut)?;
        let split = lines.iter().rposition(|byte| *byte == b'\n').ok_or_else(cut)?;
        let json = &lines[..split];
        if lines[split + 1..] != *format!("crc32c {:08x}", crc32c::crc32c(json)).as_bytes() {
            return Err("its checksum is wrong".into());
        }
        let table: Table = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        let unit = table.stripe_bytes;
        let is_valid = table.version == VERSION
            && table.key.len() == 16
            && u64::from_str_radix(&table.key, 16).is_ok()
            && (2..=MOST_PARTS).contains(&table.folders.len())
            && (table.folders.iter().all(|folder| Path::new(folder).is_absolute())
                || table.folders.iter().all(|folder| is_address(folder)))
            && [&table.name].into_iter().chain(&table.objects).all(|name| !name.contains(['/', '\0']))
            && unit > 0
            && unit.is_multiple_of(UNIT_STEP)
            && unit <= MOST_STRIPE_BYTES;
        if is_valid { Ok(table) } else { Err("it has a value that is not allowed".into()) }
    }

    /// Returns true if a draft with this table has the striping `striping`.
    pub fn has_striping(&self, striping: &Striping) -> bool {
        (&self.folders, self.stripe_bytes, &self.objects)
            == (&striping.folders, striping.stripe_bytes, &striping.objects)
    }

    /// Returns the name of the generation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the object `name` is striped.
    pub fn is_striped(&self, name: &str) -> bool {
        self.objects.iter().any(|object| object == name)
    }

    /// Returns the names of the striped objects, some of which may not exist.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        self.objects.iter().map(String::as_str)
    }

    /// Returns the number that is unique to the draft that the parts were written for.
    pub fn key(&self) -> u64 {
        // The key was validated when the table was parsed.
        u64::from_str_radix(&self.key, 16).unwrap_or(0)
    }

    /// Returns the distribution of an object's bytes over the parts.
    pub fn layout(&self) -> StripeLayout {
        StripeLayout { unit: u64::from(self.stripe_bytes), parts: self.folders.len() as u64 }
    }

    /// Returns the header of part number `part`, from 0, of `object`.
    pub(crate) fn header(&self, object: &str, part: usize) -> PartHeader {
        PartHeader {
            key: self.key(),
            part: part as u32,
            parts: self.folders.len() as u32,
            stripe_bytes: self.stripe_bytes,
            object: object.to_string(),
        }
    }

    /// Returns the encoded header of part number `part`, from 0, of `object`.
    pub fn header_bytes(&self, object: &str, part: usize) -> Vec<u8> {
        self.header(object, part).encode()
    }

    /// Returns an error unless `found` is part number `part` of `object`.
    ///
    /// # Errors
    /// [`StoreError::Part`], which ends with `advice`, a text that says what to do.
    pub(crate) fn check_part(
        &self,
        object: &str,
        part: usize,
        found: &dyn PartBytes,
        advice: &str,
    ) -> Result<(), StoreError> {
        let mut bytes = vec![0; HEADER_BYTES.min(found.len()) as usize];
        found.read_at(0, &mut bytes)?;
        let checked =
            PartHeader::decode(&bytes).and_then(|header| self.header(object, part).compare(&header));
        checked.map_err(|what| StoreError::Part {
            path: found.address().to_path_buf(),
            reason: format!("{what}; {advice}"),
        })
    }

    /// Returns the folder or the address of each part.
    pub fn folders(&self) -> impl ExactSizeIterator<Item = &Path> + Clone {
        self.folders.iter().map(Path::new)
    }

    /// Returns the file name of part number `part` of `object`.
    pub(crate) fn file_name(&self, object: &str, part: usize) -> String {
        format!("{}-{}-{object}.part{}", self.name, self.key, part + 1)
    }

    /// Returns the name of the generation that holds part number `part` of every object, in a store of
    /// generations.
    pub fn part_name(&self, part: usize) -> String {
        format!("{}-{}.part{}", self.name, self.key, part + 1)
    }

    /// Returns the path that part number `part` of `object` was written to.
    pub(crate) fn path(&self, object: &str, part: usize) -> PathBuf {
        Path::new(&self.folders[part]).join(self.file_name(object, part))
    }

    /// Returns the paths of all parts of all objects, whether or not they exist.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.objects()
            .flat_map(move |object| (0..self.folders.len()).map(move |part| self.path(object, part)))
    }

    /// Returns true if any part of `object` exists where it was written, or under its name in one of the
    /// folders `moved`.
    pub(crate) fn holds(&self, disk: &dyn Disk, object: &str, moved: &[PathBuf]) -> bool {
        (0..self.folders.len()).any(|part| {
            let name = self.file_name(object, part);
            let elsewhere = moved.iter().map(|folder| folder.join(&name));
            [self.path(object, part)].into_iter().chain(elsewhere).any(|path| disk.stat(&path).is_ok())
        })
    }

    /// Removes the existing parts of `object` and syncs their folders.
    ///
    /// # Errors
    /// The system's error; [`ErrorKind::NotFound`] if a folder is missing, as its disk may come back with the
    /// part.
    pub(crate) fn remove(&self, disk: &dyn Disk, object: &str) -> io::Result<()> {
        for (part, folder) in self.folders().enumerate() {
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", folder.display()));
            disk.stat(folder).map_err(named)?;
            let path = self.path(object, part);
            match disk.open(&path) {
                Ok(file) if self.is_ours(file.as_ref()) => disk.remove_file(&path)?,
                // A foreign file of this name is not removed.
                Ok(_) => continue,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) if e.kind() == ErrorKind::InvalidInput => continue,
                Err(e) => return Err(e),
            }
            // Synced even if the name is already gone: its removal may not survive a power failure yet.
            disk.sync_folder(folder)?;
        }
        Ok(())
    }

    /// Returns true if the file is a part of this table's generation. A file without a header counts as one:
    /// its writer was killed before it wrote the header.
    fn is_ours(&self, file: &dyn DiskFile) -> bool {
        read_header(file).map_or(true, |found| found.key == self.key())
    }
}

/// Reads the header of a part.
///
/// # Errors
/// A sentence that says what is wrong with the header.
pub(super) fn read_header(file: &dyn DiskFile) -> Result<PartHeader, String> {
    let mut bytes = vec![0; HEADER_BYTES as usize];
    match read_exact(file, &mut bytes, 0) {
        Ok(()) => PartHeader::decode(&bytes),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => PartHeader::decode(&[]),
        Err(e) => Err(format!("cannot be read: {e}")),
    }
}

/// Removes the parts of the generation in `folder`, if it has parts and owns them.
///
/// # Errors
/// As [`Table::remove`].
pub(crate) fn remove_parts(disk: &Arc<dyn Disk>, folder: &Path) -> io::Result<()> {
    // The locations of the parts are unknown without a readable table.
    let Ok(Some(table)) = Table::read(disk.as_ref(), folder) else { return Ok(()) };
    if disk.stat(folder)?.identity.1 != table.owner {
        return Ok(());
    }
    table.objects().try_for_each(|object| table.remove(disk.as_ref(), object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty::SimulatedDisk;

    #[test]
    fn a_table_is_read_back_and_every_damage_is_refused() {
        let disk = SimulatedDisk::default();
        for folder in ["/index", "/a", "/b"] {
            disk.create_folder(Path::new(folder)).unwrap();
        }
        let folders = ["/a", "/b"].map(PathBuf::from);
        let striping = Striping::new(&folders, 8192, &["data"]).unwrap();
        let index = Path::new("/index");
        assert_eq!(Table::read(&disk, index).unwrap(), None);
        Table::begin(&disk, index, "name", &striping).unwrap();
        let table = Table::read(&disk, index).unwrap().unwrap();
        assert!(table.has_striping(&striping) && table.is_striped("data") && !table.is_striped("codes"));
        let part = table.path("data", 1);
        assert_eq!(part, PathBuf::from(format!("/b/name-{:016x}-data.part2", table.key())));
        let file = disk.create(&index.join(TABLE_NAME)).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        read_exact(file.as_ref(), &mut bytes, 0).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Table::parse(&changed).is_err(), "byte {at}");
            assert!(Table::parse(&bytes[..at]).is_err(), "{at} bytes");
        }
        Table::begin(&disk, index, "name", &striping).unwrap();
        assert_ne!(
            Table::read(&disk, index).unwrap().unwrap().key(),
            table.key(),
            "each table has a new key"
        );
    }
}
