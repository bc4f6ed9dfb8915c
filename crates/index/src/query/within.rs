//! Searches restricted to a row set: the filter of a query, and the rule by which it stops.
//!
//! Calibration determines how many candidates and groups a query needs among all vectors. RowFilter the rows
//! of a set, a query needs as many if these rows are distributed around it as all vectors are. If they are
//! far from the query, they are about equally far, and codes and centroids distinguish them less well. So a
//! query continues until the candidates that it compared last have changed next to nothing: until the second
//! half of all compared candidates contains no more of its answers than the recall allows to miss. The first
//! half has at least as many candidates as answers, since answers have to come from it.

use super::row_set::RowSet;
use bathyal_kernels::quantize::{CodeQuery, Codec};
use bathyal_kernels::{Neighbor, TopK};
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;

/// The most candidates that are compared, as a multiple of the candidate list of the calibration.
pub(crate) const MOST_LISTS: usize = 8;
/// Candidates are collected up to this multiple of the wanted number before the worst are dropped.
const SLACK: usize = 4;
/// Codes that are scored at once.
const CODES_AT_ONCE: usize = 1024;
/// The number of late answers that a search without a recall allows: it uses exactly the given effort.
pub(crate) const NEVER_LATE: usize = usize::MAX;

/// The plan of a search within a row set ([`Index::search_within`](crate::Index::search_within)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WithinPlan {
    /// All rows are in the set: a plain search.
    All,
    /// All rows of the set are compared: the answer is exact.
    Scan,
    /// A search that skips the codes of other rows. The smaller the set, the more effort it takes.
    Among,
    /// A search for more neighbours, of which those in the set are kept: in families whose codes are not in
    /// memory, and wherever it is cheaper. Queries for which that does not find enough are answered by one of
    /// the other plans.
    After,
}

/// The rows that a query may find.
#[derive(Debug, Clone)]
pub(crate) struct RowFilter {
    /// The set of their ids.
    rows: Arc<RowSet>,
    /// The set of the places of their codes; `None` if these are the ids.
    places: Option<Arc<RowSet>>,
    /// The most answers in the second half of the compared candidates at which a query stops.
    late: usize,
}

impl RowFilter {
    pub(crate) fn new(rows: Arc<RowSet>, places: Option<Arc<RowSet>>, late: usize) -> RowFilter {
        RowFilter { rows, places, late }
    }

    /// Returns true if the vector with this id may be found.
    #[inline]
    pub(crate) fn has(&self, id: u32) -> bool {
        self.rows.has(id)
    }

    /// Returns the places of the codes of these vectors.
    pub(crate) fn places(&self) -> &RowSet {
        self.places.as_ref().unwrap_or(&self.rows)
    }

    /// Returns the number of candidates to keep if the calibration's candidate list is `list`.
    pub(crate) fn most(&self, list: usize) -> usize {
        most_of(list, self.late, self.rows.count())
    }

    /// Returns the stages of a query for `k` neighbours with the calibration's candidate list `list`, of at
    /// most `most` candidates.
    pub(crate) fn stages(&self, list: usize, k: usize, most: usize) -> CandidateStages {
        let list = list.max(k.saturating_mul(2)).min(most);
        let first = list.div_ceil(2);
        CandidateStages { first, list, most, late: self.late, ..CandidateStages::default() }
    }
}

/// Returns the number of candidates to keep in a search of a set of `count` rows, if the calibration's
/// candidate list is `list` and `late` answers may come late.
pub(crate) fn most_of(list: usize, late: usize, count: u32) -> usize {
    let lists = if late == NEVER_LATE { 1 } else { MOST_LISTS };
    list.saturating_mul(lists).min(count as usize).max(1)
}

/// The stages of a query: ranges of candidates, the best first, that are compared one after the other.
#[derive(Debug, Default)]
pub(crate) struct CandidateStages {
    /// End of the first stage. Answers behind it are late.
    first: usize,
    list: usize,
    most: usize,
    late: usize,
    done: usize,
    /// Distances of the best candidates before the last stage.
    before: Vec<f32>,
}

impl CandidateStages {
    /// Returns a single stage with the whole list, for queries that may find any vector.
    pub(crate) fn one(list: usize) -> CandidateStages {
        CandidateStages { list, most: list, late: NEVER_LATE, ..CandidateStages::default() }
    }

    /// Returns the range of candidates to compare next, or `None` at the end. `best` are the nearest so far.
    pub(crate) fn next(&mut self, best: &TopK) -> Option<Range<usize>> {
        self.next_of(best.iter().map(|found| found.distance), best.threshold())
    }

    /// Does so if the nearest have the distances `best`, in any order, and none is farther than `threshold`.
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
            // If fewer than k are found, the threshold is infinite and the query continues.
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

/// Drops the entries of `hits` from number `first` on whose places are not in `places`.
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

/// Scratch memory for scoring codes.
#[derive(Debug, Default)]
pub(crate) struct Scoring {
    ids: Vec<u32>,
    scores: Vec<f32>,
    /// The best places, the nearest first.
    pub(crate) hits: Vec<Neighbor>,
}

impl Scoring {
    /// Puts the `wanted` places of `places` with the nearest codes into `hits`, and returns the number of
    /// scored codes. An estimate that is NaN counts as farther than all others.
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
            let estimates = ids.iter().zip(scores.iter());
            let estimates =
                estimates.map(|(id, score)| (*id, if score.is_nan() { f32::INFINITY } else { *score }));
            let near = estimates.filter(|(_, distance)| *distance <= threshold);
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

    fn among(rows: u32, late: usize) -> RowFilter {
        RowFilter::new(Arc::new(RowSet::all(rows)), None, late)
    }

    /// Returns the ends of the stages over candidates with these distances.
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
    fn a_query_stops_when_the_second_half_contains_few_answers() {
        let rising: Vec<f32> = (0..100).map(|at| at as f32).collect();
        assert_eq!(stages_of(&rising, 3, 10, 0), [5, 10]);
        assert_eq!(stages_of(&rising, 3, 10, NEVER_LATE), [10]);
        assert_eq!(
            (stages_of(&rising, 3, 200, 0), stages_of(&rising, 10, 10, 0)),
            (vec![50, 100], vec![10, 20])
        );
        // The last is the nearest: every stage contains new answers.
        let falling: Vec<f32> = rising.iter().rev().copied().collect();
        assert_eq!(stages_of(&falling, 3, 10, 0), [5, 10, 20, 40, 80, 100]);
        assert_eq!(stages_of(&falling, 3, 10, 3), [5, 10]);
        // One late answer in the first list, none after it.
        let mut one = rising.clone();
        one[8] = -1.0;
        assert_eq!((stages_of(&one, 3, 10, 0), stages_of(&one, 3, 10, 1)), (vec![5, 10, 20], vec![5, 10]));
        // There are fewer candidates than are asked for.
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
