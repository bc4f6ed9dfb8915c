//! Hops of graph searches on a card (GustANN, section 4.2): the codes of all vectors lie in its memory, and of each query under way
//! the query and its candidates. A query hands over the links of the records that have arrived ([`Slot::ask`]), parks, and gets the
//! vectors to expand next.

mod args;
mod wave;

use crate::card::{Card, CardMemory, CardProfile, CardQueue, Kernel};
use crate::error::GpuError;
use crate::service::{Batch, CardCounters, Place, Service, Terms, launches};
use args::Work;
pub(crate) use args::{Args, LIST_ROOM, NONE, WIDTH_ROOM};
use bathyal_tier::TaskWaker;
use std::sync::Arc;
use wave::{Hopping, Letter};

/// Threads of a block; `THREADS` in `kernels/keys.h`.
pub(crate) const THREADS: u32 = 128;
/// Bytes behind the last code that the kernel loads with it.
const SPARE_BYTES: usize = 8;
/// Bytes of the four numbers before a query's own bytes.
const HEAD_BYTES: usize = 16;
/// Vectors have numbers of 31 bits: a key has a bit for what was done.
const MOST_VECTORS: u64 = 1 << 31;
/// Bits of a group's number in [`Shape::planes`].
const GROUP_BITS: u32 = 13;

/// Candidates that a query of an index keeps at most: several times as many as recall 0.99 took anywhere measured but of hard sets.
pub const MOST_CANDIDATES: u32 = 1024;
/// Bytes that are sent with every hop beside its ids.
pub const WORK_BYTES: usize = Work::BYTES;

/// What hops are like: the codes, and the largest of queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a code.
    pub code_bytes: u32,
    /// Bytes of its two factors: 4 or 8.
    pub factor_bytes: u32,
    /// Of each byte behind these the plane (0 to 7) and the group of 8 dimensions: what [`Shape::plane`] makes of them.
    pub planes: Vec<u16>,
    /// Groups of 8 dimensions.
    pub groups: u32,
    /// Whether queries have 16 bits a dimension, not 8.
    pub fine: bool,
    /// Most candidates of a query.
    pub list: u32,
    /// Most vectors that it expands at a time.
    pub width: u32,
    /// Most ids that it hands over at a time.
    pub ids: u32,
    /// Where queries begin (GustANN, section 4.4): of these the nearest.
    pub pivots: Vec<u32>,
    /// Queries under way at most.
    pub slots: u32,
}

impl Shape {
    /// A byte that holds plane `plane` of the dimensions of group `group`; `None` where there are more than a kernel knows.
    pub fn plane(plane: u8, group: usize) -> Option<u16> {
        let fits = plane < 8 && group < 1 << GROUP_BITS;
        fits.then_some(u16::from(plane) << GROUP_BITS | group as u16)
    }

    /// Bytes of a query on the card.
    pub fn query_bytes(&self) -> usize {
        HEAD_BYTES + 8 * self.groups as usize * if self.fine { 2 } else { 1 }
    }

    /// Bytes that a query under way takes on the card.
    pub fn slot_bytes(&self) -> u64 {
        let kept = self.query_bytes() + 8 * (1 + self.list as usize);
        let moved = Work::BYTES + 4 * self.ids as usize + self.query_bytes() + 4 * self.width as usize;
        (kept + moved) as u64
    }

    /// Bytes that the threads of a block share, with lists of so many candidates.
    pub(crate) fn shared_bytes(&self, list: u32) -> u64 {
        let keys = 2 * u64::from(list) + 2 * u64::from(THREADS);
        8 * keys + self.query_bytes() as u64 + 4 * u64::from(THREADS / 32 + 1) + 2 * self.planes.len() as u64
    }

