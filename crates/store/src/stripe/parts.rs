//! A striped object that is open.

use super::Deal;
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

/// The parts of an object, open, and each found to be what it should be.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Where the object would be if it were not striped, for messages.
    address: PathBuf,
    key: u64,
    deal: Deal,
    parts: Vec<Part>,
    len: u64,
    checksums: Option<Vec<u32>>,
}

#[derive(Debug, Clone)]
struct Part {
    bytes: Arc<dyn PartBytes>,
    /// Bytes behind the header.
    len: u64,
}

impl Parts {
    /// Opens the parts of `object` of a generation in `folder`: each in one of the folders `moved`, in any order, or where it
    /// was put.
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
            let search = Search { disk, table, object, part, moved };
            let (path, file) = search.find()?;
            Ok(Arc::new(PartFile::new(path, file)?))
        };
        let parts = (0..table.deal().parts()).map(open).collect::<Result<Vec<_>, StoreError>>()?;
        Ok(Parts::over(table, folder.join(object), parts))
    }

    /// The parts of `object`, which lie in other stores, each found to begin as the table says. `address` is where the
    /// object would be if it were not striped.
    ///
    /// # Errors
    /// [`StoreError::Part`] that names the first that is none, and says what to do: `advice`.
    pub fn of(
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
        let part = |bytes: Arc<dyn PartBytes>| Part { len: bytes.len().saturating_sub(HEADER_BYTES), bytes };
        let (deal, parts) = (table.deal(), parts.into_iter().map(part).collect::<Vec<Part>>());
        let len = StripeTier::reach(parts.iter().map(|part| part.len), deal.unit);
        Parts { address, key: table.key(), deal, parts, len, checksums: None }
    }

    /// With the checksums of the first `len` bytes of each, where they are known already.
    #[must_use]
    pub fn known(mut self, len: u64, checksums: Vec<u32>) -> Parts {
        if len == self.len {
            self.checksums = Some(checksums);
        }
        self
    }

    /// What tells the parts of one build from those of all others.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Bytes of a unit.
    pub fn stripe_bytes(&self) -> u32 {
        self.deal.unit as u32
    }

    /// Bytes of the object: as far as they reach without a gap.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the object has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where each part is.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.parts.iter().map(|part| part.bytes.address())
    }

    /// Bytes of the object that each part holds, as far as it goes.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = u64> {
        self.parts.iter().map(|part| part.len)
    }

    /// The part that holds all of the `len` bytes at `offset`; `None` if they are in several, or beyond the end.
    pub fn holder(&self, offset: u64, len: u64) -> Option<&Path> {
        let (part, _, run) = self.deal.locate(offset);
        (len <= run && offset < self.len).then(|| self.parts[part].bytes.address())
    }

    /// An error unless each part holds what it should of an object of `len` bytes.
    ///
    /// # Errors
    /// [`StoreError::Part`] that names the first that does not.
    pub fn check_lengths(&self, len: u64) -> Result<(), StoreError> {
        for (number, part) in self.parts.iter().enumerate() {
            let wanted = self.deal.share(len, number);
            if part.len != wanted {
                let (found, wanted) = (part.len + HEADER_BYTES, wanted + HEADER_BYTES);
                let how = if found < wanted { "it was cut" } else { "something was appended to it" };
                let reason = format!(
                    "has {found} bytes instead of {wanted}: {how}; restore it from a copy or build the index again"
                );
                return Err(StoreError::Part { path: part.bytes.address().to_path_buf(), reason });
            }
        }
        Ok(())
    }

    /// Reads as many bytes as `out` has from `offset` on.
    ///
    /// # Errors
    /// [`StoreError::Short`] if not all of them lie within the object, or of a part that was cut since.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let wanted = out.len() as u64;
        let short = |len| StoreError::Short { path: self.address.clone(), offset, wanted, len };
        if offset.checked_add(wanted).is_none_or(|end| end > self.len) {
            return Err(short(self.len));
        }
        let mut done = 0;
        while done < out.len() {
            let (number, at, run) = self.deal.locate(offset + done as u64);
            let end = out.len().min(done.saturating_add(usize::try_from(run).unwrap_or(usize::MAX)));
            self.parts[number].bytes.read_at(HEADER_BYTES + at, &mut out[done..end])?;
            done = end;
        }
        Ok(())
    }

    /// The CRC-32C of what each part holds of the object, its header left out; read from the disks unless it is known from
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

    /// The CRC-32C of the first `len` bytes that part number `part` holds.
    ///
    /// # Errors
    /// As [`Parts::read_at`].
    pub fn checksum(&self, part: usize, len: u64) -> Result<u32, StoreError> {
        let own = &self.parts[part].bytes;
        let piece = own.piece_bytes() as u64;
        let mut buffer = vec![0; piece.min(len) as usize];
        let (mut crc, mut at) = (0, 0);
        while at < len {
            let bytes = &mut buffer[..piece.min(len - at) as usize];
            own.read_at(HEADER_BYTES + at, bytes)?;
            crc = crc32c::crc32c_append(crc, bytes);
            at += bytes.len() as u64;
        }
        Ok(crc)
    }

    /// The object as a tier that counts what each part serves; `options` are for files.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn tier(&self, options: FileOptions) -> Result<Arc<StripeTier>, StoreError> {
        let members = self.parts.iter().map(|part| part.bytes.tier(options));
        let members = members.collect::<Result<Vec<Arc<dyn Tier>>, StoreError>>()?;
        Ok(Arc::new(StripeTier::with_header(members, self.stripe_bytes(), HEADER_BYTES as u32)?))
    }

    /// The bytes of each.
    pub fn each(&self) -> impl ExactSizeIterator<Item = &Arc<dyn PartBytes>> {
        self.parts.iter().map(|part| &part.bytes)
    }

    /// How bytes are dealt out to the parts.
    pub fn deal(&self) -> Deal {
        self.deal
    }
}

