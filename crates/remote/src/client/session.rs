//! A control connection to a node, and what is asked on it; the data connections of all who read through it.

use super::options::{RemoteOptions, Transport};
use super::patient::{Patient, connect};
use crate::control::{ObjectEntry, Question, Refusal, Reply, SharedMemory, VERSION, receive, send};
use crate::identity;
use crate::wire::{MAGIC, TICKET_BYTES, WELCOME};
use bathyal_store::{Cancelling, StoreError};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A node whose machine is gone is noticed after some three times this.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// See the module's description.
pub(crate) struct Session {
    host: String,
    path: PathBuf,
    options: RemoteOptions,
    write: bool,
    control: Mutex<Control>,
    /// What this start of the node is known by.
    start: u64,
    ticket: [u8; TICKET_BYTES],
}

struct Control {
    stream: StreamOwned<ClientConnection, Patient>,
    /// Whether a question was left without its answer.
    broken: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Session({})", self.path.display())
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
            Failed::Lost(_) if Cancelling::is_asked() => StoreError::Cancelled,
            Failed::Refused(Refusal::Exists, _) => StoreError::Exists { path },
            Failed::Refused(Refusal::Missing, _) => StoreError::Missing { what: "index", path },
            Failed::Refused(_, reason) => StoreError::Remote { operation, path, reason },
            Failed::Lost(e) => {
                let reason = format!("the memory node does not answer: {e}");
                StoreError::Remote { operation, path, reason }
            }
        }
    }
}

impl Session {
    /// Says the token to the node at `host`.
    pub(crate) fn begin(
        host: &str,
        path: &Path,
        options: &RemoteOptions,
        write: bool,
    ) -> Result<Arc<Session>, StoreError> {
        let remote = |reason: String| StoreError::Remote { operation: "reach", path: path.into(), reason };
        let lost = |e: io::Error| {
            if Cancelling::is_asked() {
                return StoreError::Cancelled;
            }
            remote(format!("the memory node does not answer: {e}; is `bathyal memory-node` running there?"))
        };
        let (config, pin) = identity::client(&options.credentials.peer_key).map_err(lost)?;
        let stream = connect(host, options.timeout).map_err(lost)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(lost)?;
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
            Reply::Welcome { start, ticket, .. } => {
                let ticket = identity::unhex(&ticket).and_then(|bytes| bytes.try_into().ok());
                let ticket = ticket.ok_or_else(|| remote("the node's answer makes no sense".into()))?;
                let control = Mutex::new(Control { stream, broken: false });
                let (host, path) = (host.to_owned(), path.to_path_buf());
                Ok(Arc::new(Session { host, path, options: options.clone(), write, control, start, ticket }))
            }
            Reply::Refused { why: Refusal::Denied, .. } => {
                Err(remote("the node refuses the token: its client.json of now is wanted".into()))
            }
            Reply::Refused { reason, .. } => Err(remote(reason)),
            _ => Err(remote("the node's answer makes no sense".into())),
        }
    }

    /// A session like this one with the same node, if that has not been started anew.
    pub(crate) fn again(&self) -> Result<Option<Arc<Session>>, StoreError> {
        let session = Session::begin(&self.host, &self.path, &self.options, self.write)?;
        Ok((session.start == self.start).then_some(session))
    }

    /// The node, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How long an answer may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    pub(crate) fn transport(&self) -> Transport {
        self.options.transport
    }

    /// Asks, and waits for the answer.
    fn ask(&self, question: &Question) -> Result<Reply, Failed> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.broken {
            let what = "the connection was lost; open the index again";
            return Err(Failed::Lost(io::Error::new(io::ErrorKind::NotConnected, what)));
        }
        // Until the answer is there, the next one to come would be this question's.
        control.broken = true;
        let stream = &mut control.stream;
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
        match self.ask(&Question::Allocate { draft, object: object.into(), bytes })? {
            Reply::Region(region) => Ok(region),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn publish(&self, draft: u64, objects: &[&str]) -> Result<(), Failed> {
        let objects = objects.iter().map(|name| (*name).to_owned()).collect();
        self.done(&Question::Publish { draft, objects })
    }

    pub(crate) fn abandon(&self, draft: u64) -> Result<(), Failed> {
        self.done(&Question::Abandon { draft })
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), Failed> {
        self.done(&Question::Delete { name: name.into() })
    }

    pub(crate) fn share(&self, region: u64) -> Result<SharedMemory, Failed> {
        match self.ask(&Question::Share { region })? {
            Reply::Shared(shared) => Ok(shared),
            _ => Err(nonsense()),
        }
    }

    fn done(&self, question: &Question) -> Result<(), Failed> {
        match self.ask(question)? {
            Reply::Done => Ok(()),
            _ => Err(nonsense()),
        }
    }

    /// A data connection, which does not block. An error of the kind `ConnectionRefused` if the node does not know the session
    /// any more.
    pub(crate) fn data(&self) -> io::Result<TcpStream> {
        let mut stream = Patient::new(connect(&self.host, self.options.timeout)?, self.options.timeout)?;
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
