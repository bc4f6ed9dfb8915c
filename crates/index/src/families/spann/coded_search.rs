//! The candidates of a query, from the codes of its lists.

use crate::query::codes::{CodedQuery, VectorCodes};
use crate::query::visited::VisitedSet;
use bathyal_kernels::Neighbor;

/// The factor by which candidates may exceed the wanted number before the worst are dropped.
const SLACK: usize = 4;

/// The best candidates of the lists that were scanned so far.
pub(crate) struct Candidates {
    query: CodedQuery,
    /// The best estimates, by place. Each place occurs once.
    hits: Vec<Neighbor>,
    /// The estimates of one list, by position in the list.
    list_hits: Vec<Neighbor>,
    seen: VisitedSet,
    /// Candidates with this estimate or a larger one are dropped.
    threshold: f32,
    wanted: usize,
}

impl Candidates {
    pub(crate) fn new() -> Candidates {
        Candidates {
            query: CodedQuery::new(),
            hits: Vec::new(),
            list_hits: Vec::new(),
            seen: VisitedSet::new(64),
            threshold: f32::INFINITY,
            wanted: 1,
        }
    }

    /// Returns the bytes for `wanted` candidates from lists of up to about `longest` vectors.
    pub(crate) fn planned_bytes(wanted: usize, longest: usize) -> u64 {
        // The places seen before the threshold fell, and lists that exceed the mean.
        (wanted * (SLACK * 64 + 64) + longest * 24) as u64
    }

    /// Begins a query, normalised under cosine. Its `wanted` best candidates will be compared exactly.
    pub(crate) fn begin(&mut self, codes: &VectorCodes, floats: &[f32], wanted: usize) {
        codes.begin(floats, &mut self.query);
        self.wanted = wanted.max(1);
        self.restart();
    }

    /// Begins again with the same query.
    pub(crate) fn restart(&mut self) {
        self.hits.clear();
        self.seen.clear();
        self.threshold = f32::INFINITY;
    }

    /// Scans a list of `count` codes, which the places of its vectors follow; places are below `vectors`.
    ///
    /// # Errors
    /// A description of the fault, if the list is too short or has an invalid place.
    #[inline]
    pub(crate) fn scan_list(
        &mut self,
        codes: &VectorCodes,
        list: &[u8],
        count: usize,
        vectors: u32,
    ) -> Result<(), String> {
        let (list, places) = list.split_at_checked(count * codes.code_bytes()).ok_or("it ends too early")?;
        let places = places.as_chunks::<4>().0;
        self.list_hits.clear();
        codes.scan(&mut self.query, list, self.threshold, &mut self.list_hits);
        if self.threshold == f32::INFINITY && self.list_hits.len() < count {
            self.add_unordered(count);
        }
        for hit in &self.list_hits {
            let place = places.get(hit.id as usize).map_or(u32::MAX, |place| u32::from_le_bytes(*place));
            if place >= vectors {
                return Err(format!("it contains place {place}, and there are {vectors} vectors"));
            }
            // All codes of a vector are the same: if it was too far in one list, it is too far in all.
            if self.seen.insert(place) {
                self.hits.push(Neighbor { distance: hit.distance, id: place });
            }
        }
        if self.hits.len() >= SLACK * self.wanted {
            self.keep_best();
        }
        Ok(())
    }

    /// Takes codes whose estimate is not a number as farther than all others. They occur for queries far
    /// outside of the data.
    #[cold]
    fn add_unordered(&mut self, count: usize) {
        let mut estimated = vec![false; count];
        self.list_hits.iter().for_each(|hit| estimated[hit.id as usize] = true);
        let others = (0..).zip(estimated).filter(|(_, estimated)| !estimated);
        self.list_hits.extend(others.map(|(id, _)| Neighbor { distance: f32::INFINITY, id }));
    }

    /// Drops all but the best. Of equal estimates those with the lowest places stay, independent of the order
    /// of lists.
    fn keep_best(&mut self) {
        let (_, worst, _) = self.hits.select_nth_unstable(self.wanted - 1);
        self.threshold = worst.distance.next_up();
        self.hits.truncate(self.wanted);
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
