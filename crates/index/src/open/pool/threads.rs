//! The threads of the pool, and the engines that callers borrow from it.

use super::gate::Gate;
use super::job::Job;
use super::tenant::Tenant;
use super::worker::{Desk, work};
use crate::error::IndexError;
use bathyal_tier::{Engine, Parked, TierError};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Jobs that may be with the workers at once. Who comes later waits outside, where all that waiting takes is memory of
/// the caller's own.
const MOST_JOBS: usize = 4096;

/// The threads that search, of all indexes that this process has open.
pub(in crate::open) struct Pool {
    process: u32,
    pub(super) gate: Gate,
    desks: Mutex<Vec<Arc<Desk>>>,
    engines: Mutex<Engines>,
}

/// Engines that callers of lone queries run by themselves.
#[derive(Default)]
struct Engines {
    lent: usize,
    /// The one used last comes last.
    idle: Vec<(Arc<Tenant>, Parked)>,
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
                desks: Mutex::default(),
                engines: Mutex::default(),
            }));
            if POOL.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    fn desks(&self) -> MutexGuard<'_, Vec<Arc<Desk>>> {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engines(&self) -> MutexGuard<'_, Engines> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a job to the `threads` workers with the least to do. Idle ones are started before busy ones are given
    /// more, up to one a core.
    pub(super) fn send(&'static self, job: &Arc<Job>, threads: usize) -> Result<(), IndexError> {
        let mut desks = self.desks();
        desks.retain(|desk| desk.is_open());
        let idle = |desks: &[Arc<Desk>]| desks.iter().filter(|desk| desk.load() == 0).count();
        while desks.len() < threads || (desks.len() < cores() && idle(&desks) < threads) {
            let desk = Arc::new(Desk::default());
            self.start(desk.clone())?;
            desks.push(desk);
        }
        let mut order: Vec<&Arc<Desk>> = desks.iter().collect();
        order.sort_by_key(|desk| desk.load());
        let given = order[..threads].iter().filter(|desk| desk.give(job.clone())).count();
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

    /// An engine for a lone query that its caller answers by itself, and `query_bytes` of the index's memory with it.
    /// `None` where as many callers as there are cores do so already, or memory is short: there are workers for the rest.
    pub(in crate::open) fn lend(
        &self,
        tenant: &Arc<Tenant>,
        query_bytes: u64,
    ) -> Result<Option<Engine>, TierError> {
        let mut engines = self.engines();
        if engines.lent >= cores() {
            return Ok(None);
        }
        let same = engines.idle.iter().rposition(|(owner, _)| owner.number == tenant.number);
        if let Some(at) = same {
            if !tenant.try_take(query_bytes) {
                return Ok(None);
            }
            engines.lent += 1;
            return Ok(Some(engines.idle.remove(at).1.unpark()));
        }
        if !tenant.try_take(tenant.engine_bytes + query_bytes) {
            return Ok(None);
        }
        let oldest = (engines.lent + engines.idle.len() >= cores()).then(|| engines.idle.remove(0));
        engines.lent += 1;
        drop(engines);
        retire(oldest);
        let opened = tenant.open();
        if opened.is_err() {
            self.engines().lent -= 1;
            tenant.give(tenant.engine_bytes + query_bytes);
        }
        opened.map(Some)
    }

    /// Takes an engine back, to be lent again.
    pub(in crate::open) fn take_back(&self, tenant: &Arc<Tenant>, engine: Engine, query_bytes: u64) {
        let parked = if tenant.is_short() { None } else { engine.park().ok() };
        let gone = parked.is_none();
        let mut engines = self.engines();
        engines.lent -= 1;
        engines.idle.extend(parked.map(|parked| (tenant.clone(), parked)));
        drop(engines);
        // An engine with a read in flight that will not end was dropped above.
        tenant.give(query_bytes + if gone { tenant.engine_bytes } else { 0 });
    }

    /// Closes what stands idle of a tenant's engines.
    pub(super) fn clear(&self, tenant: u64) {
        let idle = {
            let mut engines = self.engines();
            let (theirs, others) = engines.idle.drain(..).partition(|(owner, _)| owner.number == tenant);
            engines.idle = others;
            let theirs: Vec<_> = theirs;
            theirs
        };
        retire(idle);
    }

    /// Closes all engines of an index, and returns when they are closed.
    pub(in crate::open) fn leave(&self, tenant: &Tenant) {
        self.clear(tenant.number);
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

fn retire(engines: impl IntoIterator<Item = (Arc<Tenant>, Parked)>) {
    for (tenant, engine) in engines {
        drop(engine);
        tenant.give(tenant.engine_bytes);
    }
}

/// Cores that this process may use. To ask takes longer than a search in memory: it reads files of the system.
pub(in crate::open) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
