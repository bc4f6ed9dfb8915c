//! The medium of a path: a DAX device, or a file and its file system.

#[cfg(unix)]
use super::numa::read_number;
use super::region::page_bytes;
use crate::error::TierError;
use std::fs::File;
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Alignment of a device whose alignment the system does not report.
#[cfg(unix)]
const DEVICE_ALIGNMENT: usize = 2 << 20;

#[cfg(target_os = "linux")]
const TMPFS: u64 = 0x0102_1994;
#[cfg(target_os = "linux")]
const HUGETLBFS: u64 = 0x9584_58F6;

/// A kind of shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Medium {
    /// Bytes of the device; `None` for a file, which grows as needed.
    pub(super) device_bytes: Option<u64>,
    /// Page size in bytes: lengths of mappings are multiples of it, and it can be replaced on its own.
    pub(super) granule: usize,
    /// The file system's type number.
    system: u64,
}

impl Medium {
    /// Returns the medium of an open file or device.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if it is neither a file nor a DAX device.
    pub(super) fn of(file: &File, path: &Path) -> Result<Medium, TierError> {
        let metadata = file.metadata().map_err(|e| TierError::io("read the metadata of", path, e))?;
        #[cfg(unix)]
        if metadata.file_type().is_char_device() {
            return Medium::of_device(metadata.rdev(), path);
        }
        if !metadata.is_file() {
            let what = format!("{}: this is neither a file, a folder nor a DAX device", path.display());
            return Err(TierError::Parameter(what));
        }
        let (system, page) = file_system(file);
        #[cfg(target_os = "linux")]
        if system == HUGETLBFS {
            return Ok(Medium { device_bytes: None, granule: page.max(page_bytes()), system });
        }
        let _ = page;
        Ok(Medium { device_bytes: None, granule: page_bytes(), system })
    }

    /// Returns the medium of a character device from its description in `/sys`: `fstat` reports 0 bytes, and
    /// the device has no `read`.
    #[cfg(unix)]
    fn of_device(number: u64, path: &Path) -> Result<Medium, TierError> {
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)] // of other widths on other systems
        let (major, minor) =
            (libc::major(number as libc::dev_t) as u64, libc::minor(number as libc::dev_t) as u64);
        let description = std::path::PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
        let Some(size) = read_number(&description.join("size")).filter(|size| *size > 0) else {
            return Err(TierError::Parameter(format!(
                "{}: this character device ({major}:{minor}) has no size in {}; only DAX devices \
                 (/dev/daxX.Y) can be mapped",
                path.display(),
                description.display()
            )));
        };
        let alignment = read_number(&description.join("align")).and_then(|bytes| usize::try_from(bytes).ok());
        let granule = alignment.filter(|bytes| bytes.is_power_of_two()).unwrap_or(DEVICE_ALIGNMENT);
        Ok(Medium { device_bytes: Some(size), granule: granule.max(page_bytes()), system: 0 })
    }

    /// Returns a description of the medium. `synchronous` is true if the file system granted MAP_SYNC.
    pub(super) fn describe(&self, synchronous: bool) -> String {
        if self.device_bytes.is_some() {
            return format!("DAX device, pages of {} KiB", self.granule >> 10);
        }
        #[cfg(target_os = "linux")]
        match self.system {
            TMPFS => return "tmpfs, which is DRAM".into(),
            HUGETLBFS => return format!("hugetlbfs, pages of {} KiB", self.granule >> 10),
            _ => {}
        }
        match synchronous {
            true => "DAX file system, MAP_SYNC".into(),
            false => "file system without DAX: through the page cache".into(),
        }
    }
}

/// Returns type number and block size of the file system that holds `file`; zeros if the system does not
/// report them.
#[cfg(target_os = "linux")]
fn file_system(file: &File) -> (u64, usize) {
    use std::os::fd::AsRawFd;
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open and the result has room.
    if unsafe { libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) } != 0 {
        return (0, 0);
    }
    // SAFETY: zeroed bytes are a valid `statfs`, and the call has filled them.
    let answer = unsafe { answer.assume_init() };
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)] // of other widths on other systems
    (answer.f_type as u64 & 0xFFFF_FFFF, answer.f_bsize as usize)
}

#[cfg(not(target_os = "linux"))]
fn file_system(_file: &File) -> (u64, usize) {
    (0, 0)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn files_are_distinguished_from_devices_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "bytes").unwrap();
        let medium = Medium::of(&File::open(&path).unwrap(), &path).unwrap();
        assert_eq!((medium.device_bytes, medium.granule), (None, page_bytes()));
        let refused = |path: &Path| Medium::of(&File::open(path).unwrap(), path).unwrap_err().to_string();
        assert!(refused(Path::new("/dev/null")).contains("only DAX devices"));
        assert!(refused(folder.path()).contains("neither a file"));
    }
}
