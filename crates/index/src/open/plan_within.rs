//! How the rows of a set are searched: by comparing all of them, by passing over the others, or by finding more and leaving
//! some out. Which is cheapest is asked of the cost model, for one query, so that a batch has the answers of its queries.

use super::Index;
use super::change::Changing;
use super::options::{Effort, MAX_SEARCH_LIST, SearchOptions};
use crate::cost::demand::{Demand, moved_bytes};
use crate::error::IndexError;
use crate::query::within::{NEVER_LATE, most_of};
use crate::query::{RowSet, SearchParams, WithinPlan, spread};

/// Units whose lengths are looked at to know how long they are in the mean.
const SAMPLED_UNITS: usize = 16;
/// Units that are read at the same time, about.
const UNITS_IN_FLIGHT: f64 = 64.0;
/// Nanoseconds of the processor for a vector that is told, besides its bytes.
const TELLING_NS: f64 = 20.0;
/// Of all vectors, a search that leaves rows out finds one in so many at most: with more it is a scan that costs more.
const MOST_SHARE: usize = 4;

/// How many times as many neighbours a search looks for whose first has found too few of the set.
const MORE_TIMES: usize = 4;

/// How many times as much a search by codes is taken to cost where somebody has to find out first whose codes lie where: most
/// sets of an index that few rows were deleted from are searched without.
const DEARER_UNPLACED: f64 = 2.0;

/// A plan, and what it takes.
pub(super) struct Planned {
    pub(super) plan: WithinPlan,
    /// A sentence.
    pub(super) reason: String,
    /// Of a search for as many neighbours as are wanted.
    pub(super) params: SearchParams,
    /// Of the searches that find more, if that is the plan: each is for queries that had too few from the one before.
    pub(super) more: Vec<SearchParams>,
    /// Whether codes lead to rows of the set.
    pub(super) has_codes: bool,
    /// Answers that may come late ([`Stages`](crate::query::within::Stages)).
    pub(super) late: usize,
    pub(super) notes: Vec<String>,
}

/// Bytes that differ by no more than this factor are about as many.
const ABOUT: f64 = 1.25;

/// Nanoseconds of each plan that is possible.
#[derive(Debug, Clone, Copy)]
struct Prices {
    scan: f64,
    among: Option<f64>,
    after: Option<f64>,
}

/// The cheapest plan for a set of `count` of `rows` rows, of which `k` are wanted, with the reason in a sentence. Of equal prices
/// the surer answer is taken.
fn choose(count: u32, rows: u32, k: usize, prices: &Prices) -> (WithinPlan, String) {
    let of = format!("{count} of {rows} rows match");
    let took = |ns: f64| format!("{:.0} us", ns / 1e3);
    if count == 0 {
        return (WithinPlan::Scan, "no row matches".into());
    }
    if count == rows {
        return (WithinPlan::All, format!("all {rows} rows match, so that it is a plain search"));
    }
    if count as usize <= k {
        return (WithinPlan::Scan, format!("{of}, no more than are asked for: all are compared"));
    }
    let Prices { scan, among, after } = *prices;
    let searches = among.into_iter().chain(after).fold(f64::INFINITY, f64::min);
    if scan <= searches {
        let reason = format!("{of}: comparing all of them takes about {}", took(scan));
        let reason = if searches.is_finite() {
            format!("{reason}, a search {}", took(searches))
        } else {
            format!("{reason}, and no search knows which they are")
        };
        return (WithinPlan::Scan, reason);
    }
    if let Some(among) = among.filter(|among| *among <= searches) {
        let reason = format!(
            "{of}: a search that passes over the others takes about {}, comparing all that match {}",
            took(among),
            took(scan)
        );
        return (WithinPlan::Among, reason);
    }
    let reason = format!(
        "{of}: a search that leaves the others out afterwards takes about {}, comparing all that match {}",
        took(searches),
        took(scan)
    );
    (WithinPlan::After, reason)
}

/// The share of all rows that a set has.
fn share_of(count: u32, rows: u32) -> f64 {
    f64::from(count.max(1)) / f64::from(rows.max(1))
}

/// Neighbours to look for among all rows, so that `k` of them are of a set of this share: as many as hold `k` in the mean if the set
/// is spread evenly, and three standard deviations more.
fn more_of_all(k: usize, share: f64) -> usize {
    let (k, others) = (k as f64, 1.0 - share);
    ((k + 3.0 * (k * others).sqrt() + 3.0 * others + 1.0) / share).ceil() as usize
}

