//! Vector search for indexes that do not fit in DRAM.
//!
//! An index is stored in files (or in another [`store`]) and searched in place, with many queries interleaved
//! on each thread. A search takes the recall that it should reach instead of low-level parameters.
//!
//! ```
//! use bathyal::{BuildOptions, Control, Effort, Element, Index, OpenOptions};
//! use bathyal::{SearchOptions, Silent, VectorFile};
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
//! assert_eq!(found.ids.len(), 1000 * 3); // queries x k, nearest first; `found.distances` has the same shape
//! # Ok(())
//! # }
//! ```
//!
//! # Contents
//!
//! | task | items |
//! |---|---|
//! | build an index of some family, within a memory budget | [`build()`], [`BuildOptions`], [`families`] |
//! | open an index, within a memory budget | [`Index::open`], [`OpenOptions`] |
//! | open an index in files or memory, or at an address | [`TierChoice`], [`StoreOptions`] |
//! | read an index through a tier of your own | [`tier`], [`OpenOptions::wrap`], [`WrapTier`] |
//! | choose an index before it is built | [`advise`] |
//! | compute memory and files of a build before it begins | [`plan_build`], [`plan_shape`], [`BuildPlan`] |
//! | search a batch, or single queries asynchronously | [`Index::search`], [`Index::search_async`] |
//! | search within a distance, or in several indexes | [`Index::range_search`], [`search_many`] |
//! | search a subset of the rows, at a recall | [`Index::search_within`], [`RowSet`], [`WithinPlan`] |
//! | read vectors by their ids | [`Index::vectors`], [`Index::ids`], [`StoredVectors`] |
//! | cancel an operation, or follow its progress | [`Control`], [`Progress`] |
//! | search on a graphics card, else on this processor | [`OpenOptions::on`], [`DeviceChoice`] |
//! | build with a graphics card, or see the one in use | [`BuildOptions::card`], [`Index::card`] |
//! | store f32 vectors smaller, and measure the loss | [`BuildOptions::store_as`], [`StoreAs`], [`Loss`] |
//! | stripe an index over disks, or undo it | [`BuildOptions::stripe`], [`convert_stripes`] |
//! | insert and delete vectors, and merge the changes | [`Index::insert`], [`Index::delete`], [`compact`] |
//! | copy an index to another folder, store or node; list indexes | [`copy`], [`store`] |
//! | remove an index, with all its files and parts | [`remove`], [`removable`] |
//! | describe, check or salvage an index | [`inspect`], [`verify`], [`salvage_vectors`] |
//! | compute exact neighbours and recall | [`groundtruth`] |
//! | keep indexes elsewhere than in folders | [`store`] |
//! | keep rows with your own ids and metadata, which change, and search them with filters | [`collection`] |
//!
//! Vectors are [`Element::F32`], `F16`, `U8` or `I8`, compared by [`Metric::L2`] (squared), inner product
//! (negated) or cosine; a smaller distance always means a nearer vector. Ids are row numbers of the data, 32
//! bits.
//!
//! Shared types such as [`Index`] are `Send + Sync`. No input causes a panic: an [`Error`] says what is
//! wrong, where, and what to do.
//!
//! # Features
//!
//! All features are on by default. A build needs a family of indexes at least. With nothing else, the crate
//! compiles some 40 packages; with all features, some 220.
//!
//! | feature | purpose | packages alone |
//! |---|---|---|
//! | `families` | all families of indexes | 40 |
//! | `cluster`, `graph`, `spann`, `flat`, `lsh`, `partitioned` | one family each | 40 |
//! | `collection` | [`collection`]: rows with ids and metadata; enables `cluster` and `flat` | 100 |
//! | `object` | indexes and collections in object stores: `s3://`, `gs://`, `az://`, `memory://` | 177 |
//! | `remote` | indexes in the memory of nodes: `remote://` | 67 |
//! | `gpu` | searches and builds on NVIDIA graphics cards | 47 |
//!
//! A call that needs a missing feature, or an index of a missing family, returns an error that names the
//! feature.
//!
//! The examples of this crate (`cargo run --release -p bathyal --example words -- ocean`) are complete
//! programs.

#[cfg(feature = "collection")]
pub mod collection;

/// Predictions of indexes before they are built: size, memory and speed, from a sample of the vectors.
pub mod advise {
    pub use bathyal_advise::*;
}

