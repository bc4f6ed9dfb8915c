//! The command line of `bathyal`: subcommands, options and their help.

mod advise;
mod audit;
mod calibrate;
mod collection;
mod collection_change;
mod collection_create;
mod collection_open;
mod collection_read;
mod explained;
mod family;
mod generate;
mod get;
mod list;
mod memory_node;
mod metric;
mod pass;
mod remove;
mod search;
mod serve;
mod slips;
mod store;
mod stripe;
mod warm;

pub use advise::AdviseArguments;
pub use audit::AuditArguments;
pub use calibrate::CalibrateArguments;
pub use collection::CollectionCommand;
pub use collection_change::{
    CollectionCompactArguments, CollectionDeleteArguments, RowsArguments, UpdateArguments, WriteArguments,
};
pub use collection_create::{CreateArguments, FieldArgument};
pub use collection_open::OpenArguments;
pub use collection_read::{
    CollectionCopyArguments, CollectionGetArguments, CollectionRepairArguments, CollectionSearchArguments,
    CountArguments, ExportArguments, LookArguments,
};
pub use explained::ExplainedRows;
pub use family::FamilyArguments;
pub use generate::{CompletionsArguments, ManArguments};
pub use get::GetArguments;
pub use list::ListArguments;
pub use memory_node::MemoryNodeArguments;
pub use metric::MetricArgument;
pub use remove::RemoveArguments;
pub use search::{BenchArguments, ModeName, SearchArguments, SearchSettings};
pub use serve::{LimitArguments, LogForm, ServeArguments};
pub use slips::{
    BenchSlips, BuildSlips, CollectionSearchSlips, GroundtruthSlips, SearchSlips, SettingsSlips,
};
pub use store::{StoreArguments, TwoStoresArguments};
pub use stripe::{PartsArguments, StripeArguments};
pub use warm::WarmArguments;

use std::path::PathBuf;

use bathyal_console::typed::{MAX_K, parse_threads};
use bathyal_console::{OutputOptions, byte_size};
use bathyal_gpu::DeviceChoice;
use bathyal_index::{CompactOptions, GraphLayoutChoice, StoreAs, TierChoice};
use bathyal_kernels::Element;
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};

/// Neighbours per query of a ground truth: enough for recall at any usual k.
pub const DEFAULT_GROUNDTRUTH_K: u32 = 100;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed, for example a missing file, bad data or a full disk; stderr has the reason
  2    the command line is wrong
  3    the index or collection is damaged, or the path holds neither
  130  stopped by Ctrl-C; no partial output is left
With --json, a command that fails prints {\"error\": {\"kind\", \"message\", \"exit_code\"}}; docs/errors.md \
lists the kinds.

Example, from nothing to a plot:
  bathyal build base.fbin my.index --metric l2
  bathyal groundtruth base.fbin queries.fbin gt.ibin -k 100
  bathyal search my.index queries.fbin -k 10 --recall 0.95 --groundtruth gt.ibin
  bathyal bench my.index queries.fbin --groundtruth gt.ibin";

/// Vector search for indexes that do not fit in DRAM.
#[derive(Debug, Parser)]
#[command(name = "bathyal", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct CommandLine {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// How answers and progress are shown.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build an index from a file of vectors
    Build(BuildArguments),
    /// Predict size, memory and speed of the indexes that suit a file of vectors, and recommend one
    Advise(AdviseArguments),
    /// Find the nearest neighbours of a file of queries
    Search(SearchArguments),
    /// Measure an index: recall against throughput over a sweep of effort
    Bench(BenchArguments),
    /// Measure which effort reaches which recall with your queries, for searches of an existing index
    Calibrate(CalibrateArguments),
    /// Answer queries by searches and exactly, and report the recall that the searches find
    Audit(AuditArguments),
    /// Find the exact neighbours of a file of queries by comparing every vector
    Groundtruth(GroundtruthArguments),
    /// Convert a file of vectors or ids to another format or element
    Convert(ConvertArguments),
    /// Copy a graph index to another layout with its links and calibration, without a rebuild
    ConvertLayout(ConvertLayoutArguments),
    /// Copy an index onto other disks: from one to several, or back
    ConvertStripes(ConvertStripesArguments),
    /// Copy an index between folders, object stores and memory nodes
    Copy(CopyArguments),
    /// Remove leftovers of an index from an object store: replaced, deleted or unfinished parts
    Prune(PruneArguments),
    /// Remove an index or a collection, with everything that belongs to it
    Remove(RemoveArguments),
    /// List the indexes and collections in a folder, a bucket or a memory node
    List(ListArguments),
    /// Read an index or a collection in an object store into the cache of this machine
    Warm(WarmArguments),
    /// Lend memory of this machine: hold indexes that other machines search
    MemoryNode(MemoryNodeArguments),
    /// Serve the collections and indexes of a folder or a bucket over HTTP
    Serve(ServeArguments),
    /// Insert the vectors of a file into an index (family lsh, or partitioned on a memory node)
    Insert(InsertArguments),
    /// Delete vectors from an index by their ids (family lsh, or partitioned on a memory node)
    Delete(DeleteArguments),
    /// Get vectors of an index by their ids
    Get(GetArguments),
    /// Merge inserted and deleted vectors into the index, and free their space
    Compact(CompactArguments),
    /// Describe an index: manifest, sizes, groups or degrees
    Inspect(InspectArguments),
    /// Read every byte of an index and report damage
    Verify(VerifyArguments),
    /// Create, change and search collections: rows with ids, vectors and metadata
    #[command(subcommand)]
    Collection(CollectionCommand),
    /// Measure the device under a folder, or memory: latency, IOPS, bandwidth
    Probe(ProbeArguments),
    /// Print a script with which a shell completes commands and options
    Completions(CompletionsArguments),
    /// Print a manual page, or write the pages of all commands
    Man(ManArguments),
}

