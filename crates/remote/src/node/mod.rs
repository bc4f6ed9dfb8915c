//! A memory node: regions of memory, and the one thread that transfers their bytes for transports without
//! RDMA.
//!
//! The node listens on one port. The first byte of a connection tells its protocol: TLS for a control
//! connection or a request for metrics, the hello of [`crate::wire`] for a data connection, and `GET` for a
//! health request. Other connections are closed.

mod control;
mod data;
mod listen;
#[cfg(test)]
mod model;
mod rdma;
mod region_memory;
mod regions;
mod session;

use crate::identity::Identity;
use listen::ListenThread;
use regions::Regions;
use serde::Serialize;
use session::{Session, SessionTicket};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// Options of [`Node::start`].
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Address to listen on. Port 0 chooses a free port.
    pub listen: SocketAddr,
    /// Maximum bytes of memory for regions.
    pub capacity_bytes: u64,
}

/// State and counters of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Maximum bytes of memory for regions.
    pub capacity_bytes: u64,
    /// Bytes of memory that regions take.
    pub used_bytes: u64,
    /// Names of the published indexes.
    pub indexes: Vec<String>,
    /// Number of clients with a control connection.
    pub sessions: u64,
    /// Number of RDMA connections.
    pub queue_pairs: u64,
    /// Operations on data connections so far. Those by shared memory and RDMA are not counted.
    pub operations: u64,
    /// Bytes sent on data connections so far.
    pub sent_bytes: u64,
    /// Bytes received on data connections so far.
    pub received_bytes: u64,
    /// ControlConnection connections refused so far, for lack of TLS or a wrong token.
    pub refused: u64,
}

/// Counters of a node, for [`NodeStatus`].
#[derive(Debug, Default)]
struct NodeCounters {
    operations: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    refused: AtomicU64,
}

/// A control connection, kept in order to end it when the node stops or the client does not authenticate in
/// time.
struct ControlConnection {
    stream: TcpStream,
    began: Instant,
    /// Set when the client has sent the token.
    is_authenticated: Arc<AtomicBool>,
}

/// State that the threads of a node share.
struct NodeState {
    regions: Regions,
    identity: Identity,
    tls: Arc<rustls::ServerConfig>,
    sessions: Mutex<HashMap<SessionTicket, Arc<Session>>>,
    /// Sessions that may write, until all their connections have ended.
    writers: Mutex<Vec<Weak<Session>>>,
    /// ControlConnection connections by number.
    controls: Mutex<HashMap<u64, ControlConnection>>,
    counters: NodeCounters,
    stopping: AtomicBool,
    /// Wakes the listening thread.
    waker: mio::Waker,
}

impl NodeState {
    fn writers(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionTicket, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn controls(&self) -> MutexGuard<'_, HashMap<u64, ControlConnection>> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the listening thread check for changes now.
    fn wake(&self) {
        // If the wakeup fails, the thread still checks once a second.
        let _ = self.waker.wake();
    }

    /// Ends the control connections that match.
    fn end_controls(&self, selects: impl Fn(&ControlConnection) -> bool) {
        for control in self.controls().values().filter(|control| selects(control)) {
            // An error means that the connection is closed already.
            let _ = control.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn status(&self) -> NodeStatus {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (sessions, queue_pairs) = {
            let sessions = self.sessions();
            (sessions.len() as u64, sessions.values().map(|session| session.queue_pairs()).sum())
        };
        NodeStatus {
            capacity_bytes: self.regions.capacity,
            used_bytes: self.regions.used(),
            indexes: self.regions.names(),
            sessions,
            queue_pairs,
            operations: count(&self.counters.operations),
            sent_bytes: count(&self.counters.sent_bytes),
            received_bytes: count(&self.counters.received_bytes),
            refused: count(&self.counters.refused),
        }
    }
}

/// A running memory node. Dropping it stops the node.
pub struct Node {
    shared: Arc<NodeState>,
    address: SocketAddr,
    listen_thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// [`io::Error`] if the address is in use or not one of this machine, or if the system provides no random
    /// numbers.
    pub fn start(options: &NodeOptions, identity: Identity) -> io::Result<Node> {
        let tls = Arc::new(identity.server_config()?);
        let (listen_thread, waker) = ListenThread::new(options.listen)?;
        let address = listen_thread.address()?;
        let shared = Arc::new(NodeState {
            regions: Regions::new(options.capacity_bytes)?,
            identity,
            tls,
            sessions: Mutex::default(),
            writers: Mutex::default(),
            controls: Mutex::default(),
            counters: NodeCounters::default(),
            stopping: AtomicBool::new(false),
            waker,
        });
        let for_thread = shared.clone();
        let listen_thread = std::thread::Builder::new()
            .name("memory-node".into())
            .spawn(move || listen_thread.run(&for_thread))?;
        Ok(Node { shared, address, listen_thread: Some(listen_thread) })
    }

    /// Returns the address that the node listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the credentials for clients.
    pub fn credentials(&self) -> &crate::Credentials {
        self.shared.identity.credentials()
    }

    /// Returns the state and the counters of the node.
    pub fn status(&self) -> NodeStatus {
        self.shared.status()
    }

    /// Returns true if the listening thread has ended unexpectedly.
    pub fn has_failed(&self) -> bool {
        self.listen_thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake();
        self.shared.end_controls(|_| true);
        if let Some(listen_thread) = self.listen_thread.take() {
            let _ = listen_thread.join();
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Node({}, {:?})", self.address, self.status())
    }
}
