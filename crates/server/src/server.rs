//! A running server.

use crate::batches::{BatchLimits, Batches};
use crate::body_memory::BodyMemory;
use crate::counters::Counters;
use crate::entries::{Entries, EntryOptions};
use crate::failure::ServerError;
use crate::gate::Gate;
use crate::keys::Keys;
use crate::listen::Listener;
use crate::options::ServerOptions;
use crate::places::Places;
use crate::replay::Replays;
use crate::routes;
use crate::state::Shared;
use crate::tls::Certificates;
use crate::work::{WORK_THREADS, Work};
use axum::Router;
use std::net::SocketAddr;
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
    /// [`ServerError::Option`] for plain HTTP at an address that other machines reach;
    /// [`ServerError::Content`] for keys or a certificate that cannot be used; [`ServerError::System`] if the
    /// address cannot be used; [`ServerError::File`].
    pub fn start(options: ServerOptions) -> Result<Server, ServerError> {
        check_encryption(&options)?;
        if let Some(audit) = &options.audit {
            audit.check().map_err(|error| ServerError::Option(error.to_string()))?;
        }
        let certificates = options.tls.as_ref().map(Certificates::read).transpose()?;
        let tls = certificates.clone().map(Certificates::configuration).transpose()?;
        let tls = tls.map(|configuration| TlsAcceptor::from(Arc::new(configuration)));
        let (keys, made_keys) = Keys::read_or_create(&options.keys)?;
        make_folder(&options)?;
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("bathyal-server")
            .max_blocking_threads(WORK_THREADS + SEARCH_BATCHES + 1)
            .build()
            .map_err(|source| ServerError::System { what: "cannot start the threads".into(), source })?;
        let shared = Arc::new(shared(&options, keys));
        let (stopping, stopped) = watch::channel(false);
        let mut serving = Vec::new();
        let mut listen =
            |address: SocketAddr, tls: Option<TlsAcceptor>, router: Router| -> Result<_, ServerError> {
                let socket = runtime.block_on(TcpListener::bind(address));
                let socket = socket.map_err(|source| ServerError::System {
                    what: format!("cannot listen at {address}"),
                    source,
                })?;
                let address = socket.local_addr().unwrap_or(address);
                let listener = Listener { socket, tls, router, limits: options.limits };
                serving.push(runtime.spawn(listener.serve(stopped.clone(), PATIENCE)));
                Ok(address)
            };
        let metrics = options.metrics.map(|address| {
            let is_local = address.ip().is_loopback();
            let router = crate::metrics::router(&shared, is_local);
            listen(address, tls.clone().filter(|_| !is_local), router)
        });
        let metrics = metrics.transpose()?;
        let address = listen(options.listen, tls, routes::router(&shared))?;
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
    let is_address = options.data.to_str().is_some_and(|text| text.contains("://"));
    if is_address {
        return Ok(());
    }
    std::fs::create_dir_all(&options.data).map_err(|source| ServerError::File {
        path: options.data.clone(),
        action: "make the folder",
        source,
    })
}

/// Returns what all requests share.
fn shared(options: &ServerOptions, keys: Keys) -> Shared {
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
    });
    Shared {
        gate: Gate::new(options.keys.clone(), keys),
        entries: Arc::new(entries),
        limits,
        body_memory: BodyMemory::new(limits.memory_bytes),
        work: Work::new(limits.waiting, limits.time, options.data.clone()),
        collection_searches: Batches::new(searches),
        index_searches: Places::new(limits.waiting, "searches"),
        replays: Replays::default(),
        counters: Counters::default(),
        slow: options.slow,
        stopping: AtomicBool::new(false),
    }
}

/// Reads keys and certificates again when their files change.
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
        if let Some(certificates) = &certificates {
            report("certificates", certificates.reload());
        }
    }
}
