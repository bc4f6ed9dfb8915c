//! Predicts indexes before they are built: their size, memory and speed, from a sample of the vectors and the
//! profile of each device ([`advise`]).
//!
//! * [`request`]: what is asked for, checked once; [`AdviceTier::at`] measures a device;
//! * [`sample`], [`statistics`]: rows of the file, and properties of the data that explain a prediction;
//! * [`assumed`]: vectors that stand for data that does not exist yet;
//! * [`candidates`]: the indexes that are considered;
//! * [`pilot`], [`pilot_counters`], [`pilot_filters`]: small indexes of each candidate, built from nested
//!   samples and measured;
//! * [`law`]: the growth of a counter with the number of vectors;
//! * [`prediction`], [`filtered`], [`updates`]: what the laws and the plan of the build say of the whole set;
//! * [`ranking`]: the order of the candidates, and the reasons of those that are left out;
//! * [`page`], [`front_plot`]: the answer as a page and as a plot;
//! * [`plan_file`], [`comparison`], [`explained`]: a prediction that is kept, and its comparison with the
//!   built index and with explained queries;
//! * [`default_family`]: the family of a build that names none.

mod advice;
pub mod assumed;
mod available_memory;
pub mod candidates;
pub mod comparison;
mod core_share;
mod costs;
mod counters;
pub mod default_family;
mod demands;
pub mod explained;
pub mod filtered;
pub mod front_plot;
mod interval;
pub mod law;
mod memory_law;
mod memory_speed;
pub mod page;
pub mod pilot;
pub mod pilot_counters;
pub mod pilot_filters;
mod pilot_place;
mod place;
pub mod plan_file;
pub mod prediction;
pub mod ranking;
mod ratio;
pub mod request;
pub mod sample;
mod segments;
mod shape;
pub mod statistics;
pub mod updates;
mod widening;

pub use advice::{Advice, AdvisedDevice, advise};
pub use assumed::AssumedData;
pub use candidates::AdvisedOptions;
pub use comparison::{ComparedNumber, PlanComparison, compare_with_plan};
pub use default_family::{ChoiceCandidate, FamilyChoice};
pub use explained::{ExplainedByPlan, PlanDeviation};
pub use filtered::{FilterPlan, FilteredPrediction};
pub use interval::Interval;
pub use page::PageFormat;
pub use place::{AdviceTier, PlaceKind, StoreCosts};
pub use plan_file::{PLAN_VERSION, PlanFile};
pub use prediction::{IndexPrediction, PredictedLoad};
pub use ranking::{FrontPoint, RankedAdvice, RejectedCandidate};
pub use request::{AdviceOptions, AdvicePrices, AdviceRequest, IndexLimits, SamplePace};
pub use shape::VectorShape;
pub use statistics::DataStatistics;
pub use updates::UpdatesPrediction;
