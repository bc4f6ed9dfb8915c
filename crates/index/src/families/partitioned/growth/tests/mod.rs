//! Writers and readers of the same partitions, step by step in random order, some of which are killed: whatever they have seen is
//! what one after the other could have seen.

mod history;
mod schedules;
mod simulated_memory;
