//! The counters of an open index, for a monitoring system.

use super::Index;
use super::pool::LATENCY_BOUNDS_US;
use crate::audit::AuditStats;
use crate::family::CardUse;
use crate::query::OwnTotals;
use bathyal_gpu::CardCounters;
use bathyal_store::{CacheUse, Requests, round_name};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A bar of the latency histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LatencyBar {
    /// Upper bound in microseconds; `None` for queries above all bounds.
    pub up_to_us: Option<u64>,
    /// Queries above the previous bound and up to this one.
    pub queries: u64,
}

/// The counters of the page cache of an open index, or of the sub-index cache of a `partitioned` one. Its
/// pages are then sub-indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheStats {
    /// Pages copied from the cache.
    pub hits: u64,
    /// Pages read from the tier.
    pub misses: u64,
    /// Pages that were replaced by others.
    pub evictions: u64,
    /// Pages in the cache now.
    pub resident_pages: u64,
    /// Pages that the cache can hold.
    pub capacity_pages: u64,
}

/// The counters of a part of a striped index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartStats {
    /// Its path.
    pub path: String,
    /// Reads from it. A read of a search that crosses units counts once in each part that it touches.
    pub reads: u64,
    /// Bytes read from it.
    pub bytes: u64,
    /// The 99th percentile of its reads in microseconds, from the submission to the completion; rounded up by
    /// at most 6%.
    pub p99_us: u64,
}

/// The counters of the graphics card that searches an index, since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CardStats {
    /// The maker's name of the card.
    pub name: String,
    /// Bytes of its memory that the index takes.
    pub resident_bytes: u64,
    /// Launches of kernels.
    pub launches: u64,
    /// Hops or scans of queries. A launch answers many of them.
    pub asked: u64,
    /// Bytes that were sent to the card for these.
    pub sent_bytes: u64,
}

/// The counters of an open index since it was opened. They are exact; running searches are counted query by
/// query.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexStats {
    /// The index's path.
    pub index: String,
    /// Number of vectors.
    pub vectors: u64,
    /// Bytes of memory that the open index holds between searches.
    pub dram_bytes: u64,
    /// Queries answered.
    pub queries: u64,
    /// Batches of queries that failed: damage, device errors, cancellation, deadline, too small a budget.
    pub errors: u64,
    /// Dependent rounds of reads.
    pub hops: u64,
    /// Reads from the tier.
    pub reads: u64,
    /// Bytes read from the tier.
    pub bytes: u64,
    /// Distances estimated from codes.
    pub code_distances: u64,
    /// Distances computed from full vectors.
    pub full_distances: u64,
    /// The counters that only the family has, by name; in JSON beside the others.
    #[serde(flatten)]
    pub own: OwnTotals,
    /// The tier of the pages: its kind and method.
    pub place: String,
    /// The sum of the times of all queries in seconds, each from its start to its answer.
    pub latency_seconds: f64,
    /// The counters of the page cache; `None` without one.
    pub cache: Option<CacheStats>,
    /// The requests to the store since the index was opened; `None` if the index is not in a remote store.
    pub requests: Option<Requests>,
    /// The counters of the cache in front of the store since the index was opened, by kind of object; empty
    /// without a cache.
    pub store_cache: BTreeMap<String, CacheUse>,
    /// The counters of that cache for the reads of searches, by dependent round ([`Index::cache_rounds`]).
    pub store_cache_rounds: Vec<CacheUse>,
    /// Why that cache does not use its disk, although one was configured.
    pub store_cache_trouble: Option<String>,
    /// The graphics card that searches; absent in JSON if only the processor searches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<CardStats>,
    /// Why the processor searches although a graphics card was wanted; absent in JSON if that is not the
    /// case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_trouble: Option<String>,
    /// The counters of each part of a striped index; empty if the index is not striped, or was loaded into
    /// memory.
    pub parts: Vec<PartStats>,
    /// The audit of live searches; absent in JSON without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditStats>,
    /// The number of queries by latency, in ascending order of the bounds.
    pub latency_histogram: Vec<LatencyBar>,
}

