//! Measures batches of queries against a memory node: divides their time into phases and counts their round
//! trips.

use bathyal_console::{Console, Failure};
use bathyal_index::{Effort, IndexError, SearchOptions};
use bathyal_tier::Control;
use bathyal_tier::layer::delay::DelayProfile;
use bathyal_tier::layer::doorbell::DoorbellCounts;
use bathyal_vectors::groundtruth::recall;
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{IdFile, VectorFile};

use super::arguments::{DhnswArguments, Part};
use super::node::{OpenIndex, Residency, ServedIndex};
use super::rows::{Cost, DhnswRecord, IndexedSet, RecallRow, SchemeRow, median_us, phase_ns};
use super::scheme::{SCHEMES, Setup, search_lists, variations};
use super::subjects::{ALL, DhnswSubject, PAPER};
use crate::records::Records;
use crate::sets::DataSet;

/// Requested recalls.
const RECALLS: [f32; 3] = [0.90, 0.95, 0.99];
/// Queries that are answered one at a time, for their median latency.
pub(super) const ALONE: usize = 500;

/// Arguments and environment of all measurements.
pub(super) struct DhnswExperiment<'a> {
    pub arguments: &'a DhnswArguments,
    pub console: &'a Console,
    pub control: Control<'a>,
}

/// Sums over batches of queries.
#[derive(Default)]
pub(super) struct Sum {
    ids: Vec<u32>,
    pub(super) latencies_ns: Vec<u64>,
    pub(super) seconds: f64,
    meta_ns: u64,
    subindex_ns: u64,
    wanted: u64,
    found: usize,
    used: (u32, Option<u32>),
    counts: DoorbellCounts,
}

impl Sum {
    pub(super) fn cost(&self, exact: &IdFile, card: &DelayProfile) -> Result<Cost, Failure> {
        let queries = self.latencies_ns.len();
        let mean = |total: f64| total / queries.max(1) as f64;
        let (wall_us, meta_us) = (mean(self.seconds * 1e6), mean(self.meta_ns as f64 / 1e3));
        let subindex_us = mean(self.subindex_ns as f64 / 1e3);
        let DoorbellCounts { doorbells, reads, bytes } = self.counts;
        let posting_ns = doorbells * card.latency_ns + reads * card.issue_ns;
        let link_ns = match card.bandwidth_bytes_per_s {
            bandwidth if bandwidth > 0.0 => bytes as f64 * 1e9 / bandwidth,
            _ => 0.0,
        };
        Ok(Cost {
            recall: recall(exact, &self.ids, self.found, queries)?,
            queries,
            wall_us,
            network_us: (wall_us - meta_us - subindex_us).max(0.0),
            meta_us,
            subindex_us,
            card_us: mean((posting_ns as f64 + link_ns) / 1e3),
            qps: queries as f64 / self.seconds.max(1e-9),
            round_trips: mean(doorbells as f64),
            reads: mean(reads as f64),
            bytes: mean(bytes as f64),
            wanted: mean(self.wanted as f64),
        })
    }
}

