//! Options of the audit of live searches.

use crate::error::IndexError;

/// The share of the time for which the auditing thread works by default: a twentieth of one core, and of the
/// reads that one thread keeps in flight.
pub const DEFAULT_BUSY: f64 = 0.05;
/// Halvings of the miss before the largest effort: from 0.9 to 0.95, 0.975 and 0.9875.
pub const DEFAULT_MOST_RAISES: u32 = 3;

/// The reaction to searches that find less than the recall that they ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnMiss {
    /// Answers get a note.
    #[default]
    Note,
    /// The recall that is asked of the calibration is raised, and lowered again where that is more than
    /// enough.
    RaiseEffort {
        /// Times that the miss (1 - recall) is halved; then the largest effort is used.
        most: u32,
    },
}

impl std::str::FromStr for OnMiss {
    type Err = String;

    fn from_str(name: &str) -> Result<OnMiss, String> {
        match name {
            "note" => Ok(OnMiss::Note),
            "raise_effort" => Ok(OnMiss::RaiseEffort { most: DEFAULT_MOST_RAISES }),
            _ => Err(format!("on_miss is '{name}': it is one of note, raise_effort")),
        }
    }
}

/// Options of the audit of live searches: some queries are answered exactly, on a thread of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AuditOptions {
    /// Share of the queries that are audited, above 0 and at most 1.
    pub share: f64,
    /// The reaction to searches that find less than they ask for.
    pub on_miss: OnMiss,
    /// Share of the time for which the auditing thread works, above 0 and at most 1. Queries that it has no
    /// time for are dropped, and counted.
    pub busy: f64,
}

impl Default for AuditOptions {
    fn default() -> Self {
        AuditOptions { share: 0.001, on_miss: OnMiss::default(), busy: DEFAULT_BUSY }
    }
}

impl AuditOptions {
    /// Refuses numbers out of range.
    ///
    /// # Errors
    /// [`IndexError::Parameter`].
    pub fn check(&self) -> Result<(), IndexError> {
        let (share, busy) = (self.share, self.busy);
        for (name, value) in [("audit", share), ("the time of the audit", busy)] {
            if !(value > 0.0 && value <= 1.0) {
                return Err(IndexError::Parameter(format!(
                    "{name} is {value}; it is a share, above 0 and at most 1"
                )));
            }
        }
        Ok(())
    }
}
