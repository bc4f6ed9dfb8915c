//! Runs writers and readers of the same partitions step by step in random order, and kills some of them. The
//! observations must be linearizable.

mod history;
mod schedules;
mod simulated_memory;