/// A metric of an index in the text for Prometheus.
struct MetricRow<'a> {
    name: &'a str,
    kind: &'static str,
    help: &'a str,
    value: u64,
}

/// Returns the row of a metric that only grows.
fn counter<'a>(name: &'a str, help: &'a str, value: u64) -> MetricRow<'a> {
    MetricRow { name, kind: "counter", help, value }
}

/// Returns the row of a metric that may fall.
fn gauge<'a>(name: &'a str, help: &'a str, value: u64) -> MetricRow<'a> {
    MetricRow { name, kind: "gauge", help, value }
}

/// Escapes a path for the value of a label.
fn label(path: &str) -> String {
    path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Writes the counts of a cache of the index `index`, blocks and bytes, each with its own label.
fn write_cache_counts(
    text: &mut String,
    index: &str,
    name: &str,
    about: &str,
    counts: &[(String, CacheUse)],
) {
    let blocks = |used: &CacheUse| [used.hits, used.disk_hits, used.misses];
    let bytes = |used: &CacheUse| [used.hit_bytes, used.disk_hit_bytes, used.missed_bytes];
    let mut rows = |unit: &str, about: &str, values: fn(&CacheUse) -> [u64; 3]| {
        if counts.is_empty() {
            return;
        }
        // Writing to a string does not fail.
        let name = format!("bathyal_{name}_{unit}_total");
        let _ = writeln!(text, "# HELP {name} {about}.\n# TYPE {name} counter");
        for (which, used) in counts {
            for (from, value) in ["memory", "disk", "store"].into_iter().zip(values(used)) {
                let _ = writeln!(text, "{name}{{index=\"{index}\",{which},from=\"{from}\"}} {value}");
            }
        }
    };
    rows("blocks", about, blocks);
    rows("bytes", "Bytes of these blocks", bytes);
}

impl IndexStats {
    /// Returns the counters in the text exposition format of Prometheus, labelled with the index's path.
    // Written by hand: `prometheus-client` writes OpenMetrics, whose end mark prevents joining the texts of
    // several indexes.
    pub fn to_prometheus(&self) -> String {
        let label = label(&self.index);
        let mut text = String::new();
        let own: Vec<String> =
            self.own.iter().map(|(counter, _)| format!("{}_total", counter.name)).collect();
        let mut rows = self.common_rows();
        rows.extend(self.card_rows());
        let counts = own.iter().zip(self.own.iter());
        rows.extend(counts.map(|(name, (own, count))| counter(name, own.about, count)));
        rows.extend(self.cache_rows());
        rows.extend(self.request_rows());
        // Writing to a string does not fail.
        for MetricRow { name, kind, help, value } in rows {
            let _ = writeln!(text, "# HELP bathyal_{name} {help}.\n# TYPE bathyal_{name} {kind}");
            let _ = writeln!(text, "bathyal_{name}{{index=\"{label}\"}} {value}");
        }
        self.store_cache_rows(&label, &mut text);
        self.part_rows(&label, &mut text);
        self.latency_rows(&label, &mut text);
        if let Some(audit) = &self.audit {
            audit.write_prometheus("bathyal", &format!("index=\"{label}\""), &mut text);
        }
        text
    }

    /// Returns the rows of every index.
    fn common_rows(&self) -> Vec<MetricRow<'_>> {
        vec![
            gauge("vectors", "Vectors held", self.vectors),
            gauge("dram_bytes", "Bytes of memory held between searches", self.dram_bytes),
            counter("queries_total", "Queries answered", self.queries),
            counter("errors_total", "Batches of queries that failed", self.errors),
            counter("hops_total", "Dependent rounds of reads", self.hops),
            counter("reads_total", "Reads asked of the tier", self.reads),
            counter("read_bytes_total", "Bytes asked of the tier", self.bytes),
            counter("code_distances_total", "Distances estimated from codes", self.code_distances),
            counter("full_distances_total", "Distances of full vectors", self.full_distances),
        ]
    }

    /// Returns the rows of the page cache.
    fn cache_rows(&self) -> Vec<MetricRow<'_>> {
        let Some(cache) = &self.cache else { return Vec::new() };
        vec![
            counter("cache_hits_total", "Pages copied from the cache", cache.hits),
            counter("cache_misses_total", "Pages asked of the tier through the cache", cache.misses),
            counter("cache_evictions_total", "Pages that made room for others", cache.evictions),
            gauge("cache_resident_pages", "Pages held by the cache", cache.resident_pages),
            gauge("cache_capacity_pages", "Pages that the cache can hold", cache.capacity_pages),
        ]
    }

    /// Returns the rows of the requests to a remote store.
    fn request_rows(&self) -> Vec<MetricRow<'_>> {
        let Some(asked) = &self.requests else { return Vec::new() };
        vec![
            counter("store_requests_total", "Requests sent to the store", asked.requests),
            counter("store_received_bytes_total", "Bytes received from the store", asked.received_bytes),
            counter("store_retries_total", "Requests sent again after a failure", asked.retries),
            counter("store_hedges_total", "Requests sent a second time because they were late", asked.hedges),
            counter("store_hedges_won_total", "Second requests that answered first", asked.hedges_won),
            counter("store_throttled_total", "Answers that asked for fewer requests", asked.throttled),
        ]
    }

    /// Writes the rows of the parts of a striped index.
    fn part_rows(&self, label: &str, text: &mut String) {
        if self.parts.is_empty() {
            return;
        }
        let rows = [
            ("part_reads_total", "counter", "Reads that a part of a striped index has served"),
            ("part_read_bytes_total", "counter", "Bytes that a part of a striped index has served"),
            ("part_read_p99_microseconds", "gauge", "The 99th percentile of a part's reads"),
        ];
        for (row, (name, kind, help)) in rows.into_iter().enumerate() {
            let _ = writeln!(text, "# HELP bathyal_{name} {help}.\n# TYPE bathyal_{name} {kind}");
            for part in &self.parts {
                let (at, value) = (self::label(&part.path), [part.reads, part.bytes, part.p99_us][row]);
                let _ = writeln!(text, "bathyal_{name}{{index=\"{label}\",part=\"{at}\"}} {value}");
            }
        }
    }

    /// Writes the rows of the latency histogram.
    fn latency_rows(&self, label: &str, text: &mut String) {
        let name = "bathyal_query_duration_seconds";
        let _ = writeln!(text, "# HELP {name} From a query's start to its answer.\n# TYPE {name} histogram");
        let mut sum = 0;
        for bar in &self.latency_histogram {
            sum += bar.queries;
            let bound = bar.up_to_us.map_or("+Inf".to_string(), |us| (us as f64 / 1e6).to_string());
            let _ = writeln!(text, "{name}_bucket{{index=\"{label}\",le=\"{bound}\"}} {sum}");
        }
        let _ = writeln!(text, "{name}_sum{{index=\"{label}\"}} {}", self.latency_seconds);
        let _ = writeln!(text, "{name}_count{{index=\"{label}\"}} {sum}");
    }

    /// Returns the rows of the graphics card.
    fn card_rows(&self) -> Vec<MetricRow<'_>> {
        let mut rows = Vec::new();
        if let Some(card) = &self.card {
            rows.extend([
                gauge("card_bytes", "Bytes of a graphics card's memory taken", card.resident_bytes),
                counter("card_launches_total", "Launches of kernels on a graphics card", card.launches),
                counter("card_asked_total", "Hops or scans on a graphics card", card.asked),
                counter("card_sent_bytes_total", "Bytes sent to a graphics card", card.sent_bytes),
            ]);
        }
        if self.card.is_some() || self.card_trouble.is_some() {
            let about = "Whether this processor searches although a graphics card was wanted";
            rows.push(gauge("card_off", about, u64::from(self.card_trouble.is_some())));
        }
        rows
    }

    /// Writes the rows of the cache in front of the store.
    fn store_cache_rows(&self, label: &str, text: &mut String) {
        if self.store_cache.is_empty() {
            return;
        }
        let kind = |(kind, used): (&String, &CacheUse)| (format!("kind=\"{}\"", self::label(kind)), *used);
        let kinds: Vec<(String, CacheUse)> = self.store_cache.iter().map(kind).collect();
        let about = "Blocks that were looked for in the cache in front of the store";
        write_cache_counts(text, label, "store_cache", about, &kinds);
        let round = |(at, used): (usize, &CacheUse)| (format!("round=\"{}\"", round_name(at)), *used);
        let rounds: Vec<(String, CacheUse)> = self.store_cache_rounds.iter().enumerate().map(round).collect();
        let about = "Blocks that searches looked for there, by dependent round of their reads";
        write_cache_counts(text, label, "store_cache_round", about, &rounds);
        let name = "store_cache_disk_off";
        let _ = writeln!(
            text,
            "# HELP bathyal_{name} Whether that cache does without its disk, although one was wanted.\n\
             # TYPE bathyal_{name} gauge"
        );
        let off = u8::from(self.store_cache_trouble.is_some());
        let _ = writeln!(text, "bathyal_{name}{{index=\"{label}\"}} {off}");
    }
}

