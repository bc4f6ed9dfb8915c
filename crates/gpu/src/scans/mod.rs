//! Scans of groups of codes on a card: the codes of all groups lie in its memory, a query brings its tables and the groups to scan, and
//! gets the places of the best codes; or, where vectors are there as well, the nearest of these. One launch a query, whatever it wants
//! to know: what a card is best at.

mod args;
mod wave;

pub use args::Group;

use crate::card::{Card, CardMemory, CardProfile, CardQueue, Kernel};
use crate::error::GpuError;
use crate::exact::{Exact, Vectors, of_key};
use crate::service::{Batch, CardCounters, Place, Service, Terms, launches};
use args::{Args, RerankArgs, Work};
use bathyal_tier::TaskWaker;
use std::sync::Arc;
use wave::{Letter, Scanning};

/// Threads of a block; `THREADS` in `kernels/keys.h`.
const THREADS: u32 = 128;
/// Codes of a block of codes.
const LANES: u32 = 32;
/// Bytes of the four numbers before a query's tables.
const HEAD_BYTES: usize = 16;
/// Bytes of the number of answers before a query's vector.
const WANTED_BYTES: usize = 4;
/// Bytes of the tables of a word of four bytes, and of their weights.
const WORD_BYTES: usize = 128 + 8;

/// Candidates that a query of an index wants at most: several times as many as recall 0.99 took anywhere measured.
pub const MOST_CANDIDATES: u32 = 512;
/// Groups that it scans at most.
pub const MOST_SCANNED: u32 = 512;
/// Bytes that are sent with every scan beside its tables and groups.
pub const WORK_BYTES: usize = Work::BYTES;
/// Bytes that are sent for each group.
pub const GROUP_BYTES: usize = Group::BYTES;

/// What scans are like: the codes, and the largest of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a code.
    pub code_bytes: u32,
    /// Bytes of its two factors: 4 or 8.
    pub factor_bytes: u32,
    /// Bytes of its planes.
    pub plane_bytes: u32,
    /// Groups of codes.
    pub groups: u32,
    /// Blocks of 32 codes that each group has.
    pub group_blocks: u32,
    /// Places of each group.
    pub group_vectors: u32,
    /// Most codes that a query wants.
    pub list: u32,
    /// Most groups that it scans.
    pub scanned: u32,
    /// Queries under way at most.
    pub slots: u32,
}

impl Shape {
    /// Bytes of a query's tables on the card.
    pub fn query_bytes(&self) -> usize {
        HEAD_BYTES + WORD_BYTES * self.plane_bytes.div_ceil(4) as usize
    }

    fn group_bytes(&self) -> u32 {
        self.group_blocks * LANES * self.code_bytes
    }

    fn places(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.group_vectors)
    }

    /// Bytes of the codes of all groups.
    pub fn codes_bytes(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.group_bytes())
    }

    /// Bytes that a query under way takes on the card.
    pub fn slot_bytes(&self) -> u64 {
        let given = self.query_bytes() + Work::BYTES + Group::BYTES * self.scanned as usize;
        (given + 8 * (1 + self.list as usize)) as u64
    }

    /// Bytes that the threads of a block share, with lists of so many codes, and answers where vectors are compared.
    fn shared_bytes(&self, list: u32, answers: u32) -> u64 {
        let keys = 2 * u64::from(list) + 4 * u64::from(THREADS) + u64::from(answers);
        8 * keys + 4 * u64::from(THREADS / 32) + self.query_bytes() as u64
    }

    fn check(&self, profile: &CardProfile, answers: u32) -> Result<(), GpuError> {
        let shared = self.shared_bytes(self.list, answers);
        if shared <= u64::from(profile.shared_bytes) {
            return Ok(());
        }
        Err(GpuError::Unsuited(format!(
            "tables of codes of {} bytes take {shared} bytes of what the threads of a block share, which are {} on {}: build with smaller \
             codes (--code-bytes), or leave --device gpu out",
            self.code_bytes, profile.shared_bytes, profile.name
        )))
    }
}

/// Codes that are being copied to a card, piece by piece: nobody needs to have them all in memory.
#[derive(Debug)]
pub struct Upload<'a> {
    card: &'a dyn Card,
    shape: Shape,
    queue: Box<dyn CardQueue>,
    codes: Box<dyn CardMemory>,
    written: u64,
}

