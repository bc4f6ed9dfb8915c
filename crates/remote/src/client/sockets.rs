//! Waiting for sockets and receiving into memory that is not initialised: calls that each system has under other names.

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

/// A socket that is waited for, and what happened to it.
pub(super) struct Watched(pollfd);

impl Watched {
    /// Nothing, which is never ready.
    pub(super) fn none() -> Watched {
        #[cfg(unix)]
        let fd = -1;
        #[cfg(windows)]
        let fd = SOCKET::MAX;
        Watched(pollfd { fd, events: 0, revents: 0 })
    }

    /// A socket whose end is waited for, with what it can be read or written for.
    pub(super) fn of(socket: &impl AsSocket, reads: bool, writes: bool) -> Watched {
        #[cfg(unix)]
        let fd = socket.as_raw_fd();
        #[cfg(windows)]
        let fd = socket.as_raw_socket() as SOCKET;
        let events = if reads { POLLIN } else { 0 } | if writes { POLLOUT } else { 0 };
        Watched(pollfd { fd, events, revents: 0 })
    }

    /// The same, which waits for the other end to stop sending, too, where the system can.
    pub(super) fn or_half_ended(self) -> Watched {
        #[cfg(target_os = "linux")]
        return Watched(pollfd { events: self.0.events | libc::POLLRDHUP, ..self.0 });
        #[cfg(not(target_os = "linux"))]
        self
    }

    /// Whether anything happened in the last wait.
    pub(super) fn is_ready(&self) -> bool {
        self.0.revents != 0
    }

    /// Whether it ended, or will say no more.
    pub(super) fn has_ended(&self) -> bool {
        #[cfg(target_os = "linux")]
        let half = libc::POLLRDHUP;
        #[cfg(not(target_os = "linux"))]
        let half = 0;
        self.0.revents & (half | POLLHUP | POLLERR) != 0
    }
}

/// Waits until something happens to one of `places`, for `most`, and says whether it did.
pub(super) fn wait<const N: usize>(places: &mut [Watched; N], most: Duration) -> bool {
    // Rounded up: a wait of a part of a millisecond is none else.
    let millis = most.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    let mut all = places.each_ref().map(|place| place.0);
    // SAFETY: as many places as are said.
    #[cfg(unix)]
    let found = unsafe { libc::poll(all.as_mut_ptr(), N as libc::nfds_t, millis) };
    // SAFETY: as above.
    #[cfg(windows)]
    let found = unsafe { WSAPoll(all.as_mut_ptr(), N as u32, millis) };
    for (place, after) in places.iter_mut().zip(all) {
        place.0.revents = if found > 0 { after.revents } else { 0 };
    }
    found > 0
}

/// Receives at most `len` bytes to where `into` points.
///
/// # Safety
/// `into` is valid for writes of `len` bytes, which nobody else uses meanwhile.
pub(super) unsafe fn receive(stream: &TcpStream, into: *mut u8, len: usize) -> io::Result<usize> {
    #[cfg(unix)]
    // SAFETY: an open socket, and the caller's word for the memory.
    let got = unsafe { libc::recv(stream.as_raw_fd(), into.cast(), len, 0) };
    #[cfg(windows)]
    // SAFETY: as above; one call takes no more than a length of 31 bits.
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
    fn bells_are_heard_once_they_ring_and_their_end_is_seen() {
        let (bell, mut rope) = wake_sockets().unwrap();
        let mut places = [Watched::none(), Watched::of(&bell, true, false)];
        assert!(!wait(&mut places, Duration::from_millis(1)));
        assert!(!places[0].is_ready() && !places[1].is_ready());
        rope.write_all(b"!").unwrap();
        assert!(wait(&mut places, Duration::from_secs(60)));
        assert!(!places[0].is_ready() && places[1].is_ready());
        drop(rope);
        let mut ended = [Watched::of(&bell, false, false).or_half_ended()];
        assert!(wait(&mut ended, Duration::from_secs(60)) && ended[0].has_ended());
    }

    #[test]
    fn bytes_are_received_where_they_belong() {
        let meeting = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut there = TcpStream::connect(meeting.local_addr().unwrap()).unwrap();
        let (here, _) = meeting.accept().unwrap();
        there.write_all(b"direct").unwrap();
        let mut out = [0; 16];
        let mut got = 0;
        while got < 6 {
            // SAFETY: the rest of an array that is ours.
            got += unsafe { receive(&here, out[got..].as_mut_ptr(), out.len() - got) }.unwrap();
        }
        assert_eq!(&out[..got], b"direct");
    }
}
