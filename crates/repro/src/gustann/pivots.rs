//! Figures 12 and 13: what pivots save, and how evenly the disks are read with and without them. As in the
//! paper, walks read one record at a time.

use bathyal_console::Failure;
use bathyal_vectors::groundtruth::recall;
use bathyal_vectors::progress::Progress;
use serde::Serialize;

use super::evenness::{Round, in_step, rounds};
use super::measure::{CardIndex, GustannExperiment, RECALLS, WalkCounts};
use super::model::ThroughputPrediction;
use super::rows::SearchRow;
use super::subjects::GustannSubject;
use super::walk::{StartPoints, WalkResult, Walker, spread};
use crate::sets::DataSet;

/// Candidate lists of figure 12.
const LISTS: [u32; 6] = [10, 15, 20, 30, 50, 100];
/// Numbers of pivots, as shares of all vectors.
const SHARES: [f64; 4] = [1e-4, 1e-3, 1e-2, 1e-1];
/// The paper's share of a billion vectors (section 4.4.2), and the links per vector in its pivot graph
/// (section 5.1).
const PAPER_SHARE: f64 = 1e-3;
const PAPER_LINKS: u64 = 32;
/// Number of rounds in a record.
const ROUNDS: usize = 4;

/// Start points of walks in figure 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StartRule {
    /// At the graph's entry point.
    EntryPoint,
    /// At the nearest of the paper's share of the vectors.
    Nearest,
    /// At the eight nearest of some pivots and at the entry point, as in Bathyal.
    Pivots,
}

impl StartRule {
    /// Returns the start points over `vectors` vectors; `pivots` sets the number of pivots of
    /// [`StartRule::Pivots`].
    fn start_points(self, vectors: usize, pivots: Option<usize>) -> StartPoints {
        match (self, pivots) {
            (StartRule::EntryPoint, _) => StartPoints::entry_point(),
            (StartRule::Nearest, _) => {
                let pivots = spread(vectors, (vectors as f64 * PAPER_SHARE) as usize);
                StartPoints { pivots, nearest: 1, entry_point: false }
            }
            (StartRule::Pivots, None) => StartPoints::library_default(vectors),
            (StartRule::Pivots, Some(pivots)) => {
                StartPoints { pivots: spread(vectors, pivots), ..StartPoints::library_default(vectors) }
            }
        }
    }

    /// Returns the bytes of the card's memory for the pivots. Bathyal's pivots are ids, because their codes
    /// are on the card already; the paper's are vectors with links.
    fn card_bytes(self, pivots: usize, row_bytes: usize) -> u64 {
        let bytes_per_pivot = match self {
            StartRule::EntryPoint => 0,
            StartRule::Nearest => row_bytes as u64 + 4 * PAPER_LINKS,
            StartRule::Pivots => 4,
        };
        pivots as u64 * bytes_per_pivot
    }
}

/// Results of all queries of a set with one start rule and one list, as means per query.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StartRow {
    pub(super) set: String,
    pub(super) begin: StartRule,
    pub(super) pivots: usize,
    /// Bytes of the pivots in the card's memory.
    pub(super) pivot_bytes: u64,
    /// True if the row belongs to figure 12; else it is one of those that vary the number of pivots.
    pub(super) is_figure_12: bool,
    pub(super) list: u32,
    /// Exact. Each page is a round.
    pub(super) recall: f64,
    pub(super) pages: f64,
    /// Codes that a card scores: pivots and links.
    pub(super) scored: f64,
    /// Share of the disks' throughput that remains if the queries of a mini-batch keep in step, from counted
    /// loads.
    pub(super) in_step: f64,
    /// The first rounds, with the list for recall 0.9.
    pub(super) rounds: Vec<Round>,
    /// If no query waits for another.
    pub(super) prediction: ThroughputPrediction,
    /// If every query of a mini-batch waits for the busiest disk.
    pub(super) predicted_in_step_qps: f64,
}

