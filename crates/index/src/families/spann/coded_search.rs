//! The candidates of a query among the codes of its lists.

use crate::query::codes::{CodedQuery, VectorCodes};
use crate::query::visited::VisitedSet;
use bathyal_kernels::{Neighbor, keep_nearest};

/// Candidates are collected up to so many times as are wanted before the worst are dropped.
const SLACK: usize = 4;

/// What the codes of a query's lists have come to so far.
pub(crate) struct Candidates {
    query: CodedQuery,
    /// The best estimates, by place; no place twice.
    hits: Vec<Neighbor>,
    /// Those of one list, by their number in it.
    of_list: Vec<Neighbor>,
    seen: VisitedSet,
    /// Estimates from here on are of no use.
    threshold: f32,
    wanted: usize,
}

impl Candidates {
    pub(crate) fn new() -> Candidates {
        Candidates {
            query: CodedQuery::new(),
            hits: Vec::new(),
            of_list: Vec::new(),
            seen: VisitedSet::new(64),
            threshold: f32::INFINITY,
            wanted: 1,
        }
    }

    /// Bytes for `wanted` candidates from lists of up to about `longest` vectors.
    pub(crate) fn planned_bytes(wanted: usize, longest: usize) -> u64 {
        // What was seen before the threshold fell, and the lists that reach beyond it.
        (wanted * (SLACK * 64 + 64) + longest * 24) as u64
    }

    /// Begins a query, normalised under cosine, of which the `wanted` best are to be compared exactly.
    pub(crate) fn begin(&mut self, codes: &VectorCodes, floats: &[f32], wanted: usize) {
        codes.begin(floats, &mut self.query);
        self.wanted = wanted.max(1);
        self.forget();
    }

    /// Begins anew with the same query.
    pub(crate) fn forget(&mut self) {
        self.hits.clear();
        self.seen.clear();
        self.threshold = f32::INFINITY;
    }

    /// Takes a list of `count` codes with the places of its vectors behind them; all are below `vectors`.
    ///
    /// # Errors
    /// A sentence when the list is shorter than that or holds a place that is none.
    #[inline]
    pub(crate) fn take(
        &mut self,
        codes: &VectorCodes,
        list: &[u8],
        count: usize,
        vectors: u32,
    ) -> Result<(), String> {
        let (list, places) = list.split_at_checked(count * codes.code_bytes()).ok_or("it ends too early")?;
        let places = places.as_chunks::<4>().0;
        self.of_list.clear();
        codes.scan(&mut self.query, list, self.threshold, &mut self.of_list);
        if self.threshold == f32::INFINITY && self.of_list.len() < count {
            self.add_unordered(count);
        }
        for hit in &self.of_list {
            let place = places.get(hit.id as usize).map_or(u32::MAX, |place| u32::from_le_bytes(*place));
            if place >= vectors {
                return Err(format!("it holds place {place}, which is not among {vectors}"));
            }
            // All codes of a vector are the same: one that was too far in a list is too far in every other.
            if self.seen.insert(place) {
                self.hits.push(Neighbor { distance: hit.distance, id: place });
            }
        }
        if self.hits.len() >= SLACK * self.wanted {
            self.keep_best();
        }
        Ok(())
    }

    /// Takes the codes whose estimate no number holds as farther than all others. Queries far outside of the data have such.
    #[cold]
    fn add_unordered(&mut self, count: usize) {
        let mut estimated = vec![false; count];
        self.of_list.iter().for_each(|hit| estimated[hit.id as usize] = true);
        let others = (0..).zip(estimated).filter(|(_, estimated)| !estimated);
        self.of_list.extend(others.map(|(id, _)| Neighbor { distance: f32::INFINITY, id }));
    }

    /// Drops all but the best. Of equal estimates the lowest places stay, in whatever order lists arrive.
    fn keep_best(&mut self) {
        self.threshold = keep_nearest(&mut self.hits, self.wanted).next_up();
    }

    /// Writes the places of the best candidates to `places`, in no order.
    pub(crate) fn best(&mut self, places: &mut Vec<u32>) {
        if self.hits.len() > self.wanted {
            self.keep_best();
        }
        places.clear();
        places.extend(self.hits.iter().map(|hit| hit.id));
    }
}
