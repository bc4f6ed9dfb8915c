//! Socket pairs that end a wait for sockets from another thread: a byte written to one end makes the other
//! readable.

use std::io;

/// One end of a connected pair of sockets within the process.
#[cfg(unix)]
pub type WakeSocket = std::os::unix::net::UnixStream;
/// One end of a connected pair of sockets within the process.
#[cfg(windows)]
pub type WakeSocket = std::net::TcpStream;

/// Makes a connected pair of sockets, neither of which blocks.
///
/// # Errors
/// The system's error.
pub fn wake_sockets() -> io::Result<(WakeSocket, WakeSocket)> {
    let (one, other) = pair()?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((one, other))
}

#[cfg(unix)]
fn pair() -> io::Result<(WakeSocket, WakeSocket)> {
    WakeSocket::pair()
}

/// Makes a connection within the machine: Windows has no other pair of sockets.
#[cfg(windows)]
fn pair() -> io::Result<(WakeSocket, WakeSocket)> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    let one = WakeSocket::connect(listener.local_addr()?)?;
    one.set_nodelay(true)?;
    loop {
        let (other, from) = listener.accept()?;
        // Another process may connect first; its connection is dropped.
        if from == one.local_addr()? {
            other.set_nodelay(true)?;
            return Ok((one, other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_byte_written_to_one_end_arrives_at_the_other_and_reads_do_not_block() {
        let (mut one, mut other) = wake_sockets().unwrap();
        assert_eq!(one.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        other.write_all(&[7]).unwrap();
        let mut bytes = [0; 8];
        let got = loop {
            match one.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                got => break got.unwrap(),
            }
        };
        assert_eq!(&bytes[..got], [7]);
    }
}
