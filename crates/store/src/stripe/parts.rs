//! An open striped object.

use super::StripeLayout;
use super::header::HEADER_BYTES;
use super::part::{PartBytes, PartFile};
use super::table::{Table, read_header};
use crate::disk::{Disk, DiskFile};
use crate::error::StoreError;
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::layer::stripe::StripeTier;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The open parts of an object, each with a verified header.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The address that the object would have if it were not striped, for messages.
    address: PathBuf,
    key: u64,
    layout: StripeLayout,
    parts: Vec<StripePart>,
    len: u64,
    checksums: Option<Vec<u32>>,
}

#[derive(Debug, Clone)]
struct StripePart {
    bytes: Arc<dyn PartBytes>,
    /// The length in bytes behind the header.
    len: u64,
}

impl Parts {
    /// Opens the parts of `object` of a generation in `folder`. Each part is looked for in the folders
    /// `moved`, in any order, and then where it was written.
    ///
    /// # Errors
    /// [`StoreError::PartMissing`], [`StoreError::Part`].
    pub(crate) fn open(
        disk: &dyn Disk,
        table: &Table,
        folder: &Path,
        object: &str,
        moved: &[PathBuf],
    ) -> Result<Parts, StoreError> {
        let open = |part: usize| -> Result<Arc<dyn PartBytes>, StoreError> {
            let search = PartSearch { disk, table, object, part, moved };
            let (path, file) = search.find()?;
            Ok(Arc::new(PartFile::new(path, file)?))
        };
        let parts = (0..table.layout().parts()).map(open).collect::<Result<Vec<_>, StoreError>>()?;
        Ok(Parts::over(table, folder.join(object), parts))
    }

    /// Combines the parts of `object`, which are objects of other stores, after verifying their headers
    /// against the table. `address` is the address that the object would have if it were not striped.
    ///
    /// # Errors
    /// [`StoreError::Part`] for the first part with a wrong header. The error ends with `advice`, which says
    /// what to do.
    pub fn from_stores(
        table: &Table,
        object: &str,
        address: PathBuf,
        parts: Vec<Arc<dyn PartBytes>>,
        advice: &str,
    ) -> Result<Parts, StoreError> {
        for (number, part) in parts.iter().enumerate() {
            table.check_part(object, number, part.as_ref(), advice)?;
        }
        Ok(Parts::over(table, address, parts))
    }

    fn over(table: &Table, address: PathBuf, parts: Vec<Arc<dyn PartBytes>>) -> Parts {
        let part =
            |bytes: Arc<dyn PartBytes>| StripePart { len: bytes.len().saturating_sub(HEADER_BYTES), bytes };
        let (layout, parts) = (table.layout(), parts.into_iter().map(part).collect::<Vec<StripePart>>());
        let len = StripeTier::reach(parts.iter().map(|part| part.len), layout.unit);
        Parts { address, key: table.key(), layout, parts, len, checksums: None }
    }

    /// Sets the checksums of the parts, known from writing, if the object has exactly `len` bytes.
    #[must_use]
    pub fn with_checksums(mut self, len: u64, checksums: Vec<u32>) -> Parts {
        if len == self.len {
            self.checksums = Some(checksums);
        }
        self
    }

    /// Returns the number that is unique to the draft that the parts were written for.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the length of a unit in bytes.
    pub fn stripe_bytes(&self) -> u32 {
        self.layout.unit as u32
    }

