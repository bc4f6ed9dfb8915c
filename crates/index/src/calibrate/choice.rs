//! The choice among the calibrations of an index.

use super::given_queries::QueryCalibration;
use xxhash_rust::xxh3::xxh3_64;

/// The name of a calibration for which no name is given. Searches that choose none use the one of this name.
pub const DEFAULT_CALIBRATION: &str = "default";

/// The calibration that a search uses for a recall. [`Index::calibration`](crate::Index::calibration) returns
/// one by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CalibrationChoice {
    /// The calibration named `default`. If there is none, the largest effort that any calibration of the
    /// index chooses, including that of the build.
    #[default]
    Usual,
    /// The calibration of the build.
    Build,
    /// A calibration by its name.
    Named(NameHash),
}

/// The hash of a calibration's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHash(u64);

impl NameHash {
    /// Returns the hash of `name`.
    pub(crate) fn of(name: &str) -> NameHash {
        NameHash(xxh3_64(name.as_bytes()))
    }
}

impl CalibrationChoice {
    /// Returns the chosen one of `all`; `None` if it is that of the build, or absent.
    pub(crate) fn find(self, all: &[QueryCalibration]) -> Option<&QueryCalibration> {
        match self {
            CalibrationChoice::Build => None,
            CalibrationChoice::Named(hash) => all.iter().find(|known| NameHash::of(&known.name) == hash),
            CalibrationChoice::Usual => all.iter().find(|known| known.name == DEFAULT_CALIBRATION),
        }
    }
}
