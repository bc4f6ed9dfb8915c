//! Balanced partitions. Partitions that came out large from a uniform sample of pivots are divided until none
//! is much larger than the average, so that no read is much longer than another.

use super::assign::Assignment;
use super::build::Work;
use super::meta::{MetaIndex, load};
use crate::error::IndexError;
use crate::partition::placement::{Placement, Points};
use crate::partition::space::Space;

/// A partition with more than this many times the average number of vectors is divided.
const LARGE: f64 = 1.5;
/// The most rounds of division. The third round changes little.
pub(super) const ROUNDS: usize = 4;

/// Divides large partitions: replaces the pivot of each by the middle vectors of its parts. Returns the new
/// pivots, or `None` if no partition is large.
pub(super) fn divide(
    work: &Work<'_>,
    meta: &MetaIndex,
    assignment: &Assignment,
    longest: Option<f32>,
) -> Result<Option<Vec<u32>>, IndexError> {
    let average = work.own.partition_vectors as usize;
    work.progress.stage("dividing large partitions", assignment.count() as u64);
    let mut pivots = Vec::with_capacity(meta.pivots.len());
    for (partition, pivot) in meta.pivots.iter().enumerate() {
        work.check_cancelled()?;
        work.progress.advance(partition as u64);
        let members = assignment.members(partition);
        if members.len() as f64 <= LARGE * average as f64 {
            pivots.push(*pivot);
            continue;
        }
        let parts = members.len().div_ceil(average);
        // For a very large partition a sample is sufficient to find near vectors.
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
        pivots.extend(order.chunks(unit).map(|part| members[nearest_to_mean(&space, part) as usize]));
    }
    pivots.sort_unstable();
    pivots.dedup();
    // Copies of one vector cannot be divided.
    Ok((pivots.len() > meta.pivots.len()).then_some(pivots))
}

/// Returns the one of `numbers` that is nearest to their mean.
fn nearest_to_mean(space: &Space, numbers: &[u32]) -> u32 {
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
