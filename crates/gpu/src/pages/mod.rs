//! Hops of graph searches through pages that hold many vectors each and share their links. A query submits
//! the links of the pages that have arrived, page by page, suspends, and receives the pages to read next. The
//! card holds the codes, as for [`hops`].

mod args;
mod launch;
mod parts;

pub use parts::{Part, Parts};

use crate::card::{Card, CardMemory, Kernel};
use crate::error::GpuError;
use crate::graph::{Codes, Navigation, THREADS, check_shared};
use crate::hops::{self, ResidentGraph, Shape};
use crate::service::{Batch, CardCounters, Service, ServiceLimits, ServiceSlot, launches};
use args::{Args, Work};
use bathyal_tier::TaskWaker;
use launch::{PageLaunch, PageRequest};
use std::sync::Arc;

/// Maximum number of pivots at which a query begins.
pub const MOST_STARTS: u32 = THREADS - 1;
/// Bytes copied to the card for each hop, in addition to the ids.
pub const WORK_BYTES: usize = Work::BYTES;

/// Returns the bytes that a slot takes on the card.
pub fn slot_bytes(shape: &Shape, codes: &Codes) -> u64 {
    let resident_bytes = codes.query_bytes() + 8 * (1 + shape.list as usize);
    let transferred_bytes =
        Work::BYTES + 4 * shape.ids as usize + codes.query_bytes() + 4 * output_words(shape) as usize;
    (resident_bytes + transferred_bytes) as u64
}

/// Returns the words of the longest output.
fn output_words(shape: &Shape) -> u32 {
    1 + shape.width + MOST_STARTS
}

/// Returns the bytes of shared memory of a block, for candidate lists of length `list`.
fn shared_bytes(codes: &Codes, list: u32) -> u64 {
    // The nearest pages follow the planes, at a multiple of 4.
    codes.shared_bytes(list) + 2 * (codes.planes.len() as u64 % 2) + 4 * u64::from(THREADS)
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
    let outputs = card.allocate(what, queries * 4 * u64::from(output_words(shape)))?;
    let bytes = [&staged, &work, &ids, &outputs].iter().map(|memory| memory.bytes()).sum();
    Ok((Batch::new(Kernel::Pages, card.queue()?, [staged, work, ids], outputs, resident), bytes))
}

/// Service for the hops of an index on a card.
#[derive(Debug)]
pub struct Pages {
    shape: Shape,
    codes: Codes,
    service: Service<PageLaunch>,
    vectors: u32,
    resident_bytes: u64,
}

impl Pages {
    /// Starts the service for pages of `records` vectors each. [`Shape::width`] counts pages, and
    /// [`Shape::ids`] links and ends of pages, at least 2. With `mini_batch`, a launch waits for this many
    /// queries, or for all with a slot.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the slots do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn start(
        card: &dyn Card,
        graph: Navigation,
        shape: Shape,
        records: u32,
        mini_batch: Option<u32>,
    ) -> Result<Pages, GpuError> {
        let list = shape.list.max(MOST_STARTS);
        check_shared(card.profile(), shape.list, shared_bytes(&graph.codes, list))?;
        let ResidentGraph { codes, vectors, memory, words, query_addresses } =
            ResidentGraph::new(card, graph, &shape)?;
        let mut resident_bytes = memory.iter().map(|memory| memory.bytes()).sum();
        let (records, vectors) = (records.max(1), vectors as u32);
        let (launch_queries, launch_count) = launches(shape.slots);
        let mut launches = Vec::new();
        for _ in 0..launch_count {
            let (batch, bytes) = new_batch(card, &shape, (&codes, launch_queries), memory.clone())?;
            let [staged, work, ids] = batch.input_addresses();
            let hop = hops::Args::new(
                words,
                [staged, 0, ids, query_addresses[0], query_addresses[1], batch.output_address()],
                &shape,
            );
            let args = Args { hop, work, records, vectors, output_words: 1 };
            launches.push(PageLaunch { batch, args, codes: codes.clone(), starts: 0 });
            resident_bytes += bytes;
        }
        let service =
            Service::start(ServiceLimits { slots: shape.slots, launch_queries, mini_batch }, launches)?;
        Ok(Pages { shape, codes, service, vectors, resident_bytes })
    }

    /// Returns the layout of the codes.
    pub fn codes(&self) -> &Codes {
        &self.codes
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

    /// Returns the bytes of the card's memory that the service takes.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// Returns the counters.
    pub fn counters(&self) -> CardCounters {
        self.service.counters()
    }
}

