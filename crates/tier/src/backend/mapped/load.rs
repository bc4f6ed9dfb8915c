//! Filling a region: in parallel, with every byte read back and compared by checksum.

use super::region::Mapping;
use crate::backend::file::{open_regular, read_exact_at};
use crate::backend::sim::random::mix;
use crate::error::TierError;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes copied between two looks at whether to go on; memory behind an emulated link takes half a second for them.
const CHUNK: usize = 256 << 10;
/// Threads that copy; more do not make a memory faster.
const MOST_THREADS: usize = 8;

/// The bytes to load, and how to know them again.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its length in bytes.
    pub len: u64,
    /// CRC-32C of all of it.
    pub crc32c: u32,
}

/// What the loader says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadEvent {
    /// A stage of so many bytes begins: "loading", "verifying", or "waiting" for another process that loads.
    Begin(&'static str, u64),
    /// So many bytes of the stage are done.
    Done(u64),
}

/// Hears what the loader does, from any of its threads, and says whether it should go on.
pub type GoOn<'a> = &'a (dyn Fn(LoadEvent) -> bool + Sync);

/// Writes the part of the content that begins at the offset into the buffer, from any thread.
pub type Fill<'a> = &'a (dyn Fn(u64, &mut [u8]) -> Result<(), TierError> + Sync);

/// Opens a source: what fills a region from it.
pub(super) fn from_file<'a>(
    source: &'a Source<'_>,
) -> Result<impl Fn(u64, &mut [u8]) -> Result<(), TierError> + Sync + use<'a>, TierError> {
    let file = open_regular(source.path, File::options().read(true), 0);
    let file = file.map_err(|e| TierError::io("open", source.path, e))?;
    Ok(move |offset, bytes: &mut [u8]| {
        read_exact_at(&file, bytes, offset).map_err(|e| TierError::io("read", source.path, e))
    })
}

/// Bytes without any meaning, of which no two lines are alike.
pub(super) fn noise(offset: u64, bytes: &mut [u8]) -> Result<(), TierError> {
    for (word, number) in bytes.chunks_mut(8).zip(offset / 8..) {
        word.copy_from_slice(&mix(number).to_le_bytes()[..word.len()]);
    }
    Ok(())
}

/// Fills `len` bytes of `mapping` from `skip` on, and returns the CRC-32C of what was given to it, after having found
/// that it holds just that.
pub(super) fn fill(
    mapping: &Mapping,
    skip: usize,
    len: usize,
    fill: Fill<'_>,
    go_on: GoOn<'_>,
) -> Result<u32, TierError> {
    if !go_on(LoadEvent::Begin("loading", len as u64)) {
        return Err(TierError::Cancelled);
    }
    // Addresses as numbers, which threads may share; the mapping outlives them.
    let to = mapping.start() as usize + skip;
    in_parallel(len, go_on, |offset, buffer| {
        fill(offset as u64, buffer)?;
        let wanted = crc32c::crc32c(buffer);
        // SAFETY: this chunk of a writable mapping is this thread's alone, and nobody reads it yet.
        unsafe { write_through(buffer, (to + offset) as *mut u8) };
        // SAFETY: the bytes that were just written.
        let written = unsafe { std::slice::from_raw_parts((to + offset) as *const u8, buffer.len()) };
        let found = crc32c::crc32c(written);
        if let Some(lost) = mapping.lost() {
            return Err(TierError::Parameter(format!(
                "the memory could not be written at offset {lost}: it is full, was taken away or is damaged"
            )));
        }
        if found != wanted {
            return Err(TierError::Parameter(format!(
                "the memory does not hold what was written to it at offset {}; it is damaged or someone else writes there",
                skip + offset
            )));
        }
        Ok(wanted)
    })
}

/// The CRC-32C of bytes in memory.
pub(super) fn checksum(bytes: &[u8], go_on: GoOn<'_>) -> Result<u32, TierError> {
    if !go_on(LoadEvent::Begin("verifying", bytes.len() as u64)) {
        return Err(TierError::Cancelled);
    }
    in_parallel(bytes.len(), go_on, |offset, buffer| Ok(crc32c::crc32c(&bytes[offset..][..buffer.len()])))
}

/// Does `work`, which returns a checksum, on all chunks of `len` bytes, and joins the checksums. It is given the
/// chunk's offset and a buffer of its length.
fn in_parallel(
    len: usize,
    go_on: GoOn<'_>,
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
                if go_on(LoadEvent::Done(now)) { Ok(found) } else { Err(TierError::Cancelled) }
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
        // One less: this thread works too, so that there is one where no other can be had.
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

/// Copies `from` to `to` past the caches, in stores as wide as the emulated links and persistent memories of
/// x86-64 like them; what is written has left the processor when this returns. Elsewhere it is a plain copy.
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes, which nobody else touches, and is a multiple of 16.
pub(super) unsafe fn write_through(from: &[u8], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64; every store is within the caller's bytes and aligned as it promised.
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
    // SAFETY: as the caller promised.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len())
    };
}
