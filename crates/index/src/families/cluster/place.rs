//! Writes the vectors of each piece: their pages, and their ids by place.

use super::build::{Journal, Work};
use super::centroids::GROUPS_PER_RUN;
use super::section::{POSITIONS_NAME, VECTORS_NAME};
use crate::allocate::try_zeros;
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack, Written};
use crate::format::groups::{GroupLayout, NO_ID};
use crate::format::identity::Identity;
use crate::format::manifest::FileEntry;
use crate::format::positions::{self, BLOCK_PLACES};
use crate::partition::journal::ORDER_NAME;
use crate::partition::pieces::{Ordered, Piece};
use bathyal_store::Draft;

/// Bytes of pages written at once.
const WRITE_BYTES: usize = 4 << 20;
/// Bytes of positions that are collected in one pass over the order, at least. They and the part of the order
/// that is read at once take no more memory than the stage before.
const POSITIONS_BYTES: usize = 12 << 20;
/// Divisor of the build's budget that gives the bytes of positions, if that is more.
const POSITIONS_SHARE: u64 = 16;

/// Returns the number of vectors in each group, and the first group of each run.
pub(crate) fn group_counts(pieces: &[Piece], layout: &GroupLayout) -> (Vec<u32>, Vec<u32>) {
    let (mut counts, mut first_groups) = (Vec::new(), Vec::new());
    for piece in pieces {
        let groups = piece.rows.div_ceil(layout.group_vectors());
        first_groups.extend((counts.len()..counts.len() + groups).step_by(GROUPS_PER_RUN).map(|g| g as u32));
        let starts = (0..piece.rows).step_by(layout.group_vectors());
        counts.extend(starts.map(|start| layout.group_vectors().min(piece.rows - start) as u32));
    }
    (counts, first_groups)
}

/// Vectors in memory, with their order in the index.
struct PieceWriter<'a> {
    ordered: &'a Ordered,
    layout: GroupLayout,
}

impl PieceWriter<'_> {
    fn groups(&self) -> usize {
        self.ordered.order.len().div_ceil(self.layout.group_vectors())
    }

    /// Appends the ids by place. Free places get [`NO_ID`].
    fn write_order(&self, file: &mut Appender) -> Result<(), IndexError> {
        let places = self.groups() * self.layout.group_vectors();
        let ids = self.ordered.order.iter().map(|row| self.ordered.id(*row)).chain(std::iter::repeat(NO_ID));
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
        let page_bytes = layout.page_bytes();
        let pages_before = file.written().bytes as usize / page_bytes;
        let pages = self.groups() * layout.group_pages();
        let at_once = (WRITE_BYTES / page_bytes).clamp(1, pages);
        let mut buffer = vec![0_u8; at_once * page_bytes];
        for first in (0..pages).step_by(at_once) {
            work.check_cancelled()?;
            let buffer = &mut buffer[..at_once.min(pages - first) * page_bytes];
            let part = (buffer.len() / page_bytes).div_ceil(work.threads);
            std::thread::scope(|scope| {
                for (number, buffer) in buffer.chunks_mut(part * page_bytes).enumerate() {
                    let first = first + number * part;
                    scope.spawn(move || {
                        let mut ids = Vec::new();
                        for (page, bytes) in (first..).zip(buffer.chunks_exact_mut(page_bytes)) {
                            let rows = self.ordered.rows(page, layout.page_vectors());
                            ids.clear();
                            ids.extend(rows.iter().map(|row| self.ordered.id(*row)));
                            let vectors = rows.iter().map(|row| self.ordered.space.row(*row));
                            layout.encode(bytes, (pages_before + page) as u32, &ids, vectors);
                        }
                    });
                }
            });
            file.append(buffer)?;
        }
        Ok(())
    }
}

/// Appends the pages of a piece, and its ids by place.
pub(crate) fn write(
    work: &Work<'_>,
    ordered: &Ordered,
    vectors: &mut Appender,
    order: &mut Appender,
) -> Result<(), IndexError> {
    let writer = PieceWriter { ordered, layout: work.layout };
    writer.write_pages(work, vectors)?;
    writer.write_order(order)
}

/// Pads the file of all pages to its length in the layout, and returns its entry.
pub(crate) fn finish(work: &Work<'_>, journal: &Journal) -> Result<FileEntry, IndexError> {
    let groups = journal.vectors.bytes / work.layout.group_bytes() as u64;
    let rest = work.layout.file_bytes(groups) - journal.vectors.bytes;
    // The journal counts pages only, so padding from an earlier process is cut off.
    let mut file = Appender::resume(work.directory, VECTORS_NAME, journal.vectors)?;
    file.append(&vec![0; rest as usize])?;
    file.finish()
}

