//! Searches of graphs whose codes, links and vectors are all on a card. One launch executes a whole search,
//! without reads or requests between hops.

mod args;
mod launch;

use crate::card::{Card, CardMemory, CardQueue, Kernel};
use crate::error::GpuError;
use crate::exact::{Vectors, split_key};
use crate::graph::{Codes, NONE, Navigation, check_shared};
use crate::hops::GraphSearchParameters;
use crate::service::{Batch, CardCounters, Service, ServiceLimits, ServiceSlot, launches};
use args::{Args, Work};
use bathyal_tier::TaskWaker;
use launch::{WalkLaunch, WalkRequest};
use std::sync::Arc;

/// Maximum number of vectors that a query expands at a time; `MOST_WIDTH` in `kernels/walk.cu`.
pub const MOST_WIDTH: u32 = 16;
/// Counters before the keys of an output.
const HEADER_WORDS: usize = 2;
/// Bytes of links in one copy.
const COPY_BYTES: usize = 1 << 20;

/// Limits of queries, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Maximum number of candidates, and of results, of a query.
    pub list: u32,
    /// Maximum number of queries with a slot.
    pub slots: u32,
}

impl Shape {
    /// Returns the bytes that a slot takes on the card.
    pub fn slot_bytes(&self, codes: &Codes, vectors: &Vectors) -> u64 {
        let query = codes.query_bytes() + vectors.exact.query_bytes();
        (query + Work::BYTES + 8 * (HEADER_WORDS + self.list as usize)) as u64
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

/// Allocates a batch of up to `launch_queries` queries. Returns it with its bytes, without those of
/// `resident`.
fn new_batch(
    card: &dyn Card,
    shape: &Shape,
    (query_bytes, launch_queries): (usize, u32),
    resident: Arc<[Box<dyn CardMemory>]>,
) -> Result<(Batch<2>, u64), GpuError> {
    let (queries, what) = (u64::from(launch_queries), "the queries in flight");
    let staged = card.allocate(what, queries * query_bytes as u64)?;
    let work = card.allocate(what, queries * Work::BYTES as u64)?;
    let found = card.allocate(what, queries * 8 * (HEADER_WORDS as u64 + u64::from(shape.list)))?;
    let bytes = [&staged, &work, &found].iter().map(|memory| memory.bytes()).sum();
    Ok((Batch::new(Kernel::Walk, card.queue()?, [staged, work], found, resident), bytes))
}

/// Service for the walks of an index on a card.
#[derive(Debug)]
pub struct Walks {
    shape: Shape,
    codes: Codes,
    vector_bytes: usize,
    service: Service<WalkLaunch>,
    resident_bytes: u64,
}

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
        (shape, mini_batch): (Shape, Option<u32>),
    ) -> Result<Walks, GpuError> {
        check_shared(card.profile(), shape.list, walk_bytes(&graph.codes, shape.list, shape.list))?;
        if graph.vectors != vectors.places || links.vectors != vectors.places {
            let reason =
                format!("there are codes of {} vectors, and {} vectors", graph.vectors, vectors.places);
            return Err(GpuError::Driver { operation: "upload the vectors", reason });
        }
        let (degree, links) = (links.degree as u32, links.finish()?);
        let (exact, ids_end) = (vectors.exact, vectors.places);
        let graph_addresses = [vectors.vectors.address(), links.address(), vectors.ids.address()];
        let graph_words = graph.words();
        let Navigation { codes, memory, .. } = graph;
        let resident: Arc<[_]> = memory.into_iter().chain([links, vectors.vectors, vectors.ids]).collect();
        let mut resident_bytes = resident.iter().map(|memory| memory.bytes()).sum();
        let (launch_queries, launch_count) = launches(shape.slots);
        let mut launches = Vec::new();
        for _ in 0..launch_count {
            let query_bytes = codes.query_bytes() + exact.query_bytes();
            let (batch, bytes) = new_batch(card, &shape, (query_bytes, launch_queries), resident.clone())?;
            let ([staged, work], [vectors, links, ids]) = (batch.input_addresses(), graph_addresses);
            let args = Args {
                graph: graph_words.0,
                graph_numbers: graph_words.1,
                addresses: [staged, work, vectors, links, ids, batch.output_address()],
                exact: exact.words(),
                degree,
                best_room: shape.list,
            };
            launches.push(WalkLaunch { batch, args, codes: codes.clone(), ids_end });
            resident_bytes += bytes;
        }
        let service =
            Service::start(ServiceLimits { slots: shape.slots, launch_queries, mini_batch }, launches)?;
        Ok(Walks { shape, codes, vector_bytes: exact.query_bytes(), service, resident_bytes })
    }

    /// Takes a slot for a query. Returns `None` if all are taken; then `waker` is woken when one is free.
    pub fn slot(&self, waker: TaskWaker) -> Option<Slot> {
        let slot = ServiceSlot::acquire(self.service.shared(), Some(waker))?;
        Some(Slot { slot, vector_bytes: self.vector_bytes, list: self.shape.list })
    }

    /// Returns the limits of queries.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the layout of the codes.
    pub fn codes(&self) -> &Codes {
        &self.codes
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

/// A slot for a query on the card, freed when this is dropped.
#[derive(Debug)]
pub struct Slot {
    slot: ServiceSlot<WalkRequest>,
    vector_bytes: usize,
    list: u32,
}

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
        assert!(vector.len().next_multiple_of(4) == self.vector_bytes, "a vector of another length");
        if parameters.list > self.list || wanted > parameters.list || parameters.width > MOST_WIDTH {
            return Err(GpuError::Unsuited(format!(
                "a graphics card cannot search with {wanted} results of {} candidates, {} expanded at a \
                 time: the limits are {} and {MOST_WIDTH}; choose smaller values, or leave --device gpu out",
                parameters.list, parameters.width, self.list
            )));
        }
        self.slot.write(|request| {
            write(&mut request.query);
            let end = request.query.len() + self.vector_bytes;
            request.query.extend_from_slice(vector);
            request.query.resize(end, 0);
            request.parameters = GraphSearchParameters { step: parameters.step.max(1), ..parameters };
            request.wanted = wanted.max(1);
        });
        self.slot.submit(waker);
        Ok(())
    }

    /// Calls `each` with the distance and the id of each result, in order. Returns the counters of the walk;
    /// `None` if there is no response yet.
    ///
    /// # Errors
    /// [`GpuError`] if the request has failed.
    pub fn take_response(
        &mut self,
        mut each: impl FnMut(f32, u32),
    ) -> Option<Result<WalkCounters, GpuError>> {
        let mut counters = WalkCounters::default();
        let result = self.slot.take_response(|request| {
            counters = request.counters;
            request.keys.iter().for_each(|key| {
                let (distance, id) = split_key(*key);
                each(distance, id);
            });
        });
        result.map(|result| result.map(|()| counters))
    }
}
