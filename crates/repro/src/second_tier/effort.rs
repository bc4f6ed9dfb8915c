//! How hard an index has to be searched for the recall asked for.

use bathyal_console::Failure;
use bathyal_index::families::spann::SpannEntry;
use bathyal_index::open::MAX_SEARCH_LIST;
use bathyal_index::{Effort, Index, SearchOptions, SearchTotals};
use bathyal_tier::Control;

use crate::second_tier::arguments::TrialArguments;
use crate::second_tier::subjects::Shape;
use crate::workload::{Questions, Workload};
use bathyal_vectors::groundtruth::recall;

/// Parts of the recall that a calibration is asked for.
const FINEST: u32 = 1000;

/// Queries whose phases are timed: shares of time settle within a few dozen.
const TIMED_QUERIES: usize = 50;

/// What all measurements of a run share.
#[derive(Clone, Copy)]
pub(crate) struct Trial<'a> {
    pub(crate) arguments: &'a TrialArguments,
    pub(crate) work: &'a Workload,
    /// Vectors that a query of a graph reads at once.
    pub(crate) beam_width: u32,
    pub(crate) control: Control<'a>,
}

/// What is turned until the recall is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knob {
    /// The length of the candidate list.
    SearchList,
    /// The number of posting lists.
    Probes,
    /// The recall that the index's calibration is asked for, in thousandths: it chooses groups and candidate list.
    Calibration,
}

/// An effort, and what it comes to.
#[derive(Clone)]
pub(crate) struct Reached {
    pub(crate) knob: Knob,
    pub(crate) setting: u32,
    /// The candidate list that was used.
    pub(crate) search_list: u32,
    pub(crate) recall: f64,
    pub(crate) totals: SearchTotals,
}

impl Trial<'_> {
    /// Threads that search.
    pub(crate) fn threads(&self) -> usize {
        match self.arguments.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        }
    }

    /// How a search of an effort with a number of queries in flight is run.
    pub(crate) fn options(&self, index: &Index, knob: Knob, setting: u32, in_flight: u32) -> SearchOptions {
        let k = self.arguments.k;
        let (effort, probes) = match knob {
            Knob::SearchList => (Effort::SearchList(setting), None),
            Knob::Probes => (Effort::SearchList(k), Some(setting)),
            Knob::Calibration => (Effort::Recall(setting as f32 / FINEST as f32), None),
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
    pub(crate) fn reached(
        &self,
        index: &Index,
        asked: &Questions,
        knob: Knob,
        setting: u32,
    ) -> Result<Reached, Failure> {
        let options = self.options(index, knob, setting, self.arguments.in_flight);
        let found = index.search(&asked.queries, &options, self.control)?;
        let recall = recall(&asked.exact, &found.ids, found.k, asked.queries.count())?;
        Ok(Reached { knob, setting, search_list: found.search_list, recall, totals: found.totals })
    }

    /// The share of its compute time in which a query finds what to read, of a few queries that are alone on a thread;
    /// waiting is not computing.
    pub(crate) fn finding_share(&self, index: &Index, reached: &Reached) -> Result<f64, Failure> {
        let options = self.options(index, reached.knob, reached.setting, 1);
        let (mut finding, mut computing) = (0, 0);
        for row in 0..self.work.all.queries.count().min(TIMED_QUERIES) {
            let told = index.explain(&self.work.all.queries, row, &options, self.control)?;
            let of = |named: &str| {
                told.phases.iter().filter(|phase| phase.phase == named).map(|phase| phase.ns).sum::<u64>()
            };
            finding += of("navigate");
            computing += told.phases.iter().map(|phase| phase.ns).sum::<u64>() - of("read");
        }
        Ok(finding as f64 / computing.max(1) as f64)
    }

    /// The least effort with which `asked` is answered at the recall asked for. It is looked for near `hint` first,
    /// where that is an effort of the same kind.
    pub(crate) fn least_effort(
        &self,
        index: &Index,
        shape: Shape,
        asked: &Questions,
        hint: Option<&Reached>,
    ) -> Result<Reached, Failure> {
        let k = (self.arguments.k as usize).min(index.len()) as u32;
        let (knob, first, most) = match shape {
            Shape::Graph { .. } => (Knob::SearchList, k, MAX_SEARCH_LIST.min(index.len() as u32).max(k)),
            Shape::Lists { .. } => {
                (Knob::Probes, 1, SpannEntry::read(index.manifest()).map_or(1, |spann| spann.list_count))
            }
            Shape::Codes => (Knob::Calibration, FINEST / 2, FINEST),
        };
        let target = f64::from(self.arguments.recall);
        let hint = hint.filter(|hint| hint.knob == knob).map(|hint| hint.setting);
        // What a few queries take is near to what many do.
        let few = &self.work.few;
        let pilot = match hint {
            None if asked.queries.count() > 2 * few.queries.count() => {
                let run = |setting| self.reached(index, few, knob, setting);
                let found = least(first, most, None, run, |reached| reached.recall >= target)?;
                Some(found.unwrap_or_else(|best| best).setting)
            }
            _ => hint,
        };
        let run = |setting| self.reached(index, asked, knob, setting);
        match least(first, most, pilot, run, |reached| reached.recall >= target)? {
            Ok(reached) => Ok(reached),
            Err(best) => Err(Failure::new(format!(
                "{}: reaches recall {:.4} at most, {target} is asked for; lower --recall or leave this index out",
                index.path().display(),
                best.recall
            ))),
        }
    }
}

/// What `run` gave at the least of `first..=most` that is `enough`, or at `most` where none is: in growing steps from
/// `hint`, or from `first`, then halving.
fn least<T>(
    first: u32,
    most: u32,
    hint: Option<u32>,
    mut run: impl FnMut(u32) -> Result<T, Failure>,
    enough: impl Fn(&T) -> bool,
) -> Result<Result<T, T>, Failure> {
    let mut at = hint.unwrap_or(first).clamp(first, most);
    let mut step = if hint.is_some() { 1 } else { first.max(1) };
    // What is below `first` is not enough.
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
    fn the_least_that_is_enough_is_found_with_and_without_a_hint() {
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
    fn a_good_hint_takes_two_runs() {
        let mut runs = 0;
        let counted = |n| {
            runs += 1;
            Ok(n)
        };
        assert_eq!(least(1, 1000, Some(77), counted, |n| *n >= 77).unwrap(), Ok(77));
        assert_eq!(runs, 2);
    }
}
