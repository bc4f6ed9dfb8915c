//! A control connection of the node, and the thread that replies to its requests until the client
//! disconnects.

use super::region_memory::RegionFile;
use super::regions::{Draft, RefusedRequest};
use super::session::Session;
use super::{ControlConnection, NodeState, NodeStatus};
use crate::control::{
    ControlRequest, ExposedMemory, Refusal, Reply, SharedMemory, VERSION, receive, receive_rest, send,
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

/// Maximum number of control connections.
const MAX_CONTROLS: usize = 512;
/// Timeout for the client's hello, and for sending a reply.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// Delay of the reply to a wrong token, which slows guessing down.
const WRONG_TIME: Duration = Duration::from_millis(200);
/// Keepalive interval: the loss of a client's machine is noticed after about three times this.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Maximum length of a hello, in bytes. It is small because the client is not authenticated yet.
const MAX_HELLO_BYTES: u32 = 4096;
/// Maximum length of a request for metrics, in bytes.
const MAX_HTTP_BYTES: usize = 8192;

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Starts a thread that serves `stream`.
pub(super) fn spawn(stream: TcpStream, shared: &Arc<NodeState>) {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let Ok(copy) = stream.try_clone() else { return };
    let authenticated = Arc::new(AtomicBool::new(false));
    {
        let mut controls = shared.controls();
        if controls.len() >= MAX_CONTROLS || shared.stopping.load(Ordering::Acquire) {
            return;
        }
        let control = ControlConnection {
            stream: copy,
            began: Instant::now(),
            is_authenticated: authenticated.clone(),
        };
        controls.insert(number, control);
    }
    let for_thread = shared.clone();
    let run = move || {
        // Errors of a client's connection are of no concern to the node.
        let _ = serve(stream, &for_thread, &authenticated);
        for_thread.controls().remove(&number);
    };
    if std::thread::Builder::new().name("memory-node-control".into()).spawn(run).is_err() {
        shared.controls().remove(&number);
    }
}

fn serve(stream: TcpStream, shared: &Arc<NodeState>, authenticated: &AtomicBool) -> io::Result<()> {
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
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        e
    };
    let mut first = [0; 4];
    stream.read_exact(&mut first).map_err(refused)?;
    if first == *b"GET " {
        return metrics(stream, shared);
    }
    if u32::from_be_bytes(first) > MAX_HELLO_BYTES {
        return Err(refused(io::ErrorKind::InvalidData.into()));
    }
    let hello: ControlRequest = receive_rest(&mut stream, first).map_err(refused)?;
    let session = match welcome(&hello, shared) {
        Ok(session) => session,
        Err((why, reason)) => {
            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(WRONG_TIME);
            return send(&mut stream, &Reply::Refused { why, reason });
        }
    };
    authenticated.store(true, Ordering::Release);
    // Dropping the handler ends the session.
    let local = stream.sock.local_addr().ok().map(|address| address.ip());
    let mut handler = RequestHandler { shared, session, local, drafts: HashMap::new() };
    let status = shared.status();
    let welcome = Reply::Welcome {
        start: shared.regions.start,
        ticket: hex(&handler.session.ticket),
        session: handler.session.number,
        capacity_bytes: status.capacity_bytes,
        used_bytes: status.used_bytes,
    };
    send(&mut stream, &welcome)?;
    stream.sock.set_read_timeout(None)?;
    loop {
        let request: ControlRequest = receive(&mut stream)?;
        let reply = handler.handle(request).unwrap_or_else(|(why, reason)| Reply::Refused { why, reason });
        send(&mut stream, &reply)?;
    }
}

