//! Reproductions of the papers' figures, on tiny data: what is measured, and what the records hold. What reports make of the
//! records is tested in `bench/tests`.

mod cloud;
mod d_hnsw;
mod e2lsh;
mod gustann;
mod said;
mod second_tier;
mod workshop;
