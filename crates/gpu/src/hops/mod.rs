//! Hops of graph searches on a card (GustANN, section 4.2). The card holds the codes of all vectors, and each
//! query with its candidates. A query submits the links of the records that have arrived ([`Slot::submit`]),
//! suspends, and receives the vectors to expand next.

mod args;
mod launch;

use crate::card::{Card, CardMemory, Kernel};
use crate::error::GpuError;
use crate::graph::{Codes, Navigation, NavigationWords, check_shared};
use crate::service::{Batch, CardCounters, Service, ServiceLimits, ServiceSlot, launches};
pub(crate) use args::Args;
use args::Work;
use bathyal_tier::TaskWaker;
use launch::{HopLaunch, HopRequest};
use std::sync::Arc;

/// Maximum number of candidates of a query: several times as many as any measured set needed for recall 0.99,
/// except for hard sets.
pub const MOST_CANDIDATES: u32 = 1024;
/// Bytes copied to the card for each hop, in addition to the ids.
pub const WORK_BYTES: usize = Work::BYTES;

/// Limits of queries, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Maximum number of candidates of a query.
    pub list: u32,
    /// Maximum number of vectors that a query expands at a time.
    pub width: u32,
    /// Maximum number of ids that a query submits at a time.
    pub ids: u32,
    /// Maximum number of queries with a slot.
    pub slots: u32,
}

impl Shape {
    /// Returns the bytes that a slot takes on the card.
    pub fn slot_bytes(&self, codes: &Codes) -> u64 {
        let resident_bytes = codes.query_bytes() + 8 * (1 + self.list as usize);
        let transferred_bytes =
            Work::BYTES + 4 * self.ids as usize + codes.query_bytes() + 4 * self.width as usize;
        (resident_bytes + transferred_bytes) as u64
    }
}

/// Search parameters of a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GraphSearchParameters {
    /// Number of candidates.
    pub list: u32,
    /// Number of vectors to expand at a time.
    pub width: u32,
    /// Number of nearest pivots at which the query begins.
    pub starts: u32,
    /// The query considers one pivot in this many; at least 1.
    pub step: u32,
}

/// Data that stays on a card between hops: the codes, and the queries with their lists.
pub(crate) struct ResidentGraph {
    pub(crate) codes: Codes,
    pub(crate) vectors: u64,
    pub(crate) memory: Arc<[Box<dyn CardMemory>]>,
    pub(crate) words: NavigationWords,
    /// Addresses of the queries and of their lists.
    pub(crate) query_addresses: [u64; 2],
}

impl ResidentGraph {
    /// Allocates the queries and their lists beside the codes.
    pub(crate) fn new(card: &dyn Card, graph: Navigation, shape: &Shape) -> Result<ResidentGraph, GpuError> {
        let (slots, what) = (u64::from(shape.slots), "the queries in flight");
        let queries = card.allocate(what, slots * graph.codes.query_bytes() as u64)?;
        let lists = card.allocate(what, slots * 8 * (1 + u64::from(shape.list)))?;
        let (query_addresses, words) = ([queries.address(), lists.address()], graph.words());
        let Navigation { codes, vectors, memory } = graph;
        let memory = memory.into_iter().chain([queries, lists]).collect();
        Ok(ResidentGraph { codes, vectors, memory, words, query_addresses })
    }
}

/// Allocates a batch of up to `launch_queries` queries. Returns it with its bytes, without those of
/// `resident`.
fn new_batch(
    card: &dyn Card,
    shape: &Shape,
    (codes, launch_queries): (&Codes, u32),
    resident: Arc<[Box<dyn CardMemory>]>,
) -> Result<(Batch<3>, u64), GpuError> {
    let (queries, what) = (u64::from(launch_queries), "the queries in flight");
    let staged = card.allocate(what, queries * codes.query_bytes() as u64)?;
    let work = card.allocate(what, queries * Work::BYTES as u64)?;
    let ids = card.allocate(what, queries * 4 * u64::from(shape.ids))?;
    let next = card.allocate(what, queries * 4 * u64::from(shape.width))?;
    let bytes = [&staged, &work, &ids, &next].iter().map(|memory| memory.bytes()).sum();
    Ok((Batch::new(Kernel::Hop, card.queue()?, [staged, work, ids], next, resident), bytes))
}

