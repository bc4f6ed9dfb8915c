//! A walk over the records of a graph, one at a time, whose beginnings can be chosen and that notes every page: what figures 12 and 13
//! vary, and what searches have no option for. With the library's own beginnings it reads and finds what the library does, which a
//! test compares.

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

use crate::sets::Set;

/// Pivots for each root of the number of vectors, of which a graph of single records looks at one in [`STEP`]: what the library has.
const PIVOTS_A_ROOT: f64 = 4.0;
const STEP: usize = 4;
/// Nearest pivots at which the library begins.
pub(super) const STARTS: usize = 8;

/// Where a walk begins: at the nearest of some vectors, at the graph's entry point, or at both.
#[derive(Clone, Debug)]
pub(super) struct Beginnings {
    pub(super) pivots: Vec<u32>,
    /// So many of the nearest.
    pub(super) nearest: usize,
    pub(super) entry_point: bool,
}

impl Beginnings {
    /// As DiskANN does.
    pub(super) fn entry_point() -> Beginnings {
        Beginnings { pivots: Vec::new(), nearest: 0, entry_point: true }
    }

    /// As the library does over so many vectors.
    pub(super) fn usual(vectors: usize) -> Beginnings {
        let count = ((vectors as f64).sqrt() * PIVOTS_A_ROOT) as usize;
        let pivots = spread(vectors, count).into_iter().step_by(STEP).collect();
        Beginnings { pivots, nearest: STARTS, entry_point: true }
    }
}

/// So many of the numbers below `vectors`, evenly; at least one.
pub(super) fn spread(vectors: usize, count: usize) -> Vec<u32> {
    let count = count.clamp(1, vectors.max(1)) as u64;
    (0..count).map(|i| (i * vectors as u64 / count) as u32).collect()
}

/// What a walk came by.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Nearest first.
    pub(super) ids: Vec<u32>,
    /// The page of each round.
    pub(super) pages: Vec<u64>,
}

impl Walked {
    /// `k` ids, of which those that are not there are none.
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
    /// Between vectors as the set has them.
    exact: Distance,
}

impl Walker {
    /// Reads the graph of padded records in folder `path`.
    pub(super) fn open(path: &Path, manifest: &Manifest, set: &Set) -> Result<Walker, Failure> {
        let wrong = |what: String| Failure::new(format!("{}: {what}", path.display()));
        let entry = GraphEntry::read(manifest).map_err(wrong)?;
        let GraphLayout::Padded(layout) = entry.layout(manifest).map_err(wrong)? else {
            return Err(wrong(format!("is laid out as {}, and walks are over padded records", entry.layout)));
        };
        let read = |name: &str| {
            std::fs::read(path.join(name)).map_err(|e| wrong(format!("{name} cannot be read: {e}")))
        };
        Ok(Walker {
            layout,
            pages: read(&entry.file.name)?,
            codec: Codec::from_bytes(&read(&entry.codes.codec.name)?).map_err(|e| wrong(e.to_string()))?,
            codes: read(&entry.codes.file.name)?,
            entry_point: entry.entry_point,
            exact: Distance::new(set.base.element(), manifest.metric().map_err(wrong)?, set.base.dim()),
        })
    }

    /// Walks for each of `queries`, with `list` candidates.
    pub(super) fn walk_all(
        &self,
        set: &Set,
        begin: &Beginnings,
        list: u32,
        k: usize,
    ) -> Result<Vec<Walked>, Failure> {
        let queries = &set.asked.queries;
        let mut steps = Steps::default();
        (0..queries.count())
            .map(|query| self.walk((set, queries.row(query)), begin, list, k, &mut steps))
            .collect()
    }

    fn walk(
        &self,
        (set, query): (&Set, &[u8]),
        begin: &Beginnings,
        list: u32,
        k: usize,
        steps: &mut Steps,
    ) -> Result<Walked, Failure> {
        steps.floats.resize(set.base.dim(), 0.0);
        to_f32(set.base.element(), query, &mut steps.floats);
        if self.exact.metric() == Metric::Cosine {
            normalize_f32(&mut steps.floats);
        }
        self.codec.prepare(&steps.floats, &mut steps.query);
        let mut candidates = CandidateList::new(list as usize);
        steps.visited.clear();
        self.begin(begin, steps);
        self.offer(&mut candidates, steps);
        let (mut found, mut walked) = (TopK::new(k), Walked::default());
        while let Some(next) = candidates.next_unexpanded() {
            let span = self.layout.span(next.id);
            walked.pages.push(span.offset / self.layout.page_bytes() as u64);
            let bytes = self.pages.get(span.offset as usize..).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(span.len as usize)];
            let damaged = |what| Failure::new(format!("the record of vector {} is damaged: {what}", next.id));
            let record = self.layout.decode(bytes, next.id).map_err(damaged)?;
            found.push(next.id, self.exact.between(query, set.base.row(next.id as usize)));
            steps.ids.clear();
            let new = record
                .neighbors()
                .filter(|id| (*id as usize) < set.base.count() && steps.visited.insert(*id));
            steps.ids.extend(new);
            self.offer(&mut candidates, steps);
        }
        walked.ids = found.into_sorted().iter().map(|neighbor| neighbor.id).collect();
        Ok(walked)
    }

    /// Leaves where to begin in `steps.ids`.
    fn begin(&self, begin: &Beginnings, steps: &mut Steps) {
        steps.ids.clear();
        steps.ids.extend(&begin.pivots);
        self.score(steps);
        let scored = steps.ids.iter().zip(&steps.scores);
        let mut nearest: Vec<Neighbor> =
            scored.map(|(id, distance)| Neighbor { distance: *distance, id: *id }).collect();
        if nearest.len() > begin.nearest {
            nearest.select_nth_unstable(begin.nearest);
            nearest.truncate(begin.nearest);
        }
        let entry_point = begin.entry_point.then_some(self.entry_point);
        steps.ids.clear();
        let ids = nearest.iter().map(|start| start.id).chain(entry_point);
        steps.ids.extend(ids.filter(|id| steps.visited.insert(*id)));
    }

    fn score(&self, steps: &mut Steps) {
        steps.scores.resize(steps.ids.len(), 0.0);
        steps.query.score(&self.codec, &self.codes, &steps.ids, &mut steps.scores);
    }

    fn offer(&self, candidates: &mut CandidateList, steps: &mut Steps) {
        self.score(steps);
        for (id, distance) in steps.ids.iter().zip(&steps.scores) {
            candidates.insert(Neighbor { distance: *distance, id: *id });
        }
    }
}

/// Memory of a walk, used again by the next.
struct Steps {
    floats: Vec<f32>,
    query: CodeQuery,
    visited: HashSet<u32>,
    ids: Vec<u32>,
    scores: Vec<f32>,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps {
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
    fn beginnings_are_those_of_the_library() {
        let usual = Beginnings::usual(2500);
        // 200 pivots, one in four of them.
        assert_eq!(usual.pivots.len(), 50);
        assert_eq!(usual.pivots[..3], [0, 50, 100]);
        assert_eq!(spread(10, 0), [0]);
        assert_eq!(spread(3, 9), [0, 1, 2]);
    }
}
