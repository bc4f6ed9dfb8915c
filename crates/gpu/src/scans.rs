//! Scans of groups of codes on a card. The card holds the codes of all groups. A query submits its tables and
//! the groups to scan, and receives the places of the best codes; or, if the card holds the vectors as well,
//! the nearest of their vectors. Each query takes one launch, which suits a card best.

use crate::card::{Card, CardMemory, CardProfile, CardQueue, Kernel};
use crate::error::GpuError;
use crate::exact::{Exact, VectorAddresses, Vectors, split_key};
use crate::fields::{append_fields, read_u64s};
use crate::service::{
    BatchAddresses, Inputs, LaunchParameters, QueryBytes, QueryKernel, Service, ServiceSlot, THREADS,
    check_numbers,
};
use bathyal_tier::{Cx, TaskWaker};

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
/// Bytes copied to the card for each scan, in addition to its tables and groups: a `ScanWork` of
/// `kernels/groups.h`.
pub const WORK_BYTES: usize = 16;
/// Bytes copied to the card for each group: a `ScanGroup` of `kernels/groups.h`.
pub const GROUP_BYTES: usize = 12;

/// A group to scan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Number of the group.
    pub number: u32,
    /// Number of codes that it holds.
    pub held: u32,
    /// Distance of the query to its centroid.
    pub distance: f32,
}

/// Layout of the codes, and limits of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanShape {
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

impl ScanShape {
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
        self.launch_bytes(None).total()
    }

    /// Returns the bytes of a query in a launch, with its vector for exact distances if there are any.
    fn launch_bytes(&self, exact: Option<&Exact>) -> QueryBytes {
        let vector_bytes = exact.map_or(0, |exact| COUNT_BYTES + exact.query_bytes());
        QueryBytes {
            query: self.query_bytes() + vector_bytes,
            work: WORK_BYTES,
            items: GROUP_BYTES * self.scanned as usize,
            output: 8 * (1 + self.list as usize),
        }
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
pub struct ScanUpload<'a> {
    card: &'a dyn Card,
    shape: ScanShape,
    queue: Box<dyn CardQueue>,
    codes: Box<dyn CardMemory>,
    written: u64,
}

impl<'a> ScanUpload<'a> {
    /// Allocates memory of `card`.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the codes do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn begin(card: &'a dyn Card, shape: ScanShape) -> Result<ScanUpload<'a>, GpuError> {
        shape.check(card.profile(), 0)?;
        let queue = card.queue()?;
        let codes = card.allocate("the codes of the index", shape.codes_bytes())?;
        Ok(ScanUpload { card, shape, queue, codes, written: 0 })
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
        let ScanUpload { card, shape, mut queue, codes, written } = self;
        if vectors.is_some() {
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
        let kernel =
            ScanKernel { shape, codes: codes.address(), vectors: vectors.as_ref().map(Vectors::addresses) };
        let resident = [codes].into_iter().chain(vectors.into_iter().flat_map(Vectors::into_memory));
        Service::with_kernel(card, kernel, resident, shape.slots, mini_batch)
    }
}

/// Largest sizes among the requests of a launch. Short lists leave room for more blocks at a time.
#[derive(Debug)]
pub struct ScanSizes {
    list: u32,
    /// Number of nearest vectors, if the card holds vectors.
    results: u32,
}

impl Default for ScanSizes {
    fn default() -> ScanSizes {
        ScanSizes { list: 1, results: 1 }
    }
}

/// Request of a query for a scan, with the response.
#[derive(Debug, Default)]
pub struct ScanRequest {
    query: Vec<u8>,
    groups: Vec<Group>,
    list: u32,
    /// Number of nearest vectors to return, if the card holds vectors.
    results: u32,
    /// Response: number of codes that were found.
    found: u32,
    /// Response: keys of the best codes or nearest vectors, in order.
    keys: Vec<u64>,
}

/// The kernel `kernels/scan.cu`; or `kernels/rerank.cu`, if the card holds vectors.
#[derive(Debug)]
pub struct ScanKernel {
    shape: ScanShape,
    /// Address of the codes.
    codes: u64,
    /// The vectors, in the order of places.
    vectors: Option<VectorAddresses>,
}

impl ScanKernel {
    fn exact(&self) -> Option<&Exact> {
        self.vectors.as_ref().map(|vectors| &vectors.exact)
    }

    /// Returns the keys in an output, the nearest first.
    fn keys(&self, output: &[u8]) -> impl Iterator<Item = u64> {
        let header_words = usize::from(self.vectors.is_some());
        read_u64s(output).skip(header_words).take_while(|key| *key != u64::MAX)
    }
}

impl QueryKernel for ScanKernel {
    type Request = ScanRequest;
    type Sizes = ScanSizes;

