//! Exchange: members of groups change places until hardly any member is nearer to another group.
//!
//! Halving separates near vectors on both sides of its planes, and no later cut brings them together again.
//! k-means has no such planes, but groups of any size. Here every group keeps its size, so that places stay
//! arithmetic. A member that is nearer to the mean of another group moves there if one of that group's
//! members takes its place and loses less than the first gains. Every exchange lowers the sum of squared
//! distances of vectors to the means of their groups, and new means lower it further, as in k-means. Figures:
//! `docs/decisions/cluster.md`.

use super::Points;
use super::on_card::CardLosses;
use super::project::{add, squared};
use crate::error::IndexError;
use bathyal_gpu::Card;
use bathyal_kernels::product::{Product, multiply};
use bathyal_vectors::progress::Progress;
use std::cmp::Ordering;

/// Number of groups that the members of a group may move to: those with the nearest means.
pub(super) const NEAR: usize = 32;
/// Number of members of a group that are remembered for each near group: those that lose least by moving
/// there.
const PARTNERS: usize = 6;
/// Most rounds, each with new means.
const ROUNDS: usize = 6;
/// A round that exchanges fewer than one in this many vectors is the last.
const FEW: usize = 200;
/// Number of consecutive groups, which are near each other, in a run, and of runs in a longer run. Near
/// groups are searched in near runs.
const RUN: usize = 16;
/// Number of runs of each length that are searched for one group.
const NEAR_RUNS: usize = 32;
/// Moves that are examined between two checks for cancellation.
const MOVES_A_CHECK: usize = 1 << 16;
/// Members whose distances are computed at once.
const BLOCK: usize = 128;

/// Returns the bytes per vector of `dim` dimensions in groups of `unit`, without the means of the groups: the
/// partners of groups, the means of runs, the moves, and a flag per exchanged vector.
pub(crate) fn planned_bytes(dim: usize, unit: usize) -> u64 {
    let runs = dim * size_of::<f32>() / (RUN - 1);
    let group = size_of::<[u32; NEAR]>() + size_of::<Partners>() + runs;
    (group.div_ceil(unit) + size_of::<Move>() + 1) as u64
}

/// A member's preferred move to another group.
#[derive(Clone, Copy)]
pub(super) struct Move {
    /// The decrease of the squared distance to the mean; 0 if the member stays.
    gain: f32,
    place: u32,
    to: u32,
}

/// For each group near one group: the members that lose least by moving there, the least loss first.
#[derive(Clone)]
pub(super) struct Partners {
    losses: [[f32; PARTNERS]; NEAR],
    slots: [[u16; PARTNERS]; NEAR],
}

impl Move {
    pub(super) const NONE: Move = Move { gain: 0.0, place: 0, to: 0 };
}

impl Partners {
    pub(super) const NONE: Partners =
        Partners { losses: [[f32::INFINITY; PARTNERS]; NEAR], slots: [[0; PARTNERS]; NEAR] };

    fn note(&mut self, near: usize, slot: u16, loss: f32) {
        let (losses, slots) = (&mut self.losses[near], &mut self.slots[near]);
        // A loss that is not a number is never less.
        if loss.partial_cmp(&losses[PARTNERS - 1]) != Some(Ordering::Less) {
            return;
        }
        let mut at = PARTNERS - 1;
        while at > 0 && loss < losses[at - 1] {
            (losses[at], slots[at]) = (losses[at - 1], slots[at - 1]);
            at -= 1;
        }
        (losses[at], slots[at]) = (loss, slot);
    }
}

/// The groups of an order.
pub(super) struct Groups<'a, P> {
    pub(super) points: &'a P,
    pub(super) unit: usize,
    pub(super) threads: usize,
    pub(super) progress: &'a dyn Progress,
    /// Row-major means (one row each): of groups, then of runs of groups, of longer runs, and so on.
    pub(super) means: Vec<Vec<f32>>,
    /// The [`NEAR`] nearest groups of each group, or as many as there are others.
    pub(super) near: Vec<[u32; NEAR]>,
    /// Number of used entries in each row of `near`.
    pub(super) others: usize,
    pub(super) partners: Vec<Partners>,
}

