//! How hard indexes are searched: the sweeps of section 5.1.

use bathyal_index::{Effort as IndexEffort, SearchMode, SearchOptions};
use serde::Serialize;

use super::subjects::Subject;

/// W where nothing else is said (table 3).
pub(super) const BEAM: u32 = 16;
/// W of figure 19.
pub(super) const BEAMS: [u32; 4] = [4, 8, 32, 64];
/// A curve ends where this recall is reached (section 5.1).
pub(super) const ENOUGH: f64 = 0.995;
/// Candidate lists of the graph, and posting lists: doubled up to what reaches 0.995 in the paper.
const SEARCH_LISTS: (u32, u32) = (10, 640);
const PROBES: (u32, u32) = (8, 2048);
/// Recalls that families with a calibration of their own are asked for.
const RECALLS: [f32; 7] = [0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995];
/// Of a sweep that is only to show that everything works, every so many points.
const QUICK_STEP: usize = 3;

/// One point of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub(super) enum Effort {
    /// L and W of a graph.
    Beam { search_list: u32, beam_width: u32 },
    /// nprobe.
    Probes { probes: u32 },
    /// What the calibration says for a recall.
    Recall {
        /// Not `recall`, which a point has beside it: the one that was reached.
        #[serde(rename = "asked")]
        recall: f32,
    },
}

impl Effort {
    /// The sweep of a subject, from low to high; `beam_width` is for graphs.
    pub(super) fn sweep(subject: Subject, beam_width: u32, k: u32, quick: bool) -> Vec<Effort> {
        let doubled = |(from, to): (u32, u32)| {
            std::iter::successors(Some(from), |n| n.checked_mul(2)).take_while(move |n| *n <= to)
        };
        let all: Vec<Effort> = match subject {
            Subject::Graph { .. } => doubled((SEARCH_LISTS.0.max(k), SEARCH_LISTS.1))
                .map(|search_list| Effort::Beam { search_list, beam_width })
                .collect(),
            Subject::Spann { .. } => doubled(PROBES).map(|probes| Effort::Probes { probes }).collect(),
            Subject::Cluster | Subject::Coded => {
                RECALLS.iter().map(|recall| Effort::Recall { recall: *recall }).collect()
            }
        };
        let step = if quick { QUICK_STEP } else { 1 };
        all.into_iter().step_by(step).collect()
    }

    /// The one effort that growth is measured with (figure 13).
    pub(super) fn fixed(subject: Subject) -> Effort {
        match subject {
            Subject::Graph { .. } => Effort::Beam { search_list: 80, beam_width: BEAM },
            Subject::Spann { .. } => Effort::Probes { probes: 64 },
            Subject::Cluster | Subject::Coded => Effort::Recall { recall: 0.95 },
        }
    }

    /// W, of a graph.
    pub(super) fn beam_width(self) -> Option<u32> {
        match self {
            Effort::Beam { beam_width, .. } => Some(beam_width),
            _ => None,
        }
    }

    /// As tables have it.
    pub(super) fn words(self) -> String {
        match self {
            Effort::Beam { search_list, beam_width } => format!("L {search_list}, W {beam_width}"),
            Effort::Probes { probes } => format!("nprobe {probes}"),
            Effort::Recall { recall } => format!("recall {recall}"),
        }
    }

    /// What the index is told.
    pub(super) fn options(self, k: u32, threads: usize, in_flight: usize) -> SearchOptions {
        let mut told = SearchOptions {
            k: k as usize,
            threads,
            in_flight: Some(in_flight),
            timed: true,
            ..SearchOptions::default()
        };
        match self {
            Effort::Beam { search_list, beam_width } => {
                told.effort = IndexEffort::SearchList(search_list);
                told.beam_width = Some(beam_width);
                // Rounds are what the paper counts.
                told.mode = Some(SearchMode::Batched);
            }
            Effort::Probes { probes } => (told.probes, told.prune) = (Some(probes), Some(0.0)),
            Effort::Recall { recall } => told.effort = IndexEffort::Recall(recall),
        }
        told
    }
}
