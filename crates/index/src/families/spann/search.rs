//! The searcher of posting lists: one `async fn` for all layouts, tiers and modes.
//!
//! The nearest lists are read in one submission and scored. A second submission reads the vectors of which
//! lists have only the address or the code, in the order of the file, so that neighbours share a read.

use super::centroids::{Centroids, ListNavigation};
use super::coded_search::Candidates;
use super::cost::ListShape;
use super::effort;
use super::gather::{Gather, JoinRules};
use super::section::SpannEntry;
use super::wanted_rows::WantedRows;
use crate::calibrate::solve::Solved;
use crate::cost::Machine;
use crate::cost::work::Estimate;
use crate::error::IndexError;
use crate::family::rows::StoredRows;
use crate::family::{OpenCapabilities, Opened, QueryState, query_state};
use crate::family::{Scanned, Searcher};
use crate::format::identity::Identity;
use crate::format::postings::{BLOCK_BYTES, PackedIds, PostingLayout, Postings, check_blocks};
use crate::query::codes::VectorCodes;
use crate::query::set::VectorSet;
use crate::query::under_way::Query;
use crate::query::visited::VisitedSet;
use crate::query::{Counter, Phase, SearchMode, SearchParams, spread};
use bathyal_tier::{Cx, Span};
use std::ops::Range;
use std::sync::Arc;

/// The factor by which a query increases its lists if these contain fewer than `k` vectors.
const MORE_LISTS: usize = 4;

/// Bytes of the address of a vector in a decoupled list.
const ADDRESS_BYTES: f64 = 4.0;

/// The counters of searches of posting lists. [`LISTS`] and [`SMALL_READS`] are their positions.
pub(super) const COUNTERS: &[Counter] = &[
    Counter { name: "lists", about: "Posting lists scanned" },
    Counter {
        name: "small_reads",
        about: "Reads for vectors of which a posting list has only the address or the code; neighbours share \
                a read",
    },
];
const LISTS: usize = 0;
const SMALL_READS: usize = 1;

/// The part of an open index that searches read.
pub(crate) struct Lists {
    pub(crate) postings: Postings,
    pub(crate) set: VectorSet,
    pub(crate) centroids: Centroids,
    /// The codec of lists of codes.
    pub(crate) codes: Option<VectorCodes>,
    /// The id of each place, in the grouped layout.
    pub(crate) ids: PackedIds,
    /// Checksums of the blocks of the file; empty if the whole file was checked when it was loaded.
    pub(crate) checksums: Vec<u32>,
    /// The identity that checksums begin with.
    pub(crate) identity: Identity,
    /// The longest read, in bytes.
    pub(crate) frame_bytes: usize,
    pub(crate) submission: Submission,
    /// The most unneeded bytes that a read includes to save another read.
    pub(crate) gap: u64,
    pub(crate) entry: SpannEntry,
}

/// The limits of one submission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Submission {
    /// The most reads.
    pub(crate) reads: usize,
    /// Bytes after which no further read is added.
    pub(crate) bytes: u64,
}

impl Submission {
    /// Returns the end of the submission that begins with span `first`.
    fn end(self, spans: &[Span], first: usize) -> usize {
        let mut bytes = 0;
        let ends = |span: &Span| {
            bytes += u64::from(span.len);
            bytes >= self.bytes
        };
        let full = spans[first..].iter().position(ends).map_or(spans.len(), |last| first + last + 1);
        full.min(first + self.reads)
    }
}

impl Lists {
    fn join_rules(&self) -> JoinRules {
        let unit = if self.checksums.is_empty() { 1 } else { BLOCK_BYTES as u64 };
        let gap = self.gap;
        JoinRules { unit, end: self.postings.file_bytes(), most: self.frame_bytes as u64, gap }
    }

