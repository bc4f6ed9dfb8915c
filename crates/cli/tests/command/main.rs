//! The command `bathyal`, run as a user runs it: its answers, its messages, its exit codes.

mod advise;
mod answers;
mod audit;
mod bad_index;
mod bad_usage;
mod bad_vectors;
mod bench;
mod calibrate;
mod changes;
mod collection;
mod contradictions;
mod elements;
mod errors;
mod generated;
mod get;
mod harness;
mod interrupted;
mod listed;
mod mapped;
mod meaningless;
mod memory;
#[cfg(target_os = "linux")]
mod memory_node;
mod neighbors;
mod program;
mod ratio;
mod remove;
#[cfg(unix)]
mod serve;
mod stripes;
mod words;
