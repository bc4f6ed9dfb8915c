//! The threads of the pool, and the engines that callers borrow from it.

use super::desk::Desk;
use super::gate::Gate;
use super::job::{Job, Scratch};
use super::spare::{Seats, Spare, Spares};
use super::tenant::Tenant;
use super::worker::work;
use crate::error::IndexError;
use bathyal_tier::lanes::{Padded, thread_number};
use bathyal_tier::{Engine, TierError};
use std::cell::RefCell;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Jobs that may be with the workers at once. Who comes later waits outside, where all that waiting takes is memory of
/// the caller's own.
const MOST_JOBS: usize = 4096;

/// The threads that search, of all indexes that this process has open.
pub(in crate::open) struct Pool {
    process: u32,
    pub(super) gate: Gate,
    desks: Mutex<Desks>,
    /// That of the newest list of desks; 0 is that of none.
    version: Padded<AtomicU64>,
    seats: Seats,
    /// Engines over memory, and over devices: opening one of these takes longer, so the others do not stand in their way.
    spares: [Spares; 2],
}

/// The workers' desks, as a list that is replaced and never changed: threads keep it and look whether there is another.
type Desks = Arc<[Arc<Desk>]>;

thread_local! {
    /// The newest list that this thread knows, with its process and version.
    static KNOWN: RefCell<(u32, u64, Desks)> = RefCell::new((0, 0, Arc::new([])));
}

/// Desks that one query is offered to: enough to find one that is idle, or less busy than most.
const LOOKED_AT: usize = 8;

/// An engine that a caller has for a lone query.
pub(in crate::open) struct Lent {
    pub(in crate::open) engine: Engine,
    /// The memory of a query, if one was left.
    pub(in crate::open) scratch: Option<Scratch>,
    pub(in crate::open) lease: Lease,
}

/// What goes back with an engine.
pub(in crate::open) struct Lease {
    tenant: Arc<Tenant>,
    booked: u64,
    seat: Option<usize>,
}

static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// The number of this process. A child made by fork has another one.
pub(in crate::open) fn process() -> u32 {
    std::process::id()
}

