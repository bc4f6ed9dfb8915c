//! A walk over the records of a graph, one at a time, with selectable start points and a log of all pages:
//! figures 12 and 13 need both, and searches have no option for either. With the library's own start points
//! it reads and finds the same as the library, which a test compares.

use std::collections::HashSet;
use std::path::Path;

use bathyal_console::Failure;
use bathyal_index::NO_ID;
use bathyal_index::families::graph::GraphEntry;
use bathyal_index::families::graph::layout::GraphLayout;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::format::pages::PageLayout;
use bathyal_kernels::quantize::{CodeQuery, Codec};
use bathyal_kernels::{CandidateList, Distance, Metric, Neighbor, TopK, normalize_f32, to_f32};

use crate::sets::DataSet;

/// Pivots per square root of the number of vectors. A graph of single records scores one in [`STEP`] of them,
/// as in the library.
const PIVOTS_A_ROOT: f64 = 4.0;
const STEP: usize = 4;
/// Nearest pivots at which the library starts.
pub(super) const STARTS: usize = 8;

/// Start points of a walk: the nearest of some vectors, the graph's entry point, or both.
#[derive(Clone, Debug)]
pub(super) struct StartPoints {
    pub(super) pivots: Vec<u32>,
    /// Number of nearest pivots to start at.
    pub(super) nearest: usize,
    pub(super) entry_point: bool,
}

impl StartPoints {
    /// Returns the entry point alone, as in DiskANN.
    pub(super) fn entry_point() -> StartPoints {
        StartPoints { pivots: Vec::new(), nearest: 0, entry_point: true }
    }

    /// Returns the library's start points over `vectors` vectors.
    pub(super) fn library_default(vectors: usize) -> StartPoints {
        let count = ((vectors as f64).sqrt() * PIVOTS_A_ROOT) as usize;
        let pivots = spread(vectors, count).into_iter().step_by(STEP).collect();
        StartPoints { pivots, nearest: STARTS, entry_point: true }
    }
}

/// Returns `count` evenly spaced numbers below `vectors`, at least one.
pub(super) fn spread(vectors: usize, count: usize) -> Vec<u32> {
    let count = count.clamp(1, vectors.max(1)) as u64;
    (0..count).map(|i| (i * vectors as u64 / count) as u32).collect()
}

/// Result of a walk.
#[derive(Debug, Default)]
pub(super) struct WalkResult {
    /// Found ids, nearest first.
    pub(super) ids: Vec<u32>,
    /// Page of each round.
    pub(super) pages: Vec<u64>,
}

impl WalkResult {
    /// Returns exactly `k` ids; `NO_ID` stands for missing ones.
    pub(super) fn padded(&self, k: usize) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().copied().chain(std::iter::repeat(NO_ID)).take(k)
    }
}

/// A graph whose file and codes are in memory.
pub(super) struct Walker {
    layout: PageLayout,
    pages: Vec<u8>,
    codec: Codec,
    codes: Vec<u8>,
    entry_point: u32,
    /// Distances between vectors in their stored element.
    exact: Distance,
}

impl Walker {
    /// Reads the graph of padded records in folder `path`.
    pub(super) fn open(path: &Path, manifest: &Manifest, set: &DataSet) -> Result<Walker, Failure> {
        let failure = |what: String| Failure::new(format!("{}: {what}", path.display()));
        let entry = GraphEntry::read(manifest).map_err(failure)?;
        let GraphLayout::Padded(layout) = entry.layout(manifest).map_err(failure)? else {
            return Err(failure(format!("has the layout {}, but walks need padded records", entry.layout)));
        };
        let read = |name: &str| {
            std::fs::read(path.join(name)).map_err(|e| failure(format!("{name} cannot be read: {e}")))
        };
        Ok(Walker {
            layout,
            pages: read(&entry.file.name)?,
            codec: Codec::from_bytes(&read(&entry.codes.codec.name)?).map_err(|e| failure(e.to_string()))?,
            codes: read(&entry.codes.file.name)?,
            entry_point: entry.entry_point,
            exact: Distance::new(set.base.element(), manifest.metric().map_err(failure)?, set.base.dim()),
        })
    }