    /// Checks the checksums of a read, unless the whole file was checked when it was loaded.
    fn check(&self, span: &Span, bytes: &[u8]) -> Result<(), IndexError> {
        if self.checksums.is_empty() {
            return Ok(());
        }
        check_blocks(self.identity, &self.checksums, (span.offset / BLOCK_BYTES as u64) as usize, bytes)
            .map_err(|block| self.set.damaged(format!("block {block}"), "its checksum differs"))
    }
}

/// The contents of a piece of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceContents {
    /// The rows of a list.
    Rows(u32),
    /// The addresses of a list.
    Members(u32),
    /// Rows from a place on, which were requested by address: the first place, and the number of rows.
    Places(u32, u32),
}

/// Memory of one running query, reused from query to query.
pub(crate) struct SpannScratch {
    query: Query,
    navigation: ListNavigation,
    gather: Gather<PieceContents>,
    /// Coupled: ids that were offered. Decoupled: places that are requested.
    seen: VisitedSet,
    places: Vec<u32>,
    members: Vec<u32>,
    candidates: Candidates,
    /// Grouped: rows that are requested.
    wanted_rows: WantedRows,
    scores: Vec<f32>,
}

impl Default for SpannScratch {
    fn default() -> SpannScratch {
        SpannScratch {
            query: Query::new(),
            navigation: ListNavigation::new(),
            gather: Gather::new(),
            seen: VisitedSet::new(1024),
            places: Vec::new(),
            members: Vec::new(),
            candidates: Candidates::new(),
            wanted_rows: WantedRows::new(),
            scores: Vec::new(),
        }
    }
}

impl SpannScratch {
    /// Returns the approximate peak memory of a query, in bytes: places seen and requested, pieces, and
    /// candidates of the walk.
    pub(crate) fn planned_bytes(lists: usize, mean_list: usize, query: u64, probes: usize) -> u64 {
        let copies = probes.min(lists) as u64 * mean_list as u64;
        copies * 72 + probes.min(lists) as u64 * 2000 + query + 8192
    }

    fn begin(&mut self, lists: &Lists, query: &[u8], params: &SearchParams) {
        self.query.begin(&lists.set, query, params);
        if let Some(codes) = &lists.codes {
            self.candidates.begin(codes, &self.query.floats, params.wanted());
        }
    }

    /// Chooses the lists, and gathers their rows and addresses.
    fn choose_lists(&mut self, lists: &Lists, probes: usize, prune: f32) {
        let SpannScratch { query, navigation, gather, seen, places, wanted_rows, candidates, .. } = self;
        let Query { floats, stats, .. } = query;
        candidates.restart();
        lists.centroids.nearest(floats, probes, prune, navigation, stats);
        stats.own[LISTS] += navigation.lists.len() as u32;
        gather.clear();
        seen.clear();
        places.clear();
        wanted_rows.clear();
        let postings = &lists.postings;
        for list in navigation.lists.iter().map(|list| list.id) {
            gather.request(postings.rows_range(list), PieceContents::Rows(list));
            gather.request(postings.members_range(list), PieceContents::Members(list));
            if postings.layout() == PostingLayout::Grouped {
                wanted_rows.read_whole(list);
            }
        }
        gather.join(lists.join_rules());
    }

    /// Gathers the rows of addresses and candidates that no list contained. Consecutive places are one piece.
    fn choose_places(&mut self, lists: &Lists) {
        let SpannScratch { gather, places, wanted_rows, candidates, .. } = self;
        if lists.codes.is_some() {
            candidates.best(places);
        }
        gather.clear();
        // A piece is one read, which must fit a buffer.
        let most_rows =
            (lists.frame_bytes.saturating_sub(2 * BLOCK_BYTES) / lists.postings.place_bytes()).max(1);
        let mut request_places = |first: u32, count: u32| {
            for start in (0..count).step_by(most_rows) {
                let (place, count) = (first + start, (most_rows as u32).min(count - start));
                gather
                    .request(lists.postings.places_range(place, count), PieceContents::Places(place, count));
            }
        };
        wanted_rows.each_series(&mut request_places);
        places.sort_unstable();
        for series in places.chunk_by(|a, b| a + 1 == *b) {
            request_places(series[0], series.len() as u32);
        }
        gather.join(lists.join_rules());
        self.query.stats.own[SMALL_READS] += self.gather.spans().len() as u32;
    }

