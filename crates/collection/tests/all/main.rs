//! Tests of the public interface. They are one program, because each program would link everything again.
//!
//! `tenants` is separate, because it limits the open files of its process and counts its threads; so is
//! `engines`, because it counts the devices that search threads have open.

mod audits;
mod calibrations;
mod exchange;
mod foreground;
mod lone;
mod look;
mod model;
mod ranks;
mod rewriting;
mod segments;
mod server;
mod versions;
