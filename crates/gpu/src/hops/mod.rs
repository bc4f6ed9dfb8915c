//! Hops of graph searches on a card (GustANN, section 4.2): the codes of all vectors lie in its memory, and of each query under way
//! the query and its candidates. A query hands over the links of the records that have arrived ([`Slot::ask`]), parks, and gets the
//! vectors to expand next.

mod args;
mod wave;

use crate::card::{Card, CardMemory, Kernel};
use crate::error::GpuError;
use crate::graph::{Codes, Navigation, Words, check_shared};
use crate::service::{Batch, CardCounters, Place, Service, Terms, launches};
pub(crate) use args::Args;
use args::Work;
use bathyal_tier::TaskWaker;
use std::sync::Arc;
use wave::{Hopping, Letter};

/// Candidates that a query of an index keeps at most: several times as many as recall 0.99 took anywhere measured but of hard sets.
pub const MOST_CANDIDATES: u32 = 1024;
/// Bytes that are sent with every hop beside its ids.
pub const WORK_BYTES: usize = Work::BYTES;

/// The largest of queries, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most candidates of a query.
    pub list: u32,
    /// Most vectors that it expands at a time.
    pub width: u32,
    /// Most ids that it hands over at a time.
    pub ids: u32,
    /// Queries under way at most.
    pub slots: u32,
}

impl Shape {
    /// Bytes that a query under way takes on the card, of such codes.
    pub fn slot_bytes(&self, codes: &Codes) -> u64 {
        let kept = codes.query_bytes() + 8 * (1 + self.list as usize);
        let moved = Work::BYTES + 4 * self.ids as usize + codes.query_bytes() + 4 * self.width as usize;
        (kept + moved) as u64
    }
}

/// What a query asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asks {
    /// Candidates that it keeps.
    pub list: u32,
    /// Vectors that it expands at a time.
    pub width: u32,
    /// Nearest pivots that it begins with.
    pub starts: u32,
    /// One pivot in so many is looked at; at least 1.
    pub step: u32,
}

/// What stays on a card between two hops.
pub(crate) struct Kept {
    pub(crate) codes: Codes,
    pub(crate) vectors: u64,
    pub(crate) memory: Arc<[Box<dyn CardMemory>]>,
    pub(crate) words: Words,
    /// Where queries and their lists are.
    pub(crate) own: [u64; 2],
}

impl Kept {
    /// Makes room for queries and their lists beside the codes.
    pub(crate) fn new(card: &dyn Card, graph: Navigation, shape: &Shape) -> Result<Kept, GpuError> {
        let (slots, what) = (u64::from(shape.slots), "the queries under way");
        let queries = card.allocate(what, slots * graph.codes.query_bytes() as u64)?;
        let lists = card.allocate(what, slots * 8 * (1 + u64::from(shape.list)))?;
        let (own, words) = ([queries.address(), lists.address()], graph.words());
        let Navigation { codes, vectors, memory } = graph;
        let memory = memory.into_iter().chain([queries, lists]).collect();
        Ok(Kept { codes, vectors, memory, words, own })
    }
}

/// What a launch of up to `room` queries takes besides what is `kept`, and how many bytes that are.
fn wave(
    card: &dyn Card,
    shape: &Shape,
    (codes, room): (&Codes, u32),
    kept: Arc<[Box<dyn CardMemory>]>,
) -> Result<(Batch<3>, u64), GpuError> {
    let (room, what) = (u64::from(room), "the queries under way");
    let staged = card.allocate(what, room * codes.query_bytes() as u64)?;
    let work = card.allocate(what, room * Work::BYTES as u64)?;
    let ids = card.allocate(what, room * 4 * u64::from(shape.ids))?;
    let next = card.allocate(what, room * 4 * u64::from(shape.width))?;
    let bytes = [&staged, &work, &ids, &next].iter().map(|memory| memory.bytes()).sum();
    Ok((Batch::new(Kernel::Hop, card.queue()?, [staged, work, ids], next, kept), bytes))
}

/// The hops of an index on a card.
#[derive(Debug)]
pub struct Hops {
    shape: Shape,
    codes: Codes,
    service: Service<Hopping>,
    vectors: u64,
    resident_bytes: u64,
}

impl Hops {
    /// Begins to serve; with `mini_batch` a launch waits until so many queries have asked, or all that are under way (GustANN, section
    /// 4.1.3).
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
        let Kept { codes, vectors, memory, words, own } = Kept::new(card, graph, &shape)?;
        let mut resident_bytes = memory.iter().map(|memory| memory.bytes()).sum();
        let (room, launches) = launches(shape.slots);
        let mut waves = Vec::new();
        for _ in 0..launches {
            let (batch, bytes) = wave(card, &shape, (&codes, room), memory.clone())?;
            let [staged, work, ids] = batch.given();
            let args = Args::new(words, [staged, work, ids, own[0], own[1], batch.returned()], &shape);
            waves.push(Hopping { batch, args, codes: codes.clone(), vectors });
            resident_bytes += bytes;
        }
        let service = Service::start(Terms { slots: shape.slots, room, mini_batch }, waves)?;
        Ok(Hops { shape, codes, service, vectors, resident_bytes })
    }

    /// A place for a query, until it is dropped; `None` while as many are under way as there may be, in which case `waker` is woken when
    /// one is free.
    pub fn slot(&self, waker: TaskWaker) -> Option<Slot> {
        let place = Place::take(self.service.shared(), Some(waker))?;
        Some(Slot { place, vectors: self.vectors, ids: self.shape.ids })
    }

    /// The largest of queries.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What codes are like.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }

    /// Bytes of the card's memory that are taken.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// What was done so far.
    pub fn counters(&self) -> CardCounters {
        self.service.counters()
    }
}

/// A place for a query on the card.
#[derive(Debug)]
pub struct Slot {
    place: Place<Letter>,
    vectors: u64,
    /// Ids that may be handed over at a time.
    ids: u32,
}

impl Slot {
    /// Begins a query that asks for what the shape allows: the first ids that are handed over are candidates beside the nearest pivots.
    /// `write` writes the query, by [`write_query`](crate::graph::write_query).
    pub fn begin(&mut self, asks: Asks, write: impl FnOnce(&mut Vec<u8>)) {
        self.place.write(|letter| {
            write(&mut letter.query);
            letter.asks = Asks { step: asks.step.max(1), ..asks };
        });
    }

    /// Hands over `ids`, to be scored and made candidates; `waker` is woken when the answer is there.
    ///
    /// # Panics
    /// When there is no vector of an id, or there are more ids than the shape says, which are a caller's bugs: the card would read what is
    /// not there.
    pub fn ask(&mut self, ids: &[u32], waker: TaskWaker) {
        let inside = ids.iter().all(|id| u64::from(*id) < self.vectors);
        assert!(inside && ids.len() <= self.ids as usize, "an id beyond the codes, or too many");
        self.place.write(|letter| {
            letter.ids.clear();
            letter.ids.extend_from_slice(ids);
        });
        self.place.send(waker);
    }

    /// Writes the vectors to expand next, the nearest first, to `next`, once they are there; `None` before.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn answer(&mut self, next: &mut Vec<u32>) -> Option<Result<(), GpuError>> {
        self.place.answer(|letter| {
            next.clear();
            next.extend_from_slice(&letter.next);
        })
    }
}
