//! The audit of searches: exact answers to some of the queries show which recall searches find.
//!
//! This folder has the parts that need no index, so that collections use them, too: the recall of an answer
//! and its interval, the choice of the queries, the queue, the auditing thread with its share of the time,
//! and the effort that follows from what was found.

mod auditor;
mod estimate;
mod ledger;
mod options;
mod pace;
mod stats;

pub use auditor::{AskedRecall, Audited, Auditor, Verdict};
pub use estimate::{RecallEstimate, RecallSums, recall_of_answer};
pub use ledger::{Reaction, WatchedRecall};
pub use options::{AuditOptions, DEFAULT_BUSY, DEFAULT_MOST_RAISES, OnMiss};
pub use pace::Pace;
pub use stats::AuditStats;
