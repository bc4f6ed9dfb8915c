//! What every build is told, whatever its family, and what it reports.

use super::plan::FamilyPlan;
use crate::error::IndexError;
use crate::form::source::Source;
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

/// Any fixed number will do; a fixed one makes builds repeatable.
pub const DEFAULT_SEED: u64 = 0xba74_17a1;

/// Most queries of a calibration, which it has unless told otherwise.
pub const MOST_CALIBRATION_QUERIES: usize = 1000;

/// How to build an index.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// What "near" means.
    pub metric: Metric,
    /// Which family, and what only it is told.
    pub family: FamilyOptions,
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// Seed of everything random. One seed gives the same index bit for bit; a graph needs one thread, too.
    pub seed: u64,
    /// Memory that the build may take, in bytes. `None` means no limit.
    pub memory_bytes: Option<u64>,
    /// Whether to replace an index that is already there.
    pub overwrite: bool,
    /// As what vectors of f32 are stored; `None` stores vectors as they are given. Queries stay f32, and so do distances
    /// theirs; what is lost is measured by the vectors as given, and said.
    pub store_as: Option<StoreAs>,
    /// Of vectors that an index or a segment has stored as `store_as` before, or will store again: with what scale and error. Their
    /// scale is then one of those that are nested, and they become halves where bytes would lose more than a fifth of the
    /// neighbours. `None` of all others, whose scale fits them best.
    pub stored_before: Option<StoredBefore>,
    /// Queries like those to come, for the calibration; `None` holds out vectors of the data.
    pub calibration: Option<VectorFile>,
    /// Queries of the calibration at most, 1 to [`MOST_CALIBRATION_QUERIES`]: the time that it takes rises with them. Recall@10 of a
    /// thousand has a standard error of about 0.2 percentage points, and of a quarter of them twice that.
    pub calibration_queries: usize,
    /// The disks that the files which searches read are striped over; `None` keeps all files in the index's folder.
    pub stripe: Option<StripeOptions>,
    /// How a store far away is reached, where the index is written to one.
    pub store: StoreOptions,
    /// A graphics card that takes a part of the work. The index is the same, bit for bit, unless a budget divides the data in other
    /// parts, from which what is kept for the card is taken; a graph is another one, which answers as well. `None` leaves all to this
    /// processor.
    pub card: Option<Arc<dyn Card>>,
}

/// Over which disks an index is striped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeOptions {
    /// A folder on each disk, 2 to 64 of them.
    pub folders: Vec<PathBuf>,
    /// Bytes of a unit: a multiple of 4096 up to 64 MB.
    pub stripe_bytes: u32,
}

impl StripeOptions {
    /// Over these folders, in units of [`DEFAULT_STRIPE_BYTES`].
    pub fn over(folders: impl IntoIterator<Item = impl Into<PathBuf>>) -> StripeOptions {
        let folders = folders.into_iter().map(Into::into).collect();
        StripeOptions { folders, stripe_bytes: DEFAULT_STRIPE_BYTES }
    }

    /// How `files` are striped.
    pub(crate) fn striping(&self, files: &[&str]) -> Result<Striping, IndexError> {
        Ok(Striping::new(&self.folders, self.stripe_bytes, files)?)
    }
}

impl BuildOptions {
    /// The defaults with the options of a family.
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
        }
    }

    /// Threads to use.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        }
    }
}

/// The options of one family: what builds its indexes.
pub(crate) trait Builder: Debug + Send + Sync {
    /// The family's name.
    fn family(&self) -> &'static str;

