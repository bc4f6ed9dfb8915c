//! Placing the vectors of one part after the other: their order, their pages, the means of their groups.

use super::build::{MEANS_NAME, ORDER_NAME, VECTORS_NAME, Work};
use super::centroids::GROUPS_A_RUN;
use super::intake::Intake;
use super::journal::{Journal, Part};
use super::spread::{Spilled, spill_name};
use crate::build::Stages;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::groups::{GroupLayout, NO_ID};
use crate::order::Placement;
use crate::progress::Progress;
use crate::vamana::space::Space;

/// Bytes of pages written at once.
const WRITE_BYTES: usize = 4 << 20;

/// Vectors that are placed together: a part, or a piece of one that came out larger than planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    part: usize,
    /// The first of the part's vectors that is in this piece.
    first: usize,
    pub(crate) rows: usize,
}

/// The pieces of all parts. Groups and runs begin anew with each, so all else follows from them.
pub(crate) fn pieces(parts: &[Part], most: usize) -> Vec<Piece> {
    let of_part = |(part, rows): (usize, usize)| {
        (0..rows).step_by(most).map(move |first| Piece { part, first, rows: most.min(rows - first) })
    };
    parts.iter().map(|part| part.rows).enumerate().flat_map(of_part).collect()
}

/// The number of vectors in each group, and the first group of each run.
pub(crate) fn groups(pieces: &[Piece], layout: &GroupLayout) -> (Vec<u32>, Vec<u32>) {
    let (mut counts, mut first_groups) = (Vec::new(), Vec::new());
    for piece in pieces {
        let groups = piece.rows.div_ceil(layout.group_vectors());
        first_groups.extend((counts.len()..counts.len() + groups).step_by(GROUPS_A_RUN).map(|g| g as u32));
        let starts = (0..piece.rows).step_by(layout.group_vectors());
        counts.extend(starts.map(|start| layout.group_vectors().min(piece.rows - start) as u32));
    }
    (counts, first_groups)
}

/// Vectors in memory with the order that they take in the index.
struct Placed<'a> {
    space: &'a Space,
    layout: GroupLayout,
    /// Rows of `space` by place.
    order: &'a [u32],
    /// The vectors' ids by row; `None` where a row is its own id.
    ids: Option<&'a [u32]>,
}

impl Placed<'_> {
    fn groups(&self) -> usize {
        self.order.len().div_ceil(self.layout.group_vectors())
    }

    fn id(&self, row: u32) -> u32 {
        self.ids.map_or(row, |ids| ids[row as usize])
    }

    /// The rows of a unit of `unit` places.
    fn rows(&self, number: usize, unit: usize) -> &[u32] {
        let first = self.order.len().min(number * unit);
        &self.order[first..self.order.len().min(first + unit)]
    }

    /// Appends the means of all groups.
    fn write_means(&self, threads: usize, file: &mut Appender) -> Result<(), IndexError> {
        let dim = self.space.dim();
        let mut means = vec![0.0_f32; self.groups() * dim];
        let part = self.groups().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            for (number, means) in means.chunks_mut(part * dim).enumerate() {
                scope.spawn(move || {
                    let mut row = vec![0.0; dim];
                    for (i, mean) in means.chunks_exact_mut(dim).enumerate() {
                        let rows = self.rows(number * part + i, self.layout.group_vectors());
                        for id in rows {
                            self.space.row_f32(*id, &mut row);
                            mean.iter_mut().zip(&row).for_each(|(m, v)| *m += v);
                        }
                        mean.iter_mut().for_each(|m| *m /= rows.len() as f32);
                    }
                });
            }
        });
        let mut bytes = Vec::with_capacity(WRITE_BYTES);
        for means in means.chunks(WRITE_BYTES / 4) {
            bytes.clear();
            means.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            file.append(&bytes)?;
        }
        Ok(())
    }

    /// Appends the ids by place, with none in places that stay free.
    fn write_order(&self, file: &mut Appender) -> Result<(), IndexError> {
        let places = self.groups() * self.layout.group_vectors();
        let ids = self.order.iter().map(|row| self.id(*row)).chain(std::iter::repeat(NO_ID));
        let mut ids = ids.take(places);
        let mut bytes = Vec::with_capacity(WRITE_BYTES);
        loop {
            bytes.clear();
            ids.by_ref().take(WRITE_BYTES / 4).for_each(|id| bytes.extend(id.to_le_bytes()));
            if bytes.is_empty() {
                return Ok(());
            }
            file.append(&bytes)?;
        }
    }

    /// Appends the pages of all groups.
    fn write_pages(&self, work: &Work<'_>, file: &mut Appender) -> Result<(), IndexError> {
        let layout = &self.layout;
        let (page_bytes, before) = (layout.page_bytes(), file.written().bytes as usize / layout.page_bytes());
        let pages = self.groups() * layout.group_pages();
        let at_once = (WRITE_BYTES / page_bytes).clamp(1, pages);
        let mut buffer = vec![0_u8; at_once * page_bytes];
        for first in (0..pages).step_by(at_once) {
            work.go_on()?;
            let buffer = &mut buffer[..at_once.min(pages - first) * page_bytes];
            let part = (buffer.len() / page_bytes).div_ceil(work.threads);
            std::thread::scope(|scope| {
                for (number, buffer) in buffer.chunks_mut(part * page_bytes).enumerate() {
                    let first = first + number * part;
                    scope.spawn(move || {
                        let mut ids = Vec::new();
                        for (page, bytes) in (first..).zip(buffer.chunks_exact_mut(page_bytes)) {
                            let rows = self.rows(page, layout.page_vectors());
                            ids.clear();
                            ids.extend(rows.iter().map(|row| self.id(*row)));
                            let vectors = rows.iter().map(|row| self.space.row(*row));
                            layout.encode(bytes, (before + page) as u32, &ids, vectors);
                        }
                    });
                }
            });
            file.append(buffer)?;
        }
        Ok(())
    }
}

