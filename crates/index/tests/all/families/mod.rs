//! What every index family keeps to, in every layout and on every tier: one suite, whatever holds the vectors.
//!
//! A family joins by its lines in [`kinds::KINDS`], a tier by a line in [`places::PLACES`].

mod answers;
mod back;
mod budgets;
mod calibrations;
mod counters;
mod duplicates;
mod effort;
mod faults;
mod kinds;
mod odd_data;
mod places;
mod smaller;
mod soak;
mod stops;
mod striped;
