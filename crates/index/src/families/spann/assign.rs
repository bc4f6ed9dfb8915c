//! Closure assignment (SPANN, NeurIPS'21, section 3.2.2): the lists that each vector requests to be in.
//!
//! A vector belongs to the list of its nearest centroid, and to others whose centroids are nearly as near,
//! for queries from the other side of the boundary. The relative-neighbourhood rule excludes a list if its
//! centroid is nearer to that of a list already chosen than to the vector: two such lists are read together,
//! and the second copy would gain nothing. One walk through the graph over the centroids finds the lists near
//! a whole leaf. Each vector of the leaf is then compared exactly with their centroids.

use super::centroids::navigation_list;
use super::members::{Request, Requests, buckets};
use super::place::Leaves;
use super::work::Work;
use crate::error::{IndexError, NoMemory};
use crate::partition::intake::Intake;
use crate::partition::space::Space;
use crate::partition::{CHECK_BYTES, READ_BYTES};
use crate::proximity::grow::Growth;
use crate::proximity::insert::Inserter;
use crate::proximity::walk::Walk;
use bathyal_kernels::{Metric, Neighbor, from_f32};
use bathyal_vectors::{RowReader, VectorError, VectorFile};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Centroids near a leaf that its vectors are compared with.
pub(crate) const CANDIDATES: u32 = 128;
/// The nearest centroids among which a vector chooses its lists. Nearer centroids hide all farther ones.
const CHOSEN_AMONG: usize = 64;
/// The largest distance of a centroid, as a multiple of the nearest one's, at which a vector chooses its
/// list.
const CLOSURE: f32 = 2.0;
/// A chosen list hides another if their centroids are nearer to each other than this factor times the
/// distance from the vector to the other centroid. Means are nearer to each other than vectors are to means.
/// With a factor of 1, as in SPANN, whose centroids are vectors, SIFT vectors are in 1.2 of 8 lists, and a
/// recall of 0.92 takes 128 lists instead of 28. Of 0.35, 0.5, 0.6, 0.7 and 1 this one suits SIFT, GloVe and
/// MiniLM alike (table in `docs/decisions/spann.md`).
const HIDING: f32 = 0.5;
/// The number of lists that a typical query reads, for counting the frequencies of lists. With 1, grouped
/// lists of SIFT take 2 to 4% fewer reads, and those of MiniLM 6% fewer at recall 0.90 and 4% more at 0.95;
/// with 64 the differences are as small.
const NOMINAL_PROBES: usize = 16;
/// Vectors after which requests are spilled.
pub(crate) const ROUND_VECTORS: usize = 32_768;
/// The most given queries that are counted: enough to reach a list of the least share.
const MOST_QUERIES: usize = 20_000;
/// Leaves that a thread takes at once.
const LEAVES_AT_ONCE: usize = 16;

/// The result of the assignment.
pub(crate) struct Assignment<'a> {
    pub(crate) requests: Requests<'a>,
    /// For each list, the number of vectors, and of given queries, that have it among the [`NOMINAL_PROBES`]
    /// nearest lists.
    pub(crate) frequencies: Vec<u32>,
}

