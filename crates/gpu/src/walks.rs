//! Searches of graphs whose codes, links and vectors are all on a card. One launch executes a whole search,
//! without reads or requests between hops.

use crate::card::{Card, CardMemory, CardQueue, Kernel};
use crate::error::GpuError;
use crate::exact::{Exact, VectorAddresses, Vectors, split_key};
use crate::fields::{append_fields, read_u64s};
use crate::graph::{Codes, NONE, Navigation, NavigationAddresses, check_shared};
use crate::hops::GraphSearchParameters;
use crate::service::{
    BatchAddresses, Inputs, LaunchParameters, QueryBytes, QueryKernel, Service, ServiceSlot, check_numbers,
};
use bathyal_tier::{Cx, TaskWaker};

/// Maximum number of vectors that a query expands at a time; `MOST_WIDTH` in `kernels/walk.cu`.
pub const MOST_WIDTH: u32 = 16;
/// Counters before the keys of an output.
const HEADER_WORDS: usize = 2;
/// Bytes copied to the card for each query, in addition to the query: a `WalkWork` of `kernels/walk.cu`.
const WORK_BYTES: usize = 24;
/// Bytes of links in one copy.
const COPY_BYTES: usize = 1 << 20;

/// Limits of queries, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkShape {
    /// Maximum number of candidates, and of results, of a query.
    pub list: u32,
    /// Maximum number of queries with a slot.
    pub slots: u32,
}

impl WalkShape {
    /// Returns the bytes that a slot takes on the card.
    pub fn slot_bytes(&self, codes: &Codes, vectors: &Vectors) -> u64 {
        self.query_bytes(codes, &vectors.exact).total()
    }

    fn query_bytes(&self, codes: &Codes, exact: &Exact) -> QueryBytes {
        QueryBytes {
            query: codes.query_bytes() + exact.query_bytes(),
            work: WORK_BYTES,
            items: 0,
            output: 8 * (HEADER_WORDS + self.list as usize),
        }
    }
}

/// Returns the bytes of shared memory of a block.
fn walk_bytes(codes: &Codes, list: u32, wanted: u32) -> u64 {
    codes.shared_bytes(list) + 8 * u64::from(wanted) + 4 * u64::from(MOST_WIDTH)
}

/// Upload of links to a card, in the order of the vectors' places.
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
    /// Allocates memory of `card` for up to `degree` links of each of `vectors` vectors.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where they do not fit, [`GpuError::Driver`].
    pub fn begin(card: &dyn Card, degree: u32, vectors: u64) -> Result<LinkUpload, GpuError> {
        let links = card.allocate("the links of the index (--tier gpu)", vectors * 4 * u64::from(degree))?;
        let (queue, degree) = (card.queue()?, degree as usize);
        Ok(LinkUpload { queue, links, degree, vectors, staged: Vec::new(), copied: 0 })
    }

    /// Appends the links of the next vector.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also for more than `degree` links, or a link to no vector.
    pub fn append(&mut self, links: &[u32]) -> Result<(), GpuError> {
        if links.len() > self.degree || links.iter().any(|link| u64::from(*link) >= self.vectors) {
            let reason = format!("{} links, or a link to no vector", links.len());
            return Err(GpuError::Driver { operation: "upload the links", reason });
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
            let reason = format!("{} of {} bytes of links were appended", self.copied, self.links.bytes());
            return Err(GpuError::Driver { operation: "upload the links", reason });
        }
        Ok(self.links)
    }
}

/// Counters of a walk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalkCounters {
    /// Number of hops.
    pub hops: u32,
    /// Vectors that were expanded, whose exact distances were computed.
    pub expanded: u32,
    /// Codes that were scored. A vector counts once for each record that links to it.
    pub scored: u32,
}

/// Largest sizes among the requests of a launch.
#[derive(Debug)]
pub struct WalkSizes {
    list: u32,
    /// Number of results.
    wanted: u32,
}

