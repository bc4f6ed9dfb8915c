//! The plan of a search within a row set: compare all rows of the set, skip other rows during the search, or
//! search for more neighbours and drop those outside the set. The cost model chooses the cheapest plan for a
//! single query, so that the answers do not depend on the number of queries in a batch.

use super::Index;
use super::change_log::Changing;
use super::request::{Effort, MAX_SEARCH_LIST, SearchOptions, SearchRequest};
use super::stored::StoredIndex;
use crate::cost::demand::{Demand, moved_bytes};
use crate::error::IndexError;
use crate::query::within::{NEVER_LATE, most_of};
use crate::query::{RowSet, SearchParams, WithinPlan, spread};

/// Units whose mean length is taken for that of all.
const SAMPLED_UNITS: usize = 16;
/// About the number of units that are read at the same time.
const UNITS_IN_FLIGHT: f64 = 64.0;
/// Nanoseconds of the processor for passing on a vector that was read, besides its bytes.
const VECTOR_NS: f64 = 20.0;
/// A search that drops rows afterwards finds at most this fraction (1/4) of all vectors: beyond that, a scan
/// is cheaper.
const MOST_SHARE: usize = 4;

/// Factor by which a query that found too few rows of the set searches for more neighbours.
const MORE_TIMES: usize = 4;

/// Factor on the cost of a search by codes if the places of the set's codes are not known yet and have to be
/// read. Most sets of an index with few deleted rows are searched without them.
const UNPLACED_FACTOR: f64 = 2.0;

/// A plan, with the parameters of its searches.
pub(super) struct Planned {
    pub(super) plan: WithinPlan,
    /// The reason for the plan, as a sentence.
    pub(super) reason: String,
    /// The parameters of a search for as many neighbours as are wanted.
    pub(super) params: SearchParams,
    /// The parameters of the searches for more neighbours, if that is the plan. Each is for the queries that
    /// found too few by the one before.
    pub(super) more: Vec<SearchParams>,
    /// True if rows of the set can be found by their codes.
    pub(super) has_codes: bool,
    /// Number of answers that may come late ([`CandidateStages`](crate::query::within::Stages)).
    pub(super) late: usize,
    pub(super) notes: Vec<String>,
}

/// Numbers of bytes that differ by no more than this factor count as equal.
const ABOUT: f64 = 1.25;

/// Nanoseconds of each possible plan.
#[derive(Debug, Clone, Copy)]
struct Prices {
    scan: f64,
    among: Option<f64>,
    after: Option<f64>,
}

/// Returns the cheapest plan for finding `k` rows of a set with `count` of `rows` rows, and the reason as a
/// sentence. At equal prices, the plan with the more certain answers is chosen.
fn choose(count: u32, rows: u32, k: usize, prices: &Prices) -> (WithinPlan, String) {
    let matches = format!("{count} of {rows} rows match");
    let us = |ns: f64| format!("{:.0} us", ns / 1e3);
    if count == 0 {
        return (WithinPlan::Scan, "no row matches".into());
    }
    if count == rows {
        return (WithinPlan::All, format!("all {rows} rows match, so that it is a plain search"));
    }
    if count as usize <= k {
        return (WithinPlan::Scan, format!("{matches}, no more than are asked for: all are compared"));
    }
    let Prices { scan, among, after } = *prices;
    let searches = among.into_iter().chain(after).fold(f64::INFINITY, f64::min);
    if scan <= searches {
        let reason = format!("{matches}: comparing all of them takes about {}", us(scan));
        let reason = if searches.is_finite() {
            format!("{reason}, a search {}", us(searches))
        } else {
            format!("{reason}, and no search can be restricted to them")
        };
        return (WithinPlan::Scan, reason);
    }
    if let Some(among) = among.filter(|among| *among <= searches) {
        let reason = format!(
            "{matches}: a search that passes over the others takes about {}, comparing all that match {}",
            us(among),
            us(scan)
        );
        return (WithinPlan::Among, reason);
    }
    let reason = format!(
        "{matches}: a search that leaves the others out afterwards takes about {}, comparing all that match \
         {}",
        us(searches),
        us(scan)
    );
    (WithinPlan::After, reason)
}

