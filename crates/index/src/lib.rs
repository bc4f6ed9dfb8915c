//! The index families with their builders and searchers, their file formats, and the open index.
//!
//! * [`build()`] builds an index from a [`bathyal_vectors::VectorFile`];
//! * [`Index`] opens and searches an index; [`verify`] checks one and [`inspect`] describes one;
//! * [`families`] lists the families; [`family`] is the interface that a family implements.

// Some code that families share is used by only one of them, or by none that a reduced build has.
#![cfg_attr(
    not(all(
        feature = "cluster",
        feature = "graph",
        feature = "spann",
        feature = "flat",
        feature = "lsh",
        feature = "partitioned"
    )),
    allow(dead_code)
)]

mod allocate;
pub mod audit;
pub mod build;
pub mod calibrate;
pub mod cost;
pub mod error;
mod exact;
mod extent;
pub mod families;
pub mod family;
mod form;
pub mod format;
pub mod locate;
pub mod open;
mod partition;
mod proximity;
mod query;
pub mod ranges;
mod removal;

pub use audit::{AuditOptions, AuditStats, OnMiss, RecallEstimate};
pub use bathyal_object::{CacheStatus, PruneOptions, PruneReport, StoreOptions};
pub use bathyal_store::{COUNTED_ROUNDS, CacheUse, Requests, round_name};
pub use build::options::{
    BuildOptions, BuildReport, DEFAULT_SEED, FamilyOptions, GivenOptions, MOST_CALIBRATION_QUERIES,
    MOST_PLAN_BYTES, OptionDoc, StripeOptions,
};
pub use build::plan::{BuildPlan, MemoryPlan, PlannedFile, PlannedStage, plan_build, plan_shape};
pub use build::{build, build_in};
pub use calibrate::choice::{CalibrationChoice, DEFAULT_CALIBRATION, MOST_CHOSEN, NameHash, NameHashes};
pub use calibrate::given_queries::{EffortPoint, QueryCalibration};
pub use calibrate::log::{BUILD_NAME, check_name as check_calibration_name};
pub use calibrate::reach::{Calibrated, QueryLengths, Reach};
pub use error::IndexError;
pub use exact::exact_neighbors_on;
pub use extent::check_vectors;
#[cfg(feature = "cluster")]
pub use families::cluster::ClusterOptions;
#[cfg(feature = "graph")]
pub use families::graph::{
    GraphLayoutChoice, GraphOptions, LayoutConversion, convert_layout, convert_layout_in,
};
#[cfg(feature = "partitioned")]
pub use families::partitioned::PartitionedOptions;
#[cfg(feature = "spann")]
pub use families::spann::SpannOptions;
pub use family::{Capability, Description, HistogramBar, MemorySplit, VerifyReport};
pub use format::postings::PostingLayout;
pub use format::stored::{Loss, StoreAs, StoredBefore, StoredEntry};
pub use locate::{IndexLocation, encoded_keys, find, holding};
pub use open::{
    AuditReport, AuditRequest, AuditedRecall, BatchExplanation, CalibrateOptions, CalibrateReport,
    ChangeCounts, CompactOptions, Compaction, CopiedCalibrations, CopyOptions, CopyReport, CurvePoint,
    DEFAULT_K, DEFAULT_RECALL, Effort, Explanation, FillOptions, FillReport, Index, IndexStats,
    InspectReport, MAX_SEARCH_LIST, MOST_AUDITED, MOST_QUERIES, ManyResult, MergedAnswers, NamedEfforts,
    Numa, OpenOptions, PhaseTime, RangeOptions, RangeResult, RecallBefore, RecallCurve, SalvageReport,
    SearchMemory, SearchOptions, SearchRequest, SearchResult, Searching, StoreShare, StoredVectors,
    StripeConversion, StripeConversionOptions, TierChoice, WarmReport, compact, compact_in, convert_stripes,
    convert_stripes_in, copy, copy_calibrations_named, few_audited, few_measured, fill, inspect, inspect_in,
    is_loss, probe_store, salvage_vectors, sample_of, search_many, verify, verify_in, with_control,
};
pub use query::{
    Counter, DEFAULT_BEAM_WIDTH, FAR_BEAM_WIDTH, MOST_OWN_COUNTERS, NO_ID, OwnCosts, OwnTotals, QueryStats,
    RowSet, SearchMode, SearchTotals, WithinPlan,
};
pub use removal::{RemovedIndex, removable, remove};
