//! The threads of the pool, and the engines that callers borrow from it.

use super::client::PoolClient;
use super::inbox::Inbox;
use super::job::{Job, Scratch};
use super::semaphore::Semaphore;
use super::spare_engines::{DevicePermits, SpareEngine, SpareEngines};
use super::worker::work;
use crate::error::IndexError;
use bathyal_tier::lanes::{Padded, thread_number};
use bathyal_tier::{Engine, TierError};
use std::cell::RefCell;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The most jobs that are with the workers at once. Later jobs wait with their callers and take only the
/// callers' memory.
const MOST_JOBS: usize = 4096;

/// The search threads of a process, for all its open indexes.
pub(in crate::open) struct Pool {
    process: u32,
    pub(super) job_permits: Semaphore,
    inboxes: Mutex<InboxList>,
    /// The version of the newest list of inboxes; that of the empty list is 0.
    version: Padded<AtomicU64>,
    device_permits: DevicePermits,
    /// Spare engines over memory, and over devices. Opening one over a device takes longer, so engines over
    /// memory do not displace those.
    spare_engines: [SpareEngines; 2],
}

/// The workers' inboxes. The list is replaced and never changed: threads keep a copy and check whether there
/// is a newer one.
type InboxList = Arc<[Arc<Inbox>]>;

/// A thread's copy of the list of inboxes.
struct CachedInboxes {
    process: u32,
    version: u64,
    inboxes: InboxList,
}

thread_local! {
    static CACHED_INBOXES: RefCell<CachedInboxes> =
        RefCell::new(CachedInboxes { process: 0, version: 0, inboxes: Arc::new([]) });
}

/// The workers whose load is compared for one query: enough to find one that is idle, or less busy than most.
const COMPARED_WORKERS: usize = 8;

/// An engine that a caller uses on its own thread.
pub(in crate::open) struct BorrowedEngine {
    pub(in crate::open) engine: Engine,
    /// The memory of an earlier query, if there is any.
    pub(in crate::open) scratch: Option<Scratch>,
    pub(in crate::open) reservation: EngineReservation,
}

/// The memory and the permit that are returned with a borrowed engine.
pub(in crate::open) struct EngineReservation {
    client: Arc<PoolClient>,
    bytes: u64,
    permit: Option<usize>,
}

static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the number of this process. A child made by fork has another one.
pub(in crate::open) fn process() -> u32 {
    std::process::id()
}

