//! A prediction that is kept in a file or by its index, with the options of its build.
//!
//! A plan is a JSON object. Its member `crc32c` is the checksum of the others, written without spaces and in
//! the order of their names: a changed number is found, and another format of the same numbers is the same.

use crate::advice::Advice;
use crate::candidates::AdvisedOptions;
use crate::prediction::IndexPrediction;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, FamilyOptions, IndexError, MOST_PLAN_BYTES, OpenOptions, StoreOptions, TierChoice,
    families, find,
};
use bathyal_tier::TierProfile;
use bathyal_tier::backend::mapped::MappedOptions;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// The version of plan files that this program writes and reads.
pub const PLAN_VERSION: u32 = 1;
/// The most bytes of a file that is read: that of a plan that is formatted with spaces.
const MOST_BYTES: u64 = 4 * MOST_PLAN_BYTES as u64;
/// The member with the checksum of the others.
const CHECKSUM: &str = "crc32c";

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
        PlanFile::for_prediction(advice, advice.indexes.ranked.get(rank)?)
    }

    /// Returns the plan of a predicted index; `None` if its device is none of the advice.
    pub(crate) fn for_prediction(advice: &Advice, index: &IndexPrediction) -> Option<PlanFile> {
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
            recall: index.recall,
            threads: advice.threads,
            concurrency: advice.concurrency,
            profile: device.profile.clone(),
            index: index.clone(),
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
        let value: Value = serde_json::from_str(text).map_err(|error| match error.is_eof() {
            true => format!("is not a plan of an index, or a part of one: {error}"),
            false => format!("is not a plan of an index: {error}"),
        })?;
        PlanFile::from_value(value)
    }

    /// Converts JSON to a plan, after a comparison with its checksum.
    fn from_value(mut value: Value) -> Result<PlanFile, String> {
        match value.get("plan_version").and_then(Value::as_u64) {
            Some(version) if version == u64::from(PLAN_VERSION) => {}
            Some(version) => {
                return Err(format!(
                    "the plan has version {version}, this Bathyal reads {PLAN_VERSION}; make it again"
                ));
            }
            None => return Err("is not a plan of an index: it has no plan_version".into()),
        }
        let named = value.as_object_mut().and_then(|members| members.remove(CHECKSUM));
        let found = checksum(&value);
        match named.as_ref().and_then(Value::as_str) {
            Some(named) if named == found => {}
            Some(named) => {
                return Err(format!(
                    "the plan was changed after it was written: its {CHECKSUM} is {named}, and its other \
                     members have {found}; make it again"
                ));
            }
            None => return Err(format!("the plan has no {CHECKSUM}; make it again")),
        }
        serde_json::from_value(value).map_err(|error| format!("is not a plan of an index: {error}"))
    }

    /// Returns the plan as JSON with its checksum, as an index keeps it.
    ///
    /// # Errors
    /// [`IndexError::Internal`] if it cannot be written as JSON.
    pub(crate) fn kept(&self) -> Result<Value, IndexError> {
        // By way of text, so that an f32 is written in its shortest form.
        let value = serde_json::to_string(self).and_then(|text| serde_json::from_str(&text));
        let mut value: Value = value.map_err(|error| IndexError::Internal(format!("the plan: {error}")))?;
        let found = checksum(&value);
        if let Value::Object(members) = &mut value {
            members.insert(CHECKSUM.into(), found.into());
        }
        Ok(value)
    }

    /// Returns the plan as the text of a file.
    ///
    /// # Errors
    /// [`IndexError::Internal`] if it cannot be written as JSON.
    pub fn text(&self) -> Result<String, IndexError> {
        Ok(format!("{:#}\n", self.kept()?))
    }

    /// Returns `options` with the family, its options and this plan, which the index then keeps.
    ///
    /// # Errors
    /// As [`PlanFile::family`] and [`PlanFile::text`].
    pub fn build_options(&self, options: BuildOptions) -> Result<BuildOptions, IndexError> {
        Ok(BuildOptions { family: self.family()?, plan: Some(self.kept()?), ..options })
    }

    /// Returns the plan that an index keeps in its manifest; `None` if it keeps none.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for the plan of another version.
    pub fn kept_by(manifest: &Manifest) -> Result<Option<PlanFile>, IndexError> {
        let plan = manifest.plan.clone().map(PlanFile::from_value).transpose();
        plan.map_err(|why| IndexError::Parameter(format!("the plan that the index keeps: {why}")))
    }

    /// Returns the plan that the index at `path`, a folder or an address, keeps; `store` has options for an
    /// address.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] if it keeps none, or one of another version; those of reading a manifest.
    pub fn kept_at(path: &Path, store: &StoreOptions) -> Result<PlanFile, IndexError> {
        let manifest = Manifest::load(find(path, &[], store)?.as_ref())?;
        let named = |what: String| IndexError::Parameter(format!("{}: {what}", path.display()));
        let plan = PlanFile::kept_by(&manifest).map_err(|error| named(error.to_string()))?;
        plan.ok_or_else(|| {
            named("the index keeps no plan: give the file of one, or build the index by an advice".into())
        })
    }

    /// Returns the family and its options, for a build.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for options that this version does not have.
    pub fn family(&self) -> Result<FamilyOptions, IndexError> {
        let AdvisedOptions { family, options } = &self.index.build;
        families::options(family, options)
    }

    /// Returns true if the pages of the index are in memory of another kind than the machine's own.
    pub(crate) fn has_pages_elsewhere(&self) -> bool {
        let own = [TierChoice::Dram, TierChoice::Mapped(MappedOptions::default())];
        self.profile.addressable && !self.index.tier.parse().is_ok_and(|tier| own.contains(&tier))
    }

    /// Returns the options with which the index is opened on the device of the plan.
    pub fn open_options(&self) -> OpenOptions {
        let tier = match (self.profile.addressable, self.index.tier.parse()) {
            (false, _) => TierChoice::File,
            (true, Ok(in_memory @ (TierChoice::Dram | TierChoice::Mapped(_)))) => in_memory,
            // The name of a profile does not say which memory it describes.
            (true, _) => TierChoice::Mapped(MappedOptions::default()),
        };
        let profile = (tier != TierChoice::Dram).then(|| self.profile.clone());
        OpenOptions { tier, profile, ..OpenOptions::default() }
    }

    /// Refuses vectors of another shape or metric than those of the plan, for which none of its numbers hold.
    /// Returns a sentence if there is another number of vectors, since its numbers then hold less well.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] with the differences.
    pub fn check_fits(
        &self,
        vectors: u64,
        dim: u32,
        element: &str,
        metric: &str,
    ) -> Result<Option<String>, IndexError> {
        let differences = self.differences(dim, element, metric);
        if !differences.is_empty() {
            return Err(IndexError::Parameter(format!("{}; make a plan for these", differences.join("; "))));
        }
        let planned = self.vectors;
        let sentence = format!("the plan is for a number of vectors of {planned}, and this is {vectors}");
        Ok((planned != vectors).then_some(sentence))
    }

    /// Returns the differences between these vectors and those of the plan, as sentences.
    fn differences(&self, dim: u32, element: &str, metric: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, planned: String, given: String| {
            if planned != given {
                found.push(format!("the plan is for {what} {planned}, and this is {given}"));
            }
        };
        compare("vectors of dim", self.dim.to_string(), dim.to_string());
        compare("vectors of element", self.element.clone(), element.to_owned());
        compare("metric", self.metric.clone(), metric.to_owned());
        found
    }
}