    /// Processes read number `read` of the round.
    fn process_read(&mut self, lists: &Lists, read: usize, bytes: &[u8]) -> Result<(), IndexError> {
        let span = self.gather.spans()[read];
        lists.check(&span, bytes)?;
        let pieces = self.gather.pieces_of(read);
        if let (PieceContents::Places(..), None) = (self.gather.piece(pieces.start).contents, &lists.codes) {
            self.score_addressed(lists, &span, bytes, pieces);
            return Ok(());
        }
        for at in pieces {
            let piece = self.gather.piece(at);
            let bytes = piece.slice(&span, bytes);
            match (piece.contents, &lists.codes) {
                (PieceContents::Rows(list), Some(codes)) => self.scan_codes(lists, codes, list, bytes)?,
                (PieceContents::Places(place, _), Some(_)) => self.rerank(lists, place, bytes)?,
                (PieceContents::Rows(list), None) => match lists.postings.first_place(list) {
                    Some(first) => self.score_places(lists, first, bytes),
                    None => self.score_copies(lists, list, bytes)?,
                },
                (PieceContents::Members(list), _) => self.collect_members(lists, list, bytes)?,
                // Handled above: the rows of addresses have a round of their own.
                (PieceContents::Places(..), None) => {}
            }
        }
        Ok(())
    }

    /// Scores the rows of consecutive places from `first` on.
    #[inline]
    fn score_places(&mut self, lists: &Lists, first: u32, rows: &[u8]) {
        let SpannScratch { scores, query, .. } = self;
        let Query { bytes: query, found, stats, .. } = query;
        scores.resize(rows.len() / lists.set.row_bytes(), 0.0);
        lists.set.exact.score_block(query, rows, scores);
        stats.full_distances += scores.len() as u32;
        for (place, distance) in (first..).zip(scores.iter()) {
            if *distance <= found.threshold() {
                found.push(lists.ids.get(place), *distance);
            }
        }
    }

    /// Scores the requested rows of a read: those of the given pieces.
    #[inline]
    fn score_addressed(&mut self, lists: &Lists, span: &Span, bytes: &[u8], pieces: Range<usize>) {
        let SpannScratch { scores, query, gather, members: ranks, .. } = self;
        let Query { bytes: query, found, stats, .. } = query;
        let mut first_piece = None;
        ranks.clear();
        for piece in pieces.map(|at| gather.piece(at)) {
            if let PieceContents::Places(place, count) = piece.contents {
                let (_, first) = *first_piece.get_or_insert((piece.offset_in(span), place));
                ranks.extend(place - first..place - first + count);
            }
        }
        let Some((offset, first)) = first_piece else { return };
        let rows = bytes.get(offset..).unwrap_or_default();
        scores.resize(ranks.len(), 0.0);
        match (&mut scores[..], rows.get(..lists.set.row_bytes())) {
            // For a single row, preparing a batch would cost as much as the row.
            ([only], Some(row)) => *only = lists.set.exact.between(query, row),
            (all, _) => lists.set.exact.score_some(query, rows, ranks, all),
        }
        stats.full_distances += scores.len() as u32;
        let grouped = lists.postings.layout() == PostingLayout::Grouped;
        for (rank, distance) in ranks.iter().zip(scores.iter()) {
            if *distance <= found.threshold() {
                let place = first + rank;
                found.push(if grouped { lists.ids.get(place) } else { place }, *distance);
            }
        }
    }

