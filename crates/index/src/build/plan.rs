//! The plan of a build, computed without building: memory, stages, and the files with their sizes.

use super::codes::CodeChoice;
use super::options::{BuildOptions, Details};
use super::{
    check_data, enough_memory, memory_advice, planned_memory, planned_source, refused_memory,
    with_default_codes,
};
use crate::error::IndexError;
use bathyal_kernels::Element;
use bathyal_kernels::quantize::{CodeKind, Codec};
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::ops::RangeInclusive;

/// The plan of a build.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BuildPlan {
    /// The index family.
    pub family: &'static str,
    /// Number of vectors.
    pub vectors: u64,
    /// Dimensions.
    pub dim: u32,
    /// Element name of the given vectors.
    pub element: &'static str,
    /// Element name of the stored vectors.
    pub stored_element: &'static str,
    /// Metric name.
    pub metric: &'static str,
    /// Threads to use.
    pub threads: usize,
    /// The seed of all random choices.
    pub seed: u64,
    /// The options of the family, with their defaults.
    pub parameters: Details,
    /// The memory of the build.
    pub memory: MemoryPlan,
    /// The stages in their order, with the names that progress reports.
    pub stages: Vec<PlannedStage>,
    /// The files of the index, without its manifest, which takes some kilobytes.
    pub files: Vec<PlannedFile>,
    /// Bytes of the vectors alone.
    pub data_bytes: u64,
    /// The fewest bytes of all files together.
    pub least_index_bytes: u64,
    /// The most bytes of all files together. They differ from the fewest if they depend on the vectors
    /// themselves.
    pub most_index_bytes: u64,
}

/// The memory of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// Bytes at the peak: those that a build reports as `planned_memory_bytes`.
    pub planned_bytes: u64,
    /// The budget in bytes; `None` means no limit.
    pub allowed_bytes: Option<u64>,
    /// True if the build fits in the budget. Otherwise it is refused.
    pub fits: bool,
    /// The least budget in bytes with which it fits, if it does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_bytes: Option<u64>,
    /// Advice in words, if it does not fit.
    pub advice: Option<String>,
    /// Vectors in memory at once; fewer than all if the budget divides the data into parts.
    pub vectors_at_once: u64,
}

impl MemoryPlan {
    /// Returns the error with which the build is refused if it does not fit.
    ///
    /// # Errors
    /// [`IndexError::Memory`].
    pub fn check(&self) -> Result<(), IndexError> {
        let MemoryPlan { planned_bytes, allowed_bytes, needed_bytes, advice, .. } = self;
        match (needed_bytes, allowed_bytes) {
            (Some(needed), Some(given)) => {
                let advice = advice.clone().unwrap_or_default();
                Err(refused_memory((*needed).max(*planned_bytes), *given, advice))
            }
            _ => Ok(()),
        }
    }
}

/// A stage of a build.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedStage {
    /// Its name.
    pub name: &'static str,
    /// About its share of the time of all stages; `None` if that was not measured.
    pub share: Option<f64>,
}

/// The first stage of every build, which reads the data once.
const CHECKING: PlannedStage = PlannedStage { name: "checking vectors", share: None };

/// A file of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlannedFile {
    /// Its name.
    pub name: &'static str,
    /// Its fewest bytes.
    pub least_bytes: u64,
    /// Its most bytes.
    pub most_bytes: u64,
}

/// The part of a plan by the family.
pub(crate) struct FamilyPlan {
    /// Its options, with their defaults.
    pub(crate) parameters: Details,
    /// The most vectors in memory at once.
    pub(crate) rows: usize,
    /// The stages in their order, with the seconds that they take on one machine.
    pub(crate) stages: Vec<(&'static str, Option<f64>)>,
    pub(crate) files: Vec<PlannedFile>,
}

impl PlannedFile {
    /// Returns a file with a known length.
    pub(crate) fn exactly(name: &'static str, bytes: u64) -> PlannedFile {
        PlannedFile { name, least_bytes: bytes, most_bytes: bytes }
    }