    fn check(&self, profile: &CardProfile, vectors: u64) -> Result<(), GpuError> {
        if vectors > MOST_VECTORS {
            let text = format!("{vectors} vectors are more than a graphics card searches: {MOST_VECTORS}");
            return Err(GpuError::Unsuited(text));
        }
        let shared = self.shared_bytes(self.list);
        if shared > u64::from(profile.shared_bytes) {
            return Err(GpuError::Unsuited(format!(
                "a list of {} candidates takes {shared} bytes of what the threads of a block share, which are {} on {}: ask for a \
                 shorter one, or leave --device gpu out",
                self.list, profile.shared_bytes, profile.name
            )));
        }
        Ok(())
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

/// Codes that are being copied to a card, piece by piece: nobody needs to have them all in memory.
#[derive(Debug)]
pub struct Upload<'a> {
    card: &'a dyn Card,
    shape: Shape,
    queue: Box<dyn CardQueue>,
    codes: Box<dyn CardMemory>,
    codes_bytes: u64,
    written: u64,
    mini_batch: Option<u32>,
}

impl<'a> Upload<'a> {
    /// Makes room on `card` for the codes of `vectors` vectors.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the codes do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn begin(card: &'a dyn Card, shape: Shape, vectors: u64) -> Result<Upload<'a>, GpuError> {
        shape.check(card.profile(), vectors)?;
        let queue = card.queue()?;
        let codes_bytes = vectors * u64::from(shape.code_bytes);
        let codes = card.allocate("the codes of the index", codes_bytes + SPARE_BYTES as u64)?;
        Ok(Upload { card, shape, queue, codes, codes_bytes, written: 0, mini_batch: None })
    }

    /// Copies the codes that come next.
    ///
    /// # Errors
    /// [`GpuError::Driver`]; also of more bytes than there are codes.
    pub fn append(&mut self, codes: &[u8]) -> Result<(), GpuError> {
        self.queue.write(&*self.codes, self.written, codes)?;
        self.written += codes.len() as u64;
        Ok(())
    }

    /// Has each launch wait until so many queries have asked, or all that are under way (GustANN, section 4.1.3).
    #[must_use]
    pub fn mini_batches(self, mini_batch: Option<u32>) -> Upload<'a> {
        Upload { mini_batch, ..self }
    }

    /// Begins to serve.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the slots do not fit, [`GpuError::Unsuited`] for mini-batches of none or of too many,
    /// [`GpuError::Driver`].
    pub fn finish(self) -> Result<Hops, GpuError> {
        let Resident { card, shape, kept, vectors, terms, launches } = self.resident()?;
        let mut resident_bytes = kept.iter().map(|memory| memory.bytes()).sum();
        let mut waves = Vec::new();
        for _ in 0..launches {
            let (wave, bytes) = wave(card, &shape, (terms.room, vectors), kept.clone())?;
            waves.push(wave);
            resident_bytes += bytes;
        }
        Ok(Hops { shape, service: Service::start(terms, waves)?, vectors, resident_bytes })
    }

    /// All that stays on the card, whatever searches there.
    pub(crate) fn resident(self) -> Result<Resident<'a>, GpuError> {
        let Upload { card, shape, mut queue, codes, codes_bytes, written, mini_batch } = self;
        let vectors = codes_bytes / u64::from(shape.code_bytes.max(1));
        if written != codes_bytes || shape.pivots.iter().any(|pivot| u64::from(*pivot) >= vectors) {
            let reason =
                format!("{written} bytes of codes, {codes_bytes} were to come; or a pivot is none of them");
            return Err(GpuError::Driver { operation: "take the codes", reason });
        }
        queue.write(&*codes, codes_bytes, &[0; SPARE_BYTES])?;
        let planes = card.allocate("the layout of the codes", 2 * shape.planes.len() as u64)?;
        let layout: Vec<u8> = shape.planes.iter().flat_map(|plane| plane.to_le_bytes()).collect();
        queue.write(&*planes, 0, &layout)?;
        let pivots = card.allocate("the pivots of the index", 4 * shape.pivots.len() as u64)?;
        let ids: Vec<u8> = shape.pivots.iter().flat_map(|pivot| pivot.to_le_bytes()).collect();
        queue.write(&*pivots, 0, &ids)?;
        // Other queues know nothing of what is on its way in this one.
        queue.finish()?;
        let (slots, what) = (u64::from(shape.slots), "the queries under way");
        let queries = card.allocate(what, slots * shape.query_bytes() as u64)?;
        let lists = card.allocate(what, slots * 8 * (1 + u64::from(shape.list)))?;
        let kept: Arc<[Box<dyn CardMemory>]> = Arc::new([codes, planes, pivots, queries, lists]);
        let (room, launches) = launches(shape.slots);
        let terms = Terms { slots: shape.slots, room, mini_batch };
        Ok(Resident { card, shape, kept, vectors, terms, launches })
    }
}