    /// Scores the rows of a coupled list, which their ids follow.
    #[inline]
    fn score_copies(&mut self, lists: &Lists, list: u32, bytes: &[u8]) -> Result<(), IndexError> {
        let SpannScratch { scores, query, seen, .. } = self;
        let Query { bytes: query, found, stats, .. } = query;
        let count = lists.postings.stored_of(list) as usize;
        let (rows, ids) = bytes.split_at(count * lists.set.row_bytes());
        scores.resize(count, 0.0);
        lists.set.exact.score_block(query, rows, scores);
        stats.full_distances += count as u32;
        for (id, distance) in ids.as_chunks::<4>().0.iter().zip(scores.iter()) {
            // A vector that is too far in one list is too far in all, so only near ones have to be
            // remembered.
            if *distance > found.threshold() {
                continue;
            }
            let id = u32::from_le_bytes(*id);
            lists.set.check_id(id, || format!("list {list}"))?;
            if seen.insert(id) {
                found.push(id, *distance);
            }
        }
        Ok(())
    }

    /// Scans the codes of a list for candidates.
    #[inline]
    fn scan_codes(
        &mut self,
        lists: &Lists,
        codes: &VectorCodes,
        list: u32,
        bytes: &[u8],
    ) -> Result<(), IndexError> {
        let count = lists.postings.stored_of(list) as usize;
        self.query.stats.code_distances += count as u32;
        self.candidates
            .scan_list(codes, bytes, count, lists.set.vectors)
            .map_err(|reason| lists.set.damaged(format!("list {list}"), reason))
    }

    /// Compares the vectors of candidates. An id follows each vector.
    #[inline]
    fn rerank(&mut self, lists: &Lists, first: u32, bytes: &[u8]) -> Result<(), IndexError> {
        for (place, row) in (first..).zip(bytes.chunks_exact(lists.postings.place_bytes())) {
            let (row, id) = row.split_at(lists.set.row_bytes());
            let id = id.first_chunk().map_or(u32::MAX, |id| u32::from_le_bytes(*id));
            lists.set.check_id(id, || format!("place {place}"))?;
            self.query.offer(id, lists.set.exact.between(&self.query.bytes, row));
        }
        Ok(())
    }

    /// Collects the addresses of a list that were not collected or read before.
    #[inline]
    fn collect_members(&mut self, lists: &Lists, list: u32, section: &[u8]) -> Result<(), IndexError> {
        let SpannScratch { members, seen, places, wanted_rows, .. } = self;
        let postings = &lists.postings;
        let count = postings.members_of(list);
        let collected = if postings.layout() == PostingLayout::Grouped {
            wanted_rows.add(section, count, postings.firsts()).map_err(|fault| fault.to_string())
        } else {
            postings
                .members(list, section, members)
                .map(|()| places.extend(members.iter().copied().filter(|place| seen.insert(*place))))
        };
        collected.map_err(|reason| lists.set.damaged(format!("the members of list {list}"), reason))
    }

    /// Reads the gathered pieces and processes them. `phase` is the phase of the processing.
    async fn read_round(
        &mut self,
        cx: &Cx,
        lists: &Lists,
        mode: SearchMode,
        phase: Phase,
    ) -> Result<(), IndexError> {
        let read_error = |source| lists.set.failed(source);
        let reads = self.gather.spans().len();
        if reads == 0 {
            return Ok(());
        }
        self.query.count_round(self.gather.spans(), cx.alignment());
        if mode == SearchMode::Pipelined {
            let mut stream = cx.stream();
            self.gather.spans().iter().for_each(|span| {
                stream.push(*span);
            });
            self.query.clock.spent(Phase::Navigate);
            while let Some(arrived) = stream.next().await {
                self.query.clock.spent(Phase::Read);
                let arrived = arrived.map_err(read_error)?;
                self.process_read(lists, arrived.place as usize, arrived.bytes())?;
                self.query.clock.spent(phase);
            }
            return Ok(());
        }
        let mut first = 0;
        while first < reads {
            let last = lists.submission.end(self.gather.spans(), first);
            self.query.clock.spent(Phase::Navigate);
            let batch = cx.read(&self.gather.spans()[first..last]).await.map_err(read_error)?;
            self.query.clock.spent(Phase::Read);
            for read in first..last {
                self.process_read(lists, read, batch.bytes(read - first))?;
            }
            self.query.clock.spent(phase);
            first = last;
        }
        Ok(())
    }
}

