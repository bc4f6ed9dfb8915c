//! Collections: rows with ids of the user's own, vectors and metadata, which change all the time, are asked with conditions, and
//! survive whatever happens to the process or the machine.
//!
//! A collection is a folder or a prefix of a bucket. What was written long ago is in *segments* that never change: an index of
//! any family for each field of vectors, and ids and metadata beside it. What was written since is in a *log*, and in memory.
//! A *version* names the segments and what of them is deleted; whoever reads holds one version, and what the log says beyond it.

mod bits;
mod collection;
pub mod error;
pub mod exchange;
mod filter;
pub mod ids;
mod log;
mod place;
pub mod rows;
pub mod schema;
mod seal;
mod segment;
mod version;
mod write;

pub use collection::{Collection, Description, SegmentDescription, is_collection};
pub use error::CollectionError;
pub use filter::{BoundFilter, Filter, FilterError};
pub use ids::{Id, IdKind, Ids};
pub use rows::Rows;
pub use schema::{Column, ColumnKind, ID_COLUMN, Schema, VectorField};
pub use search::{Found, PartPlan, Question};
pub use snapshot::{Fetch, Gotten, Scan, Snapshot};
pub use state::Fetched;
pub use write::{CompactOptions, Compacted, CopiedCollection, Written};