/// What stays on a card.
pub(crate) struct Resident<'a> {
    pub(crate) card: &'a dyn Card,
    pub(crate) shape: Shape,
    /// Codes, their layout, pivots, queries, lists.
    pub(crate) kept: Arc<[Box<dyn CardMemory>]>,
    pub(crate) vectors: u64,
    pub(crate) terms: Terms,
    pub(crate) launches: u32,
}

impl Shape {
    /// `HopArgs`, where `staged`, `work`, `ids` and `next` are a launch's own.
    pub(crate) fn args(&self, kept: &[Box<dyn CardMemory>], [staged, work, ids, next]: [u64; 4]) -> Args {
        let [codes, planes, pivots, queries, lists] = [0, 1, 2, 3, 4].map(|at| kept[at].address());
        Args {
            addresses: [codes, planes, staged, work, ids, pivots, queries, lists, next],
            numbers: [
                self.code_bytes,
                self.factor_bytes,
                self.planes.len() as u32,
                self.query_bytes() as u32,
                self.groups,
                u32::from(self.fine),
                self.list,
                self.width,
                self.pivots.len() as u32,
                self.list,
            ],
        }
    }
}

/// What a launch of up to `room` queries takes besides what is `kept`, and how many bytes that are.
fn wave(
    card: &dyn Card,
    shape: &Shape,
    (room, vectors): (u32, u64),
    kept: Arc<[Box<dyn CardMemory>]>,
) -> Result<(Hopping, u64), GpuError> {
    let (room, what) = (u64::from(room), "the queries under way");
    let query_bytes = shape.query_bytes() as u64;
    let staged = card.allocate(what, room * query_bytes)?;
    let work = card.allocate(what, room * Work::BYTES as u64)?;
    let ids = card.allocate(what, room * 4 * u64::from(shape.ids))?;
    let next = card.allocate(what, room * 4 * u64::from(shape.width))?;
    let bytes = [&staged, &work, &ids, &next].iter().map(|memory| memory.bytes()).sum();
    let args = shape.args(&kept, [&staged, &work, &ids, &next].map(|memory| memory.address()));
    let batch = Batch::new(Kernel::Hop, card.queue()?, [staged, work, ids], next, kept);
    Ok((Hopping { batch, args, shape: shape.clone(), vectors }, bytes))
}

/// The hops of an index on a card.
#[derive(Debug)]
pub struct Hops {
    shape: Shape,
    service: Service<Hopping>,
    vectors: u64,
    resident_bytes: u64,
}

impl Hops {
    /// A place for a query, until it is dropped; `None` while as many are under way as there may be, in which case `waker` is woken when
    /// one is free.
    pub fn slot(&self, waker: TaskWaker) -> Option<Slot> {
        let place = Place::take(self.service.shared(), Some(waker))?;
        Some(Slot { place, vectors: self.vectors, ids: self.shape.ids })
    }

    /// What hops are like.
    pub fn shape(&self) -> &Shape {
        &self.shape
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
    /// `write` writes the query, by [`write_query`].
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

/// Writes a query as the kernel reads it: the numbers that make a distance of the sums, then the low bytes of all dimensions, then the
/// high ones, if any.
pub fn write_query(head: [f32; 4], low: &[i8], high: &[i8], out: &mut Vec<u8>) {
    out.clear();
    head.iter().for_each(|number| out.extend(number.to_le_bytes()));
    out.extend(low.iter().chain(high).map(|byte| *byte as u8));
}
