//! Reproductions of the papers' figures on tiny data: the measurements and their records. `bench/tests` tests
//! the reports made from records.

mod cloud;
mod command_line;
mod d_hnsw;
mod e2lsh;
mod gustann;
mod harness;
#[path = "../../../cli/tests/command/program.rs"]
mod program;
mod second_tier;
