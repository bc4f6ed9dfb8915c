//! Collections: rows with ids that the user chooses, vectors and metadata. Rows change at any time, searches
//! can filter them, and acknowledged writes survive a crash of the process or the machine.
//!
//! A collection is a folder, or a prefix in a bucket. Older rows are in *segments*, which never change: for
//! each vector field an index of any family, and the ids and metadata. Newer rows are in a *log* and in
//! memory. A *version* names the segments and their deleted rows. A reader holds one version, together with
//! the changes that the log adds to it.

mod bits;
mod calibration;
mod catch_panic;
mod collection;
mod counters;
mod description;
pub mod error;
pub mod exchange;
mod filter;
pub mod ids;
mod listing;
pub mod location;
mod log;
mod look;
mod many;
mod memtable;
mod options;
mod parallel;
#[cfg(any(test, feature = "fuzzing"))]
pub mod readers;
mod removal;
mod repair;
pub mod rows;
pub mod schema;
mod seal;
mod search;
mod segment;
mod snapshot;
mod state;
mod stats;
mod version;
mod write;

pub use bathyal_index::cost::merging::DEFAULT_WRITE_MEMORY_BYTES;
pub use bathyal_store::Durability;
pub use collection::{Collection, is_collection};
pub use counters::SearchCounts;
pub use description::{CalibrationDescription, Description, SegmentDescription};
pub use error::CollectionError;
pub use filter::{BoundFilter, Filter, FilterError};
pub use ids::{Id, IdKind, Ids, MAX_ID_BYTES};
pub use listing::{EntryKind, ListingEntry, listing};
pub use location::CollectionLocation;
pub use many::{FoundInMany, search_many};
pub use options::CollectionOptions;
pub use removal::{Removal, RemovedCollection, RemovedKind, removable, remove};
pub use repair::{Gap, LostBatches, LostId, RepairOptions, RepairReport, RepairedSegment};
pub use rows::Rows;
pub use schema::{Column, ColumnKind, ID_COLUMN, Schema, VectorField};
pub use search::{
    CollectionAuditRequest, ExplainedSearch, ExplainedSegment, FilteredSegment, FoundRows, Judgement,
    PartPlan, SearchRequest, SegmentCurves, SegmentExplanation,
};
pub use snapshot::{Projection, RowsById, SampledRows, Scan, Snapshot};
pub use state::FetchedRows;
pub use stats::CollectionStats;
pub use write::{
    CalibratedRecalls, CalibrationReport, CollectionCalibration, CompactOptions, CompactionReport,
    CopiedCollection, Written, WrittenBytes,
};
