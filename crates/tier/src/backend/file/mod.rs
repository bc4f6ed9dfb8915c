//! Files, read past the page cache: through io_uring if the kernel allows it, else by positioned reads on a
//! few threads.
//!
//! Opening a file finds out whether O_DIRECT and io_uring are available. The alignment for O_DIRECT comes
//! from the file system (`STATX_DIOALIGN`).

mod at;
mod positioned;
mod regular;
#[cfg(target_os = "linux")]
mod uring;

pub use at::{read_at, read_exact_at, write_all_at, write_at};
pub use regular::open_regular;

use crate::contract::{Queue, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use std::fs::File;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Alignment for O_DIRECT on kernels before 6.1, which do not report it: a page suits all file systems.
const UNKNOWN_ALIGNMENT: u32 = 4096;

/// System interface that reads a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// io_uring if it works on this system, else positioned reads.
    #[default]
    Probe,
    /// io_uring or an error.
    Uring,
    /// Positioned reads on a pool of threads.
    Positioned,
}

/// Options of [`FileTier::open`].
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// System interface that reads.
    pub method: Method,
    /// True to bypass the page cache (O_DIRECT) if the file system can; reads are then cold, and the index
    /// takes no page-cache memory.
    pub direct: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions { method: Method::Probe, direct: true }
    }
}

/// A file as a tier.
#[derive(Debug)]
pub struct FileTier {
    file: Arc<File>,
    path: PathBuf,
    len: u64,
    #[cfg(target_os = "linux")]
    uring: bool,
    direct: bool,
    profile: TierProfile,
}

impl FileTier {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// [`TierError::Io`] if the file cannot be opened; with [`Method::Uring`], also the errors of setting up
    /// io_uring.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> Result<FileTier, TierError> {
        let path = path.as_ref().to_path_buf();
        let (file, direct) = open_file(&path, options.direct)?;
        let len = file.metadata().map_err(|e| TierError::io("read the length of", &path, e))?.len();
        let alignment = if direct { direct_alignment(&file) } else { 1 };
        let uring = choose(options.method)?;
        let method = format!(
            "{}, {}",
            if uring { "io_uring" } else { "positioned reads" },
            if direct { "O_DIRECT" } else { "page cache" }
        );
        let profile = TierProfile {
            kind: "file".into(),
            method,
            granularity: alignment.max(512),
            alignment,
            addressable: false,
            latency_ns: 0,
            iops: 0.0,
            bandwidth_bytes_per_s: 0.0,
            depth: 128,
            issue_ns: 0,
            rates: Vec::new(),
        };
        Ok(FileTier {
            file: Arc::new(file),
            path,
            len,
            #[cfg(target_os = "linux")]
            uring,
            direct,
            profile,
        })
    }

    /// Returns true if reads bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Tier for FileTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        #[cfg(target_os = "linux")]
        if self.uring {
            return Ok(Box::new(uring::UringQueue::new(self.file.clone(), self.len, depth)?));
        }
        Ok(Box::new(positioned::PositionedQueue::new(self.file.clone(), self.len, depth)?))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}

/// Opens a file, with O_DIRECT if `direct` is true and the file system accepts it (tmpfs and some network
/// file systems do not). Returns the file, and whether it was opened with O_DIRECT.
fn open_file(path: &Path, direct: bool) -> Result<(File, bool), TierError> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    #[cfg(target_os = "linux")]
    if direct {
        match open_regular(path, &options, libc::O_DIRECT) {
            Ok(file) => return Ok((file, true)),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Err(e) => return Err(TierError::io("open", path, e)),
        }
    }
    let _ = direct;
    Ok((open_regular(path, &options, 0).map_err(|e| TierError::io("open", path, e))?, false))
}

/// Returns the larger of the memory and offset alignments that the file system requires for O_DIRECT, in
/// bytes.
fn direct_alignment(file: &File) -> u32 {
    #[cfg(target_os = "linux")]
    {
        let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: the descriptor is open, the path is a valid empty C string, and the result has room.
        let failed = unsafe {
            libc::statx(
                file.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                libc::STATX_DIOALIGN,
                answer.as_mut_ptr(),
            )
        };
        // SAFETY: zeroed bytes are a valid `statx`, whether or not the call filled them.
        let answer = unsafe { answer.assume_init() };
        if failed == 0 && answer.stx_mask & libc::STATX_DIOALIGN != 0 && answer.stx_dio_offset_align > 0 {
            return answer.stx_dio_offset_align.max(answer.stx_dio_mem_align);
        }
    }
    let _ = file;
    UNKNOWN_ALIGNMENT
}

fn choose(method: Method) -> Result<bool, TierError> {
    if method == Method::Positioned {
        return Ok(false);
    }
    #[cfg(target_os = "linux")]
    let outcome = uring::probe();
    #[cfg(not(target_os = "linux"))]
    let outcome: Result<(), TierError> = Err(TierError::Parameter("io_uring exists on Linux only".into()));
    match (outcome, method) {
        (Ok(()), _) => Ok(true),
        (Err(_), Method::Probe) => Ok(false),
        (Err(e), _) => Err(e),
    }
}
