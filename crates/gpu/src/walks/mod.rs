//! Searches of graphs that are on a card as a whole (codes, links, vectors), a launch each: nothing is read and nobody is asked between
//! two hops.

mod args;
mod wave;

use crate::card::{Card, CardMemory, CardQueue, Kernel};
use crate::error::GpuError;
use crate::exact::{Vectors, of_key};
use crate::graph::{Codes, NONE, Navigation, check_shared};
use crate::hops::Asks;
use crate::service::{Batch, CardCounters, Place, Service, Terms, launches};
use args::{Args, Work};
use bathyal_tier::TaskWaker;
use std::sync::Arc;
use wave::{Letter, Walking};

/// Vectors that a query expands at a time at most; `MOST_WIDTH` in `kernels/walk.cu`.
pub const MOST_WIDTH: u32 = 16;
/// Numbers before the keys of an answer.
const BEFORE: usize = 2;
/// Bytes of links that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// The largest of queries, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most candidates of a query, and answers.
    pub list: u32,
    /// Queries under way at most.
    pub slots: u32,
}

impl Shape {
    /// Bytes that a query under way takes on the card, of such codes and vectors.
    pub fn slot_bytes(&self, codes: &Codes, vectors: &Vectors) -> u64 {
        let query = codes.query_bytes() + vectors.exact.query_bytes();
        (query + Work::BYTES + 8 * (BEFORE + self.list as usize)) as u64
    }
}

/// Bytes that the threads of a block share.
fn walk_bytes(codes: &Codes, list: u32, wanted: u32) -> u64 {
    codes.shared_bytes(list) + 8 * u64::from(wanted) + 4 * u64::from(MOST_WIDTH)
}

/// Links that are being copied to a card, in the order of the vectors' places.
#[derive(Debug)]
pub struct LinkUpload {
    queue: Box<dyn CardQueue>,
    links: Box<dyn CardMemory>,
    degree: usize,
    vectors: u64,
    staged: Vec<u8>,
    copied: u64,
}

impl LinkUpload {
    /// Makes room on `card` for up to `degree` links of each of `vectors` vectors.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where they do not fit, [`GpuError::Driver`].
    pub fn begin(card: &dyn Card, degree: u32, vectors: u64) -> Result<LinkUpload, GpuError> {
        let links = card.allocate("the links of the index (--tier gpu)", vectors * 4 * u64::from(degree))?;
        let (queue, degree) = (card.queue()?, degree as usize);
        Ok(LinkUpload { queue, links, degree, vectors, staged: Vec::new(), copied: 0 })
    }

    /// Takes the links of the next vector.
    ///
    /// # Errors
    /// [`GpuError::Driver`]; also of more than there may be, or of a vector that there is not.
    pub fn append(&mut self, links: &[u32]) -> Result<(), GpuError> {
        if links.len() > self.degree || links.iter().any(|link| u64::from(*link) >= self.vectors) {
            let reason = format!("{} links, or one to no vector", links.len());
            return Err(GpuError::Driver { operation: "take the links", reason });
        }
        let rest = std::iter::repeat_n(&NONE, self.degree - links.len());
        links.iter().chain(rest).for_each(|link| self.staged.extend(link.to_le_bytes()));
        if self.staged.len() >= COPY_BYTES { self.copy() } else { Ok(()) }
    }

    fn copy(&mut self) -> Result<(), GpuError> {
        self.queue.write(&*self.links, self.copied, &self.staged)?;
        self.copied += self.staged.len() as u64;
        self.staged.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Box<dyn CardMemory>, GpuError> {
        self.copy()?;
        self.queue.finish()?;
        if self.copied != self.links.bytes() {
            let reason = format!("{} bytes of links, {} were to come", self.copied, self.links.bytes());
            return Err(GpuError::Driver { operation: "take the links", reason });
        }
        Ok(self.links)
    }
}

/// What a walk has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hops.
    pub hops: u32,
    /// Vectors that were expanded, and so compared exactly.
    pub expanded: u32,
    /// Codes that were scored, again where several records link to a vector.
    pub scored: u32,
}

/// What a launch of up to `room` queries takes besides what is `kept`, and how many bytes that are.
fn wave(
    card: &dyn Card,
    shape: &Shape,
    (query_bytes, room): (usize, u32),
    kept: Arc<[Box<dyn CardMemory>]>,
) -> Result<(Batch<2>, u64), GpuError> {
    let (room, what) = (u64::from(room), "the queries under way");
    let staged = card.allocate(what, room * query_bytes as u64)?;
    let work = card.allocate(what, room * Work::BYTES as u64)?;
    let found = card.allocate(what, room * 8 * (BEFORE as u64 + u64::from(shape.list)))?;
    let bytes = [&staged, &work, &found].iter().map(|memory| memory.bytes()).sum();
    Ok((Batch::new(Kernel::Walk, card.queue()?, [staged, work], found, kept), bytes))
}

