//! Finds the effort at which an index reaches the requested recall.

use bathyal_console::Failure;
use bathyal_index::families::spann::SpannEntry;
use bathyal_index::open::MAX_SEARCH_LIST;
use bathyal_index::{Effort, Index, SearchOptions, SearchTotals};
use bathyal_tier::Control;

use crate::second_tier::arguments::TrialArguments;
use crate::second_tier::subjects::IndexShape;
use crate::workload::{QuerySet, Workload};
use bathyal_vectors::groundtruth::recall;

/// Resolution of the recall requested from a calibration: thousandths.
const FINEST: u32 = 1000;

/// Queries whose phases are timed: a few dozen give stable shares of time.
const TIMED_QUERIES: usize = 50;

/// Arguments and data that all measurements of a run share.
#[derive(Clone, Copy)]
pub(crate) struct Trial<'a> {
    pub(crate) arguments: &'a TrialArguments,
    pub(crate) work: &'a Workload,
    /// Vectors that a query of a graph reads at once.
    pub(crate) beam_width: u32,
    pub(crate) control: Control<'a>,
}

/// The parameter that is varied until the recall is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EffortParameter {
    /// The length of the candidate list.
    SearchList,
    /// The number of posting lists.
    Probes,
    /// The recall requested from the index's calibration, in thousandths; the calibration chooses groups and
    /// candidate list.
    Calibration,
}

/// An effort, and the recall and counters that it gives.
#[derive(Clone)]
pub(crate) struct MeasuredEffort {
    pub(crate) parameter: EffortParameter,
    pub(crate) setting: u32,
    /// The candidate list that was used.
    pub(crate) search_list: u32,
    pub(crate) recall: f64,
    pub(crate) totals: SearchTotals,
}

impl Trial<'_> {
    /// Returns the number of search threads.
    pub(crate) fn threads(&self) -> usize {
        match self.arguments.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        }
    }

    /// Returns the options of a search with an effort and a number of queries in flight.
    pub(crate) fn options(
        &self,
        index: &Index,
        parameter: EffortParameter,
        setting: u32,
        in_flight: u32,
    ) -> SearchOptions {
        let k = self.arguments.k;
        let (effort, probes) = match parameter {
            EffortParameter::SearchList => (Effort::SearchList(setting), None),
            EffortParameter::Probes => (Effort::SearchList(k), Some(setting)),
            EffortParameter::Calibration => (Effort::Recall(setting as f32 / FINEST as f32), None),
        };
        SearchOptions {
            k: k as usize,
            effort,
            probes,
            // Only graphs have beams.
            beam_width: (index.manifest().family == bathyal_index::families::graph::FAMILY.name)
                .then_some(self.beam_width),
            threads: self.arguments.threads,
            in_flight: Some(in_flight as usize),
            ..SearchOptions::default()
        }
    }

    /// Searches once with an effort.
    pub(crate) fn measure_effort(
        &self,
        index: &Index,
        query_set: &QuerySet,
        parameter: EffortParameter,
        setting: u32,
    ) -> Result<MeasuredEffort, Failure> {
        let options = self.options(index, parameter, setting, self.arguments.in_flight);
        let found = index.search(&query_set.queries, &options, self.control)?;
        let recall = recall(&query_set.exact, &found.ids, found.k, query_set.queries.count())?;
        Ok(MeasuredEffort {
            parameter,
            setting,
            search_list: found.search_list,
            recall,
            totals: found.totals,
        })
    }

    /// Returns the share of a query's compute time that it spends on finding what to read. A few queries are
    /// timed, one at a time; waiting does not count as computing.
    pub(crate) fn navigate_share(&self, index: &Index, effort: &MeasuredEffort) -> Result<f64, Failure> {
        let options = self.options(index, effort.parameter, effort.setting, 1);
        let (mut navigate, mut computing) = (0, 0);
        for row in 0..self.work.all.queries.count().min(TIMED_QUERIES) {
            let explained = index.explain(&self.work.all.queries, row, &options, self.control)?;
            let phase_ns = |name: &str| {
                explained.phases.iter().filter(|phase| phase.phase == name).map(|phase| phase.ns).sum::<u64>()
            };
            navigate += phase_ns("navigate");
            computing += explained.phases.iter().map(|phase| phase.ns).sum::<u64>() - phase_ns("read");
        }
        Ok(navigate as f64 / computing.max(1) as f64)
    }

    /// Finds the least effort at which searches with `query_set` reach the requested recall. It tries efforts
    /// near `hint` first, if `hint` has the same parameter.
    pub(crate) fn least_effort(
        &self,
        index: &Index,
        shape: IndexShape,
        query_set: &QuerySet,
        hint: Option<&MeasuredEffort>,
    ) -> Result<MeasuredEffort, Failure> {
        let k = (self.arguments.k as usize).min(index.len()) as u32;
        let (parameter, first, most) = match shape {
            IndexShape::Graph { .. } => {
                (EffortParameter::SearchList, k, MAX_SEARCH_LIST.min(index.len() as u32).max(k))
            }
            IndexShape::Lists { .. } => (
                EffortParameter::Probes,
                1,
                SpannEntry::read(index.manifest()).map_or(1, |spann| spann.list_count),
            ),
            IndexShape::Codes => (EffortParameter::Calibration, FINEST / 2, FINEST),
        };
        let target = f64::from(self.arguments.recall);
        let hint = hint.filter(|hint| hint.parameter == parameter).map(|hint| hint.setting);
        // The effort for a few queries is close to that for many.
        let few = &self.work.few;
        let pilot = match hint {
            None if query_set.queries.count() > 2 * few.queries.count() => {
                let run = |setting| self.measure_effort(index, few, parameter, setting);
                let found = least(first, most, None, run, |effort| effort.recall >= target)?;
                Some(found.unwrap_or_else(|best| best).setting)
            }
            _ => hint,
        };
        let run = |setting| self.measure_effort(index, query_set, parameter, setting);
        match least(first, most, pilot, run, |effort| effort.recall >= target)? {
            Ok(effort) => Ok(effort),
            Err(best) => Err(Failure::new(format!(
                "{}: reaches at most recall {:.4}, but {target} is requested; lower --recall or leave this \
                 index out",
                index.path().display(),
                best.recall
            ))),
        }
    }
}

