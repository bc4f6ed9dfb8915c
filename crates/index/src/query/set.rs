//! The vectors of an index as every searcher sees them, and the exact distance that all of them re-rank by.

use crate::error::IndexError;
use crate::format::manifest::{FileEntry, Manifest};
use bathyal_kernels::{Distance, Element, Metric, Rows, normalize_f16, normalize_f32};
use bathyal_store::Generation;
use bathyal_tier::ReadError;
use half::f16;
use std::path::PathBuf;

/// The vectors of an index, and the file that searches read.
pub(crate) struct VectorSet {
    pub(crate) vectors: u32,
    pub(crate) dim: usize,
    pub(crate) element: Element,
    pub(crate) metric: Metric,
    pub(crate) exact: Exact,
    pub(crate) file: PathBuf,
}

impl VectorSet {
    /// What a manifest says of them; `file` is the one that searches read.
    pub(crate) fn of(
        directory: &dyn Generation,
        manifest: &Manifest,
        file: &FileEntry,
    ) -> Result<VectorSet, IndexError> {
        let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
        let (element, metric) = (manifest.element().map_err(wrong)?, manifest.metric().map_err(wrong)?);
        let dim = manifest.dim as usize;
        Ok(VectorSet {
            vectors: manifest.vectors as u32,
            dim,
            element,
            metric,
            exact: Exact::new(element, metric, dim),
            file: directory.address().join(&file.name),
        })
    }

    /// Bytes of a stored vector.
    pub(crate) fn row_bytes(&self) -> usize {
        self.dim * self.element.size()
    }

    /// An error of what a read has brought.
    pub(crate) fn damaged(&self, place: impl Into<String>, reason: impl Into<String>) -> IndexError {
        IndexError::damaged(&self.file, place.into(), reason.into())
    }

    /// An error unless `id`, which lies at `place`, is that of a vector.
    #[inline]
    pub(crate) fn check_id(&self, id: u32, place: impl FnOnce() -> String) -> Result<(), IndexError> {
        if id < self.vectors {
            return Ok(());
        }
        Err(self.damaged(place(), format!("it holds vector {id}, which is not among {}", self.vectors)))
    }

    /// A read that failed.
    pub(crate) fn failed(&self, source: ReadError) -> IndexError {
        IndexError::Read { file: self.file.clone(), source }
    }
}

/// The distance between a query and stored vectors, which under cosine are normalised where the element allows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    distance: Distance,
    shift: f32,
}

impl Exact {
    pub(crate) fn new(element: Element, metric: Metric, dim: usize) -> Exact {
        // The cosine distance of normalised vectors is 1 minus their product.
        let normalised = metric == Metric::Cosine && element.is_float();
        let kernel = if normalised { Metric::InnerProduct } else { metric };
        Exact { distance: Distance::new(element, kernel, dim), shift: if normalised { 1.0 } else { 0.0 } }
    }

    /// The distance of a query, normalised under cosine, to one stored vector.
    #[inline]
    pub(crate) fn between(&self, query: &[u8], vector: &[u8]) -> f32 {
        self.shift + self.distance.between(query, vector)
    }

    /// The distances to the vectors `ids` of those that lie one after the other.
    #[inline]
    pub(crate) fn score_some(&self, query: &[u8], vectors: &[u8], ids: &[u32], out: &mut [f32]) {
        let rows = Rows { bytes: vectors, stride: self.distance.row_bytes() };
        self.distance.score(query, rows, ids, out);
        if self.shift != 0.0 {
            out.iter_mut().for_each(|distance| *distance += self.shift);
        }
    }

    /// The distances to vectors that lie one after the other.
    #[inline]
    pub(crate) fn score_block(&self, query: &[u8], vectors: &[u8], out: &mut [f32]) {
        self.distance.score_block(query, vectors, out);
        if self.shift != 0.0 {
            out.iter_mut().for_each(|distance| *distance += self.shift);
        }
    }
}

/// Normalises a row in place where its element can hold the result; false for a vector of zeros.
pub(crate) fn normalize(element: Element, row: &mut [u8]) -> bool {
    match element {
        Element::F32 => {
            let mut values: Vec<f32> =
                row.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            let sound = normalize_f32(&mut values);
            for (slot, value) in row.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *slot = value.to_le_bytes();
            }
            sound
        }
        Element::F16 => {
            let mut values: Vec<f16> =
                row.as_chunks::<2>().0.iter().map(|b| f16::from_le_bytes(*b)).collect();
            let sound = normalize_f16(&mut values);
            for (slot, value) in row.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                *slot = value.to_le_bytes();
            }
            sound
        }
        Element::U8 | Element::I8 => row.iter().any(|b| *b != 0),
    }
}
