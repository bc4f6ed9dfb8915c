//! Computes the losses of members in other groups on a graphics card, bit for bit as a processor does.

use super::exchange::{Groups, Move, NEAR, Partners, by_gain};
use super::{Points, read_all};
use crate::error::IndexError;
use bathyal_gpu::Card;
use bathyal_gpu::losses::{BLOCKS, ClusteringShape, Losses, MOST_OTHERS};
use std::ops::Range;

/// Bytes of points that are copied to the card at once, if it keeps all points.
const COPIED_BYTES: usize = 4 << 20;

// The near groups of a group are copied to the card as they are.
const _: () = assert!(NEAR == MOST_OTHERS);

/// The groups on a card.
pub(super) struct CardLosses {
    card: Losses,
    /// Points of a block, or of a piece of all points, row-major; reused.
    rows: Vec<f32>,
    losses: Vec<f32>,
}

impl CardLosses {
    /// Allocates memory of the card, and copies all points there if they fit.
    pub(super) fn new<P: Points>(
        card: &dyn Card,
        groups: &Groups<'_, P>,
        points: usize,
    ) -> Result<CardLosses, IndexError> {
        let shape =
            ClusteringShape { dim: groups.points.dim(), points, unit: groups.unit, others: groups.others };
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

/// Reads the points `ids`, with all threads.
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
    /// Returns the same as [`Groups::moves`], from losses that the card computes. The card works on one block
    /// of groups while the processor weighs the losses of the block before.
    pub(super) fn moves_on_card(
        &mut self,
        ids: &[u32],
        helper: &mut CardLosses,
    ) -> Result<Vec<Move>, IndexError> {
        let mut partners = std::mem::take(&mut self.partners);
        let mut moves = vec![Move::NONE; ids.len()];
        helper.card.set_means(&self.means[0])?;
        let (count, block_groups) = (partners.len(), helper.card.block_groups());
        let blocks: Vec<Range<usize>> =
            (0..count).step_by(block_groups).map(|first| first..count.min(first + block_groups)).collect();
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
                self.weigh_all(groups.start, &helper.losses, &mut partners[groups], &mut moves[places]);
            }
        }
        self.partners = partners;
        Ok(by_gain(moves))
    }

    /// Weighs the losses of consecutive groups from `first` on, with all threads.
    fn weigh_all(&self, first: usize, losses: &[f32], partners: &mut [Partners], moves: &mut [Move]) {
        let part = partners.len().div_ceil(self.threads).max(1);
        let members = part * self.unit;
        let parts = partners.chunks_mut(part).zip(moves.chunks_mut(members));
        std::thread::scope(|scope| {
            for (number, ((partners, moves), losses)) in
                parts.zip(losses.chunks(members * self.others)).enumerate()
            {
                let groups = &*self;
                scope.spawn(move || {
                    let group_chunks =
                        moves.chunks_mut(groups.unit).zip(losses.chunks(groups.unit * groups.others));
                    for ((group, partners), (moves, losses)) in
                        (first + number * part..).zip(partners).zip(group_chunks)
                    {
                        *partners = Partners::NONE;
                        groups.weigh((group as u32, 0), losses, partners, moves);
                    }
                });
            }
        });
    }
}