impl DhnswExperiment<'_> {
    /// Runs all measurements of a set.
    pub(super) fn measure(&self, set: &DataSet, records: &mut Records) -> Result<(), Failure> {
        let mut paper_kept_bytes = 0;
        let families = self.arguments.has(Part::Families);
        for subject in ALL {
            let schemes = subject == PAPER && self.arguments.has(Part::Schemes);
            if !families && !schemes {
                continue;
            }
            let (path, manifest) = subject.find_or_build(set, self.arguments, self.console)?;
            let served = ServedIndex::copy(&path, &manifest, self.console)?;
            let progress = self.console.progress();
            if schemes {
                self.schemes(set, &served, &progress, records)?;
            }
            if !families {
                continue;
            }
            let residency = match subject.shares() {
                true => Residency::Share(self.arguments.cache_share),
                false => Residency::Bytes(paper_kept_bytes),
            };
            let opened = served.open(&self.arguments.emulate, None, residency)?;
            if subject == PAPER {
                paper_kept_bytes = opened.kept_bytes();
            }
            let size = manifest.index_bytes();
            self.recalls(set, subject, (&opened, size), &progress, records)?;
        }
        if self.arguments.has(Part::Inserts) { self.inserts(set, records) } else { Ok(()) }
    }

    /// Measures figure 6, and the variations of batch, doorbell and cache.
    fn schemes(
        &self,
        set: &DataSet,
        served: &ServedIndex,
        progress: &dyn Progress,
        records: &mut Records,
    ) -> Result<(), Failure> {
        let neighbours = self.arguments.neighbours();
        let quick = self.arguments.quick;
        for setup in SCHEMES.map(|scheme| scheme.setup(self.arguments)) {
            let lists: Vec<(u32, u32)> = neighbours
                .iter()
                .flat_map(|k| search_lists(*k, quick).into_iter().map(|list| (*k, list)))
                .collect();
            progress.stage(&format!("{}: {}", set.name, setup.scheme.name()), lists.len() as u64);
            for (at, (k, list)) in lists.into_iter().enumerate() {
                records.write(&DhnswRecord::Row(&self.row(set, served, ("recall", setup), (k, list))?))?;
                progress.advance(at as u64 + 1);
            }
        }
        let all = variations(self.arguments, set.query_set.queries.count());
        let k = neighbours.first().copied().unwrap_or(1);
        let list = search_lists(k, quick).last().copied().unwrap_or(k);
        progress.stage(&format!("{}: batches, doorbells, caches", set.name), all.len() as u64);
        for (at, varied) in all.into_iter().enumerate() {
            records.write(&DhnswRecord::Row(&self.row(set, served, varied, (k, list))?))?;
            progress.advance(at as u64 + 1);
        }
        Ok(())
    }

    /// Measures one row: opens the index anew for each repeat, so that each begins with an almost empty
    /// cache, and returns the repeat with the median time.
    fn row(
        &self,
        set: &DataSet,
        served: &ServedIndex,
        (varied, setup): (&'static str, Setup),
        (k, list): (u32, u32),
    ) -> Result<SchemeRow, Failure> {
        let probes = self.arguments.probes;
        let options = SearchOptions {
            effort: Effort::SearchList(list),
            probes: Some(probes),
            ..self.options(k, Some(setup.batch))
        };
        let mut sums: Vec<(Sum, u64, usize)> = Vec::new();
        for _ in 0..self.arguments.cell_repeats() {
            let opened = served.open(&self.arguments.emulate, setup.doorbell, setup.residency)?;
            let sum = self.batches(&opened, &set.query_set.queries, &options, setup.batch)?;
            let at_once = opened.at_once(setup.batch, list.max(probes), &options)?;
            sums.push((sum, opened.cache_bytes(), at_once));
        }
        sums.sort_by(|(a, ..), (b, ..)| a.seconds.total_cmp(&b.seconds));
        let (sum, cache_bytes, at_once) = sums.swap_remove(sums.len() / 2);
        Ok(SchemeRow {
            emulated: true,
            indexed_set: indexed_set(set, PAPER),
            varied,
            scheme: setup.scheme.name(),
            k,
            search_list: list,
            probes,
            batch: setup.batch,
            at_once,
            doorbell: setup.doorbell.map(Into::into),
            cache_bytes,
            cache_share: cache_bytes as f64 / served.paged_bytes().max(1) as f64,
            cost: sum.cost(&set.query_set.exact, &self.arguments.emulate)?,
        })
    }

    /// Searches an index at each requested recall: many queries at once, then one at a time. Each search
    /// finds the cache as the one before left it.
    fn recalls(
        &self,
        set: &DataSet,
        subject: DhnswSubject,
        (opened, index_bytes): (&OpenIndex, u64),
        progress: &dyn Progress,
        records: &mut Records,
    ) -> Result<(), Failure> {
        progress.stage(&format!("{}: {}", set.name, subject.name()), RECALLS.len() as u64);
        let k = self.arguments.neighbours().last().copied().unwrap_or(1);
        let in_flight = subject.shares().then(|| self.arguments.batch_queries());
        let some = set.query_set.queries.count().min(ALONE);
        for (at, recall) in RECALLS.into_iter().enumerate() {
            let effort = Effort::Recall(recall);
            let many = SearchOptions { effort, ..self.options(k, in_flight) };
            let batch = self.arguments.batch_queries();
            let first = opened.index.search(&rows_of(&set.query_set.queries, 0, 1)?, &many, self.control);
            if let Err(IndexError::Memory { needed, given, .. }) = first {
                let note = format!(
                    "{} of `{}` was not measured at recall {recall}: a query takes {:.1} MB more than is \
                     left of a budget that keeps as much as the others",
                    subject.name(),
                    set.name,
                    needed.saturating_sub(given) as f64 / 1e6
                );
                records.write(&DhnswRecord::Note { note: &note })?;
                break;
            }
            let mut sums = Vec::new();
            for _ in 0..self.arguments.cell_repeats() {
                sums.push(self.batches(opened, &set.query_set.queries, &many, batch)?);
            }
            sums.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
            let sum = sums.swap_remove(sums.len() / 2);
            let one = SearchOptions { effort, ..self.options(k, Some(1)) };
            let alone = self.batches(opened, &rows_of(&set.query_set.queries, 0, some)?, &one, some)?;
            let mean = |total: u64| total as f64 / some.max(1) as f64;
            let at_once = |queries| opened.at_once(queries, sum.used.0.max(sum.used.1.unwrap_or(0)), &many);
            records.write(&DhnswRecord::Asked(&RecallRow {
                emulated: true,
                indexed_set: indexed_set(set, subject),
                k,
                asked: recall,
                search_list: sum.used.0,
                probes: sum.used.1,
                in_flight: in_flight.map(at_once).transpose()?,
                kept_bytes: opened.kept_bytes(),
                index_bytes,
                whole_in_memory: opened.index.memory_split().pages > 0,
                cost: sum.cost(&set.query_set.exact, &self.arguments.emulate)?,
                alone_p50_us: median_us(alone.latencies_ns),
                alone_round_trips: mean(alone.counts.doorbells),
                alone_bytes: mean(alone.counts.bytes),
            }))?;
            progress.advance(at as u64 + 1);
        }
        if opened.index.memory_split().pages > 0 {
            let note = format!(
                "{} of `{}` fits whole into the memory that it was given, and reads nothing",
                subject.name(),
                set.name
            );
            records.write(&DhnswRecord::Note { note: &note })?;
        }
        Ok(())
    }

    pub(super) fn options(&self, k: u32, in_flight: Option<usize>) -> SearchOptions {
        SearchOptions { k: k as usize, threads: 1, in_flight, timed: true, ..SearchOptions::default() }
    }

    /// Answers all queries in batches of `batch`, one batch after the other. `batch` 1 means one call with
    /// all queries.
    pub(super) fn batches(
        &self,
        opened: &OpenIndex,
        queries: &VectorFile,
        options: &SearchOptions,
        batch: usize,
    ) -> Result<Sum, Failure> {
        let count = queries.count();
        let batch = if batch == 1 { count } else { batch };
        // One query before the measurement starts the thread, its connection and its buffers.
        opened.index.search(&rows_of(queries, count - 1, 1)?, options, self.control)?;
        let before = opened.doorbells.counts();
        let mut sum = Sum::default();
        for first in (0..count).step_by(batch.max(1)) {
            let part = rows_of(queries, first, batch.min(count - first))?;
            let result = opened.index.search(&part, options, self.control)?;
            sum.seconds += result.seconds;
            sum.meta_ns += phase_ns(&result, "navigate") + phase_ns(&result, "scan");
            sum.subindex_ns += phase_ns(&result, "rerank");
            sum.wanted += result.totals.reads;
            (sum.found, sum.used) = (result.k, (result.search_list, result.probes));
            sum.ids.extend(&result.ids);
            sum.latencies_ns.extend(&result.latencies_ns);
        }
        sum.counts = opened.doorbells.counts().since(&before);
        Ok(sum)
    }
}

fn indexed_set(set: &DataSet, subject: DhnswSubject) -> IndexedSet {
    IndexedSet {
        set: set.name.clone(),
        vectors: set.base.count(),
        dim: set.base.dim(),
        element: set.base.element().name(),
        index: subject.name(),
    }
}

/// Returns `rows` rows, starting with the row `first`.
pub(super) fn rows_of(file: &VectorFile, first: usize, rows: usize) -> Result<VectorFile, Failure> {
    let mut bytes = Vec::with_capacity(rows * file.row_bytes());
    (first..first + rows).for_each(|row| bytes.extend_from_slice(file.row(row)));
    Ok(VectorFile::from_rows(file.element(), file.dim(), bytes)?)
}
