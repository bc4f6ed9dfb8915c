//! A control connection to a node, and what is asked on it; the data connections of all who read through it.

use super::options::{RemoteOptions, Transport};
use super::patient::{Patient, connect};
use super::sockets::{self, Watched};
use crate::control::{ExposedMemory, ObjectEntry, Question, Refusal, Reply, VERSION, receive, send};
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

/// A node whose machine is gone is noticed after some three times this.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Bytes of memory that the slowest of systems gives a second.
const SLOWEST_BYTES_PER_S: u64 = 100_000_000;
/// Time for a node to give back the memory of what is replaced, whatever that was.
const GIVING_BACK: Duration = Duration::from_secs(300);

/// A node, and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) host: String,
    /// For messages.
    pub(crate) path: PathBuf,
    pub(crate) options: RemoteOptions,
}

/// See the module's description.
pub(crate) struct Session {
    peer: Peer,
    write: bool,
    control: Mutex<Control>,
    /// What this start of the node is known by.
    start: u64,
    /// What other sessions know this one by.
    number: u64,
    ticket: [u8; TICKET_BYTES],
    /// The control connection again, to look at it while somebody waits for an answer.
    watched: TcpStream,
    /// Ends of RDMA connections that the node is to end as well when it next hears of any.
    over: Mutex<Vec<u32>>,
    /// Regions as RDMA connections of this session reach them.
    exposed: Mutex<HashMap<u64, ExposedMemory>>,
}

struct Control {
    stream: StreamOwned<ClientConnection, Patient>,
    /// Whether a question was left without its answer.
    broken: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Session({})", self.peer.path.display())
    }
}

/// What a node refused, or why it did not answer.
#[derive(Debug)]
pub(crate) enum Failed {
    Refused(Refusal, String),
    Lost(io::Error),
}

impl Failed {
    /// The same of what is at `path`.
    pub(crate) fn at(self, operation: &'static str, path: &Path) -> StoreError {
        let path = path.to_path_buf();
        match self {
            Failed::Lost(_) if CancelScope::is_cancelled() => StoreError::Cancelled,
            Failed::Refused(Refusal::Exists, _) => StoreError::Exists { path },
            Failed::Refused(Refusal::Missing, _) => StoreError::Missing { what: "index", path },
            Failed::Refused(Refusal::Denied, reason) => StoreError::Denied { operation, path, reason },
            Failed::Refused(_, reason) => StoreError::Remote { operation, path, reason },
            Failed::Lost(e) => {
                let reason = format!("the memory node does not answer: {e}");
                StoreError::Remote { operation, path, reason }
            }
        }
    }
}

impl Peer {
    /// Says the token.
    pub(crate) fn begin(&self, write: bool) -> Result<Arc<Session>, StoreError> {
        let Peer { host, path, options } = self;
        let remote = |reason: String| StoreError::Remote { operation: "reach", path: path.clone(), reason };
        let lost = |e: io::Error| {
            if CancelScope::is_cancelled() {
                return StoreError::Cancelled;
            }
            remote(format!("the memory node does not answer: {e}; is `bathyal memory-node` running there?"))
        };
        let (config, pin) = identity::client(&options.credentials.peer_key).map_err(lost)?;
        let stream = connect(host, options.timeout).map_err(lost)?;
        let keepalive =
            socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(2);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(lost)?;
        let watched = stream.try_clone().map_err(lost)?;
        let stream = Patient::new(stream, options.timeout).map_err(lost)?;
        let name = identity::server_name().map_err(lost)?;
        let tls = ClientConnection::new(Arc::new(config), name).map_err(|e| lost(io::Error::other(e)))?;
        let mut stream = StreamOwned::new(tls, stream);
        let hello = Question::Hello { version: VERSION, token: options.credentials.token.clone(), write };
        let reply: io::Result<Reply> = send(&mut stream, &hello).and_then(|()| receive(&mut stream));
        if let Some(other) = pin.other() {
            return Err(remote(format!(
                "the node has the key {other}, not {}: either it was set up anew, and its new client.json is wanted, or something \
                 else answers in its place",
                options.credentials.peer_key
            )));
        }
        match reply.map_err(lost)? {
            Reply::Welcome { start, ticket, session: number, .. } => {
                let ticket = identity::unhex(&ticket).and_then(|bytes| bytes.try_into().ok());
                let ticket = ticket.ok_or_else(|| remote("the node's answer makes no sense".into()))?;
                let control = Mutex::new(Control { stream, broken: false });
                let (peer, over, exposed) = (self.clone(), Mutex::default(), Mutex::default());
                Ok(Arc::new(Session { peer, write, control, start, number, ticket, watched, over, exposed }))
            }
            Reply::Refused { why: Refusal::Denied, .. } => {
                let reason = "the node refuses the token: its client.json of now is wanted".into();
                Err(StoreError::Denied { operation: "reach", path: path.clone(), reason })
            }
            Reply::Refused { reason, .. } => Err(remote(reason)),
            _ => Err(remote("the node's answer makes no sense".into())),
        }
    }
}

