//! Which of the servers of a folder or a bucket writes.
//!
//! One of them holds the *lease* of the data, and the others forward writes to it (`forward`). The lease only
//! decides who tries to write. That no acknowledged write is lost rests on the logs of the collections, of
//! which each has one writer.
//!
//! A server takes the lease when it first gets a write. In a bucket it holds it for a limited time after each
//! renewal (`bucket`), in a folder until it ends (`folder`).

mod bucket;
mod folder;
mod record;

use crate::failure::Refusal;
use crate::options::ServerOptions;
use crate::work::unfinished;
use bathyal_console::Kind;
use bathyal_object::{Claims, ObjectUrl};
use bucket::BucketLease;
use folder::FolderLease;
use record::LeaseRecord;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The folder of the lease in the data. Its name is that of no collection.
const FOLDER: &str = ".bathyal";
/// The folder of the numbered objects of a bucket in [`FOLDER`].
const NUMBERS: &str = "lease";
/// The beginning of the path of a folder in the form of an address.
const FILE_SCHEME: &str = "file://";
/// The beginning of the address of a memory node.
const NODE_SCHEME: &str = "remote://";
/// Renewals within the time of a lease: two may fail, and it is still held.
const RENEWALS: u32 = 3;

/// The server that writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Writer {
    This,
    Other(Holder),
}

/// Another server that holds the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Identifies it among all servers that ever were; empty if it has not told yet.
    pub(crate) identity: String,
    /// The address under which it takes requests; `None` if it has none, or has not told it yet.
    pub(crate) address: Option<String>,
    /// The number of its renewals; always 0 in a folder, where the lock shows that it runs.
    pub(crate) renewal: u64,
}

impl Holder {
    fn of(record: LeaseRecord) -> Holder {
        Holder { identity: record.holder, address: record.address, renewal: record.renewal }
    }

    fn unknown() -> Holder {
        Holder { identity: String::new(), address: None, renewal: 0 }
    }
}

/// The finding of a look at the lease.
#[derive(Debug)]
enum Found {
    /// This server holds it until this moment; `None` means until it ends.
    Ours {
        until: Option<Instant>,
    },
    Theirs(Holder),
}

/// Where the lease is.
#[derive(Debug)]
enum Place {
    Folder(FolderLease),
    Bucket(Box<BucketLease>),
}

impl Place {
    fn look(&mut self) -> Result<Found, Refusal> {
        match self {
            Place::Folder(lease) => lease.look(),
            Place::Bucket(lease) => lease.look(),
        }
    }
}

/// The lease of the served data.
#[derive(Debug)]
pub(crate) struct Lease {
    identity: String,
    /// Locked while the lease is looked at; `None` for data that has no lease.
    place: Option<Mutex<Place>>,
    duration: Duration,
    /// The zero of `until_ns`.
    start: Instant,
    /// This server writes until then, in nanoseconds since `start`; 0 if it does not.
    until_ns: AtomicU64,
    known: Mutex<Known>,
    /// One request looks at a time; the others take what it finds.
    turn: tokio::sync::Mutex<()>,
    stopping: AtomicBool,
}

/// The last finding about other servers.
#[derive(Debug)]
struct Known {
    holder: Option<Holder>,
    /// When the look began that has found it.
    looked: Instant,
}

