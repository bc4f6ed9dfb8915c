//! Proximity graphs in memory, which several families build and search: vectors with links to near vectors.
//!
//! * `walk` is the greedy search (DiskANN, algorithm 1), and `adjacency` has the lists of a graph that grows;
//! * `insert` links one vector, `prune` chooses its links (DiskANN, algorithm 2), and `repair` makes every
//!   vector reachable;
//! * `grow` inserts all vectors: in passes, in `rounds` that any number of threads repeats exactly, or with a
//!   graphics card that finds the `candidates`.
//!
//! A family decides what a graph is over (vectors, centroids, a partition), and how it is stored.

pub(crate) mod adjacency;
mod candidates;
pub(crate) mod grow;
pub(crate) mod insert;
pub(crate) mod options;
mod prune;
pub(crate) mod repair;
mod rounds;
pub(crate) mod walk;
