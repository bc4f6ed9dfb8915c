//! Tiers and the engine: bytes only, no vectors.
//!
//! * [`Tier`] and [`Queue`]: the contract that every device fulfils (module [`contract`]).
//! * [`Engine`]: one thread, many queries; each is a plain `async fn` that suspends at [`Cx::read`].
//! * [`backend`]: DRAM, files through io_uring or positioned reads, mapped memory (CXL, NVM, huge pages), a
//!   simulated device.
//! * [`layer`]: tracing, striping, a page cache, an emulated device.
//! * [`LayerTier`] and [`LayerQueue`]: a layer of your own that forwards what it does not change.
//! * [`probe`]: measures a device.
//! * [`conformance`]: the checks that every backend and every layer passes.

pub mod backend;
mod buffers;
mod complete;
pub mod conformance;
pub mod contract;
pub mod engine;
pub mod error;
pub mod forward;
pub mod lanes;
mod latencies;
pub mod layer;
pub mod memory;
pub mod numa;
pub mod probe;
pub mod process;
mod processor_time;
pub mod wake_socket;
mod zeros;

pub use buffers::BUFFER_ALIGNMENT;
pub use complete::{complete_all, complete_operations, complete_reads};
pub use contract::{
    Action, Completion, Operation, Queue, Read, ReadRate, Span, Tier, TierProfile, WriteQueue, WriteTier,
};
pub use engine::{
    Batch, Control, Cx, Engine, EngineOptions, EngineStats, EngineWaker, NextQuery, ParkedEngine, Region,
    RegionId, RunningQueries, Step, Stream, TaskWaker, thread_waker,
};
pub use error::{FaultKind, ReadError, ReadFault, RunError, TierError};
pub use forward::{LayerQueue, LayerTier};
pub use memory::{advise_huge_pages, prefetch};
pub use processor_time::{process_ns, thread_ns};
