//! Exchange: members of groups change places until hardly any would rather be in another group.
//!
//! Halving cuts through what lies on its planes, and no later cut brings that together again. k-means has no such planes, but
//! groups of any size. Here every group keeps its size, so that a place stays arithmetic: a member that is nearer to the mean
//! of another group goes there if one of that group's members comes over for less than what the first gains. Every exchange
//! brings vectors nearer to the means of their groups, in sum, and new means bring them nearer again, as in k-means.
//! Figures: `docs/decisions/cluster.md`.

use super::Points;
use super::on_card::CardLosses;
use super::project::{add, squared};
use crate::error::IndexError;
use bathyal_gpu::Card;
use bathyal_kernels::product::{Product, multiply};
use bathyal_vectors::progress::Progress;
use std::cmp::Ordering;

/// Groups that the members of a group may go to: those with the nearest means.
pub(super) const NEAR: usize = 32;
/// Members of a group that are remembered for each of these: those that lose least by going there.
const PARTNERS: usize = 6;
/// Rounds, each with new means, at most.
const ROUNDS: usize = 6;
/// A round that exchanges less than one vector of so many is the last.
const FEW: usize = 200;
/// Consecutive groups, which lie near each other, make a run, and so many runs a longer one: near groups are looked for in
/// near runs.
const RUN: usize = 16;
/// Runs of each length that are looked through for one group.
const NEAR_RUNS: usize = 32;
/// Wishes that are granted or refused between two looks at whether all is cancelled.
const GRANTED: usize = 1 << 16;
/// Members whose distances are found at once.
const BLOCK: usize = 128;

/// Bytes for a vector of `dim` in groups of `unit`, their means left out: what groups remember, means of runs, wishes, and who
/// has moved.
pub(crate) fn planned_bytes(dim: usize, unit: usize) -> u64 {
    let runs = dim * size_of::<f32>() / (RUN - 1);
    let group = size_of::<[u32; NEAR]>() + size_of::<Partners>() + runs;
    (group.div_ceil(unit) + size_of::<Wish>() + 1) as u64
}

/// Of a member that would rather be elsewhere.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// How much nearer, squared; 0 if it stays.
    gain: f32,
    place: u32,
    to: u32,
}

/// Of one group, for each of the groups near it: the members that lose least by going there, the least first.
#[derive(Clone)]
pub(super) struct Partners {
    losses: [[f32; PARTNERS]; NEAR],
    slots: [[u16; PARTNERS]; NEAR],
}

impl Wish {
    pub(super) const NONE: Wish = Wish { gain: 0.0, place: 0, to: 0 };
}

impl Partners {
    pub(super) const NONE: Partners =
        Partners { losses: [[f32::INFINITY; PARTNERS]; NEAR], slots: [[0; PARTNERS]; NEAR] };

    fn note(&mut self, near: usize, slot: u16, loss: f32) {
        let (losses, slots) = (&mut self.losses[near], &mut self.slots[near]);
        // What is not a number is never less.
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
    /// Row-major means: of groups, a row each, then of runs of these, of longer runs, and so on.
    pub(super) means: Vec<Vec<f32>>,
    /// [`NEAR`] of each group, or as many as there are others.
    pub(super) near: Vec<[u32; NEAR]>,
    /// How many of these count.
    pub(super) others: usize,
    pub(super) partners: Vec<Partners>,
}

/// What one thread needs for one group.
#[derive(Default)]
struct Room {
    /// The members about the mean of the group, row-major.
    rows: Vec<f32>,
    /// The means of the groups near it about its own, interleaved.
    columns: Vec<f32>,
    /// Their squared lengths.
    squares: [f32; NEAR],
    products: Vec<f32>,
}

/// Exchanges the members of groups of `unit` consecutive `ids`; the same whatever the number of threads. The last group may
/// have fewer.
///
/// # Errors
/// [`IndexError::Cancelled`], and what goes wrong with `card`, which looks for what members lose where there is one.
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
        let wishes = match &mut helper {
            Some(helper) => groups.wishes_on_card(ids, helper)?,
            None => groups.wishes(ids),
        };
        let exchanged = groups.grant(&wishes, ids);
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