/// Writes the file of the place of each id.
pub(crate) fn write_positions(work: &Work<'_>, journal: &Journal) -> Result<FileEntry, IndexError> {
    let share = work.options.memory_bytes.map_or(usize::MAX, |budget| (budget / POSITIONS_SHARE) as usize);
    let at_once = (share.max(POSITIONS_BYTES) / 4).next_multiple_of(BLOCK_PLACES);
    invert_order((work.directory, work.identity), (journal.order, work.data.count()), at_once, &|| {
        work.check_cancelled()
    })
}

/// Writes the places of the ids below `count`. Reads the file of ids by place (`order`) once for every
/// `at_once` ids, which must be whole blocks.
fn invert_order(
    (directory, identity): (&dyn Draft, Identity),
    (order, count): (Written, usize),
    at_once: usize,
    go_on: &dyn Fn() -> Result<(), IndexError>,
) -> Result<FileEntry, IndexError> {
    let at_once = at_once.min(count);
    let mut file = Appender::create(directory, POSITIONS_NAME)?;
    let (mut places, mut blocks) = (try_zeros("the places of vectors", at_once)?, Vec::new());
    let mut buffer = vec![0; WRITE_BYTES];
    for first in (0..count).step_by(at_once) {
        let places: &mut [u32] = &mut places[..at_once.min(count - first)];
        places.fill(u32::MAX);
        let mut order = ReadBack::open(directory, ORDER_NAME, order)?;
        let mut place = 0;
        while order.left() > 0 {
            go_on()?;
            let ids = &mut buffer[..order.left().min(WRITE_BYTES as u64) as usize];
            order.fill(ids)?;
            for id in ids.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)) {
                if let Some(slot) = (id as usize).checked_sub(first).and_then(|at| places.get_mut(at)) {
                    *slot = place;
                }
                place += 1;
            }
        }
        let blocks_at_once = WRITE_BYTES / 4 / BLOCK_PLACES * BLOCK_PLACES;
        for (number, places) in places.chunks(blocks_at_once).enumerate() {
            blocks.clear();
            let block = (first + number * blocks_at_once) / BLOCK_PLACES;
            positions::encode(identity, block as u64, places, &mut blocks);
            file.append(&blocks)?;
        }
    }
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::pieces::{SpilledPart, pieces};
    use bathyal_kernels::Element;
    use bathyal_store::memory::MemoryStore;
    use bathyal_store::{GenerationExt, Replace, Store};

    #[test]
    fn each_piece_begins_with_a_new_group_and_a_new_run() {
        let part = |rows| SpilledPart { rows, written: Written::default() };
        let layout = GroupLayout::choose(Element::U8, 128, 96).expect("a layout");
        let run = GROUPS_PER_RUN * layout.group_vectors();
        let pieces = pieces(&[part(run + 94), part(0), part(2 * run + 1)], 2 * run);
        let rows: Vec<_> = pieces.iter().map(|piece| (piece.part, piece.first, piece.rows)).collect();
        assert_eq!(rows, [(0, 0, run + 94), (2, 0, 2 * run), (2, 2 * run, 1)]);
        let (counts, first_groups) = group_counts(&pieces, &layout);
        assert_eq!(first_groups, [0, 64, 66, 130, 194]);
        assert_eq!(counts.iter().sum::<u32>() as usize, 3 * run + 95);
        assert_eq!((counts[64], counts[65], counts[194], counts.len()), (93, 1, 1, 195));
    }

    #[test]
    fn positions_do_not_depend_on_the_number_of_passes_over_the_order() {
        // Some places have no vector, as at the end of a group.
        let (count, padded) = (5 * BLOCK_PLACES + 7, 11);
        let ids: Vec<u32> = (0..count + count / padded)
            .map(|place| match place % (padded + 1) {
                last if last == padded => NO_ID,
                _ => ((place - place / (padded + 1)) * 1009 % count) as u32,
            })
            .collect();
        let written = |at_once| {
            let draft = MemoryStore::new("memory").begin("x", Replace::Never).unwrap();
            let mut order = Appender::create(&*draft, ORDER_NAME).unwrap();
            ids.iter().for_each(|id| order.append(&id.to_le_bytes()).unwrap());
            let order = order.sync().unwrap();
            let entry =
                invert_order((&*draft, Identity::of("positions")), (order, count), at_once, &|| Ok(()))
                    .unwrap();
            assert_eq!(entry.bytes, positions::file_bytes(count as u64));
            draft.read(POSITIONS_NAME).unwrap()
        };
        let in_one_pass = written(count);
        let places = positions::decode_all(Identity::of("positions"), &in_one_pass).unwrap();
        assert!(places.iter().enumerate().all(|(id, place)| ids[*place as usize] == id as u32));
        assert_eq!(places.len(), count);
        for blocks in 1..=6 {
            assert!(written(blocks * BLOCK_PLACES) == in_one_pass, "{blocks} blocks at once");
        }
    }
}
