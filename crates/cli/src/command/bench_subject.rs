//! An index that `bench` measures.

use std::path::Path;
use std::time::Instant;

use bathyal_console::{Console, Failure, Kind};
use bathyal_index::{Index, SearchOptions};
use bathyal_tier::{Control, process_ns};
use bathyal_vectors::{IdFile, VectorFile};

use super::bench_sweep::Sweep;
use super::exact::Judge;
use super::measurement::{Measurement, Spent, open_one_of};
use super::not_counted::NotCounted;
use crate::arguments::SearchSettings;

/// The default sweep ends at this recall, beyond which more effort gains nothing.
const ENOUGH_RECALL: f64 = 0.999;

/// The queries of all measurements, and how they are answered.
#[derive(Clone, Copy)]
pub(super) struct Questions<'a> {
    pub queries: &'a VectorFile,
    pub exact: &'a IdFile,
    pub settings: &'a SearchSettings,
    pub control: Control<'a>,
}

/// An open index with the measurements so far.
pub(super) struct Subject {
    /// The path or the address, as the user wrote it.
    pub name: String,
    pub index: Index,
    open_seconds: f64,
    /// The options of each step.
    steps: Vec<SearchOptions>,
    /// A measurement for each step so far.
    pub points: Vec<Measurement>,
}

impl Subject {
    /// Opens the index at `path`, one of `all`, and waits until it has arrived.
    pub(super) fn open(
        path: &Path,
        all: &[&Path],
        (settings, sweep): (&SearchSettings, &Sweep<'_>),
        console: &Console,
    ) -> Result<Subject, Failure> {
        let began = Instant::now();
        let index = open_one_of(path, all, settings, &sweep.searches, console)?;
        let open_seconds = began.elapsed().as_secs_f64();
        index.wait(Control { cancel: Some(console.interrupt().flag()), deadline: None })?;
        let (name, steps) = (path.display().to_string(), sweep.options(&index)?);
        Ok(Subject { name, index, open_seconds, steps, points: Vec::new() })
    }

    /// Refuses an index whose answers cannot be compared with those of `first`.
    pub(super) fn check_comparable(&self, first: &Subject) -> Result<(), Failure> {
        let refuse = |what: &str, own: String, its: String| {
            let message = format!(
                "{}: its {what} is {own}, that of {} is {its}; compare indexes of the same vectors",
                self.name, first.name
            );
            Err(Failure::of(Kind::InvalidArgument, message))
        };
        let (own, its) = (&self.index, &first.index);
        if own.metric() != its.metric() {
            return refuse("metric", own.metric().to_string(), its.metric().to_string());
        }
        if own.dim() != its.dim() {
            return refuse("dim", own.dim().to_string(), its.dim().to_string());
        }
        if own.len() != its.len() {
            return refuse("number of vectors", own.len().to_string(), its.len().to_string());
        }
        Ok(())
    }

    /// Returns the number of steps of its sweep.
    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Returns the measurement of one run of step `step`; `None` if its sweep has ended before.
    pub(super) fn run(&self, step: usize, questions: &Questions<'_>) -> Result<Option<Measurement>, Failure> {
        let Some(options) = self.steps.get(step) else { return Ok(None) };
        let Questions { queries, exact, settings, control } = *questions;
        let (index, count) = (&self.index, queries.count());
        let before = process_ns();
        let found = index.search(queries, options, control)?;
        let processor_ns = process_ns().saturating_sub(before);
        let spent = Spent { open_seconds: self.open_seconds, processor_ns };
        let mut judge = Judge::new(exact, index.metric());
        judge.add(0..count, &found.ids, &found.distances, found.k)?;
        let shape = (found.k, found.threads);
        let not_counted = NotCounted::of(index, &settings.tier, queries, count, shape, Some(exact));
        Ok(Some(Measurement::of(index, settings, options, &found, judge.quality(), spent, not_counted)))
    }

    /// Keeps the run of median throughput of a step. Ends a usual sweep where more effort gains nothing.
    pub(super) fn finish_step(&mut self, runs: Vec<Measurement>, sweep: &Sweep<'_>) {
        self.points.extend(median(runs));
        let reached = self.points.last().and_then(|point| point.quality.recall);
        if sweep.is_usual() && reached.is_some_and(|recall| recall >= ENOUGH_RECALL) {
            self.steps.truncate(self.points.len());
        }
    }
}

/// Returns the run of median throughput.
fn median(mut runs: Vec<Measurement>) -> Option<Measurement> {
    runs.sort_by(|a, b| a.qps.total_cmp(&b.qps));
    let middle = runs.len() / 2;
    (!runs.is_empty()).then(|| runs.swap_remove(middle))
}
