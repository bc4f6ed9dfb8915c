//! A file with a checksum for every piece. Bytes are checked before they are used.

use super::block::numbered_checksum;
use super::fetch::read_runs;
use super::file_writer::PIECE_BYTES;
use super::manifest::Manifest;
use super::open_file;
use crate::error::CollectionError;
use bathyal_index::format::identity::Identity;
use bathyal_index::ranges::Run;
use bathyal_store::{Generation, Object, ObjectExt};
use bytes::Bytes;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The file of columns, with the checksums of its pieces.
#[derive(Debug)]
pub(super) struct CheckedFile {
    object: Arc<dyn Object>,
    identity: Identity,
    /// Checksums; four bytes for each piece.
    sums: Vec<u8>,
    remote: bool,
}

impl CheckedFile {
    /// Loads the checksums.
    pub(super) fn open(
        generation: &dyn Generation,
        manifest: &Manifest,
        remote: bool,
    ) -> Result<CheckedFile, CollectionError> {
        let (object, sums) =
            (open_file(generation, &manifest.parquet)?, open_file(generation, &manifest.sums)?);
        let damaged = |reason: String| CollectionError::damaged(sums.address(), "its content", reason);
        let pieces = object.len().div_ceil(PIECE_BYTES as u64);
        if sums.len() != 4 * pieces {
            return Err(damaged(format!("it has {} bytes, but there are {pieces} pieces", sums.len())));
        }
        let bytes = sums.read_all()?;
        if crc32c::crc32c(&bytes) != manifest.sums.crc32c {
            return Err(damaged("its checksum is wrong".into()));
        }
        Ok(CheckedFile { object, identity: manifest.identity(), sums: bytes, remote })
    }

    /// Loads a file whose checksums may be damaged. If the file itself matches the manifest, the checksums
    /// are computed again. Otherwise the stored ones are used; they can still confirm pieces.
    ///
    /// # Errors
    /// As [`CheckedFile::open`], if both the file and its checksums are damaged.
    pub(super) fn salvage(
        generation: &dyn Generation,
        manifest: &Manifest,
        remote: bool,
    ) -> Result<CheckedFile, CollectionError> {
        let error = match CheckedFile::open(generation, manifest, remote) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        let (object, identity) = (generation.get(&manifest.parquet.name)?, manifest.identity());
        let (mut crc, mut sums, mut piece) = (0, Vec::new(), vec![0; PIECE_BYTES]);
        let readable = (0..).zip((0..object.len()).step_by(PIECE_BYTES)).all(|(number, at)| {
            piece.resize(PIECE_BYTES.min((object.len() - at) as usize), 0);
            let read = object.read_at(at, &mut piece).is_ok();
            crc = crc32c::crc32c_append(crc, &piece);
            sums.extend_from_slice(&numbered_checksum(identity, number, &piece).to_le_bytes());
            read
        });
        if readable && (object.len(), crc) == (manifest.parquet.bytes, manifest.parquet.crc32c) {
            return Ok(CheckedFile { object, identity, sums, remote });
        }
        let found = generation.get(&manifest.sums.name)?;
        if found.len() != sums.len() as u64 {
            return Err(error);
        }
        Ok(CheckedFile { object, identity, sums: found.read_all()?, remote })
    }

    pub(super) fn len(&self) -> u64 {
        self.object.len()
    }

    pub(super) fn path(&self) -> &Path {
        self.object.address()
    }

    /// Returns the number of bytes to read at once in a sequential scan.
    pub(super) fn read_ahead_bytes(&self) -> u64 {
        self.object.piece_bytes() as u64
    }

    /// Returns the bytes of memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.sums.len() as u64 + size_of::<CheckedFile>() as u64
    }

    /// Reads and checks runs of bytes that cover `wanted`, whose starts are ascending.
    ///
    /// # Errors
    /// [`CollectionError::Damaged`], [`CollectionError::Store`].
    pub(super) fn read(
        &self,
        wanted: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<Vec<Run>, CollectionError> {
        let (piece, len) = (PIECE_BYTES as u64, self.len());
        let align = |range: Range<u64>| {
            let end = range.end.div_ceil(piece).saturating_mul(piece).min(len);
            range.start / piece * piece..end
        };
        let wanted = wanted.into_iter().filter(|range| range.start < range.end);
        let mut ranges = Vec::new();
        for range in wanted {
            if range.end > len {
                return Err(self.damaged(
                    range.start,
                    format!("bytes up to {} are referenced, beyond its end", range.end),
                ));
            }
            ranges.push(align(range));
        }
        let runs = read_runs(&*self.object, ranges, self.remote)?;
        for run in &runs {
            for (number, bytes) in (run.start / piece..).zip(run.bytes.chunks(PIECE_BYTES)) {
                self.check(number, bytes)?;
            }
        }
        Ok(runs)
    }

    /// Reads and checks the bytes of one range.
    ///
    /// # Errors
    /// As [`CheckedFile::read`].
    pub(super) fn bytes(&self, range: Range<u64>) -> Result<Run, CollectionError> {
        let start = range.start;
        let run = self.read(std::iter::once(range))?.into_iter().next();
        Ok(run.unwrap_or(Run { start, bytes: Bytes::new() }))
    }

    fn check(&self, number: u64, bytes: &[u8]) -> Result<(), CollectionError> {
        let at = 4 * number as usize;
        let expected =
            self.sums.get(at..at + 4).map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]));
        let found = numbered_checksum(self.identity, number, bytes);
        if expected == Some(found) {
            return Ok(());
        }
        let reason = format!("the checksum of {} bytes from there is wrong", bytes.len());
        Err(self.damaged(number * PIECE_BYTES as u64, reason))
    }

    pub(super) fn damaged(&self, byte: u64, reason: String) -> CollectionError {
        CollectionError::damaged(self.path(), format!("byte {byte}"), reason)
    }
}