crate::family::impl_scratch!(SpannScratch);

impl Lists {
    fn shape(&self) -> ListShape {
        let entry = &self.entry;
        let (lists, copies) = (f64::from(entry.list_count.max(1)), entry.copies.max(1) as f64);
        let addressed = match (self.postings.layout(), &self.codes) {
            (_, Some(_)) | (PostingLayout::Coupled, _) => 0.0,
            (PostingLayout::Decoupled, None) => 1.0,
            (PostingLayout::Grouped, None) => (1.0 - f64::from(self.set.vectors) / copies).max(0.0),
        };
        ListShape {
            list_bytes: if addressed < 1.0 { entry.list_bytes() } else { copies * ADDRESS_BYTES / lists },
            list_vectors: copies / lists,
            addressed,
            row_bytes: self.postings.place_bytes() as u32,
            code_bytes: entry.list_codes.as_ref().map(|codes| f64::from(codes.code_bytes)),
            alignment: if self.checksums.is_empty() { 1 } else { BLOCK_BYTES as u32 },
        }
    }
}

impl Searcher for Lists {
    type Scratch = SpannScratch;

    async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut SpannScratch,
    ) -> Result<(), IndexError> {
        scratch.begin(self, query, &params);
        let (k, all) = (params.k.min(self.set.vectors as usize), self.postings.lists());
        let (mut probes, mut prune) = (params.probes.clamp(1, all), params.prune);
        let first = if self.codes.is_some() { Phase::Scan } else { Phase::Rerank };
        loop {
            scratch.choose_lists(self, probes, prune);
            scratch.read_round(&cx, self, params.mode, first).await?;
            scratch.choose_places(self);
            scratch.read_round(&cx, self, params.mode, Phase::Rerank).await?;
            if scratch.query.found.len() >= k || (probes == all && prune <= 0.0) {
                return Ok(());
            }
            // The lists contain fewer vectors than requested: read more of them.
            (probes, prune) = (probes.saturating_mul(MORE_LISTS).min(all), 0.0);
            scratch.query.found.reset(params.k);
        }
    }

    fn scanned(&self, scratch: &SpannScratch) -> Option<Scanned> {
        Some(Scanned { scanned: scratch.query.stats.own[LISTS] as usize, of: self.postings.lists() })
    }
}

impl Opened for Lists {
    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        let (shape, device, coded) = (self.shape(), machine.device(), self.codes.is_some());
        let curves = &self.entry.calibration.curves;
        effort::effort(curves, k, recall, (coded, self.entry.list_count), |probes, lists, candidates| {
            shape.estimate(probes, lists, candidates, machine).price_ns(&device)
        })
    }

    fn estimate(&self, params: &SearchParams, machine: &Machine<'_>) -> Estimate {
        let probes = params.probes.clamp(1, self.postings.lists());
        let lists = effort::scanned_lists(&self.entry.calibration.curves, probes, params.prune);
        let candidates = if self.codes.is_some() { params.wanted() } else { 0 };
        self.shape().estimate(probes as f64, lists, candidates as f64, machine)
    }

    fn rows(&self) -> Box<dyn StoredRows + '_> {
        Box::new(self.list_rows())
    }

    fn samples(&self, wanted: usize, out: &mut Vec<f32>) {
        let mut row = vec![0.0; self.set.dim];
        for list in spread(self.centroids.count(), wanted) {
            self.centroids.row(list, &mut row);
            out.extend_from_slice(&row);
        }
    }

    fn capabilities(&self) -> OpenCapabilities<'_> {
        OpenCapabilities::default()
    }

    fn query_state(self: Arc<Self>) -> Box<dyn QueryState> {
        query_state(self)
    }
}
