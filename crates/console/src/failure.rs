//! Why a command did not do what it was asked, and the exit code that says so.

use std::fmt;

use bathyal_index::IndexError;
use bathyal_store::StoreError;
use bathyal_tier::TierError;
use bathyal_vectors::VectorError;
use bathyal_vectors::groundtruth::GroundTruthError;

/// Exit codes of `bathyal`. They are stable: scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Done.
    Success = 0,
    /// The command could not do its work: a missing file, bad data, a full disk.
    Failure = 1,
    /// The command line itself is wrong.
    Usage = 2,
    /// An index is damaged, or is not an index: `verify` found it, or `open` or `search` touched it.
    Damaged = 3,
    /// Stopped by Ctrl-C or SIGTERM; nothing half-made is left.
    Cancelled = 130,
}

/// A failed command: its exit code and a plain sentence saying what, where, what was expected, what to do.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the process exits with.
    pub code: Code,
    /// What the user reads.
    pub message: String,
}

impl Failure {
    /// The command could not do its work.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { code: Code::Failure, message: message.into() }
    }

    /// The command line asks for something that cannot be.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: Code::Usage, message: message.into() }
    }

    /// The index is damaged.
    pub fn damaged(message: impl Into<String>) -> Failure {
        Failure { code: Code::Damaged, message: message.into() }
    }

    /// The user asked to stop.
    pub fn cancelled() -> Failure {
        Failure { code: Code::Cancelled, message: "cancelled".to_owned() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<VectorError> for Failure {
    fn from(error: VectorError) -> Failure {
        match error {
            VectorError::Cancelled => Failure { code: Code::Cancelled, message: error.to_string() },
            _ => Failure::new(error.to_string()),
        }
    }
}

impl From<GroundTruthError> for Failure {
    fn from(error: GroundTruthError) -> Failure {
        match error {
            GroundTruthError::Cancelled => Failure::cancelled(),
            GroundTruthError::Vectors(error) => error.into(),
            _ => Failure::new(error.to_string()),
        }
    }
}

impl From<TierError> for Failure {
    fn from(error: TierError) -> Failure {
        match error {
            TierError::Cancelled => Failure::cancelled(),
            _ => Failure::new(error.to_string()),
        }
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Failure {
        let code = match error {
            IndexError::Vectors(error) => return error.into(),
            IndexError::Tier(error) => return error.into(),
            IndexError::Cancelled => Code::Cancelled,
            IndexError::Damaged { .. }
            | IndexError::NotAnIndex { .. }
            | IndexError::Store(
                StoreError::Short { .. } | StoreError::Irregular { .. } | StoreError::Part { .. },
            ) => Code::Damaged,
            _ => Code::Failure,
        };
        Failure { code, message: error.to_string() }
    }
}
