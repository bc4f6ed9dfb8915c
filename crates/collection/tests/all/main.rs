//! Collections from outside. One program, since each would link everything again.
//!
//! `tenants` stands beside it, since it limits the files that its process may open and counts its threads, and `engines`, since it
//! counts what the threads that search have open.

mod exchange;
mod lone;
mod model;
mod ranks;
mod rewriting;
mod segments;
mod server;
mod versions;
