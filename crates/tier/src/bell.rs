//! What ends a wait for sockets from another thread: the two ends of one connection within the process.

use std::io;

/// An end of a pair of bells: what is written to one is heard at the other.
#[cfg(unix)]
pub type Bell = std::os::unix::net::UnixStream;
/// An end of a pair of bells: what is written to one is heard at the other.
#[cfg(windows)]
pub type Bell = std::net::TcpStream;

/// A connected pair, neither end of which blocks.
///
/// # Errors
/// Whatever the system says.
pub fn bells() -> io::Result<(Bell, Bell)> {
    let (one, other) = pair()?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((one, other))
}

#[cfg(unix)]
fn pair() -> io::Result<(Bell, Bell)> {
    Bell::pair()
}

/// This system pairs no sockets but by connecting them, which is done within the machine.
#[cfg(windows)]
fn pair() -> io::Result<(Bell, Bell)> {
    let meeting = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    let one = Bell::connect(meeting.local_addr()?)?;
    one.set_nodelay(true)?;
    loop {
        let (other, from) = meeting.accept()?;
        // Whoever else connects is not meant.
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
    fn what_rings_is_heard_and_nothing_is_waited_for() {
        let (mut one, mut other) = bells().unwrap();
        assert_eq!(one.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        other.write_all(&[7]).unwrap();
        let mut heard = [0; 8];
        let got = loop {
            match one.read(&mut heard) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                got => break got.unwrap(),
            }
        };
        assert_eq!(&heard[..got], [7]);
    }
}