/// Returns the checksum of a plan without its own, as hexadecimal digits.
fn checksum(plan: &Value) -> String {
    format!("{:08x}", crc32c::crc32c(plan.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the text of a JSON object with its checksum.
    fn sealed(mut value: Value) -> String {
        let found = checksum(&value);
        value[CHECKSUM] = found.into();
        value.to_string()
    }

    #[test]
    fn changed_and_cut_plans_are_refused_with_the_reason() {
        let text = sealed(json!({ "plan_version": 1, "recall": 0.95, "reads": [12.5, 1e-3] }));
        let reason = |text: &str| PlanFile::parse(text).unwrap_err();
        // Without all members of a plan, but with the right checksum.
        assert!(reason(&text).contains("missing field"), "{}", reason(&text));
        let changed = text.replace("0.95", "0.96");
        assert!(reason(&changed).contains("changed after it was written"), "{}", reason(&changed));
        let more = text.replace("{", "{\"k\": 5,");
        assert!(reason(&more).contains("changed after it was written"), "{}", reason(&more));
        let cut = &text[..text.len() / 2];
        assert!(
            reason(cut).contains("or a part of one") && reason(cut).contains("column"),
            "{}",
            reason(cut)
        );
        assert!(reason(&json!({ "plan_version": 1 }).to_string()).contains("has no crc32c"));
        assert!(reason(&sealed(json!({ "plan_version": 7 }))).contains("version 7"));
        for text in ["[]", "3", "{}", "\"plan_version\""] {
            assert!(reason(text).contains("no plan_version"), "{text}");
        }
        assert!(reason("").contains("not a plan") && reason("plan").contains("not a plan"));
        // Another format of the same members is the same plan.
        let formatted = format!("{:#}", serde_json::from_str::<Value>(&text).unwrap());
        assert_eq!(reason(&formatted), reason(&text));
    }
}
