//! Vectors on pages ([`GroupLayout`]), which several families use: reads of a search's candidates, and the
//! checks of a verification.

use super::{EachVector, VerifyReport, Verifying};
use crate::allocate::try_zeros;
use crate::cost::demand::moved_bytes;
use crate::cost::device::Device;
use crate::error::IndexError;
use crate::format::groups::{GroupLayout, NO_ID};
use crate::format::manifest::FileEntry;
use crate::format::places::Places;
use crate::format::walk::{Marks, read_through};
use crate::query::pass::PassPart;
use crate::query::set::VectorSet;
use crate::query::under_way::Query;
use crate::query::visited::VisitedSet;
use crate::query::{FAR_LATENCY_NS, Phase};
use bathyal_kernels::{Element, Neighbor, first_non_finite};
use bathyal_store::Object;
use bathyal_tier::{Cx, Span, TierProfile};

/// Most pages of one submission: more than recall 0.95 takes in any measurement, few enough that the buffers
/// of 16 interleaved queries stay small.
pub(crate) const PAGES_AT_ONCE: usize = 64;
/// As [`PAGES_AT_ONCE`], for a distant tier, where each submission is one more wait; limited by the thread's
/// buffers.
const FAR_PAGES_AT_ONCE: usize = 1024;
/// Most single vectors of one submission: as many as the queue of a tier in memory takes at once.
const VECTORS_AT_ONCE: usize = 128;

/// A tier may move up to one page divided by this number in excess of a single vector; beyond that, whole
/// pages are read, since the other vectors on them cost nothing more.
const PAGE_IN_VAIN: f64 = 8.0;
/// Approximate share of candidates whose page was not read for a better candidate. Near vectors share pages.
pub(crate) const OWN_PAGES: f64 = 0.8;

/// Bytes of consecutive pages in one read of a verification.
const READ_BYTES: usize = 1 << 20;

/// How candidates are read.
pub(crate) enum Reading {
    /// With their whole pages.
    Pages,
    /// Alone, with the ids by place. If a read is a few loads, reading a whole page costs more than a longer
    /// list.
    Alone(Vec<u32>),
    /// Alone, with a check of each vector, for pages that have not been checked.
    Checked(Places),
}

/// The pages of an open index.
pub(crate) struct Pages {
    pub(crate) layout: GroupLayout,
    /// True if a page is checked when it arrives. Pages in memory were checked when they were loaded.
    pub(crate) check: bool,
    pub(crate) reading: Reading,
    /// Most pages of one submission.
    pub(crate) at_once: usize,
}

/// The state of a query's reads of pages.
pub(crate) struct PageReads {
    pages: Vec<u32>,
    listed: VisitedSet,
    spans: Vec<Span>,
    scores: Vec<f32>,
}

impl Default for PageReads {
    fn default() -> PageReads {
        let listed = VisitedSet::new(PAGES_AT_ONCE);
        PageReads { pages: Vec::new(), listed, spans: Vec::new(), scores: Vec::new() }
    }
}

impl PageReads {
    /// Clears the state of the previous query.
    pub(crate) fn begin(&mut self) {
        self.listed.clear();
    }
}

impl Pages {
    /// Makes the pages of an index that is about to be opened. They are read from a device, unless
    /// [`check_loaded`](Pages::check_loaded) or [`suit`](Pages::suit) says otherwise.
    pub(crate) fn new(layout: GroupLayout) -> Pages {
        Pages { layout, check: true, reading: Reading::Pages, at_once: PAGES_AT_ONCE }
    }

    /// Returns true if candidates are read without the other vectors on their pages.
    pub(crate) fn lone(&self) -> bool {
        !matches!(self.reading, Reading::Pages)
    }

