//! Accuracy against reads: gamma and S as the paper turns them (sections 3.3 and 4.3), the sizes of blocks (figure 3), and the
//! parameters that reach the ratio asked for.

use std::sync::Arc;

use bathyal_console::Failure;
use bathyal_tier::Tier;

use super::build::Built;
use super::lab::{BLOCK_BYTES, Lab, in_memory};
use super::points::Point;
use super::search::Ask;

/// Vectors that are compared at a radius, in units of 2 L: what equation 5 has, less and more.
const CANDIDATES: [f64; 10] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// The tables that are measured further, in memory, and how they are searched for each k.
pub(super) struct Chosen {
    pub built: Built,
    pub name: String,
    pub in_memory: Arc<dyn Tier>,
    /// For each k the search that reaches the ratio with the least processor time, or that comes nearest to it.
    pub asks: Vec<Ask>,
}

/// S for `k`: `times` 2 L, and as many more as k asks for.
pub(super) fn candidates(times: f64, tables: u32, k: usize) -> usize {
    (times * 2.0 * f64::from(tables)).round() as usize + k - 1
}

/// Builds tables with each number of hashes, measures them with each S, and keeps those that answer the first k best.
pub(super) fn measure(lab: &Lab<'_>) -> Result<(Vec<Point>, Chosen), Failure> {
    let base = &lab.work.base;
    let (mut points, mut kept): (Vec<Point>, Option<(f64, Chosen)>) = (Vec::new(), None);
    for hashes in lab.hashes() {
        let name = format!("paper-m{hashes}-b{BLOCK_BYTES}");
        let plan = lab.plan(lab.ladder(hashes), base.count(), BLOCK_BYTES);
        // The one that is kept so far is read again if it has to be.
        let kept_before = kept.take().map(|(cost, chosen)| {
            let Chosen { built, name, asks, .. } = chosen;
            (cost, built, name, asks)
        });
        let built = lab.built(base, plan, &name)?;
        let tier = in_memory(&built)?;
        let first = points.len();
        for k in &lab.arguments.k {
            points.extend(efforts(lab, &built, &tier, *k as usize)?);
        }
        let of = &points[first..];
        let k = lab.arguments.k.iter().map(|k| best(of, *k as usize, lab.arguments.ratio));
        let asks: Vec<Ask> = k.flatten().map(ask_of).collect();
        let cost = best(of, lab.arguments.k[0] as usize, lab.arguments.ratio)
            .filter(|point| point.ratio <= f64::from(lab.arguments.ratio))
            .map_or(f64::INFINITY, |point| point.processor_ns);
        kept = Some(match kept_before {
            Some((least, built, name_before, asks)) if least <= cost => {
                drop(tier);
                lab.remove(&name)?;
                let in_memory = in_memory(&built)?;
                (least, Chosen { built, name: name_before, in_memory, asks })
            }
            Some((_, _, name_before, _)) => {
                lab.remove(&name_before)?;
                (cost, Chosen { built, name, in_memory: tier, asks })
            }
            None => (cost, Chosen { built, name, in_memory: tier, asks }),
        });
    }
    let (_, chosen) = kept.ok_or_else(|| Failure::usage("--gammas names none"))?;
    Ok((points, chosen))
}

/// Searches with each S until more finds nothing better.
fn efforts(lab: &Lab<'_>, built: &Built, tier: &Arc<dyn Tier>, k: usize) -> Result<Vec<Point>, Failure> {
    let mut points: Vec<Point> = Vec::new();
    for times in CANDIDATES {
        let ask = Ask { k, candidates: candidates(times, lab.arguments.tables, k), first: 0, ahead: false };
        let labels = ("accuracy", format!("S = {times} x 2 L"));
        let point = lab.counted((&lab.work.base, built), None, tier, labels, (&lab.work.all, ask))?;
        let more = points.last().is_none_or(|last| point.compared > last.compared * 1.001);
        points.push(point);
        if !more {
            break;
        }
    }
    Ok(points)
}

/// Of the points of a k the one that reaches the ratio with the least processor time; where none does, the one of the least ratio.
pub(super) fn best(points: &[Point], k: usize, ratio: f32) -> Option<&Point> {
    let of_k = || points.iter().filter(|point| point.k == k);
    let enough = of_k().filter(|point| point.ratio <= f64::from(ratio));
    enough
        .min_by(|a, b| a.processor_ns.total_cmp(&b.processor_ns))
        .or_else(|| of_k().min_by(|a, b| a.ratio.total_cmp(&b.ratio)))
}

/// How a point was searched.
fn ask_of(point: &Point) -> Ask {
    Ask { k: point.k, candidates: point.candidates, first: 0, ahead: false }
}

/// Reads with other sizes of a block, with the hashes of what was chosen (figure 3).
pub(super) fn block_sizes(lab: &Lab<'_>, chosen: &Chosen) -> Result<Vec<Point>, Failure> {
    let (base, mut points) = (&lab.work.base, Vec::new());
    let ladder = *chosen.built.hashes.ladder();
    let mut sizes = lab.arguments.block_sizes.clone();
    sizes.retain(|bytes| *bytes != BLOCK_BYTES);
    for bytes in sizes {
        let name = format!("paper-m{}-b{bytes}", ladder.hashes);
        let built = lab.built(base, lab.plan(ladder, base.count(), bytes), &name)?;
        let tier = in_memory(&built)?;
        let mut of_size = efforts(lab, &built, &tier, lab.arguments.k[0] as usize)?;
        of_size.iter_mut().for_each(|point| point.experiment = "block size");
        points.extend(of_size);
        drop(tier);
        lab.remove(&name)?;
    }
    Ok(points)
}
