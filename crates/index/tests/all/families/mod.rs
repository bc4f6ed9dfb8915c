//! The contract of every index family, in every layout and on every tier.
//!
//! Add a family by its lines in [`kinds::KINDS`], and a tier by a line in [`places::PLACES`].

mod answers;
mod audits;
mod back;
mod budgets;
mod calibrations;
mod copies;
mod counters;
mod duplicates;
mod effort;
mod faults;
mod kinds;
mod live_audits;
mod odd_data;
mod passes;
mod places;
mod refusals;
mod smaller;
mod soak;
mod stops;
mod striped;