/// Progress of one piece within all.
struct Within<'a> {
    all: &'a dyn Progress,
    before: u64,
}

impl Progress for Within<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, done: u64) {
        self.all.advance(self.before + done);
    }

    fn cancelled(&self) -> bool {
        self.all.cancelled()
    }
}

/// Loads a piece of a part: the vectors, and their ids.
fn load(work: &Work<'_>, intake: &Intake, part: Part, piece: Piece) -> Result<(Space, Vec<u32>), IndexError> {
    let mut spilled = Spilled::open(work, piece.part, part)?;
    for _ in 0..piece.first {
        spilled.next()?;
    }
    let mut space = Space::blank(piece.rows, intake.dim, intake.element, intake.metric);
    let mut ids = Vec::with_capacity(piece.rows);
    for row in 0..piece.rows {
        if row % 65_536 == 0 {
            work.go_on()?;
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

/// Places what is not placed yet, piece by piece; the journal knows of each.
pub(crate) fn place(
    work: &Work<'_>,
    intake: &Intake,
    journal: &mut Journal,
    stages: &mut Stages,
) -> Result<(), IndexError> {
    let pieces = pieces(&journal.parts, work.plan.rows);
    if journal.placed == pieces.len() {
        return Ok(());
    }
    let mut vectors = Appender::resume(work.directory, VECTORS_NAME, journal.vectors)?;
    let mut means = Appender::resume(work.directory, MEANS_NAME, journal.means)?;
    let mut orders = Appender::resume(work.directory, ORDER_NAME, journal.order)?;
    let (page, group) = (work.layout.page_vectors(), work.layout.group_vectors());
    let (threads, seed) = (work.threads, work.options.seed);
    let placement = Placement { units: vec![page, group, GROUPS_A_RUN * group], threads, seed };
    let whole = journal.parts.iter().all(|part| part.written.bytes == 0);
    let mut before: u64 = pieces[..journal.placed].iter().map(|piece| piece.rows as u64).sum();
    if !whole {
        work.progress.stage("grouping", work.data.count() as u64);
    }
    for piece in &pieces[journal.placed..] {
        let part = journal.parts[piece.part];
        let (space, ids) = if whole {
            work.progress.stage("loading vectors", work.data.count() as u64);
            let space = Space::load(work.data, work.options.metric, threads, work.progress)?;
            work.data.release();
            work.progress.stage("grouping", work.data.count() as u64);
            (space, None)
        } else {
            load(work, intake, part, *piece).map(|(space, ids)| (space, Some(ids)))?
        };
        stages.end("load");
        let mut order: Vec<u32> = (0..space.count() as u32).collect();
        placement.order(&space, &mut order, &Within { all: work.progress, before })?;
        stages.end("group");
        let placed = Placed { space: &space, layout: work.layout, order: &order, ids: ids.as_deref() };
        placed.write_pages(work, &mut vectors)?;
        placed.write_means(threads, &mut means)?;
        placed.write_order(&mut orders)?;
        journal.vectors = vectors.sync()?;
        journal.means = means.sync()?;
        journal.order = orders.sync()?;
        journal.placed += 1;
        journal.seconds = stages.seconds_so_far();
        journal.write(work.directory)?;
        before += piece.rows as u64;
        if piece.first + piece.rows == part.rows && !whole {
            // What cannot be removed now goes with the directory's other temporary files.
            let _ = std::fs::remove_file(work.directory.join(spill_name(piece.part)));
        }
        stages.end("write vectors");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::appender::Written;
    use bathyal_kernels::Element;

    #[test]
    fn groups_and_runs_begin_anew_with_each_piece() {
        let part = |rows| Part { rows, written: Written::default() };
        let layout = GroupLayout::choose(Element::U8, 128, 96).expect("a layout");
        let run = GROUPS_A_RUN * layout.group_vectors();
        let pieces = pieces(&[part(run + 94), part(0), part(2 * run + 1)], 2 * run);
        let rows: Vec<_> = pieces.iter().map(|piece| (piece.part, piece.first, piece.rows)).collect();
        assert_eq!(rows, [(0, 0, run + 94), (2, 0, 2 * run), (2, 2 * run, 1)]);
        let (counts, first_groups) = groups(&pieces, &layout);
        assert_eq!(first_groups, [0, 64, 66, 130, 194]);
        assert_eq!(counts.iter().sum::<u32>() as usize, 3 * run + 95);
        assert_eq!((counts[64], counts[65], counts[194], counts.len()), (93, 1, 1, 195));
    }
}
