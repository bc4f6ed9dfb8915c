//! Hops of graph searches through pages that hold many vectors each and share their links. A query submits
//! the links of the pages that have arrived, page by page, suspends, and receives the pages to read next. The
//! card holds the codes, as for [`hops`](crate::hops).

mod parts;

pub use parts::{LinkPart, Parts};

use crate::card::{Card, Kernel};
use crate::error::GpuError;
use crate::fields::{append_fields, read_u32s};
use crate::graph::{Codes, NONE, Navigation, check_shared};
use crate::hops::{HopGraph, HopShape, HopSizes, append_query};
use crate::service::{
    BatchAddresses, Inputs, LaunchParameters, QueryBytes, QueryKernel, Service, ServiceSlot, THREADS,
    check_numbers,
};
use bathyal_tier::{Cx, TaskWaker};

/// Maximum number of pivots at which a query begins.
pub const MOST_STARTS: u32 = THREADS - 1;
/// Bytes copied to the card for each hop, in addition to the ids: a `PageWork` of `kernels/pages.cu`.
pub const WORK_BYTES: usize = 40;

/// Returns the bytes that a slot takes on the card.
pub fn slot_bytes(shape: &HopShape, codes: &Codes) -> u64 {
    shape.kept_bytes(codes) + query_bytes(shape, codes).total()
}

fn query_bytes(shape: &HopShape, codes: &Codes) -> QueryBytes {
    QueryBytes {
        query: codes.query_bytes(),
        work: WORK_BYTES,
        items: 4 * shape.ids as usize,
        output: 4 * output_words(shape.width, MOST_STARTS) as usize,
    }
}

/// Returns the words of an output: the number of scored codes, up to `width` pages, and up to `starts`
/// pivots.
fn output_words(width: u32, starts: u32) -> u32 {
    1 + width + starts
}

/// Returns the bytes of shared memory of a block, for candidate lists of length `list`.
fn shared_bytes(codes: &Codes, list: u32) -> u64 {
    // The nearest pages follow the planes, at a multiple of 4.
    codes.shared_bytes(list) + 2 * (codes.planes.len() as u64 % 2) + 4 * u64::from(THREADS)
}

/// Largest sizes among the requests of a launch.
#[derive(Debug, Default)]
pub struct PageSizes {
    /// Their lists and numbers of pages.
    hop: HopSizes,
    /// Number of pivots at which a query begins.
    starts: u32,
}

impl PageSizes {
    fn output_words(&self) -> u32 {
        output_words(self.hop.width, self.starts)
    }

    /// Returns the number of scored codes in an output.
    fn scored(&self, output: &[u8]) -> u32 {
        words(output, 0, 1).next().unwrap_or(0)
    }

    /// Returns the pages in an output.
    fn pages(&self, output: &[u8]) -> impl Iterator<Item = u32> {
        words(output, 1, self.hop.width)
    }

    /// Returns the pivots in an output.
    fn start_pivots(&self, output: &[u8]) -> impl Iterator<Item = u32> {
        words(output, 1 + self.hop.width, self.starts)
    }
}

/// Returns up to `count` words of an output, from word number `first` on, up to the first absent one.
fn words(output: &[u8], first: u32, count: u32) -> impl Iterator<Item = u32> {
    read_u32s(output).skip(first as usize).take(count as usize).take_while(|word| *word != NONE)
}

/// Request of a query for one hop, with the response.
#[derive(Debug, Default)]
pub struct PageRequest {
    /// The query, if it begins; otherwise empty.
    query: Vec<u8>,
    /// Ends of the links of each page, then the links; the place of the entry point if the query begins.
    ids: Vec<u32>,
    pages: u32,
    continues: bool,
    list: u32,
    width: u32,
    starts: u32,
    slack: f32,
    /// Response: the pages to read next.
    next: Vec<u32>,
    /// Response: the pivots at which the query begins.
    start_pivots: Vec<u32>,
    /// Response: the number of codes that were scored.
    scored: u32,
}

/// The kernel `kernels/pages.cu`.
#[derive(Debug)]
pub struct PageKernel {
    graph: HopGraph,
    /// Number of vectors of a page.
    records: u32,
}

impl QueryKernel for PageKernel {
    type Request = PageRequest;
    type Sizes = PageSizes;

    fn kernel(&self) -> Kernel {
        Kernel::Pages
    }

    fn query_bytes(&self) -> QueryBytes {
        query_bytes(&self.graph.shape, &self.graph.codes)
    }

    fn add(&self, slot: u32, request: &mut PageRequest, inputs: &mut Inputs, sizes: &mut PageSizes) {
        let first = (inputs.items.len() / 4) as u32;
        let query = append_query(&mut request.query, &mut inputs.queries);
        append_fields(&[], &request.ids, &mut inputs.items);
        let PageRequest { pages, list, width, starts, slack, .. } = *request;
        sizes.hop.include(list, starts, width);
        if query != NONE {
            sizes.starts = sizes.starts.max(starts);
        }
        let continues = u32::from(request.continues);
        let fields = [slot, first, pages, continues, query, list, width, starts, slack.to_bits(), 0];
        append_fields(&[], &fields, &mut inputs.work);
    }

    fn parameters(&self, sizes: &PageSizes, addresses: &BatchAddresses) -> LaunchParameters {
        let (vectors, output_words) = (self.graph.vectors as u32, sizes.output_words());
        let mut argument = Vec::new();
        self.graph.append_args(sizes.hop, addresses, &mut argument);
        append_fields(&[addresses.work], &[self.records, vectors, output_words, 0], &mut argument);
        LaunchParameters {
            shared_bytes: shared_bytes(&self.graph.codes, sizes.hop.list),
            argument,
            output_bytes: 4 * output_words as usize,
        }
    }

