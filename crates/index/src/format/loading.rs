//! Reads whole files of an index into memory, and checks them.

use super::manifest::{CodesEntry, FileEntry, Manifest};
use crate::error::IndexError;
use bathyal_kernels::quantize::Codec;
use bathyal_store::{CancelScope, Generation, Object, ObjectExt, StoreError};
use bathyal_tier::TierError;
use bathyal_tier::memory::CACHE_LINE;
use std::mem::MaybeUninit;
use std::thread::Builder;

/// Least bytes per loading thread.
const THREAD_BYTES: usize = 8 << 20;

/// Reads the codec of some codes, and checks that it fits their entry in the manifest.
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
            "it makes codes of {} bytes from {} dimensions, the manifest says {} bytes from {} dimensions",
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
    // One cache line more, so that a tier can move the data to the start of a line.
    let mut bytes = object.allocate(entry.bytes, CACHE_LINE)?;
    bathyal_tier::advise_huge_pages(&mut bytes);
    let found = fill(object.as_ref(), &mut bytes, entry.bytes as usize)?;
    if found != entry.crc32c {
        let reason = format!("checksum {found:08x}, the manifest says {:08x}", entry.crc32c);
        return Err(IndexError::damaged(object.address(), "its content", reason));
    }
    Ok(bytes)
}

/// Reads the first `len` bytes of an object into the capacity of `bytes`, with all processors if there are
/// many bytes. Returns their checksum.
fn fill(object: &dyn Object, bytes: &mut Vec<u8>, len: usize) -> Result<u32, IndexError> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let piece_bytes = object.piece_bytes();
    let share = len.div_ceil(threads).max(THREAD_BYTES).next_multiple_of(piece_bytes);
    let capacity = &mut bytes.spare_capacity_mut()[..len];
    let checksum = std::thread::scope(|scope| {
        let mut shares = capacity.chunks_mut(share).enumerate().map(|(i, out)| ((i * share) as u64, out));
        let first_share = shares.next();
        let failed = |source| TierError::System { operation: "start a thread that loads", source };
        let mut others = Vec::new();
        for (at, out) in shares {
            let len = out.len();
            let cancelling = CancelScope::flag();
            let thread = Builder::new().spawn_scoped(scope, move || {
                let _cancelling = CancelScope::new(cancelling);
                fill_share(object, at, out)
            });
            others.push((len, thread.map_err(failed)?));
        }
        let first = first_share.map_or(Ok(0), |(at, out)| fill_share(object, at, out));
        others.into_iter().fold(first.map_err(IndexError::from), |before, (len, thread)| {
            let share =
                thread.join().map_err(|_| IndexError::Internal("a thread that loads panicked".into()))?;
            Ok(crc32c::crc32c_combine(before?, share?, len))
        })
    })?;
    // SAFETY: no share failed, so each has written all of its bytes, and all shares together are the first
    // `len`.
    unsafe { bytes.set_len(len) };
    Ok(checksum)
}

/// Reads the bytes from `at` on into the whole of `out`. Returns their checksum.
fn fill_share(object: &dyn Object, at: u64, out: &mut [MaybeUninit<u8>]) -> Result<u32, StoreError> {
    let mut checksum = 0;
    let piece_bytes = object.piece_bytes();
    for (i, piece) in out.chunks_mut(piece_bytes).enumerate() {
        piece.fill(MaybeUninit::new(0));
        // SAFETY: the loop above has written every byte of `piece`, and `MaybeUninit<u8>` has the layout of
        // `u8`.
        let piece = unsafe { std::slice::from_raw_parts_mut(piece.as_mut_ptr().cast::<u8>(), piece.len()) };
        object.read_at(at + (i * piece_bytes) as u64, piece)?;
        checksum = crc32c::crc32c_append(checksum, piece);
    }
    Ok(checksum)
}

impl CodesEntry {
    /// Returns a line about the codes, for people.
    pub(crate) fn line(&self) -> (&'static str, String) {
        let what = format!(
            "{} of {} B each, {} bytes in all, in memory while searching",
            self.kind, self.code_bytes, self.file.bytes
        );
        ("codes", what)
    }

    /// Returns the bytes of memory of the trained codec: about twice the bytes of its file, once unpacked.
    pub(crate) fn codec_memory(&self) -> u64 {
        2 * self.codec.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_store::memory::MemoryStore;
    use bathyal_store::{DraftExt, Replace, Store};

    #[test]
    fn the_shares_of_all_threads_make_up_the_file() {
        let draft = MemoryStore::new("memory").begin("index", Replace::Never).expect("begins");
        for len in [0, 1, 256 << 10, 2 * THREAD_BYTES + (256 << 10) + 7] {
            let bytes: Vec<u8> = (0..len).map(|i| (i / 5) as u8).collect();
            draft.put(&format!("of-{len}"), &bytes).expect("writes");
            let object = draft.get(&format!("of-{len}")).expect("is there");
            let mut found = object.allocate(len as u64, CACHE_LINE).expect("memory");
            let checksum = fill(object.as_ref(), &mut found, len).expect("reads");
            assert!(found == bytes && checksum == crc32c::crc32c(&bytes), "{len}");
            assert!(
                fill(object.as_ref(), &mut object.allocate(len as u64, 1).expect("memory"), len + 1).is_err()
            );
        }
    }
}
