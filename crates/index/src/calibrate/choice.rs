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
    /// The largest effort that any of these calibrations chooses, including that of the build.
    Largest(NameHashes),
}

/// The most calibrations among which [`CalibrationChoice::Largest`] chooses.
pub const MOST_CHOSEN: usize = 8;

/// The hashes of some names, at most [`MOST_CHOSEN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NameHashes([Option<NameHash>; MOST_CHOSEN]);

impl NameHashes {
    /// Returns the hashes of the first [`MOST_CHOSEN`] of `names`.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> NameHashes {
        let mut hashes = NameHashes::default();
        for (hash, name) in hashes.0.iter_mut().zip(names) {
            *hash = Some(NameHash::of(name));
        }
        hashes
    }

    fn has(&self, hash: NameHash) -> bool {
        self.0.contains(&Some(hash))
    }
}

/// The hash of a calibration's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHash(u64);

impl NameHash {
    /// Returns the hash of `name`.
    pub fn of(name: &str) -> NameHash {
        NameHash(xxh3_64(name.as_bytes()))
    }
}

impl CalibrationChoice {
    /// Returns the chosen one of `all`; `None` if it is that of the build, absent, or one of several.
    pub(crate) fn find(self, all: &[QueryCalibration]) -> Option<&QueryCalibration> {
        match self {
            CalibrationChoice::Build | CalibrationChoice::Largest(_) => None,
            CalibrationChoice::Named(hash) => all.iter().find(|known| NameHash::of(&known.name) == hash),
            CalibrationChoice::Usual => all.iter().find(|known| known.name == DEFAULT_CALIBRATION),
        }
    }

    /// Returns the calibrations of `all` among which the largest effort is taken.
    pub(crate) fn candidates(self, all: &[QueryCalibration]) -> Vec<&QueryCalibration> {
        match self {
            CalibrationChoice::Largest(hashes) => {
                all.iter().filter(|known| hashes.has(NameHash::of(&known.name))).collect()
            }
            choice => choice.find(all).map_or_else(|| all.iter().collect(), |named| vec![named]),
        }
    }

    /// Returns true if `all` has every calibration that this choice names.
    pub(crate) fn is_in(self, all: &[QueryCalibration]) -> bool {
        match self {
            CalibrationChoice::Usual | CalibrationChoice::Build => true,
            CalibrationChoice::Named(_) => self.find(all).is_some(),
            CalibrationChoice::Largest(hashes) => {
                self.candidates(all).len() == hashes.0.iter().flatten().count()
            }
        }
    }
}
