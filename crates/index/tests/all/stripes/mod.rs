//! Indexes that are striped over several disks. Parts that are missing, exchanged, truncated or of another
//! index are named. Moved parts are found, parts of a replaced index are removed, and the load is even.

mod balance;
mod disks;
mod life;
mod spread;
mod swaps;