    fn check(&self, sizes: &PageSizes, output: &[u8]) -> Result<(), GpuError> {
        let vectors = self.graph.vectors;
        let pages = vectors.div_ceil(u64::from(self.records));
        check_numbers(Kernel::Pages, "page", sizes.pages(output), pages)?;
        check_numbers(Kernel::Pages, "vector", sizes.start_pivots(output), vectors)
    }

    fn write_response(&self, sizes: &PageSizes, output: &[u8], request: &mut PageRequest) {
        request.next.clear();
        request.next.extend(sizes.pages(output));
        request.start_pivots.clear();
        request.start_pivots.extend(sizes.start_pivots(output));
        request.scored = sizes.scored(output);
    }
}

/// Service for the hops of an index on a card.
pub type Pages = Service<PageKernel>;

impl Pages {
    /// Starts the service for pages of `records` vectors each. [`HopShape::width`] counts pages, and
    /// [`HopShape::ids`] links and ends of pages, at least 2. With `mini_batch`, a launch waits for this many
    /// queries, or for all with a slot.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the slots do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn start(
        card: &dyn Card,
        graph: Navigation,
        shape: HopShape,
        records: u32,
        mini_batch: Option<u32>,
    ) -> Result<Pages, GpuError> {
        let list = shape.list.max(MOST_STARTS);
        check_shared(card.profile(), shape.list, shared_bytes(&graph.codes, list))?;
        let (graph, memory) = HopGraph::allocate(card, graph, shape)?;
        let kernel = PageKernel { graph, records: records.max(1) };
        Service::with_kernel(card, kernel, memory, shape.slots, mini_batch)
    }

    /// Returns the layout of the codes.
    pub fn codes(&self) -> &Codes {
        &self.kernel().graph.codes
    }

    /// Returns the limits of queries.
    pub fn shape(&self) -> &HopShape {
        &self.kernel().graph.shape
    }
}

/// Links that a query submits.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    /// Links of the pages, one page after another.
    pub links: &'a [u32],
    /// End of the links of each page in `links`.
    pub ends: &'a [u32],
    /// True if the first of these pages had links in the previous request.
    pub continues: bool,
    /// How much farther than the worst candidate a linked vector may be for its page to be considered.
    pub slack: f32,
    /// Maximum number of pages to read next; 0 as long as more links of this hop follow.
    pub width: u32,
}

/// Response to a query.
#[derive(Debug, Default)]
pub struct PageResponse {
    /// Pages to read next, the nearest first.
    pub pages: Vec<u32>,
    /// The nearest pivots, if the query begins with this request.
    pub starts: Vec<u32>,
    /// Number of codes that were scored.
    pub scored: u32,
}

/// The parameters of a search of pages.
#[derive(Debug, Clone, Copy)]
pub struct PageSearchParameters {
    /// Number of candidates.
    pub list: u32,
    /// Number of nearest pivots at whose pages the search begins.
    pub starts: u32,
    /// Maximum number of pages in a response.
    pub width: u32,
}

/// A slot for a query on the card, freed when this is dropped.
pub type Slot = ServiceSlot<PageKernel>;

impl Slot {
    /// Returns the maximum number of links and ends of pages in one request.
    pub fn max_ids(&self) -> usize {
        self.kernel().graph.shape.ids as usize
    }

    /// Begins a query at the pages of the nearest pivots and of the place `entry`. `write` writes the
    /// query, by [`write_query`](crate::graph::write_query).
    ///
    /// # Panics
    /// If the place does not exist, or there are more than [`MOST_STARTS`] starts, which is a bug of the
    /// caller.
    pub fn begin(
        &mut self,
        PageSearchParameters { list, starts, width }: PageSearchParameters,
        entry: u32,
        write: impl FnOnce(&mut Vec<u8>),
        waker: TaskWaker,
    ) {
        assert!(
            u64::from(entry) < self.kernel().graph.vectors && starts <= MOST_STARTS,
            "a place without a vector, or too many starts"
        );
        self.write_request(|request| {
            write(&mut request.query);
            (request.list, request.starts, request.width, request.pages) = (list, starts, width, 0);
            (request.continues, request.slack) = (false, 0.0);
            request.ids.clear();
            request.ids.push(entry);
        });
        self.submit_request(waker);
    }

    /// Submits links. `waker` is woken when there is a response.
    ///
    /// # Panics
    /// If a link has no place, or the links do not match their ends or exceed the limit, which is a bug of
    /// the caller: the card would read invalid memory.
    pub fn submit(&mut self, hop: &Hop<'_>, waker: TaskWaker) {
        let Hop { links, ends, continues, slack, width } = *hop;
        let vectors = self.kernel().graph.vectors;
        let inside = links.iter().all(|link| u64::from(*link) < vectors) && ends.is_sorted();
        let ended = ends.last().map_or(0, |end| *end as usize) == links.len();
        assert!(
            inside && ended && ends.len() + links.len() <= self.max_ids(),
            "links to no vector, or too many"
        );
        self.write_request(|request| {
            (request.pages, request.continues, request.slack, request.width) =
                (ends.len() as u32, continues, slack, width);
            request.ids.clear();
            request.ids.extend_from_slice(ends);
            request.ids.extend_from_slice(links);
        });
        self.submit_request(waker);
    }

    /// Waits for the response, and writes it to `response`.
    ///
    /// # Errors
    /// [`GpuError`] if the request has failed.
    pub async fn wait_for_response(&mut self, cx: &Cx, response: &mut PageResponse) -> Result<(), GpuError> {
        self.wait_for_request(cx, |request| {
            response.pages.clone_from(&request.next);
            response.starts.clone_from(&request.start_pivots);
            response.scored = request.scored;
        })
        .await
    }
}
