//! Where the parts of a generation's objects lie: a file in its folder, or an object of it, written before any part is.

use super::header::{HEADER_BYTES, Header};
use super::part::PartBytes;
use super::{Deal, MOST_PARTS, MOST_STRIPE_BYTES, Striping, UNIT_STEP};
use crate::disk::{Disk, DiskFile, read_exact, write_all};
use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file in the folder of a generation with striped objects. No object has this name.
pub const TABLE_NAME: &str = "stripe.json";
/// No table is longer: that of the most parts with the longest names.
const LARGEST: u64 = 1 << 20;
const VERSION: u32 = 1;

/// Where parts lie: in folders of this machine, or at addresses of stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    version: u32,
    /// The number of the draft, as sixteen hexadecimal digits.
    key: String,
    /// The file system's number of the folder that the table was written into. A copy of the folder has another one. 0 of parts
    /// that lie at addresses.
    owner: u64,
    /// What the names of parts begin with.
    name: String,
    stripe_bytes: u32,
    /// By part; all are absolute, or all are addresses.
    folders: Vec<String>,
    /// What is striped, as far as there is such an object.
    objects: Vec<String>,
}

/// Whether a text names a store and not a folder of this machine.
fn is_address(text: &str) -> bool {
    text.contains("://")
}

/// Any number, another one each time.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Table {
    /// The table of a new draft, which will be called `name`; each has a key of its own.
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

    /// What [`Table::parse`] reads: JSON, and a line with its checksum.
    ///
    /// # Errors
    /// [`StoreError::Irregular`] of what cannot be written.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        let failed = |e: serde_json::Error| StoreError::Irregular {
            path: PathBuf::from(TABLE_NAME),
            reason: e.to_string(),
        };
        let json = serde_json::to_vec_pretty(self).map_err(failed)?;
        Ok([&json[..], format!("\ncrc32c {:08x}\n", crc32c::crc32c(&json)).as_bytes()].concat())
    }

    /// Writes the table of a new draft, which will be called `name`, into its folder of objects. When this returns, it outlives
    /// the machine.
    pub(crate) fn begin(
        disk: &dyn Disk,
        folder: &Path,
        name: &str,
        striping: &Striping,
    ) -> Result<(), StoreError> {
        let path = folder.join(TABLE_NAME);
        let failed = |e| StoreError::io("write", &path, e);
        let owner = disk.stat(folder).map_err(|e| StoreError::io("look at", folder, e))?.identity.1;
        // Never a file that is there already, whoever put it there.
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

    /// The table in `folder`; `None` if there is none.
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
        if len > LARGEST {
            return Err(damaged(format!("it has {len} bytes")));
        }
        let mut bytes = vec![0; len as usize];
        read_exact(file.as_ref(), &mut bytes, 0).map_err(|e| StoreError::io("read", &path, e))?;
        Table::parse(&bytes).map(Some).map_err(damaged)
    }

    /// Reads what [`Table::to_bytes`] wrote.
    ///
    /// # Errors
    /// A sentence when it is damaged.
    pub fn parse(bytes: &[u8]) -> Result<Table, String> {
        let cut = || "it does not end with a checksum".to_string();
        let lines = bytes.strip_suffix(b"\n").ok_or_else(cut)?;
        let split = lines.iter().rposition(|byte| *byte == b'\n').ok_or_else(cut)?;
        let json = &lines[..split];
        if lines[split + 1..] != *format!("crc32c {:08x}", crc32c::crc32c(json)).as_bytes() {
            return Err("its checksum is another one".into());
        }
        let table: Table = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        let unit = table.stripe_bytes;
        let sound = table.version == VERSION
            && table.key.len() == 16
            && u64::from_str_radix(&table.key, 16).is_ok()
            && (2..=MOST_PARTS).contains(&table.folders.len())
            && (table.folders.iter().all(|folder| Path::new(folder).is_absolute())
                || table.folders.iter().all(|folder| is_address(folder)))
            && [&table.name].into_iter().chain(&table.objects).all(|name| !name.contains(['/', '\0']))
            && unit > 0
            && unit.is_multiple_of(UNIT_STEP)
            && unit <= MOST_STRIPE_BYTES;
        if sound { Ok(table) } else { Err("it says what no table says".into()) }
    }

    /// Whether a draft with this table is what `striping` asks for.
    pub fn is_of(&self, striping: &Striping) -> bool {
        (&self.folders, self.stripe_bytes, &self.objects)
            == (&striping.folders, striping.stripe_bytes, &striping.objects)
    }

    /// What the generation is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the object `name` is striped.
    pub fn names(&self, name: &str) -> bool {
        self.objects.iter().any(|object| object == name)
    }

    /// What is striped, as far as there is such an object.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        self.objects.iter().map(String::as_str)
    }

    /// What tells the parts of one build from those of all others.
    pub fn key(&self) -> u64 {
        // Checked when it was read.
        u64::from_str_radix(&self.key, 16).unwrap_or(0)
    }

    /// How bytes are dealt out to the parts.
    pub fn deal(&self) -> Deal {
        Deal { unit: u64::from(self.stripe_bytes), parts: self.folders.len() as u64 }
    }

    /// The header of part `part` of `object`.
    pub(crate) fn header(&self, object: &str, part: usize) -> Header {
        Header {
            key: self.key(),
            part: part as u32,
            parts: self.folders.len() as u32,
            stripe_bytes: self.stripe_bytes,
            object: object.to_string(),
        }
    }

    /// The bytes that part `part` of `object` begins with.
    pub fn header_bytes(&self, object: &str, part: usize) -> Vec<u8> {
        self.header(object, part).encode()
    }

    /// Refuses what is not part `part` of `object`.
    ///
    /// # Errors
    /// [`StoreError::Part`], with what to do: `advice`.
    pub(crate) fn check_part(
        &self,
        object: &str,
        part: usize,
        found: &dyn PartBytes,
        advice: &str,
    ) -> Result<(), StoreError> {
        let mut bytes = vec![0; HEADER_BYTES.min(found.len()) as usize];
        found.read_at(0, &mut bytes)?;
        let checked = Header::decode(&bytes).and_then(|header| self.header(object, part).compare(&header));
        checked.map_err(|what| StoreError::Part {
            path: found.address().to_path_buf(),
            reason: format!("{what}; {advice}"),
        })
    }

    /// The folders, or the addresses, by part.
    pub fn folders(&self) -> impl ExactSizeIterator<Item = &Path> + Clone {
        self.folders.iter().map(Path::new)
    }

    /// The file name of a part.
    pub(crate) fn file_name(&self, object: &str, part: usize) -> String {
        format!("{}-{}-{object}.part{}", self.name, self.key, part + 1)
    }

    /// What the generation is called that has part `part` of every object, in a store of generations.
    pub fn part_name(&self, part: usize) -> String {
        format!("{}-{}.part{}", self.name, self.key, part + 1)
    }

    /// Where part `part` of `object` was put.
    pub(crate) fn path(&self, object: &str, part: usize) -> PathBuf {
        Path::new(&self.folders[part]).join(self.file_name(object, part))
    }

    /// Where all parts of all objects are, if they are there.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.objects()
            .flat_map(move |object| (0..self.folders.len()).map(move |part| self.path(object, part)))
    }

    /// Whether there is any part of `object`, where it was put or under its name in one of the folders `moved`.
    pub(crate) fn holds(&self, disk: &dyn Disk, object: &str, moved: &[PathBuf]) -> bool {
        (0..self.folders.len()).any(|part| {
            let name = self.file_name(object, part);
            let elsewhere = moved.iter().map(|folder| folder.join(&name));
            [self.path(object, part)].into_iter().chain(elsewhere).any(|path| disk.stat(&path).is_ok())
        })
    }

    /// Removes the parts of `object`, as far as they are there, for good.
    ///
    /// # Errors
    /// The system's, and [`ErrorKind::NotFound`] where a whole folder is missing: its disk may come back, with the part.
    pub(crate) fn remove(&self, disk: &dyn Disk, object: &str) -> io::Result<()> {
        for (part, folder) in self.folders().enumerate() {
            disk.stat(folder)?;
            let path = self.path(object, part);
            match disk.open(&path) {
                Ok(file) if self.is_ours(file.as_ref()) => disk.remove_file(&path)?,
                // Something else of this name is not ours to remove.
                Ok(_) => continue,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) if e.kind() == ErrorKind::InvalidInput => continue,
                Err(e) => return Err(e),
            }
            // The name may be gone and come back with the machine.
            disk.sync_folder(folder)?;
        }
        Ok(())
    }

    /// Whether a file of a part's name is one: whoever was killed as he began it left no header.
    fn is_ours(&self, file: &dyn DiskFile) -> bool {
        read_header(file).map_or(true, |found| found.key == self.key())
    }
}

