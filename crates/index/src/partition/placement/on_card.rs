//! What members of groups lose elsewhere, found by a graphics card: bit for bit what a processor finds.

use super::exchange::{Groups, NEAR, Partners, Wish, in_turn};
use super::{Points, read_all};
use crate::error::IndexError;
use bathyal_gpu::Card;
use bathyal_gpu::losses::{BLOCKS, Losses, MOST_OTHERS, Shape};
use std::ops::Range;

/// Bytes of points that are copied to the card at a time, where all are.
const COPIED_BYTES: usize = 4 << 20;

// What a group remembers of those near it goes to the card as it is.
const _: () = assert!(NEAR == MOST_OTHERS);

/// The groups on a card.
pub(super) struct CardLosses {
    card: Losses,
    /// Points of a block or a piece of all, row-major; reused.
    rows: Vec<f32>,
    losses: Vec<f32>,
}

impl CardLosses {
    /// Takes memory of the card, and copies all points there if they fit.
    pub(super) fn new<P: Points>(
        card: &dyn Card,
        groups: &Groups<'_, P>,
        points: usize,
    ) -> Result<CardLosses, IndexError> {
        let shape = Shape { dim: groups.points.dim(), points, unit: groups.unit, others: groups.others };
        let mut helper = CardLosses { card: Losses::new(card, shape)?, rows: Vec::new(), losses: Vec::new() };
        if helper.card.is_resident() {
            let ids: Vec<u32> = (0..points as u32).collect();
            for ids in ids.chunks((COPIED_BYTES / (4 * shape.dim)).max(1)) {
                if groups.progress.cancelled() {
                    return Err(IndexError::Cancelled);
                }
                read_rows(groups, ids, &mut helper.rows);
                helper.card.append(&helper.rows)?;
            }
        }
        Ok(helper)
    }
}

/// Reads some points, on all threads.
fn read_rows<P: Points>(groups: &Groups<'_, P>, ids: &[u32], rows: &mut Vec<f32>) {
    let dim = groups.points.dim();
    rows.resize(ids.len() * dim, 0.0);
    let part = ids.len().div_ceil(groups.threads).max(1);
    std::thread::scope(|scope| {
        for (ids, rows) in ids.chunks(part).zip(rows.chunks_mut(part * dim)) {
            scope.spawn(move || read_all(groups.points, ids, rows));
        }
    });
}

impl<P: Points> Groups<'_, P> {
    /// The same as [`Groups::wishes`], by what the card finds: it looks at a block of groups while this processor weighs what it found
    /// of the one before.
    pub(super) fn wishes_on_card(
        &mut self,
        ids: &[u32],
        helper: &mut CardLosses,
    ) -> Result<Vec<Wish>, IndexError> {
        let mut partners = std::mem::take(&mut self.partners);
        let mut wishes = vec![Wish::NONE; ids.len()];
        helper.card.set_means(&self.means[0])?;
        let (count, a_block) = (partners.len(), helper.card.block_groups());
        let blocks: Vec<Range<usize>> =
            (0..count).step_by(a_block).map(|first| first..count.min(first + a_block)).collect();
        for number in 0..blocks.len() + 1 {
            if self.progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
            if let Some(groups) = blocks.get(number) {
                let members = &ids[groups.start * self.unit..ids.len().min(groups.end * self.unit)];
                helper.rows.clear();
                if !helper.card.is_resident() {
                    read_rows(self, members, &mut helper.rows);
                }
                let near = &self.near[groups.clone()];
                helper.card.begin(number % BLOCKS, groups.clone(), members, near, &helper.rows)?;
            }
            if let Some(groups) = number.checked_sub(1).map(|before| blocks[before].clone()) {
                helper.card.finish((number - 1) % BLOCKS, &mut helper.losses)?;
                let places = groups.start * self.unit..ids.len().min(groups.end * self.unit);
                self.weigh_all(groups.start, &helper.losses, &mut partners[groups], &mut wishes[places]);
            }
        }
        self.partners = partners;
        Ok(in_turn(wishes))
    }

    /// Weighs the losses of consecutive groups, of which `first` is the first, on all threads.
    fn weigh_all(&self, first: usize, losses: &[f32], partners: &mut [Partners], wishes: &mut [Wish]) {
        let part = partners.len().div_ceil(self.threads).max(1);
        let members = part * self.unit;
        let parts = partners.chunks_mut(part).zip(wishes.chunks_mut(members));
        std::thread::scope(|scope| {
            for (number, ((partners, wishes), losses)) in
                parts.zip(losses.chunks(members * self.others)).enumerate()
            {
                let groups = &*self;
                scope.spawn(move || {
                    let each = wishes.chunks_mut(groups.unit).zip(losses.chunks(groups.unit * groups.others));
                    for ((group, partners), (wishes, losses)) in
                        (first + number * part..).zip(partners).zip(each)
                    {
                        *partners = Partners::NONE;
                        groups.weigh((group as u32, 0), losses, partners, wishes);
                    }
                });
            }
        });
    }
}
