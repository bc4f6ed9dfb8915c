//! Reads saved by each improvement of the paper's tables.

use bathyal_console::Failure;

use super::accuracy::ChosenTables;
use super::build::{BuiltTables, TablePlan};
use super::experiment::E2lshExperiment;
use super::filter::Filter;
use super::layout::BlockLayout;
use super::points::PaperPoint;
use super::search::SearchParameters;

/// Target fill of first blocks that have a fixed place.
const FILL: f64 = 0.6;

/// Measures the improvements one after the other, each on top of those before it.
pub(super) fn measure(
    experiment: &E2lshExperiment<'_>,
    chosen: &ChosenTables,
) -> Result<Vec<PaperPoint>, Failure> {
    let ChosenTables { built, in_memory: tables, searches, .. } = chosen;
    let base = &experiment.work.base;
    let first = experiment.extent.nearest_radius();
    let coarse = built.filter.folded(built.filter.bits().saturating_sub(3));
    let mut points = Vec::new();
    let mut measure =
        |variant: &str, built: &BuiltTables, tier, filter: Option<&Filter>, parameters: SearchParameters| {
            let labels = ("ideas", variant.to_owned());
            points.push(experiment.measure(
                (base, built),
                filter,
                tier,
                labels,
                (&experiment.work.all, parameters),
            )?);
            Ok::<(), Failure>(())
        };
    for parameters in searches {
        measure("as the paper has it", built, tables, None, *parameters)?;
        let later = SearchParameters { first, ..*parameters };
        measure("radii from a sampled nearest distance on", built, tables, None, later)?;
        measure("and a bit a vector and table for empty buckets", built, tables, Some(&coarse), later)?;
        measure("and eight bits", built, tables, Some(&built.filter), later)?;
    }
    let name = format!("direct-m{}", built.plan.ladder.hashes);
    let direct = experiment.find_or_build(base, direct_plan(&built.plan, base.count()), &name)?;
    let tier = experiment.in_memory(&direct)?;
    for parameters in searches {
        let later = SearchParameters { first, ..*parameters };
        measure("and the first block hashed straight", &direct, &tier, Some(&direct.filter), later)?;
        let ahead = SearchParameters { read_ahead: true, ..later };
        measure("and the next radius read early", &direct, &tier, Some(&direct.filter), ahead)?;
    }
    drop(tier);
    experiment.remove(&name)?;
    Ok(points)
}

/// Returns the plan without tables of addresses: hash values select first blocks, as many as the entries
/// fill.
fn direct_plan(plan: &TablePlan, vectors: usize) -> TablePlan {
    let blocks = vectors as f64 / (FILL * plan.layout.block_entries() as f64);
    let slot_bits = (blocks.max(2.0).log2().round() as u32).max(1);
    TablePlan { layout: BlockLayout { slot_bits, direct: true, ..plan.layout }, ..*plan }
}
