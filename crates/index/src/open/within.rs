//! Search within a set of rows of an index, in every family: for example the rows that match a filter.

use super::plan_within::{Planned, usable_neighbors};
use super::pool::{Job, RawQueries};
use super::result::{PhaseTime, UsedParams, collect};
use super::scan::{Pass, SetScan};
use super::{Index, SearchOptions, SearchRequest, SearchResult, thread_count};
use crate::error::IndexError;
use crate::query::within::RowFilter;
use crate::query::{NO_ID, OwnCosts, QueryStats, RowSet, SearchParams, SearchTotals, WithinPlan};
use bathyal_kernels::Neighbor;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::sync::Arc;
use std::time::Instant;

/// About the most neighbours in memory during a search for more neighbours: if there are more, the queries
/// are answered in blocks.
const MOST_NEIGHBORS: usize = 4 << 20;

/// The state of a running search within a set.
struct SetSearch<'a> {
    queries: &'a VectorFile,
    options: &'a SearchOptions,
    set: &'a Arc<RowSet>,
    planned: &'a Planned,
    threads: usize,
    control: Control<'a>,
    result: SearchResult,
}

impl Index {
    /// Searches as [`Index::search`] does, but finds only rows of `within`, a set for as many rows as the
    /// index has. It finds as many as are asked for, or all rows of the set. The recall is that among the
    /// rows of the set, however few these are and wherever they are. The cost model chooses the plan by the
    /// number of these rows and not by the number of queries ([`Index::plan_within`]). A set is prepared
    /// once, for as long as callers use this `Arc` of it.
    ///
    /// If all rows of a set are compared, the queries share the reads, which are counted with the first
    /// query.
    ///
    /// # Errors
    /// As [`Index::search`], and [`IndexError::Parameter`] for a set for another number of rows, and for an
    /// index that has changed since the build.
    pub fn search_within(
        &self,
        queries: &VectorFile,
        options: &SearchOptions,
        within: &Arc<RowSet>,
        control: Control<'_>,
    ) -> Result<SearchResult, IndexError> {
        self.check_process()?;
        let (request, rows) = (SearchRequest::new(options)?, 0..queries.count());
        self.check_queries(queries, rows.clone())?;
        self.wait(control)?;
        let (started, before) = (Instant::now(), self.requests());
        let watched = self.watched(&request);
        let planned = self.planned_within(&watched.request, within)?;
        let mut result = if planned.plan == WithinPlan::All {
            self.search_rows(queries, rows, &request, control)?
        } else {
            let chosen = self.choose(&watched, queries, rows);
            let mut result = self.search_some(queries, options, within, &planned, control)?;
            result.seconds = started.elapsed().as_secs_f64();
            result.requests = self.requests().zip(before).map(|(now, before)| now.since(&before));
            result.notes.clone_from(&planned.notes);
            result.notes.extend(self.trouble.note());
            result.notes.extend(watched.note);
            chosen.add(&result, Some(within));
            if result.k < options.k {
                let what = format!(
                    "asked for {} neighbours, only {} rows of the set are there",
                    options.k, result.k
                );
                result.notes.push(what);
            }
            result
        };
        (result.within, result.within_reason) = (Some(planned.plan), Some(planned.reason));
        Ok(result)
    }

    /// Searches a set that does not contain all rows.
    fn search_some(
        &self,
        queries: &VectorFile,
        options: &SearchOptions,
        set: &Arc<RowSet>,
        planned: &Planned,
        control: Control<'_>,
    ) -> Result<SearchResult, IndexError> {
        let threads = thread_count(options.threads).clamp(1, queries.count().max(1));
        let result = self.without_answers(queries.count(), self.stored.used(&planned.params, threads));
        let mut searching = SetSearch { queries, options, set, planned, threads, control, result };
        let mut rows: Vec<usize> = (0..queries.count()).collect();
        if planned.params.k > 0 {
            for more in &planned.more {
                rows = self.find_after(&rows, *more, &mut searching)?;
            }
            if planned.plan != WithinPlan::Scan && planned.has_codes && !rows.is_empty() {
                rows = self.find_among(&rows, &mut searching)?;
            }
            self.find_by_scan(&rows, &mut searching)?;
        }
        let mut result = searching.result;
        result.own = OwnCosts::new(self.stored.own_counters(), queries.count());
        let costs = result.per_query.iter().enumerate();
        costs.for_each(|(query, cost)| result.own.set(query, cost));
        result.totals = SearchTotals::of(&result.per_query, &result.own);
        Ok(result)
    }

    /// Searches for more neighbours and drops those outside the set. Returns the queries that then have too
    /// few.
    fn find_after(
        &self,
        rows: &[usize],
        more: SearchParams,
        searching: &mut SetSearch<'_>,
    ) -> Result<Vec<usize>, IndexError> {
        let mut short = Vec::new();
        for block in rows.chunks((MOST_NEIGHBORS / more.k.max(1)).max(1)) {
            let raw = RawQueries::from_rows(searching.queries, block);
            let list = self.stored.family().planned_list(&more);
            let threads = self.fitting_threads(searching.threads.min(block.len()), list);
            let concurrency = (threads, searching.options.in_flight);
            let found = self.search_raw(raw, more, concurrency, None, searching.control)?;
            let set = searching.set;
            let used = usable_neighbors(more.k, set.count(), set.rows());
            short.extend(searching.add_answers(block, &found, used, |id| set.has(id)));
        }
        Ok(short)
    }

