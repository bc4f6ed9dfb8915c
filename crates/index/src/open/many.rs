//! Search in several indexes at once. The answers are merged by distance.

use super::{Effort, Index, MergedAnswers, SearchOptions, SearchRequest};
use crate::calibrate::reach::{Calibrated, QueryLengths};
use crate::error::IndexError;
use crate::query::{NO_ID, OwnCosts, QueryStats, SearchTotals};
use bathyal_kernels::{Metric, Neighbor};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::Serialize;

/// A neighbour in one of several indexes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Place {
    /// The index's number in the order of the call.
    pub index: u32,
    /// Row number of the vector in that index.
    pub id: u32,
}

/// The answers to a batch of queries over several indexes.
#[derive(Debug, Clone)]
pub struct ManyResult {
    /// Neighbours per query: as many as were asked for, or all that the indexes hold.
    pub k: usize,
    /// `queries x k`, row-major, the nearest of each query first; equal distances in the order of the
    /// indexes, then of the ids.
    pub places: Vec<Place>,
    /// `queries x k`, row-major: squared L2, negative inner product, or 1 - cosine.
    pub distances: Vec<f32>,
    /// For each index, the number of ids in the indexes before it. If all indexes were one, the id of a place
    /// would be `first_ids[place.index] + place.id`.
    pub first_ids: Vec<u64>,
    /// Nanoseconds of each query in all indexes, one after the other.
    pub latencies_ns: Vec<u64>,
    /// The counters of each query in all indexes together.
    pub per_query: Vec<QueryStats>,
    /// The counters of each query that only some families have, summed over the indexes that have them.
    pub own: OwnCosts,
    /// The sums of the counters over all queries and indexes.
    pub totals: SearchTotals,
    /// Seconds from the first query's start to the last one's end.
    pub seconds: f64,
    /// The length of the longest candidate list of the searches.
    pub search_list: u32,
    /// Threads used.
    pub threads: usize,
    /// Notes for the user, each with the path of its index.
    pub notes: Vec<String>,
}

impl ManyResult {
    /// Returns the id that a place would have if all indexes were one, in the order of the call. [`NO_ID`]
    /// stays [`NO_ID`].
    pub fn id(&self, place: Place) -> u64 {
        if place.id == NO_ID {
            return u64::from(NO_ID);
        }
        self.first_ids.get(place.index as usize).copied().unwrap_or(0) + u64::from(place.id)
    }

    /// Returns a note if the queries are unlike those of the calibrations. Each is judged by the index that
    /// holds its farthest neighbour.
    fn unlike_note(&self, indexes: &[&Index], queries: &VectorFile, effort: Effort) -> Option<String> {
        let ManyResult { k, places, distances, .. } = self;
        let farthest = |query: usize| places[query * k + k - 1].index as usize;
        let metric = indexes.first().map_or(Metric::L2, |index| index.metric());
        let lengths = &QueryLengths::of_file(metric, queries);
        let merged = MergedAnswers { k: *k, distances, lengths, effort };
        merged.unlike_note(Calibrated::Indexes, |query| indexes[farthest(query)].reach())
    }
}

/// Answers all `queries` from all of `indexes`, which have the same dimensions, element and metric.
///
/// Each index is searched for `options.k` neighbours with the effort of its own calibration, so that the
/// recall holds in each of them and therefore in all.
///
/// # Errors
/// [`IndexError::Parameter`] without an index, or if the indexes differ; and as [`Index::search`].
pub fn search_many(
    indexes: &[&Index],
    queries: &VectorFile,
    options: &SearchOptions,
    control: Control<'_>,
) -> Result<ManyResult, IndexError> {
    check(indexes)?;
    let request = SearchRequest::new(options)?;
    let count = queries.count();
    let total: u64 = indexes.iter().map(|index| index.len() as u64).sum();
    let k = usize::try_from(total).map_or(options.k, |total| options.k.min(total));
    let mut result = ManyResult {
        k,
        places: Vec::new(),
        distances: Vec::new(),
        first_ids: Vec::with_capacity(indexes.len()),
        latencies_ns: vec![0; count],
        per_query: vec![QueryStats::default(); count],
        own: OwnCosts::default(),
        totals: SearchTotals::default(),
        seconds: 0.0,
        search_list: 0,
        threads: 1,
        notes: Vec::new(),
    };
    if k < options.k {
        let asked = options.k;
        result.notes.push(format!("asked for {asked} neighbours, the indexes hold only {k} vectors"));
    }
    let mut lists: Vec<Vec<(Neighbor, u32)>> = vec![Vec::new(); count];
    for (number, index) in (0_u32..).zip(indexes) {
        let one = request.for_neighbors(options.k.min(index.len()));
        let found = index.search(queries, one.options(), control)?;
        for (list, at) in lists.iter_mut().zip((0..count).map(|query| query * found.k)) {
            let rows = found.ids[at..at + found.k].iter().zip(&found.distances[at..at + found.k]);
            let rows = rows.filter(|(id, _)| **id != NO_ID);
            list.extend(rows.map(|(id, distance)| (Neighbor { distance: *distance, id: *id }, number)));
        }
        let costs = result.per_query.iter_mut().zip(&found.per_query);
        costs.for_each(|(sum, cost)| sum.add_common(cost));
        result.own.add(&found.own);
        result.totals.merge(&found.totals);
        result.latencies_ns.iter_mut().zip(&found.latencies_ns).for_each(|(sum, ns)| *sum += ns);
        result.seconds += found.seconds;
        result.search_list = result.search_list.max(found.search_list);
        result.threads = result.threads.max(found.threads);
        let name = index.path().display();
        result.notes.extend(found.notes_for_merging().map(|note| format!("{name}: {note}")));
    }
    // The ids are counted after all searches: `next_id` only grows, so every id found is below it.
    let mut next = 0;
    for index in indexes {
        result.first_ids.push(next);
        next += u64::from(index.next_id());
    }
    // There are fewer if vectors were deleted between two of the searches.
    let k = lists.iter().map(Vec::len).fold(k, usize::min);
    result.k = k;
    for list in &mut lists {
        // Of equal distances the first index comes first, then the smaller id.
        list.sort_unstable_by(|(a, i), (b, j)| {
            a.distance.total_cmp(&b.distance).then((i, a.id).cmp(&(j, b.id)))
        });
        result.places.extend(list[..k].iter().map(|(found, index)| Place { index: *index, id: found.id }));
        result.distances.extend(list[..k].iter().map(|(found, _)| found.distance));
    }
    let note = result.unlike_note(indexes, queries, options.effort);
    result.notes.extend(note);
    Ok(result)
}

/// Checks that distances of the indexes can be compared.
fn check(indexes: &[&Index]) -> Result<(), IndexError> {
    let Some(first) = indexes.first() else {
        return Err(IndexError::Parameter("no index to search; give at least one".into()));
    };
    for other in &indexes[1..] {
        let refuse = |what: &str, ours: String, theirs: String| {
            Err(IndexError::Parameter(format!(
                "{}: its {what} is {theirs}, that of {} is {ours}; indexes that are searched together must \
                 agree",
                other.path().display(),
                first.path().display()
            )))
        };
        if other.dim() != first.dim() {
            return refuse("dim", first.dim().to_string(), other.dim().to_string());
        }
        if other.metric() != first.metric() {
            return refuse("metric", first.metric().to_string(), other.metric().to_string());
        }
        if other.element() != first.element() {
            return refuse("element", first.element().to_string(), other.element().to_string());
        }
    }
    Ok(())
}