/// Assigns lists to all vectors: collects their requests.
pub(crate) fn assign<'a>(
    work: &Work<'a>,
    intake: &Intake,
    leaves: &Leaves,
    growth: &Growth<'_>,
) -> Result<Assignment<'a>, IndexError> {
    let (vectors, lists) = (work.data.count(), leaves.count());
    work.progress.stage("assigning", vectors as u64);
    let buckets = buckets(vectors as u64, work.own.list_replicas());
    let mut requests = Requests::create(work.directory, lists, buckets)?;
    let frequencies: Vec<AtomicU32> = (0..lists).map(|_| AtomicU32::new(0)).collect();
    let mut assigners = (0..work.threads)
        .map(|_| Assigner::new(intake, leaves, growth, &frequencies, work.own.list_replicas() as usize))
        .collect::<Result<Vec<_>, _>>()?;
    let most = ROUND_VECTORS.min(CHECK_BYTES / work.data.row_bytes());
    let leaves_a_round = (most / work.layout.leaf).max(1);
    for first in (0..lists).step_by(leaves_a_round) {
        let end = lists.min(first + leaves_a_round);
        let next = AtomicUsize::new(first);
        std::thread::scope(|scope| {
            for assigner in &mut assigners {
                let next = &next;
                scope.spawn(move || {
                    assigner.requests.clear();
                    loop {
                        let first = next.fetch_add(LEAVES_AT_ONCE, Ordering::Relaxed);
                        if first >= end || work.progress.cancelled() {
                            return;
                        }
                        for leaf in first..end.min(first + LEAVES_AT_ONCE) {
                            if let Err(error) = assigner.request_lists(leaf as u32) {
                                assigner.failed = Some(error);
                                return;
                            }
                        }
                    }
                });
            }
        });
        work.check_cancelled()?;
        if let Some(error) = assigners.iter_mut().find_map(|assigner| assigner.failed.take()) {
            return Err(error.into());
        }
        for request in assigners.iter().flat_map(|assigner| &assigner.requests) {
            requests.push(*request)?;
        }
        work.progress.advance(u64::from(leaves.first[end]));
    }
    drop(assigners);
    let mut frequencies: Vec<u32> = frequencies.into_iter().map(AtomicU32::into_inner).collect();
    if let Some(queries) = &work.options.calibration {
        count_queries(work, intake, queries, growth, &mut frequencies)?;
    }
    Ok(Assignment { requests, frequencies })
}

/// Counts the lists near the given queries. All queries together have the same weight as all vectors.
fn count_queries(
    work: &Work<'_>,
    intake: &Intake,
    queries: &VectorFile,
    growth: &Growth<'_>,
    frequencies: &mut [u32],
) -> Result<(), IndexError> {
    let count = queries.count().min(MOST_QUERIES);
    let weight = (work.data.count() / count).max(1) as u32;
    let search_list = navigation_list(NOMINAL_PROBES);
    let mut walk = Walk::new(search_list, growth.options.max_degree as usize);
    let mut form = CentroidForm::new(intake);
    let mut rows = RowReader::new(queries, 0);
    let mut taken = vec![0; work.data.row_bytes()];
    for i in 0..count {
        if i % 256 == 0 {
            work.check_cancelled()?;
        }
        let query = (i as u64 * queries.count() as u64 / count as u64) as usize;
        // A query without a direction is near to nothing.
        if !intake.take(rows.row(query)?, &mut taken) {
            continue;
        }
        let row = form.convert(intake, growth.space, &taken);
        let score = |ids: &[u32], scores: &mut [f32]| growth.space.score_query(row, ids, scores);
        walk.run(&growth.graph, growth.entry, search_list, score, |_| ());
        for list in walk.found().take(NOMINAL_PROBES) {
            let frequency = &mut frequencies[list.id as usize];
            *frequency = frequency.saturating_add(weight);
        }
    }
    Ok(())
}

/// Converts vectors to the element of centroids.
struct CentroidForm {
    floats: Vec<f32>,
    row: Vec<u8>,
}

impl CentroidForm {
    fn new(intake: &Intake) -> CentroidForm {
        CentroidForm { floats: vec![0.0; intake.dim], row: Vec::new() }
    }

    fn convert<'a>(&'a mut self, intake: &Intake, centroids: &Space, taken: &'a [u8]) -> &'a [u8] {
        if intake.metric != Metric::Cosine || intake.element.has_unit_vectors() {
            return taken;
        }
        intake.floats(taken, &mut self.floats);
        self.row.resize(centroids.row_bytes(), 0);
        from_f32(centroids.element(), &self.floats, &mut self.row);
        &self.row
    }
}

