//! The choice among the calibrations of a collection.

use crate::error::CollectionError;
use crate::version::{CalibrationEntry, Version};
use bathyal_index::{BUILD_NAME, CalibrationChoice, DEFAULT_CALIBRATION, NameHash, NameHashes};

/// The calibrations that a search uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChosenCalibrations {
    /// `None` for that of the build alone.
    entries: Vec<CalibrationEntry>,
    /// True to take the largest effort of all, including that of the build.
    largest: bool,
}

impl ChosenCalibrations {
    /// Returns the calibrations that a search of `field` uses: the one named `name`, or without a name the
    /// one named `default`, or else all of the field.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for an unknown name; its text lists the known ones.
    pub(crate) fn new(
        version: &Version,
        field: &str,
        name: Option<&str>,
    ) -> Result<ChosenCalibrations, CollectionError> {
        if name == Some(BUILD_NAME) {
            return Ok(ChosenCalibrations::default());
        }
        let wanted = name.unwrap_or(DEFAULT_CALIBRATION);
        if let Some(entry) = version.calibrations_of(field).find(|known| known.name == wanted) {
            return Ok(ChosenCalibrations { entries: vec![entry.clone()], largest: false });
        }
        if let Some(name) = name {
            let known = version.calibrations_of(field).map(|known| known.name.as_str());
            let names: Vec<&str> = std::iter::once(BUILD_NAME).chain(known).collect();
            return Err(CollectionError::Parameter(format!(
                "there is no calibration {name:?} of the field {field:?}; there is {}",
                names.join(", ")
            )));
        }
        Ok(ChosenCalibrations { entries: version.calibrations_of(field).cloned().collect(), largest: true })
    }

    /// Returns the choice in the index of a segment, and false if the segment was not measured with all of
    /// the calibrations.
    pub(crate) fn in_segment(&self, segment: &str) -> (CalibrationChoice, bool) {
        let is_measured = |entry: &&CalibrationEntry| entry.segments.iter().any(|name| name == segment);
        let ids: Vec<&str> = self.entries.iter().filter(is_measured).map(|entry| entry.id.as_str()).collect();
        let choice = match ids[..] {
            [] => CalibrationChoice::Build,
            [id] if !self.largest => CalibrationChoice::Named(NameHash::of(id)),
            _ => CalibrationChoice::Largest(NameHashes::of(ids.iter().copied())),
        };
        (choice, ids.len() == self.entries.len())
    }

    /// Returns the names, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
        names.join(", ")
    }
}
