//! The failure of a command: its kind, its exit code and its message.

use std::fmt;
use std::io;

use bathyal_collection::CollectionError;
use bathyal_index::IndexError;
use bathyal_store::StoreError;
use bathyal_tier::TierError;
use bathyal_vectors::VectorError;
use bathyal_vectors::groundtruth::GroundTruthError;
use serde_json::{Value, json};

use crate::kind::Kind;

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
    /// An index or a collection is damaged (found by `verify`, or by a search), or the path holds neither.
    Damaged = 3,
    /// Stopped by Ctrl-C or SIGTERM; no partial output is left.
    Cancelled = 130,
}

/// A failed command: its kind, its exit code, and a message that says what failed, where, and what to do.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind, by which scripts distinguish failures.
    pub kind: Kind,
    /// The exit code of the process.
    pub code: Code,
    /// The message for the user.
    pub message: String,
}

impl Failure {
    /// A failure without a kind of its own; only the message gives the reason.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::of(Kind::Failed, message)
    }

    /// A failure of this kind, with the exit code that belongs to it.
    pub fn of(kind: Kind, message: impl Into<String>) -> Failure {
        let code = match kind {
            Kind::Damaged | Kind::NotAnIndex => Code::Damaged,
            Kind::Cancelled => Code::Cancelled,
            _ => Code::Failure,
        };
        Failure { kind, code, message: message.into() }
    }

    /// A failed system call; the message names the operation.
    pub fn system(reason: &io::Error, message: impl Into<String>) -> Failure {
        Failure::of(reason.into(), message)
    }

    /// An error of the command line.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: Code::Usage, ..Failure::of(Kind::InvalidArgument, message) }
    }

    /// A request that no index accepts: an error of the command line, although the library found it.
    pub fn refused(error: IndexError) -> Failure {
        Failure::usage(error.to_string())
    }

    /// The index is damaged.
    pub fn damaged(message: impl Into<String>) -> Failure {
        Failure::of(Kind::Damaged, message)
    }

    /// The user asked to stop.
    pub fn cancelled() -> Failure {
        Failure::of(Kind::Cancelled, "cancelled")
    }

    /// Returns the object that `--json` prints under `error`.
    pub fn json(&self) -> Value {
        json!({ "kind": self.kind, "message": self.message, "exit_code": self.code as i32 })
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
        Failure::of(Kind::from(&error), error.to_string())
    }
}

impl From<GroundTruthError> for Failure {
    fn from(error: GroundTruthError) -> Failure {
        Failure::of(Kind::from(&error), error.to_string())
    }
}

impl From<TierError> for Failure {
    fn from(error: TierError) -> Failure {
        Failure::of(Kind::from(&error), error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        IndexError::from(error).into()
    }
}

impl From<CollectionError> for Failure {
    fn from(error: CollectionError) -> Failure {
        match error {
            CollectionError::Index(error) => error.into(),
            error => Failure::of(Kind::from(&error), error.to_string()),
        }
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Failure {
        let failure = Failure::of(Kind::from(&error), error.to_string());
        match error {
            // A missing index has the kind `not_found`, but the exit code of a path that is not an index.
            IndexError::NotAnIndex { .. } => Failure { code: Code::Damaged, ..failure },
            _ => failure,
        }
    }
}