    /// Finds the groups near each group, among those of the runs that are nearest to it.
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
                    let mut room = (Vec::new(), Vec::new());
                    let near = (number * part..).zip(near);
                    for (group, near) in near.take_while(|_| !groups.progress.cancelled()) {
                        groups.find_near_of(group as u32, &mut room, near);
                    }
                });
            }
        });
        self.near = near;
    }

    /// The same of one group, from the longest runs down.
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
                let of = |run: u32| run * RUN as u32..((run + 1) * RUN as u32).min(shorter);
                nearest.extend(found.iter().flat_map(|(_, run)| of(*run)));
            }
        }
        found.sort_unstable_by(by_distance);
        near.iter_mut().zip(&*found).for_each(|(near, (_, other))| *near = *other);
    }

    /// Which members would rather be elsewhere, the most eager first; and, in `partners`, who would go where for least.
    fn wishes(&mut self, ids: &[u32]) -> Vec<Wish> {
        let mut partners = std::mem::take(&mut self.partners);
        let mut wishes = vec![Wish::NONE; ids.len()];
        let (unit, part) = (self.unit, partners.len().div_ceil(self.threads));
        std::thread::scope(|scope| {
            let parts = partners.chunks_mut(part).zip(wishes.chunks_mut(part * unit));
            for (number, ((partners, wishes), ids)) in parts.zip(ids.chunks(part * unit)).enumerate() {
                let groups = &*self;
                scope.spawn(move || {
                    let mut room = Room::default();
                    let members = ids.chunks(unit).zip(wishes.chunks_mut(unit));
                    let later = ids.chunks(unit).skip(1).chain([&[][..]]);
                    let all = (number * part..).zip(partners).zip(members).zip(later);
                    for (((group, partners), (members, wishes)), later) in
                        all.take_while(|_| !groups.progress.cancelled())
                    {
                        // All of a group at once: what is done for one takes longer than they are on their way.
                        later.iter().for_each(|id| groups.points.expect(*id));
                        groups.wishes_of(group as u32, members, &mut room, partners, wishes);
                    }
                });
            }
        });
        self.partners = partners;
        in_turn(wishes)
    }

    /// The same of one group. What is compared is squared distances to other means less that to the own mean, about which
    /// everything is taken, so that hardly anything cancels.
    fn wishes_of(
        &self,
        group: u32,
        members: &[u32],
        room: &mut Room,
        partners: &mut Partners,
        wishes: &mut [Wish],
    ) {
        let (dim, others, own) = (self.points.dim(), self.others, self.mean(group));
        let near = &self.near[group as usize][..others];
        room.columns.resize(dim * others, 0.0);
        for (column, other) in near.iter().enumerate() {
            let mut square = 0.0;
            for (i, (theirs, own)) in self.mean(*other).iter().zip(own).enumerate() {
                let value = theirs - own;
                room.columns[i * others + column] = value;
                square += value * value;
            }
            room.squares[column] = square;
        }
        *partners = Partners::NONE;
        for (first, (members, wishes)) in
            (0..).step_by(BLOCK).zip(members.chunks(BLOCK).zip(wishes.chunks_mut(BLOCK)))
        {
            room.rows.resize(members.len() * dim, 0.0);
            for (id, row) in members.iter().zip(room.rows.chunks_exact_mut(dim)) {
                self.points.read(*id, row);
                row.iter_mut().zip(own).for_each(|(value, own)| *value -= own);
            }
            room.products.resize(members.len() * others, 0.0);
            let product =
                Product { rows: &room.rows, dim, columns: &room.columns, kept: others, stride: others };
            multiply(&product, &mut room.products);
            for products in room.products.chunks_exact_mut(others) {
                products
                    .iter_mut()
                    .zip(&room.squares)
                    .for_each(|(loss, square)| *loss = square - 2.0 * *loss);
            }
            self.weigh((group, first), &room.products, partners, wishes);
        }
    }

    /// Where members of a group would rather be by their `losses`, one for each group near it, and who of them would go there for least;
    /// `first` is the slot of the first of them.
    pub(super) fn weigh(
        &self,
        (group, first): (u32, usize),
        losses: &[f32],
        partners: &mut Partners,
        wishes: &mut [Wish],
    ) {
        let near = &self.near[group as usize];
        for ((slot, losses), wish) in (first..).zip(losses.chunks_exact(self.others)).zip(wishes) {
            let mut best = (0.0, 0);
            for (column, loss) in losses.iter().enumerate() {
                if *loss < best.0 {
                    best = (*loss, near[column]);
                }
                partners.note(column, slot as u16, *loss);
            }
            let place = (group as usize * self.unit + slot) as u32;
            *wish = Wish { gain: -best.0, place, to: best.1 };
        }
    }

    /// Lets those change places who gain more than their partners lose, each at most once; how many did.
    fn grant(&self, wishes: &[Wish], ids: &mut [u32]) -> usize {
        let (mut moved, mut exchanged) = (vec![false; ids.len()], 0);
        for (number, Wish { gain, place, to }) in wishes.iter().enumerate() {
            if number % GRANTED == 0 && self.progress.cancelled() {
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

/// Those who would rather be elsewhere, the most eager first.
pub(super) fn in_turn(mut wishes: Vec<Wish>) -> Vec<Wish> {
    wishes.retain(|wish| wish.gain > 0.0);
    wishes.sort_unstable_by(|a, b| b.gain.total_cmp(&a.gain).then(a.place.cmp(&b.place)));
    wishes
}

fn by_distance(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

/// The mean of row-major rows.
fn mean_of(rows: &[f32], dim: usize) -> Vec<f32> {
    let mut mean = vec![0.0; dim];
    rows.chunks_exact(dim).for_each(|row| add(&mut mean, row));
    let share = dim as f32 / rows.len() as f32;
    mean.iter_mut().for_each(|m| *m *= share);
    mean
}