impl Command {
    /// Returns notes for the user about the words that were typed, such as another system's name of a metric.
    pub fn notes(&self) -> Vec<String> {
        let metric = match self {
            Command::Build(arguments) => Some(&arguments.metric),
            Command::Groundtruth(arguments) => Some(&arguments.metric),
            Command::Collection(CollectionCommand::Create(arguments)) => arguments.metric.as_ref(),
            _ => None,
        };
        metric.and_then(|metric| metric.note.clone()).into_iter().collect()
    }
}

/// `bathyal build`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal build base.fbin my.index --metric l2
  bathyal build words.f16bin words.index --metric cosine --family graph \\
      --max-degree 32 --overwrite
  bathyal build base.u8bin my.index --metric l2 --memory 2GB --json
  bathyal build base.fbin my.index --metric l2 --stripe /mnt/a,/mnt/b
  bathyal build base.fbin --metric l2 --memory 2GB --plan
  bathyal build --plan --vectors 100000000 --dim 768 --metric cosine --memory 16GB

Without --family, and without an option of a family, a cluster index is built. Of a large set, small indexes \
of a sample are compared first, on the device of the target and with the available \
memory: another family is built if it is clearly faster. A line on stderr has the reason. --plan asks for \
nothing, and is for a cluster index.")]
pub struct BuildArguments {
    /// Vectors: .fbin .f16bin .bf16bin .u8bin .i8bin .b1bin .fvecs .bvecs .npy
    #[arg(required_unless_present = "vectors")]
    pub data: Option<PathBuf>,
    /// The index: a folder that this command creates, or an address in an object store (s3://BUCKET/NAME), in
    /// the memory of a node (remote://HOST:PORT/NAME) or of several nodes
    /// (remote://HOST1:PORT1,HOST2:PORT2/NAME). A plan needs none
    #[arg(required_unless_present = "plan")]
    pub index: Option<PathBuf>,
    /// Metric: l2 (squared Euclidean), ip (inner product), cosine, or hamming (of bits, eight in each byte of
    /// u8 vectors). Names that other systems use are understood
    #[arg(long)]
    pub metric: MetricArgument,
    /// The family of the index, and its options
    #[command(flatten)]
    pub family: FamilyArguments,
    /// Threads; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// Seed of all random choices: a cluster index with the same seed is the same bit for bit; a graph only
    /// with --threads 1 [default: that of the plan with --advice, or else a fixed one]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Memory that the build may take, for example 2GB; a build that needs more fails before it starts
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub memory: Option<u64>,
    /// Store f32 vectors smaller, as f16 or as i8 with a scale; the build measures and prints the loss
    /// [default: as given]
    #[arg(long, value_name = "FORM")]
    pub store_as: Option<StoreAs>,
    /// File of queries like those to come, with which recall is calibrated [default: vectors held out of the
    /// data]
    #[arg(long, value_name = "QUERIES")]
    pub calibration: Option<PathBuf>,
    /// The disks of the index
    #[command(flatten)]
    pub disks: StripeArguments,
    /// Replace an index that is already there
    #[arg(long)]
    pub overwrite: bool,
    /// Device that builds: cpu, or gpu or gpu:N for the help of a graphics card (number N). The index is the
    /// same, except for a graph, which differs and is as good
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Cpu)]
    pub device: DeviceChoice,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
    /// Print what the build would need and write (memory, stages, files with their sizes), and stop. Fails if
    /// --memory is too little
    #[arg(long)]
    pub plan: bool,
    /// Build the index of a plan that `bathyal advise --output` wrote, with its family and options. The index
    /// keeps the plan
    #[arg(long, value_name = "PLAN", conflicts_with = "family")]
    pub advice: Option<PathBuf>,
    /// Plan for this many vectors, which need not exist yet, instead of those of a file
    #[arg(long, value_name = "COUNT", requires = "plan", requires = "dim", conflicts_with = "data")]
    pub vectors: Option<u64>,
    /// Components of the planned vectors
    #[arg(long, requires = "vectors")]
    pub dim: Option<u32>,
    /// Element of the planned vectors: f32, f16, bf16, u8, i8 or b1
    #[arg(long, requires = "vectors", default_value_t = Element::F32)]
    pub element: Element,
    /// Hidden options with names from other systems
    #[command(flatten)]
    slips: BuildSlips,
}