    /// Walks once for each query of `set`, with `list` candidates.
    pub(super) fn walk_all(
        &self,
        set: &DataSet,
        start_points: &StartPoints,
        list: u32,
        k: usize,
    ) -> Result<Vec<WalkResult>, Failure> {
        let queries = &set.query_set.queries;
        let mut scratch = WalkScratch::default();
        (0..queries.count())
            .map(|query| self.walk((set, queries.row(query)), start_points, list, k, &mut scratch))
            .collect()
    }

    fn walk(
        &self,
        (set, query): (&DataSet, &[u8]),
        start_points: &StartPoints,
        list: u32,
        k: usize,
        scratch: &mut WalkScratch,
    ) -> Result<WalkResult, Failure> {
        scratch.floats.resize(set.base.dim(), 0.0);
        to_f32(set.base.element(), query, &mut scratch.floats);
        if self.exact.metric() == Metric::Cosine {
            normalize_f32(&mut scratch.floats);
        }
        self.codec.prepare(&scratch.floats, &mut scratch.query);
        let mut candidates = CandidateList::new(list as usize);
        scratch.visited.clear();
        self.start(start_points, scratch);
        self.offer(&mut candidates, scratch);
        let (mut found, mut walked) = (TopK::new(k), WalkResult::default());
        while let Some(next) = candidates.next_unexpanded() {
            let span = self.layout.span(next.id);
            walked.pages.push(span.offset / self.layout.page_bytes() as u64);
            let bytes = self.pages.get(span.offset as usize..).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(span.len as usize)];
            let damaged = |what| Failure::new(format!("the record of vector {} is damaged: {what}", next.id));
            let record = self.layout.decode(bytes, next.id).map_err(damaged)?;
            found.push(next.id, self.exact.between(query, set.base.row(next.id as usize)));
            scratch.ids.clear();
            let new = record
                .neighbors()
                .filter(|id| (*id as usize) < set.base.count() && scratch.visited.insert(*id));
            scratch.ids.extend(new);
            self.offer(&mut candidates, scratch);
        }
        walked.ids = found.into_sorted().iter().map(|neighbor| neighbor.id).collect();
        Ok(walked)
    }

    /// Puts the start points into `scratch.ids`.
    fn start(&self, start_points: &StartPoints, scratch: &mut WalkScratch) {
        scratch.ids.clear();
        scratch.ids.extend(&start_points.pivots);
        self.score(scratch);
        let scored = scratch.ids.iter().zip(&scratch.scores);
        let mut nearest: Vec<Neighbor> =
            scored.map(|(id, distance)| Neighbor { distance: *distance, id: *id }).collect();
        if nearest.len() > start_points.nearest {
            nearest.select_nth_unstable(start_points.nearest);
            nearest.truncate(start_points.nearest);
        }
        let entry_point = start_points.entry_point.then_some(self.entry_point);
        scratch.ids.clear();
        let ids = nearest.iter().map(|start| start.id).chain(entry_point);
        scratch.ids.extend(ids.filter(|id| scratch.visited.insert(*id)));
    }

    fn score(&self, scratch: &mut WalkScratch) {
        scratch.scores.resize(scratch.ids.len(), 0.0);
        scratch.query.score(&self.codec, &self.codes, &scratch.ids, &mut scratch.scores);
    }

    fn offer(&self, candidates: &mut CandidateList, scratch: &mut WalkScratch) {
        self.score(scratch);
        for (id, distance) in scratch.ids.iter().zip(&scratch.scores) {
            candidates.insert(Neighbor { distance: *distance, id: *id });
        }
    }
}

/// Scratch memory of a walk, reused by the next.
struct WalkScratch {
    floats: Vec<f32>,
    query: CodeQuery,
    visited: HashSet<u32>,
    ids: Vec<u32>,
    scores: Vec<f32>,
}

impl Default for WalkScratch {
    fn default() -> WalkScratch {
        WalkScratch {
            floats: Vec::new(),
            query: CodeQuery::new(),
            visited: HashSet::new(),
            ids: Vec::new(),
            scores: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_points_are_those_of_the_library() {
        let usual = StartPoints::library_default(2500);
        // 200 pivots, one in four of them.
        assert_eq!(usual.pivots.len(), 50);
        assert_eq!(usual.pivots[..3], [0, 50, 100]);
        assert_eq!(spread(10, 0), [0]);
        assert_eq!(spread(3, 9), [0, 1, 2]);
    }
}
