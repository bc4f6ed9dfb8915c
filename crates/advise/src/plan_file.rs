//! A prediction that is kept in a file, with the options of its build.

use crate::advice::Advice;
use crate::candidates::AdvisedOptions;
use crate::prediction::IndexPrediction;
use bathyal_index::{FamilyOptions, IndexError, families};
use bathyal_index::{OpenOptions, TierChoice};
use bathyal_tier::TierProfile;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of plan files that this program writes and reads.
pub const PLAN_VERSION: u32 = 1;
/// The most bytes of a file that is read: a hundred times those of a plan.
const MOST_BYTES: u64 = 1 << 20;

/// A plan: the options of a build, and the prediction of the index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanFile {
    /// The version of the file.
    pub plan_version: u32,
    /// The program that wrote it.
    pub written_by: String,
    /// Number of vectors for which it was made.
    pub vectors: u64,
    /// Dimensions.
    pub dim: u32,
    /// Element name.
    pub element: String,
    /// Metric name.
    pub metric: String,
    /// The seed of the build.
    pub seed: u64,
    /// Neighbours per query.
    pub k: usize,
    /// The recall of searches.
    pub recall: f32,
    /// Threads of searches and of the build.
    pub threads: usize,
    /// Queries in flight for which the index was chosen.
    pub concurrency: u32,
    /// The profile of the device for which it was made.
    pub profile: TierProfile,
    /// The prediction, with the family and its options.
    pub index: IndexPrediction,
}

impl PlanFile {
    /// Returns the plan of the recommended index number `rank`, from 0; `None` if there is none.
    pub fn of(advice: &Advice, rank: usize) -> Option<PlanFile> {
        let index = advice.indexes.ranked.get(rank)?.clone();
        let device = advice.devices.iter().find(|device| device.name == index.tier)?;
        Some(PlanFile {
            plan_version: PLAN_VERSION,
            written_by: format!("bathyal {}", env!("CARGO_PKG_VERSION")),
            vectors: advice.vectors,
            dim: advice.dim,
            element: advice.element.clone(),
            metric: advice.metric.clone(),
            seed: advice.seed,
            k: advice.k,
            recall: advice.recall,
            threads: advice.threads,
            concurrency: advice.concurrency,
            profile: device.profile.clone(),
            index,
        })
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] if the file cannot be read, is no plan, or has another version.
    pub fn read(path: &Path) -> Result<PlanFile, IndexError> {
        let refuse = |why: String| IndexError::Parameter(format!("{}: {why}", path.display()));
        let metadata = std::fs::metadata(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        if !metadata.is_file() || metadata.len() > MOST_BYTES {
            return Err(refuse("is not a plan of an index".into()));
        }
        let text =
            std::fs::read_to_string(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        PlanFile::parse(&text).map_err(refuse)
    }

    /// Parses a plan.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn parse(text: &str) -> Result<PlanFile, String> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("is not a plan of an index: {error}"))?;
        let version = value.get("plan_version").and_then(serde_json::Value::as_u64);
        match version {
            Some(version) if version == u64::from(PLAN_VERSION) => {}
            Some(version) => {
                return Err(format!(
                    "the plan has version {version}, this Bathyal reads {PLAN_VERSION}; make it again"
                ));
            }
            None => return Err("is not a plan of an index: it has no plan_version".into()),
        }
        serde_json::from_value(value).map_err(|error| format!("is not a plan of an index: {error}"))
    }

    /// Returns the plan as the text of a file.
    ///
    /// # Errors
    /// [`IndexError::Internal`] if it cannot be written as JSON.
    pub fn text(&self) -> Result<String, IndexError> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|error| IndexError::Internal(format!("the plan: {error}")))
    }

    /// Returns the family and its options, for a build.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for options that this version does not have.
    pub fn family(&self) -> Result<FamilyOptions, IndexError> {
        let AdvisedOptions { family, options } = &self.index.build;
        families::options(family, options)
    }

    /// Returns the options with which the index is opened on the device of the plan.
    pub fn open_options(&self) -> OpenOptions {
        match self.profile.addressable {
            true => OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() },
            false => OpenOptions { profile: Some(self.profile.clone()), ..OpenOptions::default() },
        }
    }

    /// Returns the differences between these vectors and those of the plan, as sentences.
    pub fn differences(&self, vectors: u64, dim: u32, element: &str, metric: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, planned: String, given: String| {
            if planned != given {
                found.push(format!("the plan is for {what} {planned}, and this is {given}"));
            }
        };
        compare("vectors of dim", self.dim.to_string(), dim.to_string());
        compare("vectors of element", self.element.clone(), element.to_owned());
        compare("metric", self.metric.clone(), metric.to_owned());
        compare("a number of vectors of", self.vectors.to_string(), vectors.to_string());
        found
    }
}
