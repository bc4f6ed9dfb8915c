//! Opening files that are files: a pipe in place of one would keep its reader waiting for ever.

use std::fs::{File, FileType, OpenOptions};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens the regular file at `path`, with what `options` ask for and the system's `flags`.
///
/// # Errors
/// Whatever the system says; [`io::ErrorKind::InvalidInput`] for a folder, a pipe, a socket or a device, at once: none
/// of them is waited for.
#[cfg(unix)]
pub fn open_regular(path: impl AsRef<Path>, options: &OpenOptions, flags: i32) -> io::Result<File> {
    // A pipe that nobody writes to is opened at once with this flag, and never without it.
    let opened = options.clone().custom_flags(flags | libc::O_NONBLOCK).open(&path);
    let file = opened.map_err(|error| match path.as_ref().metadata() {
        // What refuses to be opened that way is no file either: a socket, a pipe to be written to.
        Ok(found) if !found.is_file() => refusal(found.file_type()),
        _ => error,
    })?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() {
        return Err(refusal(kind));
    }
    wait(&file, flags)?;
    Ok(file)
}

/// Opens the regular file at `path`, with what `options` ask for; `flags` are those of Unix, and 0 here.
///
/// # Errors
/// Whatever the system says; [`io::ErrorKind::InvalidInput`] for what is no file. Pipes have no names among files here.
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

/// Takes `O_NONBLOCK` back: with it io_uring would give up reads that have to wait for the device.
#[cfg(unix)]
fn wait(file: &File, flags: i32) -> io::Result<()> {
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
    fn only_files_are_opened_and_nothing_is_waited_for() {
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