    /// Returns all places with the ids of their vectors, if they are in memory.
    pub(crate) fn places(&self) -> Option<Box<dyn Iterator<Item = (u32, u32)> + '_>> {
        match &self.reading {
            Reading::Pages => None,
            Reading::Alone(ids) => {
                Some(Box::new((0..).zip(ids.iter().copied()).filter(|(_, id)| *id != NO_ID)))
            }
            Reading::Checked(places) => Some(Box::new(places.ids())),
        }
    }

    /// Adapts to the tier. Candidates are read with their pages if single vectors cost as much by `profile`:
    /// a disk moves the rest of a page for nothing. On a distant tier, one submission has as many pages as a
    /// thread's `frames` buffers allow.
    pub(crate) fn suit(&mut self, profile: &TierProfile, frames: u32) {
        let (page, vector) = (self.layout.page_bytes() as f64, self.layout.vector_bytes() as u32);
        let moved = moved_bytes(f64::from(vector), vector, profile.granularity);
        let measured = profile.iops > 0.0 && profile.bandwidth_bytes_per_s > 0.0;
        let cheaper = profile.addressable || !measured || {
            let device = Device::of(profile);
            let price = |bytes: f64| device.issue_ns + device.read_ns + bytes * device.byte_ns;
            price(moved) <= OWN_PAGES * price(moved_bytes(page, page as u32, profile.granularity))
        };
        let in_place = profile.addressable || matches!(self.reading, Reading::Checked(_));
        if !in_place || !cheaper || moved - f64::from(vector) > page / PAGE_IN_VAIN {
            self.reading = Reading::Pages;
        }
        if profile.latency_ns >= FAR_LATENCY_NS {
            self.at_once = FAR_PAGES_AT_ONCE.min(frames as usize);
        }
    }

    /// Reads `candidates` (places, the best first) and computes exact distances of all vectors that arrive.
    /// No page is read twice for a query.
    pub(crate) async fn compare(
        &self,
        cx: &Cx,
        set: &VectorSet,
        candidates: &[Neighbor],
        query: &mut Query,
        reads: &mut PageReads,
    ) -> Result<(), IndexError> {
        match &self.reading {
            Reading::Pages => self.compare_pages(cx, set, candidates, query, reads).await,
            Reading::Alone(ids) => {
                // Every place of a candidate holds a vector: loading has checked the pages.
                let whose = |place: u32, _: &[u8]| Ok(ids.get(place as usize).copied().unwrap_or(NO_ID));
                self.compare_alone(cx, set, whose, candidates, query, reads).await
            }
            Reading::Checked(places) => {
                let whose = |place: u32, vector: &[u8]| places.check(&self.layout, place, vector);
                self.compare_alone(cx, set, whose, candidates, query, reads).await
            }
        }
    }

    async fn compare_pages(
        &self,
        cx: &Cx,
        set: &VectorSet,
        candidates: &[Neighbor],
        query: &mut Query,
        reads: &mut PageReads,
    ) -> Result<(), IndexError> {
        let PageReads { pages, listed, spans, scores } = reads;
        pages.clear();
        let of_candidates = candidates.iter().map(|candidate| self.layout.page_of(candidate.id));
        pages.extend(of_candidates.filter(|page| listed.insert(*page)));
        for some in pages.chunks(self.at_once) {
            spans.clear();
            spans.extend(some.iter().map(|page| self.layout.span(*page, 1)));
            query.count_round(spans, cx.alignment());
            let arrived = cx.read(spans).await.map_err(|source| set.failed(source))?;
            query.clock.spent(Phase::Read);
            for (i, page) in some.iter().enumerate() {
                self.score(set, *page, arrived.bytes(i), query, scores)?;
            }
            query.clock.spent(Phase::Rerank);
        }
        Ok(())
    }

    async fn compare_alone(
        &self,
        cx: &Cx,
        set: &VectorSet,
        whose: impl Fn(u32, &[u8]) -> Result<u32, String>,
        candidates: &[Neighbor],
        query: &mut Query,
        reads: &mut PageReads,
    ) -> Result<(), IndexError> {
        let spans = &mut reads.spans;
        for some in candidates.chunks(self.at_once.max(VECTORS_AT_ONCE)) {
            spans.clear();
            spans.extend(some.iter().map(|candidate| self.layout.vector_span(candidate.id)));
            query.count_round(spans, cx.alignment());
            let arrived = cx.read(spans).await.map_err(|source| set.failed(source))?;
            query.clock.spent(Phase::Read);
            for (i, candidate) in some.iter().enumerate() {
                let vector = arrived.bytes(i);
                let id = whose(candidate.id, vector)
                    .map_err(|reason| set.damaged(format!("the vector at place {}", candidate.id), reason))?;
                query.offer(id, set.exact.between(&query.bytes, vector));
            }
            query.clock.spent(Phase::Rerank);
        }
        Ok(())
    }

    /// Computes the distances of all vectors of a page that has arrived.
    #[inline]
    pub(crate) fn score(
        &self,
        set: &VectorSet,
        page: u32,
        bytes: &[u8],
        query: &mut Query,
        scores: &mut Vec<f32>,
    ) -> Result<(), IndexError> {
        let layout = &self.layout;
        if self.check {
            layout.check(page, bytes).map_err(|reason| set.damaged(format!("page {page}"), reason))?;
        }
        scores.resize(layout.page_vectors(), 0.0);
        set.exact.score_block(&query.bytes, layout.vectors(bytes), scores);
        for (slot, distance) in scores.iter().enumerate() {
            let Some(id) = layout.id(bytes, slot) else { break };
            set.check_id(id, || format!("page {page}"))?;
            query.offer(id, *distance);
        }
        Ok(())
    }

    /// Adds all vectors of a page that has arrived to a pass.
    pub(crate) fn add(
        &self,
        set: &VectorSet,
        page: u32,
        bytes: &[u8],
        part: &mut PassPart<'_>,
    ) -> Result<(), IndexError> {
        let layout = &self.layout;
        if self.check {
            layout.check(page, bytes).map_err(|reason| set.damaged(format!("page {page}"), reason))?;
        }
        let vectors = layout.vectors(bytes).chunks_exact(layout.vector_bytes());
        for (slot, vector) in vectors.enumerate() {
            let Some(id) = layout.id(bytes, slot) else { break };
            set.check_id(id, || format!("page {page}"))?;
            part.add(id, vector);
        }
        Ok(())
    }

    /// Checks pages that were loaded into memory, since searches do not check them, and collects the ids of
    /// their vectors. `count` returns the number of vectors of each group, which take its first places.
    pub(crate) fn check_loaded(
        &mut self,
        set: &VectorSet,
        pages: &[u8],
        groups: usize,
        count: impl Fn(u32) -> usize,
    ) -> Result<(), IndexError> {
        let layout = self.layout;
        let mut ids = Vec::with_capacity(layout.places(groups));
        // Zeros may follow the last page.
        let all = groups * layout.group_pages();
        for (number, page) in pages.chunks(layout.page_bytes()).take(all).enumerate() {
            let damaged = |reason| set.damaged(format!("page {number}"), reason);
            layout.check(number as u32, page).map_err(damaged)?;
            for slot in 0..layout.page_vectors() {
                let id = layout.id(page, slot);
                let (group, rank) = layout.group_rank(ids.len() as u32);
                // Empty places are at the end of a group, and no search reads them.
                if (rank < count(group)) != id.is_some_and(|id| id < set.ids_end) {
                    return Err(damaged(format!("place {slot} does not hold what the index says")));
                }
                ids.push(id.unwrap_or(NO_ID));
            }
        }
        (self.reading, self.check) = (Reading::Alone(ids), false);
        Ok(())
    }
}

