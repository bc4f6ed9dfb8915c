//! A running server.

use crate::batches::{BatchLimits, Batches};
use crate::body_memory::BodyMemory;
use crate::counters::Counters;
use crate::entries::{Entries, EntryOptions};
use crate::failure::ServerError;
use crate::gate::Gate;
use crate::keys::Keys;
use crate::lease::{Lease, is_address};
use crate::listen::Listener;
use crate::options::{MIN_LEASE, ServerOptions};
use crate::peers::{Peers, is_loopback};
use crate::places::Places;
use crate::replay::Replays;
use crate::routes;
use crate::snapshots::Snapshots;
use crate::state::Shared;
use crate::tls::Certificates;
use crate::work::{WORK_THREADS, Work};
use axum::Router;
use axum::http::Uri;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The interval at which the files of keys and certificates are looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);
/// The most time in which requests end when the server stops.
const PATIENCE: Duration = Duration::from_secs(30);
/// Threads besides those for work and searches: for the lease, names of other servers, and the readiness.
const OTHER_THREADS: usize = 4;
/// Batches of searches that are answered at the same time: while one reads, another compares.
const SEARCH_BATCHES: usize = 12;

/// A running server. It stops when it is dropped.
pub struct Server {
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
    stopping: watch::Sender<bool>,
    serving: Vec<JoinHandle<()>>,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    made_keys: bool,
}

impl Server {
    /// Starts a server. If its folder does not exist, it is made; if there is no file of keys, one is made
    /// with a key that may do everything.
    ///
    /// # Errors
    /// [`ServerError::Option`] for plain HTTP at an address that other machines reach, and for an address for
    /// other servers that is none; [`ServerError::Content`] for keys or certificates that cannot be used;
    /// [`ServerError::System`] if the address cannot be used; [`ServerError::File`].
    pub fn start(options: ServerOptions) -> Result<Server, ServerError> {
        check_encryption(&options)?;
        if let Some(audit) = &options.audit {
            audit.check().map_err(|error| ServerError::Option(error.to_string()))?;
        }
        check_lease(&options)?;
        let certificates = options.tls.as_ref().map(Certificates::read).transpose()?;
        let tls = certificates.clone().map(Certificates::configuration).transpose()?;
        let tls = tls.map(|configuration| TlsAcceptor::from(Arc::new(configuration)));
        let peers = Peers::new(&options)?;
        let (keys, made_keys) = Keys::read_or_create(&options.keys)?;
        make_folder(&options)?;
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("bathyal-server")
            .max_blocking_threads(WORK_THREADS + SEARCH_BATCHES + OTHER_THREADS)
            .build()
            .map_err(|source| ServerError::System { what: "cannot start the threads".into(), source })?;
        let (socket, address) = bind(&runtime, options.listen)?;
        let shared = Arc::new(shared(&options, (keys, peers), address)?);
        shared.lease.keep().map_err(|source| ServerError::System {
            what: "cannot start the thread of the lease".into(),
            source,
        })?;
        let (stopping, stopped) = watch::channel(false);
        let mut serving = Vec::new();
        let mut serve = |socket: TcpListener, tls: Option<TlsAcceptor>, router: Router| {
            let listener = Listener { socket, tls, router, limits: options.limits };
            serving.push(runtime.spawn(listener.serve(stopped.clone(), PATIENCE)));
        };
        let metrics = match options.metrics {
            None => None,
            Some(address) => {
                let is_local = address.ip().is_loopback();
                let (socket, address) = bind(&runtime, address)?;
                let router = crate::metrics::router(&shared, is_local);
                serve(socket, tls.clone().filter(|_| !is_local), router);
                Some(address)
            }
        };
        serve(socket, tls, routes::router(&shared));
        runtime.spawn(reload(shared.clone(), certificates, stopped));
        Ok(Server { runtime: Some(runtime), shared, stopping, serving, address, metrics, made_keys })
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of its counters, if it offers them.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Returns true if there was no file of keys, and the server made one.
    pub fn made_keys(&self) -> bool {
        self.made_keys
    }

    /// Stops: accepts no more connections, lets requests end, and closes all collections.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // All who listen have ended already if nobody is told.
        let _ = self.stopping.send(true);
        if let Some(runtime) = self.runtime.take() {
            for serving in self.serving.drain(..) {
                // A listener that panicked has no requests left.
                let _ = runtime.block_on(serving);
            }
            runtime.shutdown_timeout(PATIENCE);
        }
        self.shared.entries.close();
        self.shared.lease.release();
    }
}

/// Listens at an address. Returns it with the port that was chosen if none was given.
fn bind(runtime: &Runtime, address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let socket = runtime.block_on(TcpListener::bind(address));
    let socket = socket
        .map_err(|source| ServerError::System { what: format!("cannot listen at {address}"), source })?;
    let address = socket.local_addr().unwrap_or(address);
    Ok((socket, address))
}

