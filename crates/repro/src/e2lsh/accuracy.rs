//! Accuracy against reads: gamma and S as the paper turns them (sections 3.3 and 4.3), the sizes of blocks (figure 3), and the
//! parameters that reach the ratio asked for.

use std::sync::Arc;

use bathyal_console::Failure;
use bathyal_tier::Tier;

use super::build::{Built, Plan};
use super::lab::{BLOCK_BYTES, Lab};
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

/// The best tables so far.
struct Best {
    plan: Plan,
    name: String,
    /// Seconds that building took, if they were built now.
    seconds: Option<f64>,
    asks: Vec<Ask>,
    /// Processor time of a query that reaches the ratio for the first k; infinite where none does.
    cost_ns: f64,
}

/// Builds tables with each number of hashes, measures them with each S, and keeps those that answer the first k best.
pub(super) fn measure(lab: &Lab<'_>) -> Result<(Vec<Point>, Chosen), Failure> {
    let base = &lab.work.base;
    let (mut points, mut best): (Vec<Point>, Option<Best>) = (Vec::new(), None);
    for hashes in lab.hashes() {
        let name = format!("paper-m{hashes}-b{BLOCK_BYTES}");
        let plan = lab.plan(lab.ladder(hashes), base.count(), BLOCK_BYTES);
        let (of, seconds) = with(lab, plan, &name)?;
        let asks = lab.arguments.k.iter().filter_map(|k| at_ratio(&of, *k as usize, lab.arguments.ratio));
        let first = at_ratio(&of, lab.arguments.k[0] as usize, lab.arguments.ratio);
        let cost_ns = first
            .filter(|point| point.ratio <= f64::from(lab.arguments.ratio))
            .map_or(f64::INFINITY, |point| point.processor_ns);
        if best.as_ref().is_some_and(|best| best.cost_ns <= cost_ns) {
            lab.remove(&name)?;
        } else {
            let asks = asks.map(ask_of).collect();
            if let Some(before) = best.replace(Best { plan, name, seconds, asks, cost_ns }) {
                lab.remove(&before.name)?;
            }
        }
        points.extend(of);
    }
    let Best { plan, name, seconds, asks, .. } = best.ok_or_else(|| Failure::usage("--gammas names none"))?;
    let built = Built { seconds, ..lab.built(base, plan, &name)? };
    let in_memory = lab.in_memory(&built)?;
    Ok((points, Chosen { built, name, in_memory, asks }))
}

/// What tables come to for each k, and the seconds that building them took.
fn with(lab: &Lab<'_>, plan: Plan, name: &str) -> Result<(Vec<Point>, Option<f64>), Failure> {
    let built = lab.built(&lab.work.base, plan, name)?;
    let (tier, mut points) = (lab.in_memory(&built)?, Vec::new());
    for k in &lab.arguments.k {
        points.extend(efforts(lab, &built, &tier, *k as usize)?);
    }
    Ok((points, built.seconds))
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
pub(super) fn at_ratio(points: &[Point], k: usize, ratio: f32) -> Option<&Point> {
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
        let tier = lab.in_memory(&built)?;
        let mut of_size = efforts(lab, &built, &tier, lab.arguments.k[0] as usize)?;
        of_size.iter_mut().for_each(|point| point.experiment = "block size");
        points.extend(of_size);
        drop(tier);
        lab.remove(&name)?;
    }
    Ok(points)
}
