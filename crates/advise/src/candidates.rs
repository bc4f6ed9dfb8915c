//! The indexes that are considered: families with their layouts and sizes of codes.

use crate::request::{AdviceRequest, SamplePace};
use crate::shape::VectorShape;
use bathyal_index::families::{self, FAMILIES};
use bathyal_index::{BuildOptions, BuildPlan, GivenOptions, IndexError, plan_shape};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The fewest bytes of a code that is considered.
const LEAST_CODE_BYTES: u64 = 16;
/// The families of which predictions are made.
pub const PREDICTED_FAMILIES: [&str; 4] = ["cluster", "graph", "spann", "flat"];
/// The families of which predictions are made if the request names them: hash tables are wanted for
/// their guarantee, and are slower than the others at equal recall. Of `partitioned` none are made:
/// its reads depend on the queries of a batch and on its cache.
pub const NAMED_FAMILIES: [&str; 1] = ["lsh"];

/// A family with options, by name, as a build takes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdvisedOptions {
    /// The family.
    pub family: String,
    /// The options that differ from the defaults.
    pub options: GivenOptions,
}

impl AdvisedOptions {
    fn of(family: &str, options: &[(&str, Value)]) -> AdvisedOptions {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        AdvisedOptions { family: family.into(), options }
    }

    /// Returns the options of a build.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for options that the family does not have.
    pub fn build_options(&self, request: &AdviceRequest) -> Result<BuildOptions, IndexError> {
        let options = request.options();
        Ok(BuildOptions {
            metric: options.metric,
            threads: request.threads(),
            seed: options.seed,
            calibration_queries: options.pace.calibration_queries(),
            ..BuildOptions::of(families::options(&self.family, &self.options)?)
        })
    }

    /// Returns the plan of the build over vectors of `shape`.
    ///
    /// # Errors
    /// Those of [`plan_shape`].
    pub fn plan(&self, shape: VectorShape, request: &AdviceRequest) -> Result<BuildPlan, IndexError> {
        let memory_bytes = request.options().limits.build_memory_bytes;
        let options = BuildOptions { memory_bytes, ..self.build_options(request)? };
        plan_shape((shape.element, shape.dim, shape.count), &options)
    }

    /// Returns a name for people: "graph, csr" or "cluster, codes of 32 bytes".
    pub fn label(&self) -> String {
        let option = |name: &str| self.options.get(name);
        let layout = option("layout").and_then(Value::as_str).map(str::to_owned);
        let codes = option("code_bytes").map(|bytes| format!("codes of {bytes} bytes"));
        [Some(self.family.clone()), layout, codes].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Returns the candidates for vectors of `shape`, of the families that this build has and the request names.
///
/// # Errors
/// [`IndexError::Parameter`] if there are none.
pub fn candidates(shape: VectorShape, request: &AdviceRequest) -> Result<Vec<AdvisedOptions>, IndexError> {
    let asked = &request.options().families;
    let is_wanted = |name: &str| {
        FAMILIES.iter().any(|family| family.name == name)
            && (asked.is_empty() || asked.iter().any(|asked| asked == name))
    };
    let mut found = Vec::new();
    let named = NAMED_FAMILIES.into_iter().filter(|name| asked.iter().any(|asked| asked == name));
    for family in PREDICTED_FAMILIES.into_iter().chain(named).filter(|name| is_wanted(name)) {
        match family {
            "cluster" => found.extend(cluster_candidates(shape, request)?),
            "graph" => found.extend(graph_candidates(request)),
            "spann" => found.extend(spann_candidates(request)),
            other => found.push(AdvisedOptions::of(other, &[])),
        }
    }
    if found.is_empty() {
        return Err(IndexError::Parameter(format!(
            "predictions are made for the families {}, {}; this build or the request has none of them",
            PREDICTED_FAMILIES.join(", "),
            NAMED_FAMILIES.join(", ")
        )));
    }
    Ok(found)
}

/// Returns cluster indexes with codes of the default size, and with smaller and larger ones.
fn cluster_candidates(
    shape: VectorShape,
    request: &AdviceRequest,
) -> Result<Vec<AdvisedOptions>, IndexError> {
    let usual = AdvisedOptions::of("cluster", &[]);
    let plan = usual.plan(shape, request)?;
    let bytes = plan.parameters.get("code_bytes").and_then(Value::as_u64).unwrap_or(LEAST_CODE_BYTES);
    // A code does not exceed a byte for each dimension.
    let most = (shape.dim as u64).max(LEAST_CODE_BYTES);
    let mut sizes = vec![bytes];
    if !matches!(request.options().pace, SamplePace::Instant | SamplePace::Quick) {
        sizes.extend([bytes / 2, bytes * 2]);
    }
    sizes.retain(|size| (LEAST_CODE_BYTES..=most).contains(size) || *size == bytes);
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes.into_iter().map(|size| AdvisedOptions::of("cluster", &[("code_bytes", size.into())])).collect())
}

/// Returns graphs in the layouts that suit the devices: packed records where reads are loads, pages on disks.
fn graph_candidates(request: &AdviceRequest) -> Vec<AdvisedOptions> {
    let tiers = &request.options().tiers;
    let (lines, pages) =
        (tiers.iter().any(|tier| tier.moves_lines()), tiers.iter().any(|tier| !tier.moves_lines()));
    let thorough = request.options().pace == SamplePace::Thorough;
    let layouts = [("csr", lines || thorough), ("padded", thorough), ("page_local", pages)];
    let wanted = layouts.into_iter().filter(|(_, wanted)| *wanted);
    wanted.map(|(layout, _)| AdvisedOptions::of("graph", &[("layout", layout.into())])).collect()
}

/// Returns posting lists in the layouts that differ in size.
fn spann_candidates(request: &AdviceRequest) -> Vec<AdvisedOptions> {
    let thorough = request.options().pace == SamplePace::Thorough;
    let layouts = [("grouped", true), ("coupled", true), ("decoupled", thorough)];
    let wanted = layouts.into_iter().filter(|(_, wanted)| *wanted);
    wanted.map(|(layout, _)| AdvisedOptions::of("spann", &[("layout", layout.into())])).collect()
}