/// Links that a query submits.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    /// Links of the pages, one page after another.
    pub links: &'a [u32],
    /// End of the links of each page in `links`.
    pub ends: &'a [u32],
    /// True if the first of these pages had links in the previous request.
    pub continues: bool,
    /// How much farther than the worst candidate a linked vector may be for its page to be considered.
    pub slack: f32,
    /// Maximum number of pages to read next; 0 as long as more links of this hop follow.
    pub width: u32,
}

/// Response to a query.
#[derive(Debug, Default)]
pub struct PageResponse {
    /// Pages to read next, the nearest first.
    pub pages: Vec<u32>,
    /// The nearest pivots, if the query has start_pivots with this request.
    pub starts: Vec<u32>,
    /// Number of codes that were scored.
    pub scored: u32,
}

/// A slot for a query on the card, freed when this is dropped.
#[derive(Debug)]
pub struct Slot {
    slot: ServiceSlot<PageRequest>,
    vectors: u32,
    /// Maximum number of ids at a time.
    ids: u32,
}

impl Slot {
    /// Returns the maximum number of links and ends of pages in one request.
    pub fn max_ids(&self) -> usize {
        self.ids as usize
    }

    /// Begins a query with `list` candidates, at the pages of the `starts` nearest pivots and of the place
    /// `entry`. The response has up to `width` pages. `write` writes the query, by
    /// [`write_query`](crate::graph::write_query).
    ///
    /// # Panics
    /// If the place does not exist, or `starts` exceeds [`MOST_STARTS`], which is a bug of the caller.
    pub fn begin(
        &mut self,
        (list, starts, width): (u32, u32, u32),
        entry: u32,
        write: impl FnOnce(&mut Vec<u8>),
        waker: TaskWaker,
    ) {
        assert!(
            entry < self.vectors && starts <= MOST_STARTS,
            "a place without a vector, or too many starts"
        );
        self.slot.write(|request| {
            write(&mut request.query);
            (request.list, request.starts, request.width, request.pages) = (list, starts, width, 0);
            (request.continues, request.slack) = (false, 0.0);
            request.ids.clear();
            request.ids.push(entry);
        });
        self.slot.submit(waker);
    }

    /// Submits links. `waker` is woken when there is a response.
    ///
    /// # Panics
    /// If a link has no place, or the links do not match their ends or exceed the limit, which is a bug of
    /// the caller: the card would read invalid memory.
    pub fn submit(&mut self, hop: &Hop<'_>, waker: TaskWaker) {
        let Hop { links, ends, continues, slack, width } = *hop;
        let inside = links.iter().all(|link| *link < self.vectors) && ends.is_sorted();
        let ended = ends.last().map_or(0, |end| *end as usize) == links.len();
        assert!(
            inside && ended && ends.len() + links.len() <= self.ids as usize,
            "links to no vector, or too many"
        );
        self.slot.write(|request| {
            (request.pages, request.continues, request.slack, request.width) =
                (ends.len() as u32, continues, slack, width);
            request.ids.clear();
            request.ids.extend_from_slice(ends);
            request.ids.extend_from_slice(links);
        });
        self.slot.submit(waker);
    }

    /// Writes the response to `response`. Returns `None` if there is none yet.
    ///
    /// # Errors
    /// [`GpuError`] if the request has failed.
    pub fn take_response(&mut self, response: &mut PageResponse) -> Option<Result<(), GpuError>> {
        self.slot.take_response(|request| {
            response.pages.clone_from(&request.next);
            response.starts.clone_from(&request.start_pivots);
            response.scored = request.scored;
        })
    }
}
