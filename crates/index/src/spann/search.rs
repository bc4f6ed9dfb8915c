//! The searcher of posting lists: one `async fn` for all layouts, tiers and modes.
//!
//! The nearest lists are read in one submission and scored; addresses of vectors that no list brought, and vectors whose
//! codes a list brought, make a second submission, in the order of the file, so that neighbours there share a read.

use super::centroids::{Centroids, Navigation};
use super::coded::ListCodes;
use super::coded::search::Candidates;
use super::gather::{Gather, Joining};
use crate::error::IndexError;
use crate::format::postings::{
    BLOCK_BYTES, PackedIds, PostingLayout, Postings, check_blocks, decode_members,
};
use crate::query::{Clock, Exact, Phase, QueryStats, SearchMode, SearchParams};
use crate::vamana::visited::VisitedSet;
use bathyal_kernels::{Element, Metric, Neighbor, TopK, normalize_f32, to_f32};
use bathyal_tier::{Cx, ReadError, Span};
use std::path::PathBuf;

/// Lists that are read again with more of them, where so few held fewer than `k` vectors.
const MORE_LISTS: usize = 4;

/// The part of an open index that a search reads.
pub(crate) struct Lists {
    pub(crate) postings: Postings,
    pub(crate) vectors: u32,
    pub(crate) dim: usize,
    pub(crate) element: Element,
    pub(crate) metric: Metric,
    pub(crate) centroids: Centroids,
    /// Where lists hold codes: what makes and scores them.
    pub(crate) codes: Option<ListCodes>,
    /// Ids by place, of the grouped layout.
    pub(crate) ids: PackedIds,
    /// Checksums of the blocks of the file; none where all of it was checked when it was loaded.
    pub(crate) checksums: Vec<u32>,
    pub(crate) exact: Exact,
    /// Longest read, in bytes.
    pub(crate) frame_bytes: usize,
    /// Reads of one submission, at most.
    pub(crate) reads_at_once: usize,
    /// Bytes that are read in vain rather than begin another read.
    pub(crate) gap: u64,
    pub(crate) file: PathBuf,
}

impl Lists {
    fn row_bytes(&self) -> usize {
        self.dim * self.element.size()
    }

    fn joining(&self) -> Joining {
        let unit = if self.checksums.is_empty() { 1 } else { BLOCK_BYTES as u64 };
        let gap = self.gap;
        Joining { unit, end: self.postings.file_bytes(), most: self.frame_bytes as u64, gap }
    }

    fn damaged(&self, place: String, reason: impl Into<String>) -> IndexError {
        IndexError::damaged(&self.file, place, reason.into())
    }

    /// Checks what a read brought, where that was not done when it was loaded.
    fn check(&self, span: &Span, bytes: &[u8]) -> Result<(), IndexError> {
        if self.checksums.is_empty() {
            return Ok(());
        }
        check_blocks(&self.checksums, (span.offset / BLOCK_BYTES as u64) as usize, bytes)
            .map_err(|block| self.damaged(format!("block {block}"), "its checksum is another"))
    }
}

/// What a piece of a read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The rows of a list.
    Rows(u32),
    /// The addresses of a list.
    Members(u32),
    /// So many rows from a place on, by address.
    Places(u32, u32),
}

