//! Stores of this machine and in memory, from outside.

mod conformance;
mod local;
mod sweep;