impl<'a> Upload<'a> {
    /// Makes room on `card`.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the codes do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn begin(card: &'a dyn Card, shape: Shape) -> Result<Upload<'a>, GpuError> {
        shape.check(card.profile(), 0)?;
        let queue = card.queue()?;
        let codes = card.allocate("the codes of the index", shape.codes_bytes())?;
        Ok(Upload { card, shape, queue, codes, written: 0 })
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

    /// Begins to serve; with `vectors`, by place, the best codes' vectors are compared on the card, and with `mini_batch` a launch waits
    /// until so many queries have asked, or all that are under way (GustANN, section 4.1.3).
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the slots do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn finish(self, vectors: Option<Vectors>, mini_batch: Option<u32>) -> Result<Scans, GpuError> {
        let Upload { card, shape, mut queue, codes, written } = self;
        let exact = vectors.as_ref().map(|vectors| vectors.exact);
        if exact.is_some() {
            shape.check(card.profile(), shape.list)?;
        }
        let (places, of) = (shape.places(), vectors.as_ref().map(|vectors| vectors.places));
        if written != shape.codes_bytes() || of.is_some_and(|of| of != places) {
            let reason = format!(
                "{written} bytes of codes, {} were to come; or {of:?} vectors of {places}",
                shape.codes_bytes()
            );
            return Err(GpuError::Driver { operation: "take the codes", reason });
        }
        // Other queues know nothing of what is on its way in this one.
        queue.finish()?;
        let rerank = vectors.as_ref().map(|Vectors { vectors, ids, exact, .. }| RerankArgs {
            addresses: [vectors.address(), ids.address()],
            exact: exact.words(),
            best_room: shape.list,
        });
        let codes_at = codes.address();
        let vectors = vectors.into_iter().flat_map(|vectors| [vectors.vectors, vectors.ids]);
        let kept: Arc<[_]> = [codes].into_iter().chain(vectors).collect();
        let mut resident_bytes = kept.iter().map(|memory| memory.bytes()).sum();
        let (room, launches) = launches(shape.slots);
        let mut waves = Vec::new();
        for _ in 0..launches {
            let (batch, bytes) = wave(card, shape, (exact, room), kept.clone())?;
            let [staged, work, groups] = batch.given();
            let args = Args {
                addresses: [codes_at, staged, work, groups, batch.returned()],
                numbers: [
                    shape.group_bytes(),
                    LANES * shape.code_bytes,
                    shape.plane_bytes,
                    shape.factor_bytes,
                    shape.group_vectors,
                    shape.query_bytes() as u32,
                    shape.list,
                    0,
                ],
            };
            waves.push(Scanning { batch, args, rerank, shape, places });
            resident_bytes += bytes;
        }
        let service = Service::start(Terms { slots: shape.slots, room, mini_batch }, waves)?;
        Ok(Scans { shape, exact, service, resident_bytes })
    }
}

/// What a launch of up to `room` queries takes besides what is `kept`, and how many bytes that are.
fn wave(
    card: &dyn Card,
    shape: Shape,
    (exact, room): (Option<Exact>, u32),
    kept: Arc<[Box<dyn CardMemory>]>,
) -> Result<(Batch<3>, u64), GpuError> {
    let (room, what) = (u64::from(room), "the queries under way");
    let vector_bytes = exact.map_or(0, |exact| WANTED_BYTES + exact.query_bytes());
    let staged = card.allocate(what, room * (shape.query_bytes() + vector_bytes) as u64)?;
    let work = card.allocate(what, room * Work::BYTES as u64)?;
    let groups = card.allocate(what, room * Group::BYTES as u64 * u64::from(shape.scanned))?;
    let found = card.allocate(what, room * 8 * (1 + u64::from(shape.list)))?;
    let bytes = [&staged, &work, &groups, &found].iter().map(|memory| memory.bytes()).sum();
    let kernel = if exact.is_some() { Kernel::Rerank } else { Kernel::Scan };
    Ok((Batch::new(kernel, card.queue()?, [staged, work, groups], found, kept), bytes))
}

/// The scans of an index on a card.
#[derive(Debug)]
pub struct Scans {
    shape: Shape,
    exact: Option<Exact>,
    service: Service<Scanning>,
    resident_bytes: u64,
}

