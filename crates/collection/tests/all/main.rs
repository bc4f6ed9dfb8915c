//! Collections from outside. One program, since each would link everything again.
//!
//! `tenants` stands beside it: it limits the files that its process may open, and counts its threads.

mod engines;
mod exchange;
mod lone;
mod model;
mod ranks;
mod rewriting;
mod segments;
mod server;
mod versions;
