//! Scans of groups of codes on a card. The card holds the codes of all groups. A query submits its tables and
//! the groups to scan, and receives the places of the best codes; or, if the card holds the vectors as well,
//! the nearest of their vectors. Each query takes one launch, which suits a card best.

mod args;
mod launch;

pub use args::Group;

use crate::card::{Card, CardMemory, CardProfile, CardQueue, Kernel};
use crate::error::GpuError;
use crate::exact::{Exact, Vectors, split_key};
use crate::service::{Batch, CardCounters, Service, ServiceLimits, ServiceSlot, launches};
use args::{Args, RerankArgs, Work};
use bathyal_tier::TaskWaker;
use launch::{ScanLaunch, ScanRequest};
use std::sync::Arc;

/// Threads of a block; `THREADS` in `kernels/keys.h`.
const THREADS: u32 = 128;
/// Number of codes in a block of codes.
const LANES: u32 = 32;
/// Bytes of the four numbers before a query's tables.
const HEAD_BYTES: usize = 16;
/// Bytes of the number of results before a query's vector.
const COUNT_BYTES: usize = 4;
/// Bytes of the tables for a word of four bytes, and of their weights.
const WORD_BYTES: usize = 128 + 8;

/// Maximum number of candidates of a query: several times as many as any measured set needed for recall 0.99.
pub const MOST_CANDIDATES: u32 = 512;
/// Maximum number of groups that a query scans.
pub const MOST_SCANNED: u32 = 512;
/// Bytes copied to the card for each scan, in addition to its tables and groups.
pub const WORK_BYTES: usize = Work::BYTES;
/// Bytes copied to the card for each group.
pub const GROUP_BYTES: usize = Group::BYTES;

/// Layout of the codes, and limits of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a code.
    pub code_bytes: u32,
    /// Bytes of the two factors of a code: 4 or 8.
    pub factor_bytes: u32,
    /// Bytes of the planes of a code.
    pub plane_bytes: u32,
    /// Number of groups.
    pub groups: u32,
    /// Blocks of 32 codes in each group.
    pub group_blocks: u32,
    /// Places in each group.
    pub group_vectors: u32,
    /// Maximum number of codes that a query requests.
    pub list: u32,
    /// Maximum number of groups that a query scans.
    pub scanned: u32,
    /// Maximum number of queries with a slot.
    pub slots: u32,
}

impl Shape {
    /// Returns the bytes of a query's tables on the card.
    pub fn query_bytes(&self) -> usize {
        HEAD_BYTES + WORD_BYTES * self.plane_bytes.div_ceil(4) as usize
    }

    fn group_bytes(&self) -> u32 {
        self.group_blocks * LANES * self.code_bytes
    }

    fn places(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.group_vectors)
    }

    /// Returns the bytes of the codes of all groups.
    pub fn codes_bytes(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.group_bytes())
    }

    /// Returns the bytes that a slot takes on the card.
    pub fn slot_bytes(&self) -> u64 {
        let input_bytes = self.query_bytes() + Work::BYTES + Group::BYTES * self.scanned as usize;
        (input_bytes + 8 * (1 + self.list as usize)) as u64
    }

    /// Returns the bytes of shared memory of a block, for lists of `list` codes and `results` exact results.
    fn shared_bytes(&self, list: u32, results: u32) -> u64 {
        let keys = 2 * u64::from(list) + 4 * u64::from(THREADS) + u64::from(results);
        8 * keys + 4 * u64::from(THREADS / 32) + self.query_bytes() as u64
    }

    fn check(&self, profile: &CardProfile, results: u32) -> Result<(), GpuError> {
        let shared = self.shared_bytes(self.list, results);
        if shared <= u64::from(profile.shared_bytes) {
            return Ok(());
        }
        Err(GpuError::Unsuited(format!(
            "the tables for codes of {} bytes need {shared} bytes of shared memory for each block, and {} \
             has {}: build with smaller codes (--code-bytes), or leave --device gpu out",
            self.code_bytes, profile.name, profile.shared_bytes
        )))
    }
}

/// Upload of codes to a card, piece by piece, so that they need not all be in memory.
#[derive(Debug)]
pub struct Upload<'a> {
    card: &'a dyn Card,
    shape: Shape,
    queue: Box<dyn CardQueue>,
    codes: Box<dyn CardMemory>,
    written: u64,
}

