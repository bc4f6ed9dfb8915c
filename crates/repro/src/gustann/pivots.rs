//! Figures 12 and 13: what pivots save, and how evenly disks are read with and without them. Walks are a record at a time, as the
//! paper's.

use bathyal_console::Failure;
use bathyal_vectors::groundtruth::recall;
use bathyal_vectors::progress::Progress;
use serde::Serialize;

use super::evenness::{Round, in_step, rounds};
use super::measure::{Counted, Known, Lab, RECALLS};
use super::model::Prediction;
use super::rows::Row;
use super::subjects::Subject;
use super::walk::{Beginnings, Walked, Walker, spread};
use crate::sets::Set;

/// Candidate lists of figure 12.
const LISTS: [u32; 6] = [10, 15, 20, 30, 50, 100];
/// Parts of all vectors that are pivots.
const SHARES: [f64; 4] = [1e-4, 1e-3, 1e-2, 1e-1];
/// The paper's part of a billion vectors (section 4.4.2), and the links of a vector of its pivot graph (section 5.1).
const PAPER_SHARE: f64 = 1e-3;
const PAPER_LINKS: u64 = 32;
/// Rounds that are shown.
const ROUNDS: usize = 4;

/// Where walks begin in figure 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Begin {
    /// Where all walks do.
    EntryPoint,
    /// At the nearest of the paper's share of the vectors.
    Nearest,
    /// At the nearest eight of some pivots and the entry point, as Bathyal does.
    Pivots,
}

impl Begin {
    /// Over so many vectors, with so many pivots where that can be chosen.
    fn beginnings(self, vectors: usize, pivots: Option<usize>) -> Beginnings {
        match (self, pivots) {
            (Begin::EntryPoint, _) => Beginnings::entry_point(),
            (Begin::Nearest, _) => {
                let pivots = spread(vectors, (vectors as f64 * PAPER_SHARE) as usize);
                Beginnings { pivots, nearest: 1, entry_point: false }
            }
            (Begin::Pivots, None) => Beginnings::usual(vectors),
            (Begin::Pivots, Some(pivots)) => {
                Beginnings { pivots: spread(vectors, pivots), ..Beginnings::usual(vectors) }
            }
        }
    }

    /// Bytes of the card's memory for so many pivots. Ours are ids, since the codes are there; the paper's are vectors with links.
    fn card_bytes(self, pivots: usize, row_bytes: usize) -> u64 {
        let each = match self {
            Begin::EntryPoint => 0,
            Begin::Nearest => row_bytes as u64 + 4 * PAPER_LINKS,
            Begin::Pivots => 4,
        };
        pivots as u64 * each
    }
}

/// All queries of a set from one beginning, with one list. Means a query.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Began {
    pub(super) set: String,
    pub(super) begin: Begin,
    pub(super) pivots: usize,
    /// Of the card's memory.
    pub(super) pivot_bytes: u64,
    /// Whether it belongs to figure 12, and not to those over the number of pivots.
    pub(super) is_figure_12: bool,
    pub(super) list: u32,
    /// Exact. A page is a round.
    pub(super) recall: f64,
    pub(super) pages: f64,
    /// Codes that a card scores, pivots and links.
    pub(super) scored: f64,
    /// The part of the disks' reads that mini-batches in step leave of them, by counted loads.
    pub(super) in_step: f64,
    /// The first rounds, of the list that recall 0.9 takes.
    pub(super) rounds: Vec<Round>,
    /// Where no query waits for another.
    pub(super) prediction: Prediction,
    /// Where every query of a mini-batch waits for its fullest disk.
    pub(super) predicted_in_step_qps: f64,
}