impl Scans {
    /// A place for a query, until it is dropped; `None` while as many are under way as there may be, in which case `waker` is woken when
    /// one is free.
    pub fn slot(&self, waker: TaskWaker) -> Option<Slot> {
        let place = Place::take(self.service.shared(), Some(waker))?;
        Some(Slot { place, shape: self.shape, exact: self.exact })
    }

    /// Whether vectors are compared on the card.
    pub fn compares(&self) -> bool {
        self.exact.is_some()
    }

    /// What scans are like.
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

/// A query's tables and numbers, as a processor has made them.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// What is added to every distance.
    pub mean_term: f32,
    /// What the first factor counts.
    pub norm_unit: f32,
    /// Added to a sum, after [`Tables::scale`].
    pub offset: f32,
    /// What a sum counts.
    pub scale: f32,
    /// Eight tables of 16 bytes for each word of four bytes.
    pub tables: &'a [[u8; 64]],
    /// Their weights, a byte each.
    pub weights: &'a [[u8; 4]],
}

/// A place for a query on the card.
#[derive(Debug)]
pub struct Slot {
    place: Place<Letter>,
    shape: Shape,
    exact: Option<Exact>,
}

impl Slot {
    /// Whether vectors are compared on the card.
    pub fn compares(&self) -> bool {
        self.exact.is_some()
    }

    /// Asks for the best `list` codes of `groups`, or, where vectors are on the card, for the nearest so many of their vectors to the one
    /// that is given with that; `waker` is woken when the answer is there.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] where that is more than the shape says.
    ///
    /// # Panics
    /// When a group is none, holds more than it may, the tables are of other codes, or a vector is there or not as it should not be,
    /// which are a caller's bugs: the card would read what is not there.
    pub fn ask(
        &mut self,
        tables: &Tables<'_>,
        groups: impl Iterator<Item = Group>,
        list: u32,
        vector: Option<(&[u8], u32)>,
        waker: TaskWaker,
    ) -> Result<(), GpuError> {
        let shape = self.shape;
        let vector_bytes = self.exact.map(|exact| exact.query_bytes());
        let given = vector.map(|(vector, _)| vector.len().next_multiple_of(4));
        assert_eq!(given, vector_bytes, "a vector of another length");
        let words = shape.plane_bytes.div_ceil(4) as usize;
        assert!(
            tables.tables.len() == 2 * words && tables.weights.len() == 2 * words,
            "tables of other codes"
        );
        let mut asked = 0;
        self.place.write(|letter| {
            let Letter { query, groups: wanted, .. } = letter;
            query.clear();
            for number in [tables.mean_term, tables.norm_unit, tables.offset, tables.scale] {
                query.extend(number.to_le_bytes());
            }
            tables.tables.iter().for_each(|table| query.extend_from_slice(table));
            tables.weights.iter().for_each(|weights| query.extend_from_slice(weights));
            letter.answers = vector.map_or(0, |(_, answers)| answers.clamp(1, list.max(1)));
            if let Some((vector, _)) = vector {
                query.extend(letter.answers.to_le_bytes());
                query.extend_from_slice(vector);
                query.resize(query.len().next_multiple_of(4), 0);
            }
            wanted.clear();
            wanted.extend(groups);
            let most = (shape.group_blocks * LANES).min(shape.group_vectors);
            assert!(
                wanted.iter().all(|group| group.number < shape.groups && group.held <= most),
                "a group that there is not"
            );
            letter.list = list.max(1);
            asked = letter.groups.len();
        });
        if list > shape.list || asked > shape.scanned as usize {
            return Err(GpuError::Unsuited(format!(
                "{list} candidates of {asked} groups are more than a graphics card takes of a query, which is {} of {}: ask for less, or \
                 leave --device gpu out",
                shape.list, shape.scanned
            )));
        }
        self.place.send(waker);
        Ok(())
    }

    /// Tells `each` of the best codes, in order, once they are there: how far each is estimated to be, and its place; or of the nearest
    /// vectors how far each is, and its id. Returns how many codes were found; `None` before.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn answer(&mut self, mut each: impl FnMut(f32, u32)) -> Option<Result<u32, GpuError>> {
        let mut found = 0;
        let answered = self.place.answer(|letter| {
            found = letter.found;
            letter.keys.iter().for_each(|key| {
                let (distance, number) = of_key(*key);
                each(distance, number);
            });
        });
        answered.map(|answered| answered.map(|()| found))
    }
}
