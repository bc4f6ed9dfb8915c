//! Inserts into sub-indexes during searches (section 3.2), until the number of vectors has doubled: inserts
//! per second, and their effect on searches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bathyal_console::Failure;
use bathyal_index::families::partitioned::{PartitionedOptions, Pivots};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{BuildOptions, Effort, Index, SearchOptions};
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Progress;

use super::measure::{ALONE, DhnswExperiment, rows_of};
use super::node::{OpenIndex, Residency, ServedIndex};
use super::rows::{DhnswRecord, InsertRow, median_us};
use crate::records::Records;
use crate::sets::DataSet;

/// All searches use the effort for this recall.
const RECALL: f32 = 0.95;
/// Measurements while the index grows.
const STEPS: usize = 4;
/// Vectors per call in bulk inserts.
const BATCH: usize = 1000;
/// Vectors that are inserted one per call, for the median time of such a call.
const SINGLES: usize = 200;
/// Fewest vectors in the first half: fewer leave nothing to partition.
const LEAST_VECTORS: usize = 1000;

impl DhnswExperiment<'_> {
    /// Builds an index over the first half of a set and inserts the second half, with searches in between.
    pub(super) fn inserts(&self, set: &DataSet, records: &mut Records) -> Result<(), Failure> {
        let half = set.base.count() / 2;
        if half < LEAST_VECTORS {
            return Ok(());
        }
        let first = rows_of(&set.base, 0, half)?;
        let family = PartitionedOptions {
            partition_vectors: self.arguments.subindex_vectors(),
            pivots: Pivots::Balanced,
            growth: 1.0,
            ..PartitionedOptions::default()
        };
        let path = set.folder.join(format!("growing-{half}-p{}", family.partition_vectors));
        if !path.exists() {
            let options = BuildOptions { metric: self.arguments.metric, ..BuildOptions::of(family) };
            bathyal_index::build(&first, &path, &options, &self.console.progress())?;
        }
        let manifest = Manifest::read(&path)?;
        let served = ServedIndex::copy(&path, &manifest, self.console)?;
        let opened =
            served.open(&self.arguments.emulate, None, Residency::Share(self.arguments.cache_share))?;
        // The writer opens the index separately, as another machine would.
        let writer =
            served.open(&self.arguments.emulate, None, Residency::Share(self.arguments.cache_share))?.index;
        let progress = self.console.progress();
        progress.stage(&format!("{}: inserts", set.name), half as u64);
        let effort = self.effort(set, &opened)?;
        records.write(&DhnswRecord::Grown(&self.measure_searches(set, (&opened, half), effort, None)?))?;
        let mut vectors = half;
        for step in 1..=STEPS {
            let until = half + half * step / STEPS;
            let inserted = self.insert(set, (&writer, &opened), vectors..until, effort, &progress)?;
            vectors = until;
            let row = self.measure_searches(set, (&opened, vectors), effort, Some(inserted))?;
            records.write(&DhnswRecord::Grown(&row))?;
        }
        Ok(())
    }

    /// Returns the search list and the probes that reach the recall before any insert.
    fn effort(&self, set: &DataSet, opened: &OpenIndex) -> Result<(u32, u32), Failure> {
        let options = SearchOptions { effort: Effort::Recall(RECALL), ..self.options(self.most_k(), None) };
        let found = opened.index.search(&rows_of(&set.query_set.queries, 0, 1)?, &options, self.control)?;
        Ok((found.search_list, found.probes.unwrap_or(self.arguments.probes)))
    }

    fn most_k(&self) -> u32 {
        self.arguments.neighbours().last().copied().unwrap_or(1)
    }

    fn with_effort(&self, (search_list, probes): (u32, u32), in_flight: usize) -> SearchOptions {
        let effort = Effort::SearchList(search_list);
        SearchOptions { effort, probes: Some(probes), ..self.options(self.most_k(), Some(in_flight)) }
    }

    /// Measures recall and cost of searches over the first `vectors` vectors of a set.
    fn measure_searches(
        &self,
        set: &DataSet,
        (opened, vectors): (&OpenIndex, usize),
        effort: (u32, u32),
        inserted: Option<InsertTimes>,
    ) -> Result<InsertRow, Failure> {
        let queries = &set.query_set.queries;
        let (base, k) = (rows_of(&set.base, 0, vectors)?, self.most_k() as usize);
        let exact =
            exact_neighbors(&base, queries, self.arguments.metric, k, None, &self.console.progress())?;
        let batch = self.arguments.batch_queries();
        let mut sums = Vec::new();
        for _ in 0..self.arguments.cell_repeats() {
            sums.push(self.batches(opened, queries, &self.with_effort(effort, batch), batch)?);
        }
        sums.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let sum = sums.swap_remove(sums.len() / 2);
        let some = queries.count().min(ALONE);
        let alone = self.batches(opened, &rows_of(queries, 0, some)?, &self.with_effort(effort, 1), 1)?;
        let inserted = inserted.unwrap_or_default();
        Ok(InsertRow {
            emulated: true,
            set: set.name.clone(),
            vectors,
            search_list: effort.0,
            probes: effort.1,
            cost: sum.cost(&exact, &self.arguments.emulate)?,
            alone_p50_us: median_us(alone.latencies_ns),
            inserts_a_second: inserted.a_second,
            insert_p50_us: inserted.single_us,
            alone_while_inserting_p50_us: inserted.alone_us,
        })
    }

    /// Inserts the rows `rows` of a set, with their numbers as ids; the second half of the bulk inserts runs
    /// while queries are answered.
    fn insert(
        &self,
        set: &DataSet,
        (writer, opened): (&Index, &OpenIndex),
        rows: std::ops::Range<usize>,
        effort: (u32, u32),
        progress: &dyn Progress,
    ) -> Result<InsertTimes, Failure> {
        let half = set.base.count() / 2;
        let singles = rows.start..rows.start + SINGLES.min(rows.len() / 4);
        let mut latencies_ns = Vec::new();
        for row in singles.clone() {
            let one = rows_of(&set.base, row, 1)?;
            let started = Instant::now();
            writer.insert(&one)?;
            latencies_ns.push(started.elapsed().as_nanos() as u64);
        }
        let insert_in_bulk = |rows: std::ops::Range<usize>| -> Result<f64, Failure> {
            let mut seconds = 0.0;
            for first in rows.clone().step_by(BATCH) {
                let some = rows_of(&set.base, first, BATCH.min(rows.end - first))?;
                let started = Instant::now();
                writer.insert(&some)?;
                seconds += started.elapsed().as_secs_f64();
                progress.advance((first - half) as u64);
                if self.console.interrupt().flag().load(Ordering::Relaxed) {
                    return Err(bathyal_index::IndexError::Cancelled.into());
                }
            }
            Ok(seconds)
        };
        let without_searches = singles.end..singles.end + (rows.end - singles.end) / 2;
        let a_second = without_searches.len() as f64 / insert_in_bulk(without_searches.clone())?.max(1e-9);
        let (done, mut search_latencies_ns) = (AtomicBool::new(false), Vec::new());
        let queries =
            rows_of(&set.query_set.queries, 0, 1.max(set.query_set.queries.count().min(ALONE) / 10))?;
        std::thread::scope(|scope| {
            let inserting = scope.spawn(|| {
                let inserted = insert_in_bulk(without_searches.end..rows.end);
                done.store(true, Ordering::Release);
                inserted
            });
            let options = self.with_effort(effort, 1);
            let mut searched = Ok(());
            while searched.is_ok() && !done.load(Ordering::Acquire) {
                let found = opened.index.search(&queries, &options, self.control);
                searched = found.map(|found| search_latencies_ns.extend(found.latencies_ns));
            }
            let panicked = |_| Err(Failure::new("the inserting thread panicked".to_owned()));
            inserting.join().unwrap_or_else(panicked)?;
            searched.map_err(Failure::from)
        })?;
        Ok(InsertTimes {
            a_second,
            single_us: median_us(latencies_ns),
            alone_us: median_us(search_latencies_ns),
        })
    }
}

/// Times of inserts, and of searches during inserts.
#[derive(Default)]
struct InsertTimes {
    /// Inserts per second in bulk, without searches.
    a_second: f64,
    /// Median of a call that inserts one vector.
    single_us: f64,
    /// Median of a single query while another thread inserts.
    alone_us: f64,
}
