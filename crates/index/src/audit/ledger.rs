//! The recall found by the recall asked for, and the effort that follows from it.

use super::estimate::{RecallEstimate, RecallSums};
use super::options::OnMiss;
use bathyal_vectors::groundtruth::QueryRecall;
use serde::Serialize;

/// The fewest audited queries on which anything is decided: the interval of fewer is not reliable.
const LEAST_QUERIES: u64 = 50;
/// The fewest audited queries after which a raised effort is lowered: far more than for raising it, so that
/// it is low for a short part of the time where it is not enough.
const LEAST_TO_LOWER: u64 = 500;
/// Queries of half a window. The recall of the last one to two halves is reported.
const HALF_WINDOW: u64 = 500;
/// The most recalls that are told apart. Further ones are counted together with other efforts.
const MOST_ASKED: usize = 16;

/// The last audited queries of one effort.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// The last [`HALF_WINDOW`] queries before `current`.
    previous: RecallSums,
    current: RecallSums,
}

impl Window {
    fn add(&mut self, recall: QueryRecall) {
        if self.current.queries() == HALF_WINDOW {
            (self.previous, self.current) = (self.current, RecallSums::default());
        }
        self.current.add(recall);
    }

    fn estimate(&self) -> Option<RecallEstimate> {
        self.previous.and(&self.current).estimate()
    }
}

/// Audited searches for one recall.
#[derive(Debug, Clone)]
struct Entry {
    /// `None` for searches by another effort.
    asked: Option<f32>,
    window: Window,
    /// Queries since the index was opened.
    audited: u64,
    /// Times that the miss is halved; one more than the most means the largest effort.
    level: u32,
    /// Changes of `level`.
    changes: u64,
}

impl Entry {
    fn new(asked: Option<f32>) -> Entry {
        Entry { asked, window: Window::default(), audited: 0, level: 0, changes: 0 }
    }

    fn set_level(&mut self, level: u32) {
        (self.level, self.window) = (level, Window::default());
        self.changes += 1;
    }
}

/// The recall that searches for one recall found, for `stats()`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WatchedRecall {
    /// The recall asked for; `None` for searches by another effort.
    pub asked: Option<f32>,
    /// The recall of the last 500 to 1000 audited queries since the effort was changed last; absent in JSON
    /// before the first.
    #[serde(flatten)]
    pub estimate: Option<RecallEstimate>,
    /// True if the recall asked for lies above the interval of at least 50 queries.
    pub missed: bool,
    /// The recall that is asked of the calibration now: more than `asked` if the effort is raised.
    pub effort_for: Option<f32>,
    /// Changes of the effort.
    pub effort_changes: u64,
    /// Queries audited since the index was opened.
    pub audited: u64,
}

/// The consequence of an audit for searches that ask for a recall.
#[derive(Debug, Clone, PartialEq)]
pub struct Reaction {
    pub(super) asked: f32,
    pub(super) level: u32,
    /// The recall to ask of the calibration.
    pub effort_for: f32,
    /// A note for their answers.
    pub note: String,
}

/// The recall found by the recall asked for.
#[derive(Debug)]
pub(super) struct Ledger {
    on_miss: OnMiss,
    /// Searches by other efforts first.
    entries: Vec<Entry>,
}

impl Ledger {
    pub(super) fn new(on_miss: OnMiss) -> Ledger {
        Ledger { on_miss, entries: vec![Entry::new(None)] }
    }

