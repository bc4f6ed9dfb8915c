//! Indexes striped over several disks: what is missing, swapped, cut, foreign or stale is named; what is
//! moved is found; what is replaced goes; and the load is even.

mod balance;
mod disks;
mod life;
mod spread;
mod swaps;
