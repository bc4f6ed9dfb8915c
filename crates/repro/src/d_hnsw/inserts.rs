//! Inserts into sub-indexes that are searched (section 3.2), until there are twice as many vectors: how many a second, and what they do
//! to searches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bathyal_console::Failure;
use bathyal_index::families::partitioned::{PartitionedOptions, Pivots};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{BuildOptions, Effort, Index, SearchOptions};
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Progress;

use super::measure::{ALONE, Lab, rows_of};
use super::node::{Keep, Opened, Served};
use super::rows::{Grown, Record, median_us};
use crate::records::Records;
use crate::sets::Set;

/// The recall whose effort all searches have.
const RECALL: f32 = 0.95;
/// Looks at the index while it grows.
const STEPS: usize = 4;
/// Vectors that are inserted by one call.
const BATCH: usize = 1000;
/// Vectors that are inserted by a call each, for its median.
const SINGLES: usize = 200;
/// Vectors of the first part at least: below, there is nothing to divide.
const LEAST_VECTORS: usize = 1000;

impl Lab<'_> {
    /// An index of the first half of a set, which the second half is inserted into.
    pub(super) fn inserts(&self, set: &Set, records: &mut Records) -> Result<(), Failure> {
        let half = set.base.count() / 2;
        if half < LEAST_VECTORS {
            return Ok(());
        }
        let first = rows_of(&set.base, 0, half)?;
        let own = PartitionedOptions {
            partition_vectors: self.arguments.subindex_vectors(),
            pivots: Pivots::Balanced,
            growth: 1.0,
            ..PartitionedOptions::default()
        };
        let path = set.folder.join(format!("growing-{half}-p{}", own.partition_vectors));
        if !path.exists() {
            let options = BuildOptions { metric: self.arguments.metric, ..BuildOptions::of(own) };
            bathyal_index::build(&first, &path, &options, &self.console.progress())?;
        }
        let manifest = Manifest::read(&path)?;
        let served = Served::copy(&path, &manifest, self.console)?;
        let opened = served.open(&self.arguments.emulate, None, Keep::Share(self.arguments.cache_share))?;
        // As another machine has it.
        let writer =
            served.open(&self.arguments.emulate, None, Keep::Share(self.arguments.cache_share))?.index;
        let progress = self.console.progress();
        progress.stage(&format!("{}: inserts", set.name), half as u64);
        let effort = self.effort(set, &opened)?;
        records.write(&Record::Grown(&self.look(set, (&opened, half), effort, None)?))?;
        let mut there = half;
        for step in 1..=STEPS {
            let until = half + half * step / STEPS;
            let inserted = self.insert(set, (&writer, &opened), there..until, effort, &progress)?;
            there = until;
            let row = self.look(set, (&opened, there), effort, Some(inserted))?;
            records.write(&Record::Grown(&row))?;
        }
        Ok(())
    }

    /// The effort for the recall as the index begins.
    fn effort(&self, set: &Set, opened: &Opened) -> Result<(u32, u32), Failure> {
        let options = SearchOptions { effort: Effort::Recall(RECALL), ..self.options(self.most_k(), None) };
        let found = opened.index.search(&rows_of(&set.asked.queries, 0, 1)?, &options, self.control)?;
        Ok((found.search_list, found.probes.unwrap_or(self.arguments.probes)))
    }

    fn most_k(&self) -> u32 {
        self.arguments.neighbours().last().copied().unwrap_or(1)
    }

    fn with_effort(&self, (search_list, probes): (u32, u32), in_flight: usize) -> SearchOptions {
        let effort = Effort::SearchList(search_list);
        SearchOptions { effort, probes: Some(probes), ..self.options(self.most_k(), Some(in_flight)) }
    }

    /// What searches of the first `there` vectors of a set find, and what they cost.
    fn look(
        &self,
        set: &Set,
        (opened, there): (&Opened, usize),
        effort: (u32, u32),
        inserted: Option<Inserted>,
    ) -> Result<Grown, Failure> {
        let queries = &set.asked.queries;
        let (base, k) = (rows_of(&set.base, 0, there)?, self.most_k() as usize);
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
        Ok(Grown {
            emulated: true,
            set: set.name.clone(),
            vectors: there,
            search_list: effort.0,
            probes: effort.1,
            cost: sum.cost(&exact, &self.arguments.emulate)?,
            alone_p50_us: median_us(alone.latencies_ns),
            inserts_a_second: inserted.a_second,
            insert_p50_us: inserted.single_us,
            alone_while_inserting_p50_us: inserted.alone_us,
        })
    }

    /// Inserts the rows `rows` of a set, whose ids are their numbers; the last of them while queries are answered.
    fn insert(
        &self,
        set: &Set,
        (writer, opened): (&Index, &Opened),
        rows: std::ops::Range<usize>,
        effort: (u32, u32),
        progress: &dyn Progress,
    ) -> Result<Inserted, Failure> {
        let half = set.base.count() / 2;
        let singles = rows.start..rows.start + SINGLES.min(rows.len() / 4);
        let mut latencies_ns = Vec::new();
        for row in singles.clone() {
            let one = rows_of(&set.base, row, 1)?;
            let started = Instant::now();
            writer.insert(&one)?;
            latencies_ns.push(started.elapsed().as_nanos() as u64);
        }
        let many = |rows: std::ops::Range<usize>| -> Result<f64, Failure> {
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
        let quiet = singles.end..singles.end + (rows.end - singles.end) / 2;
        let a_second = quiet.len() as f64 / many(quiet.clone())?.max(1e-9);
        let (done, mut meanwhile) = (AtomicBool::new(false), Vec::new());
        let queries = rows_of(&set.asked.queries, 0, 1.max(set.asked.queries.count().min(ALONE) / 10))?;
        std::thread::scope(|scope| {
            let inserting = scope.spawn(|| {
                let inserted = many(quiet.end..rows.end);
                done.store(true, Ordering::Release);
                inserted
            });
            let options = self.with_effort(effort, 1);
            let mut searched = Ok(());
            while searched.is_ok() && !done.load(Ordering::Acquire) {
                let found = opened.index.search(&queries, &options, self.control);
                searched = found.map(|found| meanwhile.extend(found.latencies_ns));
            }
            let panicked = |_| Err(Failure::new("a thread that inserts panicked".to_owned()));
            inserting.join().unwrap_or_else(panicked)?;
            searched.map_err(Failure::from)
        })?;
        Ok(Inserted { a_second, single_us: median_us(latencies_ns), alone_us: median_us(meanwhile) })
    }
}

/// What inserting has come to.
#[derive(Default)]
struct Inserted {
    a_second: f64,
    /// Of one vector by a call of its own.
    single_us: f64,
    /// Of a query alone, while others insert.
    alone_us: f64,
}
