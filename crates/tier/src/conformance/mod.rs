//! One suite of checks that every backend and every layer passes.
//!
//! [`check`] makes tiers over bytes of its own choosing and looks at them from both sides: at their queues,
//! read by read ([`crate::Queue`]), and through the engine. It returns the first breach instead of panicking,
//! so that a backend outside this crate can run it too.

mod changes;
mod queries;
mod queues;

use crate::backend::sim::random::mix;
use crate::contract::Tier;
use crate::error::{RunError, TierError};
use std::sync::Arc;

/// Length of the tiers that most checks run on: large enough for reads of 1 MiB, and no multiple of anything.
const LEN: usize = (3 << 20) + 777;

/// Makes a tier over the given bytes.
pub type Make<'a> = &'a dyn Fn(Vec<u8>) -> Arc<dyn Tier>;

/// Makes a tier over the given bytes of which every read that touches the byte at the given offset fails.
pub type MakeFailing<'a> = &'a dyn Fn(Vec<u8>, u64) -> Arc<dyn Tier>;

/// What the tier under test can be made to do, beyond what every tier must.
#[derive(Clone, Copy, Default)]
pub struct Capabilities<'a> {
    /// Makes a tier with a damaged place, where the backend can.
    pub failing: Option<MakeFailing<'a>>,
}

/// The first breach of the contract that the suite found.
#[derive(Debug, thiserror::Error)]
#[error("{check}: {what}")]
pub struct Failure {
    /// The check's name.
    pub check: &'static str,
    /// What was expected and what was seen.
    pub what: String,
}

/// What a single check returns.
type Outcome = Result<(), Breach>;

/// Why a check failed.
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

/// Which part of the queries of a check are made.
#[derive(Clone, Copy)]
struct Share {
    /// One in so many.
    one_in: u64,
}

impl Share {
    /// The share of `n` queries, and one at least.
    fn of(self, n: u64) -> u64 {
        n.div_ceil(self.one_in)
    }
}

/// Runs the whole suite on tiers made by `make`. Takes a second or so on a fast tier.
pub fn check(make: Make<'_>, capabilities: Capabilities<'_>) -> Result<(), Failure> {
    check_share(make, capabilities, Share { one_in: 1 })
}

/// Runs the whole suite with fewer queries, on tiers whose reads take milliseconds.
pub fn check_far(make: Make<'_>, capabilities: Capabilities<'_>) -> Result<(), Failure> {
    check_share(make, capabilities, Share { one_in: 8 })
}

fn check_share(make: Make<'_>, capabilities: Capabilities<'_>, share: Share) -> Result<(), Failure> {
    let tier = make(content(LEN));
    type Check = fn(&Arc<dyn Tier>) -> Outcome;
    let of_queues: [(&'static str, Check); 11] = [
        ("profile", queues::profile),
        ("ids and bytes", queues::ids_and_bytes),
        ("the end of the tier", queues::end_of_tier),
        ("back-pressure", queues::back_pressure),
        ("nothing to do", queues::nothing_to_do),
        ("reaping without waiting", queues::reap_without_wait),
        ("a wait that is ended", queues::woken),
        ("a queue dropped in flight", queues::dropped_in_flight),
        ("reads that nobody wants any more", queues::given_up),
        ("bytes in place", queues::mapped),
        ("concurrent queues", queues::concurrent),
    ];
    for (name, run) in of_queues {
        run(&tier).map_err(|Breach(what)| Failure { check: name, what })?;
    }
    type QueryCheck = fn(&Arc<dyn Tier>, Share) -> Outcome;
    let of_queries: [(&'static str, QueryCheck); 7] = [
        ("dependent reads", queries::dependent_reads),
        ("large and unaligned spans", queries::large_spans),
        ("the caller's own memory", queries::into_regions),
        ("streams", queries::streams),
        ("dropped futures", queries::dropped_futures),
        ("cancelled runs", queries::cancelled_runs),
        ("more reads than depth", queries::more_reads_than_depth),
    ];
    for (name, run) in of_queries {
        run(&tier, share).map_err(|Breach(what)| Failure { check: name, what })?;
    }
    if tier.writable().is_some() {
        let checks: [(&'static str, Check); 4] = [
            ("writes", changes::writes),
            ("numbers changed as one step", changes::numbers),
            ("linked operations", changes::chains),
            ("chains that fail", changes::broken_chains),
        ];
        for (name, run) in checks {
            // Each on bytes that nobody has changed.
            run(&make(content(LEN))).map_err(|Breach(what)| Failure { check: name, what })?;
        }
    }
    drop(tier);
    let failed = |check| move |Breach(what)| Failure { check, what };
    queries::tiny_tiers(make).map_err(failed("tiny tiers"))?;
    if let Some(make) = capabilities.failing {
        queues::damaged(make).map_err(failed("errors in the middle of a batch"))?;
        queries::damaged(make).map_err(failed("errors in the middle of a query"))?;
    }
    Ok(())
}

/// `len` bytes of which every eight tell where they lie.
pub fn content(len: usize) -> Vec<u8> {
    (0..len.div_ceil(8)).flat_map(|i| word(i as u64).to_le_bytes()).take(len).collect()
}

fn word(i: u64) -> u64 {
    mix(i.wrapping_add(0x5EED))
}

/// The first place at which `bytes` differ from the content at `offset`.
fn first_difference(offset: u64, bytes: &[u8]) -> Option<u64> {
    let byte = |at: u64| word(at / 8).to_le_bytes()[(at % 8) as usize];
    let slow = |from: usize, to: usize| {
        (from..to).map(|i| (offset + i as u64, bytes[i])).find(|(at, b)| byte(*at) != *b).map(|(at, _)| at)
    };
    // Whole words in the middle are compared as words: most of the suite's time goes by here.
    let head = ((8 - offset % 8) % 8).min(bytes.len() as u64) as usize;
    let words = (bytes.len() - head) / 8;
    let first = (offset + head as u64) / 8;
    let middle = bytes[head..][..words * 8].chunks_exact(8);
    let wrong = middle.zip(first..).position(|(bytes, i)| bytes != word(i).to_le_bytes());
    slow(0, head)
        .or_else(|| wrong.and_then(|i| slow(head + i * 8, head + i * 8 + 8)))
        .or_else(|| slow(head + words * 8, bytes.len()))
}
