//! Reads and writes at an offset, from any thread, by the calls of Unix or Windows.

use std::fs::File;
use std::io;

/// Reads at `offset` with one system call. Returns the number of bytes read, at most `out.len()`.
///
/// # Errors
/// The system's error.
pub fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, out, offset);
    // This call moves the file's position, which is not used.
    #[cfg(windows)]
    match std::os::windows::fs::FileExt::seek_read(file, out, offset) {
        // At the end of a file, Unix returns 0.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        done => done,
    }
}

/// Writes at `offset` with one system call. Returns the number of bytes written.
///
/// # Errors
/// The system's error.
pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_at(file, bytes, offset);
    #[cfg(windows)]
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

/// Fills `out` with the bytes from `offset` on.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if the file is too short; the system's errors.
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
/// [`io::ErrorKind::WriteZero`] if the system writes no more bytes; the system's errors.
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
    fn written_bytes_are_read_back_and_reads_stop_at_the_end() {
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
