//! The searcher: finds the nearest partitions with the meta index, and walks each of them when it is loaded.

use super::cost::PartitionShape;
use super::growth::group_reader::{FetchStep, LoadedPartition, PartitionFetch};
use super::growth::overflow::{OverflowError, PartitionChanges};
use super::inserts::Growth;
use super::meta;
use super::section::PartitionedEntry;
use super::sub_index_cache::{Lookup, QueryRequests, SubIndexCache};
use super::subindex::table::SubIndexTable;
use super::subindex::{self, SubIndex};
use crate::calibrate::probed;
use crate::calibrate::solve::{Solved, Target};
use crate::cost::Machine;
use crate::cost::work::Estimate;
use crate::error::IndexError;
use crate::family::capabilities::ReadCache;
use crate::family::in_place::InPlace;
use crate::family::rows::StoredRows;
use crate::family::{OpenCapabilities, Opened, QueryState, query_state};
use crate::family::{Scanned, Searcher};
use crate::format::identity::Identity;
use crate::format::stored::StoredEntry;
use crate::proximity::walk::Walk;
use crate::query::set::VectorSet;
use crate::query::under_way::Query;
use crate::query::visited::VisitedSet;
use crate::query::{Counter, Phase, SearchParams, spread};
use bathyal_kernels::{Neighbor, to_f32};
use bathyal_tier::layer::cache::CacheCounters;
use bathyal_tier::{Cx, Span, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The counters of searches of partitions.
pub(super) const COUNTERS: &[Counter] =
    &[Counter { name: "subindexes", about: "Sub-indexes searched, each of one partition" }];

/// The part of an open index of partitions that stays in memory.
pub(crate) struct Partitions {
    pub(super) set: VectorSet,
    pub(super) entry: PartitionedEntry,
    pub(super) identity: Identity,
    /// The encoded meta index.
    pub(super) meta: Vec<u8>,
    pub(super) table: SubIndexTable,
    /// The state of an index that takes inserts; `None` for others.
    pub(super) growth: Option<Growth>,
    pub(super) source: SubIndexSource,
    /// The stored form, if it is not the given one.
    pub(super) stored: Option<StoredEntry>,
    /// Walks that no thread currently uses.
    pub(super) walks: Mutex<Vec<Walk>>,
}

/// The memory in which sub-indexes are searched.
pub(super) enum SubIndexSource {
    /// The addressable tier itself. A flag for each partition is true once it was checked.
    InPlace(Vec<AtomicBool>),
    /// The cache, to which sub-indexes are read.
    Cached(SubIndexCache),
}

/// The read of a partition by a query.
#[derive(Default)]
struct PartitionRead {
    partition: u32,
    /// The state of the fetch, for an index that takes inserts.
    fetch: Option<PartitionFetch>,
}

/// Memory of one running query, reused from query to query.
pub(crate) struct PartitionedScratch {
    query: Query,
    /// The nearest partitions, the nearest first.
    near: Vec<Neighbor>,
    /// Partitions that were searched.
    searched: Vec<u32>,
    /// Vectors that were offered, if a vector may be in several partitions.
    offered: VisitedSet,
}

impl Default for PartitionedScratch {
    fn default() -> PartitionedScratch {
        PartitionedScratch {
            query: Query::new(),
            near: Vec::new(),
            searched: Vec::new(),
            offered: VisitedSet::new(0),
        }
    }
}

/// Returns the approximate peak memory of a query, in bytes: its vector, its results, and the state of the
/// engine for it.
pub(super) fn planned_bytes(dim: usize, search_list: usize, probes: usize) -> u64 {
    (dim * 9 + search_list * 48 + probes * 48 + 3072) as u64
}

crate::family::impl_scratch!(PartitionedScratch);

impl Partitions {
    fn shape(&self) -> PartitionShape {
        PartitionShape {
            partitions: f64::from(self.entry.partitions),
            subindex_bytes: self.entry.mean_bytes(),
            vectors: self.entry.copies as f64 / f64::from(self.entry.partitions),
            vector_bytes: self.set.row_bytes() as f64,
            links: f64::from(self.entry.links),
        }
    }

    /// Calls `work` with a pooled walk.
    fn with_walk<T>(&self, work: impl FnOnce(&mut Walk) -> T) -> T {
        let mut walk = self.walks.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let result = work(walk.get_or_insert_with(|| Walk::new(0, 0)));
        self.walks.lock().unwrap_or_else(PoisonError::into_inner).extend(walk);
        result
    }

    /// Finds the partitions nearest to the query, and leaves those that were not searched before in
    /// `scratch.near`.
    fn rank(&self, probes: usize, scratch: &mut PartitionedScratch) -> Result<(), IndexError> {
        let PartitionedScratch { query, near, searched, .. } = scratch;
        let index = SubIndex::read(&self.meta, self.set.row_bytes()).map_err(IndexError::Internal)?;
        let compared =
            self.with_walk(|walk| meta::nearest(&index, &self.set.exact, &query.bytes, probes, walk, near));
        query.stats.full_distances += compared as u32;
        near.retain(|partition| !searched.contains(&partition.id));
        Ok(())
    }

    /// Returns an error unless `bytes` is the sound sub-index of the partition.
    pub(super) fn check(&self, partition: u32, bytes: &[u8]) -> Result<(), IndexError> {
        let check_subindex = || {
            subindex::check_bytes(bytes, self.identity, partition)?;
            let index = SubIndex::read(bytes, self.set.row_bytes())?;
            let recorded = self.table.entry(partition).vectors as usize;
            if index.count() != recorded {
                return Err(format!("it has {} vectors, the table records {recorded}", index.count()));
            }
            index.check(self.set.ids_end).map(|_| ())
        };
        check_subindex().map_err(|reason| self.set.damaged(format!("partition {partition}"), reason))
    }

    /// Returns the largest number of vectors that the index may contain now.
    fn vectors(&self) -> u64 {
        self.growth.as_ref().map_or(u64::from(self.set.vectors), Growth::most)
    }

    /// Returns the span that is read for a partition.
    pub(super) fn span(&self, partition: u32) -> Span {
        let fixed = || self.table.entry(partition).span();
        self.growth.as_ref().map_or_else(fixed, |growth| growth.reader.span(partition))
    }

    /// Walks a sub-index, compares the inserted vectors of its overflow, and offers the query the vectors
    /// that it finds.
    fn walk(
        &self,
        subindex: &[u8],
        changes: &PartitionChanges,
        list: usize,
        scratch: &mut PartitionedScratch,
    ) -> Result<(), IndexError> {
        let PartitionedScratch { query, offered, .. } = scratch;
        let Query { bytes: vector, found, stats, .. } = query;
        let has_copies = self.entry.copies > u64::from(self.set.vectors);
        // A partition whose vectors were all deleted has no bytes.
        if !subindex.is_empty() {
            let index = SubIndex::read(subindex, self.set.row_bytes()).map_err(IndexError::Internal)?;
            self.with_walk(|walk| {
                let score = |ids: &[u32], scores: &mut [f32]| {
                    self.set.exact.score_some(vector, index.rows, ids, scores);
                };
                // Deleted candidates do not count: the list is extended by as many.
                let mut list_length = list;
                loop {
                    stats.full_distances += index.search(walk, list_length, score) as u32;
                    let deleted = match changes.deleted.is_empty() {
                        true => 0,
                        false => walk.found().filter(|near| changes.has_deleted(index.id(near.id))).count(),
                    };
                    if list_length - deleted >= list || list_length >= index.count() {
                        break;
                    }
                    list_length = list + 2 * deleted;
                }
                for near in walk.found() {
                    if near.distance > found.threshold() {
                        break;
                    }
                    let id = index.id(near.id);
                    if (!has_copies || offered.insert(id)) && !changes.has_deleted(id) {
                        found.push(id, near.distance);
                    }
                }
            });
        }
        if !changes.ids.is_empty() {
            let mut scores = vec![0.0; changes.ids.len()];
            self.set.exact.score_block(vector, &changes.rows, &mut scores);
            stats.full_distances += scores.len() as u32;
            for (id, distance) in changes.ids.iter().zip(&scores) {
                found.push(*id, *distance);
            }
        }
        stats.own[0] += 1;
        query.clock.spent(Phase::Rerank);
        Ok(())
    }

    /// Searches the first `probes` of the ranked partitions.
    async fn scan(
        &self,
        cx: &Cx,
        probes: usize,
        list: usize,
        scratch: &mut PartitionedScratch,
    ) -> Result<(), IndexError> {
        let count = probes.min(scratch.near.len());
        let alignment = cx.alignment();
        for partition in &scratch.near[..count] {
            let span = self.span(partition.id);
            scratch.query.stats.reads += 1;
            scratch.query.stats.bytes += span.aligned_len(alignment);
            scratch.searched.push(partition.id);
        }
        scratch.query.stats.hops += 1;
        scratch.query.clock.spent(Phase::Navigate);
        match &self.source {
            SubIndexSource::InPlace(checked_flags) => {
                self.scan_in_place(cx, checked_flags, count, list, scratch).await
            }
            SubIndexSource::Cached(cache) => self.scan_cached(cx, cache, count, list, scratch).await,
        }
    }

    /// Searches partitions in place, one after the other, because each fills the processor's caches.
    async fn scan_in_place(
        &self,
        cx: &Cx,
        checked_flags: &[AtomicBool],
        count: usize,
        list: usize,
        scratch: &mut PartitionedScratch,
    ) -> Result<(), IndexError> {
        for at in 0..count {
            let partition = scratch.near[at].id;
            let span: [Span; 1] = [self.span(partition)];
            let batch = cx.read(&span).await.map_err(|source| self.set.failed(source))?;
            scratch.query.clock.spent(Phase::Read);
            // Bytes of an addressable tier are checked once.
            let checked = checked_flags[partition as usize].load(Ordering::Relaxed);
            match &self.growth {
                None if checked => {}
                None => self.check(partition, batch.bytes(0))?,
                Some(growth) => {
                    let (subindex, changes) = growth
                        .reader
                        .in_place(partition, batch.bytes(0), checked)
                        .map_err(|error| self.overflow_error(partition, error))?;
                    self.walk(subindex, &changes, list, scratch)?;
                }
            }
            checked_flags[partition as usize].store(true, Ordering::Relaxed);
            if self.growth.is_none() {
                self.walk(batch.bytes(0), &PartitionChanges::default(), list, scratch)?;
            }
        }
        Ok(())
    }

    fn overflow_error(&self, partition: u32, error: OverflowError) -> IndexError {
        let reason = match error {
            OverflowError::Torn(reason) => reason,
            OverflowError::Moved => "its overflow is that of another group or version".into(),
        };
        self.set.damaged(format!("partition {partition}"), reason)
    }

    /// Searches partitions as they arrive in the cache, whichever query reads them.
    async fn scan_cached(
        &self,
        cx: &Cx,
        cache: &SubIndexCache,
        count: usize,
        list: usize,
        scratch: &mut PartitionedScratch,
    ) -> Result<(), IndexError> {
        // If others change the index, the query requires partitions that are at least as new as itself.
        let since = self.growth.as_ref().filter(|growth| growth.shared).map(|_| cache.now());
        let mut requests =
            QueryRequests::new(cache, since, scratch.near[..count].iter().map(|partition| partition.id));
        let mut stream = cx.stream();
        // By the number of a read in the stream.
        let mut reads: Vec<PartitionRead> = Vec::new();
        loop {
            self.request_partitions(cx, &mut requests, &mut stream, &mut reads, list, scratch)?;
            let Some(arrived) = stream.next().await else {
                if requests.pending.is_empty() {
                    return Ok(());
                }
                cx.parked().await;
                scratch.query.clock.spent(Phase::Read);
                continue;
            };
            scratch.query.clock.spent(Phase::Read);
            let arrived = arrived.map_err(|source| self.set.failed(source))?;
            let mut read = std::mem::take(&mut reads[arrived.place as usize]);
            let partition = read.partition;
            let next = self.complete_read(&mut read, arrived.bytes())?;
            drop(arrived);
            let loaded = match next {
                FetchStep::Done(loaded) => Arc::new(loaded),
                FetchStep::Read(span) => {
                    stream.push(span);
                    reads.push(read);
                    continue;
                }
                FetchStep::Moved => {
                    requests.retry(partition);
                    continue;
                }
            };
            requests.reading.retain(|other| *other != partition);
            cache.put(partition, loaded.clone());
            let walked = self.walk(loaded.subindex.bytes(), &loaded.changes, list, scratch);
            cache.release(partition);
            walked?;
        }
    }

    /// Processes the bytes of a read, and returns the next step.
    fn complete_read(&self, read: &mut PartitionRead, bytes: &[u8]) -> Result<FetchStep, IndexError> {
        let partition = read.partition;
        match (&mut read.fetch, &self.growth) {
            (Some(fetch), Some(growth)) => {
                let next = fetch.arrived(&growth.reader, bytes);
                next.map_err(|reason| self.set.damaged(format!("partition {partition}"), reason))
            }
            _ => {
                self.check(partition, bytes)?;
                Ok(FetchStep::Done(LoadedPartition::fixed(bytes)))
            }
        }
    }

    /// Requests all pending partitions: begins the reads that fall to this query, then searches the
    /// partitions that are in memory.
    fn request_partitions(
        &self,
        cx: &Cx,
        requests: &mut QueryRequests<'_>,
        stream: &mut Stream,
        reads: &mut Vec<PartitionRead>,
        list: usize,
        scratch: &mut PartitionedScratch,
    ) -> Result<(), IndexError> {
        let QueryRequests { cache, since, pending, reading } = requests;
        let mut ready = Vec::new();
        let mut begin = |partition: u32, kept: Option<&LoadedPartition>| {
            let fetch = self.growth.as_ref().map(|growth| growth.reader.begin(partition, kept));
            let span = fetch.as_ref().map_or_else(|| self.span(partition), |(_, span)| *span);
            stream.push(span);
            reads.push(PartitionRead { partition, fetch: fetch.map(|(fetch, _)| fetch) });
            reading.push(partition);
        };
        pending.retain(|partition| {
            let len = self.span(*partition).len;
            match cache.request(*partition, len, *since, || cx.task_waker()) {
                Lookup::Ready(loaded) => ready.push((*partition, loaded)),
                Lookup::Revalidate(loaded) => begin(*partition, Some(&loaded)),
                Lookup::Load => begin(*partition, None),
                Lookup::Wait => return true,
            }
            false
        });
        let mut outcome = Ok(());
        for (partition, loaded) in ready {
            outcome =
                outcome.and_then(|()| self.walk(loaded.subindex.bytes(), &loaded.changes, list, scratch));
            drop(loaded);
            cache.release(partition);
        }
        outcome
    }
}

impl Searcher for Partitions {
    type Scratch = PartitionedScratch;

    async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut PartitionedScratch,
    ) -> Result<(), IndexError> {
        scratch.query.begin(&self.set, query, &params);
        scratch.searched.clear();
        scratch.offered.clear();
        let (all, wanted) = (self.table.count(), params.k.min(self.vectors() as usize));
        let mut probes = params.probes.clamp(1, all);
        self.rank(probes, scratch)?;
        loop {
            self.scan(&cx, probes, params.wanted(), scratch).await?;
            if scratch.query.found.len() >= wanted || scratch.searched.len() >= all {
                return Ok(());
            }
            // The nearest partitions hold too few vectors: search as many partitions again, of all that there
            // are.
            probes = scratch.searched.len();
            self.rank(all, scratch)?;
        }
    }

    fn scanned(&self, scratch: &PartitionedScratch) -> Option<Scanned> {
        Some(Scanned { scanned: scratch.searched.len(), of: self.table.count() })
    }
}

