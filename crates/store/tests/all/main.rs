//! Tests of the local store and the store in memory through their public interface.

mod conformance;
mod local;
mod removal;
mod sweep;