impl Session {
    /// A session like this one with the same node.
    pub(crate) fn again(&self) -> Result<Arc<Session>, StoreError> {
        self.peer.begin(self.write)
    }

    /// One that may change something.
    pub(crate) fn for_writing(&self) -> Result<Arc<Session>, StoreError> {
        self.peer.begin(true)
    }

    /// What other sessions know it by.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The numbers of all sessions that may still be changing something.
    pub(crate) fn writers(&self) -> Result<Vec<u64>, Failed> {
        match self.ask(&Question::Writers)? {
            Reply::Writers(writers) => Ok(writers),
            _ => Err(nonsense()),
        }
    }

    /// Whether the node has not been started anew between two sessions.
    pub(crate) fn is_of_same_start(&self, other: &Session) -> bool {
        self.start == other.start
    }

    /// How long a node that was started anew may take to hold again what it held.
    pub(crate) fn wait(&self) -> Duration {
        self.peer.options.wait
    }

    /// The node, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.peer.path
    }

    /// How long an answer may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.peer.options.timeout
    }

    pub(crate) fn transport(&self) -> Transport {
        self.peer.options.transport
    }

    pub(crate) fn doorbell(&self) -> u32 {
        self.peer.options.doorbell
    }

    /// The address of this machine by which it speaks to the node.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.watched.local_addr().ok().map(|address| address.ip())
    }

    /// Whether the node has ended the control connection, and the session with it. A device does not tell: to one that waits,
    /// a node that has ended is as silent as one that is slow.
    pub(crate) fn has_hung_up(&self) -> bool {
        let mut place = [Watched::of(&self.watched, false, false).or_half_ended()];
        sockets::wait(&mut place, Duration::ZERO) && place[0].has_ended()
    }

    /// Whether nothing can be asked any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).broken
    }

    /// Asks, and waits for the answer.
    fn ask(&self, question: &Question) -> Result<Reply, Failed> {
        self.ask_within(question, Duration::ZERO)
    }

    /// Asks what takes the node so much longer than usual.
    fn ask_within(&self, question: &Question, longer: Duration) -> Result<Reply, Failed> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.broken {
            let what = "the connection was lost; open the index again";
            return Err(Failed::Lost(io::Error::new(io::ErrorKind::NotConnected, what)));
        }
        // Until the answer is there, the next one to come would be this question's.
        control.broken = true;
        let stream = &mut control.stream;
        stream.sock.wait_for(self.peer.options.timeout + longer);
        let reply: Reply = send(stream, question).and_then(|()| receive(stream)).map_err(Failed::Lost)?;
        control.broken = false;
        match reply {
            Reply::Refused { why, reason } => Err(Failed::Refused(why, reason)),
            reply => Ok(reply),
        }
    }

    pub(crate) fn names(&self) -> Result<Vec<String>, Failed> {
        match self.ask(&Question::List)? {
            Reply::Names(names) => Ok(names),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn open(&self, name: &str) -> Result<(u64, Vec<ObjectEntry>), Failed> {
        match self.ask(&Question::Open { name: name.into() })? {
            Reply::Generation { generation, objects } => Ok((generation, objects)),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn check(&self, name: &str, replace: bool) -> Result<(), Failed> {
        self.done(&Question::Check { name: name.into(), replace })
    }

    pub(crate) fn begin_draft(&self, name: &str, replace: bool) -> Result<u64, Failed> {
        match self.ask(&Question::Begin { name: name.into(), replace })? {
            Reply::Draft(draft) => Ok(draft),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn allocate(&self, draft: u64, object: &str, bytes: u64) -> Result<u64, Failed> {
        let longer = Duration::from_secs(bytes / SLOWEST_BYTES_PER_S);
        match self.ask_within(&Question::Allocate { draft, object: object.into(), bytes }, longer)? {
            Reply::Region(region) => Ok(region),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn publish(&self, draft: u64, objects: BTreeMap<String, u32>) -> Result<(), Failed> {
        self.done_within(&Question::Publish { draft, objects }, GIVING_BACK)
    }

    pub(crate) fn abandon(&self, draft: u64) -> Result<(), Failed> {
        self.done_within(&Question::Abandon { draft }, GIVING_BACK)
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), Failed> {
        self.done_within(&Question::Delete { name: name.into() }, GIVING_BACK)
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn share(&self, region: u64) -> Result<crate::control::SharedMemory, Failed> {
        match self.ask(&Question::Share { region })? {
            Reply::Shared(shared) => Ok(shared),
            _ => Err(nonsense()),
        }
    }

    /// Connects the node's device to an end of here; the node's end.
    pub(crate) fn pair(&self, endpoint: Endpoint) -> Result<Endpoint, Failed> {
        let over = std::mem::take(&mut *self.over.lock().unwrap_or_else(PoisonError::into_inner));
        match self.ask(&Question::Pair { endpoint, over })? {
            Reply::Paired(theirs) => Ok(theirs),
            _ => Err(nonsense()),
        }
    }

    /// Notes that the node's end of an RDMA connection is of no use any more: it ends with the session, or when the next one
    /// is made. Whoever ends one does not wait.
    pub(crate) fn end_pair(&self, theirs: u32) {
        self.over.lock().unwrap_or_else(PoisonError::into_inner).push(theirs);
    }

    /// By what a region of `bytes` is reached over RDMA connections of this session.
    pub(crate) fn expose(&self, region: u64, bytes: u64) -> Result<ExposedMemory, Failed> {
        let exposed = || self.exposed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = exposed().get(&region) {
            return Ok(*memory);
        }
        // Its pages are gone through.
        let longer = Duration::from_secs(bytes / SLOWEST_BYTES_PER_S);
        match self.ask_within(&Question::Expose { region }, longer)? {
            Reply::Exposed(memory) => {
                exposed().insert(region, memory);
                Ok(memory)
            }
            _ => Err(nonsense()),
        }
    }

    fn done(&self, question: &Question) -> Result<(), Failed> {
        self.done_within(question, Duration::ZERO)
    }

    fn done_within(&self, question: &Question, longer: Duration) -> Result<(), Failed> {
        match self.ask_within(question, longer)? {
            Reply::Done => Ok(()),
            _ => Err(nonsense()),
        }
    }

    /// A data connection, which does not block. An error of the kind `ConnectionRefused` if the node does not know the session
    /// any more.
    pub(crate) fn data(&self) -> io::Result<TcpStream> {
        let mut stream =
            Patient::new(connect(&self.peer.host, self.peer.options.timeout)?, self.peer.options.timeout)?;
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

fn nonsense() -> Failed {
    Failed::Lost(io::Error::new(io::ErrorKind::InvalidData, "its answer makes no sense"))
}
