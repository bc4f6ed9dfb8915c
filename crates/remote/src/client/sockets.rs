//! System calls that wait for sockets and receive into uninitialized memory, with one interface for Unix and
//! Windows.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

#[cfg(unix)]
use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, pollfd};
#[cfg(unix)]
use std::os::fd::AsRawFd as AsSocket;
#[cfg(windows)]
use std::os::windows::io::AsRawSocket as AsSocket;
#[cfg(windows)]
use windows_sys::Win32::Networking::WinSock::{
    POLLERR, POLLHUP, POLLIN, POLLOUT, SOCKET, WSAPOLLFD as pollfd, WSAPoll,
};

/// An entry of a poll call: a socket, the events to wait for, and the events that occurred.
pub(super) struct PolledSocket(pollfd);

impl PolledSocket {
    /// Returns an entry without a socket, which is never ready.
    pub(super) fn none() -> PolledSocket {
        #[cfg(unix)]
        let fd = -1;
        #[cfg(windows)]
        let fd = SOCKET::MAX;
        PolledSocket(pollfd { fd, events: 0, revents: 0 })
    }

    /// Returns an entry that waits for the end of the connection, and for readable or writable bytes as
    /// requested.
    pub(super) fn new(socket: &impl AsSocket, reads: bool, writes: bool) -> PolledSocket {
        #[cfg(unix)]
        let fd = socket.as_raw_fd();
        #[cfg(windows)]
        let fd = socket.as_raw_socket() as SOCKET;
        let events = if reads { POLLIN } else { 0 } | if writes { POLLOUT } else { 0 };
        PolledSocket(pollfd { fd, events, revents: 0 })
    }

    /// Also waits for the other end to stop sending, where the system supports it.
    pub(super) fn or_half_ended(self) -> PolledSocket {
        #[cfg(target_os = "linux")]
        return PolledSocket(pollfd { events: self.0.events | libc::POLLRDHUP, ..self.0 });
        #[cfg(not(target_os = "linux"))]
        self
    }

    /// Returns true if an event occurred in the last wait.
    pub(super) fn is_ready(&self) -> bool {
        self.0.revents != 0
    }

    /// Returns true if the connection has ended, or the other end has stopped sending.
    pub(super) fn has_ended(&self) -> bool {
        #[cfg(target_os = "linux")]
        let half = libc::POLLRDHUP;
        #[cfg(not(target_os = "linux"))]
        let half = 0;
        self.0.revents & (half | POLLHUP | POLLERR) != 0
    }
}

/// Waits for at most `timeout` until an event occurs on one of `sockets`. Returns true if one did.
pub(super) fn wait<const N: usize>(sockets: &mut [PolledSocket; N], timeout: Duration) -> bool {
    // Round up: a fraction of a millisecond would become a wait of zero.
    let millis = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    let mut all = sockets.each_ref().map(|socket| socket.0);
    // SAFETY: the array has `N` entries.
    #[cfg(unix)]
    let found = unsafe { libc::poll(all.as_mut_ptr(), N as libc::nfds_t, millis) };
    // SAFETY: as above.
    #[cfg(windows)]
    let found = unsafe { WSAPoll(all.as_mut_ptr(), N as u32, millis) };
    for (socket, after) in sockets.iter_mut().zip(all) {
        socket.0.revents = if found > 0 { after.revents } else { 0 };
    }
    found > 0
}

/// Receives at most `len` bytes into the memory at `into`.
///
/// # Safety
/// `into` is valid for writes of `len` bytes, and nothing else accesses them during the call.
pub(super) unsafe fn receive(stream: &TcpStream, into: *mut u8, len: usize) -> io::Result<usize> {
    #[cfg(unix)]
    // SAFETY: the socket is open, and the caller vouches for the memory.
    let got = unsafe { libc::recv(stream.as_raw_fd(), into.cast(), len, 0) };
    #[cfg(windows)]
    // SAFETY: as above; the length is limited to the 31 bits of one call.
    let got = unsafe {
        let most = len.min(i32::MAX as usize) as i32;
        windows_sys::Win32::Networking::WinSock::recv(stream.as_raw_socket() as SOCKET, into, most, 0)
    };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_tier::wake_socket::wake_sockets;
    use std::io::Write;

    #[test]
    fn a_wait_reports_readable_and_ended_sockets() {
        let (bell, mut rope) = wake_sockets().unwrap();
        let mut sockets = [PolledSocket::none(), PolledSocket::new(&bell, true, false)];
        assert!(!wait(&mut sockets, Duration::from_millis(1)));
        assert!(!sockets[0].is_ready() && !sockets[1].is_ready());
        rope.write_all(b"!").unwrap();
        assert!(wait(&mut sockets, Duration::from_secs(60)));
        assert!(!sockets[0].is_ready() && sockets[1].is_ready());
        drop(rope);
        let mut ended = [PolledSocket::new(&bell, false, false).or_half_ended()];
        assert!(wait(&mut ended, Duration::from_secs(60)) && ended[0].has_ended());
    }

    #[test]
    fn received_bytes_are_written_at_the_given_address() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.write_all(b"direct").unwrap();
        let mut out = [0; 16];
        let mut got = 0;
        while got < 6 {
            // SAFETY: the pointer and length are the rest of `out`, which is not used otherwise.
            got += unsafe { receive(&receiver, out[got..].as_mut_ptr(), out.len() - got) }.unwrap();
        }
        assert_eq!(&out[..got], b"direct");
    }
}