/// `bathyal groundtruth`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal groundtruth base.fbin queries.fbin gt.ibin -k 100 --metric l2
  bathyal groundtruth words.npy queries.npy gt.ibin --metric cosine --threads 8

Distances are squared under l2, negated inner products under ip, and 1 - cosine under cosine. \
Of equal distances the smaller id comes first.")]
pub struct GroundtruthArguments {
    /// File of vectors to search
    pub data: PathBuf,
    /// File of queries, with the same dim and element
    pub queries: PathBuf,
    /// File to write: .ibin (with distances) or .ivecs
    pub output: PathBuf,
    /// Neighbours a query
    #[arg(short, long, default_value_t = DEFAULT_GROUNDTRUTH_K,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_K))]
    pub k: u32,
    /// Metric: l2 (squared Euclidean), ip (inner product), cosine, or hamming (of bits, eight in each byte of
    /// u8 vectors). Names that other systems use are understood
    #[arg(long, default_value = "l2")]
    pub metric: MetricArgument,
    /// Threads; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// Device that compares: cpu, gpu, or gpu:N for card number N; the answer is the same
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Cpu)]
    pub device: DeviceChoice,
    /// Hidden options with names from other systems
    #[command(flatten)]
    slips: GroundtruthSlips,
}

/// `bathyal convert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal convert sift.fvecs sift.u8bin
  bathyal convert base.fbin half.f16bin
  bathyal convert base.npy first.npy --rows 0..1000 --element f32
  bathyal convert gt.ivecs gt.ibin")]
pub struct ConvertArguments {
    /// File to read: .fbin .f16bin .u8bin .i8bin .fvecs .bvecs .npy of vectors, or .ibin .ivecs of ids
    pub input: PathBuf,
    /// File to write, in the format of its extension; an existing file is replaced
    pub output: PathBuf,
    /// Element to write: f32, f16, u8 or i8 [default: the element of the output's format, else that of the
    /// input]
    #[arg(long)]
    pub element: Option<Element>,
    /// Rows to take: FIRST is included and LAST is not [default: all]
    #[arg(long, value_name = "FIRST..LAST", value_parser = parse_rows)]
    pub rows: Option<std::ops::Range<u64>>,
}

/// `bathyal convert-layout`.
#[derive(Debug, Args)]
#[command(after_help = "\
The graph stays the same, and so do recall and reads. The layout page_local keeps no links of single \
vectors: build such an index anew.

Examples:
  bathyal convert-layout my.index small.index --layout csr
  bathyal convert-layout small.index disk.index --layout padded")]
pub struct ConvertLayoutArguments {
    /// The index, of the family graph
    pub index: PathBuf,
    /// The copy: a folder that this command creates; an existing one is never replaced
    pub output: PathBuf,
    /// Layout of the copy: csr or padded
    #[arg(long, value_name = "LAYOUT")]
    pub layout: GraphLayoutChoice,
    /// Threads; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// How the stores are reached
    #[command(flatten)]
    pub stores: TwoStoresArguments,
}

/// `bathyal convert-stripes`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every file is copied byte for byte, so answers and recall stay the same. With --overwrite, the output may be \
the index itself.

Examples:
  bathyal convert-stripes my.index fast.index --stripe /mnt/a,/mnt/b
  bathyal convert-stripes fast.index fast.index --overwrite \\
      --stripe /mnt/a,/mnt/b,/mnt/c
  bathyal convert-stripes fast.index my.index")]