/// Memory of one running query, reused from query to query.
pub(crate) struct Scratch {
    query: Vec<u8>,
    floats: Vec<f32>,
    navigation: Navigation,
    gather: Gather<Wanted>,
    /// Coupled: ids that were offered. Else places that are scored or wanted.
    seen: VisitedSet,
    places: Vec<u32>,
    members: Vec<u32>,
    candidates: Candidates,
    scores: Vec<f32>,
    found: TopK,
    pub(crate) stats: QueryStats,
    pub(crate) clock: Clock,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch {
            query: Vec::new(),
            floats: Vec::new(),
            navigation: Navigation::new(),
            gather: Gather::new(),
            seen: VisitedSet::new(1024),
            places: Vec::new(),
            members: Vec::new(),
            candidates: Candidates::new(),
            scores: Vec::new(),
            found: TopK::new(0),
            stats: QueryStats::default(),
            clock: Clock::default(),
        }
    }

    /// Bytes that a query holds at its peak, about: places seen and wanted, pieces, candidates of the walk.
    pub(crate) fn planned_bytes(lists: usize, mean_list: usize, dim: usize, probes: usize) -> u64 {
        let copies = probes.min(lists) as u64 * mean_list as u64;
        copies * 72 + probes.min(lists) as u64 * 2000 + dim as u64 * 1100 + 8192
    }

    /// Appends what was found to `out`, nearest first.
    pub(crate) fn take_found(&mut self, out: &mut Vec<Neighbor>) {
        self.found.drain_sorted(out);
    }

    fn begin(&mut self, lists: &Lists, query: &[u8], params: &SearchParams) {
        self.stats = QueryStats::default();
        self.clock = Clock::begin(params.timed);
        self.floats.resize(lists.dim, 0.0);
        to_f32(lists.element, query, &mut self.floats);
        self.query.clear();
        self.query.extend_from_slice(query);
        if lists.metric == Metric::Cosine {
            crate::vamana::space::normalize(lists.element, &mut self.query);
            normalize_f32(&mut self.floats);
        }
        if let Some(codes) = &lists.codes {
            self.candidates.begin(codes, &self.floats, params.wanted());
        }
    }

    /// Chooses the lists and what to read of them.
    fn choose(&mut self, lists: &Lists, probes: usize, prune: f32) {
        let Scratch { floats, navigation, stats, gather, seen, places, candidates, .. } = self;
        candidates.forget();
        lists.centroids.nearest(floats, probes, prune, navigation, stats);
        stats.lists += navigation.lists.len() as u32;
        gather.clear();
        seen.clear();
        places.clear();
        let postings = &lists.postings;
        for list in navigation.lists.iter().map(|list| list.id) {
            gather.want(postings.rows_range(list), Wanted::Rows(list));
            gather.want(postings.members_range(list), Wanted::Members(list));
            if let Some(first) = postings.first_place(list) {
                (first..first + postings.stored_of(list)).for_each(|place| {
                    seen.insert(place);
                });
            }
        }
        gather.join(lists.joining());
    }

    /// Takes the addresses that no list has brought as what to read next; neighbours in the file are one piece.
    fn choose_places(&mut self, lists: &Lists) {
        let Scratch { gather, places, stats, candidates, .. } = self;
        if lists.codes.is_some() {
            candidates.best(places);
        }
        places.sort_unstable();
        gather.clear();
        // A piece is one read, and no read may be longer than a buffer.
        let most = (lists.frame_bytes.saturating_sub(2 * BLOCK_BYTES) / lists.postings.place_bytes()).max(1);
        for run in places.chunk_by(|a, b| a + 1 == *b) {
            for run in run.chunks(most) {
                let count = run.len() as u32;
                gather.want(lists.postings.places_range(run[0], count), Wanted::Places(run[0], count));
            }
        }
        gather.join(lists.joining());
        stats.small_reads += gather.spans().len() as u32;
    }

    /// Uses what read number `read` of the round brought.
    fn take(&mut self, lists: &Lists, read: usize, bytes: &[u8]) -> Result<(), IndexError> {
        let span = self.gather.spans()[read];
        lists.check(&span, bytes)?;
        for at in self.gather.pieces_of(read) {
            let piece = self.gather.piece(at);
            let bytes = piece.of(&span, bytes);
            match (piece.what, &lists.codes) {
                (Wanted::Rows(list), Some(codes)) => self.take_codes(lists, codes, list, bytes)?,
                (Wanted::Places(place, _), Some(_)) => self.rerank(lists, place, bytes)?,
                (Wanted::Rows(list), None) => match lists.postings.first_place(list) {
                    Some(first) => self.score_places(lists, first, bytes),
                    None => self.score_copies(lists, list, bytes)?,
                },
                (Wanted::Members(list), _) => self.note_members(lists, list, bytes)?,
                (Wanted::Places(place, _), None) => self.score_places(lists, place, bytes),
            }
        }
        Ok(())
    }

    /// Scores rows that lie by place, from `first` on.
    #[inline]
    fn score_places(&mut self, lists: &Lists, first: u32, rows: &[u8]) {
        let Scratch { scores, found, stats, .. } = self;
        let count = rows.len() / lists.row_bytes();
        scores.resize(count, 0.0);
        match &mut scores[..] {
            // What a block needs before its first row costs as much as a row.
            [only] => *only = lists.exact.between(&self.query, rows),
            all => lists.exact.score_block(&self.query, rows, all),
        }
        stats.full_distances += count as u32;
        let grouped = lists.postings.layout() == PostingLayout::Grouped;
        for (place, distance) in (first..).zip(scores.iter()) {
            if *distance <= found.threshold() {
                found.push(if grouped { lists.ids.get(place) } else { place }, *distance);
            }
        }
    }

    /// Scores the rows of a coupled list, whose ids follow them.
    #[inline]
    fn score_copies(&mut self, lists: &Lists, list: u32, bytes: &[u8]) -> Result<(), IndexError> {
        let Scratch { scores, found, stats, seen, .. } = self;
        let count = lists.postings.stored_of(list) as usize;
        let (rows, ids) = bytes.split_at(count * lists.row_bytes());
        scores.resize(count, 0.0);
        lists.exact.score_block(&self.query, rows, scores);
        stats.full_distances += count as u32;
        for (id, distance) in ids.as_chunks::<4>().0.iter().zip(scores.iter()) {
            // What is too far once is too far in every list, so only what is near has to be remembered.
            if *distance > found.threshold() {
                continue;
            }
            let id = u32::from_le_bytes(*id);
            if id >= lists.vectors {
                let reason = format!("it holds vector {id}, which is not among {}", lists.vectors);
                return Err(lists.damaged(format!("list {list}"), reason));
            }
            if seen.insert(id) {
                found.push(id, *distance);
            }
        }
        Ok(())
    }

    /// Takes the codes of a list as candidates.
    #[inline]
    fn take_codes(
        &mut self,
        lists: &Lists,
        codes: &ListCodes,
        list: u32,
        bytes: &[u8],
    ) -> Result<(), IndexError> {
        let count = lists.postings.stored_of(list) as usize;
        self.stats.code_distances += count as u32;
        self.candidates
            .take(codes, bytes, count, lists.vectors)
            .map_err(|reason| lists.damaged(format!("list {list}"), reason))
    }

    /// Compares the vectors of candidates, each with its id behind it.
    #[inline]
    fn rerank(&mut self, lists: &Lists, first: u32, bytes: &[u8]) -> Result<(), IndexError> {
        for (place, row) in (first..).zip(bytes.chunks_exact(lists.postings.place_bytes())) {
            let (row, id) = row.split_at(lists.row_bytes());
            let id = id.first_chunk().map_or(u32::MAX, |id| u32::from_le_bytes(*id));
            if id >= lists.vectors {
                let reason = format!("it holds vector {id}, which is not among {}", lists.vectors);
                return Err(lists.damaged(format!("place {place}"), reason));
            }
            self.found.push(id, lists.exact.between(&self.query, row));
            self.stats.full_distances += 1;
        }
        Ok(())
    }

    /// Notes the addresses of a list that nothing has brought yet.
    #[inline]
    fn note_members(&mut self, lists: &Lists, list: u32, section: &[u8]) -> Result<(), IndexError> {
        let Scratch { members, seen, places, .. } = self;
        let count = lists.postings.members_of(list);
        decode_members(section, count, lists.vectors, members)
            .map_err(|reason| lists.damaged(format!("the members of list {list}"), reason))?;
        places.extend(members.iter().copied().filter(|place| seen.insert(*place)));
        Ok(())
    }

    fn count(&mut self, spans: std::ops::Range<usize>, alignment: u32) {
        let spans = &self.gather.spans()[spans];
        self.stats.hops += 1;
        self.stats.reads += spans.len() as u32;
        self.stats.bytes += spans.iter().map(|span| span.aligned_len(alignment)).sum::<u64>();
    }

    /// Reads what was gathered and uses it, which is what `using` says.
    async fn round(
        &mut self,
        cx: &Cx,
        lists: &Lists,
        mode: SearchMode,
        using: Phase,
    ) -> Result<(), IndexError> {
        let failed = |source: ReadError| IndexError::Read { file: lists.file.clone(), source };
        let (alignment, reads) = (cx.alignment(), self.gather.spans().len());
        if reads == 0 {
            return Ok(());
        }
        if mode == SearchMode::Pipelined {
            self.count(0..reads, alignment);
            let mut stream = cx.stream();
            self.gather.spans().iter().for_each(|span| {
                stream.push(*span);
            });
            self.clock.spent(Phase::Navigate);
            while let Some(arrived) = stream.next().await {
                self.clock.spent(Phase::Read);
                let arrived = arrived.map_err(failed)?;
                self.take(lists, arrived.place as usize, arrived.bytes())?;
                self.clock.spent(using);
            }
            return Ok(());
        }
        for first in (0..reads).step_by(lists.reads_at_once) {
            let last = reads.min(first + lists.reads_at_once);
            self.count(first..last, alignment);
            self.clock.spent(Phase::Navigate);
            let batch = cx.read(&self.gather.spans()[first..last]).await.map_err(failed)?;
            self.clock.spent(Phase::Read);
            for read in first..last {
                self.take(lists, read, batch.bytes(read - first))?;
            }
            self.clock.spent(using);
        }
        Ok(())
    }
}

/// Answers one query; what was found stays in `scratch`.
pub(crate) async fn search(
    cx: Cx,
    lists: &Lists,
    query: &[u8],
    params: SearchParams,
    scratch: &mut Scratch,
) -> Result<(), IndexError> {
    scratch.begin(lists, query, &params);
    let (k, all) = (params.k.min(lists.vectors as usize), lists.postings.lists());
    let (mut probes, mut prune) = (params.probes.clamp(1, all), params.prune);
    let first = if lists.codes.is_some() { Phase::Scan } else { Phase::Rerank };
    loop {
        scratch.found = TopK::new(params.k);
        scratch.choose(lists, probes, prune);
        scratch.round(&cx, lists, params.mode, first).await?;
        scratch.choose_places(lists);
        scratch.round(&cx, lists, params.mode, Phase::Rerank).await?;
        if scratch.found.len() >= k || probes == all {
            return Ok(());
        }
        // So few lists hold fewer vectors than were asked for.
        (probes, prune) = (probes.saturating_mul(MORE_LISTS).min(all), 0.0);
    }
}