impl GustannExperiment<'_> {
    /// Measures figures 12 and 13 of a set; `rows` give the list for recall 0.9.
    pub(super) fn measure_starts(&self, set: &DataSet, rows: &[SearchRow]) -> Result<Vec<StartRow>, Failure> {
        let subject = GustannSubject::GraphAlone;
        let (path, manifest) = subject.find_or_build(set, self.arguments, self.console)?;
        let (card_index, walker) =
            (CardIndex::of(subject, &path, &manifest)?, Walker::open(&path, &manifest, set)?);
        let is_list =
            |row: &&SearchRow| row.set == set.name && row.index == subject.name() && row.asked == RECALLS[0];
        let list = rows.iter().find(is_list).map_or(LISTS[0], |row| row.search_list);
        let vectors = set.base.count();
        let mut plan: Vec<(StartRule, Option<usize>, u32)> = Vec::new();
        for begin in [StartRule::EntryPoint, StartRule::Nearest, StartRule::Pivots] {
            let lists = LISTS.into_iter().chain([list]).filter(|list| *list >= self.arguments.k);
            let mut lists: Vec<u32> = lists.collect();
            lists.sort_unstable();
            lists.dedup();
            plan.extend(lists.into_iter().map(|list| (begin, None, list)));
        }
        let usual = StartPoints::library_default(vectors).pivots.len();
        let pivots = SHARES.map(|share| (vectors as f64 * share) as usize);
        let pivots = pivots.into_iter().filter(|pivots| ![0, usual].contains(pivots));
        plan.extend(pivots.map(|pivots| (StartRule::Pivots, Some(pivots), list)));
        let progress = self.console.progress();
        progress.stage(&format!("{}: start points", set.name), plan.len() as u64);
        let mut all = Vec::new();
        for (begin, pivots, walk_list) in plan {
            if self.console.interrupt().requested() {
                return Err(Failure::cancelled());
            }
            let start_points = begin.start_points(vectors, pivots);
            let walks = walker.walk_all(set, &start_points, walk_list, self.arguments.k as usize)?;
            let mut row = self.start_row((set, &card_index), (begin, &start_points, walk_list), &walks)?;
            row.is_figure_12 = pivots.is_none();
            if walk_list != list || pivots.is_some() {
                row.rounds.clear();
            }
            all.push(row);
            progress.advance(all.len() as u64);
        }
        Ok(all)
    }

    fn start_row(
        &self,
        (set, card_index): (&DataSet, &CardIndex),
        (begin, start_points, list): (StartRule, &StartPoints, u32),
        walks: &[WalkResult],
    ) -> Result<StartRow, Failure> {
        let (k, row_bytes) = (self.arguments.k as usize, set.base.row_bytes());
        let ids: Vec<u32> = walks.iter().flat_map(|walked| walked.padded(k)).collect();
        let pages: Vec<&[u64]> = walks.iter().map(|walked| walked.pages.as_slice()).collect();
        let mean = pages.iter().map(|pages| pages.len()).sum::<usize>() as f64 / pages.len().max(1) as f64;
        let counted = WalkCounts { pages: mean, rounds: mean, list, probes: None };
        // The paper's pivots form a graph, whose search is not counted.
        let scored = if begin == StartRule::Nearest { 0 } else { start_points.pivots.len() };
        let demand = card_index.walk_demand(&counted, scored, row_bytes as f64);
        let scored = card_index.scored(mean, scored, 0.0);
        let (machine, evenness) =
            (self.arguments.machine(self.arguments.ssds), in_step(&pages, self.arguments.ssds));
        let prediction = machine.predict(&demand);
        let disks = machine.card.disks_qps(&demand) * evenness;
        Ok(StartRow {
            set: set.name.clone(),
            begin,
            pivots: start_points.pivots.len(),
            pivot_bytes: begin.card_bytes(start_points.pivots.len(), row_bytes),
            is_figure_12: true,
            list,
            recall: recall(&set.query_set.exact, &ids, k, walks.len())?,
            pages: mean,
            scored,
            in_step: evenness,
            rounds: rounds(&pages, ROUNDS, self.arguments.ssds),
            prediction,
            predicted_in_step_qps: disks.min(prediction.qps),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_points_have_the_requested_number_of_pivots() {
        let usual = StartRule::Pivots.start_points(10_000, None);
        assert_eq!((usual.pivots.len(), usual.nearest, usual.entry_point), (100, 8, true));
        let more = StartRule::Pivots.start_points(10_000, Some(1000));
        assert_eq!((more.pivots.len(), more.nearest), (1000, 8));
        let paper = StartRule::Nearest.start_points(10_000, None);
        assert_eq!((paper.pivots.len(), paper.nearest, paper.entry_point), (10, 1, false));
        assert!(StartRule::EntryPoint.start_points(10_000, None).pivots.is_empty());
        assert_eq!(StartRule::Pivots.card_bytes(100, 128), 400);
        assert_eq!(StartRule::Nearest.card_bytes(10, 128), 2560);
    }
}
