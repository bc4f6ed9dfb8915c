//! Writing the vectors of one piece after the other: their pages, and their order.

use super::build::{Journal, Work};
use super::centroids::GROUPS_A_RUN;
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
/// Bytes of places that are held while the order is gone through, and of the order that is read at once: together no more than the
/// stage before has held.
const POSITIONS_BYTES: usize = 12 << 20;
/// The same as a part of what the build may take, where that is more.
const POSITIONS_SHARE: u64 = 16;

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
    ordered: &'a Ordered,
    layout: GroupLayout,
}

impl Placed<'_> {
    fn groups(&self) -> usize {
        self.ordered.order.len().div_ceil(self.layout.group_vectors())
    }

    /// Appends the ids by place, with none in places that stay free.
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
        let (page_bytes, before) = (layout.page_bytes(), file.written().bytes as usize / layout.page_bytes());
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

/// Appends the pages of a piece, and its ids by place.
pub(crate) fn write(
    work: &Work<'_>,
    ordered: &Ordered,
    vectors: &mut Appender,
    order: &mut Appender,
) -> Result<(), IndexError> {
    let placed = Placed { ordered, layout: work.layout };
    placed.write_pages(work, vectors)?;
    placed.write_order(order)
}

/// Fills up the file of all pages to what it has to have, and returns its entry.
pub(crate) fn finish(work: &Work<'_>, journal: &Journal) -> Result<FileEntry, IndexError> {
    let groups = journal.vectors.bytes / work.layout.group_bytes() as u64;
    let rest = work.layout.file_bytes(groups) - journal.vectors.bytes;
    // What an earlier process has filled up is cut, so the journal counts pages alone.
    let mut file = Appender::resume(work.directory, VECTORS_NAME, journal.vectors)?;
    file.append(&vec![0; rest as usize])?;
    file.finish()
}

/// Writes where the vector of each id lies.
pub(crate) fn write_positions(work: &Work<'_>, journal: &Journal) -> Result<FileEntry, IndexError> {
    let share = work.options.memory_bytes.map_or(usize::MAX, |given| (given / POSITIONS_SHARE) as usize);
    let at_once = (share.max(POSITIONS_BYTES) / 4).next_multiple_of(BLOCK_PLACES);
    positions_of((work.directory, work.identity), (journal.order, work.data.count()), at_once, &|| {
        work.check_cancelled()
    })
}

/// Writes where the vectors of the ids below `count` lie, by the `order` of all of them, which is gone through once for each `at_once` ids,
/// whole blocks.
fn positions_of(
    (directory, identity): (&dyn Draft, Identity),
    (order, count): (Written, usize),
    at_once: usize,
    go_on: &dyn Fn() -> Result<(), IndexError>,
) -> Result<FileEntry, IndexError> {
    let at_once = at_once.min(count);
    let mut file = Appender::create(directory, POSITIONS_NAME)?;
    let (mut held, mut blocks) = (try_zeros("where vectors lie", at_once)?, Vec::new());
    let mut some = vec![0; WRITE_BYTES];
    for first in (0..count).step_by(at_once) {
        let held: &mut [u32] = &mut held[..at_once.min(count - first)];
        held.fill(u32::MAX);
        let mut order = ReadBack::open(directory, ORDER_NAME, order)?;
        let mut place = 0;
        while order.left() > 0 {
            go_on()?;
            let some = &mut some[..order.left().min(WRITE_BYTES as u64) as usize];
            order.fill(some)?;
            for id in some.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)) {
                if let Some(held) = (id as usize).checked_sub(first).and_then(|at| held.get_mut(at)) {
                    *held = place;
                }
                place += 1;
            }
        }
        let blocks_at_once = WRITE_BYTES / 4 / BLOCK_PLACES * BLOCK_PLACES;
        for (number, places) in held.chunks(blocks_at_once).enumerate() {
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
    use crate::partition::pieces::{Part, pieces};
    use bathyal_kernels::Element;
    use bathyal_store::memory::MemoryStore;
    use bathyal_store::{GenerationExt, Replace, Store};

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

    #[test]
    fn positions_are_the_same_however_often_the_order_is_gone_through() {
        // Places of which some are of no vector, as at the end of a group.
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
                positions_of((&*draft, Identity::of("positions")), (order, count), at_once, &|| Ok(()))
                    .unwrap();
            assert_eq!(entry.bytes, positions::file_bytes(count as u64));
            draft.read(POSITIONS_NAME).unwrap()
        };
        let at_once = written(count);
        let places = positions::decode_all(Identity::of("positions"), &at_once).unwrap();
        assert!(places.iter().enumerate().all(|(id, place)| ids[*place as usize] == id as u32));
        assert_eq!(places.len(), count);
        for blocks in 1..=6 {
            assert!(written(blocks * BLOCK_PLACES) == at_once, "{blocks} blocks at once");
        }
    }
}