impl Pool {
    /// Returns the pool of this process. A child made by fork creates one of its own: it has none of its
    /// parent's threads, and locks may be held by them.
    pub(in crate::open) fn of_this_process() -> &'static Pool {
        loop {
            let current = POOL.load(Ordering::Acquire);
            // SAFETY: null or a pool that was leaked below and is never freed.
            if let Some(pool) = unsafe { current.as_ref() }
                && pool.process == process()
            {
                return pool;
            }
            let fresh = Box::into_raw(Box::new(Pool {
                process: process(),
                job_permits: Semaphore::new(MOST_JOBS),
                inboxes: Mutex::new(Arc::new([])),
                version: Padded::default(),
                device_permits: DevicePermits::new(cores()),
                spare_engines: Default::default(),
            }));
            if POOL.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: `fresh` was allocated above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    fn inboxes(&self) -> MutexGuard<'_, InboxList> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a job to `threads` workers.
    pub(super) fn send(&'static self, job: &Arc<Job>, threads: usize) -> Result<(), IndexError> {
        if threads == 1 && self.send_to_near_worker(job) {
            return Ok(());
        }
        self.send_to_least_loaded(job, threads)
    }

    /// Sends a job to an idle worker, or, if there are as many workers as cores, to the least loaded of a
    /// few. Takes no lock that other callers take. Returns `false` if [`Pool::send_to_least_loaded`] has to
    /// send the job.
    fn send_to_near_worker(&self, job: &Arc<Job>) -> bool {
        let send = |cached: &RefCell<CachedInboxes>| {
            let CachedInboxes { process, version, inboxes } = &mut *cached.borrow_mut();
            let newest = self.version.0.load(Ordering::Acquire);
            if (*process, *version) != (self.process, newest) {
                (*process, *version, *inboxes) = (self.process, newest, self.inboxes().clone());
            }
            let first = thread_number();
            let compared = inboxes.len().min(COMPARED_WORKERS);
            let near = (0..compared).map(|i| &inboxes[(first + i) % inboxes.len()]);
            let Some((load, inbox)) = near.map(|inbox| (inbox.load(), inbox)).min_by_key(|(load, _)| *load)
            else {
                return false;
            };
            (load == 0 || inboxes.len() >= cores()) && inbox.send_job(job.clone())
        };
        // A thread that ends has no copy of the list any more.
        CACHED_INBOXES.try_with(send).unwrap_or(false)
    }

    /// Sends a job to the `threads` least loaded workers. Starts workers, up to one per core, before busy
    /// ones get more work.
    fn send_to_least_loaded(&'static self, job: &Arc<Job>, threads: usize) -> Result<(), IndexError> {
        let mut list = self.inboxes();
        let mut inboxes: Vec<Arc<Inbox>> = list.iter().filter(|inbox| inbox.is_open()).cloned().collect();
        let idle = |inboxes: &[Arc<Inbox>]| inboxes.iter().filter(|inbox| inbox.load() == 0).count();
        let mut started = Ok(());
        while inboxes.len() < threads || (inboxes.len() < cores() && idle(&inboxes) < threads) {
            let inbox = Arc::new(Inbox::new(inboxes.len()));
            started = self.start_worker(inbox.clone());
            if started.is_err() {
                break;
            }
            inboxes.push(inbox);
        }
        if !inboxes.iter().map(Arc::as_ptr).eq(list.iter().map(Arc::as_ptr)) {
            *list = inboxes.iter().cloned().collect();
            self.version.0.fetch_add(1, Ordering::Release);
        }
        started?;
        // Each load is read once: loads change meanwhile, and a sort by keys that change may panic.
        inboxes.sort_by_cached_key(|inbox| inbox.load());
        let sent = inboxes[..threads].iter().filter(|inbox| inbox.send_job(job.clone())).count();
        if sent == 0 {
            return Err(IndexError::Internal("a search thread has ended".into()));
        }
        Ok(())
    }

    fn start_worker(&'static self, inbox: Arc<Inbox>) -> Result<(), IndexError> {
        let thread = std::thread::Builder::new().name("bathyal-search".into());
        thread
            .spawn(move || work(self, inbox))
            .map(drop)
            .map_err(|source| TierError::System { operation: "start a search thread", source }.into())
    }

    fn spare_engines(&self, client: &PoolClient) -> &SpareEngines {
        &self.spare_engines[usize::from(!client.is_addressable())]
    }

    /// Lends an engine to a caller that answers a lone query by itself, and reserves `query_bytes` for the
    /// query. Returns `None` if memory is short, or if as many callers as there are cores already search
    /// devices by themselves: the workers answer the other queries.
    pub(in crate::open) fn borrow_engine(
        &self,
        client: &Arc<PoolClient>,
        query_bytes: u64,
    ) -> Result<Option<BorrowedEngine>, TierError> {
        let permit = if client.is_addressable() { None } else { self.device_permits.acquire() };
        if permit.is_none() && !client.is_addressable() {
            return Ok(None);
        }
        let borrowed = self.borrow_with_permit(client, query_bytes, permit);
        if !matches!(borrowed, Ok(Some(_))) {
            permit.into_iter().for_each(|permit| self.device_permits.release(permit));
        }
        borrowed
    }

    /// Lends an engine to a caller that reads vectors. The number of such callers is not limited. Returns
    /// `None` if memory is short.
    pub(in crate::open) fn borrow_engine_to_read(
        &self,
        client: &Arc<PoolClient>,
    ) -> Result<Option<BorrowedEngine>, TierError> {
        self.borrow_with_permit(client, 0, None)
    }

    /// Lends a spare engine, or opens a new one.
    fn borrow_with_permit(
        &self,
        client: &Arc<PoolClient>,
        query_bytes: u64,
        permit: Option<usize>,
    ) -> Result<Option<BorrowedEngine>, TierError> {
        let needed = client.engine_bytes + query_bytes;
        if let Some(spare) = self.spare_engines(client).take(client.number) {
            let more = needed.saturating_sub(spare.reserved_bytes);
            if more > 0 && !client.try_reserve(more) {
                spare.close();
                return Ok(None);
            }
            let SpareEngine { client, engine, scratch, reserved_bytes } = spare;
            let reservation = EngineReservation { client, bytes: reserved_bytes + more, permit };
            return Ok(Some(BorrowedEngine { engine: engine.unpark(), scratch, reservation }));
        }
        if !client.try_reserve(needed) {
            return Ok(None);
        }
        match client.open_engine() {
            Ok(engine) => {
                let reservation = EngineReservation { client: client.clone(), bytes: needed, permit };
                Ok(Some(BorrowedEngine { engine, scratch: None, reservation }))
            }
            Err(error) => {
                client.release(needed);
                Err(error)
            }
        }
    }

    /// Takes a borrowed engine back, and keeps it as a spare one unless memory is short.
    pub(in crate::open) fn return_engine(&self, owner: &PoolClient, borrowed: BorrowedEngine) {
        let BorrowedEngine { engine, scratch, reservation } = borrowed;
        let EngineReservation { client, bytes, permit } = reservation;
        match if owner.is_short_of_memory() { None } else { engine.park().ok() } {
            Some(engine) => {
                let spare = SpareEngine { client, engine, scratch, reserved_bytes: bytes };
                let displaced = self.spare_engines(owner).put(spare);
                displaced.into_iter().for_each(SpareEngine::close);
                // A worker that was refused memory meanwhile did not find this engine among the spare ones.
                if owner.is_short_of_memory() {
                    self.close_spare_engines(owner);
                }
            }
            // An engine with a read in flight that will not end was dropped above.
            None => {
                drop(scratch);
                client.release(bytes);
            }
        }
        permit.into_iter().for_each(|permit| self.device_permits.release(permit));
    }

    /// Closes the spare engines of a client, and of the clients that share its memory.
    pub(super) fn close_spare_engines(&self, client: &PoolClient) {
        self.spare_engines
            .iter()
            .for_each(|spares| spares.close_if(|other| other.shares_memory_with(client)));
    }

    /// Closes all engines of a client, and returns when they are closed.
    pub(in crate::open) fn close_engines(&self, client: &PoolClient) {
        self.spare_engines(client).close_if(|other| other.number == client.number);
        let (ack, done) = channel();
        for inbox in self.inboxes().iter() {
            inbox.send_close(client.number, ack.clone());
        }
        drop(ack);
        if !super::worker::is_worker() {
            // This ends when each worker has dropped its sender, even if by a panic.
            while done.recv().is_ok() {}
        }
    }
}

/// Returns the number of cores that this process may use. The number is kept, since finding it reads files of
/// the system and takes longer than a search in memory.
pub(in crate::open) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
