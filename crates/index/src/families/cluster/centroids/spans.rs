//! Means of consecutive runs, which a query compares first where there are many runs.

use super::TABLES;
use crate::error::NoMemory;
use crate::room::room;
use half::f16;

/// Up to so many runs are all compared with a query.
pub(super) const MOST_RUNS: usize = 2048;
/// Consecutive runs, which lie near each other, whose mean is looked at first where there are more.
pub(super) const RUNS_A_SPAN: usize = 64;

/// Rows of f16, the means of [`RUNS_A_SPAN`] of `runs` each, where these are more than [`MOST_RUNS`].
pub(super) fn spans_of(runs: &[u8], dim: usize) -> Result<Vec<u8>, NoMemory> {
    let mut spans = room(TABLES, span_bytes(runs.len() / (2 * dim), dim) as usize)?;
    if spans.capacity() == 0 {
        return Ok(spans);
    }
    let mut sums = vec![0.0_f32; dim];
    for rows in runs.chunks(RUNS_A_SPAN * 2 * dim) {
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

/// Bytes of the means of spans of so many runs.
pub(crate) fn span_bytes(runs: usize, dim: usize) -> u64 {
    if runs > MOST_RUNS { (runs.div_ceil(RUNS_A_SPAN) * 2 * dim) as u64 } else { 0 }
}