/// Returns the share of all rows that is in a set.
fn share_of(count: u32, rows: u32) -> f64 {
    f64::from(count.max(1)) / f64::from(rows.max(1))
}

/// Returns how many neighbours to search for among all rows so that `k` of them are in a set with this share:
/// the number that contains `k` on average if the set is spread evenly, and three standard deviations more.
fn more_of_all(k: usize, share: f64) -> usize {
    let (k, others) = (k as f64, 1.0 - share);
    ((k + 3.0 * (k * others).sqrt() + 3.0 * others + 1.0) / share).ceil() as usize
}

/// Returns how many of the nearest of `found` neighbours are used as answers, for a set of `count` of `rows`
/// rows. Among the farthest neighbours, a search misses more than its recall over all of them suggests.
pub(super) fn usable_neighbors(found: usize, count: u32, rows: u32) -> usize {
    (found as f64 * (1.0 - (1.0 - share_of(count, rows)) / 4.0)).ceil() as usize
}

/// Returns the recall for a search for more neighbours, raised for the same reason.
fn raised_recall(recall: f32, share: f64) -> f32 {
    recall + (1.0 - recall) * (1.0 - share) as f32 / 2.0
}

/// Returns how many answers the second half of the compared candidates may contain: as many as the recall
/// allows to miss.
fn late_of(effort: Effort, k: usize) -> usize {
    match effort {
        Effort::Recall(recall) => ((1.0 - f64::from(recall)) * k as f64 + 1e-6) as usize,
        Effort::Ratio(_) | Effort::Probability { .. } | Effort::SearchList(_) => NEVER_LATE,
    }
}

impl Index {
    /// Returns the plan by which [`Index::search_within`] would search, and the reason as a sentence.
    ///
    /// # Errors
    /// As [`Index::search_within`], for options and sets that do not fit the index.
    pub fn plan_within(
        &self,
        options: &SearchOptions,
        within: &RowSet,
    ) -> Result<(WithinPlan, String), IndexError> {
        self.planned_within(&SearchRequest::new(options)?, within)
            .map(|planned| (planned.plan, planned.reason))
    }

    pub(super) fn planned_within(
        &self,
        request: &SearchRequest,
        set: &RowSet,
    ) -> Result<Planned, IndexError> {
        self.check_set(set)?;
        let options = request.options();
        if let Effort::Probability { .. } = options.effort {
            let reason = "no probability is promised within a set of rows; ask for a recall";
            return Err(self.stored.refusal(reason));
        }
        let (count, rows) = (set.count(), set.rows());
        let wanted = options.k.min(count.max(1) as usize);
        let (params, notes) = self.params(&request.for_neighbors(wanted), None)?;
        let list = params.search_list.min(count.max(1) as usize).max(params.k);
        let params =
            SearchParams { k: params.k.min(count as usize), search_list: list, early: None, ..params };
        let machine = self.loaded.machine();
        let price = |demand: Demand| demand.price_ns(&machine.device());
        let searcher = self.searcher();
        let late = late_of(options.effort, params.k);
        let among = searcher.among(&params, count, &machine);
        let among = among.filter(|_| {
            let list = self.stored.list_among(&params, late, count);
            count > 0 && self.may_place() && self.affords(1, list)
        });
        let first = more_of_all(wanted, share_of(count, rows));
        let more = self.more_params(options, first, set);
        let factor = if self.reads_places() { UNPLACED_FACTOR } else { 1.0 };
        let prices = Prices {
            scan: price(self.scan_demand(count)),
            among: among.map(|among| factor * price(among)),
            after: more.map(|more| price(searcher.estimate(&more, &machine).demand)),
        };
        let (mut plan, mut reason) = choose(count, rows, params.k, &prices);
        if plan == WithinPlan::All && self.reads_all(&searcher.estimate(&params, &machine).demand) {
            plan = WithinPlan::Scan;
            reason = format!(
                "all {rows} rows match, and a search compares all of them: queries share what is read"
            );
        }
        let mut more: Vec<SearchParams> = more.filter(|_| plan == WithinPlan::After).into_iter().collect();
        // Queries with too few answers after these searches use the cheaper of the other plans.
        let last = prices.among.unwrap_or(f64::INFINITY).min(prices.scan);
        while let Some(before) = more.last()
            && let Some(next) = self.more_params(options, before.k.saturating_mul(MORE_TIMES), set)
            && price(searcher.estimate(&next, &machine).demand) < last
        {
            more.push(next);
        }
        Ok(Planned { plan, reason, params, more, has_codes: among.is_some(), late, notes })
    }