impl Default for WalkSizes {
    fn default() -> WalkSizes {
        WalkSizes { list: 1, wanted: 1 }
    }
}

/// Request of a query for a walk, with the response.
#[derive(Debug, Default)]
pub struct WalkRequest {
    /// The query for the codes, then its vector.
    query: Vec<u8>,
    parameters: GraphSearchParameters,
    wanted: u32,
    /// Response: counters of the walk.
    counters: WalkCounters,
    /// Response: keys of the results, in order.
    keys: Vec<u64>,
}

/// The kernel `kernels/walk.cu`.
#[derive(Debug)]
pub struct WalkKernel {
    shape: WalkShape,
    codes: Codes,
    navigation: NavigationAddresses,
    vectors: VectorAddresses,
    /// Address of the links.
    links: u64,
    /// Number of links of each vector.
    degree: u32,
    /// End of the ids of the vectors.
    ids_end: u64,
}

/// Returns the keys in an output, the nearest first.
fn keys(output: &[u8]) -> impl Iterator<Item = u64> {
    read_u64s(output).skip(HEADER_WORDS).take_while(|key| *key != u64::MAX)
}

impl QueryKernel for WalkKernel {
    type Request = WalkRequest;
    type Sizes = WalkSizes;

    fn kernel(&self) -> Kernel {
        Kernel::Walk
    }

    fn query_bytes(&self) -> QueryBytes {
        self.shape.query_bytes(&self.codes, &self.vectors.exact)
    }

    fn add(&self, _: u32, request: &mut WalkRequest, inputs: &mut Inputs, sizes: &mut WalkSizes) {
        let GraphSearchParameters { list, width, starts, step } = request.parameters;
        let (query, wanted) = (inputs.queries.len() as u32, request.wanted);
        append_fields(&[], &[query, list, width, starts, step, wanted], &mut inputs.work);
        inputs.queries.extend_from_slice(&request.query);
        sizes.list = sizes.list.max(list).max(starts);
        sizes.wanted = sizes.wanted.max(wanted);
    }

    fn parameters(&self, sizes: &WalkSizes, addresses: &BatchAddresses) -> LaunchParameters {
        let WalkKernel { codes, navigation, vectors, links, degree, .. } = self;
        let mut argument = Vec::new();
        navigation.append_fields(codes, sizes.list, &mut argument);
        let BatchAddresses { queries, work, output, .. } = *addresses;
        append_fields(
            &[queries, work, vectors.vectors, *links, vectors.ids, output],
            &vectors.exact.words(),
            &mut argument,
        );
        append_fields(&[], &[*degree, sizes.wanted], &mut argument);
        LaunchParameters {
            shared_bytes: walk_bytes(codes, sizes.list, sizes.wanted),
            argument,
            output_bytes: 8 * (HEADER_WORDS + sizes.wanted as usize),
        }
    }

    fn check(&self, _: &WalkSizes, output: &[u8]) -> Result<(), GpuError> {
        check_numbers(Kernel::Walk, "vector", keys(output).map(|key| key as u32), self.ids_end)
    }

    fn write_response(&self, _: &WalkSizes, output: &[u8], request: &mut WalkRequest) {
        let mut header = read_u64s(output);
        let (walked, scored) = (header.next().unwrap_or(0), header.next().unwrap_or(0));
        request.counters =
            WalkCounters { hops: (walked >> 32) as u32, expanded: walked as u32, scored: scored as u32 };
        request.keys.clear();
        request.keys.extend(keys(output));
    }
}

/// Service for the walks of an index on a card.
pub type Walks = Service<WalkKernel>;

