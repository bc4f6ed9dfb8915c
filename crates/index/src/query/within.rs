//! What a query keeps to that is to find rows of a set alone, and how it knows that it has looked at enough of them.
//!
//! A calibration says how many candidates and groups a query needs among all vectors. Among some of them it needs as many of
//! these as long as they lie around the query as all do. Where they lie far from it, all are about equally far, and codes and
//! centroids tell them apart less well. So a query goes on until what it looked at last has changed next to nothing: until
//! the second half of all that it has looked at has brought no more of its answers than the recall allows to miss. Half of
//! what is looked at is as much as is asked for at least, since answers have to come from somewhere.

use super::row_set::RowSet;
use bathyal_kernels::quantize::{CodeQuery, Codec};
use bathyal_kernels::{Neighbor, TopK};
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;

/// Candidates that are compared at most, in lists of the calibration.
pub(crate) const MOST_LISTS: usize = 8;
/// Candidates are collected up to so many times as are wanted before the worst are dropped.
const SLACK: usize = 4;
/// Codes that are scored at once.
const CODES_AT_ONCE: usize = 1024;
/// Of those that ask for no recall: the effort that was named is all.
pub(crate) const NEVER_LATE: usize = usize::MAX;

/// How the rows of a set are searched ([`Index::search_within`](crate::Index::search_within)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WithinPlan {
    /// All rows are in the set: a plain search.
    All,
    /// All rows of the set are compared: the answer is exact.
    Scan,
    /// A search that passes over other rows by their codes, with more effort the fewer are in the set.
    Among,
    /// A search for more neighbours, of which those of the set are kept: of families whose codes are not in memory, and where it
    /// is cheaper. Queries for which that does not find enough are answered as by one of the other plans.
    After,
}

/// The rows that a query may find.
#[derive(Debug, Clone)]
pub(crate) struct Among {
    /// By id.
    rows: Arc<RowSet>,
    /// By place, where codes do not lie in the order of the ids.
    places: Option<Arc<RowSet>>,
    /// Answers that the second half of what was looked at may have brought.
    late: usize,
}

impl Among {
    pub(crate) fn new(rows: Arc<RowSet>, places: Option<Arc<RowSet>>, late: usize) -> Among {
        Among { rows, places, late }
    }

    /// Whether the vector with this id may be found.
    #[inline]
    pub(crate) fn has(&self, id: u32) -> bool {
        self.rows.has(id)
    }

    /// The places of the codes of these vectors.
    pub(crate) fn places(&self) -> &RowSet {
        self.places.as_ref().unwrap_or(&self.rows)
    }

    /// Candidates to keep where the calibration asks for `list`.
    pub(crate) fn most(&self, list: usize) -> usize {
        most_of(list, self.late, self.rows.count())
    }

    /// When to stop where the calibration asks for `list` to find `k`, of up to `most`.
    pub(crate) fn stages(&self, list: usize, k: usize, most: usize) -> Stages {
        let list = list.max(k.saturating_mul(2)).min(most);
        let first = list.div_ceil(2);
        Stages { first, list, most, late: self.late, ..Stages::default() }
    }
}

/// Candidates to keep where the calibration asks for `list`, of a set of `count`, if so many may come `late`.
pub(crate) fn most_of(list: usize, late: usize, count: u32) -> usize {
    let lists = if late == NEVER_LATE { 1 } else { MOST_LISTS };
    list.saturating_mul(lists).min(count as usize).max(1)
}

/// How much is looked at in turn, of what is best first.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    /// What comes behind it is late.
    first: usize,
    list: usize,
    most: usize,
    late: usize,
    done: usize,
    /// Distances of the best when what is done last was not.
    before: Vec<f32>,
}

impl Stages {
    /// All of a list in one, as of queries that may find any vector.
    pub(crate) fn one(list: usize) -> Stages {
        Stages { list, most: list, late: NEVER_LATE, ..Stages::default() }
    }

    /// What to look at next, where `best` is what has been found so far.
    pub(crate) fn next(&mut self, best: &TopK) -> Option<Range<usize>> {
        self.next_of(best.iter().map(|found| found.distance), best.threshold())
    }

    /// The same where the best have these distances, in any order, and what is farther than `threshold` is none of them.
    pub(crate) fn next_of(
        &mut self,
        best: impl Iterator<Item = f32>,
        threshold: f32,
    ) -> Option<Range<usize>> {
        let done = self.done;
        let end = if self.late == NEVER_LATE {
            self.list
        } else if done == 0 {
            self.first
        } else {
            let now: Vec<f32> = best.collect();
            let stayed = self.before.iter().filter(|distance| **distance <= threshold).count();
            let late = now.len().saturating_sub(stayed);
            // What is not full yet has no answer that could be replaced.
            if done >= self.list && late <= self.late && threshold < f32::INFINITY {
                return None;
            }
            self.before = now;
            if done < self.list { self.list } else { done.saturating_mul(2) }
        };
        self.done = end.min(self.most);
        (done < self.done).then_some(done..self.done)
    }
}

