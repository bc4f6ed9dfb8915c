//! The node's listening thread: accepts all connections, and serves the data connections.

use super::data::{DataConnection, NextStep};
use super::session::SessionTicket;
use super::{ControlConnection, NodeState, control};
use crate::wire::{HELLO_BYTES, MAGIC, WELCOME};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;
/// Maximum number of connections of all kinds.
const MAX_CONNECTIONS: usize = 4096;
/// Time within which a client must have sent its hello.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// Interval between checks for closed sessions and silent clients.
const TICK: Duration = Duration::from_secs(1);
/// Maximum length of a health request, in bytes.
const MAX_HTTP_BYTES: usize = 4096;
/// First byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

/// Protocol of a connection, as far as it is known, and what has been received.
enum ConnectionState {
    /// Nothing has been received.
    Unknown(TcpStream),
    /// The received part of a data connection's hello.
    Hello(TcpStream, Vec<u8>),
    /// The received part of a health request.
    Health(TcpStream, Vec<u8>),
    /// A data connection.
    Data(Box<DataConnection<TcpStream>>),
}

struct Connection {
    state: ConnectionState,
    began: Instant,
}

/// See the module's description.
pub(super) struct ListenThread {
    poll: Poll,
    listener: TcpListener,
    connections: HashMap<Token, Connection>,
    next: usize,
}

impl ListenThread {
    pub(super) fn new(listen: SocketAddr) -> io::Result<(ListenThread, Waker)> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {listen}: {e}"));
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(listen).map_err(named)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        Ok((ListenThread { poll, listener, connections: HashMap::new(), next: FIRST }, waker))
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the node stops.
    pub(super) fn run(mut self, shared: &Arc<NodeState>) {
        let mut events = Events::with_capacity(1024);
        // Connections that had more to do when their turn ended.
        let mut again: Vec<Token> = Vec::new();
        let mut ticked = Instant::now();
        while !shared.stopping.load(Ordering::Acquire) {
            let wait = if again.is_empty() { TICK } else { Duration::ZERO };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(e) if e.kind() != ErrorKind::Interrupted => return,
                _ => {}
            }
            let mut ready = std::mem::take(&mut again);
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => self.sweep(shared),
                    token if !ready.contains(&token) => ready.push(token),
                    _ => {}
                }
            }
            for token in ready {
                if self.serve(token, shared) == NextStep::Again {
                    again.push(token);
                }
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.sweep(shared);
            }
        }
    }

    fn accept(&mut self) {
        // Accept until none is pending or accepting fails: the rest is accepted with the next connection.
        while let Ok((mut stream, _)) = self.listener.accept() {
            if self.connections.len() >= MAX_CONNECTIONS {
                continue;
            }
            let token = Token(self.next);
            self.next += 1;
            let _ = stream.set_nodelay(true);
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, token, interest).is_ok() {
                let connection =
                    Connection { state: ConnectionState::Unknown(stream), began: Instant::now() };
                self.connections.insert(token, connection);
            }
        }
    }

    /// Closes connections of ended sessions and of silent clients, and releases regions that nothing refers
    /// to.
    fn sweep(&mut self, shared: &NodeState) {
        // The limit also holds for clients that send their hello byte by byte.
        let is_overdue = |control: &ControlConnection| {
            !control.is_authenticated.load(Ordering::Acquire) && control.began.elapsed() >= HELLO_TIME
        };
        shared.end_controls(is_overdue);
        self.connections.retain(|_, connection| match &mut connection.state {
            ConnectionState::Data(data) => {
                data.refresh_regions();
                !data.is_closed()
            }
            _ => connection.began.elapsed() < HELLO_TIME,
        });
    }

    /// Serves a connection as far as possible without waiting.
    fn serve(&mut self, token: Token, shared: &Arc<NodeState>) -> NextStep {
        // Another event of the same round may have closed it.
        let Some(mut connection) = self.connections.remove(&token) else { return NextStep::Close };
        loop {
            let (state, next) = match connection.state {
                ConnectionState::Data(mut data) => {
                    let next = data.advance(&shared.counters);
                    (ConnectionState::Data(data), next)
                }
                ConnectionState::Unknown(stream) => match self.identify(stream, shared) {
                    Some(known) => known,
                    None => return NextStep::Close,
                },
                ConnectionState::Hello(stream, hello) => match continue_hello(stream, hello, shared) {
                    Some(known) => known,
                    None => return NextStep::Close,
                },
                ConnectionState::Health(stream, request) => match continue_health_request(stream, request) {
                    Some(stream) => (stream, NextStep::Wait),
                    None => return NextStep::Close,
                },
            };
            connection.state = state;
            match next {
                NextStep::Close => {
                    if let ConnectionState::Data(data) = &mut connection.state {
                        let _ = self.poll.registry().deregister(data.stream());
                    }
                    return NextStep::Close;
                }
                // The connection has changed its state; serve it in the new one.
                NextStep::Again if !matches!(connection.state, ConnectionState::Data(_)) => {}
                next => {
                    self.connections.insert(token, connection);
                    return next;
                }
            }
        }
    }

    /// Identifies a connection by its first byte. Returns `None` if this thread has nothing more to do with
    /// it.
    fn identify(
        &mut self,
        mut stream: TcpStream,
        shared: &Arc<NodeState>,
    ) -> Option<(ConnectionState, NextStep)> {
        let mut first = [0];
        match stream.peek(&mut first) {
            Ok(1) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                return Some((ConnectionState::Unknown(stream), NextStep::Wait));
            }
            _ => return None,
        }
        match first[0] {
            TLS_HANDSHAKE => {
                self.poll.registry().deregister(&mut stream).ok()?;
                control::spawn(std::net::TcpStream::from(stream), shared);
                None
            }
            byte if byte == MAGIC[0] => Some((ConnectionState::Hello(stream, Vec::new()), NextStep::Again)),
            b'G' => Some((ConnectionState::Health(stream, Vec::new()), NextStep::Again)),
            _ => None,
        }
    }
}

