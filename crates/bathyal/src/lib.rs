//! Vector search for indexes that do not fit in DRAM.
//!
//! An index lives in files (or in another [`store`]), is searched where it lies with many queries interleaved on each thread,
//! and is asked for recall, not for knobs.
//!
//! ```
//! use bathyal::{BuildOptions, Control, Effort, Element, Index, OpenOptions, SearchOptions, Silent, VectorFile};
//!
//! # fn main() -> Result<(), bathyal::Error> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("my.index");
//! // 1,000 vectors of 16 f32, row-major; `VectorFile::open("base.fbin")` maps a file of any size instead.
//! let values = (0..16_000).map(|i| (i * i % 97) as f32);
//! let data = VectorFile::from_rows(Element::F32, 16, values.flat_map(f32::to_le_bytes).collect())?;
//!
//! let report = bathyal::build(&data, &path, &BuildOptions::default(), &Silent)?;
//! assert_eq!(report.vectors, 1000);
//!
//! let index = Index::open(&path, &OpenOptions::default())?;
//! let options = SearchOptions { k: 3, effort: Effort::Recall(0.95), ..SearchOptions::default() };
//! let found = index.search(&data, &options, Control::default())?;
//! assert_eq!(found.ids.len(), 1000 * 3); // queries x k, nearest first; `found.distances` beside them
//! # Ok(())
//! # }
//! ```
//!
//! # Where things are
//!
//! | to | see |
//! |---|---|
//! | build an index, within a memory budget, in one of several families | [`build()`], [`BuildOptions`], [`families`] |
//! | open one: in files or memory, within a budget, through a layer of your own | [`Index::open`], [`OpenOptions`], [`TierChoice`] |
//! | know what a build would take and make, before it begins | [`plan_build`], [`BuildPlan`] |
//! | search: a batch, one query of many callers, awaited, within a distance, several indexes at once | [`Index::search`], [`Index::search_async`], [`Index::range_search`], [`search_many`] |
//! | search among some rows only, with the recall that was asked for among these | [`Index::search_within`], [`RowSet`], [`WithinPlan`] |
//! | have vectors back by their ids | [`Index::vectors`], [`Index::ids`], [`StoredVectors`] |
//! | stop what runs, or be told how far it is | [`Control`], [`Progress`] |
//! | have a graphics card search it, and this processor where it fails, or help to build it | [`OpenOptions::on`], [`BuildOptions::card`], [`DeviceChoice`], [`Index::card`] |
//! | store f32 vectors smaller, and know what that costs | [`BuildOptions::store_as`], [`StoreAs`], [`Loss`] |
//! | put an index onto several disks, or back onto one | [`BuildOptions::stripe`], [`convert_stripes`] |
//! | look at an index, or for damage | [`inspect`], [`verify`] |
//! | know what is exact, and how much of it was found | [`groundtruth`] |
//! | keep indexes elsewhere than in folders | [`store`] |
//! | keep rows with ids of your own and metadata, which change, and search them with filters | [`collection`] |
//!
//! Vectors are [`Element::F32`], `F16`, `U8` or `I8`, compared by [`Metric::L2`] (squared), inner product (negated) or
//! cosine: a distance is always smaller where a vector is nearer. Ids are row numbers of the data, 32 bits.
//!
//! Everything here is `Send + Sync` where it is shared (an [`Index`] is), and nothing panics on any input: what is wrong is an
//! [`Error`] that says what, where, and what to do.
//!
//! # Features
//!
//! All are on unless `default-features = false` is said. Without any, the crate compiles some 40 packages, with all of them some 220.
//!
//! | feature | what for | packages alone |
//! |---|---|---|
//! | `collection` | [`collection`]: rows with ids and metadata | 100 |
//! | `object` | indexes and collections in object stores: `s3://`, `gs://`, `az://`, `memory://` | 177 |
//! | `remote` | indexes in the memory of nodes: `remote://` | 67 |
//! | `gpu` | the driver of NVIDIA's graphics cards | 47 |
//!
//! A call that needs a missing feature returns an error that names the feature.
//!
//! The examples of this crate (`cargo run --release -p bathyal --example words -- ocean`) are whole programs.

