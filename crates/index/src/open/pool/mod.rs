//! One pool of search threads for all open indexes of a process, fed query by query by any number of callers.
//!
//! A [`Job`] is what one caller asks: one query or a batch. It goes to as many workers as it may use. A worker has an engine
//! for each index ([`Tenant`]) that it works for, and takes the next query from its jobs in turn, so a lone query does not
//! wait behind a batch, and the queries of a hundred callers are in flight together. [`Pending`] is a job's future.

mod asked;
mod counters;
mod desk;
mod gate;
mod job;
mod known;
mod memory;
mod pending;
mod post;
mod spare;
mod standby;
mod tenant;
mod threads;
mod worker;

pub(super) use asked::{RangePlan, RawQueries};
pub(super) use counters::LATENCY_BOUNDS_US;
pub(super) use job::{Answers, Job, Scratch};
pub(super) use known::Known;
pub use memory::SearchMemory;
pub(super) use pending::Pending;
pub(super) use standby::Standby;
pub(super) use tenant::Tenant;
pub(super) use threads::{Lent, Pool, cores, process};