impl Opened for Partitions {
    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        let (shape, device) = (self.shape(), machine.device());
        let price = |probes: f64, list: f64| shape.estimate(probes, list, machine).price_ns(&device);
        let solved = probed::effort(
            &self.entry.calibration.curves,
            k,
            Target::Recall(recall),
            self.entry.partitions,
            price,
        )?;
        // No effort recovers what the stored form has lost.
        let lost = self.stored.and_then(|stored| stored.falls_short(recall)).is_some();
        Some(Solved { reached: solved.reached && !lost, ..solved })
    }

    fn estimate(&self, params: &SearchParams, machine: &Machine<'_>) -> Estimate {
        let probes = params.probes.clamp(1, self.table.count());
        self.shape().estimate(probes as f64, params.wanted() as f64, machine)
    }

    fn rows(&self) -> Box<dyn StoredRows + '_> {
        Box::new(self)
    }

    fn samples(&self, wanted: usize, out: &mut Vec<f32>) {
        let (dim, row_bytes) = (self.set.dim, self.set.row_bytes());
        let Ok(index) = SubIndex::read(&self.meta, row_bytes) else { return };
        out.clear();
        for number in spread(index.count(), wanted) {
            let start = out.len();
            out.resize(start + dim, 0.0);
            to_f32(self.set.element, &index.rows[number * row_bytes..][..row_bytes], &mut out[start..]);
        }
    }

    fn capabilities(&self) -> OpenCapabilities<'_> {
        OpenCapabilities {
            in_place: self.growth.as_ref().map(|_| self as &dyn InPlace),
            read_cache: Some(self),
            ..OpenCapabilities::default()
        }
    }

    fn query_state(self: Arc<Self>) -> Box<dyn QueryState> {
        query_state(self)
    }
}

impl ReadCache for Partitions {
    fn kept(&self) -> Option<CacheCounters> {
        match &self.source {
            SubIndexSource::Cached(cache) => Some(cache.counters()),
            SubIndexSource::InPlace(_) => None,
        }
    }
}