/// Checks the options about other servers of the same data.
fn check_lease(options: &ServerOptions) -> Result<(), ServerError> {
    if options.lease < MIN_LEASE {
        let message = format!(
            "--lease is {} ms; it has to be at least {} ms",
            options.lease.as_millis(),
            MIN_LEASE.as_millis()
        );
        return Err(ServerError::Option(message));
    }
    let Some(text) = &options.advertise else { return Ok(()) };
    let refuse = |reason: &str| {
        let message =
            format!("--advertise is {text:?}: {reason}; expected http://HOST:PORT or https://HOST:PORT");
        Err(ServerError::Option(message))
    };
    let Ok(url) = text.parse::<Uri>() else { return refuse("it is no address") };
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
        return refuse("it has no scheme or no host");
    }
    let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if has_user || !matches!(url.path(), "" | "/") || url.query().is_some() {
        return refuse("it has more than a scheme, a host and a port");
    }
    if url.scheme_str() == Some("http") && !options.insecure && !is_loopback(&url) {
        return refuse(
            "other servers would send keys there unencrypted; give an https:// address, or --insecure if \
             something in between encrypts",
        );
    }
    Ok(())
}

/// Returns the address under which other servers of the same data reach a server that listens at `address`.
fn address_for_others(options: &ServerOptions, address: SocketAddr) -> Option<String> {
    if let Some(given) = &options.advertise {
        return Some(given.clone());
    }
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    match address.ip() {
        ip if !ip.is_unspecified() => Some(format!("{scheme}://{address}")),
        // The other servers of a folder are usually on the same machine.
        IpAddr::V4(_) if !is_address(&options.data) => {
            Some(format!("{scheme}://127.0.0.1:{}", address.port()))
        }
        IpAddr::V6(_) if !is_address(&options.data) => Some(format!("{scheme}://[::1]:{}", address.port())),
        _ => {
            tracing::warn!(
                "other servers of the same data cannot reach this one; give --advertise to start several"
            );
            None
        }
    }
}

/// Refuses to send keys unencrypted to other machines.
fn check_encryption(options: &ServerOptions) -> Result<(), ServerError> {
    let addresses = std::iter::once(options.listen).chain(options.metrics);
    match addresses.into_iter().find(|address| !address.ip().is_loopback()) {
        Some(address) if options.tls.is_none() && !options.insecure => Err(ServerError::Option(format!(
            "other machines reach {address}, and keys and data would travel unencrypted; give \
             --tls-certificate and --tls-key, or --insecure if something in front of the server encrypts"
        ))),
        _ => Ok(()),
    }
}

/// Makes the folder of the data, unless it is in a store.
fn make_folder(options: &ServerOptions) -> Result<(), ServerError> {
    if is_address(&options.data) {
        return Ok(());
    }
    std::fs::create_dir_all(&options.data).map_err(|source| ServerError::File {
        path: options.data.clone(),
        action: "make the folder",
        source,
    })
}

/// Returns what all requests share.
fn shared(
    options: &ServerOptions,
    (keys, peers): (Keys, Peers),
    address: SocketAddr,
) -> Result<Shared, ServerError> {
    let address = address_for_others(options, address);
    let lease = Lease::new(options, address.as_deref());
    let lease = lease.map(Arc::new).map_err(|refusal| ServerError::Option(refusal.message))?;
    let limits = options.limits;
    let searches = BatchLimits {
        threads: Arc::new(Semaphore::new(SEARCH_BATCHES)),
        waiting: limits.waiting,
        time: limits.time,
    };
    let entries = Entries::new(EntryOptions {
        data: options.data.clone(),
        store: options.store.clone(),
        index: options.index.clone(),
        write_memory_bytes: options.write_memory_bytes,
        most_open: options.open,
        refresh: options.refresh,
        audit: options.audit,
        lease: lease.clone(),
    });
    Ok(Shared {
        gate: Gate::new(options.keys.clone(), keys),
        entries: Arc::new(entries),
        lease,
        peers,
        limits,
        body_memory: BodyMemory::new(limits.memory_bytes),
        work: Work::new(limits.waiting, limits.time, options.data.clone()),
        collection_searches: Batches::new(searches),
        index_searches: Places::new(limits.waiting, "searches"),
        replays: Replays::default(),
        snapshots: Snapshots::default(),
        counters: Counters::default(),
        slow: options.slow,
        stopping: AtomicBool::new(false),
    })
}

/// Reads keys and certificates again when their files change, and drops snapshots whose time is over.
async fn reload(
    shared: Arc<Shared>,
    certificates: Option<Arc<Certificates>>,
    mut stopped: watch::Receiver<bool>,
) {
    let report = |what: &str, outcome: Result<bool, ServerError>| match outcome {
        Ok(false) => {}
        Ok(true) => tracing::info!("{what} were read again"),
        Err(error) => tracing::error!(%error, "{what} have changed and cannot be used; the former ones stay"),
    };
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(RELOAD_INTERVAL) => {}
        }
        report("keys", shared.gate.reload());
        shared.snapshots.sweep();
        if let Some(certificates) = &certificates {
            report("certificates", certificates.reload());
        }
    }
}