    fn kernel(&self) -> Kernel {
        if self.vectors.is_some() { Kernel::Rerank } else { Kernel::Scan }
    }

    fn query_bytes(&self) -> QueryBytes {
        self.shape.launch_bytes(self.exact())
    }

    fn add(&self, _: u32, request: &mut ScanRequest, inputs: &mut Inputs, sizes: &mut ScanSizes) {
        let Inputs { queries, work, items } = inputs;
        let (first, count) = ((items.len() / GROUP_BYTES) as u32, request.groups.len() as u32);
        append_fields(&[], &[queries.len() as u32, first, count, request.list], work);
        queries.extend_from_slice(&request.query);
        for Group { number, held, distance } in &request.groups {
            append_fields(&[], &[*number, *held, distance.to_bits()], items);
        }
        sizes.list = sizes.list.max(request.list);
        sizes.results = sizes.results.max(request.results);
    }

    /// Returns a launch with `ScanArgs` (`kernels/groups.h`) or `RerankArgs` (`kernels/rerank.cu`).
    fn parameters(&self, sizes: &ScanSizes, addresses: &BatchAddresses) -> LaunchParameters {
        let BatchAddresses { queries, work, items, output } = *addresses;
        let shape = &self.shape;
        let numbers = [
            shape.group_bytes(),
            LANES * shape.code_bytes,
            shape.plane_bytes,
            shape.factor_bytes,
            shape.group_vectors,
            shape.query_bytes() as u32,
            sizes.list,
            0,
        ];
        let mut argument = Vec::new();
        append_fields(&[self.codes, queries, work, items, output], &numbers, &mut argument);
        let Some(vectors) = &self.vectors else {
            return LaunchParameters {
                shared_bytes: shape.shared_bytes(sizes.list, 0),
                argument,
                output_bytes: 8 * sizes.list as usize,
            };
        };
        append_fields(&[vectors.vectors, vectors.ids], &vectors.exact.words(), &mut argument);
        append_fields(&[], &[sizes.results, 0], &mut argument);
        LaunchParameters {
            shared_bytes: shape.shared_bytes(sizes.list, sizes.results),
            argument,
            output_bytes: 8 * (1 + sizes.results as usize),
        }
    }

    fn check(&self, _: &ScanSizes, output: &[u8]) -> Result<(), GpuError> {
        let what = if self.vectors.is_some() { "vector" } else { "place" };
        check_numbers(self.kernel(), what, self.keys(output).map(|key| key as u32), self.shape.places())
    }

    fn write_response(&self, _: &ScanSizes, output: &[u8], request: &mut ScanRequest) {
        request.keys.clear();
        request.keys.extend(self.keys(output));
        request.found = match self.vectors {
            Some(_) => read_u64s(output).next().unwrap_or(0) as u32,
            None => request.keys.len() as u32,
        };
    }
}

/// Service for the scans of an index on a card.
pub type Scans = Service<ScanKernel>;

impl Scans {
    /// Returns true if the card computes exact distances.
    pub fn computes_exact_distances(&self) -> bool {
        self.kernel().vectors.is_some()
    }

    /// Returns the layout of the codes and the limits of queries.
    pub fn shape(&self) -> &ScanShape {
        &self.kernel().shape
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
pub type Slot = ServiceSlot<ScanKernel>;

impl Slot {
    /// Returns true if the card computes exact distances.
    pub fn computes_exact_distances(&self) -> bool {
        self.kernel().vectors.is_some()
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
        let shape = self.kernel().shape;
        let vector_bytes = self.kernel().exact().map(Exact::query_bytes);
        let given_bytes = vector.map(|(vector, _)| vector.len().next_multiple_of(4));
        assert_eq!(given_bytes, vector_bytes, "a vector of another length");
        let words = shape.plane_bytes.div_ceil(4) as usize;
        assert!(
            tables.tables.len() == 2 * words && tables.weights.len() == 2 * words,
            "tables of other codes"
        );
        let mut group_count = 0;
        self.write_request(|request| {
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
        self.submit_request(waker);
        Ok(())
    }

    /// Waits for the response. Calls `each` with the estimated distance and the place of each of the best
    /// codes, in order; or with the distance and the id of each of the nearest vectors. Returns the number of
    /// codes that were found.
    ///
    /// # Errors
    /// [`GpuError`] if the request has failed.
    pub async fn wait_for_response(
        &mut self,
        cx: &Cx,
        mut each: impl FnMut(f32, u32),
    ) -> Result<u32, GpuError> {
        let mut found = 0;
        let read = |request: &ScanRequest| {
            found = request.found;
            request.keys.iter().for_each(|key| {
                let (distance, number) = split_key(*key);
                each(distance, number);
            });
        };
        self.wait_for_request(cx, read).await?;
        Ok(found)
    }
}
