//! Hops of graph searches on a card (GustANN, section 4.2). The card holds the codes of all vectors, and each
//! query with its candidates. A query submits the links of the records that have arrived ([`Slot::submit`]),
//! suspends, and receives the vectors to expand next.

use crate::card::{Card, CardMemory, Kernel};
use crate::error::GpuError;
use crate::fields::{append_fields, read_u32s};
use crate::graph::{Codes, NONE, Navigation, NavigationAddresses, check_shared};
use crate::service::{
    BatchAddresses, Inputs, LaunchParameters, QueryBytes, QueryKernel, Service, ServiceSlot, check_numbers,
};
use bathyal_tier::{Cx, TaskWaker};

/// Maximum number of candidates of a query: several times as many as any measured set needed for recall 0.99,
/// except for hard sets.
pub const MOST_CANDIDATES: u32 = 1024;
/// Bytes copied to the card for each hop, in addition to the ids: a `Work` of `kernels/hop.cu`.
pub const WORK_BYTES: usize = 32;

/// Limits of queries, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopShape {
    /// Maximum number of candidates of a query.
    pub list: u32,
    /// Maximum number of vectors that a query expands at a time.
    pub width: u32,
    /// Maximum number of ids that a query submits at a time.
    pub ids: u32,
    /// Maximum number of queries with a slot.
    pub slots: u32,
}

impl HopShape {
    /// Returns the bytes that a slot takes on the card.
    pub fn slot_bytes(&self, codes: &Codes) -> u64 {
        self.kept_bytes(codes) + self.query_bytes(codes).total()
    }

    /// Returns the bytes of a query and its candidates, which stay on the card between hops.
    pub(crate) fn kept_bytes(&self, codes: &Codes) -> u64 {
        codes.query_bytes() as u64 + self.list_bytes()
    }

    fn list_bytes(&self) -> u64 {
        8 * (1 + u64::from(self.list))
    }

    fn query_bytes(&self, codes: &Codes) -> QueryBytes {
        QueryBytes {
            query: codes.query_bytes(),
            work: WORK_BYTES,
            items: 4 * self.ids as usize,
            output: 4 * self.width as usize,
        }
    }
}

/// Search parameters of a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GraphSearchParameters {
    /// Number of candidates.
    pub list: u32,
    /// Number of vectors to expand at a time.
    pub width: u32,
    /// Number of nearest pivots at which the query begins.
    pub starts: u32,
    /// The query considers one pivot in this many; at least 1.
    pub step: u32,
}

/// A graph on a card, and the queries that stay there from hop to hop. Hops of records and of pages share it.
#[derive(Debug)]
pub(crate) struct HopGraph {
    pub(crate) shape: HopShape,
    pub(crate) codes: Codes,
    /// Number of vectors.
    pub(crate) vectors: u64,
    navigation: NavigationAddresses,
    /// Address of the queries of all slots.
    queries: u64,
    /// Address of the candidate lists of all slots.
    lists: u64,
}

impl HopGraph {
    /// Allocates the queries and their lists beside the codes. Returns the graph with all of its memory.
    pub(crate) fn allocate(
        card: &dyn Card,
        graph: Navigation,
        shape: HopShape,
    ) -> Result<(HopGraph, Vec<Box<dyn CardMemory>>), GpuError> {
        let (slots, what) = (u64::from(shape.slots), "the queries in flight");
        let queries = card.allocate(what, slots * graph.codes.query_bytes() as u64)?;
        let lists = card.allocate(what, slots * shape.list_bytes())?;
        let hop_graph = HopGraph {
            shape,
            navigation: graph.addresses(),
            queries: queries.address(),
            lists: lists.address(),
            codes: graph.codes,
            vectors: graph.vectors,
        };
        Ok((hop_graph, graph.memory.into_iter().chain([queries, lists]).collect()))
    }

    /// Appends the kernels' `HopArgs` (`kernels/slots.h`).
    pub(crate) fn append_args(&self, sizes: HopSizes, addresses: &BatchAddresses, out: &mut Vec<u8>) {
        let BatchAddresses { queries, work, items, output } = *addresses;
        self.navigation.append_fields(&self.codes, sizes.list, out);
        append_fields(
            &[queries, work, items, self.queries, self.lists, output],
            &[sizes.width, self.shape.list],
            out,
        );
    }
}

/// Largest sizes among the requests of a launch. Short lists leave room for more blocks at a time.
#[derive(Debug, Clone, Copy)]
pub struct HopSizes {
    pub(crate) list: u32,
    pub(crate) width: u32,
}

impl Default for HopSizes {
    fn default() -> HopSizes {
        HopSizes { list: 1, width: 1 }
    }
}

impl HopSizes {
    /// Includes a request for `width` vectors or pages. Its list has up to `list` candidates, and first up to
    /// `starts` pivots.
    pub(crate) fn include(&mut self, list: u32, starts: u32, width: u32) {
        self.list = self.list.max(list).max(starts);
        self.width = self.width.max(width);
    }
}

