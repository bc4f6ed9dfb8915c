//! Collections: rows with ids of the user's own, vectors and metadata, which change all the time, are asked with conditions, and
//! survive whatever happens to the process or the machine.
//!
//! A collection is a folder or a prefix of a bucket. What was written long ago is in *segments* that never change: an index of
//! any family for each field of vectors, and ids and metadata beside it. What was written since is in a *log*, and in memory.
//! A *version* names the segments and what of them is deleted; whoever reads holds one version, and what the log says beyond it.

mod bits;
mod caught;
mod collection;
pub mod error;
pub mod exchange;
mod filter;
pub mod ids;
mod listing;
mod log;
mod many;
mod memory;
mod options;
pub mod place;
#[cfg(any(test, feature = "fuzzing"))]
pub mod readers;
mod repair;
pub mod rows;
pub mod schema;
mod seal;
mod search;
mod segment;
mod snapshot;
mod state;
mod together;
mod version;
mod write;

pub use bathyal_store::Durability;
pub use collection::{Collection, Description, SegmentDescription, is_collection};
pub use error::CollectionError;
pub use filter::{BoundFilter, Filter, FilterError};
pub use ids::{Id, IdKind, Ids, MAX_ID_BYTES};
pub use listing::{Contents, Listed, listing};
pub use many::{FoundInMany, search_many};
pub use options::{CollectionOptions, DEFAULT_WRITE_MEMORY_BYTES};
pub use place::Place;
pub use repair::{Gap, LostBatches, LostId, RepairOptions, Repaired, RepairedSegment};
pub use rows::Rows;
pub use schema::{Column, ColumnKind, ID_COLUMN, Schema, VectorField};
pub use search::{Found, PartPlan, Question};
pub use snapshot::{Fetch, Gotten, Scan, Snapshot};
pub use state::Fetched;
pub use write::{CompactOptions, Compacted, CopiedCollection, Written, WrittenBytes};
