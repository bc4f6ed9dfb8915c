//! Loads the vectors of one part after the other, and orders them.

use super::Work;
use super::intake::Intake;
use super::spread::{ID_BYTES, Spilled, spill_name};
use crate::allocate::try_with_capacity;
use crate::build::StageTimes;
use crate::build::journal::{holds, require};
use crate::error::IndexError;
use crate::format::appender::Written;
use crate::partition::placement::Placement;
use crate::partition::space::Space;
use bathyal_store::Draft;
use bathyal_vectors::progress::Progress;
use serde::{Deserialize, Serialize};

/// The vectors of one part, in a spill file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpilledPart {
    pub(crate) rows: usize,
    pub(crate) written: Written,
}

/// Vectors that are placed together: a part, or a piece of a part that is larger than planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) part: usize,
    /// The first of the part's vectors in this piece.
    pub(crate) first: usize,
    pub(crate) rows: usize,
}

/// Returns the pieces of all parts. Groups and runs begin anew with each piece, so all positions follow from
/// the pieces.
pub(crate) fn pieces(parts: &[SpilledPart], most: usize) -> Vec<Piece> {
    let of_part = |(part, rows): (usize, usize)| {
        (0..rows).step_by(most).map(move |first| Piece { part, first, rows: most.min(rows - first) })
    };
    parts.iter().map(|part| part.rows).enumerate().flat_map(of_part).collect()
}

/// Checks the parts of `vectors` vectors of `vector_bytes` bytes, at most `rows` of which are placed
/// together, and returns their pieces. `placed` is the number of pieces that a journal reports as placed. A
/// vector in two parts counts twice.
///
/// # Errors
/// A sentence that states what is wrong.
pub(crate) fn check_parts(
    parts: &[SpilledPart],
    placed: usize,
    vectors: usize,
    vector_bytes: u64,
    rows: usize,
) -> Result<Vec<Piece>, String> {
    let sum = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.rows));
    require(parts.is_empty() || sum == Some(vectors), "the parts do not hold the vectors")?;
    let row_bytes = ID_BYTES as u64 + vector_bytes;
    let spilled =
        parts.iter().all(|part| Some(part.written.bytes) == row_bytes.checked_mul(part.rows as u64));
    let whole = parts.len() == 1 && parts[0].written.bytes == 0 && rows >= vectors;
    require(spilled || whole, "the lengths of the parts do not follow from their rows")?;
    let pieces = pieces(parts, rows);
    require(placed <= pieces.len(), "more pieces are placed than there are")?;
    Ok(pieces)
}

/// Returns true if the spill file of each part exists that has a piece in `left`, the pieces that are not
/// placed.
pub(crate) fn spill_files_exist(directory: &dyn Draft, parts: &[SpilledPart], left: &[Piece]) -> bool {
    left.iter().all(|piece| holds(directory, &spill_name(piece.part), &parts[piece.part].written))
}

/// The progress of one piece, as a part of the progress of all pieces.
struct PieceProgress<'a> {
    all: &'a dyn Progress,
    before: u64,
}

impl Progress for PieceProgress<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, done: u64) {
        self.all.advance(self.before + done);
    }

    fn cancelled(&self) -> bool {
        self.all.cancelled()
    }
}

/// The vectors of a piece in memory, with their order in the index.
pub(crate) struct Ordered {
    pub(crate) space: Space,
    /// The rows of `space`, by place.
    pub(crate) order: Vec<u32>,
    /// The vectors' ids by row; `None` if each row is its own id.
    pub(crate) ids: Option<Vec<u32>>,
}

impl Ordered {
    /// Loads a piece and orders it in units of `units` vectors, the smallest first. Units of `exchanged`
    /// vectors exchange members. `before` vectors were ordered before.
    pub(crate) fn load<L, O>(
        work: &Work<'_, L, O>,
        intake: &Intake,
        parts: &[SpilledPart],
        piece: Piece,
        (units, exchanged): (Vec<usize>, Option<usize>),
        before: u64,
        stages: &mut StageTimes,
    ) -> Result<Ordered, IndexError> {
        let (space, ids) = if work.placed_at_once() {
            work.progress.stage("loading vectors", work.data.count() as u64);
            let space = Space::load(work.data, work.options.metric, work.threads, work.progress)?;
            work.progress.stage("grouping", work.data.count() as u64);
            (space, None)
        } else {
            read(work, intake, parts[piece.part], piece).map(|(space, ids)| (space, Some(ids)))?
        };
        stages.end("load");
        let card = work.options.card.as_deref();
        let placement = Placement { units, exchanged, threads: work.threads, seed: work.options.seed, card };
        let mut order: Vec<u32> = (0..space.count() as u32).collect();
        placement.order(&space, &mut order, &PieceProgress { all: work.progress, before })?;
        stages.end("group");
        Ok(Ordered { space, order, ids })
    }

    /// Returns the id of a row.
    pub(crate) fn id(&self, row: u32) -> u32 {
        self.ids.as_ref().map_or(row, |ids| ids[row as usize])
    }

    /// Returns the rows of unit number `number`, which has `unit` places.
    pub(crate) fn rows(&self, number: usize, unit: usize) -> &[u32] {
        let first = self.order.len().min(number * unit);
        &self.order[first..self.order.len().min(first + unit)]
    }

    /// Returns the means of all units of `unit` places, row-major (units x dim).
    pub(crate) fn means(&self, unit: usize, threads: usize) -> Vec<f32> {
        let (dim, units) = (self.space.dim(), self.order.len().div_ceil(unit));
        let mut means = vec![0.0_f32; units * dim];
        let part = units.div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            for (number, means) in means.chunks_mut(part * dim).enumerate() {
                scope.spawn(move || {
                    let mut row = vec![0.0; dim];
                    for (i, mean) in means.chunks_exact_mut(dim).enumerate() {
                        let rows = self.rows(number * part + i, unit);
                        for id in rows {
                            self.space.row_f32(*id, &mut row);
                            mean.iter_mut().zip(&row).for_each(|(m, v)| *m += v);
                        }
                        mean.iter_mut().for_each(|m| *m /= rows.len() as f32);
                    }
                });
            }
        });
        means
    }
}

/// Removes the file of a part, once its last piece is placed.
pub(crate) fn remove_spilled<L, O>(work: &Work<'_, L, O>, parts: &[SpilledPart], piece: Piece) {
    if piece.first + piece.rows == parts[piece.part].rows && !work.placed_at_once() {
        // If this fails, the file is removed when the index is published.
        let _ = work.directory.delete(&spill_name(piece.part));
    }
}

/// Reads a piece of a part: the vectors, and their ids, which ascend.
pub(crate) fn read<L, O>(
    work: &Work<'_, L, O>,
    intake: &Intake,
    part: SpilledPart,
    piece: Piece,
) -> Result<(Space, Vec<u32>), IndexError> {
    let mut spilled = Spilled::open(work, piece.part, part)?;
    for _ in 0..piece.first {
        spilled.next()?;
    }
    let mut space = Space::blank(piece.rows, intake.dim, intake.element, intake.metric)?;
    let mut ids = try_with_capacity("the ids of a part", piece.rows)?;
    for row in 0..piece.rows {
        if row % 65_536 == 0 {
            work.check_cancelled()?;
        }
        let (id, bytes) = spilled.next()?;
        ids.push(id);
        space.row_mut(row as u32).copy_from_slice(bytes);
    }
    if let Some(longest) = intake.longest {
        space.lift(longest);
    }
    Ok((space, ids))
}
