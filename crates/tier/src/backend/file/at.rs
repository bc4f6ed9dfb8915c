//! Reads and writes at an offset, from any thread: one call on Unix, another on Windows.

use std::fs::File;
use std::io;

/// Reads at `offset` what one call of the system gives, at most `out.len()` bytes.
///
/// # Errors
/// Whatever the system says.
pub fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, out, offset);
    // The file's own position moves too, which nobody here goes by.
    #[cfg(windows)]
    match std::os::windows::fs::FileExt::seek_read(file, out, offset) {
        // Unix says so by a read of nothing.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        done => done,
    }
}

/// Writes at `offset` what one call of the system takes.
///
/// # Errors
/// Whatever the system says.
pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_at(file, bytes, offset);
    #[cfg(windows)]
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

/// Fills `out` with the bytes from `offset` on.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] where the file is too short; whatever the system says.
pub fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !out.is_empty() {
        match read_at(file, out, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                out = &mut out[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `bytes` from `offset` on.
///
/// # Errors
/// [`io::ErrorKind::WriteZero`] where the system takes nothing more; whatever it says.
pub fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match write_at(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_an_end_is_said() {
        let file = tempfile::tempfile().unwrap();
        write_all_at(&file, b"positioned", 3).unwrap();
        let mut out = [1; 13];
        read_exact_at(&file, &mut out, 0).unwrap();
        assert_eq!(&out, b"\0\0\0positioned");
        assert_eq!(read_at(&file, &mut out, 10).unwrap(), 3);
        assert_eq!(read_at(&file, &mut out, 13).unwrap(), 0);
        assert_eq!(read_at(&file, &mut out, 1 << 40).unwrap(), 0);
        assert_eq!(read_exact_at(&file, &mut out, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(read_exact_at(&file, &mut [], 99).is_ok());
    }
}