impl Pool {
    /// The pool of this process. A child made by fork begins one of its own: of its parent's it has no thread, and locks
    /// as they happened to be.
    pub(in crate::open) fn of_this_process() -> &'static Pool {
        loop {
            let known = POOL.load(Ordering::Acquire);
            // SAFETY: null or a pool that was leaked below and is never freed.
            if let Some(pool) = unsafe { known.as_ref() }
                && pool.process == process()
            {
                return pool;
            }
            let fresh = Box::into_raw(Box::new(Pool {
                process: process(),
                gate: Gate::new(MOST_JOBS),
                desks: Mutex::new(Arc::new([])),
                version: Padded::default(),
                seats: Seats::new(cores()),
                spares: Default::default(),
            }));
            if POOL.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    fn desks(&self) -> MutexGuard<'_, Desks> {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a job to `threads` workers.
    pub(super) fn send(&'static self, job: &Arc<Job>, threads: usize) -> Result<(), IndexError> {
        if threads == 1 && self.send_near(job) {
            return Ok(());
        }
        self.send_to_all(job, threads)
    }

    /// Gives a job to one worker that is idle, or where there are as many as cores to the least busy of a few: without a lock
    /// that other callers take. `false` where that is for [`Pool::send_to_all`].
    fn send_near(&self, job: &Arc<Job>) -> bool {
        let give = |known: &RefCell<(u32, u64, Desks)>| {
            let (process, version, desks) = &mut *known.borrow_mut();
            let newest = self.version.0.load(Ordering::Acquire);
            if (*process, *version) != (self.process, newest) {
                (*process, *version, *desks) = (self.process, newest, self.desks().clone());
            }
            let first = thread_number();
            let near = (0..desks.len().min(LOOKED_AT)).map(|i| &desks[(first + i) % desks.len()]);
            let Some((load, desk)) = near.map(|desk| (desk.load(), desk)).min_by_key(|(load, _)| *load)
            else {
                return false;
            };
            (load == 0 || desks.len() >= cores()) && desk.give(job.clone())
        };
        // A thread that ends has no list any more.
        KNOWN.try_with(give).unwrap_or(false)
    }

    /// Gives a job to the `threads` workers with the least to do. Idle ones are started before busy ones are given
    /// more, up to one a core.
    fn send_to_all(&'static self, job: &Arc<Job>, threads: usize) -> Result<(), IndexError> {
        let mut known = self.desks();
        let mut desks: Vec<Arc<Desk>> = known.iter().filter(|desk| desk.is_open()).cloned().collect();
        let idle = |desks: &[Arc<Desk>]| desks.iter().filter(|desk| desk.load() == 0).count();
        let mut started = Ok(());
        while desks.len() < threads || (desks.len() < cores() && idle(&desks) < threads) {
            let desk = Arc::new(Desk::new(desks.len()));
            started = self.start(desk.clone());
            if started.is_err() {
                break;
            }
            desks.push(desk);
        }
        if !desks.iter().map(Arc::as_ptr).eq(known.iter().map(Arc::as_ptr)) {
            *known = desks.iter().cloned().collect();
            self.version.0.fetch_add(1, Ordering::Release);
        }
        started?;
        // Each is asked once: loads change meanwhile, and a sort that sees that panics.
        desks.sort_by_cached_key(|desk| desk.load());
        let given = desks[..threads].iter().filter(|desk| desk.give(job.clone())).count();
        if given == 0 {
            return Err(IndexError::Internal("a search thread has ended".into()));
        }
        Ok(())
    }

    fn start(&'static self, desk: Arc<Desk>) -> Result<(), IndexError> {
        let thread = std::thread::Builder::new().name("bathyal-search".into());
        thread
            .spawn(move || work(self, desk))
            .map(drop)
            .map_err(|source| TierError::System { operation: "start a search thread", source }.into())
    }

    fn spares(&self, tenant: &Tenant) -> &Spares {
        &self.spares[usize::from(!tenant.is_addressable())]
    }

    /// An engine for a lone query that its caller answers by itself, and `query_bytes` of the index's memory with it.
    /// `None` where memory is short, or as many callers as there are cores do so from devices already: there are workers for
    /// the rest.
    pub(in crate::open) fn lend(
        &self,
        tenant: &Arc<Tenant>,
        query_bytes: u64,
    ) -> Result<Option<Lent>, TierError> {
        let seat = if tenant.is_addressable() { None } else { self.seats.sit() };
        if seat.is_none() && !tenant.is_addressable() {
            return Ok(None);
        }
        let lent = self.engine_of(tenant, query_bytes, seat);
        if !matches!(lent, Ok(Some(_))) {
            seat.into_iter().for_each(|seat| self.seats.stand_up(seat));
        }
        lent
    }

    /// An engine for a caller who reads vectors, which may be any number of callers at once. `None` where memory is short.
    pub(in crate::open) fn lend_to_read(&self, tenant: &Arc<Tenant>) -> Result<Option<Lent>, TierError> {
        self.engine_of(tenant, 0, None)
    }

    /// An engine that was left, or a new one.
    fn engine_of(
        &self,
        tenant: &Arc<Tenant>,
        query_bytes: u64,
        seat: Option<usize>,
    ) -> Result<Option<Lent>, TierError> {
        let wanted = tenant.engine_bytes + query_bytes;
        if let Some(spare) = self.spares(tenant).take(tenant.number) {
            let more = wanted.saturating_sub(spare.booked);
            if more > 0 && !tenant.try_take(more) {
                spare.retire();
                return Ok(None);
            }
            let Spare { tenant, engine, scratch, booked } = spare;
            let lease = Lease { tenant, booked: booked + more, seat };
            return Ok(Some(Lent { engine: engine.unpark(), scratch, lease }));
        }
        if !tenant.try_take(wanted) {
            return Ok(None);
        }
        match tenant.open() {
            Ok(engine) => {
                let lease = Lease { tenant: tenant.clone(), booked: wanted, seat };
                Ok(Some(Lent { engine, scratch: None, lease }))
            }
            Err(error) => {
                tenant.give(wanted);
                Err(error)
            }
        }
    }

    /// Takes an engine back, to be lent again.
    pub(in crate::open) fn take_back(&self, owner: &Tenant, lent: Lent) {
        let Lent { engine, scratch, lease: Lease { tenant, booked, seat } } = lent;
        match if owner.is_short() { None } else { engine.park().ok() } {
            Some(engine) => {
                let gone = self.spares(owner).put(Spare { tenant, engine, scratch, booked });
                gone.into_iter().for_each(Spare::retire);
                // Who was refused memory meanwhile did not find it.
                if owner.is_short() {
                    self.clear(owner);
                }
            }
            // An engine with a read in flight that will not end was dropped above.
            None => {
                drop(scratch);
                tenant.give(booked);
            }
        }
        seat.into_iter().for_each(|seat| self.seats.stand_up(seat));
    }

    /// Closes what stands idle of an index's engines, and of those that it shares its memory with.
    pub(super) fn clear(&self, tenant: &Tenant) {
        self.spares.iter().for_each(|spares| spares.clear(|other| other.shares_with(tenant)));
    }

    /// Closes all engines of an index, and returns when they are closed.
    pub(in crate::open) fn leave(&self, tenant: &Tenant) {
        self.spares(tenant).clear(|other| other.number == tenant.number);
        let (ack, done) = channel();
        for desk in self.desks().iter() {
            desk.dismiss(tenant.number, ack.clone());
        }
        drop(ack);
        if !super::worker::is_worker() {
            // Ends when the last worker has dropped its end, whatever became of it.
            while done.recv().is_ok() {}
        }
    }
}

/// Cores that this process may use. To ask takes longer than a search in memory: it reads files of the system.
pub(in crate::open) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