/// How many of the first of `found` neighbours answers are taken from, for a set of this share. Of the farthest of what a search has
/// found it misses more than the recall of all says, and those of a set may be among these.
pub(super) fn sure_of(found: usize, count: u32, rows: u32) -> usize {
    (found as f64 * (1.0 - (1.0 - share_of(count, rows)) / 4.0)).ceil() as usize
}

/// The recall of a search that finds more, for the same reason.
fn surer(recall: f32, share: f64) -> f32 {
    recall + (1.0 - recall) * (1.0 - share) as f32 / 2.0
}

/// Answers that the second half of what is looked at may bring: as many as the recall allows to miss.
fn late_of(effort: Effort, k: usize) -> usize {
    match effort {
        Effort::Recall(recall) => ((1.0 - f64::from(recall)) * k as f64 + 1e-6) as usize,
        Effort::Ratio(_) | Effort::SearchList(_) => NEVER_LATE,
    }
}

impl Index {
    /// How [`Index::search_within`] would search, and why, in a sentence.
    ///
    /// # Errors
    /// As [`Index::search_within`], for options and sets that do not fit the index.
    pub fn plan_within(
        &self,
        options: &SearchOptions,
        within: &RowSet,
    ) -> Result<(WithinPlan, String), IndexError> {
        self.planned_within(options, within).map(|planned| (planned.plan, planned.reason))
    }

    pub(super) fn planned_within(
        &self,
        options: &SearchOptions,
        set: &RowSet,
    ) -> Result<Planned, IndexError> {
        self.check_set(set)?;
        let (count, rows) = (set.count(), set.rows());
        let wanted = options.k.min(count.max(1) as usize);
        let (params, notes) = self.params(&SearchOptions { k: wanted, ..*options }, None)?;
        let list = params.search_list.min(count.max(1) as usize).max(params.k);
        let params =
            SearchParams { k: params.k.min(count as usize), search_list: list, early: None, ..params };
        let machine = self.machine();
        let price = |demand: Demand| demand.price_ns(&machine.device());
        let searcher = self.searcher();
        let late = late_of(options.effort, params.k);
        let among = searcher.among(&params, count, &machine);
        let among = among.filter(|_| {
            let list = self.list_among(&params, late, count);
            count > 0 && self.may_place() && self.affordable_in_flight(1, 1, list).is_ok()
        });
        let first = more_of_all(wanted, share_of(count, rows));
        let more = self.more_params(options, first, set);
        let dearer = if self.reads_places() { DEARER_UNPLACED } else { 1.0 };
        let prices = Prices {
            scan: price(self.scan_demand(count)),
            among: among.map(|among| dearer * price(among)),
            after: more.map(|more| price(searcher.demand(&more, &machine))),
        };
        let (mut plan, mut reason) = choose(count, rows, params.k, &prices);
        if plan == WithinPlan::All && self.reads_all(&searcher.demand(&params, &machine)) {
            plan = WithinPlan::Scan;
            reason = format!(
                "all {rows} rows match, and a search compares all of them: queries share what is read"
            );
        }
        let mut more: Vec<SearchParams> = more.filter(|_| plan == WithinPlan::After).into_iter().collect();
        // What is left then is the surer way.
        let last = prices.among.unwrap_or(f64::INFINITY).min(prices.scan);
        while let Some(before) = more.last()
            && let Some(next) = self.more_params(options, before.k.saturating_mul(MORE_TIMES), set)
            && price(searcher.demand(&next, &machine)) < last
        {
            more.push(next);
        }
        Ok(Planned { plan, reason, params, more, has_codes: among.is_some(), late, notes })
    }

    /// The candidate list that memory is planned for of a search that passes over other rows.
    pub(super) fn list_among(&self, params: &SearchParams, late: usize, count: u32) -> usize {
        let widest = SearchParams {
            search_list: most_of(params.wanted(), late, count),
            // All groups may be put in order, of a family that has any.
            probes: if params.probes > 0 { u32::MAX as usize } else { 0 },
            prune: 0.0,
            ..*params
        };
        self.stored.planned_list(&widest)
    }

