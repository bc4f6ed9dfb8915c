//! What a build of posting lists has finished, so that a killed one continues: the pieces that are placed, and then the
//! lists that every vector was admitted to. The graph and the assignment in between are done again.

use super::members::{ADMITTED_NAME, MEMBERS_NAME};
use super::options::SpannOptions;
use super::place::{self, MEANS_NAME, ORDER_NAME, rows_name};
use super::section::{CENTROIDS_NAME, CODEC_NAME, CODES_NAME, LINKS_NAME};
use super::work::Shape as ListShape;
use crate::build::journal::{self, holds, require};
use crate::build::options::BuildOptions;
use crate::error::IndexError;
use crate::format::appender::Written;
use crate::format::identity::Identity;
use crate::format::manifest::{CodesEntry, FileEntry};
use crate::partition::pieces::{Part, check_parts};
use bathyal_kernels::Element;
use bathyal_store::Draft;
use bathyal_vectors::VectorFile;
use serde::{Deserialize, Serialize};

/// While building: how often each list is read, u32.
pub(crate) const FREQUENCIES_NAME: &str = "frequencies.tmp";
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
    /// Pieces of parts whose leaves are written.
    pub(crate) placed: usize,
    pub(crate) rows: Written,
    pub(crate) means: Written,
    pub(crate) order: Written,
    /// What came of navigation and assignment, once every list has its vectors.
    pub(crate) admitted: Option<Admitted>,
}

/// What the lists are written from, in files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Admitted {
    pub(crate) centroids: FileEntry,
    pub(crate) links: FileEntry,
    pub(crate) codes: CodeFiles,
    pub(crate) entry_point: u32,
    /// The vectors of every list.
    pub(crate) members: Written,
    /// A bit a slot: whether some list has admitted it.
    pub(crate) slots: Written,
    /// How often each list is read.
    pub(crate) frequencies: Written,
}

/// The codes of the centroids as a manifest will describe them, with their files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CodeFiles {
    pub(crate) file: FileEntry,
    pub(crate) codec: FileEntry,
    pub(crate) entry: CodesEntry,
}

impl From<CodesEntry> for CodeFiles {
    fn from(entry: CodesEntry) -> CodeFiles {
        CodeFiles { file: entry.file.clone(), codec: entry.codec.clone(), entry }
    }
}

impl CodeFiles {
    /// What goes into the manifest.
    pub(crate) fn entry(&self) -> CodesEntry {
        CodesEntry { file: self.file.clone(), codec: self.codec.clone(), ..self.entry.clone() }
    }
}

impl Journal {
    pub(crate) fn new(fingerprint: String) -> Journal {
        Journal {
            fingerprint,
            seconds: 0.0,
            longest: None,
            parts: Vec::new(),
            placed: 0,
            rows: Written::default(),
            means: Written::default(),
            order: Written::default(),
            admitted: None,
        }
    }

    /// Replaces the journal in `directory`. What it names was synced before.
    pub(crate) fn write(&self, directory: &dyn Draft) -> Result<(), IndexError> {
        journal::write(directory, self)
    }

    /// The journal in `directory`, if it is of a build with this fingerprint and the files that it names are there.
    pub(crate) fn read(directory: &dyn Draft, fingerprint: &str, shape: &Shape) -> Option<Journal> {
        let journal = Journal::parse(&journal::read(directory)?, shape).ok()?;
        let placed = [(rows_name(shape.element), journal.rows), (MEANS_NAME, journal.means)];
        let written = |file: &FileEntry| Written { bytes: file.bytes, crc32c: file.crc32c };
        let admitted = journal.admitted.as_ref().map(|admitted| {
            [
                (CENTROIDS_NAME, written(&admitted.centroids)),
                (LINKS_NAME, written(&admitted.links)),
                (CODES_NAME, written(&admitted.codes.file)),
                (CODEC_NAME, written(&admitted.codes.codec)),
                (MEMBERS_NAME, admitted.members),
                (ADMITTED_NAME, admitted.slots),
                (FREQUENCIES_NAME, admitted.frequencies),
            ]
        });
        let files = placed.into_iter().chain([(ORDER_NAME, journal.order)]);
        let mut files = files.chain(admitted.into_iter().flatten());
        let sound = journal.fingerprint == fingerprint
            && files.all(|(name, written)| holds(directory, name, &written));
        sound.then_some(journal)
    }

