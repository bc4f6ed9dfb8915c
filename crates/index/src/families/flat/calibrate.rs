//! Measures the recall that numbers of candidates reach, before the index is published: the ranks of the true
//! neighbours among the codes. It reads no vectors, so other vectors on the pages of candidates do not count.

use super::search::{Flat, FlatScratch};
use crate::build::options::BuildOptions;
use crate::calibrate::Calibration;
use crate::calibrate::list::ListPoint;
use crate::calibrate::trial::{StandIns, Trial};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::query::{SearchMode, SearchParams};
use bathyal_vectors::progress::Progress;
use std::collections::HashMap;

/// Lengths of the candidate list that are recorded.
const LISTS: [u32; 26] = [
    1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 26, 32, 40, 52, 64, 80, 104, 128, 180, 256, 360, 512, 720, 1024, 1440,
    2048,
];

/// Measures `flat`, whose manifest has not been written yet.
pub(super) fn calibrate(
    flat: &Flat,
    data: &SourceVectors<'_>,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Calibration<ListPoint>, IndexError> {
    let Some(coded) = &flat.codes else { return Ok(Calibration::default()) };
    let Some(trial) = Trial::prepare(data, options, StandIns::Own, progress)? else {
        return Ok(Calibration::default());
    };
    progress.stage("calibrating", 1);
    let longest = LISTS[LISTS.len() - 1] as usize;
    let wanted = (longest + trial.most_absent()).min(flat.set.vectors as usize);
    let params = SearchParams {
        k: 1,
        search_list: wanted,
        probes: 0,
        prune: 0.0,
        beam_width: 1,
        multi_probe: 0,
        mode: SearchMode::Batched,
        timed: false,
        early: None,
    };
    // For each counter, the number of true neighbours at each rank. The last entry counts those without a
    // rank.
    let empty = || vec![vec![0_u64; longest + 1]; trial.counters()];
    let start = || Ok((FlatScratch::default(), HashMap::new(), empty()));
    let parts = trial.each_query(options.thread_count(), progress, start, |query, state| {
        let (scratch, ranks, counts): &mut (FlatScratch, HashMap<u32, usize>, _) = state;
        scratch.begin(&flat.set, trial.query(query), &params);
        scratch.rank(coded, wanted);
        ranks.clear();
        let others = scratch.candidates().iter().map(|hit| hit.id).filter(|id| !trial.is_absent(query, *id));
        ranks.extend(others.take(longest).zip(0..));
        for (number, id) in trial.neighbors(query).enumerate() {
            let rank = ranks.get(&id).copied().unwrap_or(longest);
            trial.counters_of(query, number).for_each(|counter| counts[counter][rank] += 1);
        }
        Ok(())
    })?;
    let mut counts = empty();
    for (.., part) in parts {
        let pairs = counts.iter_mut().flatten().zip(part.into_iter().flatten());
        pairs.for_each(|(sum, part)| *sum += part);
    }
    let mut curves = trial.curves();
    for (at, curve) in curves.iter_mut().enumerate() {
        for list in LISTS.into_iter().filter(|list| *list >= curve.k && *list < flat.set.vectors) {
            let found = |counter: usize| counts[counter][..list as usize].iter().sum();
            curve.points.push(ListPoint { search_list: list, recall: trial.recall(at, found) });
        }
    }
    curves.retain(|curve| !curve.points.is_empty());
    if curves.is_empty() {
        return Ok(Calibration::default());
    }
    progress.advance(1);
    Ok(trial.calibration(curves))
}
