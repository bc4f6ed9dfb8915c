//! Warm-up: work that would otherwise delay the first queries.

use super::pool::RawQueries;
use super::{Index, SearchOptions, SearchRequest};
use crate::error::IndexError;
use bathyal_kernels::{Element, from_f32};
use bathyal_tier::Control;
use serde::Serialize;
use std::time::Instant;

/// Queries of a warm-up: enough for each thread to allocate its buffers, and to read the pages that most
/// queries read.
const WARM_QUERIES: usize = 256;

/// The report of a warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WarmReport {
    /// Queries that were made from the index and answered.
    pub queries: usize,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

impl Index {
    /// Starts the search threads, opens their queues, and answers queries that are spread evenly over the
    /// index. After that, memory has been touched, buffers are allocated, and caches hold the pages that most
    /// queries read.
    ///
    /// `options` are those of the later searches.
    ///
    /// # Errors
    /// As [`Index::search`].
    pub fn warm(&self, options: &SearchOptions, control: Control<'_>) -> Result<WarmReport, IndexError> {
        let started = Instant::now();
        let changes = self.changes();
        let request = SearchRequest::new(options)?;
        let (params, _) = self.params(&request, changes.as_ref())?;
        // Vectors decoded from codes and centroids: no page is read for them.
        let mut samples = Vec::new();
        self.loaded.opened().samples(WARM_QUERIES, &mut samples);
        // Samples have the scale of stored vectors, queries that of given ones.
        samples.iter_mut().for_each(|value| *value *= self.stored.manifest().stored_scale());
        let count = samples.len() / self.dim().max(1);
        let mut bytes = Vec::with_capacity(count * self.element().row_bytes(self.dim()));
        for row in samples.chunks_exact(self.dim().max(1)) {
            encode(self.element(), row, &mut bytes);
        }
        let threads = self.suited_threads(options.threads, count, &params);
        let raw = RawQueries { bytes, count };
        let found = self.search_raw(raw, params, (threads, options.in_flight), changes, control)?;
        Ok(WarmReport {
            queries: count,
            reads: found.totals.reads,
            bytes: found.totals.bytes,
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

/// Appends `row` as the nearest values of `element`.
fn encode(element: Element, row: &[f32], bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.resize(start + element.row_bytes(row.len()), 0);
    from_f32(element, row, &mut bytes[start..]);
}