impl Lease {
    /// Makes the lease of the data of a server, which does not hold it yet. `address` is the one under which
    /// other servers reach it. Sends no request.
    ///
    /// # Errors
    /// A refusal for options that the store does not have.
    pub(crate) fn new(options: &ServerOptions, address: Option<&str>) -> Result<Lease, Refusal> {
        let number: u128 = rand::random();
        let identity = format!("{number:032x}");
        let place = place_of(options, |duration| LeaseRecord::new(&identity, address, duration))?;
        let start = Instant::now();
        Ok(Lease {
            // Data without a lease is written to by whoever wants to.
            until_ns: AtomicU64::new(if place.is_some() { 0 } else { u64::MAX }),
            identity,
            place: place.map(Mutex::new),
            duration: options.lease,
            start,
            known: Mutex::new(Known { holder: None, looked: start }),
            turn: tokio::sync::Mutex::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Returns the interval at which the lease is renewed, and looked at by those who wait for it.
    pub(crate) fn interval(&self) -> Duration {
        self.duration / RENEWALS
    }

    /// Returns true if this server writes at this moment.
    pub(crate) fn is_held(&self) -> bool {
        let until = self.until_ns.load(Ordering::Acquire);
        until == u64::MAX || until > self.start.elapsed().as_nanos() as u64
    }

    /// Refuses a change if another server may write by now.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.is_held() {
            return Ok(());
        }
        let message = "another server may have taken over writing; nothing was done; send the request again";
        Err(Refusal::new(Kind::Cancelled, message))
    }

    /// Returns the server that writes. If none does, this one does from now on.
    pub(crate) async fn writer(self: &Arc<Self>) -> Result<Writer, Refusal> {
        if self.is_held() {
            return Ok(Writer::This);
        }
        let holder = self.known().holder.clone();
        match holder {
            Some(holder) => Ok(Writer::Other(holder)),
            None => self.look().await,
        }
    }

    /// As [`Lease::writer`], from the lease itself.
    pub(crate) async fn look(self: &Arc<Self>) -> Result<Writer, Refusal> {
        let asked = Instant::now();
        let _turn = self.turn.lock().await;
        if self.is_held() {
            return Ok(Writer::This);
        }
        {
            let known = self.known();
            if let Some(holder) = known.holder.clone().filter(|_| known.looked > asked) {
                return Ok(Writer::Other(holder));
            }
        }
        let lease = self.clone();
        let looked = tokio::task::spawn_blocking(move || lease.look_now()).await;
        looked.unwrap_or_else(|error| Err(unfinished(&error)))
    }

    fn look_now(&self) -> Result<Writer, Refusal> {
        let Some(place) = &self.place else { return Ok(Writer::This) };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopping.load(Ordering::Acquire) {
            return Err(Refusal::stopping());
        }
        let looked = Instant::now();
        let found = place.look();
        let mut known = self.known();
        known.looked = looked;
        known.holder = None;
        match found? {
            Found::Ours { until } => {
                self.hold(until);
                tracing::info!("this server writes from now on");
                Ok(Writer::This)
            }
            Found::Theirs(holder) => {
                self.until_ns.store(0, Ordering::Release);
                known.holder = Some(holder.clone());
                Ok(Writer::Other(holder))
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, until: Option<Instant>) {
        let until = until.map_or(u64::MAX, |until| (until - self.start).as_nanos() as u64);
        self.until_ns.store(until, Ordering::Release);
    }

    /// Forgets a server that did not answer as the one that writes: the next request looks at the lease.
    pub(crate) fn forget(&self, holder: &Holder) {
        let mut known = self.known();
        if known.holder.as_ref().is_some_and(|known| known.identity == holder.identity) {
            known.holder = None;
        }
    }

    /// Looks at the lease before the next change: something has failed as if another server wrote.
    pub(crate) fn doubt(&self) {
        let until = self.until_ns.load(Ordering::Acquire);
        if until != u64::MAX {
            // A renewal in the meantime stays.
            let _ = self.until_ns.compare_exchange(until, 0, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Returns true if a request is for this server as the one that writes: it was forwarded to `identity`.
    pub(crate) async fn is_meant(self: &Arc<Self>, identity: &[u8]) -> Result<bool, Refusal> {
        Ok(identity == self.identity.as_bytes() && (self.is_held() || self.look().await? == Writer::This))
    }

    /// Renews the lease in its interval, on a thread of its own, until [`Lease::release`]: work of requests
    /// may take all others.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn keep(self: &Arc<Self>) -> std::io::Result<()> {
        let is_limited = |place: &Mutex<Place>| {
            matches!(*place.lock().unwrap_or_else(PoisonError::into_inner), Place::Bucket(_))
        };
        if !self.place.as_ref().is_some_and(is_limited) {
            return Ok(());
        }
        let (lease, interval) = (Arc::downgrade(self), self.interval());
        let keep = move || loop {
            std::thread::sleep(interval);
            let Some(lease) = lease.upgrade() else { return };
            if lease.stopping.load(Ordering::Acquire) {
                return;
            }
            lease.renew();
        };
        std::thread::Builder::new().name("bathyal-lease".into()).spawn(keep).map(drop)
    }

    /// Renews the lease, if this server has it.
    fn renew(&self) {
        let Some(place) = &self.place else { return };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        let Place::Bucket(lease) = &mut *place else { return };
        match lease.renew() {
            Ok(Some(until)) => self.hold(Some(until)),
            Ok(None) => {
                if self.until_ns.swap(0, Ordering::AcqRel) != 0 {
                    tracing::warn!("another server has taken over writing");
                }
            }
            Err(refusal) => tracing::warn!(error = refusal.message, "the lease could not be renewed"),
        }
    }

    /// Gives up the lease. This server writes no more.
    pub(crate) fn release(&self) {
        self.stopping.store(true, Ordering::Release);
        let Some(place) = &self.place else { return };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        self.until_ns.store(0, Ordering::Release);
        match &mut *place {
            Place::Folder(lease) => lease.release(),
            Place::Bucket(lease) => lease.release(),
        }
    }
}

/// Returns the place of the lease; `None` for a memory node, which has none.
fn place_of(
    options: &ServerOptions,
    record: impl Fn(Option<Duration>) -> LeaseRecord,
) -> Result<Option<Place>, Refusal> {
    let folder = options.data.join(FOLDER);
    let plain = folder.to_str().and_then(|text| text.strip_prefix(FILE_SCHEME));
    if let Some(folder) = plain.map(PathBuf::from).or_else(|| (!is_address(&folder)).then(|| folder.clone()))
    {
        return Ok(Some(Place::Folder(FolderLease::new(folder, record(None)))));
    }
    let invalid =
        |error: bathyal_store::StoreError| Refusal::from(bathyal_collection::CollectionError::from(error));
    if options.data.to_str().is_some_and(|data| data.starts_with(NODE_SCHEME)) {
        return Ok(None);
    }
    let url = ObjectUrl::parse(&folder.join(NUMBERS)).map_err(invalid)?;
    let claims = Claims::new(&url, &options.store).map_err(invalid)?;
    Ok(Some(Place::Bucket(Box::new(BucketLease::new(claims, record(Some(options.lease)))))))
}

/// Returns true if data is in a store, and not in a folder of this machine.
pub(crate) fn is_address(data: &Path) -> bool {
    data.to_str().is_some_and(|text| text.contains("://"))
}