#[cfg(feature = "collection")]
pub mod collection;

pub use bathyal_gpu::{Card, DeviceChoice, GpuError};
pub use bathyal_index::families;
pub use bathyal_index::{
    BuildOptions, BuildPlan, BuildReport, Description, Effort, Explanation, FamilyOptions, Index,
    IndexError as Error, IndexStats, InspectReport, Loss, ManyResult, MemoryPlan, MemorySplit, NO_ID, Numa,
    OpenOptions, PlannedFile, PlannedStage, QueryStats, RangeOptions, RangeResult, RowSet, SearchMode,
    SearchOptions, SearchResult, SearchTotals, Searching, StoreAs, StoredEntry, StoredVectors,
    StripeConversion, StripeConversionOptions, StripeOptions, TierChoice, VerifyReport, WarmReport,
    WithinPlan, build, convert_stripes, inspect, plan_build, search_many, verify,
};
pub use bathyal_kernels::{Element, Metric};
pub use bathyal_tier::Control;
pub use bathyal_vectors::progress::{Progress, Silent};
pub use bathyal_vectors::{FileFormat, IdFile, VectorError, VectorFile, VectorWriter, write_ids};

/// Exact neighbours, the share of them that a search has found, and how much farther away the rest lies.
///
/// ```
/// use bathyal::groundtruth::{OverallRatio, exact_neighbors, recall};
/// use bathyal::{Element, Metric, Silent, VectorFile};
///
/// let data = VectorFile::from_rows(Element::U8, 2, vec![0, 0, 9, 9, 1, 1]).unwrap();
/// let query = VectorFile::from_rows(Element::U8, 2, vec![2, 2]).unwrap();
/// let truth = exact_neighbors(&data, &query, Metric::L2, 2, None, &Silent).unwrap();
/// assert_eq!(truth.ids(0), [2, 0]);
/// // Of two neighbours one was found.
/// assert_eq!(recall(&truth, &[2, 1], 2, 1).unwrap(), 0.5);
/// // What was found for the other, at a squared distance of 98, lies 3.5 times as far away.
/// let mut ratio = OverallRatio::new(Metric::L2, &truth).unwrap();
/// ratio.add(&truth, &[2, 1], &[2.0, 98.0], 2, 1).unwrap();
/// assert_eq!(ratio.mean(), Some((1.0 + 3.5) / 2.0));
/// ```
pub mod groundtruth {
    pub use bathyal_index::exact_neighbors_on;
    pub use bathyal_vectors::groundtruth::{
        GroundTruthError, MeanRecall, OverallRatio, QueryRecall, exact_neighbors, recall, recall_of_query,
    };
}

/// Where indexes are kept: named generations of objects, published at once or not at all.
///
/// ```
/// use bathyal::store::{MemoryStore, build_in};
/// use bathyal::{BuildOptions, Control, Element, Index, OpenOptions, SearchOptions, Silent, VectorFile};
/// use bathyal::store::Store;
///
/// # fn main() -> Result<(), bathyal::Error> {
/// let data = VectorFile::from_rows(Element::U8, 4, (0..=255).cycle().take(4 * 300).collect())?;
/// let store = MemoryStore::new("memory");
/// build_in(&data, &store, "mine", &BuildOptions::default(), &Silent)?;
/// let index = Index::open_in(store.open("mine")?.as_ref(), &OpenOptions::default(), &Silent)?;
/// assert_eq!(index.search(&data, &SearchOptions::default(), Control::default())?.k, 10);
/// # Ok(())
/// # }
/// ```
pub mod store {
    pub use bathyal_index::{build_in, inspect_in, verify_in};
    pub use bathyal_store::local::LocalStore;
    pub use bathyal_store::memory::MemoryStore;
    pub use bathyal_store::{Generation, Store, StoreError};
}

/// The Rust of the pages that newcomers read, which has to compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
}
