//! Spans of consecutive runs. If there are many runs, a query first compares the means of spans.

use super::TABLES;
use crate::allocate::try_with_capacity;
use crate::error::NoMemory;
use half::f16;

/// Most runs that are all compared with a query.
pub(super) const MAX_RUNS: usize = 2048;
/// Runs of a span. Consecutive runs are near each other.
pub(super) const RUNS_PER_SPAN: usize = 64;

/// Returns the means of spans of `runs` (rows of `dim` f16), as rows of f16. The result is empty for up to
/// [`MAX_RUNS`] runs.
pub(super) fn spans_of(runs: &[u8], dim: usize) -> Result<Vec<u8>, NoMemory> {
    let mut spans = try_with_capacity(TABLES, span_bytes(runs.len() / (2 * dim), dim) as usize)?;
    if spans.capacity() == 0 {
        return Ok(spans);
    }
    let mut sums = vec![0.0_f32; dim];
    for rows in runs.chunks(RUNS_PER_SPAN * 2 * dim) {
        sums.fill(0.0);
        for row in rows.chunks_exact(2 * dim) {
            let values = row.as_chunks::<2>().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32());
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        let count = (rows.len() / (2 * dim)) as f32;
        spans.extend(sums.iter().flat_map(|sum| f16::from_f32(sum / count).to_le_bytes()));
    }
    Ok(spans)
}

/// Returns the bytes of the means of the spans of `runs` runs.
pub(crate) fn span_bytes(runs: usize, dim: usize) -> u64 {
    if runs > MAX_RUNS { (runs.div_ceil(RUNS_PER_SPAN) * 2 * dim) as u64 } else { 0 }
}
