//! The vectors of an index as every searcher sees them, and the exact distance for re-ranking.

use crate::error::IndexError;
use crate::form::Form;
use crate::format::manifest::{FileEntry, Manifest};
use bathyal_kernels::{Distance, Element, Metric, Rows};
use bathyal_store::stripe::Parts;
use bathyal_store::{Backing, Generation};
use bathyal_tier::ReadError;
use bathyal_vectors::groundtruth::QueryTiles;
use std::path::PathBuf;

/// The vectors of an index, and the file that searches read.
pub(crate) struct VectorSet {
    pub(crate) vectors: u32,
    /// The end of the ids: all ids are below it.
    pub(crate) ids_end: u32,
    pub(crate) dim: usize,
    /// The element of the stored vectors.
    pub(crate) element: Element,
    pub(crate) metric: Metric,
    /// The stored form, which also converts queries for comparison with stored vectors.
    pub(crate) form: Form,
    pub(crate) exact: Exact,
    /// The distance to inserted vectors.
    pub(crate) exact_inserted: Exact,
    pub(crate) file: PathBuf,
    /// The parts of that file, if it is striped.
    parts: Option<Parts>,
}

impl VectorSet {
    /// Creates the vector set of a manifest; `file` is the one that searches read.
    pub(crate) fn of(
        directory: &dyn Generation,
        manifest: &Manifest,
        file: &FileEntry,
    ) -> Result<VectorSet, IndexError> {
        let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
        let form = Form::from_manifest(manifest).map_err(wrong)?;
        let dim = manifest.dim as usize;
        let parts = match directory.get(&file.name)?.backing()? {
            Backing::Parts(parts) => Some(parts),
            _ => None,
        };
        Ok(VectorSet {
            vectors: manifest.vectors as u32,
            ids_end: manifest.vectors as u32,
            dim,
            element: form.stored(),
            metric: form.metric(),
            form,
            exact: Exact::new(form, dim),
            exact_inserted: Exact::to_inserted(form, dim),
            file: directory.address().join(&file.name),
            parts,
        })
    }

    /// Returns the bytes of a stored vector.
    pub(crate) fn row_bytes(&self) -> usize {
        self.element.row_bytes(self.dim)
    }

    /// Returns the error for damaged bytes at `place` in the file.
    pub(crate) fn damaged(&self, place: impl Into<String>, reason: impl Into<String>) -> IndexError {
        IndexError::damaged(&self.file, place.into(), reason.into())
    }

    /// Returns an error unless `id`, which was read at `place`, is the id of a vector.
    #[inline]
    pub(crate) fn check_id(&self, id: u32, place: impl FnOnce() -> String) -> Result<(), IndexError> {
        if id < self.ids_end {
            return Ok(());
        }
        Err(self.damaged(place(), format!("it contains the id {id}, but all ids are below {}", self.ids_end)))
    }

    /// Returns the error for a failed read.
    pub(crate) fn failed(&self, source: ReadError) -> IndexError {
        let place = match source {
            ReadError::Device { offset, len, .. } => Some((offset, u64::from(len))),
            ReadError::Short { offset, got, .. } => Some((offset + u64::from(got), 1)),
            _ => None,
        };
        let part =
            self.parts.as_ref().zip(place).and_then(|(parts, (offset, len))| parts.holder(offset, len));
        IndexError::Read { file: part.unwrap_or(&self.file).to_path_buf(), source }
    }
}

/// The distance between a query and stored vectors, in the units of the given vectors. Under cosine, stored
/// vectors are normalised if the element allows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    distance: Distance,
    scale: f32,
    shift: f32,
}

impl Exact {
    /// Creates the distance to stored vectors.
    pub(crate) fn new(form: Form, dim: usize) -> Exact {
        Exact::to(form.stored(), form, dim)
    }

    /// Creates the distance to inserted vectors.
    fn to_inserted(form: Form, dim: usize) -> Exact {
        Exact::to(form.inserted(), form, dim)
    }

    fn to(element: Element, form: Form, dim: usize) -> Exact {
        let metric = form.metric();
        // The cosine distance of normalised vectors is 1 minus their product.
        let normalised = metric == Metric::Cosine && element.has_unit_vectors();
        let kernel = if normalised { Metric::InnerProduct } else { metric };
        // Queries are floats if the stored form is smaller.
        let floats = form.is_smaller();
        let of_kind = if floats { Distance::of_floats } else { Distance::new };
        let shift = if normalised { 1.0 } else { 0.0 };
        Exact { distance: of_kind(element, kernel, dim), scale: form.distance_scale(), shift }
    }

    /// Returns the distance of a query, in the form of [`Form::query`], to one vector.
    #[inline]
    pub(crate) fn between(&self, query: &[u8], vector: &[u8]) -> f32 {
        self.shift + self.scale * self.distance.between(query, vector)
    }

    /// Returns the bytes of a query.
    pub(crate) fn query_bytes(&self) -> usize {
        self.distance.query_bytes()
    }

    /// Creates an empty list of queries for the comparison with blocks of stored vectors.
    pub(crate) fn tiles(&self) -> QueryTiles {
        let (query, rows) = (self.distance.query_element(), self.distance.element());
        QueryTiles::new(self.distance.metric(), query, rows, self.distance.dim())
    }

    /// Returns a distance of the kernel that is exceeded by no vector at most `distance` away.
    pub(crate) fn kernel_limit(&self, distance: f32) -> f32 {
        if self.scale == 1.0 && self.shift == 0.0 {
            return distance;
        }
        // The product and the sum are rounded.
        let (distance, shift) = (f64::from(distance), f64::from(self.shift));
        let error = f64::from(f32::EPSILON) * (distance.abs() + shift.abs());
        (((distance - shift + error) / f64::from(self.scale)) as f32).next_up()
    }

    /// Returns the same distance for a graphics card that has the vectors.
    pub(crate) fn on_card(&self) -> bathyal_gpu::Exact {
        let Exact { distance, scale, shift } = *self;
        bathyal_gpu::Exact {
            metric: distance.metric(),
            row: distance.element(),
            query: distance.query_element(),
            dim: distance.dim() as u32,
            scale,
            shift,
        }
    }

    /// Computes the distances to the vectors with the numbers `ids` in `vectors`, which are stored one after
    /// the other.
    #[inline]
    pub(crate) fn score_some(&self, query: &[u8], vectors: &[u8], ids: &[u32], out: &mut [f32]) {
        let rows = Rows { bytes: vectors, stride: self.distance.row_bytes() };
        self.distance.score(query, rows, ids, out);
        self.finish(out);
    }

    /// Computes the distances to vectors that are stored one after the other.
    #[inline]
    pub(crate) fn score_block(&self, query: &[u8], vectors: &[u8], out: &mut [f32]) {
        self.distance.score_block(query, vectors, out);
        self.finish(out);
    }

    /// Converts distances of the kernel to the units of the given vectors.
    #[inline]
    fn finish(&self, out: &mut [f32]) {
        if self.scale != 1.0 {
            out.iter_mut().for_each(|distance| *distance *= self.scale);
        }
        if self.shift != 0.0 {
            out.iter_mut().for_each(|distance| *distance += self.shift);
        }
    }
}