/// Begins a session if the hello has the node's token and version.
fn welcome(hello: &ControlRequest, shared: &NodeState) -> Result<Arc<Session>, RefusedRequest> {
    let ControlRequest::Hello { version, token, write } = hello else {
        return Err((Refusal::Bad, "the first message has to be a hello".into()));
    };
    if !shared.identity.admits(token) {
        return Err((Refusal::Denied, "the token is not the node's".into()));
    }
    if *version != VERSION {
        let what = format!(
            "the client uses version {version} of the protocol, and the node uses {VERSION}: use the same \
             release"
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

/// Executes the requests of a session. Dropping it ends the session.
struct RequestHandler<'s> {
    shared: &'s NodeState,
    session: Arc<Session>,
    /// Address of this machine to which the client is connected.
    local: Option<IpAddr>,
    drafts: HashMap<u64, Draft>,
}

impl Drop for RequestHandler<'_> {
    fn drop(&mut self) {
        self.shared.sessions().remove(&self.session.ticket);
        self.session.close();
        // The data connections hold regions until the listening thread closes them.
        self.shared.wake();
    }
}

impl RequestHandler<'_> {
    fn handle(&mut self, request: ControlRequest) -> Result<Reply, RefusedRequest> {
        let regions = &self.shared.regions;
        match request {
            ControlRequest::Hello { .. } => Err((Refusal::Bad, "this is a second hello".into())),
            ControlRequest::List => Ok(Reply::Names(regions.names())),
            ControlRequest::Open { name } => {
                let generation = regions.open(&name);
                let generation = generation
                    .ok_or_else(|| (Refusal::Missing, format!("{name}: there is no such index")))?;
                self.session.hold_all(&generation);
                Ok(Reply::Generation { generation: generation.id, objects: generation.entries() })
            }
            ControlRequest::Check { name, replace } => {
                self.check_writes()?;
                regions.check(&name, replace)?;
                Ok(Reply::Done)
            }
            ControlRequest::Begin { name, replace } => {
                self.check_writes()?;
                let (number, draft) = regions.begin(&name, replace)?;
                self.drafts.insert(number, draft);
                Ok(Reply::Draft(number))
            }
            ControlRequest::Allocate { draft, object, bytes } => self.allocate(draft, &object, bytes),
            ControlRequest::Publish { draft, objects } => {
                let draft = self.drafts.remove(&draft).ok_or_else(no_draft)?;
                let keys = draft.keys();
                let published = regions.publish(draft, objects);
                keys.into_iter().for_each(|key| self.session.release(key));
                self.shared.wake();
                published.map(|()| Reply::Done)
            }
            ControlRequest::Abandon { draft } => {
                let draft = self.drafts.remove(&draft).ok_or_else(no_draft)?;
                draft.keys().into_iter().for_each(|key| self.session.release(key));
                drop(draft);
                self.shared.wake();
                Ok(Reply::Done)
            }
            ControlRequest::Delete { name } => {
                self.check_writes()?;
                regions.delete(&name)?;
                Ok(Reply::Done)
            }
            ControlRequest::Share { region } => self.share(region),
            ControlRequest::Pair { endpoint, over } => {
                self.session.pair(self.local, &endpoint, &over).map(Reply::Paired)
            }
            ControlRequest::Expose { region } => {
                let (address, key) = self.session.expose(region)?;
                Ok(Reply::Exposed(ExposedMemory { address, key }))
            }
            ControlRequest::Writers => {
                let mut writers = self.shared.writers();
                // A data connection holds its session, too: while one exists, operations may arrive.
                writers.retain(|session| session.strong_count() > 0);
                let active = writers.iter().filter_map(Weak::upgrade);
                Ok(Reply::Writers(active.map(|session| session.number).collect()))
            }
        }
    }

    /// Allocates `bytes` for an object of a draft.
    fn allocate(&mut self, draft: u64, object: &str, bytes: u64) -> Result<Reply, RefusedRequest> {
        let draft = self.drafts.get_mut(&draft).ok_or_else(no_draft)?;
        // An object that has been allocated before is freed first.
        if let Some(key) = draft.drop_object(object) {
            self.session.release(key);
        }
        let region = self.shared.regions.allocate(draft, object, bytes)?;
        self.session.hold(&region);
        Ok(Reply::Region(region.key))
    }

    /// Returns the file of a region, which a client on this machine can map.
    fn share(&self, region: u64) -> Result<Reply, RefusedRequest> {
        let region = self.session.share(region)?;
        let file = region.file().map_err(|e| (Refusal::Bad, e.to_string()))?;
        let RegionFile { descriptor, device, inode } =
            file.ok_or_else(|| (Refusal::Bad, "the region cannot be shared".to_owned()))?;
        let process = std::process::id();
        Ok(Reply::Shared(SharedMemory { process, descriptor, device, inode }))
    }

    fn check_writes(&self) -> Result<(), RefusedRequest> {
        if self.session.write {
            return Ok(());
        }
        Err((Refusal::Denied, "this session was not opened for writing".into()))
    }
}

fn no_draft() -> RefusedRequest {
    (Refusal::Missing, "there is no such draft: it was published or dropped".into())
}

/// Replies to a request for metrics, whose first four bytes have been received.
fn metrics(mut stream: Stream, shared: &NodeState) -> io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_HTTP_BYTES {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            got => request.extend_from_slice(&part[..got]),
        }
    }
    let text = String::from_utf8_lossy(&request);
    let bearer = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim().strip_prefix("Bearer "))?
    });
    let response = if text.starts_with("/health ") {
        http("200 OK", "ok\n")
    } else if !bearer.is_some_and(|token| shared.identity.admits(token)) {
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(WRONG_TIME);
        http("401 Unauthorized", "send the node's token: Authorization: Bearer TOKEN\n")
    } else if text.starts_with("/metrics ") {
        http("200 OK", &prometheus(&shared.status()))
    } else {
        http("404 Not Found", "the node has /health and /metrics only\n")
    };
    stream.write_all(response.as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// Formats an HTTP response that ends its connection.
pub(super) fn http(status: &str, text: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    )
}

/// Formats the status in the text format of Prometheus.
fn prometheus(status: &NodeStatus) -> String {
    let rows = [
        ("capacity_bytes", "gauge", "Maximum memory for regions", status.capacity_bytes),
        ("used_bytes", "gauge", "Memory taken by regions", status.used_bytes),
        ("indexes", "gauge", "Published indexes", status.indexes.len() as u64),
        ("sessions", "gauge", "Connected clients", status.sessions),
        ("queue_pairs", "gauge", "RDMA connections of clients", status.queue_pairs),
        ("operations_total", "counter", "Operations on data connections", status.operations),
        ("sent_bytes_total", "counter", "Bytes sent on data connections", status.sent_bytes),
        ("received_bytes_total", "counter", "Bytes received on data connections", status.received_bytes),
        ("refused_total", "counter", "Control connections refused", status.refused),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in rows {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "# HELP bathyal_node_{name} {help}\n# TYPE bathyal_node_{name} {kind}\n\
             bathyal_node_{name} {value}\n"
        );
    }
    text
}