    /// The files that searches may read from a tier: what a striped index has on several disks.
    fn striped(&self) -> &'static [&'static str];

    /// Refuses numbers that make no sense, whatever the data.
    fn check(&self) -> Result<(), IndexError>;

    /// Whether its indexes are calibrated, which a graphics card helps with: it finds the true neighbours.
    fn calibrates(&self) -> bool;

    /// Bytes that a build will take at its peak: within the budget of `options` if that is possible at all, else the least
    /// that would do.
    fn planned_memory(&self, data: &Source<'_>, options: &BuildOptions) -> u64;

    /// What a build would make, and in which stages.
    ///
    /// # Errors
    /// [`IndexError::Parameter`]: options that make no index of these vectors.
    fn plan(&self, data: &Source<'_>, options: &BuildOptions) -> Result<FamilyPlan, IndexError>;

    /// What may take less memory, in words and as options that have it halved or doubled: what a refusal advises, if it does
    /// take less for the data at hand.
    fn leaner(&self, dim: usize) -> Vec<(&'static str, FamilyOptions)>;

    /// The same with codes of so many bytes; `None` where the caller has said how many, where there are no codes, and where
    /// those would not suit.
    fn with_default_code_bytes(&self, bytes: u32) -> Option<FamilyOptions>;

    /// Builds an index over `data`, which was checked, at `target`; `planned` bytes are what it will take.
    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError>;
}

/// What an index will be called, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) name: &'a str,
    pub(crate) replace: Replace,
}

/// What a builder works on.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) data: &'a Source<'a>,
    pub(crate) target: &'a Target<'a>,
    pub(crate) options: &'a BuildOptions,
    /// What the checksums of the index begin with.
    pub(crate) identity: Identity,
    /// Bytes that the build will take.
    pub(crate) planned: u64,
    pub(crate) progress: &'a dyn Progress,
}

/// Which family to build, with its options; made from a family's own struct, or by name by
/// [`families::options`](crate::families::options).
#[derive(Debug, Clone)]
pub struct FamilyOptions(Arc<dyn Builder>);

impl FamilyOptions {
    pub(crate) fn new(builder: impl Builder + 'static) -> FamilyOptions {
        FamilyOptions(Arc::new(builder))
    }

    /// The family's name.
    pub fn family(&self) -> &'static str {
        self.0.family()
    }

    pub(crate) fn builder(&self) -> &dyn Builder {
        &*self.0
    }
}

/// An option of a family, for people and for command lines.
#[derive(Debug, Clone, Copy)]
pub struct OptionDoc {
    /// Its name: of the field of the family's struct, of the Python argument, and (with dashes) of the command line.
    pub name: &'static str,
    /// What stands for its value in a help text.
    pub value: &'static str,
    /// What it does, in a line, its default with it.
    pub help: &'static str,
}

/// Options that were given by name, their values as JSON: numbers, or text.
pub type GivenOptions = BTreeMap<String, Value>;

/// Reads the options of a family into its struct, those that were not given as they are by default.
///
/// # Errors
/// [`IndexError::Parameter`] that names the option, what was given and what was expected.
pub(crate) fn typed<O: DeserializeOwned>(given: &GivenOptions) -> Result<O, IndexError> {
    let read = |given: GivenOptions| serde_json::from_value::<O>(Value::Object(given.into_iter().collect()));
    for (name, value) in given {
        let alone = GivenOptions::from([(name.clone(), value.clone())]);
        read(alone).map_err(|error| IndexError::Parameter(format!("{name} is {value}: {error}")))?;
    }
    read(given.clone()).map_err(|error| IndexError::Parameter(error.to_string()))
}

/// Reads a value by its `FromStr`; for fields of options.
pub(crate) fn from_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
    D: serde::Deserializer<'de>,
{
    let text = <String as serde::Deserialize>::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// The same of a field that need not be there.
pub(crate) fn some_from_text<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
    D: serde::Deserializer<'de>,
{
    from_text(deserializer).map(Some)
}

/// What only a family has to say of a build: keys of the report, and values.
pub(crate) type Details = BTreeMap<&'static str, Value>;

/// What a build came to.
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
    /// Element name of the vectors as they were given.
    pub element: String,
    /// How the vectors are stored and what that loses, where not as they were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredEntry>,
    /// Metric name.
    pub metric: String,
    /// What only this family has to say: kind and bytes of codes, degrees. `remarks`, if it is there, is a list of sentences.
    #[serde(flatten)]
    pub details: BTreeMap<&'static str, Value>,
    /// Threads used.
    pub threads: usize,
    /// Bytes that the build was computed to need at its peak.
    pub planned_memory_bytes: u64,
    /// Seconds of each stage.
    pub stage_seconds: Vec<(String, f64)>,
}

impl BuildReport {
    /// What the family has to say to whoever built it, a sentence each.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        self.details.get("remarks").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }
}
