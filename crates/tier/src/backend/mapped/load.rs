//! Fills a region in parallel, reads every byte back, and compares checksums.

use super::region::Mapping;
use crate::backend::file::{open_regular, read_exact_at};
use crate::backend::sim::random::mix;
use crate::error::TierError;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes copied between two checks for cancellation; memory behind an emulated link takes half a second for
/// them.
const CHUNK: usize = 256 << 10;
/// Maximum number of copying threads; more do not make loading faster.
const MOST_THREADS: usize = 8;

/// The bytes to load, and the length and checksum that identify them.
#[derive(Debug, Clone)]
pub struct LoadSource<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its length in bytes.
    pub len: u64,
    /// CRC-32C of all bytes.
    pub crc32c: u32,
}

/// Progress event of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadEvent {
    /// A stage begins, with its number of bytes: "loading", "verifying", or "waiting" for another process
    /// that loads.
    Begin(&'static str, u64),
    /// Number of bytes of the stage that are done.
    Done(u64),
}

/// Callback that receives the events of a load, from any of its threads, and returns false to cancel.
pub type LoadProgress<'a> = &'a (dyn Fn(LoadEvent) -> bool + Sync);

/// Callback that fills the buffer with the content's bytes from the given offset on. Called from any thread.
pub type Fill<'a> = &'a (dyn Fn(u64, &mut [u8]) -> Result<(), TierError> + Sync);

/// Opens a source. Returns a callback that fills a region from it.
pub(super) fn from_file<'a>(
    source: &'a LoadSource<'_>,
) -> Result<impl Fn(u64, &mut [u8]) -> Result<(), TierError> + Sync + use<'a>, TierError> {
    let file = open_regular(source.path, File::options().read(true), 0);
    let file = file.map_err(|e| TierError::io("open", source.path, e))?;
    Ok(move |offset, bytes: &mut [u8]| {
        read_exact_at(&file, bytes, offset).map_err(|e| TierError::io("read", source.path, e))
    })
}

/// Fills a buffer with pseudo-random bytes that differ in every cache line.
pub(super) fn fill_with_noise(offset: u64, bytes: &mut [u8]) -> Result<(), TierError> {
    for (word, number) in bytes.chunks_mut(8).zip(offset / 8..) {
        word.copy_from_slice(&mix(number).to_le_bytes()[..word.len()]);
    }
    Ok(())
}

/// Fills `len` bytes of `mapping` from `skip` on, and reads them back. Returns the CRC-32C of the written
/// bytes.
///
/// # Errors
/// [`TierError::Parameter`] if the memory is lost or does not hold the written bytes;
/// [`TierError::Cancelled`]; errors of `fill`.
pub(super) fn fill(
    mapping: &Mapping,
    skip: usize,
    len: usize,
    fill: Fill<'_>,
    progress: LoadProgress<'_>,
) -> Result<u32, TierError> {
    if !progress(LoadEvent::Begin("loading", len as u64)) {
        return Err(TierError::Cancelled);
    }
    // The address as a number, which threads may share; the mapping outlives them.
    let start = mapping.start() as usize + skip;
    in_parallel(len, progress, |offset, buffer| {
        fill(offset as u64, buffer)?;
        let expected = crc32c::crc32c(buffer);
        // SAFETY: only this thread writes to this chunk of a writable mapping, and nothing reads it yet.
        unsafe { write_through(buffer, (start + offset) as *mut u8) };
        // SAFETY: the bytes that were just written.
        let written = unsafe { std::slice::from_raw_parts((start + offset) as *const u8, buffer.len()) };
        let found = crc32c::crc32c(written);
        if let Some(lost) = mapping.lost() {
            return Err(TierError::Parameter(format!(
                "the memory could not be written at offset {lost}: it is full, was removed or is damaged"
            )));
        }
        if found != expected {
            return Err(TierError::Parameter(format!(
                "the bytes read back at offset {} differ from those written: the memory is damaged, or \
                 another process writes there",
                skip + offset
            )));
        }
        Ok(expected)
    })
}

/// Returns the CRC-32C of bytes in memory.
pub(super) fn checksum(bytes: &[u8], progress: LoadProgress<'_>) -> Result<u32, TierError> {
    if !progress(LoadEvent::Begin("verifying", bytes.len() as u64)) {
        return Err(TierError::Cancelled);
    }
    in_parallel(bytes.len(), progress, |offset, buffer| Ok(crc32c::crc32c(&bytes[offset..][..buffer.len()])))
}

/// Does `work` on all chunks of `len` bytes, on several threads. `work` receives the chunk's offset and a
/// buffer of its length, and returns a checksum. Returns the combined checksum.
fn in_parallel(
    len: usize,
    progress: LoadProgress<'_>,
    work: impl Fn(usize, &mut [u8]) -> Result<u32, TierError> + Sync,
) -> Result<u32, TierError> {
    let chunks = len.div_ceil(CHUNK);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let (stop, failure) = (AtomicBool::new(false), Mutex::new(None));
    let checksums = Mutex::new(vec![0_u32; chunks]);
    let worker = || {
        let mut buffer = vec![0_u8; CHUNK.min(len)];
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed) as usize;
            if number >= chunks {
                return;
            }
            let offset = number * CHUNK;
            let part = CHUNK.min(len - offset);
            let outcome = work(offset, &mut buffer[..part]).and_then(|found| {
                let now = done.fetch_add(part as u64, Ordering::Relaxed) + part as u64;
                if progress(LoadEvent::Done(now)) { Ok(found) } else { Err(TierError::Cancelled) }
            });
            match outcome {
                Ok(found) => {
                    if let Ok(mut checksums) = checksums.lock() {
                        checksums[number] = found;
                    }
                }
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    if let Ok(mut failure) = failure.lock() {
                        failure.get_or_insert(error);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        // One thread less, since this one works, too, and works alone if no other can be started.
        for _ in 1..cores.min(MOST_THREADS).min(chunks) {
            let _ = std::thread::Builder::new().name("bathyal-load".into()).spawn_scoped(scope, worker);
        }
        worker();
    });
    let poisoned = |_| TierError::Contract("a loading thread panicked".into());
    if let Some(error) = failure.into_inner().map_err(|_| poisoned(()))? {
        return Err(error);
    }
    let checksums = checksums.into_inner().map_err(|_| poisoned(()))?;
    let parts = checksums.iter().enumerate();
    Ok(parts
        .fold(0, |sum, (number, part)| crc32c::crc32c_combine(sum, *part, CHUNK.min(len - number * CHUNK))))
}

/// Copies `from` to `to` past the caches. On x86-64 the stores have the width that suits emulated links and
/// persistent memory, and have left the processor when this returns. On other processors it is a plain copy.
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes, which nothing else touches, and is a multiple of 16.
pub(super) unsafe fn write_through(from: &[u8], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64; every store is within the caller's bytes, and aligned by the caller's
    // promise.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_clflush, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        let whole = from.len() / 16 * 16;
        for at in (0..whole).step_by(16) {
            _mm_stream_si128(to.add(at).cast(), _mm_loadu_si128(from.as_ptr().add(at).cast::<__m128i>()));
        }
        if whole < from.len() {
            std::ptr::copy_nonoverlapping(from.as_ptr().add(whole), to.add(whole), from.len() - whole);
            _mm_clflush(to.add(whole));
        }
        _mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len())
    };
}