/// The header of a part.
///
/// # Errors
/// A sentence when it has none.
pub(super) fn read_header(file: &dyn DiskFile) -> Result<Header, String> {
    let mut bytes = vec![0; HEADER_BYTES as usize];
    match read_exact(file, &mut bytes, 0) {
        Ok(()) => Header::decode(&bytes),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Header::decode(&[]),
        Err(e) => Err(format!("cannot be read: {e}")),
    }
}

/// Removes the parts of the generation in `folder`, if it has any and is their owner.
///
/// # Errors
/// As [`Table::remove`].
pub(crate) fn remove_parts(disk: &Arc<dyn Disk>, folder: &Path) -> io::Result<()> {
    // Without a table that can be read nobody knows where they are.
    let Ok(Some(table)) = Table::read(disk.as_ref(), folder) else { return Ok(()) };
    if disk.stat(folder)?.identity.1 != table.owner {
        return Ok(());
    }
    table.objects().try_for_each(|object| table.remove(disk.as_ref(), object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty::Platter;

    #[test]
    fn tables_are_read_as_they_were_written_or_refused() {
        let disk = Platter::default();
        for folder in ["/index", "/a", "/b"] {
            disk.create_folder(Path::new(folder)).unwrap();
        }
        let folders = ["/a", "/b"].map(PathBuf::from);
        let striping = Striping::new(&folders, 8192, &["data"]).unwrap();
        let index = Path::new("/index");
        assert_eq!(Table::read(&disk, index).unwrap(), None);
        Table::begin(&disk, index, "name", &striping).unwrap();
        let table = Table::read(&disk, index).unwrap().unwrap();
        assert!(table.is_of(&striping) && table.names("data") && !table.names("codes"));
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
            "each has a key of its own"
        );
    }
}