pub use bathyal_gpu::{Card, DeviceChoice, GpuError};
pub use bathyal_index::build::options::{FamilyOptions, GivenOptions, OptionDoc, StripeOptions};
pub use bathyal_index::families;
pub use bathyal_index::family::{
    Arrival, Capability, Description, Fact, Family, HistogramBar, MemorySplit, VerifyReport,
};
pub use bathyal_index::open::{
    CacheStats, CardStats, LatencyBar, MemoryPart, PartReport, PartStats, PhaseTime, Place, Predicted,
    StoreShare, WrapTier,
};
pub use bathyal_index::{
    BatchExplanation, BuildOptions, BuildPlan, BuildReport, CalibrateOptions, CalibrateReport,
    CalibrationChoice, ChangeCounts, CompactOptions, Compaction, CopyOptions, CopyReport, Counter, Effort,
    Explanation, FillOptions, FillReport, Index, IndexError as Error, IndexStats, InspectReport, Loss,
    ManyResult, MemoryPlan, NO_ID, NamedEfforts, Numa, OpenOptions, OwnCosts, OwnTotals, PlannedFile,
    PlannedStage, QueryCalibration, QueryStats, RangeOptions, RangeResult, RowSet, SalvageReport,
    SearchMemory, SearchMode, SearchOptions, SearchRequest, SearchResult, SearchTotals, Searching, StoreAs,
    StoreOptions, StoredEntry, StoredVectors, StripeConversion, StripeConversionOptions, TierChoice,
    WarmReport, WithinPlan, build, compact, convert_stripes, copy, fill, inspect, plan_build, plan_shape,
    probe_store, removable, remove, salvage_vectors, search_many, verify,
};
#[cfg(feature = "graph")]
pub use bathyal_index::{LayoutConversion, convert_layout};
pub use bathyal_kernels::{Element, Metric};
pub use bathyal_tier::Control;
pub use bathyal_vectors::progress::{Progress, Silent};
pub use bathyal_vectors::{FileFormat, IdFile, VectorError, VectorFile, VectorWriter, write_ids};

/// Exact neighbours, recall, and the overall ratio of distances.
///
/// ```
/// use bathyal::groundtruth::{OverallRatio, exact_neighbors, recall};
/// use bathyal::{Element, Metric, Silent, VectorFile};
///
/// let data = VectorFile::from_rows(Element::U8, 2, vec![0, 0, 9, 9, 1, 1]).unwrap();
/// let query = VectorFile::from_rows(Element::U8, 2, vec![2, 2]).unwrap();
/// let truth = exact_neighbors(&data, &query, Metric::L2, 2, None, &Silent).unwrap();
/// assert_eq!(truth.ids(0), [2, 0]);
/// // One of the two neighbours was found.
/// assert_eq!(recall(&truth, &[2, 1], 2, 1).unwrap(), 0.5);
/// // The row found instead of the other, at a squared distance of 98, is 3.5 times as far away.
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

/// Stores of indexes: named generations of objects, each published as a whole or not at all.
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
///
/// Indexes in folders and at addresses (`s3://`, `remote://`) are listed and deleted through the store that
/// contains them ([`remove`] also keeps files of others in the folder, and removes leftovers):
///
/// ```
/// use bathyal::store::within;
/// use bathyal::{BuildOptions, Element, Silent, StoreOptions, VectorFile};
///
/// # fn main() -> Result<(), bathyal::Error> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let folder = folder.path();
/// let data = VectorFile::from_rows(Element::U8, 4, (0..=255).cycle().take(4 * 300).collect())?;
/// bathyal::build(&data, &folder.join("mine"), &BuildOptions::default(), &Silent)?;
/// let place = within(folder, &StoreOptions::default())?;
/// assert_eq!(place.names()?, ["mine"]);
/// place.store().delete("mine")?;
/// assert!(place.names()?.is_empty());
/// # Ok(())
/// # }
/// ```
pub mod store {
    #[cfg(feature = "graph")]
    pub use bathyal_index::convert_layout_in;
    pub use bathyal_index::locate::within;
    pub use bathyal_index::{
        CacheStatus, IndexLocation, PruneOptions, PruneReport, build_in, compact_in, convert_stripes_in,
        find, holding, inspect_in, verify_in,
    };
    pub use bathyal_store::local::LocalStore;
    pub use bathyal_store::memory::MemoryStore;
    pub use bathyal_store::{
        Append, Backing, CacheUse, Draft, Durability, Generation, Log, LogWriter, Object, ProgressFn,
        Replace, Requests, Store, StoreError, Traffic,
    };
}

/// Tiers: spans of bytes that searches read. [`OpenOptions::wrap`] puts a tier of your own in the place of an
/// index's tier, or around it; the example `own_tier` does so.
///
/// Every tier must pass [`conformance`](tier::conformance), which tests can call.
pub mod tier {
    pub use bathyal_tier::backend;
    pub use bathyal_tier::conformance;
    pub use bathyal_tier::layer;
    pub use bathyal_tier::probe;
    pub use bathyal_tier::{
        Action, Completion, FaultKind, LayerQueue, LayerTier, Operation, Queue, Read, ReadError, ReadFault,
        RunError, Span, Tier, TierError, TierProfile, WriteQueue, WriteTier,
    };
}

/// Compiles the Rust code of the README as a documentation test.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
}