/// The walks of an index on a card.
#[derive(Debug)]
pub struct Walks {
    shape: Shape,
    codes: Codes,
    vector_bytes: usize,
    service: Service<Walking>,
    resident_bytes: u64,
}

impl Walks {
    /// Begins to serve; with `mini_batch` a launch waits until so many queries have asked, or all that are under way.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the slots do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`]; also of links and vectors that are
    /// not those of the codes.
    pub fn start(
        card: &dyn Card,
        graph: Navigation,
        links: LinkUpload,
        vectors: Vectors,
        (shape, mini_batch): (Shape, Option<u32>),
    ) -> Result<Walks, GpuError> {
        check_shared(card.profile(), shape.list, walk_bytes(&graph.codes, shape.list, shape.list))?;
        if graph.vectors != vectors.places || links.vectors != vectors.places {
            let reason = format!("codes of {} vectors, {} of them", graph.vectors, vectors.places);
            return Err(GpuError::Driver { operation: "take the vectors", reason });
        }
        let (degree, links) = (links.degree as u32, links.finish()?);
        let (exact, ids_end) = (vectors.exact, vectors.places);
        let whole = [vectors.vectors.address(), links.address(), vectors.ids.address()];
        let graph_words = graph.words();
        let Navigation { codes, memory, .. } = graph;
        let kept: Arc<[_]> = memory.into_iter().chain([links, vectors.vectors, vectors.ids]).collect();
        let mut resident_bytes = kept.iter().map(|memory| memory.bytes()).sum();
        let (room, launches) = launches(shape.slots);
        let mut waves = Vec::new();
        for _ in 0..launches {
            let query_bytes = codes.query_bytes() + exact.query_bytes();
            let (batch, bytes) = wave(card, &shape, (query_bytes, room), kept.clone())?;
            let ([staged, work], [vectors, links, ids]) = (batch.given(), whole);
            let args = Args {
                graph: graph_words.0,
                graph_numbers: graph_words.1,
                addresses: [staged, work, vectors, links, ids, batch.returned()],
                exact: exact.words(),
                degree,
                best_room: shape.list,
            };
            waves.push(Walking { batch, args, codes: codes.clone(), ids_end });
            resident_bytes += bytes;
        }
        let service = Service::start(Terms { slots: shape.slots, room, mini_batch }, waves)?;
        Ok(Walks { shape, codes, vector_bytes: exact.query_bytes(), service, resident_bytes })
    }

    /// A place for a query, until it is dropped; `None` while as many are under way as there may be, in which case `waker` is woken when
    /// one is free.
    pub fn slot(&self, waker: TaskWaker) -> Option<Slot> {
        let place = Place::take(self.service.shared(), Some(waker))?;
        Some(Slot { place, vector_bytes: self.vector_bytes, list: self.shape.list })
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
    vector_bytes: usize,
    list: u32,
}

impl Slot {
    /// Asks for the nearest `wanted` vectors; `write` writes the query for the codes, by
    /// [`write_query`](crate::graph::write_query), and `vector` is what vectors are compared with. `waker` is woken when the answer is
    /// there.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] where that is more than the shape says.
    ///
    /// # Panics
    /// When the vector is one of another length, a caller's bug: the card would read what is not there.
    pub fn ask(
        &mut self,
        asks: Asks,
        write: impl FnOnce(&mut Vec<u8>),
        (vector, wanted): (&[u8], u32),
        waker: TaskWaker,
    ) -> Result<(), GpuError> {
        assert!(vector.len().next_multiple_of(4) == self.vector_bytes, "a vector of another length");
        if asks.list > self.list || wanted > asks.list || asks.width > MOST_WIDTH {
            return Err(GpuError::Unsuited(format!(
                "{wanted} answers of {} candidates, {} expanded at a time, are more than a graphics card takes of a query, which is {} \
                 and {MOST_WIDTH}: ask for less, or leave --device gpu out",
                asks.list, asks.width, self.list
            )));
        }
        self.place.write(|letter| {
            write(&mut letter.query);
            let end = letter.query.len() + self.vector_bytes;
            letter.query.extend_from_slice(vector);
            letter.query.resize(end, 0);
            letter.asks = Asks { step: asks.step.max(1), ..asks };
            letter.wanted = wanted.max(1);
        });
        self.place.send(waker);
        Ok(())
    }

    /// Tells `each` of the answers, in order, once they are there: how far each vector is, and its id; and returns what it took. `None`
    /// before.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn answer(&mut self, mut each: impl FnMut(f32, u32)) -> Option<Result<Counts, GpuError>> {
        let mut counts = Counts::default();
        let answered = self.place.answer(|letter| {
            counts = letter.counts;
            letter.keys.iter().for_each(|key| {
                let (distance, id) = of_key(*key);
                each(distance, id);
            });
        });
        answered.map(|answered| answered.map(|()| counts))
    }
}