impl<'a> Upload<'a> {
    /// Allocates memory of `card`.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the codes do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn begin(card: &'a dyn Card, shape: Shape) -> Result<Upload<'a>, GpuError> {
        shape.check(card.profile(), 0)?;
        let queue = card.queue()?;
        let codes = card.allocate("the codes of the index", shape.codes_bytes())?;
        Ok(Upload { card, shape, queue, codes, written: 0 })
    }

    /// Copies the next codes.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also for more bytes than the codes have.
    pub fn append(&mut self, codes: &[u8]) -> Result<(), GpuError> {
        self.queue.write(&*self.codes, self.written, codes)?;
        self.written += codes.len() as u64;
        Ok(())
    }

    /// Finishes the upload and starts the service. With `vectors`, in the order of places, the card computes
    /// exact distances of the best codes' vectors. With `mini_batch`, a launch waits for this many queries,
    /// or for all with a slot (GustANN, section 4.1.3).
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the slots do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn finish(self, vectors: Option<Vectors>, mini_batch: Option<u32>) -> Result<Scans, GpuError> {
        let Upload { card, shape, mut queue, codes, written } = self;
        let exact = vectors.as_ref().map(|vectors| vectors.exact);
        if exact.is_some() {
            shape.check(card.profile(), shape.list)?;
        }
        let (places, vector_places) = (shape.places(), vectors.as_ref().map(|vectors| vectors.places));
        if written != shape.codes_bytes() || vector_places.is_some_and(|count| count != places) {
            let reason = format!(
                "{written} of {} bytes of codes were appended; or there are vectors at {vector_places:?} of \
                 {places} places",
                shape.codes_bytes()
            );
            return Err(GpuError::Driver { operation: "upload the codes", reason });
        }
        // Other queues do not wait for the copies in this one.
        queue.finish()?;
        let rerank = vectors.as_ref().map(|Vectors { vectors, ids, exact, .. }| RerankArgs {
            addresses: [vectors.address(), ids.address()],
            exact: exact.words(),
            best_room: shape.list,
        });
        let codes_address = codes.address();
        let vectors = vectors.into_iter().flat_map(|vectors| [vectors.vectors, vectors.ids]);
        let resident: Arc<[_]> = [codes].into_iter().chain(vectors).collect();
        let mut resident_bytes = resident.iter().map(|memory| memory.bytes()).sum();
        let (launch_queries, launch_count) = launches(shape.slots);
        let mut launches = Vec::new();
        for _ in 0..launch_count {
            let (batch, bytes) = new_batch(card, shape, (exact, launch_queries), resident.clone())?;
            let [staged, work, groups] = batch.input_addresses();
            let args = Args {
                addresses: [codes_address, staged, work, groups, batch.output_address()],
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
            launches.push(ScanLaunch { batch, args, rerank, shape, places });
            resident_bytes += bytes;
        }
        let service =
            Service::start(ServiceLimits { slots: shape.slots, launch_queries, mini_batch }, launches)?;
        Ok(Scans { shape, exact, service, resident_bytes })
    }
}

/// Allocates a batch of up to `launch_queries` queries. Returns it with its bytes, without those of
/// `resident`.
fn new_batch(
    card: &dyn Card,
    shape: Shape,
    (exact, launch_queries): (Option<Exact>, u32),
    resident: Arc<[Box<dyn CardMemory>]>,
) -> Result<(Batch<3>, u64), GpuError> {
    let (queries, what) = (u64::from(launch_queries), "the queries in flight");
    let vector_bytes = exact.map_or(0, |exact| COUNT_BYTES + exact.query_bytes());
    let staged = card.allocate(what, queries * (shape.query_bytes() + vector_bytes) as u64)?;
    let work = card.allocate(what, queries * Work::BYTES as u64)?;
    let groups = card.allocate(what, queries * Group::BYTES as u64 * u64::from(shape.scanned))?;
    let found = card.allocate(what, queries * 8 * (1 + u64::from(shape.list)))?;
    let bytes = [&staged, &work, &groups, &found].iter().map(|memory| memory.bytes()).sum();
    let kernel = if exact.is_some() { Kernel::Rerank } else { Kernel::Scan };
    Ok((Batch::new(kernel, card.queue()?, [staged, work, groups], found, resident), bytes))
}

/// Service for the scans of an index on a card.
#[derive(Debug)]
pub struct Scans {
    shape: Shape,
    exact: Option<Exact>,
    service: Service<ScanLaunch>,
    resident_bytes: u64,
}

impl Scans {
    /// Takes a slot for a query. Returns `None` if all are taken; then `waker` is woken when one is free.
    pub fn slot(&self, waker: TaskWaker) -> Option<Slot> {
        let slot = ServiceSlot::acquire(self.service.shared(), Some(waker))?;
        Some(Slot { slot, shape: self.shape, exact: self.exact })
    }

