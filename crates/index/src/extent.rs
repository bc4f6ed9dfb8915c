//! The range of values for which distances are computed in f32.

use crate::error::IndexError;
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::{LargestValue, VectorFile};

/// Largest value: the squares of 65,536 dimensions, and sums of some thousand of them in codes and means,
/// stay below the largest f32.
const LARGEST: f32 = 1e15;
/// Smallest value that the largest value of a set may have: the squares of a thousandth of it in codes and
/// means are still normal f32.
const SMALLEST: f32 = 1e-12;

/// Refuses a set of vectors whose squares overflow f32, or are all zero in f32. Under cosine only directions
/// count, which are computed in 64 bits, so all sets are accepted.
///
/// # Errors
/// [`IndexError::Parameter`] with a row that is too long, or with the longest row if all rows are too short.
pub(crate) fn check_set(
    vectors: &VectorFile,
    metric: Metric,
    largest: Option<LargestValue>,
) -> Result<(), IndexError> {
    let Some(LargestValue { row, value }) = largest.filter(|_| metric != Metric::Cosine) else {
        return Ok(());
    };
    if value > LARGEST {
        return Err(range_error(
            vectors,
            row,
            &format!("has a value of {value:e}, which is above {LARGEST:e}"),
        ));
    }
    if value > 0.0 && value < SMALLEST {
        let what = format!("has the largest value of the set, {value:e}, which is below {SMALLEST:e}");
        return Err(range_error(vectors, row, &what));
    }
    Ok(())
}

/// Refuses queries whose distances overflow f32 or are all zero; `scale` is the value of a stored component
/// of 1.
///
/// # Errors
/// [`IndexError::Parameter`] with the first such row.
pub(crate) fn check_queries(
    queries: &VectorFile,
    mut rows: std::ops::Range<usize>,
    metric: Metric,
    scale: f32,
) -> Result<(), IndexError> {
    // Queries are compared in the units of the stored vectors.
    let most = LARGEST * scale.min(1.0);
    let too_large = |row: usize| queries.block(row..row + 1).largest().filter(|largest| largest.value > most);
    rows.try_for_each(|row| match (metric, too_large(row)) {
        (Metric::Cosine, _) => Ok(()),
        (_, Some(LargestValue { row, value })) => {
            Err(range_error(queries, row, &format!("has a value of {value:e}, which is above {most:e}")))
        }
        // A query may have any small values, since the vectors that it is compared with do not.
        (Metric::L2, None) => match queries.block(row..row + 1).largest() {
            Some(largest) if largest.value >= SMALLEST => check_set(queries, metric, Some(largest)),
            _ => Ok(()),
        },
        (Metric::InnerProduct, None) => check_set(queries, metric, queries.block(row..row + 1).largest()),
    })
}

/// Refuses vectors that cannot be in an index. Each vector is checked on its own, independent of the others.
///
/// # Errors
/// [`IndexError::Vectors`] for a value that is not finite; [`IndexError::Parameter`] with the first row whose
/// values are too large or too small for distances in f32, or that has no direction under cosine.
pub fn check_vectors(vectors: &VectorFile, metric: Metric) -> Result<(), IndexError> {
    vectors.check_finite()?;
    (0..vectors.count()).try_for_each(|row| {
        if metric == Metric::Cosine && !has_direction(vectors.element(), vectors.row(row)) {
            return Err(IndexError::ZeroVectors { count: 1, rows: vec![row as u64] });
        }
        let largest = vectors.block(row..row + 1).largest();
        check_set(vectors, metric, largest.map(|largest| LargestValue { row, ..largest }))
    })
}

/// Returns true if a vector has a direction: one of zeros, of either sign, has none.
pub(crate) fn has_direction(element: Element, row: &[u8]) -> bool {
    match element {
        Element::F32 => row.as_chunks::<4>().0.iter().any(|b| u32::from_le_bytes(*b) << 1 != 0),
        Element::F16 | Element::Bf16 => {
            row.as_chunks::<2>().0.iter().any(|b| u16::from_le_bytes(*b) << 1 != 0)
        }
        Element::U8 | Element::I8 | Element::B1 => row.iter().any(|b| *b != 0),
    }
}

fn range_error(vectors: &VectorFile, row: usize, what: &str) -> IndexError {
    IndexError::Parameter(format!(
        "{}: row {row} {what}: distances computed in f32 would be infinite or zero; multiply all vectors and \
         queries by one number, or choose the metric cosine if only directions matter",
        vectors.path().display()
    ))
}