    /// Refuses sets with another number of rows, and indexes whose rows have changed since the build.
    pub(super) fn check_set(&self, set: &RowSet) -> Result<(), IndexError> {
        if self.loaded.opened().in_place().is_some() {
            let reason = "an index that is changed in place cannot be searched within a set of rows";
            return Err(self.stored.refusal(reason));
        }
        let changed = |changing: &Changing| {
            let now = changing.now();
            !now.is_empty() || !now.are_rows()
        };
        if self.changing.as_ref().is_some_and(changed) {
            return Err(self.stored.refusal(
                "an index that has changed since its build cannot be searched within a set of rows; build \
                 one of its current vectors",
            ));
        }
        if u64::from(set.rows()) != self.stored.vectors() {
            let (rows, vectors) = (set.rows(), self.stored.vectors());
            let reason = format!("the set is for an index of {rows} rows, this index has {vectors}");
            return Err(self.stored.refusal(reason));
        }
        Ok(())
    }

    /// Returns the parameters of a search for `more` neighbours among all rows; `None` if that is too many,
    /// or does not fit in the memory budget.
    fn more_params(&self, options: &SearchOptions, more: usize, set: &RowSet) -> Option<SearchParams> {
        if more > set.rows() as usize / MOST_SHARE || more > MAX_SEARCH_LIST as usize {
            return None;
        }
        let share = share_of(set.count(), set.rows());
        let scaled = |effort: u32| (f64::from(effort) / share).ceil().min(f64::from(MAX_SEARCH_LIST)) as u32;
        let effort = match options.effort {
            Effort::SearchList(list) => Effort::SearchList(scaled(list).max(more as u32)),
            Effort::Recall(recall) => Effort::Recall(raised_recall(recall, share)),
            effort @ (Effort::Ratio(_) | Effort::Probability { .. }) => effort,
        };
        let options = SearchOptions { k: more, effort, probes: options.probes.map(scaled), ..*options };
        let (params, _) = self.params(&SearchRequest::new(&options).ok()?, None).ok()?;
        let affords = self.affords(1, self.stored.family().planned_list(&params));
        affords.then_some(SearchParams { early: None, ..params })
    }

    /// Returns true if a search reads about all vectors at once, as a scan does. In a scan, the queries share
    /// the reads.
    fn reads_all(&self, search: &Demand) -> bool {
        let all = self.stored.vectors() as f64 * self.loaded.opened().rows().set().row_bytes() as f64;
        search.rounds <= 1.0 && search.reads > 0.0 && search.moved_bytes * ABOUT >= all
    }