    /// Returns true if the card computes exact distances.
    pub fn computes_exact_distances(&self) -> bool {
        self.exact.is_some()
    }

    /// Returns the layout of the codes and the limits of queries.
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

/// A query's tables and numbers, which the processor has computed.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// Summand of every distance.
    pub mean_term: f32,
    /// Unit of the first factor.
    pub norm_unit: f32,
    /// Summand of a sum, after [`Tables::scale`].
    pub offset: f32,
    /// Unit of a sum.
    pub scale: f32,
    /// Eight tables of 16 bytes for each word of four bytes.
    pub tables: &'a [[u8; 64]],
    /// Weights of the tables, one byte each.
    pub weights: &'a [[u8; 4]],
}

/// A slot for a query on the card, freed when this is dropped.
#[derive(Debug)]
pub struct Slot {
    slot: ServiceSlot<ScanRequest>,
    shape: Shape,
    exact: Option<Exact>,
}

impl Slot {
    /// Returns true if the card computes exact distances.
    pub fn computes_exact_distances(&self) -> bool {
        self.exact.is_some()
    }

    /// Requests the best `list` codes of `groups`. If the card holds vectors, `vector` is the query for exact
    /// distances, with the number of nearest vectors to return. `waker` is woken when there is a response.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] if the parameters exceed the limits of the shape.
    ///
    /// # Panics
    /// If a group does not exist or holds too many codes, the tables are of other codes, or a vector is
    /// missing or unexpected, which is a bug of the caller: the card would read invalid memory.
    pub fn submit(
        &mut self,
        tables: &Tables<'_>,
        groups: impl Iterator<Item = Group>,
        list: u32,
        vector: Option<(&[u8], u32)>,
        waker: TaskWaker,
    ) -> Result<(), GpuError> {
        let shape = self.shape;
        let vector_bytes = self.exact.map(|exact| exact.query_bytes());
        let given_bytes = vector.map(|(vector, _)| vector.len().next_multiple_of(4));
        assert_eq!(given_bytes, vector_bytes, "a vector of another length");
        let words = shape.plane_bytes.div_ceil(4) as usize;
        assert!(
            tables.tables.len() == 2 * words && tables.weights.len() == 2 * words,
            "tables of other codes"
        );
        let mut group_count = 0;
        self.slot.write(|request| {
            let ScanRequest { query, groups: request_groups, .. } = request;
            query.clear();
            for number in [tables.mean_term, tables.norm_unit, tables.offset, tables.scale] {
                query.extend(number.to_le_bytes());
            }
            tables.tables.iter().for_each(|table| query.extend_from_slice(table));
            tables.weights.iter().for_each(|weights| query.extend_from_slice(weights));
            request.results = vector.map_or(0, |(_, results)| results.clamp(1, list.max(1)));
            if let Some((vector, _)) = vector {
                query.extend(request.results.to_le_bytes());
                query.extend_from_slice(vector);
                query.resize(query.len().next_multiple_of(4), 0);
            }
            request_groups.clear();
            request_groups.extend(groups);
            let max_held = (shape.group_blocks * LANES).min(shape.group_vectors);
            assert!(
                request_groups.iter().all(|group| group.number < shape.groups && group.held <= max_held),
                "a group that does not exist"
            );
            request.list = list.max(1);
            group_count = request.groups.len();
        });
        if list > shape.list || group_count > shape.scanned as usize {
            return Err(GpuError::Unsuited(format!(
                "a graphics card cannot search {list} candidates of {group_count} groups: the limits are {} \
                 and {}; choose smaller values, or leave --device gpu out",
                shape.list, shape.scanned
            )));
        }
        self.slot.submit(waker);
        Ok(())
    }

    /// Calls `each` with the estimated distance and the place of each of the best codes, in order; or with
    /// the distance and the id of each of the nearest vectors. Returns the number of codes that were found;
    /// `None` if there is no response yet.
    ///
    /// # Errors
    /// [`GpuError`] if the request has failed.
    pub fn take_response(&mut self, mut each: impl FnMut(f32, u32)) -> Option<Result<u32, GpuError>> {
        let mut found = 0;
        let result = self.slot.take_response(|request| {
            found = request.found;
            request.keys.iter().for_each(|key| {
                let (distance, number) = split_key(*key);
                each(distance, number);
            });
        });
        result.map(|result| result.map(|()| found))
    }
}
