//! What is measured of which index, for which figure.

use super::effort::{BEAM, BEAMS, Effort};
use super::subjects::{DENSE, FEWER_REPLICAS, FINE_SHARE, GRAPH, REPLICAS, SHARE, SPANN, Subject};

/// Queries at once of figure 7.
const CONCURRENCIES: [usize; 4] = [1, 4, 16, 64];
/// The same of what is compared with one thing changed: few, and many.
const ENDS: [usize; 2] = [4, 64];
/// The same where it is shown, too, where the time of one query goes (figure 4).
const WITH_ALONE: [usize; 3] = [1, 4, 64];
/// The same of a run that is only to show that everything works.
const QUICK: [usize; 2] = [1, 4];
/// Of the sweeps of figure 19, every so many efforts are measured for speed.
const BEAM_STEP: usize = 2;

/// An index, and the sweeps that it is searched with.
pub(super) struct Planned {
    pub subject: Subject,
    pub sweeps: Vec<Sweep>,
}

/// Efforts from low to high, and what speeds are measured of.
pub(super) struct Sweep {
    pub efforts: Vec<Effort>,
    pub concurrencies: Vec<usize>,
    /// Of every so many efforts the speed is measured.
    pub every: usize,
}

/// The effort that growth is measured with, without speeds.
fn fixed(subject: Subject) -> Sweep {
    Sweep { efforts: vec![Effort::fixed(subject)], concurrencies: Vec::new(), every: usize::MAX }
}

/// Sweeps as they are asked for.
#[derive(Clone, Copy)]
pub(super) struct Planning {
    pub k: u32,
    pub quick: bool,
}

impl Planning {
    fn sweep(self, subject: Subject, beam: u32, concurrencies: &[usize], every: usize) -> Sweep {
        let concurrencies = if self.quick { &QUICK[..] } else { concurrencies };
        let efforts = Effort::sweep(subject, beam, self.k, self.quick);
        Sweep { efforts, concurrencies: concurrencies.to_vec(), every }
    }

    fn planned(self, subject: Subject, concurrencies: &[usize]) -> Planned {
        Planned { subject, sweeps: vec![self.sweep(subject, BEAM, concurrencies, 1)] }
    }

    /// The first set: all figures but those that compare sets.
    pub(super) fn whole(self) -> Vec<Planned> {
        let mut graph = self.planned(GRAPH, &CONCURRENCIES);
        graph.sweeps.push(fixed(GRAPH));
        graph.sweeps.extend(BEAMS.map(|beam| self.sweep(GRAPH, beam, &ENDS, BEAM_STEP)));
        let mut all = vec![graph];
        all.extend([SPANN, Subject::Cluster, Subject::Coded].map(|of| {
            let mut planned = self.planned(of, &CONCURRENCIES);
            planned.sweeps.push(fixed(of));
            planned
        }));
        let fine = Subject::Spann { centroid_share: FINE_SHARE, replicas: REPLICAS };
        all.extend([fine, Subject::Graph { max_degree: DENSE }].map(|of| self.planned(of, &WITH_ALONE)));
        let fewer = |replicas| Subject::Spann { centroid_share: SHARE, replicas };
        all.extend(FEWER_REPLICAS.map(|replicas| self.planned(fewer(replicas), &ENDS[..1])));
        all
    }

    /// A further set (figures 10 to 12).
    pub(super) fn beside(self) -> Vec<Planned> {
        [GRAPH, SPANN, Subject::Cluster].map(|subject| self.planned(subject, &ENDS)).into()
    }

    /// The first vectors of the first set (figure 13): counters alone.
    pub(super) fn growth(self) -> Vec<Planned> {
        let counted = |subject| Planned { subject, sweeps: vec![fixed(subject)] };
        [GRAPH, SPANN, Subject::Cluster].map(counted).into()
    }
}