    /// Refuses sets of other rows, and indexes whose rows have changed since they were built.
    fn check_set(&self, set: &RowSet) -> Result<(), IndexError> {
        let refuse =
            |what: String| Err(IndexError::Parameter(format!("{}: {what}", self.directory.display())));
        if self.opened.in_place().is_some() {
            return refuse(
                "searches within a set of rows are of indexes that stay as they were built".into(),
            );
        }
        let changed = |changing: &Changing| {
            let now = changing.now();
            !now.is_empty() || !now.are_rows()
        };
        if self.changing.as_ref().is_some_and(changed) {
            return refuse(
                "searches within a set of rows are of indexes that stay as they were built; build one of the vectors that \
                 there are now"
                    .into(),
            );
        }
        if u64::from(set.rows()) != self.manifest.vectors {
            return refuse(format!(
                "the set is of {} rows, the index has {}",
                set.rows(),
                self.manifest.vectors
            ));
        }
        Ok(())
    }

    /// The effort of a search that finds `more` of all rows; `None` where there is none, or none that memory allows.
    fn more_params(&self, options: &SearchOptions, more: usize, set: &RowSet) -> Option<SearchParams> {
        if more > set.rows() as usize / MOST_SHARE || more > MAX_SEARCH_LIST as usize {
            return None;
        }
        let share = share_of(set.count(), set.rows());
        let scaled = |effort: u32| (f64::from(effort) / share).ceil().min(f64::from(MAX_SEARCH_LIST)) as u32;
        let effort = match options.effort {
            Effort::SearchList(list) => Effort::SearchList(scaled(list).max(more as u32)),
            Effort::Recall(recall) => Effort::Recall(surer(recall, share)),
            Effort::Ratio(ratio) => Effort::Ratio(ratio),
        };
        let options = SearchOptions { k: more, effort, probes: options.probes.map(scaled), ..*options };
        let (params, _) = self.params(&options, None).ok()?;
        self.affordable_in_flight(1, 1, self.stored.planned_list(&params)).ok()?;
        Some(SearchParams { early: None, ..params })
    }

    /// Whether a search reads about all vectors at once, as a scan does, of which queries share what is read.
    fn reads_all(&self, search: &Demand) -> bool {
        let all = self.manifest.vectors as f64 * self.opened.rows().set().row_bytes() as f64;
        search.rounds <= 1.0 && search.reads > 0.0 && search.moved_bytes * ABOUT >= all
    }

    /// What a scan of `count` rows asks for, about: what holds them is read once, wherever that is known, and compared.
    fn scan_demand(&self, count: u32) -> Demand {
        let (rows, machine) = (self.opened.rows(), self.machine());
        let all = rows.units().max(1);
        let sampled = SAMPLED_UNITS.min(all as usize);
        let lengths = spread(all as usize, sampled).map(|unit| f64::from(rows.span(unit as u32).len));
        let bytes = lengths.sum::<f64>() / sampled as f64;
        let known = rows.unit_of(0).is_some() || self.may_note() || self.opened.positions().is_some();
        let (all, count) = (f64::from(all), f64::from(count));
        // Of units that are drawn once for each row so many are drawn at all.
        let units = if known { all * -(-count / all).exp_m1() } else { all };
        let row = rows.set().row_bytes() as f64;
        let told = (units * bytes / row.max(1.0)).min(self.manifest.vectors as f64);
        Demand {
            rounds: (units / UNITS_IN_FLIGHT).max(1.0),
            reads: units,
            moved_bytes: units * moved_bytes(bytes, 1, machine.profile.granularity),
            // All that is read is checked, which takes about as long as comparing it.
            compute_ns: (units * bytes + count * row) * machine.processor.vector_byte_ns + told * TELLING_NS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_plan_is_taken_and_says_why() {
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
            "500 of 1000 rows match: a search that passes over the others takes about 1000 us, comparing all that match 5000 us"
        );
    }

    #[test]
    fn more_neighbours_hold_those_of_a_set() {
        let more = |k, count| more_of_all(k, share_of(count, 1000));
        assert_eq!((more(10, 500), more(10, 100), more(10, 990), more(1, 1)), (39, 227, 13, 7996));
        assert_eq!(more(10, 0), more(10, 1));
        assert_eq!((sure_of(40, 500, 1000), sure_of(13, 990, 1000), sure_of(7, 1, 1 << 31)), (35, 13, 6));
        assert_eq!((surer(0.5, 0.5), surer(0.5, 1.0), surer(1.0, 0.1)), (0.625, 0.5, 1.0));
        assert_eq!((late_of(Effort::Recall(0.95), 10), late_of(Effort::Recall(0.9), 10)), (0, 1));
        assert_eq!((late_of(Effort::Recall(0.95), 100), late_of(Effort::Recall(1.0), 100)), (5, 0));
        assert_eq!(late_of(Effort::SearchList(50), 10), NEVER_LATE);
    }
}