impl Index {
    /// Returns the graphics card that searches the index, with its counters; `None` without a card.
    pub fn card(&self) -> Option<CardStats> {
        let CardUse { resident_bytes, counters, .. } = self.loaded.opened().card()?;
        let CardCounters { launches, asked, bytes } = counters;
        let name = self.loaded.card_name().unwrap_or_default().to_owned();
        Some(CardStats { name, resident_bytes, launches, asked, sent_bytes: bytes })
    }

    /// Returns why the processor searches although a graphics card was wanted
    /// ([`OpenOptions::processor_goes_on`]); `None` if no failure of the card is known, or no card was
    /// wanted.
    ///
    /// [`OpenOptions::processor_goes_on`]: crate::OpenOptions::processor_goes_on
    pub fn card_trouble(&self) -> Option<String> {
        self.trouble.why().map(ToString::to_string)
    }

    /// Returns the counters since the index was opened.
    pub fn stats(&self) -> IndexStats {
        let sums = self.contexts.here().counters.sums();
        let bounds = LATENCY_BOUNDS_US.into_iter().map(Some).chain([None]);
        let bars =
            bounds.zip(sums.latency_buckets).map(|(up_to_us, queries)| LatencyBar { up_to_us, queries });
        IndexStats {
            index: self.path().display().to_string(),
            vectors: self.len() as u64,
            dram_bytes: self.dram_bytes(0, 0, 0),
            queries: sums.queries,
            errors: sums.errors,
            hops: sums.hops,
            reads: sums.reads,
            bytes: sums.bytes,
            code_distances: sums.code_distances,
            full_distances: sums.full_distances,
            own: OwnTotals(self.stored.own_counters().iter().zip(sums.own).collect()),
            place: format!("{}: {}", self.loaded.tier().profile().kind, self.loaded.tier().profile().method),
            latency_seconds: sums.latency_ns as f64 / 1e9,
            cache: self.cache_counters().map(|cache| CacheStats {
                hits: cache.hits,
                misses: cache.misses,
                evictions: cache.evictions,
                resident_pages: cache.resident_pages,
                capacity_pages: cache.capacity_pages,
            }),
            requests: self.requests(),
            store_cache: self.cache_use(),
            store_cache_rounds: self.cache_rounds(),
            store_cache_trouble: self.cache_trouble().map(str::to_owned),
            card: self.card(),
            card_trouble: self.card_trouble(),
            parts: self.part_stats(),
            audit: self.audit.as_ref().map(|audit| audit.stats()),
            latency_histogram: bars.collect(),
        }
    }

    /// Returns the counters of each part of a striped index.
    fn part_stats(&self) -> Vec<PartStats> {
        let Some(parts) = self.loaded.parts() else { return Vec::new() };
        let served = parts.tier.counters().into_iter().zip(parts.tier.latencies_ns(0.99));
        let stats = parts.paths.iter().zip(served).map(|(path, (counters, p99_ns))| PartStats {
            path: path.display().to_string(),
            reads: counters.reads,
            bytes: counters.bytes,
            p99_us: p99_ns.div_ceil(1000),
        });
        stats.collect()
    }
}