pub struct ConvertStripesArguments {
    /// The index
    pub index: PathBuf,
    /// The copy: a folder that this command creates
    pub output: PathBuf,
    /// The disks of the copy
    #[command(flatten)]
    pub disks: StripeArguments,
    /// Folders to which the parts of the source index were moved, in any order
    #[arg(long, value_name = "FOLDER,FOLDER,...", value_delimiter = ',')]
    pub from_stripe: Vec<PathBuf>,
    /// Replace an index that is already there
    #[arg(long)]
    pub overwrite: bool,
}

/// `bathyal copy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal copy my.index s3://bucket/my.index
  bathyal copy s3://bucket/my.index my.index --overwrite
  bathyal copy s3://here/my.index gs://there/my.index
  bathyal copy my.index remote://10.0.0.7:7730/my.index
  bathyal copy my.index remote://10.0.0.7,10.0.0.8/my.index \\
      --store-option keys=a.json,b.json

Every byte is compared with the checksums of the index. After a kill, the same command continues the copy.")]
pub struct CopyArguments {
    /// The index to copy: a folder or an address
    pub index: PathBuf,
    /// The copy: a folder or an address
    pub output: PathBuf,
    /// Replace an index that is already there
    #[arg(long)]
    pub overwrite: bool,
    /// How the stores are reached
    #[command(flatten)]
    pub stores: TwoStoresArguments,
}

/// `bathyal prune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal prune s3://bucket/my.index --dry-run
  bathyal prune s3://bucket/my.index --kept-hours 24

Leftovers stay for --kept-hours, because other processes may still search a replaced index. Searches of a \
process that has had it open for longer fail with an error that says that it is gone.")]
pub struct PruneArguments {
    /// The index: an address in an object store
    pub index: PathBuf,
    /// Hours for which replaced, deleted and unfinished parts stay
    #[arg(long, value_name = "HOURS", default_value_t = 7 * 24)]
    pub kept_hours: u32,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}

/// `bathyal insert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Vectors get the ids that follow the last id of the index, in the order of the file. Every search that opens \
the index afterwards finds them, and they survive a crash. Where the inserted vectors do not fit in memory, \
the command compacts the index and continues. A command that was stopped or killed has inserted the first \
vectors of the file; `bathyal inspect` prints how many.

Examples:
  bathyal insert my.index more.fbin
  bathyal insert remote://10.0.0.7:7730/my.index more.fbin --json")]
pub struct InsertArguments {
    /// The index, of a family that changes after its build: lsh, or partitioned (with growth) in the memory
    /// of a node
    pub index: PathBuf,
    /// Vectors: .fbin .f16bin .bf16bin .u8bin .i8bin .b1bin .fvecs .bvecs .npy
    pub vectors: PathBuf,
    /// How the index is compacted where it has to be
    #[command(flatten)]
    pub compaction: CompactionArguments,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}

/// `bathyal delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
Deleted ids are never given to other vectors. Ids of vectors that were deleted before are ignored.

Examples:
  bathyal delete my.index --ids 17,4,2023
  bathyal delete my.index --file gone.ibin")]
pub struct DeleteArguments {
    /// The index, of a family that changes after its build: lsh, or partitioned (with growth) in the memory
    /// of a node
    pub index: PathBuf,
    /// Ids of the vectors
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',', required_unless_present = "file")]
    pub ids: Vec<u32>,
    /// File of ids to delete: .ibin .ivecs
    #[arg(long, value_name = "IDS")]
    pub file: Option<PathBuf>,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}

/// `bathyal compact`.
#[derive(Debug, Args)]
#[command(after_help = "\
Ids do not change. Searches continue meanwhile; inserts and deletes wait. Until it is done, a compaction \
needs disk space for the new index and for all vectors. If it is stopped or killed, the index is unchanged.

Examples:
  bathyal compact my.index
  bathyal compact my.index --memory 2GB --json")]
pub struct CompactArguments {
    /// The index, of a family that changes after its build: lsh
    pub index: PathBuf,
    /// Threads and memory
    #[command(flatten)]
    pub compaction: CompactionArguments,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}

/// Threads and memory of a compaction.
#[derive(Debug, Args)]
pub struct CompactionArguments {
    /// Threads; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// Memory that the compaction may take, for example 2GB; one that needs more fails before it starts
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub memory: Option<u64>,
}

impl CompactionArguments {
    /// Returns them as the library takes them.
    pub fn options(&self) -> CompactOptions {
        CompactOptions { threads: self.threads, memory_bytes: self.memory }
    }
}

