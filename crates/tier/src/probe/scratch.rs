//! The temporary file that a probe reads: incompressible and on the device.

use crate::backend::file::write_all_at;
use crate::backend::sim::random::SplitMix64;
use crate::buffers::BufferPool;
use crate::error::TierError;
use std::fs::{File, OpenOptions};
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one write: large enough for the full speed of any device, small enough for a prompt cancellation.
const CHUNK: usize = 1 << 20;

/// Bytes that are written even if the time is up.
const LEAST_WRITTEN: u64 = 16 << 20;

/// Returns the bytes free to this process on the file system that holds `path`.
#[cfg(unix)]
pub(super) fn free_bytes(path: &Path) -> Result<u64, TierError> {
    use std::os::unix::ffi::OsStrExt;
    let io = |source| TierError::io("find the free space of", path, source);
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io(std::io::Error::from(std::io::ErrorKind::InvalidInput)))?;
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path is a valid C string and the result has room.
    if unsafe { libc::statvfs(name.as_ptr(), answer.as_mut_ptr()) } != 0 {
        return Err(io(std::io::Error::last_os_error()));
    }
    // SAFETY: zeroed bytes are a valid `statvfs`, and the call has filled them.
    let answer = unsafe { answer.assume_init() };
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)] // 32 bits wide on some systems
    Ok((answer.f_bavail as u64).saturating_mul(answer.f_frsize as u64))
}

/// Returns the bytes free to this user on the volume that holds `path`.
#[cfg(windows)]
pub(super) fn free_bytes(path: &Path) -> Result<u64, TierError> {
    use std::os::windows::ffi::OsStrExt;
    let name: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    let (mut free, none) = (0, std::ptr::null_mut());
    // SAFETY: the name ends in a zero, the result has room, and the other results are optional.
    let succeeded = unsafe {
        windows_sys::Win32::Storage::FileSystem::GetDiskFreeSpaceExW(name.as_ptr(), &mut free, none, none)
    };
    match succeeded {
        0 => Err(TierError::io("find the free space of", path, std::io::Error::last_os_error())),
        _ => Ok(free),
    }
}

/// A temporary file, whose name is removed when this is dropped.
pub(super) struct ScratchFile {
    path: PathBuf,
}

impl ScratchFile {
    /// Writes up to `bytes` random bytes into a new file in `directory`, for about `time` at most, and syncs
    /// them, so that no write disturbs the reads.
    pub(super) fn write(
        directory: &Path,
        bytes: u64,
        time: Duration,
        progress: &dyn Fn(f64) -> bool,
    ) -> Result<ScratchFile, TierError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".bathyal-probe-{}-{number}", std::process::id()));
        let file = create(&path).map_err(|e| TierError::io("create", &path, e))?;
        let scratch = ScratchFile { path };
        scratch.fill(&file, bytes, time, progress)?;
        file.sync_data().map_err(|e| TierError::io("sync", &scratch.path, e))?;
        Ok(scratch)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn fill(
        &self,
        file: &File,
        bytes: u64,
        time: Duration,
        progress: &dyn Fn(f64) -> bool,
    ) -> Result<(), TierError> {
        let start = Instant::now();
        let mut pool = BufferPool::new(1, CHUNK, 0, crate::BUFFER_ALIGNMENT);
        let Some(buffer) = pool.take(CHUNK) else { return Ok(()) };
        // SAFETY: the pool's buffer has this many bytes, zeroed, and nothing else uses them while the pool
        // exists.
        let chunk = unsafe { std::slice::from_raw_parts_mut(buffer.start.as_ptr(), CHUNK) };
        let mut random = SplitMix64::new(0x5C2A_7C8F, std::process::id().into());
        let mut written = 0;
        while written < bytes && (written < LEAST_WRITTEN || start.elapsed() < time) {
            if !progress(written as f64 / bytes as f64) {
                return Err(TierError::Cancelled);
            }
            chunk.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
            write_all_at(file, chunk, written).map_err(|e| TierError::io("write", &self.path, e))?;
            written += CHUNK as u64;
        }
        Ok(())
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // It fails if the file was removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Creates a new file, with O_DIRECT if the file system supports it.
fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    #[cfg(target_os = "linux")]
    match options.clone().custom_flags(libc::O_DIRECT).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            // Some file systems create the file before they refuse the flag.
            let _ = std::fs::remove_file(path);
        }
        other => return other,
    }
    options.open(path)
}