/// Memory of one thread for one group.
#[derive(Default)]
struct GroupScratch {
    /// The members relative to the mean of the group, row-major.
    rows: Vec<f32>,
    /// The means of the near groups relative to the mean of the group, interleaved.
    columns: Vec<f32>,
    /// The squared lengths of these relative means.
    squares: [f32; NEAR],
    products: Vec<f32>,
}

/// Exchanges the members of groups of `unit` consecutive `ids`; the last group may have fewer. The result
/// does not depend on the number of threads.
///
/// # Errors
/// [`IndexError::Cancelled`], and errors of `card`, which computes the losses of members if there is one.
pub(super) fn exchange<P: Points>(
    points: &P,
    ids: &mut [u32],
    unit: usize,
    (threads, card): (usize, Option<&dyn Card>),
    progress: &dyn Progress,
) -> Result<(), IndexError> {
    let count = ids.len().div_ceil(unit.max(1));
    // The slots of a group are remembered in 16 bits.
    if count < 2 || unit < 2 || unit > usize::from(u16::MAX) {
        return Ok(());
    }
    let mut groups = Groups {
        points,
        unit,
        threads,
        progress,
        means: vec![vec![0.0; count * points.dim()]],
        near: vec![[0; NEAR]; count],
        others: NEAR.min(count - 1),
        partners: vec![Partners::NONE; count],
    };
    let mut helper = card.map(|card| CardLosses::new(card, &groups, ids.len())).transpose()?;
    for round in 0..ROUNDS {
        groups.find_means(ids);
        // Means move little after the first rounds.
        if round % 2 == 0 {
            groups.find_near();
        }
        let moves = match &mut helper {
            Some(helper) => groups.moves_on_card(ids, helper)?,
            None => groups.moves(ids),
        };
        let exchanged = groups.apply(&moves, ids);
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        progress.advance((ids.len() * (round + 1) / ROUNDS) as u64);
        if exchanged * FEW < ids.len() {
            break;
        }
    }
    Ok(())
}