    /// Returns a file whose length depends on the vectors, within bounds.
    pub(crate) fn within(name: &'static str, bytes: RangeInclusive<u64>) -> PlannedFile {
        PlannedFile { name, least_bytes: *bytes.start(), most_bytes: *bytes.end() }
    }
}

/// Returns the plan of [`build`](super::build) for `count` vectors of `dim` elements that do not exist yet.
///
/// # Errors
/// As [`plan_build`]; [`IndexError::Vectors`] for a shape that no file of vectors has.
pub fn plan_shape(
    (element, dim, count): (Element, usize, u64),
    options: &BuildOptions,
) -> Result<BuildPlan, IndexError> {
    plan_build(&VectorFile::of_shape(element, dim, count)?, options)
}

/// Returns the plan of [`build`](super::build) for `data`. Only the header of the data is read, so that the
/// plan for a billion vectors takes no longer than for a few. Errors in single vectors, or at the target, are
/// found by the build only.
///
/// # Errors
/// [`IndexError::Parameter`]: options with which no index of these vectors can be built. Too small a budget
/// is not an error but a part of the plan.
pub fn plan_build(data: &VectorFile, options: &BuildOptions) -> Result<BuildPlan, IndexError> {
    let options = &*with_default_codes(data, options);
    let builder = options.family.builder();
    builder.check()?;
    check_data(data, options)?;
    let source = planned_source(data, options);
    let FamilyPlan { parameters, rows, stages, files } = builder.plan(&source, options)?;
    let planned = planned_memory(data, options);
    let fits = options.memory_bytes.is_none_or(|allowed| allowed >= planned);
    let seconds = stages.iter().map(|stage| stage.1).sum::<Option<f64>>();
    let stage = |(name, own): (&'static str, Option<f64>)| PlannedStage {
        name,
        share: seconds.filter(|all| *all > 0.0).zip(own).map(|(all, own)| own / all),
    };
    Ok(BuildPlan {
        family: options.family.family(),
        vectors: data.count() as u64,
        dim: data.dim() as u32,
        element: data.element().name(),
        stored_element: source.element().name(),
        metric: options.metric.name_over(data.element()),
        threads: options.thread_count(),
        seed: options.seed,
        parameters,
        memory: MemoryPlan {
            planned_bytes: planned,
            allowed_bytes: options.memory_bytes,
            fits,
            needed_bytes: (!fits).then(|| enough_memory(data, options, planned)),
            advice: (!fits).then(|| memory_advice(data, options, planned)),
            vectors_at_once: rows.min(data.count()) as u64,
        },
        stages: std::iter::once(CHECKING).chain(stages.into_iter().map(stage)).collect(),
        data_bytes: data.data_bytes(),
        least_index_bytes: files.iter().map(|file| file.least_bytes).sum(),
        most_index_bytes: files.iter().map(|file| file.most_bytes).sum(),
        files,
    })
}

/// Codes of one kind, before they are trained.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedCodes {
    kind: CodeKind,
    bytes: u64,
    dim: u64,
}

impl PlannedCodes {
    /// Returns codes that are scored one by one.
    pub(crate) fn lone(choice: CodeChoice, dim: usize) -> PlannedCodes {
        let bytes = choice.bytes(dim);
        let kind = choice.kind.unwrap_or_else(|| Codec::default_for(dim, bytes as usize));
        PlannedCodes { kind, bytes: u64::from(bytes), dim: dim as u64 }
    }

    /// Returns codes that are scanned in groups.
    pub(crate) fn grouped(choice: CodeChoice, dim: usize) -> PlannedCodes {
        let (kind, bytes) = choice.of_groups(dim);
        PlannedCodes { kind, bytes: bytes as u64, dim: dim as u64 }
    }

    /// Returns their parameters for the plan.
    pub(crate) fn parameters(self) -> [(&'static str, serde_json::Value); 2] {
        [("code_kind", self.kind.to_string().into()), ("code_bytes", (*self.code_bytes().end()).into())]
    }

    /// Returns the bytes of a code: fewer than asked for if the kind cannot use them all.
    pub(crate) fn code_bytes(self) -> RangeInclusive<u64> {
        let PlannedCodes { kind, bytes, dim } = self;
        // A code of bit planes has at least 8 bytes. Before the planes are two factors of 2 or 4 bytes each.
        let planes = |planes: u64| (planes + 4).max(8)..=(planes + 8).max(8);
        match kind {
            CodeKind::Pq => bytes.min(dim)..=bytes.min(dim),
            CodeKind::Pq4 => {
                let bytes = (2 * bytes).min(dim).div_ceil(2);
                bytes..=bytes
            }
            CodeKind::RaBitQ { bits } => planes(dim.div_ceil(8) * u64::from(bits)),
            CodeKind::Axes => {
                let all = planes(8 * dim.div_ceil(8));
                bytes.min(*all.start()).max(8)..=bytes.min(*all.end()).max(8)
            }
            // Of kinds added later, only the bound by the given bytes is known.
            _ => 1..=bytes.max(8),
        }
    }

    /// Returns the bytes of so many codes.
    pub(crate) fn file_bytes(self, codes: RangeInclusive<u64>) -> RangeInclusive<u64> {
        let code = self.code_bytes();
        codes.start() * code.start()..=codes.end() * code.end()
    }

    /// Returns the bytes of the codec.
    pub(crate) fn codec_bytes(self) -> RangeInclusive<u64> {
        const HEAD_BYTES: u64 = 24;
        let PlannedCodes { kind, bytes, dim } = self;
        // Codecs of planes contain the bits of groups of 8 dimensions, the mean, steps and errors, and the
        // rotation.
        let planes = |groups: u64| HEAD_BYTES + 16 + groups + 4 * dim + 2 * 4 * 8 * groups;
        let groups = dim.div_ceil(8);
        match kind {
            CodeKind::Pq => HEAD_BYTES + 4 * 256 * dim..=HEAD_BYTES + 4 * 256 * dim,
            CodeKind::Pq4 => HEAD_BYTES + 4 * 16 * dim..=HEAD_BYTES + 4 * 16 * dim,
            // These have the signs of a fast rotation.
            CodeKind::RaBitQ { .. } => planes(groups)..=planes(groups) + 8 * dim + 64,
            // These have a dense rotation to the axes that are kept, in bytes or in floats.
            CodeKind::Axes => {
                let least = bytes.saturating_sub(8).div_ceil(8).clamp(1, groups);
                let most = bytes.clamp(1, groups);
                planes(least) + dim * (8 * least).min(dim)..=planes(most) + 4 * dim * (8 * most).min(dim)
            }
            _ => HEAD_BYTES..=planes(groups) + 4 * dim * dim.max(256),
        }
    }
}