/// Checks every page of `groups` groups in `file`: its checksum, that each vector occurs once, and the check
/// `others`, which receives the number and the bytes of each page. Returns the number of vectors of each
/// group.
pub(crate) fn walk(
    verifying: &Verifying<'_>,
    file: &FileEntry,
    layout: &GroupLayout,
    groups: u32,
    others: impl Fn(u64, &[u8]) -> Option<String>,
    report: &mut VerifyReport,
) -> Result<Vec<u32>, IndexError> {
    let mut walk = PageWalk::new(verifying, layout, groups.into(), verifying.manifest.vectors)?;
    let Verifying { object, progress, .. } = *verifying;
    let crc = read_through(object, file.bytes, layout.page_bytes(), progress, |number, page| {
        walk.page(number, page, report);
        if number < walk.pages
            && let Some(reason) = others(number, page)
        {
            report.fault(format!("page {number}: {reason}"));
        }
    })?;
    report.bytes += file.bytes;
    if crc != file.crc32c {
        report.fault(format!("{}: checksum {crc:08x}, the manifest says {:08x}", file.name, file.crc32c));
    }
    walk.end(report);
    Ok(walk.held)
}

/// Calls `each` with all vectors (id, stored bytes) of the pages, in their order.
pub(crate) fn read_vectors(
    object: &dyn Object,
    layout: &GroupLayout,
    pages: u64,
    each: &mut EachVector<'_>,
) -> Result<(), IndexError> {
    let page_bytes = layout.page_bytes();
    let at_once = (READ_BYTES / page_bytes).max(1) as u64;
    let mut bytes = vec![0; at_once as usize * page_bytes];
    for first in (0..pages).step_by(at_once as usize) {
        let bytes = &mut bytes[..at_once.min(pages - first) as usize * page_bytes];
        object.read_at(first * page_bytes as u64, bytes)?;
        for (number, page) in (first..).zip(bytes.chunks_exact(page_bytes)) {
            let damaged = |reason| IndexError::damaged(object.address(), format!("page {number}"), reason);
            layout.check(number as u32, page).map_err(damaged)?;
            for (slot, row) in layout.vectors(page).chunks_exact(layout.vector_bytes()).enumerate() {
                let Some(id) = layout.id(page, slot) else { break };
                each(id, row)?;
            }
        }
    }
    Ok(())
}