/// `bathyal inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bathyal inspect my.index\n  bathyal inspect my.index --full --json")]
pub struct InspectArguments {
    /// The index
    pub index: PathBuf,
    /// Print everything: also the curves of the calibration (with --json), histograms and files
    #[arg(long)]
    pub full: bool,
    /// Where its parts are, and how its store is reached
    #[command(flatten)]
    pub parts: PartsArguments,
}

/// `bathyal verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
The exit code is 3 if anything is damaged.

Example:
  bathyal verify my.index && echo all is well")]
pub struct VerifyArguments {
    /// The index
    pub index: PathBuf,
    /// Where its parts are, and how its store is reached
    #[command(flatten)]
    pub parts: PartsArguments,
}

/// `bathyal probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Creates a file in the folder, reads it at random without the page cache, and removes it. With --tier mapped \
it measures memory instead: the latency of dependent loads, the bandwidth of random reads by payload and \
reads in flight, and the cost of small reads among large ones. A mapped file or device is read and not \
changed.

Examples:
  bathyal probe /mnt/nvme
  bathyal probe --tier mapped:node=1
  bathyal probe --tier mapped:/dev/dax0.0 --size 4GB --output dax.json
  bathyal probe . --thorough --json")]
pub struct ProbeArguments {
    /// A folder on the device to measure, or an index in an object store (s3://BUCKET/NAME): its reads
    /// measure the store
    #[arg(required_unless_present = "tier", conflicts_with = "tier")]
    pub folder: Option<PathBuf>,
    /// Memory to measure instead: mapped, mapped:node=N or mapped:PATH
    #[arg(long, value_name = "TIER")]
    pub tier: Option<TierChoice>,
    /// Bytes to spread the reads over [default: 1 GiB of a device, 512 MiB of memory; with --thorough 4 GiB]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub size: Option<u64>,
    /// Take tens of seconds instead of a few, for steadier results
    #[arg(long)]
    pub thorough: bool,
    /// Write the profile of the device to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}

fn parse_rows(text: &str) -> Result<std::ops::Range<u64>, String> {
    let parts = text.split_once("..").map(|(first, last)| (first.trim().parse(), last.trim().parse()));
    match parts {
        Some((Ok(first), Ok(last))) if first < last => Ok(first..last),
        _ => Err("write rows as FIRST..LAST with FIRST below LAST, for example 0..1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Collects the long options of a command and of its subcommands.
    fn long_options(command: &Command, names: &mut BTreeSet<String>) {
        names.extend(command.get_arguments().filter_map(|argument| argument.get_long()).map(String::from));
        command.get_subcommands().for_each(|below| long_options(below, names));
    }

    /// Collects `(file, line)` of all lines below `folder` that are not comments.
    fn lines_below(folder: &Path, lines: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                lines_below(&path, lines);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                lines.extend(code.map(|line| (path.display().to_string(), line.to_owned())));
            }
        }
    }

    #[test]
    fn messages_advise_options_that_exist() {
        /// Options that messages name and the command lacks: one of a store, and one of another program.
        const OTHERS: [&str; 2] = ["cache-memory", "format"];
        const ADVICE: [&str; 5] = ["lower ", "raise ", "smaller ", "larger ", "fewer "];
        let mut names = BTreeSet::new();
        let mut command = CommandLine::command();
        command.build();
        long_options(&command, &mut names);
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut lines = Vec::new();
        for name in ["index", "collection", "tier", "store", "object", "remote", "gpu", "vectors", "console"]
        {
            lines_below(&crates.join(name).join("src"), &mut lines);
        }
        let mut found = 0;
        for (file, line) in lines {
            let word = |text: &str, more: char| -> String {
                let letters =
                    text.chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == more);
                letters.collect()
            };
            let flags = line.match_indices("--").map(|(at, _)| word(&line[at + 2..], '-'));
            let advised = ADVICE.iter().flat_map(|verb| line.match_indices(verb));
            let advised = advised.map(|(at, verb)| word(&line[at + verb.len()..], '_'));
            let advised = advised.filter(|name| name.contains('_')).map(|name| name.replace('_', "-"));
            for name in flags.chain(advised).filter(|name| !name.is_empty()) {
                found += 1;
                let known = names.contains(&name) || OTHERS.contains(&name.as_str());
                assert!(known, "{file}: no command knows --{name}: {line}");
            }
        }
        assert!(found > 40, "only {found} options are advised");
    }

    #[test]
    fn clap_accepts_the_definitions() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn row_ranges_are_parsed() {
        assert_eq!(parse_rows("0..10"), Ok(0..10));
        for text in ["", "5", "5..5", "9..1", "..3", "a..b", "-1..4"] {
            assert!(parse_rows(text).is_err(), "{text}");
        }
    }
}