    /// Returns the length of the object in bytes: up to the first gap in the parts.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the object has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of each part.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.parts.iter().map(|part| part.bytes.address())
    }

    /// Returns the number of bytes of each part behind its header.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = u64> {
        self.parts.iter().map(|part| part.len)
    }

    /// Returns the address of the part that holds all of the `len` bytes at `offset`; `None` if they are in
    /// several parts or beyond the end.
    pub fn holder(&self, offset: u64, len: u64) -> Option<&Path> {
        let found = self.layout.locate(offset);
        (len <= found.run && offset < self.len).then(|| self.parts[found.part].bytes.address())
    }

    /// Returns an error unless each part has the length that an object of `len` bytes requires.
    ///
    /// # Errors
    /// [`StoreError::Part`] for the first part of another length.
    pub fn check_lengths(&self, len: u64) -> Result<(), StoreError> {
        for (number, part) in self.parts.iter().enumerate() {
            let wanted = self.layout.share(len, number);
            if part.len != wanted {
                let (found, wanted) = (part.len + HEADER_BYTES, wanted + HEADER_BYTES);
                let how = if found < wanted { "it was cut" } else { "something was appended to it" };
                let reason = format!(
                    "has {found} bytes instead of {wanted}: {how}; restore it from a copy or build the index \
                     again"
                );
                return Err(StoreError::Part { path: part.bytes.address().to_path_buf(), reason });
            }
        }
        Ok(())
    }

    /// Fills `out` with the object's bytes from `offset` on.
    ///
    /// # Errors
    /// [`StoreError::Short`] if the object ends before `out` is filled, or if a part was truncated after it
    /// was opened.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let wanted = out.len() as u64;
        let short = |len| StoreError::Short { path: self.address.clone(), offset, wanted, len };
        if offset.checked_add(wanted).is_none_or(|end| end > self.len) {
            return Err(short(self.len));
        }
        let mut done = 0;
        while done < out.len() {
            let found = self.layout.locate(offset + done as u64);
            let end = out.len().min(done.saturating_add(usize::try_from(found.run).unwrap_or(usize::MAX)));
            self.parts[found.part].bytes.read_at(HEADER_BYTES + found.offset, &mut out[done..end])?;
            done = end;
        }
        Ok(())
    }

    /// Returns the CRC-32C of each part without its header. It is read from the disks unless it is known from
    /// writing.
    ///
    /// # Errors
    /// As [`Parts::read_at`].
    pub fn checksums(&self) -> Result<Vec<u32>, StoreError> {
        match &self.checksums {
            Some(known) => Ok(known.clone()),
            None => (0..self.parts.len()).map(|part| self.checksum(part, self.parts[part].len)).collect(),
        }
    }

    /// Returns the CRC-32C of the first `len` bytes of part number `part` behind its header.
    ///
    /// # Errors
    /// As [`Parts::read_at`].
    pub fn checksum(&self, part: usize, len: u64) -> Result<u32, StoreError> {
        let part = &self.parts[part].bytes;
        let piece = part.piece_bytes() as u64;
        let mut buffer = vec![0; piece.min(len) as usize];
        let (mut crc, mut at) = (0, 0);
        while at < len {
            let bytes = &mut buffer[..piece.min(len - at) as usize];
            part.read_at(HEADER_BYTES + at, bytes)?;
            crc = crc32c::crc32c_append(crc, bytes);
            at += bytes.len() as u64;
        }
        Ok(crc)
    }

    /// Opens the object as a tier that counts the reads of each part. `options` apply to files only.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn tier(&self, options: FileOptions) -> Result<Arc<StripeTier>, StoreError> {
        let members = self.parts.iter().map(|part| part.bytes.tier(options));
        let members = members.collect::<Result<Vec<Arc<dyn Tier>>, StoreError>>()?;
        Ok(Arc::new(StripeTier::with_header(members, self.stripe_bytes(), HEADER_BYTES as u32)?))
    }

    /// Returns the bytes of each part, including its header.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &Arc<dyn PartBytes>> {
        self.parts.iter().map(|part| &part.bytes)
    }

    /// Returns the distribution of the object's bytes over the parts.
    pub fn layout(&self) -> StripeLayout {
        self.layout
    }
}

/// The search for the file of a part.
struct PartSearch<'a> {
    disk: &'a dyn Disk,
    table: &'a Table,
    object: &'a str,
    part: usize,
    /// The folders in which the user says that parts are.
    moved: &'a [PathBuf],
}

/// The path and the open file of a part.
type OpenPart = (PathBuf, Arc<dyn DiskFile>);

impl PartSearch<'_> {
    fn find(&self) -> Result<OpenPart, StoreError> {
        if let Some(found) = self.find_in(self.moved.iter().map(PathBuf::as_path)) {
            return Ok(found);
        }
        let path = self.table.path(self.object, self.part);
        let file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(self.missing(path)),
            Err(e) if e.kind() == ErrorKind::InvalidInput => {
                return Err(StoreError::Part { path, reason: e.to_string() });
            }
            Err(e) => return Err(StoreError::io("open", path, e)),
        };
        let wanted = self.table.header(self.object, self.part);
        match read_header(file.as_ref()).and_then(|found| wanted.compare(&found)) {
            Ok(()) => Ok((path, file)),
            Err(what) => {
                let reason = format!(
                    "{what}; put the right file there, give the folders of the parts with --stripe \
                     (stripe=), or build the index again"
                );
                Err(StoreError::Part { path, reason })
            }
        }
    }

    /// Looks for the part in `folders`: first by its name, then by the header of any file.
    fn find_in<'f>(&self, folders: impl Iterator<Item = &'f Path> + Clone) -> Option<OpenPart> {
        let wanted = self.table.header(self.object, self.part);
        let open_if_wanted = |path: PathBuf| {
            let file = self.disk.open(&path).ok()?;
            (read_header(file.as_ref()).ok()? == wanted).then_some((path, file))
        };
        let name = self.table.file_name(self.object, self.part);
        let by_name = folders.clone().find_map(|folder| open_if_wanted(folder.join(&name)));
        let by_header = |folder: &'f Path| {
            let names = self.disk.list(folder).unwrap_or_default();
            names.into_iter().find_map(|name| open_if_wanted(folder.join(name)))
        };
        by_name.or_else(|| folders.clone().find_map(by_header))
    }

    fn missing(&self, path: PathBuf) -> StoreError {
        let (part, parts, object) = (self.part + 1, self.table.layout().parts, self.object);
        let folder = self.table.folders().nth(self.part).unwrap_or(Path::new(""));
        let what = if !self.moved.is_empty() {
            let folders: Vec<String> = self.moved.iter().map(|folder| folder.display().to_string()).collect();
            format!("is neither there nor in {}", folders.join(", "))
        } else if let Some((elsewhere, _)) = self.find_in(self.table.folders()) {
            format!("is not there but at {}: the disks were exchanged", elsewhere.display())
        } else if self.disk.stat(folder).is_err() {
            format!("is not there, nor is {}: its disk is not mounted", folder.display())
        } else {
            format!("is not in {}: its disk is not mounted there, or the part was moved", folder.display())
        };
        let reason = format!(
            "part {part} of {parts} of {object} {what}; mount the disk, give the folders that the parts are \
             in now with --stripe (stripe=), or build the index again"
        );
        StoreError::PartMissing { path, reason }
    }
}
