//! What recall so many blocks of each table and so many candidates reach, measured before the index is published: which of the
//! true neighbours are in the blocks, and which rank their codes have among all that is. Whole vectors are not read for it.

use super::build::Work;
use super::search::{Lsh, Scratch};
use super::section::TABLES_NAME;
use crate::calibrate::probed::ProbedPoint;
use crate::calibrate::trial::{StandIns, Trial, climb};
use crate::calibrate::{Calibration, Curve};
use crate::error::IndexError;
use crate::query::{SearchMode, SearchParams};
use bathyal_store::Object;
use std::collections::HashMap;
use std::sync::Arc;

/// Blocks of each table that are tried.
const PROBES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, MOST_PROBES];
/// More scan what a cluster index reads in no time: an index that needs them has too few tables.
const MOST_PROBES: u32 = 256;
/// Lengths of the candidate list that are recorded.
const LISTS: [u32; 24] =
    [1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 26, 32, 40, 52, 64, 80, 104, 128, 180, 256, 360, 512, 720, 1024];
/// The longest of them.
const LONGEST: usize = LISTS[LISTS.len() - 1] as usize;

/// Measures the index of `work`, whose manifest has not been written yet.
pub(super) fn calibrate(work: &Work<'_>, lsh: &Lsh) -> Result<Calibration<ProbedPoint>, IndexError> {
    let Some(trial) = Trial::prepare(work.data, work.options, StandIns::Own, work.progress)? else {
        return Ok(Calibration::default());
    };
    let object = work.directory.get(TABLES_NAME)?;
    let measured = Measured { lsh, trial: &trial, object };
    let mut curves: Vec<Curve<ProbedPoint>> = trial.curves();
    climb(&PROBES, MOST_PROBES.min(lsh.fences.blocks() as u32), work.progress, |probes| {
        let ranks = measured.ranks(work, probes)?;
        Ok(add_points(&mut curves, &ranks, probes, &trial))
    })?;
    curves.retain(|curve| !curve.points.is_empty());
    if curves.is_empty() {
        return Ok(Calibration::default());
    }
    Ok(trial.calibration(curves))
}

struct Measured<'a> {
    lsh: &'a Lsh,
    trial: &'a Trial,
    object: Arc<dyn Object>,
}

/// For each k: how many true neighbours of all queries have each rank, those of none or of a later one at the end.
type Ranks = Vec<Vec<u64>>;

/// What a thread measures with.
struct State {
    scratch: Scratch,
    bytes: Vec<u8>,
    ranks: HashMap<u32, usize>,
    counts: Ranks,
}

impl Measured<'_> {
    fn empty(&self) -> Ranks {
        vec![vec![0; LONGEST + 1]; self.trial.k.len()]
    }

    fn ranks(&self, work: &Work<'_>, probes: u32) -> Result<Ranks, IndexError> {
        let start = || {
            let (scratch, counts) = (Scratch::default(), self.empty());
            Ok(State { scratch, bytes: Vec::new(), ranks: HashMap::new(), counts })
        };
        let measure = |query: usize, state: &mut State| self.measure(query, probes, state);
        let parts = self.trial.each(work.threads, work.progress, start, measure)?;
        let mut counts = self.empty();
        for part in parts {
            let pairs = counts.iter_mut().flatten().zip(part.counts.into_iter().flatten());
            pairs.for_each(|(sum, part)| *sum += part);
        }
        Ok(counts)
    }

    fn measure(&self, query: usize, probes: u32, state: &mut State) -> Result<(), IndexError> {
        let (lsh, trial) = (self.lsh, self.trial);
        let State { scratch, bytes, ranks, counts } = state;
        let params = SearchParams {
            k: 1,
            search_list: LONGEST + 1,
            probes: probes as usize,
            prune: 0.0,
            beam_width: 1,
            mode: SearchMode::Batched,
            timed: false,
        };
        scratch.begin(lsh, trial.queries.row(query), &params);
        // One more than recorded: the query itself may be there.
        let found = scratch.look(lsh, (params.probes, params.search_list), self.object.as_ref(), bytes)?;
        let own = trial.own.as_ref().map(|own| own[query]);
        ranks.clear();
        let others = found.iter().map(|hit| hit.id).filter(|id| Some(*id) != own);
        ranks.extend(others.take(LONGEST).zip(0..));
        for (counted, id) in trial.neighbors(query).enumerate() {
            let rank = ranks.get(&id).copied().unwrap_or(LONGEST);
            let of_k = trial.k.iter().zip(counts.iter_mut()).filter(|(k, _)| counted < **k as usize);
            of_k.for_each(|(_, counts)| counts[rank] += 1);
        }
        Ok(())
    }
}

/// Adds the points of a number of blocks to every curve; returns the best recall of the curve of k = 10, or of the only one.
fn add_points(curves: &mut [Curve<ProbedPoint>], ranks: &Ranks, probes: u32, trial: &Trial) -> f32 {
    let mut best = 0.0;
    let only = curves.len() == 1;
    for (at, (curve, counts)) in curves.iter_mut().zip(ranks).enumerate() {
        let (mut sum, mut next, mut last) = (0, 0, None);
        for list in LISTS.into_iter().filter(|list| *list >= curve.k) {
            sum += counts[next..list as usize].iter().sum::<u64>();
            next = list as usize;
            let recall = trial.recall(at, sum);
            if last.is_none_or(|last| recall > last) {
                curve.points.push(ProbedPoint { probes, search_list: list, recall });
                last = Some(recall);
            }
        }
        if curve.k == 10 || only {
            best = last.unwrap_or(0.0) / trial.left(at).max(f32::MIN_POSITIVE);
        }
    }
    best
}