    /// Reads what [`Journal::write`] wrote for a build of this shape.
    ///
    /// # Errors
    /// A sentence when it is damaged or of another build.
    pub(crate) fn parse(bytes: &[u8], shape: &Shape) -> Result<Journal, String> {
        let journal: Journal = journal::parse(bytes)?;
        require(journal.seconds >= 0.0, "it took less than no time")?;
        let row_bytes = (shape.dim * shape.element.size()) as u64;
        let (parts, placed) = (&journal.parts, journal.placed);
        let pieces = check_parts(parts, placed, shape.vectors, row_bytes, shape.rows)?;
        let rows: usize = pieces[..placed].iter().map(|piece| piece.rows).sum();
        let leaves = place::firsts(&pieces[..placed], shape.leaf).len() as u64;
        let header = if placed == 0 { 0 } else { place::HEADER_BYTES };
        let written = journal.rows.bytes == header + rows as u64 * row_bytes
            && journal.means.bytes == leaves * 4 * shape.dim as u64
            && journal.order.bytes == 4 * rows as u64;
        require(written, "the lengths of its files do not follow from what is placed")?;
        if let Some(admitted) = &journal.admitted {
            let names = [
                (&admitted.centroids, CENTROIDS_NAME),
                (&admitted.links, LINKS_NAME),
                (&admitted.codes.file, CODES_NAME),
                (&admitted.codes.codec, CODEC_NAME),
            ];
            require(names.iter().all(|(file, name)| file.name == *name), "files of other names")?;
            require(rows == shape.vectors, "lists were filled before all vectors were placed")?;
            let lengths = admitted.slots.bytes == 8 * shape.vectors.div_ceil(64) as u64
                && admitted.frequencies.bytes == 4 * leaves
                && admitted.members.bytes >= 4 * leaves
                && u64::from(admitted.entry_point) < leaves;
            require(lengths, "the lengths of its files do not follow from the lists")?;
        }
        Ok(journal)
    }
}

/// What the lengths of all files of a build follow from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) vectors: usize,
    pub(crate) dim: usize,
    pub(crate) element: Element,
    /// Vectors of a leaf; at least 1.
    pub(crate) leaf: usize,
    /// Vectors placed together at most; at least 1.
    pub(crate) rows: usize,
}

impl Shape {
    pub(crate) fn of(data: &VectorFile, lists: &ListShape, rows: usize) -> Shape {
        let (vectors, dim, element) = (data.count(), data.dim(), data.element());
        Shape { vectors, dim, element, leaf: lists.leaf, rows }
    }
}

/// What a build is made from: the data and every option that has a part in the result. `None` for vectors in memory.
pub(crate) fn fingerprint(
    data: &VectorFile,
    own: &SpannOptions,
    options: &BuildOptions,
    identity: Identity,
    lists: &ListShape,
    rows: usize,
) -> Option<String> {
    let SpannOptions { alpha, code_bytes, code_kind, .. } = own;
    let BuildOptions { metric, seed, memory_bytes, .. } = options;
    let ListShape { leaf, list_limit, postings } = *lists;
    Some(format!(
        "lists, steps {STEPS_VERSION} of {}; {}; {metric:?} {leaf} {list_limit} {} {} {alpha} {code_bytes:?} \
         {code_kind:?} {seed} {memory_bytes:?} {} {}",
        env!("CARGO_PKG_VERSION"),
        journal::source(data, options, identity)?,
        postings.name(),
        own.list_replicas(),
        options.thread_count(),
        rows,
    ))
}
