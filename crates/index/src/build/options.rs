//! The options and the report of a build of any family.

use super::plan::FamilyPlan;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::identity::Identity;
use crate::format::stored::{StoreAs, StoredBefore, StoredEntry};
use bathyal_gpu::Card;
use bathyal_kernels::Metric;
use bathyal_object::StoreOptions;
use bathyal_store::stripe::{DEFAULT_STRIPE_BYTES, Striping};
use bathyal_store::{Replace, Store};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

/// The default seed. Any fixed number makes builds repeatable.
pub const DEFAULT_SEED: u64 = 0xba74_17a1;

/// The most queries of a calibration, and the default.
pub const MOST_CALIBRATION_QUERIES: usize = 1000;
/// The most bytes of [`BuildOptions::plan`]. A manifest is read whole by each opening, and has a few
/// kilobytes.
pub const MOST_PLAN_BYTES: usize = 1 << 18;

/// Options of a build.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// The metric.
    pub metric: Metric,
    /// The family with its own options.
    pub family: FamilyOptions,
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// The seed of all random choices. The same seed builds the same index, bit for bit; for a graph only
    /// with one thread.
    pub seed: u64,
    /// Memory that the build may take, in bytes. `None` means no limit.
    pub memory_bytes: Option<u64>,
    /// True to replace an existing index.
    pub overwrite: bool,
    /// The stored form of vectors of f32; `None` stores vectors as they are given. Queries stay f32, and
    /// distances are in the units of the given vectors. The loss is measured by the given vectors and
    /// reported.
    pub store_as: Option<StoreAs>,
    /// The scale and the error of vectors that were stored as `store_as` before, or will be stored again, as
    /// in compactions. Their scale is then one of a nested series, and they are stored as f16 if i8 would
    /// lose more than a fifth of the neighbours. `None` for all other vectors, whose scale is the one that
    /// fits best.
    pub stored_before: Option<StoredBefore>,
    /// Queries for the calibration that resemble later ones; `None` holds out vectors of the data.
    pub calibration: Option<VectorFile>,
    /// The most queries of the calibration, 1 to [`MOST_CALIBRATION_QUERIES`]. Its time grows with them.
    /// Unless queries are given, 30% of them are made from the others. Recall@10 over a thousand queries has
    /// a standard error of about 0.2 percentage points, and over a quarter of them twice that.
    pub calibration_queries: usize,
    /// The disks over which the files that searches read are striped; `None` keeps all files in the index's
    /// folder.
    pub stripe: Option<StripeOptions>,
    /// Options of a remote store, if the index is written to one.
    pub store: StoreOptions,
    /// A graphics card that does a part of the work. The index is the same, bit for bit, with two exceptions:
    /// the host memory for the card reduces a budget, which may divide the data into other parts; and a graph
    /// differs, with equally good answers. `None` uses only the processor.
    pub card: Option<Arc<dyn Card>>,
    /// The plan of an advice, which the manifest of the index keeps for comparisons: a JSON object of up to
    /// [`MOST_PLAN_BYTES`]. It does not change the index. A build that continues a killed one, of which only
    /// the publication is missing, keeps the plan of that one.
    pub plan: Option<Value>,
}

/// The disks over which an index is striped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeOptions {
    /// A folder on each disk, 2 to 64 of them.
    pub folders: Vec<PathBuf>,
    /// Bytes of a unit: a multiple of 4096 up to 64 MB.
    pub stripe_bytes: u32,
}

impl StripeOptions {
    /// Returns a stripe over these folders, in units of [`DEFAULT_STRIPE_BYTES`].
    pub fn over(folders: impl IntoIterator<Item = impl Into<PathBuf>>) -> StripeOptions {
        let folders = folders.into_iter().map(Into::into).collect();
        StripeOptions { folders, stripe_bytes: DEFAULT_STRIPE_BYTES }
    }

    /// Returns the striping of `files`.
    pub(crate) fn striping(&self, files: &[&str]) -> Result<Striping, IndexError> {
        Ok(Striping::new(&self.folders, self.stripe_bytes, files)?)
    }
}

impl BuildOptions {
    /// Returns the default options of a build, with the options of a family.
    pub fn of(family: impl Into<FamilyOptions>) -> BuildOptions {
        BuildOptions {
            metric: Metric::L2,
            family: family.into(),
            threads: 0,
            seed: DEFAULT_SEED,
            memory_bytes: None,
            overwrite: false,
            store_as: None,
            stored_before: None,
            calibration: None,
            calibration_queries: MOST_CALIBRATION_QUERIES,
            stripe: None,
            store: StoreOptions::default(),
            card: None,
            plan: None,
        }
    }

    /// Returns the number of threads to use.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        }
    }
}

/// The options of one family, which build its indexes.
pub(crate) trait Builder: Debug + Send + Sync {
    /// Returns the family's name.
    fn family(&self) -> &'static str;