/// Returns the result of `run` at the least number of `first..=most` whose result is `enough`, or `Err` with
/// the result at `most` if none is. It searches in growing steps from `hint`, or from `first`, and then by
/// bisection.
fn least<T>(
    first: u32,
    most: u32,
    hint: Option<u32>,
    mut run: impl FnMut(u32) -> Result<T, Failure>,
    enough: impl Fn(&T) -> bool,
) -> Result<Result<T, T>, Failure> {
    let mut at = hint.unwrap_or(first).clamp(first, most);
    let mut step = if hint.is_some() { 1 } else { first.max(1) };
    // Numbers below `first` count as not enough.
    let mut low = first.saturating_sub(1);
    let mut high = run(at)?;
    if enough(&high) {
        while at > first {
            let below = at.saturating_sub(step).max(first);
            let found = run(below)?;
            if !enough(&found) {
                low = below;
                break;
            }
            (high, at, step) = (found, below, step.saturating_mul(2));
        }
    } else {
        while !enough(&high) {
            if at >= most {
                return Ok(Err(high));
            }
            low = at;
            at = at.saturating_add(step).min(most);
            step = step.saturating_mul(2);
            high = run(at)?;
        }
    }
    while at - low > 1 {
        let middle = low + (at - low) / 2;
        let found = run(middle)?;
        if enough(&found) { (high, at) = (found, middle) } else { low = middle }
    }
    Ok(Ok(high))
}

#[cfg(test)]
mod tests {
    use super::least;

    #[test]
    fn the_least_sufficient_number_is_found_with_and_without_a_hint() {
        for (first, most) in [(1_u32, 1_u32), (1, 1000), (10, 500), (500, 999)] {
            for answer in first..=most {
                for hint in
                    [None, Some(first), Some(answer), Some(answer + 1), Some(answer.saturating_sub(3))]
                {
                    let found = least(first, most, hint, Ok, |n| *n >= answer).unwrap();
                    assert_eq!(found, Ok(answer), "{first} {most} {hint:?}");
                }
            }
            assert_eq!(least(first, most, None, Ok, |_| false).unwrap(), Err(most));
        }
    }

    #[test]
    fn an_exact_hint_takes_two_runs() {
        let mut runs = 0;
        let count_runs = |n| {
            runs += 1;
            Ok(n)
        };
        assert_eq!(least(1, 1000, Some(77), count_runs, |n| *n >= 77).unwrap(), Ok(77));
        assert_eq!(runs, 2);
    }
}
