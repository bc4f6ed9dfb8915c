//! A control connection of the node: a thread that answers questions until its peer goes.

use super::regions::{Draft, Refused};
use super::session::Session;
use super::{Control, NodeStatus, Shared};
use crate::control::{
    ExposedMemory, Question, Refusal, Reply, SharedMemory, VERSION, receive, receive_rest, send,
};
use crate::identity::{hex, random};
use rustls::{ServerConnection, StreamOwned};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Control connections at most.
const MOST_CONTROLS: usize = 512;
/// Time for a peer to say its token, and to take an answer.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// Time that a wrong token takes: guessing is slow.
const WRONG_TIME: Duration = Duration::from_millis(200);
/// A peer whose machine is gone is noticed after some three times this.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Bytes of a hello at most: nobody knows yet whose it is.
const MOST_HELLO_BYTES: u32 = 4096;
/// Bytes of a question for metrics at most.
const MOST_HTTP_BYTES: usize = 8192;

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Answers what comes on `stream`, on a thread of its own.
pub(super) fn begin(stream: TcpStream, shared: &Arc<Shared>) {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let Ok(copy) = stream.try_clone() else { return };
    let known = Arc::new(AtomicBool::new(false));
    {
        let mut controls = shared.controls();
        if controls.len() >= MOST_CONTROLS || shared.stopping.load(Ordering::Acquire) {
            return;
        }
        let control = Control { stream: copy, began: Instant::now(), is_known: known.clone() };
        controls.insert(number, control);
    }
    let for_thread = shared.clone();
    let run = move || {
        // A peer that breaks off, or speaks no TLS, is no trouble of the node's.
        let _ = serve(stream, &for_thread, &known);
        for_thread.controls().remove(&number);
    };
    if std::thread::Builder::new().name("memory-node-control".into()).spawn(run).is_err() {
        shared.controls().remove(&number);
    }
}

fn serve(stream: TcpStream, shared: &Arc<Shared>, known: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HELLO_TIME))?;
    stream.set_write_timeout(Some(HELLO_TIME))?;
    let keepalive =
        socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(2);
    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    let tls = ServerConnection::new(shared.tls.clone()).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(tls, stream);
    let refused = |e| {
        shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        e
    };
    let mut first = [0; 4];
    stream.read_exact(&mut first).map_err(refused)?;
    if first == *b"GET " {
        return metrics(stream, shared);
    }
    if u32::from_be_bytes(first) > MOST_HELLO_BYTES {
        return Err(refused(io::ErrorKind::InvalidData.into()));
    }
    let hello: Question = receive_rest(&mut stream, first).map_err(refused)?;
    let session = match welcome(&hello, shared) {
        Ok(session) => session,
        Err((why, reason)) => {
            shared.counts.refused.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(WRONG_TIME);
            return send(&mut stream, &Reply::Refused { why, reason });
        }
    };
    known.store(true, Ordering::Release);
    // Whatever ends this ends the session.
    let local = stream.sock.local_addr().ok().map(|address| address.ip());
    let mut peer = Peer { shared, session, local, drafts: HashMap::new() };
    let status = shared.status();
    let welcome = Reply::Welcome {
        start: shared.regions.start,
        ticket: hex(&peer.session.ticket),
        session: peer.session.number,
        capacity_bytes: status.capacity_bytes,
        used_bytes: status.used_bytes,
    };
    send(&mut stream, &welcome)?;
    stream.sock.set_read_timeout(None)?;
    loop {
        let question: Question = receive(&mut stream)?;
        let reply = peer.answer(question).unwrap_or_else(|(why, reason)| Reply::Refused { why, reason });
        send(&mut stream, &reply)?;
    }
}

/// The session of one who says the token.
fn welcome(hello: &Question, shared: &Shared) -> Result<Arc<Session>, Refused> {
    let Question::Hello { version, token, write } = hello else {
        return Err((Refusal::Bad, "the first message has to be a hello".into()));
    };
    if !shared.identity.admits(token) {
        return Err((Refusal::Denied, "the token is not the node's".into()));
    }
    if *version != VERSION {
        let what = format!(
            "the peer speaks version {version} of the protocol, the node {VERSION}: use the same release"
        );
        return Err((Refusal::Bad, what));
    }
    let ticket = random().map_err(|e| (Refusal::Bad, e.to_string()))?;
    let session = Arc::new(Session::new(ticket, shared.regions.number(), *write));
    shared.sessions().insert(ticket, session.clone());
    if *write {
        shared.writers().push(Arc::downgrade(&session));
    }
    Ok(session)
}

/// What a peer has asked for.
struct Peer<'s> {
    shared: &'s Shared,
    session: Arc<Session>,
    /// The address of this machine that it speaks to.
    local: Option<IpAddr>,
    drafts: HashMap<u64, Draft>,
}

impl Drop for Peer<'_> {
    fn drop(&mut self) {
        self.shared.sessions().remove(&self.session.ticket);
        self.session.close();
        // Its data connections hold regions until they are closed.
        self.shared.wake();
    }
}