    /// Returns the files that searches may read from a tier: those that a striped index has on several disks.
    fn striped(&self) -> &'static [&'static str];

    /// Refuses options that are invalid for any data.
    fn check(&self) -> Result<(), IndexError>;

    /// Returns true if its indexes are calibrated. A graphics card finds the true neighbours for that.
    fn calibrates(&self) -> bool;

    /// Returns the bytes of memory of a build at its peak: within the budget of `options` if that is
    /// possible, otherwise the least that would be enough.
    fn planned_memory(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> u64;

    /// Returns the files and the stages of a build.
    ///
    /// # Errors
    /// [`IndexError::Parameter`]: options with which no index of these vectors can be built.
    fn plan(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<FamilyPlan, IndexError>;

    /// Returns changes that may reduce the memory of a build: advice in words, and the options with a number
    /// halved or doubled. An error contains those that reduce it for the data.
    fn leaner(&self, dim: usize) -> Vec<(&'static str, FamilyOptions)>;

    /// Returns the options with codes of `bytes` bytes; `None` if the caller has chosen a size, if there are
    /// no codes, or if these would not be suitable.
    fn with_default_code_bytes(&self, bytes: u32) -> Option<FamilyOptions>;

    /// Builds the index of `job`, whose data is checked.
    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError>;
}

/// The store and the name of the index to build.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) name: &'a str,
    pub(crate) replace: Replace,
}

/// The input of a builder.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) data: &'a SourceVectors<'a>,
    pub(crate) target: &'a Target<'a>,
    pub(crate) options: &'a BuildOptions,
    /// The identity of the index, with which its checksums begin.
    pub(crate) identity: Identity,
    /// Bytes of memory that the build will take.
    pub(crate) planned: u64,
    pub(crate) progress: &'a dyn Progress,
}

/// A family with its options, created from a family's own struct, or by name by
/// [`families::options`](crate::families::options).
#[derive(Debug, Clone)]
pub struct FamilyOptions(Arc<dyn Builder>);

impl FamilyOptions {
    pub(crate) fn new(builder: impl Builder + 'static) -> FamilyOptions {
        FamilyOptions(Arc::new(builder))
    }

    /// Returns the family's name.
    pub fn family(&self) -> &'static str {
        self.0.family()
    }

    pub(crate) fn builder(&self) -> &dyn Builder {
        &*self.0
    }
}

/// The documentation of an option of a family, for people and for command lines.
#[derive(Debug, Clone, Copy)]
pub struct OptionDoc {
    /// Its name: that of the field of the family's struct, of the Python argument, and (with dashes) of the
    /// command line.
    pub name: &'static str,
    /// The placeholder of its value in a help text.
    pub value: &'static str,
    /// Its description in one line, with its default.
    pub help: &'static str,
}

/// Options by name, with values as JSON: numbers, or text.
pub type GivenOptions = BTreeMap<String, Value>;

/// Reads the options of a family into its struct. Options that are not given have their defaults.
///
/// # Errors
/// [`IndexError::Parameter`] with the option, the given value and the expected one.
pub(crate) fn typed<O: DeserializeOwned>(given: &GivenOptions) -> Result<O, IndexError> {
    let read = |given: GivenOptions| serde_json::from_value::<O>(Value::Object(given.into_iter().collect()));
    for (name, value) in given {
        let alone = GivenOptions::from([(name.clone(), value.clone())]);
        read(alone).map_err(|error| IndexError::Parameter(format!("{name} is {value}: {error}")))?;
    }
    read(given.clone()).map_err(|error| IndexError::Parameter(error.to_string()))
}

/// Deserializes a field of options by its `FromStr`.
pub(crate) fn from_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
    D: serde::Deserializer<'de>,
{
    let text = <String as serde::Deserialize>::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Deserializes an optional field of options by its `FromStr`.
pub(crate) fn some_from_text<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
    D: serde::Deserializer<'de>,
{
    from_text(deserializer).map(Some)
}

/// The part of a build's report that is specific to the family: keys and values.
pub(crate) type Details = BTreeMap<&'static str, Value>;

/// The report of a build.
#[derive(Debug, Clone, Serialize)]
pub struct BuildReport {
    /// The index family.
    pub family: String,
    /// Seconds from start to finish.
    pub build_seconds: f64,
    /// Bytes of the index on disk.
    pub index_bytes: u64,
    /// Bytes of the vectors alone.
    pub data_bytes: u64,
    /// `index_bytes / data_bytes`.
    pub amplification: f64,
    /// Number of vectors.
    pub vectors: u64,
    /// Dimensions.
    pub dim: u32,
    /// Element name of the given vectors.
    pub element: String,
    /// The stored form of the vectors and its loss, if it differs from that of the given vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredEntry>,
    /// Metric name.
    pub metric: String,
    /// The part of the report that is specific to the family, such as kind and bytes of codes, or degrees.
    /// `remarks`, if it is there, is a list of sentences.
    #[serde(flatten)]
    pub details: BTreeMap<&'static str, Value>,
    /// Threads used.
    pub threads: usize,
    /// Bytes of memory at the peak of the build, computed before it began.
    pub planned_memory_bytes: u64,
    /// Seconds of each stage.
    pub stage_seconds: Vec<(String, f64)>,
}

impl BuildReport {
    /// Returns the remarks of the family for the user, one sentence each.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        self.details.get("remarks").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }
}
