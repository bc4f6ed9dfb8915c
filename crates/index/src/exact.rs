//! Exact neighbours, with a graphics card if there is one: the card screens the pairs, and the processor
//! computes the exact distances of the remaining pairs.

use crate::error::IndexError;
use bathyal_gpu::nearest::{Cells, Nearest, ProductSizes};
use bathyal_gpu::{Card, GpuError};
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::groundtruth::{
    GroundTruthError, ScreenCapacity, ScreenError, Screener, Screening, exact_neighbors,
    exact_neighbors_screened,
};
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{IdFile, RowBlock, VectorFile};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

/// Runs [`exact_neighbors`] with `card`, if there is one. The result is the same, byte for byte.
///
/// # Errors
/// As [`exact_neighbors`], and [`GroundTruthError::Screen`] with a [`GpuError`].
pub fn exact_neighbors_on(
    card: Option<&Arc<dyn Card>>,
    base: &VectorFile,
    queries: &VectorFile,
    metric: Metric,
    k: usize,
    threads: Option<NonZeroUsize>,
    progress: &dyn Progress,
) -> Result<IdFile, GroundTruthError> {
    match card {
        None => exact_neighbors(base, queries, metric, k, threads, progress),
        Some(card) => {
            let screener = CardScreener(&**card);
            exact_neighbors_screened(&screener, base, queries, metric, k, threads, progress)
        }
    }
}

/// A card that screens pairs.
#[derive(Debug)]
struct CardScreener<'a>(&'a dyn Card);

impl Screener for CardScreener<'_> {
    fn begin(
        &self,
        element: Element,
        dim: usize,
        capacity: ScreenCapacity,
    ) -> Result<Box<dyn Screening + '_>, ScreenError> {
        let (cells, roundings) = match element {
            Element::F32 => (Cells::Floats, dim),
            Element::F16 => (Cells::Halves, dim),
            // Sums of integers are exact: those of 65,536 dimensions fit 32 bits.
            Element::U8 => (Cells::Unsigned, 0),
            Element::I8 => (Cells::Signed, 0),
            Element::Bf16 => (Cells::UpperHalves, dim),
            Element::B1 => (Cells::Bits, 0),
        };
        let ScreenCapacity { queries, rows, pairs } = capacity;
        let nearest =
            Nearest::new(self.0, cells, element.row_bytes(dim), ProductSizes { queries, rows, pairs })?;
        Ok(Box::new(CardScreening { nearest, roundings }))
    }
}

struct CardScreening {
    nearest: Nearest,
    roundings: usize,
}

/// Returns the rows of a block.
fn rows(block: RowBlock<'_>) -> impl ExactSizeIterator<Item = &[u8]> {
    block.rows().map(move |row| block.row(row))
}

impl Screening for CardScreening {
    fn capacity(&self) -> ScreenCapacity {
        let ProductSizes { queries, rows, pairs } = self.nearest.sizes();
        ScreenCapacity { queries, rows, pairs }
    }

    fn roundings(&self) -> usize {
        self.roundings
    }

    fn set_queries(&mut self, queries: RowBlock<'_>) -> Result<(), ScreenError> {
        Ok(self.nearest.set_queries(rows(queries))?)
    }

    fn set_rows(
        &mut self,
        block: usize,
        vectors: RowBlock<'_>,
        biases: &[f32],
        scales: &[f32],
    ) -> Result<(), ScreenError> {
        Ok(self.nearest.set_rows(block, rows(vectors), biases, scales)?)
    }

    fn launch(&mut self, block: usize, rows: Range<usize>, limits: &[f32]) -> Result<(), ScreenError> {
        Ok(self.nearest.launch(block, rows, limits)?)
    }

    fn pairs(&mut self, block: usize, pairs: &mut Vec<(u32, u32)>) -> Result<bool, ScreenError> {
        Ok(self.nearest.pairs(block, pairs)?)
    }
}

/// Converts an error of exact search to one of an index.
pub(crate) fn index_error(error: GroundTruthError) -> IndexError {
    match error {
        GroundTruthError::Cancelled => IndexError::Cancelled,
        GroundTruthError::Screen(error) => match error.downcast::<GpuError>() {
            Ok(error) => IndexError::Gpu(*error),
            Err(other) => IndexError::Internal(other.to_string()),
        },
        other => IndexError::Internal(other.to_string()),
    }
}
