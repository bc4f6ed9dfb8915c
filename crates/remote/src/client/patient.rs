//! Waiting that ends soon after its thread is cancelled: for a connection, and for what is said on one.

use super::sockets::{self, Watched};
use bathyal_store::CancelScope;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How often is looked whether the thread was cancelled.
const LOOK: Duration = Duration::from_millis(50);
/// How long a connection is waited for at most, whatever answers are.
const MOST_CONNECT_TIME: Duration = Duration::from_secs(10);

/// Not `Interrupted`, after which others try again.
pub(super) fn cancelled() -> io::Error {
    io::Error::other("cancelled")
}

/// A connection whose reads take `timeout` at most each.
#[derive(Debug)]
pub(super) struct Patient {
    stream: TcpStream,
    timeout: Duration,
}

impl Patient {
    pub(super) fn new(stream: TcpStream, timeout: Duration) -> io::Result<Patient> {
        stream.set_read_timeout(Some(LOOK.min(timeout)))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Patient { stream, timeout })
    }

    /// Sets how long a read takes at most.
    pub(super) fn wait_for(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The connection, which is not waited for any more.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

impl Read for Patient {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let end = Instant::now() + self.timeout;
        loop {
            match self.stream.read(out) {
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                other => return other,
            }
            if CancelScope::is_cancelled() {
                return Err(cancelled());
            }
            if Instant::now() >= end {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Connects to the first of a host's addresses that takes it.
pub(super) fn connect(host: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in host.to_socket_addrs()? {
        match connect_to(address, timeout.min(MOST_CONNECT_TIME)) {
            Ok(stream) => return Ok(stream),
            Err(_) if CancelScope::is_cancelled() => return Err(cancelled()),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// Whether a connection will be had later.
fn is_under_way(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(libc::EINPROGRESS) {
        return true;
    }
    error.kind() == ErrorKind::WouldBlock
}

fn connect_to(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::from(address)) {
        Err(e) if is_under_way(&e) => {}
        Err(e) => return Err(e),
        Ok(()) => {}
    }
    let end = Instant::now() + timeout;
    let mut place = [Watched::of(&socket, false, true)];
    let look = LOOK.min(timeout).max(Duration::from_millis(1));
    while !sockets::wait(&mut place, look) {
        if CancelScope::is_cancelled() {
            return Err(cancelled());
        }
        if Instant::now() >= end {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}
