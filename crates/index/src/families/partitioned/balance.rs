//! Balanced partitions: those that a uniform sample made large are divided until none is much larger than the average, so
//! that no read is much longer than another.

use super::assign::Assigned;
use super::build::Work;
use super::meta::{Meta, load};
use crate::error::IndexError;
use crate::partition::placement::{Placement, Points};
use crate::partition::space::Space;

/// A partition is divided that has so many times the average.
const LARGE: f64 = 1.5;
/// Times that large ones are looked for: the third changes little.
pub(super) const ROUNDS: usize = 4;

/// The vectors that stand for partitions once large ones are divided: in the place of what stood for one, the vector in the
/// middle of each part. `None` where none is large.
pub(super) fn divide(
    work: &Work<'_>,
    meta: &Meta,
    assigned: &Assigned,
    longest: Option<f32>,
) -> Result<Option<Vec<u32>>, IndexError> {
    let average = work.own.partition_vectors as usize;
    work.progress.stage("dividing large partitions", assigned.count() as u64);
    let mut pivots = Vec::with_capacity(meta.pivots.len());
    for (partition, pivot) in meta.pivots.iter().enumerate() {
        work.check_cancelled()?;
        work.progress.advance(partition as u64);
        let members = assigned.members(partition);
        if members.len() as f64 <= LARGE * average as f64 {
            pivots.push(*pivot);
            continue;
        }
        let parts = members.len().div_ceil(average);
        // Of a partition as large as half of the set a sample says as well what is near what.
        let step = members.len().div_ceil(work.own.most_vectors());
        let members: Vec<u32> = members.iter().copied().step_by(step).collect();
        let space = load(work, &members, longest)?;
        let mut order: Vec<u32> = (0..members.len() as u32).collect();
        let unit = members.len().div_ceil(parts);
        let placement = Placement {
            units: vec![unit],
            exchanged: None,
            threads: work.threads,
            seed: work.options.seed,
            card: None,
        };
        placement.order(&space, &mut order, &bathyal_vectors::progress::CancelOnly(work.progress))?;
        pivots.extend(order.chunks(unit).map(|part| members[middle(&space, part) as usize]));
    }
    pivots.sort_unstable();
    pivots.dedup();
    // What is one vector many times cannot be divided.
    Ok((pivots.len() > meta.pivots.len()).then_some(pivots))
}

/// The one of `numbers` that is nearest to their mean.
fn middle(space: &Space, numbers: &[u32]) -> u32 {
    let (mut mean, mut row) = (vec![0.0_f32; Points::dim(space)], vec![0.0_f32; Points::dim(space)]);
    for number in numbers {
        space.read(*number, &mut row);
        mean.iter_mut().zip(&row).for_each(|(mean, value)| *mean += value);
    }
    mean.iter_mut().for_each(|mean| *mean /= numbers.len() as f32);
    let mut nearest = (f32::INFINITY, numbers[0]);
    for number in numbers {
        space.read(*number, &mut row);
        let distance: f32 = row.iter().zip(&mean).map(|(a, b)| (a - b) * (a - b)).sum();
        if distance < nearest.0 {
            nearest = (distance, *number);
        }
    }
    nearest.1
}
