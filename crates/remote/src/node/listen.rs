//! The one thread that takes connections and serves those for data.

use super::data::{Data, Next};
use super::session::Ticket;
use super::{Control, Shared, control};
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
/// Connections at most, of all kinds.
const MOST_CONNECTIONS: usize = 4096;
/// Time for a peer to say who it is.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// How often closed sessions and silent peers are looked for.
const TICK: Duration = Duration::from_secs(1);
/// Bytes of a question after the node's health at most.
const MOST_HTTP_BYTES: usize = 4096;
/// What TLS begins with.
const TLS_HANDSHAKE: u8 = 0x16;

/// A connection of which something is known already, or nothing.
enum Kind {
    /// Nothing was read yet.
    Unknown(TcpStream),
    /// A hello, as far as it has come.
    Greeting(TcpStream, Vec<u8>),
    /// A question after the node's health, as far as it has come.
    Health(TcpStream, Vec<u8>),
    Data(Box<Data<TcpStream>>),
}

struct Connection {
    kind: Kind,
    began: Instant,
}

/// See the module's description.
pub(super) struct Listening {
    poll: Poll,
    listener: TcpListener,
    connections: HashMap<Token, Connection>,
    next: usize,
}

impl Listening {
    pub(super) fn new(listen: SocketAddr) -> io::Result<(Listening, Waker)> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {listen}: {e}"));
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(listen).map_err(named)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        Ok((Listening { poll, listener, connections: HashMap::new(), next: FIRST }, waker))
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the node stops.
    pub(super) fn run(mut self, shared: &Arc<Shared>) {
        let mut events = Events::with_capacity(1024);
        // Connections that have more to do than was done in their turn.
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
                if self.serve(token, shared) == Next::Again {
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
        // Until there is none left, or none can be taken: those that wait then are taken at the next one's coming.
        while let Ok((mut stream, _)) = self.listener.accept() {
            if self.connections.len() >= MOST_CONNECTIONS {
                continue;
            }
            let token = Token(self.next);
            self.next += 1;
            let _ = stream.set_nodelay(true);
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, token, interest).is_ok() {
                let connection = Connection { kind: Kind::Unknown(stream), began: Instant::now() };
                self.connections.insert(token, connection);
            }
        }
    }

    /// Closes connections of sessions that are over, and of peers that say nothing; lets go of regions that nobody holds.
    fn sweep(&mut self, shared: &Shared) {
        // However slowly they say it.
        let is_late = |control: &Control| {
            !control.is_known.load(Ordering::Acquire) && control.began.elapsed() >= GREETING_TIME
        };
        shared.end_controls(is_late);
        self.connections.retain(|_, connection| match &mut connection.kind {
            Kind::Data(data) => {
                data.look();
                !data.is_closed()
            }
            _ => connection.began.elapsed() < GREETING_TIME,
        });
    }

    /// Does for a connection what can be done now.
    fn serve(&mut self, token: Token, shared: &Arc<Shared>) -> Next {
        // It may have been closed by another event of the same round.
        let Some(mut connection) = self.connections.remove(&token) else { return Next::Close };
        loop {
            let (kind, next) = match connection.kind {
                Kind::Data(mut data) => {
                    let next = data.advance(&shared.counts);
                    (Kind::Data(data), next)
                }
                Kind::Unknown(stream) => match self.recognise(stream, shared) {
                    Some(known) => known,
                    None => return Next::Close,
                },
                Kind::Greeting(stream, hello) => match greet(stream, hello, shared) {
                    Some(known) => known,
                    None => return Next::Close,
                },
                Kind::Health(stream, question) => match health(stream, question) {
                    Some(stream) => (stream, Next::Wait),
                    None => return Next::Close,
                },
            };
            connection.kind = kind;
            match next {
                Next::Close => {
                    if let Kind::Data(data) = &mut connection.kind {
                        let _ = self.poll.registry().deregister(data.stream());
                    }
                    return Next::Close;
                }
                // What it is now has not been served yet.
                Next::Again if !matches!(connection.kind, Kind::Data(_)) => {}
                next => {
                    self.connections.insert(token, connection);
                    return next;
                }
            }
        }
    }

    /// What a connection is by its first byte; `None` if it is over for this thread.
    fn recognise(&mut self, mut stream: TcpStream, shared: &Arc<Shared>) -> Option<(Kind, Next)> {
        let mut first = [0];
        match stream.peek(&mut first) {
            Ok(1) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Some((Kind::Unknown(stream), Next::Wait)),
            _ => return None,
        }
        match first[0] {
            TLS_HANDSHAKE => {
                self.poll.registry().deregister(&mut stream).ok()?;
                control::begin(std::net::TcpStream::from(stream), shared);
                None
            }
            byte if byte == MAGIC[0] => Some((Kind::Greeting(stream, Vec::new()), Next::Again)),
            b'G' => Some((Kind::Health(stream, Vec::new()), Next::Again)),
            _ => None,
        }
    }
}

/// Reads on until `bytes` are as many as wanted; whether the peer has said its last. `None` if the connection is broken.
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

/// Goes on with a hello.
fn greet(mut stream: TcpStream, mut hello: Vec<u8>, shared: &Shared) -> Option<(Kind, Next)> {
    let over = read_until(&mut stream, &mut hello, HELLO_BYTES)?;
    if hello.len() < HELLO_BYTES && !over {
        return Some((Kind::Greeting(stream, hello), Next::Wait));
    }
    let ticket: Ticket = hello.strip_prefix(&MAGIC[..])?.try_into().ok()?;
    let session = shared.sessions().get(&ticket).cloned()?;
    // Fits into the buffer of a connection on which nothing was sent.
    stream.write_all(&[WELCOME]).ok()?;
    Some((Kind::Data(Box::new(Data::new(stream, session))), Next::Again))
}

/// Goes on with a question after the node's health.
fn health(mut stream: TcpStream, mut question: Vec<u8>) -> Option<Kind> {
    let over = read_until(&mut stream, &mut question, MOST_HTTP_BYTES)?;
    let whole = question.windows(4).any(|end| end == b"\r\n\r\n");
    if !whole && !over && question.len() < MOST_HTTP_BYTES {
        return Some(Kind::Health(stream, question));
    }
    let found = question.starts_with(b"GET /health ");
    let (status, text) =
        if found { ("200 OK", "ok\n") } else { ("404 Not Found", "only /health is told without TLS\n") };
    let _ = stream.write_all(control::http(status, text).as_bytes());
    let _ = stream.shutdown(std::net::Shutdown::Write);
    None
}
