//! What each idea saves in reads, beside the paper's tables.

use bathyal_console::Failure;

use super::accuracy::Chosen;
use super::build::{Built, Plan};
use super::filter::Filter;
use super::lab::Lab;
use super::layout::Layout;
use super::points::Point;
use super::search::Ask;

/// How full the first blocks are that have a place of their own, about.
const FILL: f64 = 0.6;

/// Measures the ideas one after the other, each on top of those before it.
pub(super) fn measure(lab: &Lab<'_>, chosen: &Chosen) -> Result<Vec<Point>, Failure> {
    let Chosen { built, in_memory: tables, asks, .. } = chosen;
    let base = &lab.work.base;
    let first = lab.extent.nearest_radius();
    let coarse = built.filter.folded(built.filter.bits().saturating_sub(3));
    let mut points = Vec::new();
    let mut count = |what: &str, built: &Built, tier, filter: Option<&Filter>, ask: Ask| {
        let labels = ("ideas", what.to_owned());
        points.push(lab.counted((base, built), filter, tier, labels, (&lab.work.all, ask))?);
        Ok::<(), Failure>(())
    };
    for ask in asks {
        count("as the paper has it", built, tables, None, *ask)?;
        let later = Ask { first, ..*ask };
        count("radii from a sampled nearest distance on", built, tables, None, later)?;
        count("and a bit a vector and table for empty buckets", built, tables, Some(&coarse), later)?;
        count("and eight bits", built, tables, Some(&built.filter), later)?;
    }
    let name = format!("direct-m{}", built.plan.ladder.hashes);
    let direct = lab.built(base, direct(&built.plan, base.count()), &name)?;
    let tier = lab.in_memory(&direct)?;
    for ask in asks {
        let later = Ask { first, ..*ask };
        count("and the first block hashed straight", &direct, &tier, Some(&direct.filter), later)?;
        let ahead = Ask { ahead: true, ..later };
        count("and the next radius read early", &direct, &tier, Some(&direct.filter), ahead)?;
    }
    drop(tier);
    lab.remove(&name)?;
    Ok(points)
}

/// The same without tables of addresses: as many first blocks as entries fill.
fn direct(plan: &Plan, vectors: usize) -> Plan {
    let blocks = vectors as f64 / (FILL * plan.layout.block_entries() as f64);
    let slot_bits = (blocks.max(2.0).log2().round() as u32).max(1);
    Plan { layout: Layout { slot_bits, direct: true, ..plan.layout }, ..*plan }
}
