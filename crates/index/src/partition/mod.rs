//! The vectors of a build in parts that fit in memory, each in the order in which near ones lie together: what the
//! builders of all cluster families begin with.
//!
//! One pass over the data sends every vector to its part ([`spread`]); each part is then loaded and ordered on its own
//! ([`pieces`]). Where everything fits there is one part and no pass. [`staged`] is the build around that; [`encoding`] makes codes
//! of whole vectors.

pub(crate) mod encoding;
pub(crate) mod in_order;
pub(crate) mod intake;
pub(crate) mod journal;
pub(crate) mod pieces;
pub(crate) mod placement;
pub(crate) mod space;
pub(crate) mod spread;
pub(crate) mod staged;

use crate::build::options::BuildOptions;
use crate::error::IndexError;
use crate::form::source::Source;
use crate::format::appender::Written;
use crate::format::identity::Identity;
use bathyal_store::Draft;
use bathyal_vectors::progress::Progress;
use intake::Intake;
use pieces::Part;
use spread::Copies;

/// Bytes of vectors that a thread reads at once as it goes through them: large enough that a read costs little beside what
/// is done with it, small enough for the nearest caches and for many threads.
pub(crate) const READ_BYTES: usize = 128 << 10;
/// Bytes of vectors between two looks at cancellation and two reports of progress.
pub(crate) const CHECK_BYTES: usize = 8 << 20;
/// Most parts that a set is divided into: each has an open file, and parts much smaller than a search's reach place
/// vectors less well.
pub(crate) const MOST_PARTS: usize = 128;
/// Vectors of the samples that codecs are trained on and planes are found on.
const SAMPLE_VECTORS: usize = 65_536;
/// Values of such a sample, where that is fewer vectors but at least [`LEAST_SAMPLE_VECTORS`].
const SAMPLE_VALUES: usize = 8 << 20;
const LEAST_SAMPLE_VECTORS: usize = 16_384;

/// Vectors of a sample.
pub(crate) fn sample_rows(count: usize, dim: usize) -> usize {
    count.min(SAMPLE_VECTORS.min((SAMPLE_VALUES / dim.max(1)).max(LEAST_SAMPLE_VECTORS)))
}

/// What all stages of a build read; `L` is what its family lays out.
pub(crate) struct Work<'a, L, O> {
    pub(crate) data: &'a Source<'a>,
    pub(crate) options: &'a BuildOptions,
    /// What only its family is told.
    pub(crate) own: &'a O,
    pub(crate) layout: L,
    /// What the checksums of the index begin with.
    pub(crate) identity: Identity,
    /// Most vectors that are placed together.
    pub(crate) rows: usize,
    pub(crate) threads: usize,
    /// Where the files are written.
    pub(crate) directory: &'a dyn Draft,
    pub(crate) progress: &'a dyn Progress,
}

impl<L, O> Work<'_, L, O> {
    /// An error once the build should stop.
    pub(crate) fn check_cancelled(&self) -> Result<(), IndexError> {
        if self.progress.cancelled() { Err(IndexError::Cancelled) } else { Ok(()) }
    }

    /// Whether all vectors are placed at once, without a pass that divides them.
    pub(crate) fn placed_at_once(&self) -> bool {
        self.rows >= self.data.count()
    }

    /// How vectors are taken in, before the longest is known.
    pub(crate) fn intake(&self) -> Intake {
        let (form, dim) = (self.data.form(), self.data.dim());
        Intake { form, element: form.stored(), metric: form.metric(), dim, longest: None }
    }

    /// Sends the vectors to parts, where they are not placed all at once; `intake` then knows the longest.
    pub(crate) fn divide(&self, intake: &mut Intake, copies: Copies) -> Result<Vec<Part>, IndexError> {
        if self.placed_at_once() {
            return Ok(vec![Part { rows: self.data.count(), written: Written::default() }]);
        }
        intake.longest = spread::longest(self)?;
        spread::spread(self, intake, copies)
    }
}