/// The state of a verification of pages.
pub(crate) struct PageWalk<'a> {
    layout: &'a GroupLayout,
    element: Element,
    vectors: u64,
    ids_end: u64,
    pages: u64,
    seen: Marks,
    /// Number of vectors of each group.
    held: Vec<u32>,
}

impl<'a> PageWalk<'a> {
    /// Starts the verification of `groups` groups with ids below `ids_end`.
    pub(crate) fn new(
        verifying: &Verifying<'_>,
        layout: &'a GroupLayout,
        groups: u64,
        ids_end: u64,
    ) -> Result<PageWalk<'a>, IndexError> {
        let Verifying { object, manifest, .. } = *verifying;
        let wrong = |reason: String| IndexError::damaged(object.address(), "the manifest", reason);
        Ok(PageWalk {
            layout,
            element: manifest.stored_element().map_err(wrong)?,
            vectors: manifest.vectors,
            ids_end,
            pages: groups * layout.group_pages() as u64,
            seen: Marks::new(ids_end)?,
            held: try_zeros("counts of groups", groups as usize)?,
        })
    }

    /// Checks page `number`, or bytes behind the last page.
    pub(crate) fn page(&mut self, number: u64, page: &[u8], report: &mut VerifyReport) {
        let layout = self.layout;
        if number >= self.pages {
            if page.iter().any(|byte| *byte != 0) {
                report.fault("unused bytes behind the last page are not zero".into());
            }
            return;
        }
        if let Err(reason) = layout.check(number as u32, page) {
            return report.fault(format!("page {number}: {reason}"));
        }
        let vectors = layout.vectors(page).chunks_exact(layout.vector_bytes());
        for (slot, vector) in vectors.enumerate() {
            let Some(id) = layout.id(page, slot) else { continue };
            report.vectors += 1;
            self.held[number as usize / layout.group_pages()] += 1;
            if u64::from(id) >= self.ids_end || !self.seen.mark(id) {
                let end = self.ids_end;
                report.fault(format!(
                    "page {number}: vector {id} is there twice or none of the ids below {end}"
                ));
                continue;
            }
            if let Some(at) = first_non_finite(self.element, vector) {
                report.fault(format!("vector {id}: component {at} is not finite"));
            }
        }
    }

    /// Checks the totals after the last page.
    pub(crate) fn end(&self, report: &mut VerifyReport) {
        if report.vectors != self.vectors {
            report.fault(format!("the pages hold {} vectors of {}", report.vectors, self.vectors));
        }
    }
}
