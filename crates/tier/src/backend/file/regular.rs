//! Opens regular files only: a pipe in place of a file would block its reader forever.

use std::fs::{File, FileType, OpenOptions};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens the regular file at `path` with `options` and the system's `flags`. Never blocks.
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidInput`] for a folder, a pipe, a socket or a device.
#[cfg(unix)]
pub fn open_regular(path: impl AsRef<Path>, options: &OpenOptions, flags: i32) -> io::Result<File> {
    // With this flag, opening a pipe without a writer returns at once; without it, it blocks.
    let opened = options.clone().custom_flags(flags | libc::O_NONBLOCK).open(&path);
    let file = opened.map_err(|error| match path.as_ref().metadata() {
        // A socket, or a pipe opened for writing, refuses the flag.
        Ok(found) if !found.is_file() => refusal(found.file_type()),
        _ => error,
    })?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() {
        return Err(refusal(kind));
    }
    clear_nonblocking(&file, flags)?;
    Ok(file)
}

/// Opens the regular file at `path` with `options`. `flags` are flags of Unix, and must be 0 on this system.
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidInput`] for anything but a regular file. On this system, paths
/// of files do not lead to pipes.
#[cfg(not(unix))]
pub fn open_regular(path: impl AsRef<Path>, options: &OpenOptions, flags: i32) -> io::Result<File> {
    debug_assert_eq!(flags, 0);
    let found = path.as_ref().metadata();
    let opened = options.open(&path).map_err(|error| match found {
        Ok(found) if !found.is_file() => refusal(found.file_type()),
        _ => error,
    });
    let file = opened?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() { Ok(file) } else { Err(refusal(kind)) }
}

fn refusal(kind: FileType) -> io::Error {
    let what = match kind {
        kind if kind.is_dir() => "a folder",
        #[cfg(unix)]
        kind if kind.is_fifo() => "a pipe",
        #[cfg(unix)]
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a file"))
}

/// Clears `O_NONBLOCK`: with it, io_uring would fail reads that have to wait for the device.
#[cfg(unix)]
fn clear_nonblocking(file: &File, flags: i32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open, and setting its flags touches no memory.
    let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn only_regular_files_are_opened_and_opening_never_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, b"bytes").unwrap();
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        std::os::unix::fs::symlink(&file, folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink(&pipe, folder.path().join("link to a pipe")).unwrap();
        let read = |path: &Path| open_regular(path, OpenOptions::new().read(true), 0);
        assert_eq!(io::read_to_string(read(&file).unwrap()).unwrap(), "bytes");
        assert_eq!(io::read_to_string(read(&folder.path().join("link")).unwrap()).unwrap(), "bytes");
        for (path, what) in [
            (pipe.clone(), "a pipe"),
            (folder.path().join("link to a pipe"), "a pipe"),
            (folder.path().to_path_buf(), "a folder"),
            ("/dev/null".into(), "a device"),
        ] {
            let error = read(&path).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
        let error = open_regular(&pipe, OpenOptions::new().write(true), 0).unwrap_err();
        assert!(error.to_string().contains("a pipe"), "{error}");
        assert_eq!(read(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