/// Drops from `hits`, from number `first` on, those whose places are not in `places`.
#[inline]
pub(crate) fn keep_of(places: &RowSet, first: usize, hits: &mut Vec<Neighbor>) {
    let mut kept = first;
    for at in first..hits.len() {
        if places.has(hits[at].id) {
            hits[kept] = hits[at];
            kept += 1;
        }
    }
    hits.truncate(kept);
}

/// Memory for scoring codes.
#[derive(Debug, Default)]
pub(crate) struct Scoring {
    ids: Vec<u32>,
    scores: Vec<f32>,
    /// The best, the nearest first.
    pub(crate) hits: Vec<Neighbor>,
}

impl Scoring {
    /// Leaves the `wanted` places of `places` whose codes are nearest, and returns how many codes were scored. An estimate that no
    /// number holds is farther than all others.
    pub(crate) fn rank(
        &mut self,
        query: &CodeQuery,
        (codec, codes): (&Codec, &[u8]),
        places: &RowSet,
        wanted: usize,
    ) -> u32 {
        let Scoring { ids, scores, hits } = self;
        let (mut all, mut threshold, mut scored) = (places.iter(), f32::INFINITY, 0);
        hits.clear();
        loop {
            ids.clear();
            ids.extend(all.by_ref().take(CODES_AT_ONCE));
            if ids.is_empty() {
                break;
            }
            scores.resize(ids.len(), 0.0);
            query.score(codec, codes, ids, scores);
            scored += ids.len() as u32;
            let told = ids.iter().zip(scores.iter());
            let told = told.map(|(id, score)| (*id, if score.is_nan() { f32::INFINITY } else { *score }));
            let near = told.filter(|(_, distance)| *distance <= threshold);
            hits.extend(near.map(|(id, distance)| Neighbor { distance, id }));
            if hits.len() >= SLACK * wanted {
                hits.select_nth_unstable(wanted - 1);
                hits.truncate(wanted);
                threshold = hits[wanted - 1].distance;
            }
        }
        hits.sort_unstable();
        hits.truncate(wanted);
        scored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among(rows: u32, late: usize) -> Among {
        Among::new(Arc::new(RowSet::all(rows)), None, late)
    }

    /// The stages over candidates of these distances.
    fn stages_of(distances: &[f32], k: usize, list: usize, late: usize) -> Vec<usize> {
        let mut found = TopK::new(k);
        let mut stages = among(distances.len() as u32, late).stages(list, k, distances.len());
        let mut ends = Vec::new();
        while let Some(range) = stages.next(&found) {
            ends.push(range.end);
            for at in range {
                found.push(at as u32, distances[at]);
            }
        }
        ends
    }

    #[test]
    fn a_query_stops_once_nothing_new_comes() {
        let rising: Vec<f32> = (0..100).map(|at| at as f32).collect();
        assert_eq!(stages_of(&rising, 3, 10, 0), [5, 10]);
        assert_eq!(stages_of(&rising, 3, 10, NEVER_LATE), [10]);
        assert_eq!(
            (stages_of(&rising, 3, 200, 0), stages_of(&rising, 10, 10, 0)),
            (vec![50, 100], vec![10, 20])
        );
        // The last is the nearest: whatever was looked at has brought answers.
        let falling: Vec<f32> = rising.iter().rev().copied().collect();
        assert_eq!(stages_of(&falling, 3, 10, 0), [5, 10, 20, 40, 80, 100]);
        assert_eq!(stages_of(&falling, 3, 10, 3), [5, 10]);
        // One late answer of the first list, none after.
        let mut one = rising.clone();
        one[8] = -1.0;
        assert_eq!((stages_of(&one, 3, 10, 0), stages_of(&one, 3, 10, 1)), (vec![5, 10, 20], vec![5, 10]));
        // Fewer than are asked for.
        assert_eq!(stages_of(&rising[..4], 10, 2, 0), [2, 4]);
        assert!(stages_of(&[], 10, 2, 0).is_empty());
        assert_eq!(stages_of(&[1.0; 40], 3, 10, 0), [5, 10], "ties");
    }

    #[test]
    fn no_more_candidates_are_kept_than_there_are_rows() {
        assert_eq!((among(1000, 0).most(20), among(1000, NEVER_LATE).most(20)), (160, 20));
        assert_eq!((among(50, 0).most(20), among(0, 0).most(20), among(9, 0).most(usize::MAX)), (50, 1, 9));
    }
}
