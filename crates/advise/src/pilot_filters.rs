//! Searches of a pilot among a share of its rows, as under a filter.
//!
//! The rows are drawn evenly. A small share of a pilot has so few rows that comparing all of them is the
//! cheapest, where a whole index would be searched. So both are measured: a scan of the share itself, if the
//! pilot's own plan is one, and a search among the least larger share for which it is not. The work of a
//! search among rows hardly depends on their share, because it looks at as many of them as a search without a
//! filter; that of a search which drops other rows afterwards grows as the share falls.

use crate::pilot::{PilotInputs, Timing, rounds};
use crate::pilot_counters::PilotCounters;
use crate::pilot_place::OpenPilot;
use bathyal_index::{Index, IndexError, RowSet, SearchOptions, WithinPlan};
use bathyal_tier::{Control, process_ns};
use bathyal_vectors::VectorFile;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Instant;

/// The most queries of a measurement under a filter.
const FILTER_QUERIES: usize = 200;
/// Queries that compare all rows of a share. They come one by one, since queries of a batch share its reads.
const SCAN_QUERIES: usize = 8;
/// Queries that one search answers before the next check whether the work is to end.
const QUERIES_A_SEARCH: usize = 50;
/// Factor between the shares that are tried until one is searched and not scanned.
const WIDER: f64 = 2.0;

/// The searches of a pilot under a filter.
#[derive(Debug, Clone, Copy)]
pub struct PilotFilter {
    /// The share of the rows that match.
    pub share: f64,
    /// A search of these rows that is no scan: its counters at this share. `None` if the pilot is too small
    /// for one.
    pub search: Option<PilotCounters>,
    /// True if this search looks at no other rows, and false if it drops them afterwards.
    pub is_among: bool,
    /// A scan of these rows, or the part of a scan of more that is theirs; `None` if the pilot's cheapest
    /// plan is another one.
    pub scan: Option<PilotCounters>,
}

impl PilotInputs<'_> {
    /// Measures searches of an open pilot for each share of the request.
    ///
    /// # Errors
    /// Those of searches, and cancellation.
    pub(crate) fn filters(
        &self,
        pilot: &OpenPilot,
        options: &SearchOptions,
        timing: Timing,
    ) -> Result<Vec<PilotFilter>, IndexError> {
        let shares = self.request.shares().into_iter();
        shares.map(|share| self.filter(pilot, options, share, timing)).collect()
    }

    fn filter(
        &self,
        pilot: &OpenPilot,
        options: &SearchOptions,
        share: f64,
        timing: Timing,
    ) -> Result<PilotFilter, IndexError> {
        let index = &pilot.index;
        let rows = index.len().max(1) as f64;
        let (mut scan, mut tried) = (None, share);
        while tried < 1.0 {
            let set = Arc::new(self.rows_of_share(index.len(), tried));
            let plan = index.plan_within(options, &set)?.0;
            match plan {
                WithinPlan::All => break,
                WithinPlan::Scan if tried > share => {}
                WithinPlan::Scan => {
                    let counters = self.within(pilot, options, (&set, plan), timing)?;
                    // The set has about as many rows as the share, or more.
                    scan = Some(counters.times(share * rows / (set.count() as f64).max(1.0)));
                }
                plan => {
                    let counters = self.within(pilot, options, (&set, plan), timing)?;
                    let factor = if plan == WithinPlan::After { tried / share } else { 1.0 };
                    let is_among = plan == WithinPlan::Among;
                    return Ok(PilotFilter { share, search: Some(counters.times(factor)), is_among, scan });
                }
            }
            tried *= WIDER;
        }
        Ok(PilotFilter { share, search: None, is_among: false, scan })
    }

    /// Draws a share of `count` rows. The same rows of a smaller pilot are in the set of a larger one. A
    /// share of fewer rows than neighbours that are wanted has as many of these: they are compared in any
    /// index.
    fn rows_of_share(&self, count: usize, share: f64) -> RowSet {
        let (rows, k) = (count as u32, self.request.options().k.min(count));
        if share * count as f64 <= k as f64 {
            return RowSet::from_ids(rows, (0..k).map(|at| (at * count / k) as u32));
        }
        let mut random = StdRng::seed_from_u64(self.request.options().seed);
        RowSet::from_ids(rows, (0..rows).filter(|_| random.random_bool(share)))
    }

    /// Searches the first of the queries among the rows of a set, by its plan.
    fn within(
        &self,
        pilot: &OpenPilot,
        options: &SearchOptions,
        (set, plan): (&Arc<RowSet>, WithinPlan),
        timing: Timing,
    ) -> Result<PilotCounters, IndexError> {
        let (most, at_once) = match plan {
            WithinPlan::Scan => (SCAN_QUERIES, 1),
            _ => (FILTER_QUERIES, QUERIES_A_SEARCH),
        };
        let count = self.sample.queries.count().min(most);
        let parts =
            (0..count).step_by(at_once).map(|first| self.queries(first..(first + at_once).min(count)));
        let parts: Vec<VectorFile> = parts.collect::<Result<_, _>>()?;
        let search =
            |index: &Index, part: &VectorFile, options: &SearchOptions| match self.progress.cancelled() {
                true => Err(IndexError::Cancelled),
                false => index.search_within(part, options, set, Control::default()),
            };
        // The first search prepares the set, as a repeated filter finds it.
        let (first, alone) =
            (self.queries(0..1.min(count))?, SearchOptions { in_flight: Some(1), ..*options });
        search(&pilot.index, &first, &alone)?;
        let found = parts.iter().map(|part| {
            let found = search(&pilot.index, part, &alone)?;
            let again = |options: &SearchOptions| Ok(search(&pilot.index, part, options)?.totals);
            let rounds = rounds(&pilot.index, &alone, &found, again)? as f64 / part.count().max(1) as f64;
            let counters = PilotCounters { rounds, ..PilotCounters::of(&found, part.count()) };
            Ok((counters, part.count() as f64 / count.max(1) as f64))
        });
        let counters = PilotCounters::mean(&found.collect::<Result<Vec<_>, IndexError>>()?);
        if timing == Timing::Untimed {
            return Ok(counters);
        }
        // A node or a bucket of this process takes processor time of its own.
        let in_memory = pilot.in_memory.as_ref();
        let index = match in_memory.map(|index| index.plan_within(options, set)).transpose()? {
            Some((same, _)) if same == plan => in_memory.unwrap_or(&pilot.index),
            _ => &pilot.index,
        };
        search(index, &first, options)?;
        let (before, started) = (process_ns(), Instant::now());
        parts.iter().try_for_each(|part| search(index, part, options).map(drop))?;
        let used = process_ns().saturating_sub(before);
        let spent = if used > 0 { used as f64 } else { started.elapsed().as_nanos() as f64 };
        Ok(PilotCounters { compute_ns: spent / count.max(1) as f64, ..counters })
    }
}