impl Peer<'_> {
    fn answer(&mut self, question: Question) -> Result<Reply, Refused> {
        let regions = &self.shared.regions;
        match question {
            Question::Hello { .. } => Err((Refusal::Bad, "a second hello".into())),
            Question::List => Ok(Reply::Names(regions.names())),
            Question::Open { name } => {
                let generation = regions.open(&name);
                let generation = generation
                    .ok_or_else(|| (Refusal::Missing, format!("{name}: there is no such index")))?;
                self.session.hold_all(&generation);
                Ok(Reply::Generation { generation: generation.id, objects: generation.entries() })
            }
            Question::Check { name, replace } => {
                self.check_writes()?;
                regions.check(&name, replace)?;
                Ok(Reply::Done)
            }
            Question::Begin { name, replace } => {
                self.check_writes()?;
                let (number, draft) = regions.begin(&name, replace)?;
                self.drafts.insert(number, draft);
                Ok(Reply::Draft(number))
            }
            Question::Allocate { draft, object, bytes } => {
                let draft = self.drafts.get_mut(&draft).ok_or_else(no_draft)?;
                // In the place of what is there, whose memory is given back first.
                if let Some(key) = draft.drop_object(&object) {
                    self.session.release(key);
                }
                let region = regions.allocate(draft, &object, bytes)?;
                self.session.hold(&region);
                Ok(Reply::Region(region.key))
            }
            Question::Publish { draft, objects } => {
                let draft = self.drafts.remove(&draft).ok_or_else(no_draft)?;
                let keys = draft.keys();
                let published = regions.publish(draft, objects);
                keys.into_iter().for_each(|key| self.session.release(key));
                self.shared.wake();
                published.map(|()| Reply::Done)
            }
            Question::Abandon { draft } => {
                let draft = self.drafts.remove(&draft).ok_or_else(no_draft)?;
                draft.keys().into_iter().for_each(|key| self.session.release(key));
                drop(draft);
                self.shared.wake();
                Ok(Reply::Done)
            }
            Question::Delete { name } => {
                self.check_writes()?;
                regions.delete(&name)?;
                Ok(Reply::Done)
            }
            Question::Share { region } => {
                let region = self.session.share(region)?;
                let shared = region.shared().map_err(|e| (Refusal::Bad, e.to_string()))?;
                let (descriptor, device, inode) =
                    shared.ok_or_else(|| (Refusal::Bad, "the region is not to be shared".to_owned()))?;
                let process = std::process::id();
                Ok(Reply::Shared(SharedMemory { process, descriptor, device, inode }))
            }
            Question::Pair { endpoint, over } => {
                self.session.pair(self.local, &endpoint, &over).map(Reply::Paired)
            }
            Question::Expose { region } => {
                let (address, key) = self.session.expose(region)?;
                Ok(Reply::Exposed(ExposedMemory { address, key }))
            }
            Question::Writers => {
                let mut writers = self.shared.writers();
                // As long as anything of a session is there, a data connection too, something of it may still arrive.
                writers.retain(|session| session.strong_count() > 0);
                let there = writers.iter().filter_map(Weak::upgrade);
                Ok(Reply::Writers(there.map(|session| session.number).collect()))
            }
        }
    }

    fn check_writes(&self) -> Result<(), Refused> {
        if self.session.write {
            return Ok(());
        }
        Err((Refusal::Denied, "this connection did not ask to change anything".into()))
    }
}

fn no_draft() -> Refused {
    (Refusal::Missing, "there is no such draft: it was published or given up".into())
}

/// Answers a question for metrics, from the end of its first four bytes on.
fn metrics(mut stream: Stream, shared: &Shared) -> io::Result<()> {
    let mut question = Vec::new();
    let mut part = [0; 1024];
    while !question.windows(4).any(|end| end == b"\r\n\r\n") && question.len() < MOST_HTTP_BYTES {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            got => question.extend_from_slice(&part[..got]),
        }
    }
    let text = String::from_utf8_lossy(&question);
    let bearer = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim().strip_prefix("Bearer "))?
    });
    let answer = if text.starts_with("/health ") {
        http("200 OK", "ok\n")
    } else if !bearer.is_some_and(|token| shared.identity.admits(token)) {
        shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(WRONG_TIME);
        http("401 Unauthorized", "send the node's token: Authorization: Bearer TOKEN\n")
    } else if text.starts_with("/metrics ") {
        http("200 OK", &prometheus(&shared.status()))
    } else {
        http("404 Not Found", "there are /health and /metrics\n")
    };
    stream.write_all(answer.as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// An answer of HTTP that ends its connection.
pub(super) fn http(status: &str, text: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}

/// The status as Prometheus reads it.
fn prometheus(status: &NodeStatus) -> String {
    let rows = [
        ("capacity_bytes", "gauge", "Memory for regions at most", status.capacity_bytes),
        ("used_bytes", "gauge", "Memory taken by regions", status.used_bytes),
        ("indexes", "gauge", "Indexes that stand there", status.indexes.len() as u64),
        ("sessions", "gauge", "Peers that are connected", status.sessions),
        ("queue_pairs", "gauge", "RDMA connections of peers", status.queue_pairs),
        ("operations_total", "counter", "Operations on data connections", status.operations),
        ("sent_bytes_total", "counter", "Bytes sent on data connections", status.sent_bytes),
        ("received_bytes_total", "counter", "Bytes received on data connections", status.received_bytes),
        ("refused_total", "counter", "Control connections refused", status.refused),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in rows {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "# HELP bathyal_node_{name} {help}\n# TYPE bathyal_node_{name} {kind}\nbathyal_node_{name} {value}\n"
        );
    }
    text
}