/// Appends `query`, if the request has one, to those of a launch. Returns its offset in bytes, or [`NONE`].
/// Empties `query`, since the card keeps it from then on.
pub(crate) fn append_query(query: &mut Vec<u8>, queries: &mut Vec<u8>) -> u32 {
    let offset = if query.is_empty() { NONE } else { queries.len() as u32 };
    queries.append(query);
    offset
}

/// Request of a query for one hop, with the response.
#[derive(Debug, Default)]
pub struct HopRequest {
    /// The query, if it begins; otherwise empty.
    query: Vec<u8>,
    ids: Vec<u32>,
    parameters: GraphSearchParameters,
    /// Response: the vectors to expand next.
    next: Vec<u32>,
}

/// The kernel `kernels/hop.cu`.
#[derive(Debug)]
pub struct HopKernel {
    graph: HopGraph,
}

/// Returns the ids in an output.
fn next_ids(output: &[u8]) -> impl Iterator<Item = u32> {
    read_u32s(output).take_while(|id| *id != NONE)
}

impl QueryKernel for HopKernel {
    type Request = HopRequest;
    type Sizes = HopSizes;

    fn kernel(&self) -> Kernel {
        Kernel::Hop
    }

    fn query_bytes(&self) -> QueryBytes {
        self.graph.shape.query_bytes(&self.graph.codes)
    }

    fn add(&self, slot: u32, request: &mut HopRequest, inputs: &mut Inputs, sizes: &mut HopSizes) {
        let (first, count) = ((inputs.items.len() / 4) as u32, request.ids.len() as u32);
        let query = append_query(&mut request.query, &mut inputs.queries);
        append_fields(&[], &request.ids, &mut inputs.items);
        let GraphSearchParameters { list, width, starts, step } = request.parameters;
        sizes.include(list, starts, width);
        append_fields(&[], &[slot, first, count, query, list, width, starts, step], &mut inputs.work);
    }

    fn parameters(&self, sizes: &HopSizes, addresses: &BatchAddresses) -> LaunchParameters {
        let mut argument = Vec::new();
        self.graph.append_args(*sizes, addresses, &mut argument);
        LaunchParameters {
            shared_bytes: self.graph.codes.shared_bytes(sizes.list),
            argument,
            output_bytes: 4 * sizes.width as usize,
        }
    }

    fn check(&self, _: &HopSizes, output: &[u8]) -> Result<(), GpuError> {
        check_numbers(Kernel::Hop, "vector", next_ids(output), self.graph.vectors)
    }

    fn write_response(&self, _: &HopSizes, output: &[u8], request: &mut HopRequest) {
        request.next.clear();
        request.next.extend(next_ids(output));
    }
}

/// Service for the hops of an index on a card.
pub type Hops = Service<HopKernel>;

impl Hops {
    /// Starts the service. With `mini_batch`, a launch waits for this many queries, or for all with a slot
    /// (GustANN, section 4.1.3).
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the slots do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn start(
        card: &dyn Card,
        graph: Navigation,
        shape: HopShape,
        mini_batch: Option<u32>,
    ) -> Result<Hops, GpuError> {
        check_shared(card.profile(), shape.list, graph.codes.shared_bytes(shape.list))?;
        let (graph, memory) = HopGraph::allocate(card, graph, shape)?;
        Service::with_kernel(card, HopKernel { graph }, memory, shape.slots, mini_batch)
    }

    /// Returns the limits of queries.
    pub fn shape(&self) -> &HopShape {
        &self.kernel().graph.shape
    }

    /// Returns the layout of the codes.
    pub fn codes(&self) -> &Codes {
        &self.kernel().graph.codes
    }
}

/// A slot for a query on the card, freed when this is dropped.
pub type Slot = ServiceSlot<HopKernel>;

impl Slot {
    /// Begins a query within the limits of the shape. The ids that are submitted first are candidates in
    /// addition to the nearest pivots. `write` writes the query, by
    /// [`write_query`](crate::graph::write_query).
    pub fn begin(&mut self, parameters: GraphSearchParameters, write: impl FnOnce(&mut Vec<u8>)) {
        self.write_request(|request| {
            write(&mut request.query);
            request.parameters = GraphSearchParameters { step: parameters.step.max(1), ..parameters };
        });
    }

    /// Submits `ids`, to be scored and made candidates. `waker` is woken when there is a response.
    ///
    /// # Panics
    /// If an id has no vector, or there are more ids than the shape allows, which is a bug of the caller: the
    /// card would read invalid memory.
    pub fn submit(&mut self, ids: &[u32], waker: TaskWaker) {
        let HopGraph { vectors, shape, .. } = &self.kernel().graph;
        let inside = ids.iter().all(|id| u64::from(*id) < *vectors);
        assert!(inside && ids.len() <= shape.ids as usize, "an id beyond the codes, or too many");
        self.write_request(|request| {
            request.ids.clear();
            request.ids.extend_from_slice(ids);
        });
        self.submit_request(waker);
    }

    /// Waits for the response, and writes the vectors to expand next to `next`, the nearest first.
    ///
    /// # Errors
    /// [`GpuError`] if the request has failed.
    pub async fn wait_for_response(&mut self, cx: &Cx, next: &mut Vec<u32>) -> Result<(), GpuError> {
        self.wait_for_request(cx, |request| next.clone_from(&request.next)).await
    }
}
