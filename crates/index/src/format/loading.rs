//! Reading whole files of an index into memory, checked.

use super::manifest::{CodesEntry, FileEntry, Manifest};
use crate::error::IndexError;
use bathyal_kernels::quantize::Codec;
use bathyal_store::{Generation, ObjectExt, ObjectReader, StoreError};
use bathyal_tier::memory::CACHE_LINE;
use std::io::Read;

/// Reads the codec of some codes, and compares it with what is said of them.
pub(crate) fn load_codec(
    directory: &dyn Generation,
    manifest: &Manifest,
    codes: &CodesEntry,
) -> Result<Codec, IndexError> {
    let entry = &codes.codec;
    let codec = Codec::from_bytes(&load(directory, manifest, entry)?).map_err(|e| {
        IndexError::damaged(directory.address().join(&entry.name), "the codec", e.to_string())
    })?;
    if codec.dim() != manifest.dim as usize || codec.code_bytes() != codes.code_bytes as usize {
        let reason = format!(
            "it makes codes of {} bytes from {} dimensions, the manifest says {} from {}",
            codec.code_bytes(),
            codec.dim(),
            codes.code_bytes,
            manifest.dim
        );
        return Err(IndexError::damaged(directory.address().join(&entry.name), "the codec", reason));
    }
    Ok(codec)
}

/// Reads a whole file of the index into memory and checks its checksum.
pub(crate) fn load(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &FileEntry,
) -> Result<Vec<u8>, IndexError> {
    let object = manifest.open_file(directory, entry)?;
    // A line more, so that a tier can move it to the start of one.
    let mut bytes = object.room(entry.bytes, CACHE_LINE)?;
    bathyal_tier::advise_huge_pages(&mut bytes);
    let read = ObjectReader::new(object.clone()).read_to_end(&mut bytes);
    read.map_err(|e| StoreError::io("read", object.address(), e))?;
    let found = crc32c::crc32c(&bytes);
    if bytes.len() as u64 != entry.bytes || found != entry.crc32c {
        let reason = format!("checksum {found:08x}, the manifest says {:08x}", entry.crc32c);
        return Err(IndexError::damaged(object.address(), "its content", reason));
    }
    Ok(bytes)
}

impl CodesEntry {
    /// What is said of them to people.
    pub(crate) fn line(&self) -> (&'static str, String) {
        let what = format!(
            "{} of {} B each, {} bytes in all, in memory while searching",
            self.kind, self.code_bytes, self.file.bytes
        );
        ("codes", what)
    }

    /// Bytes of memory of the trained codec: about twice its file once unpacked.
    pub(crate) fn codec_memory(&self) -> u64 {
        2 * self.codec.bytes
    }
}