impl<P: Points> Groups<'_, P> {
    fn mean(&self, group: u32) -> &[f32] {
        let dim = self.points.dim();
        &self.means[0][group as usize * dim..][..dim]
    }

    fn find_means(&mut self, ids: &[u32]) {
        let (points, unit, progress, dim) = (self.points, self.unit, self.progress, self.points.dim());
        let means = &mut self.means[0];
        let part = (means.len() / dim).div_ceil(self.threads);
        std::thread::scope(|scope| {
            for (means, ids) in means.chunks_mut(part * dim).zip(ids.chunks(part * unit)) {
                scope.spawn(move || {
                    let mut row = vec![0.0; dim];
                    let groups = means.chunks_exact_mut(dim).zip(ids.chunks(unit));
                    let later = ids.chunks(unit).skip(1).chain([&[][..]]);
                    for ((mean, members), later) in groups.zip(later).take_while(|_| !progress.cancelled()) {
                        later.iter().for_each(|id| points.expect(*id));
                        mean.fill(0.0);
                        for id in members {
                            points.read(*id, &mut row);
                            add(mean, &row);
                        }
                        let share = 1.0 / members.len() as f32;
                        mean.iter_mut().for_each(|m| *m *= share);
                    }
                });
            }
        });
    }

    /// Finds the groups near each group, among the groups of the runs nearest to it.
    fn find_near(&mut self) {
        let dim = self.points.dim();
        self.means.truncate(1);
        while let Some(shorter) = self.means.last().filter(|means| means.len() > NEAR_RUNS * dim) {
            self.means.push(shorter.chunks(RUN * dim).flat_map(|means| mean_of(means, dim)).collect());
        }
        let mut near = std::mem::take(&mut self.near);
        let part = near.len().div_ceil(self.threads);
        std::thread::scope(|scope| {
            for (number, near) in near.chunks_mut(part).enumerate() {
                let groups = &*self;
                scope.spawn(move || {
                    let mut scratch = (Vec::new(), Vec::new());
                    let near = (number * part..).zip(near);
                    for (group, near) in near.take_while(|_| !groups.progress.cancelled()) {
                        groups.find_near_of(group as u32, &mut scratch, near);
                    }
                });
            }
        });
        self.near = near;
    }

    /// Finds the groups near one group, from the longest runs down.
    fn find_near_of(
        &self,
        group: u32,
        (found, nearest): &mut (Vec<(f32, u32)>, Vec<u32>),
        near: &mut [u32; NEAR],
    ) {
        let (dim, mean) = (self.points.dim(), self.mean(group));
        nearest.clear();
        nearest.extend(0..self.means.last().map_or(0, |means| (means.len() / dim) as u32));
        for (level, means) in self.means.iter().enumerate().rev() {
            let candidates = nearest.drain(..).filter(|candidate| level > 0 || *candidate != group);
            let distance = |candidate: u32| squared(mean, &means[candidate as usize * dim..][..dim]);
            found.clear();
            found.extend(candidates.map(|candidate| (distance(candidate), candidate)));
            let wanted = if level > 0 { NEAR_RUNS } else { self.others };
            if found.len() > wanted {
                found.select_nth_unstable_by(wanted - 1, by_distance);
                found.truncate(wanted);
            }
            if let Some(shorter) = level.checked_sub(1).map(|below| (self.means[below].len() / dim) as u32) {
                let members_of_run = |run: u32| run * RUN as u32..((run + 1) * RUN as u32).min(shorter);
                nearest.extend(found.iter().flat_map(|(_, run)| members_of_run(*run)));
            }
        }
        found.sort_unstable_by(by_distance);
        near.iter_mut().zip(&*found).for_each(|(near, (_, other))| *near = *other);
    }

    /// Returns the moves of all members that prefer another group, the largest gain first. Sets `partners` to
    /// the members that lose least.
    fn moves(&mut self, ids: &[u32]) -> Vec<Move> {
        let mut partners = std::mem::take(&mut self.partners);
        let mut moves = vec![Move::NONE; ids.len()];
        let (unit, part) = (self.unit, partners.len().div_ceil(self.threads));
        std::thread::scope(|scope| {
            let parts = partners.chunks_mut(part).zip(moves.chunks_mut(part * unit));
            for (number, ((partners, moves), ids)) in parts.zip(ids.chunks(part * unit)).enumerate() {
                let groups = &*self;
                scope.spawn(move || {
                    let mut scratch = GroupScratch::default();
                    let members = ids.chunks(unit).zip(moves.chunks_mut(unit));
                    let later = ids.chunks(unit).skip(1).chain([&[][..]]);
                    let all = (number * part..).zip(partners).zip(members).zip(later);
                    for (((group, partners), (members, moves)), later) in
                        all.take_while(|_| !groups.progress.cancelled())
                    {
                        // Prefetch a whole group at once: the work on one group takes longer than the fetch
                        // of the next.
                        later.iter().for_each(|id| groups.points.expect(*id));
                        groups.moves_of(group as u32, members, &mut scratch, partners, moves);
                    }
                });
            }
        });
        self.partners = partners;
        by_gain(moves)
    }

    /// Finds the moves and partners of one group. The losses are squared distances to other means less the
    /// one to the own mean. All are computed relative to the own mean, so that little precision cancels.
    fn moves_of(
        &self,
        group: u32,
        members: &[u32],
        scratch: &mut GroupScratch,
        partners: &mut Partners,
        moves: &mut [Move],
    ) {
        let (dim, others, own) = (self.points.dim(), self.others, self.mean(group));
        let near = &self.near[group as usize][..others];
        scratch.columns.resize(dim * others, 0.0);
        for (column, other) in near.iter().enumerate() {
            let mut square = 0.0;
            for (i, (other, own)) in self.mean(*other).iter().zip(own).enumerate() {
                let value = other - own;
                scratch.columns[i * others + column] = value;
                square += value * value;
            }
            scratch.squares[column] = square;
        }
        *partners = Partners::NONE;
        for (first, (members, moves)) in
            (0..).step_by(BLOCK).zip(members.chunks(BLOCK).zip(moves.chunks_mut(BLOCK)))
        {
            scratch.rows.resize(members.len() * dim, 0.0);
            for (id, row) in members.iter().zip(scratch.rows.chunks_exact_mut(dim)) {
                self.points.read(*id, row);
                row.iter_mut().zip(own).for_each(|(value, own)| *value -= own);
            }
            scratch.products.resize(members.len() * others, 0.0);
            let product =
                Product { rows: &scratch.rows, dim, columns: &scratch.columns, kept: others, stride: others };
            multiply(&product, &mut scratch.products);
            for products in scratch.products.chunks_exact_mut(others) {
                products
                    .iter_mut()
                    .zip(&scratch.squares)
                    .for_each(|(loss, square)| *loss = square - 2.0 * *loss);
            }
            self.weigh((group, first), &scratch.products, partners, moves);
        }
    }

    /// Finds the preferred moves of members of a group from their `losses`, one for each near group, and the
    /// members that lose least; `first` is the slot of the first member.
    pub(super) fn weigh(
        &self,
        (group, first): (u32, usize),
        losses: &[f32],
        partners: &mut Partners,
        moves: &mut [Move],
    ) {
        let near = &self.near[group as usize];
        for ((slot, losses), preferred) in (first..).zip(losses.chunks_exact(self.others)).zip(moves) {
            let mut best = (0.0, 0);
            for (column, loss) in losses.iter().enumerate() {
                if *loss < best.0 {
                    best = (*loss, near[column]);
                }
                partners.note(column, slot as u16, *loss);
            }
            let place = (group as usize * self.unit + slot) as u32;
            *preferred = Move { gain: -best.0, place, to: best.1 };
        }
    }

    /// Exchanges members whose gain exceeds the loss of their partner, each at most once. Returns the number
    /// of exchanged members.
    fn apply(&self, moves: &[Move], ids: &mut [u32]) -> usize {
        let (mut moved, mut exchanged) = (vec![false; ids.len()], 0);
        for (number, Move { gain, place, to }) in moves.iter().enumerate() {
            if number % MOVES_A_CHECK == 0 && self.progress.cancelled() {
                break;
            }
            let (place, to) = (*place as usize, *to);
            let from = (place / self.unit) as u32;
            let back = self.near[to as usize][..self.others].iter().position(|group| *group == from);
            let Some(back) = back.filter(|_| !moved[place]) else { continue };
            let partners = &self.partners[to as usize];
            let places = partners.slots[back].map(|slot| to as usize * self.unit + usize::from(slot));
            let mut free = partners.losses[back].iter().zip(places).filter(|(_, place)| !moved[*place]);
            if let Some((loss, other)) = free.next()
                && gain > loss
            {
                ids.swap(place, other);
                (moved[place], moved[other]) = (true, true);
                exchanged += 2;
            }
        }
        exchanged
    }
}

/// Returns the moves with a gain, the largest gain first.
pub(super) fn by_gain(mut moves: Vec<Move>) -> Vec<Move> {
    moves.retain(|one| one.gain > 0.0);
    moves.sort_unstable_by(|a, b| b.gain.total_cmp(&a.gain).then(a.place.cmp(&b.place)));
    moves
}

fn by_distance(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

/// Returns the mean of row-major rows.
fn mean_of(rows: &[f32], dim: usize) -> Vec<f32> {
    let mut mean = vec![0.0; dim];
    rows.chunks_exact(dim).for_each(|row| add(&mut mean, row));
    let share = dim as f32 / rows.len() as f32;
    mean.iter_mut().for_each(|m| *m *= share);
    mean
}
