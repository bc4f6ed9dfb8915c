//! The exact scan of all vectors in memory, as a baseline for the index.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use bathyal_console::{Console, Failure, Kind};
use bathyal_index::Index;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{GroundTruthError, exact_neighbors, scan};
use serde::Serialize;

/// Most queries in the batch; the time of a scan is proportional to their number.
const BATCH: usize = 1024;
/// Queries that are answered one at a time. The first one is a warm-up.
const ALONE: usize = 8;

/// The measurements of a scan. The names of the fields are keys of `--json`: they are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ExactScan {
    /// Vectors that each query was compared with.
    pub vectors: usize,
    /// Queries of the batch.
    pub batch: usize,
    /// Threads that shared the batch.
    pub threads: usize,
    /// Queries per second, with the batch answered in one pass.
    pub qps: f64,
    /// Median milliseconds that one thread takes for a single query.
    pub alone_ms: f64,
}

impl ExactScan {
    /// Scans the vectors in `data`, from which `index` was built, for the `k` nearest of `queries`.
    ///
    /// # Errors
    /// A bad file, one that does not agree with the index, or a cancellation.
    pub(super) fn measure(
        data: &Path,
        index: &Index,
        queries: &VectorFile,
        (k, threads): (usize, usize),
        console: &Console,
    ) -> Result<ExactScan, Failure> {
        let data = console.open_vectors(data)?;
        let (data, queries) = (index.in_own_element(&data), index.in_own_element(queries));
        if data.count() != index.len() {
            return Err(Failure::of(
                Kind::InvalidArgument,
                format!(
                    "{}: holds {} vectors and the index {}; give --data the file of vectors from which the \
                     index was built",
                    data.path().display(),
                    data.count(),
                    index.len()
                ),
            ));
        }
        let batch = queries.count().min(BATCH);
        let rows = (0..batch).flat_map(|row| queries.row(row).iter().copied()).collect();
        let batch_queries = VectorFile::from_rows(queries.element(), queries.dim(), rows)?;
        let progress = console.progress();
        let threads = NonZeroUsize::new(threads).or(std::thread::available_parallelism().ok());
        let batched = || exact_neighbors(&data, &batch_queries, index.metric(), k, threads, &progress);
        // Load the file into memory.
        exact_neighbors(&data, &first(&batch_queries)?, index.metric(), k, threads, &progress)?;
        let began = Instant::now();
        batched()?;
        let seconds = began.elapsed().as_secs_f64();
        let mut alone = Vec::with_capacity(ALONE);
        for row in (0..ALONE).map(|row| row % batch) {
            if console.interrupt().requested() {
                return Err(GroundTruthError::Cancelled.into());
            }
            let began = Instant::now();
            std::hint::black_box(scan(&data, index.metric(), batch_queries.row(row), k));
            alone.push(began.elapsed());
        }
        let alone = &mut alone[1..];
        alone.sort_unstable();
        Ok(ExactScan {
            vectors: data.count(),
            batch,
            threads: threads.map_or(1, NonZeroUsize::get),
            qps: batch as f64 / seconds,
            alone_ms: alone[alone.len() / 2].as_secs_f64() * 1e3,
        })
    }

    /// Returns the line for the text output.
    pub(super) fn line(&self) -> String {
        let ExactScan { vectors, batch, threads, qps, alone_ms } = self;
        format!(
            "exact scan of {vectors} vectors in memory: {qps:.0} queries/s in batches of {batch} ({threads} \
             threads), {alone_ms:.3} ms for a single query (1 thread)\n"
        )
    }
}

/// Returns the first of `vectors`.
fn first(vectors: &VectorFile) -> Result<VectorFile, Failure> {
    Ok(VectorFile::from_rows(vectors.element(), vectors.dim(), vectors.row(0).to_vec())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_all_measurements() {
        let scan = ExactScan { vectors: 1000, batch: 64, threads: 2, qps: 1234.4, alone_ms: 0.1234 };
        let line = "exact scan of 1000 vectors in memory: 1234 queries/s in batches of 64 (2 threads), 0.123 \
                    ms for a single query (1 thread)\n";
        assert_eq!(scan.line(), line);
    }
}
