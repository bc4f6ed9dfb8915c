//! Hops of graph searches through pages that hold many vectors and link as a whole: a query hands over the links of the pages that have
//! arrived, page by page, parks, and gets the pages to open next. The codes lie on the card as those of [`hops`] do.

mod args;
mod parts;
mod wave;

pub use parts::{Part, Parts};

use crate::card::{Card, CardMemory, Kernel};
use crate::error::GpuError;
use crate::graph::{Codes, Navigation, THREADS, check_shared};
use crate::hops::{self, Kept, Shape};
use crate::service::{Batch, CardCounters, Place, Service, Terms, launches};
use args::{Args, Work};
use bathyal_tier::TaskWaker;
use std::sync::Arc;
use wave::{Letter, Paging};

/// Pivots that a query begins with at most.
pub const MOST_STARTS: u32 = THREADS - 1;
/// Bytes that are sent with every hop beside its ids.
pub const WORK_BYTES: usize = Work::BYTES;

/// Bytes that a query under way takes on the card, of such codes.
pub fn slot_bytes(shape: &Shape, codes: &Codes) -> u64 {
    let kept = codes.query_bytes() + 8 * (1 + shape.list as usize);
    let moved = Work::BYTES + 4 * shape.ids as usize + codes.query_bytes() + 4 * answer_words(shape) as usize;
    (kept + moved) as u64
}

/// Words of the longest answer.
fn answer_words(shape: &Shape) -> u32 {
    1 + shape.width + MOST_STARTS
}

/// Bytes that the threads of a block share, with lists of so many candidates.
fn shared_bytes(codes: &Codes, list: u32) -> u64 {
    // What pages are near lies behind the planes, at a multiple of 4.
    codes.shared_bytes(list) + 2 * (codes.planes.len() as u64 % 2) + 4 * u64::from(THREADS)
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
    let answers = card.allocate(what, room * 4 * u64::from(answer_words(shape)))?;
    let bytes = [&staged, &work, &ids, &answers].iter().map(|memory| memory.bytes()).sum();
    Ok((Batch::new(Kernel::Pages, card.queue()?, [staged, work, ids], answers, kept), bytes))
}

/// The hops of an index on a card.
#[derive(Debug)]
pub struct Pages {
    shape: Shape,
    codes: Codes,
    service: Service<Paging>,
    vectors: u32,
    resident_bytes: u64,
}

impl Pages {
    /// Begins to serve queries that go from page to page, of `records` vectors each: [`Shape::width`] are pages then, and
    /// [`Shape::ids`] links and ends of pages, at least 2. With `mini_batch` a launch waits until so many queries have asked, or all that
    /// are under way.
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
        let Kept { codes, vectors, memory, words, own } = Kept::new(card, graph, &shape)?;
        let mut resident_bytes = memory.iter().map(|memory| memory.bytes()).sum();
        let (records, vectors) = (records.max(1), vectors as u32);
        let (room, launches) = launches(shape.slots);
        let mut waves = Vec::new();
        for _ in 0..launches {
            let (batch, bytes) = wave(card, &shape, (&codes, room), memory.clone())?;
            let [staged, work, ids] = batch.given();
            let hop = hops::Args::new(words, [staged, 0, ids, own[0], own[1], batch.returned()], &shape);
            let args = Args { hop, work, records, vectors, answer_words: 1 };
            waves.push(Paging { batch, args, codes: codes.clone(), starts: 0 });
            resident_bytes += bytes;
        }
        let service = Service::start(Terms { slots: shape.slots, room, mini_batch }, waves)?;
        Ok(Pages { shape, codes, service, vectors, resident_bytes })
    }

    /// What codes are like.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }

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

/// What a query hands over.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    /// The links of pages, one after the other.
    pub links: &'a [u32],
    /// Where those of each page end.
    pub ends: &'a [u32],
    /// Whether the first of these pages had links in what was handed over before.
    pub continues: bool,
    /// How much farther than the worst candidate a linked vector may be whose page is looked at.
    pub slack: f32,
    /// Pages that it opens next at most; none as long as more links of this hop are to come.
    pub width: u32,
}

/// What a query gets.
#[derive(Debug, Default)]
pub struct Answer {
    /// The pages to open next, the nearest first.
    pub pages: Vec<u32>,
    /// The nearest pivots, if it has begun.
    pub starts: Vec<u32>,
    /// Codes that were scored.
    pub scored: u32,
}

/// A place for a query on the card.
#[derive(Debug)]
pub struct Slot {
    place: Place<Letter>,
    vectors: u32,
    /// Ids that may be handed over at a time.
    ids: u32,
}

impl Slot {
    /// Links and ends of pages that may be handed over at a time.
    pub fn room(&self) -> usize {
        self.ids as usize
    }

    /// Begins a query with `list` candidates at the pages of the `starts` nearest pivots and of the place `entry`; `width` pages are opened
    /// next. `write` writes the query, by [`write_query`](crate::graph::write_query).
    ///
    /// # Panics
    /// When there is no such place, or starts are more than [`MOST_STARTS`], which are a caller's bugs.
    pub fn begin(
        &mut self,
        (list, starts, width): (u32, u32, u32),
        entry: u32,
        write: impl FnOnce(&mut Vec<u8>),
        waker: TaskWaker,
    ) {
        assert!(
            entry < self.vectors && starts <= MOST_STARTS,
            "a place beyond the codes, or too many starts"
        );
        self.place.write(|letter| {
            write(&mut letter.query);
            (letter.list, letter.starts, letter.width, letter.pages) = (list, starts, width, 0);
            (letter.continues, letter.slack) = (false, 0.0);
            letter.ids.clear();
            letter.ids.push(entry);
        });
        self.place.send(waker);
    }

    /// Hands over links; `waker` is woken when the answer is there.
    ///
    /// # Panics
    /// When there is no place of a link, links are more than ends say or than there is room for, which are a caller's bugs: the card would
    /// read what is not there.
    pub fn ask(&mut self, hop: &Hop<'_>, waker: TaskWaker) {
        let Hop { links, ends, continues, slack, width } = *hop;
        let inside = links.iter().all(|link| *link < self.vectors) && ends.is_sorted();
        let ended = ends.last().map_or(0, |end| *end as usize) == links.len();
        assert!(
            inside && ended && ends.len() + links.len() <= self.ids as usize,
            "links beyond the codes, or too many"
        );
        self.place.write(|letter| {
            (letter.pages, letter.continues, letter.slack, letter.width) =
                (ends.len() as u32, continues, slack, width);
            letter.ids.clear();
            letter.ids.extend_from_slice(ends);
            letter.ids.extend_from_slice(links);
        });
        self.place.send(waker);
    }

    /// Writes the answer to `answer`, once it is there; `None` before.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn answer(&mut self, answer: &mut Answer) -> Option<Result<(), GpuError>> {
        self.place.answer(|letter| {
            answer.pages.clone_from(&letter.next);
            answer.starts.clone_from(&letter.begun);
            answer.scored = letter.scored;
        })
    }
}