/// The state of one thread of the assignment.
struct Assigner<'a> {
    intake: &'a Intake,
    leaves: &'a Leaves,
    centroids: &'a Space,
    frequencies: &'a [AtomicU32],
    replicas: usize,
    inserter: Inserter<'a>,
    /// Lists near the current leaf.
    near: Vec<u32>,
    scores: Vec<f32>,
    ranked: Vec<Neighbor>,
    taken: Vec<Neighbor>,
    form: CentroidForm,
    rows: RowReader<'a>,
    requests: Vec<Request>,
    /// The error of a failed read of rows.
    failed: Option<VectorError>,
}

impl<'a> Assigner<'a> {
    fn new(
        intake: &'a Intake,
        leaves: &'a Leaves,
        growth: &'a Growth<'_>,
        frequencies: &'a [AtomicU32],
        replicas: usize,
    ) -> Result<Assigner<'a>, NoMemory> {
        Ok(Assigner {
            intake,
            leaves,
            centroids: growth.space,
            frequencies,
            replicas,
            inserter: growth.inserter(CANDIDATES)?,
            near: Vec::new(),
            scores: Vec::new(),
            ranked: Vec::new(),
            taken: Vec::new(),
            form: CentroidForm::new(intake),
            rows: RowReader::new(&leaves.rows, READ_BYTES),
            requests: Vec::new(),
            failed: None,
        })
    }

    /// Collects the requests of the vectors of a leaf.
    fn request_lists(&mut self, leaf: u32) -> Result<(), VectorError> {
        let found = self.inserter.search(leaf);
        self.ranked.clear();
        self.ranked.extend_from_slice(found);
        self.ranked.sort_unstable();
        self.near.clear();
        // The leaf's own list comes first: among equally near lists a vector then prefers it, and always has
        // one list.
        self.near.push(leaf);
        let others = self.ranked.iter().map(|near| near.id).filter(|id| *id != leaf);
        self.near.extend(others.take(CANDIDATES as usize - 1));
        self.scores.resize(self.near.len(), 0.0);
        for slot in self.leaves.slots(leaf) {
            self.rank(slot)?;
            self.choose(slot);
        }
        Ok(())
    }

    /// Ranks the lists near the leaf by their distance from one vector, as positions in `near`.
    fn rank(&mut self, slot: u32) -> Result<(), VectorError> {
        let taken = self.rows.row(slot as usize)?;
        let row = self.form.convert(self.intake, self.centroids, taken);
        self.centroids.score_row(row, &self.near, &mut self.scores);
        self.ranked.clear();
        let scored = self.scores.iter().zip(0..);
        self.ranked.extend(scored.map(|(distance, id)| Neighbor { distance: *distance, id }));
        if self.ranked.len() > CHOSEN_AMONG {
            self.ranked.select_nth_unstable(CHOSEN_AMONG - 1);
            self.ranked.truncate(CHOSEN_AMONG);
        }
        self.ranked.sort_unstable();
        for near in self.ranked.iter().take(NOMINAL_PROBES) {
            self.frequencies[self.near[near.id as usize] as usize].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Requests the nearest list, and further ones that no requested list hides.
    fn choose(&mut self, slot: u32) {
        self.taken.clear();
        let farthest = self.ranked.first().map_or(0.0, |nearest| nearest.distance * CLOSURE * CLOSURE);
        for near in &self.ranked {
            if self.taken.len() == self.replicas || (near.distance > farthest && !self.taken.is_empty()) {
                break;
            }
            let list = self.near[near.id as usize];
            let hidden = |taken: &Neighbor| {
                self.centroids.between(self.near[taken.id as usize], list) <= HIDING * HIDING * near.distance
            };
            if !self.taken.iter().any(hidden) {
                self.taken.push(*near);
                self.requests.push(Request { list, slot, distance: near.distance });
            }
        }
    }
}