impl Lab<'_> {
    /// Figures 12 and 13 of a set; `rows` tell which list recall 0.9 takes.
    pub(super) fn begin(&self, set: &Set, rows: &[Row]) -> Result<Vec<Began>, Failure> {
        let subject = Subject::GraphAlone;
        let (path, manifest) = subject.find_or_build(set, self.arguments, self.console)?;
        let (known, walker) = (Known::of(subject, &path, &manifest)?, Walker::open(&path, &manifest, set)?);
        let is_list =
            |row: &&Row| row.set == set.name && row.index == subject.name() && row.asked == RECALLS[0];
        let list = rows.iter().find(is_list).map_or(LISTS[0], |row| row.search_list);
        let vectors = set.base.count();
        let mut asked: Vec<(Begin, Option<usize>, u32)> = Vec::new();
        for begin in [Begin::EntryPoint, Begin::Nearest, Begin::Pivots] {
            let lists = LISTS.into_iter().chain([list]).filter(|list| *list >= self.arguments.k);
            let mut lists: Vec<u32> = lists.collect();
            lists.sort_unstable();
            lists.dedup();
            asked.extend(lists.into_iter().map(|list| (begin, None, list)));
        }
        let usual = Beginnings::usual(vectors).pivots.len();
        let pivots = SHARES.map(|share| (vectors as f64 * share) as usize);
        let pivots = pivots.into_iter().filter(|pivots| ![0, usual].contains(pivots));
        asked.extend(pivots.map(|pivots| (Begin::Pivots, Some(pivots), list)));
        let progress = self.console.progress();
        progress.stage(&format!("{}: beginnings", set.name), asked.len() as u64);
        let mut all = Vec::new();
        for (begin, pivots, of) in asked {
            if self.console.interrupt().requested() {
                return Err(Failure::cancelled());
            }
            let beginnings = begin.beginnings(vectors, pivots);
            let walks = walker.walk_all(set, &beginnings, of, self.arguments.k as usize)?;
            let mut began = self.began((set, &known), (begin, &beginnings, of), &walks)?;
            began.is_figure_12 = pivots.is_none();
            if of != list || pivots.is_some() {
                began.rounds.clear();
            }
            all.push(began);
            progress.advance(all.len() as u64);
        }
        Ok(all)
    }

    fn began(
        &self,
        (set, known): (&Set, &Known),
        (begin, beginnings, list): (Begin, &Beginnings, u32),
        walks: &[Walked],
    ) -> Result<Began, Failure> {
        let (k, row_bytes) = (self.arguments.k as usize, set.base.row_bytes());
        let ids: Vec<u32> = walks.iter().flat_map(|walked| walked.padded(k)).collect();
        let pages: Vec<&[u64]> = walks.iter().map(|walked| walked.pages.as_slice()).collect();
        let mean = pages.iter().map(|pages| pages.len()).sum::<usize>() as f64 / pages.len().max(1) as f64;
        let counted = Counted { pages: mean, rounds: mean, list, probes: None };
        // The paper's pivots have a graph of their own, whose search is not counted.
        let scored = if begin == Begin::Nearest { 0 } else { beginnings.pivots.len() };
        let asks = known.walk_asks(&counted, scored, row_bytes as f64);
        let scored = known.scored(mean, scored, 0.0);
        let (machine, evenness) =
            (self.arguments.machine(self.arguments.ssds), in_step(&pages, self.arguments.ssds));
        let prediction = machine.predict(&asks);
        let disks = machine.disks_qps(&asks) * evenness;
        Ok(Began {
            set: set.name.clone(),
            begin,
            pivots: beginnings.pivots.len(),
            pivot_bytes: begin.card_bytes(beginnings.pivots.len(), row_bytes),
            is_figure_12: true,
            list,
            recall: recall(&set.asked.exact, &ids, k, walks.len())?,
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
    fn pivots_are_as_many_as_asked_for() {
        let usual = Begin::Pivots.beginnings(10_000, None);
        assert_eq!((usual.pivots.len(), usual.nearest, usual.entry_point), (100, 8, true));
        let more = Begin::Pivots.beginnings(10_000, Some(1000));
        assert_eq!((more.pivots.len(), more.nearest), (1000, 8));
        let paper = Begin::Nearest.beginnings(10_000, None);
        assert_eq!((paper.pivots.len(), paper.nearest, paper.entry_point), (10, 1, false));
        assert!(Begin::EntryPoint.beginnings(10_000, None).pivots.is_empty());
        assert_eq!(Begin::Pivots.card_bytes(100, 128), 400);
        assert_eq!(Begin::Nearest.card_bytes(10, 128), 2560);
    }
}