    /// Returns about the demand of a scan of `count` rows: the units that contain them, or all units if these
    /// are not known, are read once and compared.
    fn scan_demand(&self, count: u32) -> Demand {
        let (opened, machine) = (self.loaded.opened(), self.loaded.machine());
        let rows = opened.rows();
        let all = rows.units().max(1);
        let sampled = SAMPLED_UNITS.min(all as usize);
        let lengths = spread(all as usize, sampled).map(|unit| f64::from(rows.span(unit as u32).len));
        let bytes = lengths.sum::<f64>() / sampled as f64;
        let known = rows.unit_of(0).is_some() || self.may_keep_located() || opened.positions().is_some();
        let (all, count) = (f64::from(all), f64::from(count));
        // The expected number of distinct units if one is drawn for each row.
        let units = if known { all * -(-count / all).exp_m1() } else { all };
        let row = rows.set().row_bytes() as f64;
        let vectors = (units * bytes / row.max(1.0)).min(self.stored.vectors() as f64);
        Demand {
            rounds: (units / UNITS_IN_FLIGHT).max(1.0),
            reads: units,
            moved_bytes: units * moved_bytes(bytes, 1, machine.profile.granularity),
            // All bytes that are read are checked, which takes about as long as comparing them.
            compute_ns: (units * bytes + count * row) * machine.processor.vector_byte_ns
                + vectors * VECTOR_NS,
        }
    }
}

impl StoredIndex {
    /// Returns the length of the candidate list for which memory is planned, of a search that skips other
    /// rows.
    pub(super) fn list_among(&self, params: &SearchParams, late: usize, count: u32) -> usize {
        let widest = SearchParams {
            search_list: most_of(params.wanted(), late, count),
            // In a family with groups, all of them may be sorted.
            probes: if params.probes > 0 { u32::MAX as usize } else { 0 },
            prune: 0.0,
            ..*params
        };
        self.family().planned_list(&widest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_plan_is_chosen_with_its_reason() {
        let plan = |count, prices: &Prices| choose(count, 1000, 10, prices).0;
        let all = Prices { scan: 3.0, among: Some(2.0), after: Some(1.0) };
        assert_eq!(plan(500, &all), WithinPlan::After);
        assert_eq!(plan(500, &Prices { after: None, ..all }), WithinPlan::Among);
        assert_eq!(plan(500, &Prices { after: Some(2.0), ..all }), WithinPlan::Among);
        assert_eq!(plan(500, &Prices { scan: 1.0, ..all }), WithinPlan::Scan);
        assert_eq!(plan(500, &Prices { among: None, after: None, ..all }), WithinPlan::Scan);
        for (count, expected) in [(0, WithinPlan::Scan), (10, WithinPlan::Scan), (1000, WithinPlan::All)] {
            assert_eq!(plan(count, &all), expected, "{count}");
        }
        let (_, reason) = choose(500, 1000, 10, &Prices { scan: 5e6, among: Some(1e6), after: None });
        assert_eq!(
            reason,
            "500 of 1000 rows match: a search that passes over the others takes about 1000 us, comparing all \
             that match 5000 us"
        );
    }

    #[test]
    fn the_searches_for_more_neighbours_depend_on_the_share_of_the_set() {
        let more = |k, count| more_of_all(k, share_of(count, 1000));
        assert_eq!((more(10, 500), more(10, 100), more(10, 990), more(1, 1)), (39, 227, 13, 7996));
        assert_eq!(more(10, 0), more(10, 1));
        assert_eq!(
            (
                usable_neighbors(40, 500, 1000),
                usable_neighbors(13, 990, 1000),
                usable_neighbors(7, 1, 1 << 31)
            ),
            (35, 13, 6)
        );
        assert_eq!(
            (raised_recall(0.5, 0.5), raised_recall(0.5, 1.0), raised_recall(1.0, 0.1)),
            (0.625, 0.5, 1.0)
        );
        assert_eq!((late_of(Effort::Recall(0.95), 10), late_of(Effort::Recall(0.9), 10)), (0, 1));
        assert_eq!((late_of(Effort::Recall(0.95), 100), late_of(Effort::Recall(1.0), 100)), (5, 0));
        assert_eq!(late_of(Effort::SearchList(50), 10), NEVER_LATE);
    }
}
