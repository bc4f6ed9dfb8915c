//! Divides the vectors of a build into parts that fit in memory, and orders each part so that near vectors
//! are close together. The builders of all cluster families begin with this.
//!
//! One pass over the data sends every vector to its part ([`spread`]); each part is then loaded and ordered
//! on its own ([`pieces`]). If all vectors fit in memory, there is one part and no pass. [`staged`] is the
//! build around that; [`encoding`] makes codes of whole vectors, and [`plain_codes`] writes them.

pub(crate) mod encoding;
pub(crate) mod in_order;
pub(crate) mod intake;
pub(crate) mod journal;
pub(crate) mod pieces;
pub(crate) mod placement;
pub(crate) mod plain_codes;
pub(crate) mod space;
pub(crate) mod spread;
pub(crate) mod staged;

use crate::build::options::BuildOptions;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::appender::Written;
use crate::format::identity::Identity;
use bathyal_store::Draft;
use bathyal_vectors::progress::Progress;
use intake::Intake;
use pieces::SpilledPart;
use spread::Copies;

/// Bytes of vectors that a thread reads at once in a pass: enough that a read costs little compared with the
/// work on its bytes, and few enough for the nearest caches and for many threads.
pub(crate) const READ_BYTES: usize = 128 << 10;
/// Bytes of vectors between two checks for cancellation and two reports of progress.
pub(crate) const CHECK_BYTES: usize = 8 << 20;
/// Most parts of a set. Each has an open file, and in parts much smaller than the range of a search, vectors
/// are placed less well.
pub(crate) const MOST_PARTS: usize = 128;
/// Most vectors of the samples that codecs are trained on and planes are found on.
const SAMPLE_VECTORS: usize = 65_536;
/// Most values of such a sample, if it keeps at least [`LEAST_SAMPLE_VECTORS`] vectors.
const SAMPLE_VALUES: usize = 8 << 20;
const LEAST_SAMPLE_VECTORS: usize = 16_384;

/// Returns the number of vectors of a sample.
pub(crate) fn sample_rows(count: usize, dim: usize) -> usize {
    count.min(SAMPLE_VECTORS.min((SAMPLE_VALUES / dim.max(1)).max(LEAST_SAMPLE_VECTORS)))
}

/// The inputs that all stages of a build share; `L` is the family's layout and `O` its options.
pub(crate) struct Work<'a, L, O> {
    pub(crate) data: &'a SourceVectors<'a>,
    pub(crate) options: &'a BuildOptions,
    /// The options of the family.
    pub(crate) own: &'a O,
    pub(crate) layout: L,
    /// The identity with which the checksums of the index begin.
    pub(crate) identity: Identity,
    /// Most vectors that are placed together.
    pub(crate) rows: usize,
    pub(crate) threads: usize,
    /// The draft that receives the files.
    pub(crate) directory: &'a dyn Draft,
    pub(crate) progress: &'a dyn Progress,
}

impl<L, O> Work<'_, L, O> {
    /// Returns an error once the build is cancelled.
    pub(crate) fn check_cancelled(&self) -> Result<(), IndexError> {
        if self.progress.cancelled() { Err(IndexError::Cancelled) } else { Ok(()) }
    }

    /// Returns true if all vectors are placed at once, without a pass that divides them.
    pub(crate) fn placed_at_once(&self) -> bool {
        self.rows >= self.data.count()
    }

    /// Returns the conversion of vectors, before the longest vector is known.
    pub(crate) fn intake(&self) -> Intake {
        let (form, dim) = (self.data.form(), self.data.dim());
        Intake { form, element: form.stored(), metric: form.metric(), dim, longest: None }
    }

    /// Sends the vectors to parts, unless all are placed at once. Sets the longest vector of `intake`.
    pub(crate) fn divide(&self, intake: &mut Intake, copies: Copies) -> Result<Vec<SpilledPart>, IndexError> {
        if self.placed_at_once() {
            return Ok(vec![SpilledPart { rows: self.data.count(), written: Written::default() }]);
        }
        intake.longest = spread::longest(self)?;
        spread::spread(self, intake, copies)
    }
}
