//! Blocking connections whose connecting, reads and writes end soon after their thread is cancelled.

use super::sockets::{self, PolledSocket};
use bathyal_store::CancelScope;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Interval between checks for cancellation of the thread.
const CANCEL_CHECK: Duration = Duration::from_millis(50);
/// Maximum time to wait for a connection, whatever the timeout of replies is.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(10);

/// Returns the error of a cancelled operation. Its kind is not `Interrupted`, after which callers would
/// retry.
pub(super) fn cancelled() -> io::Error {
    io::Error::other("cancelled")
}

/// A connection whose reads end after `timeout`, or soon after their thread is cancelled.
#[derive(Debug)]
pub(super) struct CancellableStream {
    stream: TcpStream,
    timeout: Duration,
}

impl CancellableStream {
    pub(super) fn new(stream: TcpStream, timeout: Duration) -> io::Result<CancellableStream> {
        stream.set_read_timeout(Some(CANCEL_CHECK.min(timeout)))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(CancellableStream { stream, timeout })
    }

    /// Sets the timeout of reads.
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns the plain connection.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

impl Read for CancellableStream {
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

impl Write for CancellableStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Connects to the first of a host's addresses that accepts.
pub(super) fn connect(host: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in host.to_socket_addrs()? {
        match connect_to(address, timeout.min(MAX_CONNECT_TIME)) {
            Ok(stream) => return Ok(stream),
            Err(_) if CancelScope::is_cancelled() => return Err(cancelled()),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// Returns true if the error says that connecting is in progress.
fn is_in_progress(error: &io::Error) -> bool {
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
        Err(e) if is_in_progress(&e) => {}
        Err(e) => return Err(e),
        Ok(()) => {}
    }
    let end = Instant::now() + timeout;
    let mut socket_entry = [PolledSocket::new(&socket, false, true)];
    let interval = CANCEL_CHECK.min(timeout).max(Duration::from_millis(1));
    while !sockets::wait(&mut socket_entry, interval) {
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