    /// Finds rows of the set by their codes. Returns the queries that then have too few.
    fn find_among(&self, rows: &[usize], searching: &mut SetSearch<'_>) -> Result<Vec<usize>, IndexError> {
        let SetSearch { set, planned, control, .. } = *searching;
        let params = planned.params;
        let among = RowFilter::new(set.clone(), self.placed(set, control)?, planned.late);
        let list = self.stored.list_among(&params, planned.late, set.count());
        let threads = self.fitting_threads(searching.threads.min(rows.len()), list);
        let in_flight = searching.options.in_flight.unwrap_or_else(|| self.suited_in_flight(&params)).max(1);
        let in_flight = self.affordable_in_flight(in_flight, threads, list)?;
        let raw = RawQueries::from_rows(searching.queries, rows);
        let (context, query_bytes) = (self.contexts.here().clone(), self.stored.family().query_bytes(list));
        let passes = self.passes(&params, raw.count, (threads, searching.options.in_flight));
        let job = Job::new(context, raw, params, (threads, in_flight), control.deadline);
        let job = job.with_query_bytes(query_bytes).with_passes(passes);
        let job = Arc::new(job.with_row_filter(among));
        let answers = self.answers(&job, threads, control)?;
        let counters = self.stored.own_counters();
        let found = collect(answers, (rows.len(), counters), self.stored.used(&params, threads), 0.0)?;
        Ok(searching.add_answers(rows, &found, found.k, |id| id != NO_ID))
    }

    /// Compares all rows of the set.
    fn find_by_scan(&self, rows: &[usize], searching: &mut SetSearch<'_>) -> Result<(), IndexError> {
        if rows.is_empty() {
            return Ok(());
        }
        let (raw, k) = (RawQueries::from_rows(searching.queries, rows), searching.planned.params.k);
        let (set, control) = (searching.set, searching.control);
        // The number of queries does not limit the threads: the rows are divided among them.
        let threads = thread_count(searching.options.threads).max(1);
        let (mut started, mut short) = (Instant::now(), false);
        let scan = SetScan { k, set, whole: false, threads, control, pace: None, progress: &Silent };
        self.scan_set(&raw, &scan, |first, pass| {
            let Pass { nearest, mut cost } = pass;
            let ns = started.elapsed().as_nanos() as u64;
            started = Instant::now();
            for (near, row) in nearest.iter().zip(&rows[first..]) {
                short |= near.len() < k;
                searching.set_answer(*row, near.iter().copied(), ns, &cost);
                self.contexts.here().counters.count_query(ns, &cost);
                // The shared reads are counted with the first query only.
                cost = QueryStats { full_distances: cost.full_distances, ..QueryStats::default() };
            }
        })?;
        if short {
            return Err(self
                .loaded
                .opened()
                .rows()
                .set()
                .damaged("its vectors", "some are at no distance that is a number"));
        }
        Ok(())
    }

    /// Returns a result with space for the answers to `count` queries.
    fn without_answers(&self, count: usize, used: UsedParams) -> SearchResult {
        let UsedParams { k, search_list, probes, threads } = used;
        SearchResult {
            k,
            ids: vec![NO_ID; count * k],
            distances: vec![f32::INFINITY; count * k],
            latencies_ns: vec![0; count],
            per_query: vec![QueryStats::default(); count],
            own: OwnCosts::default(),
            totals: SearchTotals::default(),
            seconds: 0.0,
            phases: Vec::new(),
            search_list,
            probes,
            threads,
            requests: None,
            within: None,
            within_reason: None,
            notes: Vec::new(),
            unlike_note: None,
        }
    }
}

impl SetSearch<'_> {
    /// Sets the answers to the queries `rows`: of the first `used` neighbours of each, those that `admits`.
    /// Returns the queries with too few answers.
    fn add_answers(
        &mut self,
        rows: &[usize],
        found: &SearchResult,
        used: usize,
        admits: impl Fn(u32) -> bool,
    ) -> Vec<usize> {
        let (k, mut short, mut near) = (self.planned.params.k, Vec::new(), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            let all = at * found.k..at * found.k + used.min(found.k);
            let pairs = found.ids[all.clone()].iter().zip(&found.distances[all]);
            let pairs = pairs.filter(|(id, _)| admits(**id)).take(k);
            near.clear();
            near.extend(pairs.map(|(id, distance)| Neighbor { distance: *distance, id: *id }));
            if near.len() < k {
                short.push(*row);
            }
            self.set_answer(*row, near.iter().copied(), found.latencies_ns[at], &found.per_query[at]);
        }
        for PhaseTime { phase, ns } in &found.phases {
            match self.result.phases.iter_mut().find(|known| known.phase == *phase) {
                Some(known) => known.ns += ns,
                None => self.result.phases.push(PhaseTime { phase, ns: *ns }),
            }
        }
        short
    }

    /// Sets the answer to query `row`, and adds its cost and its time.
    fn set_answer(&mut self, row: usize, near: impl Iterator<Item = Neighbor>, ns: u64, cost: &QueryStats) {
        let first = row * self.result.k;
        for (at, near) in (first..first + self.result.k).zip(near) {
            (self.result.ids[at], self.result.distances[at]) = (near.id, near.distance);
        }
        self.result.latencies_ns[row] += ns;
        self.result.per_query[row].add(cost);
    }
}
