//! A suite of checks that every backend and every layer passes.
//!
//! [`check`] makes tiers over bytes of its own and checks them in two ways: through their queues, read by
//! read ([`crate::Queue`]), and through the engine. It returns the first breach of the contract instead of
//! panicking, so that backends outside this crate can use it, too.

mod changes;
mod queries;
mod queues;

use crate::backend::sim::random::mix;
use crate::contract::Tier;
use crate::error::{RunError, TierError};
use std::sync::Arc;

/// Length of the tiers in most checks: large enough for reads of 1 MiB, and not a multiple of any alignment.
const LEN: usize = (3 << 20) + 777;

/// Function that makes a tier over the given bytes.
pub type Make<'a> = &'a dyn Fn(Vec<u8>) -> Arc<dyn Tier>;

/// Function that makes a tier over the given bytes on which every read of the byte at the given offset fails.
pub type MakeFailing<'a> = &'a dyn Fn(Vec<u8>, u64) -> Arc<dyn Tier>;

/// Optional abilities of the tier under test.
#[derive(Clone, Copy, Default)]
pub struct Capabilities<'a> {
    /// Function that makes a tier with a damaged byte, if the backend has one.
    pub failing: Option<MakeFailing<'a>>,
}

/// The first breach of the contract that the suite found.
#[derive(Debug, thiserror::Error)]
#[error("{check}: {what}")]
pub struct ConformanceFailure {
    /// The check's name.
    pub check: &'static str,
    /// Expected and actual result.
    pub what: String,
}

/// Result of a single check.
type Outcome = Result<(), Breach>;

/// Reason for which a check failed.
#[derive(Debug)]
struct Breach(String);

impl From<TierError> for Breach {
    fn from(e: TierError) -> Breach {
        Breach(format!("unexpected error of the tier: {e}"))
    }
}

impl From<RunError> for Breach {
    fn from(e: RunError) -> Breach {
        Breach(format!("unexpected error of the engine: {e}"))
    }
}

/// Fails the surrounding check unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Breach(format!($($why)+)));
        }
    };
}
use ensure;

/// Share of a check's queries that are run.
#[derive(Clone, Copy)]
struct QueryShare {
    /// One query in this many is run.
    one_in: u64,
}

impl QueryShare {
    /// Returns the share of `n` queries, at least 1.
    fn count(self, n: u64) -> u64 {
        n.div_ceil(self.one_in)
    }
}

/// Runs the whole suite on tiers made by `make`. Takes about a second on a fast tier.
///
/// # Errors
/// The first breach of the contract.
pub fn check(make: Make<'_>, capabilities: Capabilities<'_>) -> Result<(), ConformanceFailure> {
    check_share(make, capabilities, QueryShare { one_in: 1 })
}

/// Runs the whole suite with fewer queries, for tiers whose reads take milliseconds.
///
/// # Errors
/// The first breach of the contract.
pub fn check_far(make: Make<'_>, capabilities: Capabilities<'_>) -> Result<(), ConformanceFailure> {
    check_share(make, capabilities, QueryShare { one_in: 8 })
}

fn check_share(
    make: Make<'_>,
    capabilities: Capabilities<'_>,
    share: QueryShare,
) -> Result<(), ConformanceFailure> {
    let tier = make(content(LEN));
    type Check = fn(&Arc<dyn Tier>) -> Outcome;
    let queue_checks: [(&'static str, Check); 11] = [
        ("profile", queues::profile),
        ("ids and bytes", queues::ids_and_bytes),
        ("the end of the tier", queues::end_of_tier),
        ("back-pressure", queues::back_pressure),
        ("nothing in flight", queues::nothing_in_flight),
        ("reaping without waiting", queues::reap_without_wait),
        ("a wait that a waker ends", queues::woken_waits),
        ("a queue dropped in flight", queues::dropped_in_flight),
        ("abandoned reads", queues::abandoned_reads),
        ("bytes in place", queues::mapped_bytes),
        ("concurrent queues", queues::concurrent_queues),
    ];
    for (name, run) in queue_checks {
        run(&tier).map_err(|Breach(what)| ConformanceFailure { check: name, what })?;
    }
    type QueryCheck = fn(&Arc<dyn Tier>, QueryShare) -> Outcome;
    let query_checks: [(&'static str, QueryCheck); 7] = [
        ("dependent reads", queries::dependent_reads),
        ("large and unaligned spans", queries::large_spans),
        ("the caller's own memory", queries::into_regions),
        ("streams", queries::streams),
        ("dropped futures", queries::dropped_futures),
        ("cancelled runs", queries::cancelled_runs),
        ("more reads than depth", queries::more_reads_than_depth),
    ];
    for (name, run) in query_checks {
        run(&tier, share).map_err(|Breach(what)| ConformanceFailure { check: name, what })?;
    }
    if tier.writable().is_some() {
        let checks: [(&'static str, Check); 4] = [
            ("writes", changes::writes),
            ("atomic numbers", changes::atomic_numbers),
            ("linked operations", changes::chains),
            ("chains that fail", changes::failing_chains),
        ];
        for (name, run) in checks {
            // Each check gets unchanged bytes.
            run(&make(content(LEN))).map_err(|Breach(what)| ConformanceFailure { check: name, what })?;
        }
    }
    drop(tier);
    let failure_of = |check| move |Breach(what)| ConformanceFailure { check, what };
    queries::tiny_tiers(make).map_err(failure_of("tiny tiers"))?;
    if let Some(make) = capabilities.failing {
        queues::damaged_byte(make).map_err(failure_of("errors in the middle of a batch"))?;
        queries::damaged_byte(make).map_err(failure_of("errors in the middle of a query"))?;
    }
    Ok(())
}

/// Returns `len` bytes in which every word of eight bytes is a hash of its index.
pub fn content(len: usize) -> Vec<u8> {
    (0..len.div_ceil(8)).flat_map(|i| word(i as u64).to_le_bytes()).take(len).collect()
}

fn word(i: u64) -> u64 {
    mix(i.wrapping_add(0x5EED))
}

/// Returns the first offset at which `bytes` differ from the content from `offset` on.
fn first_difference(offset: u64, bytes: &[u8]) -> Option<u64> {
    let byte = |at: u64| word(at / 8).to_le_bytes()[(at % 8) as usize];
    let by_bytes = |from: usize, to: usize| {
        (from..to).map(|i| (offset + i as u64, bytes[i])).find(|(at, b)| byte(*at) != *b).map(|(at, _)| at)
    };
    // The middle is compared in words, since most of the suite's time is spent here.
    let head = ((8 - offset % 8) % 8).min(bytes.len() as u64) as usize;
    let words = (bytes.len() - head) / 8;
    let first = (offset + head as u64) / 8;
    let middle = bytes[head..][..words * 8].chunks_exact(8);
    let wrong = middle.zip(first..).position(|(bytes, i)| bytes != word(i).to_le_bytes());
    by_bytes(0, head)
        .or_else(|| wrong.and_then(|i| by_bytes(head + i * 8, head + i * 8 + 8)))
        .or_else(|| by_bytes(head + words * 8, bytes.len()))
}