    /// Returns the entry of a recall.
    fn entry(&mut self, asked: Option<f32>) -> &mut Entry {
        let known = self.entries.iter().position(|entry| entry.asked == asked);
        let at = known.unwrap_or_else(|| {
            if self.entries.len() > MOST_ASKED {
                return 0;
            }
            self.entries.push(Entry::new(asked));
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }

    /// Returns the level of the effort for a recall.
    pub(super) fn level(&self, asked: Option<f32>) -> u32 {
        self.entries.iter().find(|entry| entry.asked == asked).map_or(0, |entry| entry.level)
    }

    /// Adds a query that asked for a recall, and changes the effort if that is due.
    pub(super) fn add(&mut self, asked: Option<f32>, recall: QueryRecall) {
        let on_miss = self.on_miss;
        let entry = self.entry(asked);
        entry.audited += 1;
        entry.window.add(recall);
        let (OnMiss::RaiseEffort { most }, Some(asked)) = (on_miss, entry.asked) else { return };
        let Some(found) = entry.window.estimate() else { return };
        if missed(asked, &found) && entry.level <= most && asked < 1.0 {
            entry.set_level(entry.level + 1);
        } else if found.low > f64::from(asked) && entry.level > 0 && found.queries >= LEAST_TO_LOWER {
            entry.set_level(entry.level - 1);
        }
    }

    /// Returns the recall that is asked of the calibration for `asked` at a level.
    fn effort_for(&self, asked: f32, level: u32) -> f32 {
        match self.on_miss {
            OnMiss::RaiseEffort { most } if level > most => 1.0,
            _ => 1.0 - (1.0 - asked) / 2_f32.powi(level as i32),
        }
    }

    /// Returns the recalls for which searches react, each with a note for their answers.
    pub(super) fn reactions(&self) -> Vec<Reaction> {
        let reaction = |entry: &Entry| {
            let (asked, level) = (entry.asked?, entry.level);
            let found = entry.window.estimate().filter(|found| missed(asked, found));
            let effort_for = self.effort_for(asked, level);
            let note = match (found, level) {
                (None, 0) => return None,
                (None, _) => format!(
                    "searches for recall {asked} found less in an audit; they now make the effort for \
                     {effort_for}"
                ),
                (Some(found), level) => {
                    let largest = if level > 0 { ", with the largest effort" } else { "" };
                    format!(
                        "searches for recall {asked} find {:.3} (between {:.3} and {:.3}) in an audit of {} \
                         queries{largest}; calibrate the index with such queries",
                        found.found, found.low, found.high, found.queries
                    )
                }
            };
            Some(Reaction { asked, level, effort_for, note })
        };
        self.entries.iter().filter_map(reaction).collect()
    }

    /// Returns the recalls of all audited searches, those by other efforts last.
    pub(super) fn watched(&self) -> Vec<WatchedRecall> {
        let mut entries: Vec<&Entry> = self.entries.iter().filter(|entry| entry.audited > 0).collect();
        entries.sort_by(|a, b| a.asked.unwrap_or(2.0).total_cmp(&b.asked.unwrap_or(2.0)));
        let watched = |entry: &Entry| {
            let estimate = entry.window.estimate();
            let missed = entry.asked.zip(estimate).is_some_and(|(asked, found)| missed(asked, &found));
            WatchedRecall {
                asked: entry.asked,
                estimate,
                missed,
                effort_for: entry.asked.map(|asked| self.effort_for(asked, entry.level)),
                effort_changes: entry.changes,
                audited: entry.audited,
            }
        };
        entries.into_iter().map(watched).collect()
    }
}

/// Returns true if enough queries show that the recall asked for is not reached.
fn missed(asked: f32, found: &RecallEstimate) -> bool {
    found.queries >= LEAST_QUERIES && found.high < f64::from(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds queries of which 10 in 10 neighbours, or `hits` in each second one, were found.
    fn add(ledger: &mut Ledger, asked: f32, hits: usize, queries: usize) {
        for query in 0..queries {
            let hits = if query % 2 == 0 { hits } else { 10 };
            ledger.add(Some(asked), QueryRecall { hits, wanted: 10 });
        }
    }

    fn state(ledger: &Ledger) -> (f32, u64, bool) {
        let watched = &ledger.watched()[0];
        (watched.effort_for.unwrap(), watched.effort_changes, watched.missed)
    }

    #[test]
    fn effort_is_raised_step_by_step_and_lowered_slowly() {
        let mut ledger = Ledger::new(OnMiss::RaiseEffort { most: 2 });
        add(&mut ledger, 0.9, 4, 49);
        assert_eq!((state(&ledger), ledger.reactions()), ((0.9, 0, false), Vec::new()));
        add(&mut ledger, 0.9, 4, 1);
        assert_eq!((state(&ledger), ledger.level(Some(0.9))), ((0.95, 1, false), 1));
        assert!(ledger.reactions()[0].note.contains("now make the effort for 0.95"));
        add(&mut ledger, 0.9, 4, 100);
        assert_eq!(state(&ledger), (1.0, 3, false));
        add(&mut ledger, 0.9, 4, 100);
        assert_eq!(state(&ledger), (1.0, 3, true), "there is no larger effort");
        assert!(ledger.reactions()[0].note.contains("with the largest effort; calibrate"));
        let mut ledger = Ledger::new(OnMiss::RaiseEffort { most: 2 });
        add(&mut ledger, 0.9, 4, 50);
        add(&mut ledger, 0.9, 10, 499);
        assert_eq!(state(&ledger), (0.95, 1, false));
        add(&mut ledger, 0.9, 10, 1);
        assert_eq!((state(&ledger), ledger.reactions()), ((0.9, 2, false), Vec::new()));
    }

    #[test]
    fn without_raising_a_miss_is_noted_only() {
        let mut ledger = Ledger::new(OnMiss::Note);
        add(&mut ledger, 0.9, 4, 200);
        assert_eq!(state(&ledger), (0.9, 0, true));
        let reactions = ledger.reactions();
        assert_eq!((reactions[0].level, reactions[0].effort_for), (0, 0.9));
        assert!(
            reactions[0].note.starts_with("searches for recall 0.9 find 0.700 (between "),
            "{reactions:?}"
        );
        // Later queries find enough: the miss leaves the window.
        add(&mut ledger, 0.9, 10, 1000);
        assert_eq!((state(&ledger), ledger.reactions()), ((0.9, 0, false), Vec::new()));
        let found = ledger.watched()[0].estimate.unwrap();
        assert!((500..=1000).contains(&found.queries) && found.found == 1.0, "{found:?}");
    }

    #[test]
    fn only_some_recalls_are_told_apart() {
        let mut ledger = Ledger::new(OnMiss::RaiseEffort { most: 2 });
        for number in 0..100 {
            add(&mut ledger, 0.5 + number as f32 / 1000.0, 0, 10);
        }
        let watched = ledger.watched();
        assert_eq!((watched.len(), watched[MOST_ASKED].asked), (MOST_ASKED + 1, None));
        assert_eq!((watched[MOST_ASKED].audited, watched[MOST_ASKED].missed), (840, false));
    }
}