/// Reads until `bytes` has `wanted` bytes. Returns true if the client has stopped sending, and `None` if the
/// connection failed.
fn read_until(stream: &mut TcpStream, bytes: &mut Vec<u8>, wanted: usize) -> Option<bool> {
    let mut part = [0; 512];
    while bytes.len() < wanted {
        let most = part.len().min(wanted - bytes.len());
        match stream.read(&mut part[..most]) {
            Ok(0) => return Some(true),
            Ok(got) => bytes.extend_from_slice(&part[..got]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Some(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(false)
}

/// Continues to receive a hello.
fn continue_hello(
    mut stream: TcpStream,
    mut hello: Vec<u8>,
    shared: &NodeState,
) -> Option<(ConnectionState, NextStep)> {
    let has_ended = read_until(&mut stream, &mut hello, HELLO_BYTES)?;
    if hello.len() < HELLO_BYTES && !has_ended {
        return Some((ConnectionState::Hello(stream, hello), NextStep::Wait));
    }
    let ticket: SessionTicket = hello.strip_prefix(&MAGIC[..])?.try_into().ok()?;
    let session = shared.sessions().get(&ticket).cloned()?;
    // Nothing was sent before, so the byte fits the socket's buffer.
    stream.write_all(&[WELCOME]).ok()?;
    Some((ConnectionState::Data(Box::new(DataConnection::new(stream, session))), NextStep::Again))
}

/// Continues to receive a health request. Answers it when it is complete.
fn continue_health_request(mut stream: TcpStream, mut request: Vec<u8>) -> Option<ConnectionState> {
    let has_ended = read_until(&mut stream, &mut request, MAX_HTTP_BYTES)?;
    let is_complete = request.windows(4).any(|end| end == b"\r\n\r\n");
    if !is_complete && !has_ended && request.len() < MAX_HTTP_BYTES {
        return Some(ConnectionState::Health(stream, request));
    }
    let is_health = request.starts_with(b"GET /health ");
    let (status, text) =
        if is_health { ("200 OK", "ok\n") } else { ("404 Not Found", "without TLS there is only /health\n") };
    let _ = stream.write_all(control::http(status, text).as_bytes());
    let _ = stream.shutdown(std::net::Shutdown::Write);
    None
}