/// Service for the hops of an index on a card.
#[derive(Debug)]
pub struct Hops {
    shape: Shape,
    codes: Codes,
    service: Service<HopLaunch>,
    vectors: u64,
    resident_bytes: u64,
}

impl Hops {
    /// Starts the service. With `mini_batch`, a launch waits for this many queries, or for all with a slot
    /// (GustANN, section 4.1.3).
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the slots do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn start(
        card: &dyn Card,
        graph: Navigation,
        shape: Shape,
        mini_batch: Option<u32>,
    ) -> Result<Hops, GpuError> {
        check_shared(card.profile(), shape.list, graph.codes.shared_bytes(shape.list))?;
        let ResidentGraph { codes, vectors, memory, words, query_addresses } =
            ResidentGraph::new(card, graph, &shape)?;
        let mut resident_bytes = memory.iter().map(|memory| memory.bytes()).sum();
        let (launch_queries, launch_count) = launches(shape.slots);
        let mut launches = Vec::new();
        for _ in 0..launch_count {
            let (batch, bytes) = new_batch(card, &shape, (&codes, launch_queries), memory.clone())?;
            let [staged, work, ids] = batch.input_addresses();
            let args = Args::new(
                words,
                [staged, work, ids, query_addresses[0], query_addresses[1], batch.output_address()],
                &shape,
            );
            launches.push(HopLaunch { batch, args, codes: codes.clone(), vectors });
            resident_bytes += bytes;
        }
        let service =
            Service::start(ServiceLimits { slots: shape.slots, launch_queries, mini_batch }, launches)?;
        Ok(Hops { shape, codes, service, vectors, resident_bytes })
    }

    /// Takes a slot for a query. Returns `None` if all are taken; then `waker` is woken when one is free.
    pub fn slot(&self, waker: TaskWaker) -> Option<Slot> {
        let slot = ServiceSlot::acquire(self.service.shared(), Some(waker))?;
        Some(Slot { slot, vectors: self.vectors, ids: self.shape.ids })
    }

    /// Returns the limits of queries.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the layout of the codes.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }

    /// Returns the bytes of the card's memory that the service takes.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// Returns the counters.
    pub fn counters(&self) -> CardCounters {
        self.service.counters()
    }
}

/// A slot for a query on the card, freed when this is dropped.
#[derive(Debug)]
pub struct Slot {
    slot: ServiceSlot<HopRequest>,
    vectors: u64,
    /// Maximum number of ids at a time.
    ids: u32,
}

impl Slot {
    /// Begins a query within the limits of the shape. The ids that are submitted first are candidates in
    /// addition to the nearest pivots. `write` writes the query, by
    /// [`write_query`](crate::graph::write_query).
    pub fn begin(&mut self, parameters: GraphSearchParameters, write: impl FnOnce(&mut Vec<u8>)) {
        self.slot.write(|request| {
            write(&mut request.query);
            request.parameters = GraphSearchParameters { step: parameters.step.max(1), ..parameters };
        });
    }

    /// Submits `ids`, to be scored and made candidates. `waker` is woken when there is a response.
    ///
    /// # Panics
    /// If an id has no vector, or there are more ids than the shape allows, which is a bug of the caller: the
    /// card would read invalid memory.
    pub fn submit(&mut self, ids: &[u32], waker: TaskWaker) {
        let inside = ids.iter().all(|id| u64::from(*id) < self.vectors);
        assert!(inside && ids.len() <= self.ids as usize, "an id beyond the codes, or too many");
        self.slot.write(|request| {
            request.ids.clear();
            request.ids.extend_from_slice(ids);
        });
        self.slot.submit(waker);
    }

    /// Writes the vectors to expand next to `next`, the nearest first. Returns `None` if there is no response
    /// yet.
    ///
    /// # Errors
    /// [`GpuError`] if the request has failed.
    pub fn take_response(&mut self, next: &mut Vec<u32>) -> Option<Result<(), GpuError>> {
        self.slot.take_response(|request| {
            next.clear();
            next.extend_from_slice(&request.next);
        })
    }
}
