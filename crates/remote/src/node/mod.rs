//! A memory node: regions of memory, and the one thread that moves their bytes where the network card does not.
//!
//! One port takes everything, told apart by the first byte: TLS is a control connection (or asks for metrics), the hello of
//! [`crate::wire`] a data connection, and `GET` asks after the node's health. Everything else is closed.

mod control;
mod data;
mod listen;
mod memory;
#[cfg(test)]
mod model;
mod rdma;
mod regions;
mod session;

use crate::identity::Identity;
use listen::Listening;
use regions::Regions;
use serde::Serialize;
use session::{Session, Ticket};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// What a node is started with.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Where it listens; port 0 is one that is free.
    pub listen: SocketAddr,
    /// Bytes of memory for regions at most.
    pub capacity_bytes: u64,
}

/// What a node is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Bytes of memory for regions at most.
    pub capacity_bytes: u64,
    /// Bytes of memory taken.
    pub used_bytes: u64,
    /// The indexes that stand there.
    pub indexes: Vec<String>,
    /// Peers that are connected.
    pub sessions: u64,
    /// RDMA connections of peers.
    pub queue_pairs: u64,
    /// Operations on data connections so far; those of shared memory and RDMA are not seen.
    pub operations: u64,
    /// Bytes sent on data connections so far.
    pub sent_bytes: u64,
    /// Bytes received on data connections so far.
    pub received_bytes: u64,
    /// Control connections that were refused so far: no TLS, or the wrong token.
    pub refused: u64,
}

/// Counts of what went over data connections.
#[derive(Debug, Default)]
struct Counts {
    operations: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    refused: AtomicU64,
}

/// A control connection, to be ended when the node stops, or when its peer takes too long to say who it is.
struct Control {
    stream: TcpStream,
    began: Instant,
    is_known: Arc<AtomicBool>,
}

/// What the threads of a node share.
struct Shared {
    regions: Regions,
    identity: Identity,
    tls: Arc<rustls::ServerConfig>,
    sessions: Mutex<HashMap<Ticket, Arc<Session>>>,
    /// Those that may change something, until nothing of them is left.
    writers: Mutex<Vec<Weak<Session>>>,
    /// Control connections, by a number each.
    controls: Mutex<HashMap<u64, Control>>,
    counts: Counts,
    stopping: AtomicBool,
    /// Wakes the thread that listens.
    waker: mio::Waker,
}

impl Shared {
    fn writers(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Ticket, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn controls(&self) -> MutexGuard<'_, HashMap<u64, Control>> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the thread that listens look at what has changed.
    fn wake(&self) {
        // One that cannot be woken looks once a second.
        let _ = self.waker.wake();
    }

    /// Ends the control connections of which `is_over` is true.
    fn end_controls(&self, is_over: impl Fn(&Control) -> bool) {
        for control in self.controls().values().filter(|control| is_over(control)) {
            // One that is closed already is over.
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
            operations: count(&self.counts.operations),
            sent_bytes: count(&self.counts.sent_bytes),
            received_bytes: count(&self.counts.received_bytes),
            refused: count(&self.counts.refused),
        }
    }
}

/// A node that runs until it is dropped.
pub struct Node {
    shared: Arc<Shared>,
    address: SocketAddr,
    listening: Option<JoinHandle<()>>,
}

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// [`io::Error`] for an address that is taken or is not this machine's, or without random numbers.
    pub fn start(options: &NodeOptions, identity: Identity) -> io::Result<Node> {
        let tls = Arc::new(identity.server()?);
        let (listening, waker) = Listening::new(options.listen)?;
        let address = listening.address()?;
        let shared = Arc::new(Shared {
            regions: Regions::new(options.capacity_bytes)?,
            identity,
            tls,
            sessions: Mutex::default(),
            writers: Mutex::default(),
            controls: Mutex::default(),
            counts: Counts::default(),
            stopping: AtomicBool::new(false),
            waker,
        });
        let for_thread = shared.clone();
        let listening = std::thread::Builder::new()
            .name("memory-node".into())
            .spawn(move || listening.run(&for_thread))?;
        Ok(Node { shared, address, listening: Some(listening) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What its peers are given.
    pub fn credentials(&self) -> &crate::Credentials {
        self.shared.identity.credentials()
    }

    /// What it is doing.
    pub fn status(&self) -> NodeStatus {
        self.shared.status()
    }

    /// Whether its thread has ended by itself, which it never should.
    pub fn has_failed(&self) -> bool {
        self.listening.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake();
        self.shared.end_controls(|_| true);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Node({}, {:?})", self.address, self.status())
    }
}
