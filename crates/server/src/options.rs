//! Options of a server.

use bathyal_index::{AuditOptions, OpenOptions, StoreOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The port of a server, if none is chosen.
pub const DEFAULT_PORT: u16 = 7700;
/// The largest body of a request in bytes: some 20,000 vectors of 768 floats as Arrow.
const MAX_BODY_BYTES: u64 = 64 << 20;
/// Memory for the bodies of all requests at once, in bytes.
const REQUEST_MEMORY_BYTES: u64 = 512 << 20;
/// The most connections.
const MAX_CONNECTIONS: usize = 1024;
/// The most requests that wait for a thread.
const MAX_WAITING: usize = 1024;
/// The most open collections and indexes.
const MAX_OPEN: usize = 256;

/// How old the content of a collection may be that another process writes.
const REFRESH: Duration = Duration::from_secs(1);

/// How long a server may write to a bucket after it has renewed its lease. Longer than the pauses of most
/// machines and stores, since a holder that is only slow is replaced as well; shorter than the time of a
/// request, so that writes that wait for another holder are still done.
const LEASE: Duration = Duration::from_secs(10);
/// The shortest lease: it is renewed three times meanwhile, and a request to a store takes some 100 ms.
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(100);

/// The certificate and the private key of a server, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those of its issuers.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Limits of requests. A request beyond them is refused, and nothing of it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// The largest body in bytes.
    pub body_bytes: u64,
    /// Memory for the bodies of all requests at once, in bytes. Text takes several times the bytes of the
    /// body while it is read.
    pub memory_bytes: u64,
    /// The most connections at once; others wait until one ends.
    pub connections: usize,
    /// The most requests that wait for a thread; others are refused and may try again.
    pub waiting: usize,
    /// The most time of a request. Its work is cancelled then.
    pub time: Duration,
    /// The most time in which a client sends the headers of the next request, or makes no progress with a
    /// body. Longer than the minute after which common proxies close connections that they do not use.
    pub idle: Duration,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            body_bytes: MAX_BODY_BYTES,
            memory_bytes: REQUEST_MEMORY_BYTES,
            connections: MAX_CONNECTIONS,
            waiting: MAX_WAITING,
            time: Duration::from_secs(60),
            idle: Duration::from_secs(75),
        }
    }
}

/// Options of a server.
#[derive(Clone)]
pub struct ServerOptions {
    /// The folder, bucket or folder of a bucket whose collections and indexes are served.
    pub data: PathBuf,
    /// Options of the object store, if `data` is in one.
    pub store: StoreOptions,
    /// How to open indexes and the segments of collections. A memory budget is that of each of them.
    pub index: OpenOptions,
    /// Bytes of memory for new rows of each collection; `None` is the default of collections.
    pub write_memory_bytes: Option<u64>,
    /// The address to listen at.
    pub listen: SocketAddr,
    /// The address at which counters are offered; `None` offers none.
    pub metrics: Option<SocketAddr>,
    /// The file of keys.
    pub keys: PathBuf,
    /// The certificate; `None` serves plain HTTP.
    pub tls: Option<TlsFiles>,
    /// True to serve plain HTTP at an address that other machines reach.
    pub insecure: bool,
    /// Limits of requests.
    pub limits: RequestLimits,
    /// The most collections and indexes that are open at once; the one that was used least recently is
    /// closed.
    pub open: usize,
    /// How old the content of a collection may be that another process writes. A request that finds it older
    /// reads the changes first.
    pub refresh: Duration,
    /// The address under which other servers of the same data reach this one, `http://HOST:PORT` or
    /// `https://HOST:PORT`; `None` means `listen`, if that is the address of one machine.
    pub advertise: Option<String>,
    /// How long this server may write to a bucket after it has renewed its lease; at least 100 ms. A server
    /// that does not answer any more is replaced after some 1.3 times as long.
    pub lease: Duration,
    /// Certificates in PEM of those who issue the certificates of the other servers; `None` means those that
    /// the system trusts.
    pub peer_certificates: Option<PathBuf>,
    /// Searches that take longer are logged with how they were answered; `None` logs none.
    pub slow: Option<Duration>,
    /// The audit of live searches of each collection and index; `None` audits none.
    pub audit: Option<AuditOptions>,
}

impl ServerOptions {
    /// Returns the options of a server of `data`, at the usual port of this machine only.
    pub fn new(data: impl Into<PathBuf>, keys: impl Into<PathBuf>) -> ServerOptions {
        ServerOptions {
            data: data.into(),
            store: StoreOptions::default(),
            index: OpenOptions::default(),
            write_memory_bytes: None,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT),
            metrics: None,
            keys: keys.into(),
            tls: None,
            insecure: false,
            limits: RequestLimits::default(),
            open: MAX_OPEN,
            refresh: REFRESH,
            advertise: None,
            lease: LEASE,
            peer_certificates: None,
            slow: None,
            audit: None,
        }
    }
}
