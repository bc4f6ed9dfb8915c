//! What a build of a cluster index has finished, so that a killed one continues.

use super::build::{MEANS_NAME, ORDER_NAME};
use super::options::ClusterOptions;
use super::place;
use super::plan::Plan;
use super::section::{CODEC_NAME, CODES_NAME, VECTORS_NAME};
use crate::build::journal::{self, holds, require};
use crate::build::options::BuildOptions;
use crate::error::IndexError;
use crate::format::appender::Written;
use crate::format::groups::GroupLayout;
use crate::format::identity::Identity;
use crate::format::manifest::FileEntry;
use crate::partition::pieces::{Part, check_parts};
use bathyal_kernels::quantize::SCAN_BLOCK;
use bathyal_store::{Draft, GenerationExt};
use bathyal_vectors::VectorFile;
use serde::{Deserialize, Serialize};

/// Changes whenever what a step writes does.
const STEPS_VERSION: u32 = 3;

/// The steps that are finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// What was built from and how; a build that differs in it begins anew.
    fingerprint: String,
    /// Seconds worked.
    pub(crate) seconds: f64,
    /// Bits of the longest squared length, under the inner product.
    pub(crate) longest: Option<u32>,
    /// The parts, once all vectors have been sent to theirs; one without a file where all are placed at once.
    pub(crate) parts: Vec<Part>,
    /// Pieces of parts whose pages are written.
    pub(crate) placed: usize,
    pub(crate) vectors: Written,
    pub(crate) means: Written,
    pub(crate) order: Written,
    /// The file of the codec, once it is trained.
    pub(crate) trained: Option<FileEntry>,
    pub(crate) codes: Written,
}

impl Journal {
    pub(crate) fn new(fingerprint: String) -> Journal {
        Journal {
            fingerprint,
            seconds: 0.0,
            longest: None,
            parts: Vec::new(),
            placed: 0,
            vectors: Written::default(),
            means: Written::default(),
            order: Written::default(),
            trained: None,
            codes: Written::default(),
        }
    }

    /// Replaces the journal in `directory`. What it names was synced before.
    pub(crate) fn write(&self, directory: &dyn Draft) -> Result<(), IndexError> {
        journal::write(directory, self)
    }

    /// The journal in `directory`, if it is of a build with this fingerprint and the files that it names are there.
    pub(crate) fn read(directory: &dyn Draft, fingerprint: &str, shape: &Shape) -> Option<Journal> {
        let journal = Journal::parse(&journal::read(directory)?, shape).ok()?;
        let holds = |name: &str, written: &Written| holds(directory, name, written);
        let sound = journal.fingerprint == fingerprint
            && holds(VECTORS_NAME, &journal.vectors)
            && holds(CODES_NAME, &journal.codes)
            && holds(MEANS_NAME, &journal.means)
            && holds(ORDER_NAME, &journal.order)
            && journal.trained.iter().all(|file| directory.len_of(&file.name) == Some(file.bytes));
        sound.then_some(journal)
    }

    /// Reads what [`Journal::write`] wrote for a build of this shape.
    ///
    /// # Errors
    /// A sentence when it is damaged or of another build.
    pub(crate) fn parse(bytes: &[u8], shape: &Shape) -> Result<Journal, String> {
        let journal: Journal = journal::parse(bytes)?;
        require(journal.seconds >= 0.0, "it took less than no time")?;
        let (parts, placed, bytes) = (&journal.parts, journal.placed, shape.layout.vector_bytes() as u64);
        let pieces = check_parts(parts, placed, shape.vectors, bytes, shape.rows)?;
        let (layout, all) = (&shape.layout, place::groups(&pieces, &shape.layout).0.len() as u64);
        let placed = place::groups(&pieces[..journal.placed], layout).0.len() as u64;
        let written = journal.vectors.bytes == placed * layout.group_bytes() as u64
            && journal.means.bytes == placed * 4 * layout.dim() as u64
            && journal.order.bytes == placed * 4 * layout.group_vectors() as u64;
        require(written, "the lengths of its files do not follow from what is placed")?;
        let done = journal.placed == pieces.len() && !pieces.is_empty();
        let name = journal.trained.as_ref().map(|file| file.name.as_str());
        require(name.is_none_or(|name| done && name == CODEC_NAME), "the codec came before the vectors")?;
        // A code has 32 lanes a block and a byte at least.
        let blocks = all * layout.group_blocks() as u64 * SCAN_BLOCK as u64;
        let codes = journal.codes.bytes;
        require(codes == 0 || name.is_some() && codes.is_multiple_of(blocks / all.max(1)), "odd codes")?;
        Ok(journal)
    }
}

/// What the lengths of all files of a build follow from.
pub(crate) struct Shape {
    pub(crate) vectors: usize,
    /// Vectors placed together at most; at least 1.
    pub(crate) rows: usize,
    pub(crate) layout: GroupLayout,
}

/// What a build is made from: the data and every option that has a part in the result. `None` for vectors in memory.
pub(crate) fn fingerprint(
    data: &VectorFile,
    own: &ClusterOptions,
    options: &BuildOptions,
    identity: Identity,
    plan: &Plan,
) -> Option<String> {
    let ClusterOptions { group_vectors, code_bytes, code_kind } = own;
    let BuildOptions { metric, seed, memory_bytes, .. } = options;
    Some(format!(
        "steps {STEPS_VERSION} of {}; {}; {metric:?} {group_vectors} {code_bytes:?} \
         {code_kind:?} {seed} {memory_bytes:?} {} {}",
        env!("CARGO_PKG_VERSION"),
        journal::source(data, options, identity)?,
        options.thread_count(),
        plan.rows,
    ))
}