impl Walks {
    /// Starts the service. With `mini_batch`, a launch waits for this many queries, or for all with a slot.
    ///
    /// # Errors
    /// [`GpuError::Memory`] if the slots do not fit, [`GpuError::Unsuited`]; [`GpuError::Driver`], also if
    /// links or vectors are not those of the codes.
    pub fn start(
        card: &dyn Card,
        graph: Navigation,
        links: LinkUpload,
        vectors: Vectors,
        (shape, mini_batch): (WalkShape, Option<u32>),
    ) -> Result<Walks, GpuError> {
        check_shared(card.profile(), shape.list, walk_bytes(&graph.codes, shape.list, shape.list))?;
        if graph.vectors != vectors.places || links.vectors != vectors.places {
            let reason =
                format!("there are codes of {} vectors, and {} vectors", graph.vectors, vectors.places);
            return Err(GpuError::Driver { operation: "upload the vectors", reason });
        }
        let (degree, links) = (links.degree as u32, links.finish()?);
        let kernel = WalkKernel {
            shape,
            navigation: graph.addresses(),
            codes: graph.codes,
            vectors: vectors.addresses(),
            links: links.address(),
            degree,
            ids_end: vectors.places,
        };
        let resident = graph.memory.into_iter().chain([links]).chain(vectors.into_memory());
        Service::with_kernel(card, kernel, resident, shape.slots, mini_batch)
    }

    /// Returns the limits of queries.
    pub fn shape(&self) -> &WalkShape {
        &self.kernel().shape
    }

    /// Returns the layout of the codes.
    pub fn codes(&self) -> &Codes {
        &self.kernel().codes
    }
}

/// A slot for a query on the card, freed when this is dropped.
pub type Slot = ServiceSlot<WalkKernel>;

impl Slot {
    /// Requests the nearest `wanted` vectors. `write` writes the query for the codes, by
    /// [`write_query`](crate::graph::write_query); `vector` is the query for exact distances. `waker` is
    /// woken when there is a response.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] if the parameters exceed the limits of the shape.
    ///
    /// # Panics
    /// If the vector has another length, which is a bug of the caller: the card would read invalid memory.
    pub fn submit(
        &mut self,
        parameters: GraphSearchParameters,
        write: impl FnOnce(&mut Vec<u8>),
        (vector, wanted): (&[u8], u32),
        waker: TaskWaker,
    ) -> Result<(), GpuError> {
        let WalkKernel { shape, vectors, .. } = self.kernel();
        let (max_list, vector_bytes) = (shape.list, vectors.exact.query_bytes());
        assert!(vector.len().next_multiple_of(4) == vector_bytes, "a vector of another length");
        if parameters.list > max_list || wanted > parameters.list || parameters.width > MOST_WIDTH {
            return Err(GpuError::Unsuited(format!(
                "a graphics card cannot search with {wanted} results of {} candidates, {} expanded at a \
                 time: the limits are {max_list} and {MOST_WIDTH}; choose smaller values, or leave --device \
                 gpu out",
                parameters.list, parameters.width
            )));
        }
        self.write_request(|request| {
            write(&mut request.query);
            let end = request.query.len() + vector_bytes;
            request.query.extend_from_slice(vector);
            request.query.resize(end, 0);
            request.parameters = GraphSearchParameters { step: parameters.step.max(1), ..parameters };
            request.wanted = wanted.max(1);
        });
        self.submit_request(waker);
        Ok(())
    }

    /// Waits for the response. Calls `each` with the distance and the id of each result, in order. Returns
    /// the counters of the walk.
    ///
    /// # Errors
    /// [`GpuError`] if the request has failed.
    pub async fn wait_for_response(
        &mut self,
        cx: &Cx,
        mut each: impl FnMut(f32, u32),
    ) -> Result<WalkCounters, GpuError> {
        let mut counters = WalkCounters::default();
        let read = |request: &WalkRequest| {
            counters = request.counters;
            request.keys.iter().for_each(|key| {
                let (distance, id) = split_key(*key);
                each(distance, id);
            });
        };
        self.wait_for_request(cx, read).await?;
        Ok(counters)
    }
}
