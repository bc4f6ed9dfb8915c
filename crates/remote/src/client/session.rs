//! A client's session with a node: its control connection and its data connections.

use super::cancellable::{CancellableStream, connect};
use super::options::{RemoteOptions, Transport};
use super::sockets::{self, PolledSocket};
use crate::control::{ControlRequest, ExposedMemory, ObjectEntry, Refusal, Reply, VERSION, receive, send};
use crate::identity;
use crate::verbs::Endpoint;
use crate::wire::{MAGIC, TICKET_BYTES, WELCOME};
use bathyal_store::{CancelScope, StoreError};
use rustls::{ClientConnection, StreamOwned};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Keepalive interval: the loss of the node's machine is noticed after about three times this.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Rate at which the slowest system allocates memory, in bytes per second.
const SLOWEST_BYTES_PER_S: u64 = 100_000_000;
/// Time that a node may take to free the memory of a replaced generation of any size.
const FREE_TIME: Duration = Duration::from_secs(300);

/// A node and the options for reaching it.
#[derive(Debug, Clone)]
pub(crate) struct NodeTarget {
    pub(crate) host: String,
    /// Address of the node, for messages.
    pub(crate) path: PathBuf,
    pub(crate) options: RemoteOptions,
}

/// A session with a node.
pub(crate) struct Session {
    target: NodeTarget,
    write: bool,
    control: Mutex<Control>,
    /// Random number of the node's run.
    start: u64,
    /// Number of the session, by which others identify it.
    number: u64,
    ticket: [u8; TICKET_BYTES],
    /// A second handle of the control connection, in order to check it while another thread waits for a
    /// reply.
    watched: TcpStream,
    /// Numbers of the node's queue pairs that are not used any more. The next [`Session::pair`] reports them
    /// to the node.
    unused_pairs: Mutex<Vec<u32>>,
    /// Regions that are registered for RDMA connections of this session.
    exposed: Mutex<HashMap<u64, ExposedMemory>>,
}

struct Control {
    stream: StreamOwned<ClientConnection, CancellableStream>,
    /// True if a request has not received its reply.
    broken: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Session({})", self.target.path.display())
    }
}

/// Error of a request: the node refused it, or did not reply.
#[derive(Debug)]
pub(crate) enum RequestError {
    Refused(Refusal, String),
    Lost(io::Error),
}

impl RequestError {
    /// Converts the error of an `operation` on `path`.
    pub(crate) fn at(self, operation: &'static str, path: &Path) -> StoreError {
        let path = path.to_path_buf();
        match self {
            RequestError::Lost(_) if CancelScope::is_cancelled() => StoreError::Cancelled,
            RequestError::Refused(Refusal::Exists, _) => StoreError::Exists { path },
            RequestError::Refused(Refusal::Missing, _) => StoreError::Missing { what: "index", path },
            RequestError::Refused(Refusal::Denied, reason) => StoreError::Denied { operation, path, reason },
            RequestError::Refused(_, reason) => StoreError::Remote { operation, path, reason },
            RequestError::Lost(e) => {
                let reason = format!("the memory node does not answer: {e}");
                StoreError::Remote { operation, path, reason }
            }
        }
    }
}

impl NodeTarget {
    /// Connects to the node and begins a session.
    pub(crate) fn connect(&self, write: bool) -> Result<Arc<Session>, StoreError> {
        let NodeTarget { host, path, options } = self;
        let remote = |reason: String| StoreError::Remote { operation: "reach", path: path.clone(), reason };
        let lost = |e: io::Error| {
            if CancelScope::is_cancelled() {
                return StoreError::Cancelled;
            }
            remote(format!("the memory node does not answer: {e}; is `bathyal memory-node` running there?"))
        };
        let (config, verifier) = identity::client_config(&options.credentials.peer_key).map_err(lost)?;
        let stream = connect(host, options.timeout).map_err(lost)?;
        let keepalive =
            socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(2);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(lost)?;
        let watched = stream.try_clone().map_err(lost)?;
        let stream = CancellableStream::new(stream, options.timeout).map_err(lost)?;
        let name = identity::server_name().map_err(lost)?;
        let tls = ClientConnection::new(Arc::new(config), name).map_err(|e| lost(io::Error::other(e)))?;
        let mut stream = StreamOwned::new(tls, stream);
        let hello =
            ControlRequest::Hello { version: VERSION, token: options.credentials.token.clone(), write };
        let reply: io::Result<Reply> = send(&mut stream, &hello).and_then(|()| receive(&mut stream));
        if let Some(other) = verifier.unexpected_key() {
            return Err(remote(format!(
                "the node has the key {other}, not {}: either it was set up again, and you need its new \
                 client.json, or something else answers in its place",
                options.credentials.peer_key
            )));
        }
        match reply.map_err(lost)? {
            Reply::Welcome { start, ticket, session: number, .. } => {
                let ticket = identity::unhex(&ticket).and_then(|bytes| bytes.try_into().ok());
                let ticket = ticket.ok_or_else(|| remote("the node's reply is invalid".into()))?;
                let control = Mutex::new(Control { stream, broken: false });
                let (target, unused_pairs, exposed) = (self.clone(), Mutex::default(), Mutex::default());
                Ok(Arc::new(Session {
                    target,
                    write,
                    control,
                    start,
                    number,
                    ticket,
                    watched,
                    unused_pairs,
                    exposed,
                }))
            }
            Reply::Refused { why: Refusal::Denied, .. } => {
                let reason = "the node refuses the token: use its current client.json".into();
                Err(StoreError::Denied { operation: "reach", path: path.clone(), reason })
            }
            Reply::Refused { reason, .. } => Err(remote(reason)),
            _ => Err(remote("the node's reply is invalid".into())),
        }
    }
}

