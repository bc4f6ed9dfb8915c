//! Efforts of searches: the sweeps of section 5.1.

use bathyal_index::{Effort as IndexEffort, SearchMode, SearchOptions};
use serde::Serialize;

use super::subjects::CloudSubject;

/// Default W (table 3).
pub(super) const BEAM: u32 = 16;
/// Values of W in figure 19.
pub(super) const BEAMS: [u32; 4] = [4, 8, 32, 64];
/// Recall at which a curve ends (section 5.1).
pub(super) const FINAL_RECALL: f64 = 0.995;
/// First and last candidate list of the graph, and first and last number of posting lists. Sweeps double from
/// the first to the last, which reaches 0.995 in the paper.
const SEARCH_LISTS: (u32, u32) = (10, 640);
const PROBES: (u32, u32) = (8, 2048);
/// Requested recalls of families that are calibrated.
const RECALLS: [f32; 7] = [0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995];
/// Step through the efforts of a sweep in a quick run, which only shows that everything works.
const QUICK_STEP: usize = 3;

/// One point of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub(super) enum SweepEffort {
    /// L and W of a graph.
    Beam { search_list: u32, beam_width: u32 },
    /// nprobe.
    Probes { probes: u32 },
    /// The effort that the calibration gives for a recall.
    Recall {
        /// The requested recall. Points have a field `recall`, too: the measured recall.
        #[serde(rename = "asked")]
        recall: f32,
    },
}

impl SweepEffort {
    /// Returns the sweep of a subject, from low to high effort; `beam_width` applies to graphs only.
    pub(super) fn sweep(subject: CloudSubject, beam_width: u32, k: u32, quick: bool) -> Vec<SweepEffort> {
        let doubled = |(from, to): (u32, u32)| {
            std::iter::successors(Some(from), |n| n.checked_mul(2)).take_while(move |n| *n <= to)
        };
        let all: Vec<SweepEffort> = match subject {
            CloudSubject::Graph { .. } => doubled((SEARCH_LISTS.0.max(k), SEARCH_LISTS.1))
                .map(|search_list| SweepEffort::Beam { search_list, beam_width })
                .collect(),
            CloudSubject::Spann { .. } => {
                doubled(PROBES).map(|probes| SweepEffort::Probes { probes }).collect()
            }
            CloudSubject::Cluster | CloudSubject::Coded => {
                RECALLS.iter().map(|recall| SweepEffort::Recall { recall: *recall }).collect()
            }
        };
        let step = if quick { QUICK_STEP } else { 1 };
        all.into_iter().step_by(step).collect()
    }

    /// Returns the single effort for measuring growth (figure 13).
    pub(super) fn fixed(subject: CloudSubject) -> SweepEffort {
        match subject {
            CloudSubject::Graph { .. } => SweepEffort::Beam { search_list: 80, beam_width: BEAM },
            CloudSubject::Spann { .. } => SweepEffort::Probes { probes: 64 },
            CloudSubject::Cluster | CloudSubject::Coded => SweepEffort::Recall { recall: 0.95 },
        }
    }

    /// Returns W, if the effort is one of a graph.
    pub(super) fn beam_width(self) -> Option<u32> {
        match self {
            SweepEffort::Beam { beam_width, .. } => Some(beam_width),
            _ => None,
        }
    }

    /// Returns the effort as text for notes.
    pub(super) fn words(self) -> String {
        match self {
            SweepEffort::Beam { search_list, beam_width } => format!("L {search_list}, W {beam_width}"),
            SweepEffort::Probes { probes } => format!("nprobe {probes}"),
            SweepEffort::Recall { recall } => format!("recall {recall}"),
        }
    }

    /// Returns the options of a search with this effort.
    pub(super) fn options(self, k: u32, threads: usize, in_flight: usize) -> SearchOptions {
        let mut options = SearchOptions {
            k: k as usize,
            threads,
            in_flight: Some(in_flight),
            timed: true,
            ..SearchOptions::default()
        };
        match self {
            SweepEffort::Beam { search_list, beam_width } => {
                options.effort = IndexEffort::SearchList(search_list);
                options.beam_width = Some(beam_width);
                // The paper counts rounds, which only batched searches have.
                options.mode = Some(SearchMode::Batched);
            }
            SweepEffort::Probes { probes } => (options.probes, options.prune) = (Some(probes), Some(0.0)),
            SweepEffort::Recall { recall } => options.effort = IndexEffort::Recall(recall),
        }
        options
    }
}
