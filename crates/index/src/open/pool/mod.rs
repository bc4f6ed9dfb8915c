//! One pool of search threads for all open indexes of a process, used by any number of callers.
//!
//! A [`Job`] is the request of one caller: one query or a batch. It is sent to as many workers as it may use.
//! A worker has an engine for each index ([`PoolClient`]) that it works for, and takes the next query from
//! its jobs in turn. So a lone query does not wait behind a batch, and the queries of a hundred callers are
//! in flight together. [`PendingJob`] is the future of a job.

mod client;
mod context;
mod counters;
mod inbox;
mod job;
mod passes;
mod pending;
mod queries;
mod runner;
mod search_memory;
mod semaphore;
mod spare_engines;
mod standby;
mod threads;
mod worker;

pub(super) use client::PoolClient;
pub(super) use context::JobContext;
pub(super) use counters::LATENCY_BOUNDS_US;
pub(super) use job::{AnsweredQuery, Answers, Job, Scratch};
pub(super) use passes::Passes;
pub(super) use pending::PendingJob;
pub(super) use queries::{RangePlan, RawQueries};
pub use search_memory::SearchMemory;
pub(super) use standby::Standby;
pub(super) use threads::{BorrowedEngine, Pool, cores, process};
