//! Calibration: measures how much effort each recall takes on this index, before it is published.
//!
//! Unless the caller gives queries, held-out vectors of the data serve as queries: they are inserted only
//! after the measurement. The queries run with longer and longer candidate lists, until they miss almost no
//! neighbour. The recall of each length is stored for each k.

use super::open::{buffers, load_graph};
use super::section::GraphEntry;
use crate::build::options::BuildOptions;
use crate::calibrate::list::ListPoint;
use crate::calibrate::trial::{LEAST_VECTORS, StandIns, Trial, sample_ids};
use crate::calibrate::{Calibration, Curve};
use crate::error::IndexError;
use crate::family::answers::answer_all;
use crate::form::source::SourceVectors;
use crate::format::loading::load;
use crate::format::manifest::Manifest;
use crate::query::{DEFAULT_BEAM_WIDTH, SearchMode, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_store::Generation;
use bathyal_tier::Tier;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::FileOptions;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// Lengths of the candidate list that are measured. Each is about a quarter larger than the one before.
const MEASURED_LISTS: [u32; 26] = [
    10, 12, 16, 20, 26, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256, 320, 400, 512, 640, 800, 1000, 1280,
    1600, 2000, 2560, 3200,
];
/// Recall above which differences are noise.
const ENOUGH_RECALL: f32 = 0.999;

/// Returns the ids of the vectors that the build inserts after the calibration, in rising order, without
/// `entry`.
pub(crate) fn hold_out(
    data: &SourceVectors<'_>,
    entry: u32,
    options: &BuildOptions,
) -> Result<Vec<u32>, IndexError> {
    if options.calibration.is_some() || data.count() < LEAST_VECTORS {
        return Ok(Vec::new());
    }
    let mut ids = sample_ids(data, options)?;
    ids.retain(|id| *id != entry);
    Ok(ids)
}

/// The vectors that a graph lacks while it is calibrated.
pub(crate) struct HeldOutVectors<'a> {
    /// Their ids, in rising order. No link leads to these vectors.
    pub(crate) ids: &'a [u32],
    /// Their places in rising order, which searches must hide.
    pub(crate) hidden_places: Vec<u32>,
}

/// The graph to measure. Its manifest has not been written yet.
pub(crate) struct DraftGraph<'a> {
    pub(crate) directory: &'a dyn Generation,
    pub(crate) manifest: &'a Manifest,
    pub(crate) entry: &'a GraphEntry,
    pub(crate) data: &'a SourceVectors<'a>,
    /// True if there is memory for all pages. Otherwise they are read through the page cache.
    pub(crate) in_memory: bool,
}

/// Measures a graph that lacks the vectors `held_out`. The result is empty if there are no queries.
pub(crate) fn calibrate(
    draft_graph: &DraftGraph<'_>,
    held_out: HeldOutVectors<'_>,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Calibration<ListPoint>, IndexError> {
    let DraftGraph { directory, manifest, entry, data, .. } = *draft_graph;
    let Some(trial) = Trial::prepare(data, options, StandIns::HeldOut(held_out.ids), progress)? else {
        return Ok(Calibration::default());
    };
    let present = data.count() - held_out.ids.len();
    let largest_k = trial.wide;
    let most_found = largest_k + trial.most_absent();
    let mut graph = load_graph(directory, manifest, entry.clone())?;
    graph.hide(held_out.hidden_places);
    let (tier, buffers) = (draft_graph.tier()?, buffers(graph.layout.read_bytes()));
    // The number of vectors that codes rank before a true neighbour grows with the number of vectors. So the
    // finished index needs a list that is longer by the share of held-out vectors, which is small for large
    // indexes.
    let complete_list = |list: u32| (u64::from(list) * data.count() as u64).div_ceil(present as u64) as u32;
    let mut curves: Vec<Curve<ListPoint>> = trial.curves();
    progress.stage("calibrating", MEASURED_LISTS.len() as u64);
    for (step, search_list) in MEASURED_LISTS.into_iter().enumerate() {
        let is_unfinished =
            |(at, c): (usize, &Curve<ListPoint>)| search_list >= c.k && !is_finished(c, trial.left(at));
        if search_list as usize > largest_k && !curves.iter().enumerate().any(is_unfinished) {
            break;
        }
        let mut found = Vec::with_capacity(trial.count());
        for queries in trial.kinds() {
            let params = params(most_found.min(search_list as usize), search_list);
            let threads = options.thread_count();
            found.extend(answer_all(&graph, &tier, buffers, queries, params, threads, progress)?);
        }
        let counts = counts(&trial, &found);
        for (at, curve) in curves.iter_mut().enumerate().filter(|(at, c)| is_unfinished((*at, c))) {
            let recall = trial.recall(at, |counter| counts[counter]);
            curve.points.push(ListPoint { search_list: complete_list(search_list), recall });
        }
        progress.advance(step as u64 + 1);
    }
    progress.advance(MEASURED_LISTS.len() as u64);
    curves.iter_mut().for_each(|curve| curve.keep_rising(|_| ()));
    Ok(trial.calibration(curves))
}

impl DraftGraph<'_> {
    /// Returns the tier from which the graph is read.
    fn tier(&self) -> Result<Arc<dyn Tier>, IndexError> {
        let file = &self.entry.file;
        if self.in_memory {
            return Ok(Arc::new(DramTier::new(load(self.directory, self.manifest, file)?)));
        }
        let object = self.manifest.open_file(self.directory, file)?;
        Ok(object.tier(FileOptions { direct: false, ..FileOptions::default() })?)
    }
}

/// Returns true if more effort would hardly raise the recall, of which at most `reachable` can be reached.
fn is_finished(curve: &Curve<ListPoint>, reachable: f32) -> bool {
    curve.points.last().is_some_and(|p| p.recall >= ENOUGH_RECALL * reachable)
}

fn params(k: usize, search_list: u32) -> SearchParams {
    SearchParams {
        k,
        search_list: search_list as usize,
        probes: 0,
        prune: 0.0,
        beam_width: DEFAULT_BEAM_WIDTH as usize,
        multi_probe: 0,
        mode: SearchMode::Batched,
        timed: false,
        early: None,
    }
}

/// Returns for each counter of the trial how many true neighbours are among the answers `found`.
fn counts(trial: &Trial, found: &[Vec<Neighbor>]) -> Vec<u64> {
    let mut counts = vec![0; trial.counters()];
    for (query, found) in found.iter().enumerate() {
        let present: Vec<u32> =
            found.iter().map(|near| near.id).filter(|id| !trial.is_absent(query, *id)).collect();
        for (number, id) in trial.neighbors(query).enumerate() {
            let Some(rank) = present.iter().position(|found| *found == id) else { continue };
            for counter in trial.counters_of(query, number) {
                counts[counter] += u64::from(rank < trial.k_of(counter));
            }
        }
    }
    counts
}