/// Looks for a part.
struct Search<'a> {
    disk: &'a dyn Disk,
    table: &'a Table,
    object: &'a str,
    part: usize,
    /// Where the user says that parts are.
    moved: &'a [PathBuf],
}

type Found = (PathBuf, Arc<dyn DiskFile>);

impl Search<'_> {
    fn find(&self) -> Result<Found, StoreError> {
        if let Some(found) = self.among(self.moved.iter().map(PathBuf::as_path)) {
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
                    "{what}; put the right file there, say with --stripe (stripe=) in which folders the parts are, or \
                     build the index again"
                );
                Err(StoreError::Part { path, reason })
            }
        }
    }

    /// The part in one of `folders`: under its name, or known by its header alone.
    fn among<'f>(&self, folders: impl Iterator<Item = &'f Path> + Clone) -> Option<Found> {
        let wanted = self.table.header(self.object, self.part);
        let look = |path: PathBuf| {
            let file = self.disk.open(&path).ok()?;
            (read_header(file.as_ref()).ok()? == wanted).then_some((path, file))
        };
        let name = self.table.file_name(self.object, self.part);
        let named = folders.clone().find_map(|folder| look(folder.join(&name)));
        let all = |folder: &'f Path| {
            let names = self.disk.list(folder).unwrap_or_default();
            names.into_iter().find_map(|name| look(folder.join(name)))
        };
        named.or_else(|| folders.clone().find_map(all))
    }

    fn missing(&self, path: PathBuf) -> StoreError {
        let (part, parts, object) = (self.part + 1, self.table.deal().parts, self.object);
        let folder = self.table.folders().nth(self.part).unwrap_or(Path::new(""));
        let what = if !self.moved.is_empty() {
            let folders: Vec<String> = self.moved.iter().map(|folder| folder.display().to_string()).collect();
            format!("is neither there nor in {}", folders.join(", "))
        } else if let Some((elsewhere, _)) = self.among(self.table.folders()) {
            format!("is not there but at {}: the disks were exchanged", elsewhere.display())
        } else if self.disk.stat(folder).is_err() {
            format!("is not there, nor is {}: its disk is not mounted", folder.display())
        } else {
            format!("is not in {}: its disk is not mounted there, or the part was moved", folder.display())
        };
        let reason = format!(
            "part {part} of {parts} of {object} {what}; mount the disk, say with --stripe (stripe=) in which folders the \
             parts are now, or build the index again"
        );
        StoreError::PartMissing { path, reason }
    }
}