impl Session {
    /// Begins another session of the same kind with the same node.
    pub(crate) fn again(&self) -> Result<Arc<Session>, StoreError> {
        self.target.connect(self.write)
    }

    /// Begins a session with the same node that may write.
    pub(crate) fn for_writing(&self) -> Result<Arc<Session>, StoreError> {
        self.target.connect(true)
    }

    /// Returns the number of the session, by which others identify it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the numbers of all sessions that may still change something.
    pub(crate) fn writers(&self) -> Result<Vec<u64>, RequestError> {
        match self.request(&ControlRequest::Writers)? {
            Reply::Writers(writers) => Ok(writers),
            _ => Err(invalid_reply()),
        }
    }

    /// Returns true if both sessions are with the same run of the node.
    pub(crate) fn is_of_same_start(&self, other: &Session) -> bool {
        self.start == other.start
    }

    /// Returns how long a restarted node may take to hold the same generation again.
    pub(crate) fn wait(&self) -> Duration {
        self.target.options.wait
    }

    /// Returns the address of the node, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.target.path
    }

    /// Returns the timeout of replies.
    pub(crate) fn timeout(&self) -> Duration {
        self.target.options.timeout
    }

    pub(crate) fn transport(&self) -> Transport {
        self.target.options.transport
    }

    pub(crate) fn doorbell(&self) -> u32 {
        self.target.options.doorbell
    }

    /// Returns the local address of the control connection.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.watched.local_addr().ok().map(|address| address.ip())
    }

    /// Returns true if the node has ended the control connection, and the session with it. An RDMA device
    /// does not report this: to a queue that waits, a stopped node looks like a slow one.
    pub(crate) fn has_hung_up(&self) -> bool {
        let mut watched = [PolledSocket::new(&self.watched, false, false).or_half_ended()];
        sockets::wait(&mut watched, Duration::ZERO) && watched[0].has_ended()
    }

    /// Returns true if the session can send no more requests.
    pub(crate) fn is_broken(&self) -> bool {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).broken
    }

    /// Sends a request and waits for the reply.
    fn request(&self, request: &ControlRequest) -> Result<Reply, RequestError> {
        self.request_within(request, Duration::ZERO)
    }

    /// Sends a request whose reply may take `longer` than usual.
    fn request_within(&self, request: &ControlRequest, longer: Duration) -> Result<Reply, RequestError> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.broken {
            let what = "the connection was lost; open the index again";
            return Err(RequestError::Lost(io::Error::new(io::ErrorKind::NotConnected, what)));
        }
        // If this fails before the reply has arrived, a later request would receive it instead of its own.
        control.broken = true;
        let stream = &mut control.stream;
        stream.sock.set_timeout(self.target.options.timeout + longer);
        let reply: Reply =
            send(stream, request).and_then(|()| receive(stream)).map_err(RequestError::Lost)?;
        control.broken = false;
        match reply {
            Reply::Refused { why, reason } => Err(RequestError::Refused(why, reason)),
            reply => Ok(reply),
        }
    }

    pub(crate) fn names(&self) -> Result<Vec<String>, RequestError> {
        match self.request(&ControlRequest::List)? {
            Reply::Names(names) => Ok(names),
            _ => Err(invalid_reply()),
        }
    }

    pub(crate) fn open(&self, name: &str) -> Result<(u64, Vec<ObjectEntry>), RequestError> {
        match self.request(&ControlRequest::Open { name: name.into() })? {
            Reply::Generation { generation, objects } => Ok((generation, objects)),
            _ => Err(invalid_reply()),
        }
    }

    pub(crate) fn check(&self, name: &str, replace: bool) -> Result<(), RequestError> {
        self.request_done(&ControlRequest::Check { name: name.into(), replace })
    }

    pub(crate) fn begin_draft(&self, name: &str, replace: bool) -> Result<u64, RequestError> {
        match self.request(&ControlRequest::Begin { name: name.into(), replace })? {
            Reply::Draft(draft) => Ok(draft),
            _ => Err(invalid_reply()),
        }
    }

    pub(crate) fn allocate(&self, draft: u64, object: &str, bytes: u64) -> Result<u64, RequestError> {
        let longer = Duration::from_secs(bytes / SLOWEST_BYTES_PER_S);
        match self
            .request_within(&ControlRequest::Allocate { draft, object: object.into(), bytes }, longer)?
        {
            Reply::Region(region) => Ok(region),
            _ => Err(invalid_reply()),
        }
    }

    pub(crate) fn publish(&self, draft: u64, objects: BTreeMap<String, u32>) -> Result<(), RequestError> {
        self.request_done_within(&ControlRequest::Publish { draft, objects }, FREE_TIME)
    }

    pub(crate) fn abandon(&self, draft: u64) -> Result<(), RequestError> {
        self.request_done_within(&ControlRequest::Abandon { draft }, FREE_TIME)
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), RequestError> {
        self.request_done_within(&ControlRequest::Delete { name: name.into() }, FREE_TIME)
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn share(&self, region: u64) -> Result<crate::control::SharedMemory, RequestError> {
        match self.request(&ControlRequest::Share { region })? {
            Reply::Shared(shared) => Ok(shared),
            _ => Err(invalid_reply()),
        }
    }

    /// Connects a queue pair of the node to the local `endpoint`. Returns the node's endpoint.
    pub(crate) fn pair(&self, endpoint: Endpoint) -> Result<Endpoint, RequestError> {
        let over = std::mem::take(&mut *self.unused_pairs.lock().unwrap_or_else(PoisonError::into_inner));
        match self.request(&ControlRequest::Pair { endpoint, over })? {
            Reply::Paired(endpoint) => Ok(endpoint),
            _ => Err(invalid_reply()),
        }
    }

    /// Records that a queue pair of the node is not used any more. The node destroys it when the next one is
    /// connected, or with the session. Does not block.
    pub(crate) fn end_pair(&self, node_pair: u32) {
        self.unused_pairs.lock().unwrap_or_else(PoisonError::into_inner).push(node_pair);
    }

    /// Registers a region of `bytes` bytes for the RDMA connections of this session.
    pub(crate) fn expose(&self, region: u64, bytes: u64) -> Result<ExposedMemory, RequestError> {
        let exposed = || self.exposed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = exposed().get(&region) {
            return Ok(*memory);
        }
        // Registering takes time for each page.
        let longer = Duration::from_secs(bytes / SLOWEST_BYTES_PER_S);
        match self.request_within(&ControlRequest::Expose { region }, longer)? {
            Reply::Exposed(memory) => {
                exposed().insert(region, memory);
                Ok(memory)
            }
            _ => Err(invalid_reply()),
        }
    }

    fn request_done(&self, request: &ControlRequest) -> Result<(), RequestError> {
        self.request_done_within(request, Duration::ZERO)
    }

    fn request_done_within(&self, request: &ControlRequest, longer: Duration) -> Result<(), RequestError> {
        match self.request_within(request, longer)? {
            Reply::Done => Ok(()),
            _ => Err(invalid_reply()),
        }
    }

    /// Opens a nonblocking data connection. Fails with the kind `ConnectionRefused` if the node does not know
    /// the session any more.
    pub(crate) fn data(&self) -> io::Result<TcpStream> {
        let mut stream = CancellableStream::new(
            connect(&self.target.host, self.target.options.timeout)?,
            self.target.options.timeout,
        )?;
        stream.write_all(&[&MAGIC[..], &self.ticket].concat())?;
        let mut welcome = [0];
        let unknown =
            || io::Error::new(io::ErrorKind::ConnectionRefused, "the node does not know the session");
        match stream.read(&mut welcome) {
            Ok(1) if welcome[0] == WELCOME => {}
            Ok(_) => return Err(unknown()),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(unknown()),
            Err(e) => return Err(e),
        }
        let stream = stream.into_stream();
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

fn invalid_reply() -> RequestError {
    RequestError::Lost(io::Error::new(io::ErrorKind::InvalidData, "its reply is invalid"))
}
