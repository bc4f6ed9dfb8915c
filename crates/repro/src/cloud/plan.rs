//! The indexes, efforts and concurrencies of each figure.

use super::effort::{BEAM, BEAMS, SweepEffort};
use super::subjects::{CloudSubject, DENSE, FEWER_REPLICAS, FINE_SHARE, GRAPH, REPLICAS, SHARE, SPANN};

/// Concurrencies of figure 7.
const CONCURRENCIES: [usize; 4] = [1, 4, 16, 64];
/// Low and high concurrency for comparisons that change one thing.
const ENDS: [usize; 2] = [4, 64];
/// Concurrencies of measurements that also show where the time of a single query goes (figure 4).
const WITH_ALONE: [usize; 3] = [1, 4, 64];
/// Concurrencies of a quick run, which only shows that everything works.
const QUICK: [usize; 2] = [1, 4];
/// Step through the efforts of figure 19's sweeps: speeds are measured at every second effort.
const BEAM_STEP: usize = 2;

/// An index and the sweeps of its searches.
pub(super) struct PlannedIndex {
    pub subject: CloudSubject,
    pub sweeps: Vec<Sweep>,
}

/// Efforts from low to high, and the concurrencies of their speeds.
pub(super) struct Sweep {
    pub efforts: Vec<SweepEffort>,
    pub concurrencies: Vec<usize>,
    /// Speeds are measured at every `every`-th effort.
    pub every: usize,
}

/// Returns the single effort for measuring growth, without speeds.
fn fixed(subject: CloudSubject) -> Sweep {
    Sweep { efforts: vec![SweepEffort::fixed(subject)], concurrencies: Vec::new(), every: usize::MAX }
}

/// Makes the plan from the options of the command line.
#[derive(Clone, Copy)]
pub(super) struct Planner {
    pub k: u32,
    pub quick: bool,
}

impl Planner {
    fn sweep(self, subject: CloudSubject, beam: u32, concurrencies: &[usize], every: usize) -> Sweep {
        let concurrencies = if self.quick { &QUICK[..] } else { concurrencies };
        let efforts = SweepEffort::sweep(subject, beam, self.k, self.quick);
        Sweep { efforts, concurrencies: concurrencies.to_vec(), every }
    }

    fn plan(self, subject: CloudSubject, concurrencies: &[usize]) -> PlannedIndex {
        PlannedIndex { subject, sweeps: vec![self.sweep(subject, BEAM, concurrencies, 1)] }
    }

    /// Plans the first set: all figures except those that compare sets.
    pub(super) fn first_set(self) -> Vec<PlannedIndex> {
        let mut graph = self.plan(GRAPH, &CONCURRENCIES);
        graph.sweeps.push(fixed(GRAPH));
        graph.sweeps.extend(BEAMS.map(|beam| self.sweep(GRAPH, beam, &ENDS, BEAM_STEP)));
        let mut all = vec![graph];
        all.extend([SPANN, CloudSubject::Cluster, CloudSubject::Coded].map(|subject| {
            let mut planned = self.plan(subject, &CONCURRENCIES);
            planned.sweeps.push(fixed(subject));
            planned
        }));
        let fine = CloudSubject::Spann { centroid_share: FINE_SHARE, replicas: REPLICAS };
        all.extend(
            [fine, CloudSubject::Graph { max_degree: DENSE }].map(|subject| self.plan(subject, &WITH_ALONE)),
        );
        let fewer = |replicas| CloudSubject::Spann { centroid_share: SHARE, replicas };
        all.extend(FEWER_REPLICAS.map(|replicas| self.plan(fewer(replicas), &ENDS[..1])));
        all
    }

    /// Plans a further set (figures 10 to 12).
    pub(super) fn further_sets(self) -> Vec<PlannedIndex> {
        [GRAPH, SPANN, CloudSubject::Cluster].map(|subject| self.plan(subject, &ENDS)).into()
    }

    /// Plans a prefix of the first set (figure 13): counters only.
    pub(super) fn growth(self) -> Vec<PlannedIndex> {
        let counted = |subject| PlannedIndex { subject, sweeps: vec![fixed(subject)] };
        [GRAPH, SPANN, CloudSubject::Cluster].map(counted).into()
    }
}
