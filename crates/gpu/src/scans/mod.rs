//! Scans of groups of codes on a card: the codes of all groups lie in its memory, a query brings its tables and the groups to scan, and
//! gets the places of the best codes. One launch a query, whatever it wants to know: what a card is best at.

mod args;
mod wave;

pub use args::Group;

use crate::card::{Card, CardMemory, CardProfile, CardQueue, Kernel};
use crate::error::GpuError;
use crate::service::{Batch, CardCounters, Place, Service, Terms, launches};
use args::{Args, Work};
use bathyal_tier::TaskWaker;
use std::sync::Arc;
use wave::{Letter, Scanning};

/// Threads of a block; `THREADS` in `kernels/keys.h`.
const THREADS: u32 = 128;
/// Codes of a block of codes.
const LANES: u32 = 32;
/// Bytes of the four numbers before a query's tables.
const HEAD_BYTES: usize = 16;
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

    /// Bytes of the codes of all groups.
    pub fn codes_bytes(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.group_bytes())
    }

    /// Bytes that a query under way takes on the card.
    pub fn slot_bytes(&self) -> u64 {
        let given = self.query_bytes() + Work::BYTES + Group::BYTES * self.scanned as usize;
        (given + 8 * self.list as usize) as u64
    }

    /// Bytes that the threads of a block share, with lists of so many codes.
    fn shared_bytes(&self, list: u32) -> u64 {
        let keys = 2 * u64::from(list) + 4 * u64::from(THREADS);
        8 * keys + 4 * u64::from(THREADS / 32) + self.query_bytes() as u64
    }

    fn check(&self, profile: &CardProfile) -> Result<(), GpuError> {
        let shared = self.shared_bytes(self.list);
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
    mini_batch: Option<u32>,
}

impl<'a> Upload<'a> {
    /// Makes room on `card`.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the codes do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn begin(card: &'a dyn Card, shape: Shape) -> Result<Upload<'a>, GpuError> {
        shape.check(card.profile())?;
        let queue = card.queue()?;
        let codes = card.allocate("the codes of the index", shape.codes_bytes())?;
        Ok(Upload { card, shape, queue, codes, written: 0, mini_batch: None })
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
    pub fn finish(self) -> Result<Scans, GpuError> {
        let Upload { card, shape, mut queue, codes, written, mini_batch } = self;
        if written != shape.codes_bytes() {
            let reason = format!("{written} bytes of codes, {} were to come", shape.codes_bytes());
            return Err(GpuError::Driver { operation: "take the codes", reason });
        }
        // Other queues know nothing of what is on its way in this one.
        queue.finish()?;
        let kept: Arc<[Box<dyn CardMemory>]> = Arc::new([codes]);
        let mut resident_bytes = kept[0].bytes();
        let (room, launches) = launches(shape.slots);
        let mut waves = Vec::new();
        for _ in 0..launches {
            let (wave, bytes) = wave(card, shape, room, kept.clone())?;
            waves.push(wave);
            resident_bytes += bytes;
        }
        let service = Service::start(Terms { slots: shape.slots, room, mini_batch }, waves)?;
        Ok(Scans { shape, service, resident_bytes })
    }
}

/// What a launch of up to `room` queries takes besides the codes, and how many bytes that are.
fn wave(
    card: &dyn Card,
    shape: Shape,
    room: u32,
    kept: Arc<[Box<dyn CardMemory>]>,
) -> Result<(Scanning, u64), GpuError> {
    let (room, what) = (u64::from(room), "the queries under way");
    let query_bytes = shape.query_bytes() as u64;
    let staged = card.allocate(what, room * query_bytes)?;
    let work = card.allocate(what, room * Work::BYTES as u64)?;
    let groups = card.allocate(what, room * Group::BYTES as u64 * u64::from(shape.scanned))?;
    let found = card.allocate(what, room * 8 * u64::from(shape.list))?;
    let bytes = [&staged, &work, &groups, &found].iter().map(|memory| memory.bytes()).sum();
    let args = Args {
        addresses: [&kept[0], &staged, &work, &groups, &found].map(|memory| memory.address()),
        numbers: [
            shape.group_bytes(),
            LANES * shape.code_bytes,
            shape.plane_bytes,
            shape.factor_bytes,
            shape.group_vectors,
            query_bytes as u32,
            shape.list,
            0,
        ],
    };
    let places = u64::from(shape.groups) * u64::from(shape.group_vectors);
    let batch = Batch::new(Kernel::Scan, card.queue()?, [staged, work, groups], found, kept);
    Ok((Scanning { batch, args, shape, places }, bytes))
}

/// The scans of an index on a card.
#[derive(Debug)]
pub struct Scans {
    shape: Shape,
    service: Service<Scanning>,
    resident_bytes: u64,
}

impl Scans {
    /// A place for a query, until it is dropped; `None` while as many are under way as there may be, in which case `waker` is woken when
    /// one is free.
    pub fn slot(&self, waker: TaskWaker) -> Option<Slot> {
        Some(Slot { place: Place::take(self.service.shared(), Some(waker))?, shape: self.shape })
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
}

impl Slot {
    /// Asks for the best `list` codes of `groups`; `waker` is woken when the answer is there.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] where that is more than the shape says.
    ///
    /// # Panics
    /// When a group is none, holds more than it may, or the tables are of other codes, which are a caller's bugs: the card would read
    /// what is not there.
    pub fn ask(
        &mut self,
        tables: &Tables<'_>,
        groups: impl Iterator<Item = Group>,
        list: u32,
        waker: TaskWaker,
    ) -> Result<(), GpuError> {
        let shape = self.shape;
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

    /// Tells `each` of the best codes, in order, once they are there: how far each is estimated to be, and its place. `None` before.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn answer(&mut self, mut each: impl FnMut(f32, u32)) -> Option<Result<(), GpuError>> {
        self.place.answer(|letter| {
            for key in &letter.keys {
                let ordered = (key >> 32) as u32;
                let bits = if ordered >> 31 == 1 { ordered ^ 1 << 31 } else { !ordered };
                each(f32::from_bits(bits), *key as u32);
            }
        })
    }
}
