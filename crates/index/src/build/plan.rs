//! What a build would take and make, without building: memory, stages, and the files with their sizes.

use super::codes::CodeChoice;
use super::options::{BuildOptions, Details};
use super::{check_data, memory_advice, planned_memory, planned_source, suited};
use crate::error::IndexError;
use bathyal_kernels::quantize::{CodeKind, Codec};
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::ops::RangeInclusive;

/// What a build would take and make.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BuildPlan {
    /// The index family.
    pub family: &'static str,
    /// Number of vectors.
    pub vectors: u64,
    /// Dimensions.
    pub dim: u32,
    /// Element name of the vectors as they are given.
    pub element: &'static str,
    /// Element name of the vectors as they would be stored.
    pub stored_element: &'static str,
    /// Metric name.
    pub metric: &'static str,
    /// Threads that would be used.
    pub threads: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// The options of the family, with what stands for those that were left open.
    pub parameters: Details,
    /// The memory that the build would take.
    pub memory: MemoryPlan,
    /// The stages in turn, as progress will name them.
    pub stages: Vec<PlannedStage>,
    /// The files of the index, without its manifest, which takes some kilobytes.
    pub files: Vec<PlannedFile>,
    /// Bytes of the vectors alone.
    pub data_bytes: u64,
    /// Bytes of all files together, at least.
    pub least_index_bytes: u64,
    /// Bytes of all files together, at most: more than at least where they follow from the vectors themselves.
    pub most_index_bytes: u64,
}

/// The memory that a build would take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// Bytes at the peak: what a build reports as `planned_memory_bytes`.
    pub planned_bytes: u64,
    /// Bytes that were allowed; `None` means no limit.
    pub allowed_bytes: Option<u64>,
    /// Whether the build would be begun.
    pub fits: bool,
    /// What would help, in words, where it does not fit.
    pub advice: Option<String>,
    /// Vectors that are held at once; fewer than all where the budget divides the set.
    pub vectors_at_once: u64,
}

/// A stage of a build.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedStage {
    /// Its name.
    pub name: &'static str,
    /// Its share of the time of all stages, about; `None` where nobody has measured that.
    pub share: Option<f64>,
}

/// What every build begins with; it reads the data once.
const CHECKING: PlannedStage = PlannedStage { name: "checking vectors", share: None };

/// A file of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlannedFile {
    /// Its name.
    pub name: &'static str,
    /// Its bytes, at least.
    pub least_bytes: u64,
    /// Its bytes, at most.
    pub most_bytes: u64,
}

/// What a family says of a build.
pub(crate) struct FamilyPlan {
    /// Its options, with what stands for those that were left open.
    pub(crate) parameters: Details,
    /// Most vectors that are held at once.
    pub(crate) rows: usize,
    /// The stages in turn, with the seconds that they take on one machine.
    pub(crate) stages: Vec<(&'static str, Option<f64>)>,
    pub(crate) files: Vec<PlannedFile>,
}

impl PlannedFile {
    /// A file whose length follows from what is given.
    pub(crate) fn exactly(name: &'static str, bytes: u64) -> PlannedFile {
        PlannedFile { name, least_bytes: bytes, most_bytes: bytes }
    }

    /// A file whose length follows from the vectors, within bounds.
    pub(crate) fn within(name: &'static str, bytes: RangeInclusive<u64>) -> PlannedFile {
        PlannedFile { name, least_bytes: *bytes.start(), most_bytes: *bytes.end() }
    }
}

/// Says what [`build`](super::build) of `data` would take and make. Only the header of the data is looked at, so that the plan of
/// a billion vectors is there at once; what is wrong with single vectors, or with the place of the index, only the build finds.
///
/// # Errors
/// [`IndexError::Parameter`]: options that make no index of these vectors. Too small a budget is no error but a part of the plan.
pub fn plan_build(data: &VectorFile, options: &BuildOptions) -> Result<BuildPlan, IndexError> {
    let options = &*suited(data, options);
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
    /// Codes that are scored one by one.
    pub(crate) fn lone(choice: CodeChoice, dim: usize) -> PlannedCodes {
        let bytes = choice.bytes(dim);
        let kind = choice.kind.unwrap_or_else(|| Codec::default_for(dim, bytes as usize));
        PlannedCodes { kind, bytes: u64::from(bytes), dim: dim as u64 }
    }

    /// Codes that are scanned in groups.
    pub(crate) fn grouped(choice: CodeChoice, dim: usize) -> PlannedCodes {
        let (kind, bytes) = choice.of_groups(dim);
        PlannedCodes { kind, bytes: bytes as u64, dim: dim as u64 }
    }

    /// What the plan says of them.
    pub(crate) fn parameters(self) -> [(&'static str, serde_json::Value); 2] {
        [("code_kind", self.kind.to_string().into()), ("code_bytes", (*self.code_bytes().end()).into())]
    }

    /// Bytes of a code: fewer than asked for where the kind cannot use them all.
    pub(crate) fn code_bytes(self) -> RangeInclusive<u64> {
        let PlannedCodes { kind, bytes, dim } = self;
        // No code of bit planes is shorter; before the planes are two factors of 2 or 4 bytes each.
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
            // Of a kind that came later it is only known that it takes what it is given.
            _ => 1..=bytes.max(8),
        }
    }

    /// Bytes of so many codes.
    pub(crate) fn file_bytes(self, codes: RangeInclusive<u64>) -> RangeInclusive<u64> {
        let code = self.code_bytes();
        codes.start() * code.start()..=codes.end() * code.end()
    }

    /// Bytes of the codec.
    pub(crate) fn codec_bytes(self) -> RangeInclusive<u64> {
        const HEAD_BYTES: u64 = 24;
        let PlannedCodes { kind, bytes, dim } = self;
        // Of planes: bits of groups of 8 dimensions, the mean, steps and errors, and the rotation.
        let planes = |groups: u64| HEAD_BYTES + 16 + groups + 4 * dim + 2 * 4 * 8 * groups;
        let groups = dim.div_ceil(8);
        match kind {
            CodeKind::Pq => HEAD_BYTES + 4 * 256 * dim..=HEAD_BYTES + 4 * 256 * dim,
            CodeKind::Pq4 => HEAD_BYTES + 4 * 16 * dim..=HEAD_BYTES + 4 * 16 * dim,
            // Signs of a fast rotation.
            CodeKind::RaBitQ { .. } => planes(groups)..=planes(groups) + 8 * dim + 64,
            // A dense rotation to the axes that are kept, in bytes or in floats.
            CodeKind::Axes => {
                let least = bytes.saturating_sub(8).div_ceil(8).clamp(1, groups);
                let most = bytes.clamp(1, groups);
                planes(least) + dim * (8 * least).min(dim)..=planes(most) + 4 * dim * (8 * most).min(dim)
            }
            _ => HEAD_BYTES..=planes(groups) + 4 * dim * dim.max(256),
        }
    }
}
