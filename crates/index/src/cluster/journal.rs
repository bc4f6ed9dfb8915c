//! What a build has finished, so that a killed one continues: a small file that is replaced after each step.

use super::build::CODEC_NAME;
use super::place;
use super::plan::Plan;
use crate::error::IndexError;
use crate::format::appender::Written;
use crate::format::groups::GroupLayout;
use crate::format::manifest::FileEntry;
use crate::format::seal;
use crate::parts::pieces::{Part, pieces};
use crate::vamana::BuildOptions;
use crate::vectors::VectorFile;
use bathyal_kernels::quantize::SCAN_BLOCK;
use bathyal_tier::backend::file::replace_file;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The journal, gone before the index gets its name.
pub(crate) const JOURNAL_NAME: &str = "journal.json";
/// Rows of the data that a fingerprint looks at.
const ROWS_LOOKED_AT: usize = 256;
/// Changes whenever what a step writes does.
const STEPS_VERSION: u32 = 2;

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
    pub(crate) fn write(&self, directory: &Path) -> Result<(), IndexError> {
        let json = serde_json::to_vec(self).map_err(|e| IndexError::Internal(e.to_string()))?;
        Ok(replace_file(directory.join(JOURNAL_NAME), &seal::sealed(json))?)
    }

    /// The journal in `directory`, if it is of a build with this fingerprint and the files that it names are there.
    pub(crate) fn read(directory: &Path, fingerprint: &str, shape: &Shape) -> Option<Journal> {
        let bytes = std::fs::read(directory.join(JOURNAL_NAME)).ok()?;
        let journal = Journal::parse(&bytes, shape).ok()?;
        let length = |name: &str| directory.join(name).metadata().map_or(0, |found| found.len());
        let holds = |name: &str, written: &Written| written.bytes == 0 || length(name) >= written.bytes;
        let sound = journal.fingerprint == fingerprint
            && holds(super::build::VECTORS_NAME, &journal.vectors)
            && holds(super::build::CODES_NAME, &journal.codes)
            && holds(super::build::MEANS_NAME, &journal.means)
            && holds(super::build::ORDER_NAME, &journal.order)
            && journal.trained.iter().all(|file| length(&file.name) == file.bytes);
        sound.then_some(journal)
    }

    /// Reads what [`Journal::write`] wrote for a build of this shape.
    ///
    /// # Errors
    /// A sentence when it is damaged or of another build.
    pub(crate) fn parse(bytes: &[u8], shape: &Shape) -> Result<Journal, String> {
        let journal: Journal = serde_json::from_slice(seal::unsealed(bytes)?).map_err(|e| e.to_string())?;
        let require = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_string()) };
        require(journal.seconds >= 0.0, "it took less than no time")?;
        let parts = &journal.parts;
        let rows = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.rows));
        require(parts.is_empty() || rows == Some(shape.vectors), "the parts do not hold the vectors")?;
        let row_bytes = 4 + shape.layout.vector_bytes() as u64;
        let spilled =
            parts.iter().all(|part| Some(part.written.bytes) == row_bytes.checked_mul(part.rows as u64));
        let whole = parts.len() == 1 && parts[0].written.bytes == 0 && shape.rows >= shape.vectors;
        require(spilled || whole, "the lengths of the parts do not follow from their rows")?;
        let pieces = pieces(parts, shape.rows);
        require(journal.placed <= pieces.len(), "more pieces are placed than there are")?;
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

/// What a build is made from: the data (its file, length, time of change, and a sample of its rows) and every option
/// that has a part in the result. `None` for vectors in memory, which nobody can recognise.
pub(crate) fn fingerprint(data: &VectorFile, options: &BuildOptions, plan: &Plan) -> Option<String> {
    let of_file = |file: &VectorFile| {
        let rows = file.count().min(ROWS_LOOKED_AT);
        let sample = (0..rows).fold(0, |crc, i| {
            crc32c::crc32c_append(crc, file.row((i as u64 * file.count() as u64 / rows as u64) as usize))
        });
        Some(format!("{} {sample:08x}", file.identity()?))
    };
    let queries = match &options.calibration {
        Some(queries) => of_file(queries)?,
        None => "none".into(),
    };
    let BuildOptions { metric, group_vectors, code_bytes, code_kind, seed, memory_bytes, .. } = options;
    Some(format!(
        "steps {STEPS_VERSION} of {}; data {}; queries {queries}; {metric:?} {group_vectors} {code_bytes:?} \
         {code_kind:?} {seed} {memory_bytes:?} {} {}",
        env!("CARGO_PKG_VERSION"),
        of_file(data)?,
        options.thread_count(),
        plan.rows,
    ))
}
