//! Builds and conversions with a fault at every operation of the store: a kill, an error, no space, or a loss
//! of power. Afterwards the old or the new index is under the name and answers correctly. A second run
//! succeeds and leaves no other files.

use crate::cases::{case_runs, full_or_quick};
use crate::progress::StageLog;
use bathyal_index::build::planned_memory;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, PostingLayout, SearchOptions, SpannOptions, TierChoice, build_in, convert_layout_in,
    verify_in,
};
use bathyal_kernels::Element;
use bathyal_kernels::Metric;
use bathyal_store::disk::Disk;
use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_store::stripe::Striping;
use bathyal_store::{Store, StoreError};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const ROWS: usize = 64;
/// Rows of a set that is large enough for a graph to hold out vectors for its calibration.
const MANY_ROWS: usize = 200;
const DIM: usize = 4;
/// Operations of a build of a large set from one fault to the next.
const STRIDE: usize = 41;
/// Operations of a build of a small set from one fault to the next. The first kill strikes at every
/// operation.
const OTHER_STRIDE: usize = 5;
/// Environment variable that makes every fault strike at every operation, which takes many minutes.
const ALL_OPERATIONS: &str = "BATHYAL_ALL_OPERATIONS";

#[derive(Debug, Clone, Copy)]
enum Structure {
    Graph(GraphLayoutChoice),
    /// The layout, and true for lists of codes.
    Lists(PostingLayout, bool),
    Groups,
    /// The bytes of a code, or no codes.
    Flat(Option<u32>),
    Tables,
}

/// The index that a test builds.
#[derive(Debug, Clone, Copy)]
struct Kind {
    structure: Structure,
    /// True if the calibration uses held-out vectors.
    held_out: bool,
    /// The layout from which a conversion makes the index.
    from: Option<GraphLayoutChoice>,
    /// True if the old index is striped, and if the new one is.
    striped: [bool; 2],
    /// True if the build has so little memory that it divides the set.
    in_parts: bool,
}

const NOT_STRIPED: [bool; 2] = [false; 2];

const fn graph(layout: GraphLayoutChoice) -> Kind {
    Kind { structure: Structure::Graph(layout), ..CLUSTER }
}

const fn lists(layout: PostingLayout, coded: bool) -> Kind {
    Kind { structure: Structure::Lists(layout, coded), ..CLUSTER }
}

const fn converted(from: GraphLayoutChoice, to: GraphLayoutChoice) -> Kind {
    Kind { from: Some(from), ..graph(to) }
}

const CLUSTER: Kind =
    Kind { structure: Structure::Groups, held_out: false, from: None, striped: NOT_STRIPED, in_parts: false };

/// The disks of striped indexes.
const DISKS: [&str; 2] = ["/a", "/b"];

/// Returns true if every fault strikes at every operation.
fn strikes_all() -> bool {
    std::env::var_os(ALL_OPERATIONS).is_some()
}

/// Returns a store whose drafts are striped if `striped` is true.
fn store(faults: &Faults, striped: bool) -> LocalStore {
    let store = LocalStore::on_disk(Arc::new(faults.clone()), "/folder", MANIFEST_NAME);
    if !striped {
        return store;
    }
    let files = ["graph.bin", "vectors.bin", "postings.bin", "codes.bin"];
    store.striped(Striping::new(&DISKS.map(PathBuf::from), 4096, &files).unwrap())
}

/// The data and the queries of all builds.
struct Data {
    /// The vectors of the old index and of the new one.
    sets: [VectorFile; 2],
    many: [VectorFile; 2],
    /// Sets that builds divide.
    large: OnceLock<[VectorFile; 2]>,
    queries: VectorFile,
    large_queries: OnceLock<VectorFile>,
    folder: tempfile::TempDir,
}

impl Data {
    fn new() -> Data {
        let folder = tempfile::tempdir().unwrap();
        let write = |seed, rows| written(folder.path(), seed, rows, DIM);
        let (sets, many) = ([1, 2].map(|seed| write(seed, ROWS)), [1, 2].map(|seed| write(seed, MANY_ROWS)));
        let queries = write(3, 5);
        Data { sets, many, large: OnceLock::new(), queries, large_queries: OnceLock::new(), folder }
    }
}

/// Writes vectors to a file, because a build of vectors in memory does not continue after a kill.
fn written(folder: &Path, seed: u64, rows: usize, dim: usize) -> VectorFile {
    let vectors = crate::clustered::vectors(Element::F32, rows, dim, seed);
    let header = [rows as u32, dim as u32].map(u32::to_le_bytes).concat();
    let path = folder.join(format!("{seed}-{rows}.fbin"));
    std::fs::write(&path, [&header, vectors.rows(0..rows).unwrap()].concat()).unwrap();
    VectorFile::open(path).unwrap()
}

impl Kind {
    fn data<'a>(&self, data: &'a Data) -> &'a [VectorFile; 2] {
        match self.in_parts {
            _ if self.held_out => &data.many,
            true => data.large.get_or_init(|| {
                let (rows, dim) = self.large_shape();
                [1, 2].map(|seed| written(data.folder.path(), seed, rows, dim))
            }),
            false => &data.sets,
        }
    }

    /// Returns rows and dimensions of a set that a build in the least memory divides, because the vectors
    /// take more than any stage.
    fn large_shape(&self) -> (usize, usize) {
        match self.structure {
            Structure::Groups => full_or_quick((140_000, 32), (80_000, 8)),
            _ => full_or_quick((140_000, 32), (30_000, 128)),
        }
    }

    fn queries<'a>(&self, data: &'a Data) -> &'a VectorFile {
        match self.in_parts && !self.held_out {
            true => {
                data.large_queries.get_or_init(|| written(data.folder.path(), 4, 5, self.large_shape().1))
            }
            false => &data.queries,
        }
    }

    fn family(&self) -> FamilyOptions {
        match self.structure {
            Structure::Graph(layout) => {
                GraphOptions { layout, max_degree: 8, search_list: 16, ..GraphOptions::default() }.into()
            }
            Structure::Lists(layout, coded) => SpannOptions {
                layout,
                code_kind: coded.then(|| "rabitq4".parse().unwrap()),
                replicas: Some(2),
                ..SpannOptions::default()
            }
            .into(),
            Structure::Groups => ClusterOptions::default().into(),
            Structure::Tables => LshOptions { tables: 3, ..LshOptions::default() }.into(),
            Structure::Flat(code_bytes) => FlatOptions { code_bytes, ..FlatOptions::default() }.into(),
        }
    }

    fn options(&self, data: &Data, overwrite: bool) -> BuildOptions {
        let options = BuildOptions {
            metric: Metric::L2,
            threads: 1,
            overwrite,
            calibration: (!self.held_out).then(|| self.queries(data).clone()),
            memory_bytes: self.in_parts.then_some(1),
            ..BuildOptions::of(self.family())
        };
        let least = self.in_parts.then(|| planned_memory(&self.data(data)[1], &options));
        BuildOptions { memory_bytes: least, ..options }
    }
}

/// A build on a simulated disk with faults.
struct Trial<'a> {
    data: &'a Data,
    kind: Kind,
    disk: SimulatedDisk,
    faults: Faults,
    store: LocalStore,
}

impl<'a> Trial<'a> {
    fn on(data: &'a Data, kind: Kind, disk: SimulatedDisk, exchange: bool) -> Trial<'a> {
        let faults = Faults::new(Arc::new(disk.clone()));
        let faults = if exchange { faults } else { faults.without_exchange() };
        let store = store(&faults, kind.striped[1]);
        Trial { data, kind, disk, faults, store }
    }

    /// Returns a disk with the old index if `old` is true, and with the source of a conversion.
    fn new(data: &'a Data, kind: Kind, old: bool) -> Trial<'a> {
        let disk = SimulatedDisk::default();
        for folder in DISKS.iter().chain([&"/folder"]) {
            disk.create_folder(Path::new(folder)).unwrap();
        }
        disk.sync_folder(Path::new("/")).unwrap();
        let trial = Trial::on(data, kind, disk, true);
        let before = store(&trial.faults, kind.striped[0]);
        if let Some(layout) = kind.from {
            let options = Kind { held_out: kind.held_out, ..graph(layout) }.options(data, false);
            build_in(&kind.data(data)[1], &before, "source", &options, &Silent).unwrap();
        }
        if old {
            build_in(&kind.data(data)[0], &before, "index", &kind.options(data, false), &Silent).unwrap();
        }
        trial.disk.sync_folder(Path::new("/folder")).unwrap();
        trial
    }

    /// Returns all paths on the disk, without the random keys in the names of parts.
    fn paths(&self) -> Vec<String> {
        let keyless = |path: String| match path.rsplit_once('-') {
            Some((key, part)) if part.contains(".part") => format!("{}-KEY-{part}", &key[..key.len() - 17]),
            _ => path,
        };
        let mut paths: Vec<String> = self.disk.paths().into_iter().map(keyless).collect();
        paths.sort();
        paths
    }

    fn copy(&self, exchange: bool) -> Trial<'a> {
        Trial::on(self.data, self.kind, self.disk.copy(), exchange)
    }

    fn build(&self, overwrite: bool) -> Result<(), IndexError> {
        match self.kind.from {
            None => {
                let options = self.kind.options(self.data, overwrite);
                build_in(&self.kind.data(self.data)[1], &self.store, "index", &options, &Silent).map(|_| ())
            }
            Some(_) => {
                let source = self.store.open("source")?;
                let Structure::Graph(layout) = self.kind.structure else { panic!("{:?}", self.kind) };
                convert_layout_in(source.as_ref(), &self.store, "index", layout, 1, &Silent).map(|_| ())
            }
        }
    }

    /// Returns the answers of the index, or `None` if there is no index.
    fn answers(&self) -> Option<Answers> {
        let found = match self.store.open("index") {
            Ok(found) => found,
            Err(StoreError::Missing { .. }) => return None,
            Err(other) => panic!("{other}"),
        };
        let manifest = Manifest::load(found.as_ref()).unwrap();
        let mut names: Vec<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
        names.push(MANIFEST_NAME);
        names.sort_unstable();
        assert_eq!(found.list().unwrap(), names, "other files were published");
        let options = OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
        let index = Index::open_in(found.as_ref(), &options, &Silent).unwrap();
        // A search that compares all vectors has no candidate list.
        let compares_all = index.manifest().family == "flat" && index.memory_split().codes == 0;
        let effort = if compares_all { Effort::Recall(1.0) } else { Effort::SearchList(64) };
        let options = SearchOptions { k: 3, effort, threads: 1, ..SearchOptions::default() };
        let result = index.search(self.kind.queries(self.data), &options, Control::default()).unwrap();
        Some((result.ids, result.distances.iter().map(|distance| distance.to_bits()).collect()))
    }
}

/// Ids, and the bits of distances.
type Answers = (Vec<u32>, Vec<u32>);

/// A sweep of faults over the operations of a build.
struct Sweep<'a> {
    /// The disk before each build.
    start: Trial<'a>,
    old: Option<Answers>,
    new: Answers,
    /// The paths on the disk after a build without faults.
    paths: Vec<String>,
    /// True if each build continues a killed one.
    resumes: bool,
}

impl<'a> Sweep<'a> {
    fn new(data: &'a Data, kind: Kind, old: bool) -> Sweep<'a> {
        let start = Trial::new(data, kind, old);
        let whole = start.copy(true);
        whole.build(old).unwrap();
        let found = whole.store.open("index").unwrap();
        let report = verify_in(found.as_ref(), &Silent).unwrap();
        assert!(report.sound, "{kind:?}: {:?}", report.faults);
        let new = whole.answers().unwrap();
        let old = start.answers();
        assert_ne!(old.as_ref(), Some(&new), "two indexes that can be told apart");
        assert_eq!(kind.striped[1], whole.paths().iter().any(|path| path.starts_with("/a/")), "{kind:?}");
        Sweep { start, old, new, paths: whole.paths(), resumes: false }
    }

    /// Returns a sweep that begins with the disk of a killed build.
    fn after_kill(mut self, operation: usize) -> Sweep<'a> {
        let trial = self.start.copy(true);
        trial.faults.inject(operation, DiskFault::Kill);
        trial.build(self.old.is_some()).unwrap_err();
        self.start = Trial::on(trial.data, trial.kind, trial.disk.copy(), true);
        self.resumes = true;
        self
    }

    /// Builds with `fault` at one operation after the other, until the build has no such operation. The disk
    /// then loses power if there is a seed. Returns the number of operations.
    fn run(&self, exchange: bool, fault: DiskFault, power_loss_seed: Option<u64>) -> usize {
        let stride = match self.start.kind.in_parts {
            _ if strikes_all() => 1,
            true => STRIDE,
            false if fault == DiskFault::Kill && power_loss_seed.is_none() && !self.resumes => 1,
            false => OTHER_STRIDE,
        };
        for number in (0..).step_by(stride) {
            let trial = self.start.copy(exchange);
            trial.faults.inject(number, fault);
            let built = trial.build(self.old.is_some());
            let struck = trial.faults.injected();
            trial.faults.clear();
            let Some(struck) = struck else {
                built.unwrap();
                return number;
            };
            let what = format!("{:?}, {exchange} {power_loss_seed:?}: {struck}: {built:?}", trial.kind);
            if let Some(seed) = power_loss_seed {
                trial.disk.lose_power(seed ^ number as u64);
            }
            self.examine(&trial, &what);
        }
        unreachable!("the number of operations is finite")
    }

    /// Checks the disk after a fault, and builds again.
    fn examine(&self, trial: &Trial<'_>, what: &str) {
        let found = trial.answers();
        assert!(
            found == self.old || found.as_ref() == Some(&self.new),
            "{what}: neither old nor new: {found:?}"
        );
        let published = found.as_ref() == Some(&self.new);
        match trial.build(self.old.is_some()) {
            Ok(()) => {}
            // The new index is there already, and the build does not overwrite it.
            Err(IndexError::Exists { .. }) if published && self.old.is_none() => {}
            Err(other) => panic!("{what}: the second run: {other}"),
        }
        assert_eq!(trial.answers().as_ref(), Some(&self.new), "{what}: the second run");
        assert_eq!(trial.paths(), self.paths, "{what}: other files are left");
    }
}

/// Runs all sweeps of a kind.
fn sweep(kind: Kind) {
    let data = Data::new();
    let fresh = Sweep::new(&data, kind, false);
    let operations = fresh.run(true, DiskFault::Kill, None);
    // An index of one file has the fewest operations.
    assert!(operations > 30, "{kind:?}: the sweep found {operations} operations");
    fresh.run(true, DiskFault::Kill, Some(7));
    // A conversion does not replace an index.
    if kind.from.is_some() {
        fresh.run(true, DiskFault::Full, None);
        fresh.run(true, DiskFault::Once(libc::EIO), None);
        return;
    }
    let replacing = Sweep::new(&data, kind, true);
    for fault in [DiskFault::Kill, DiskFault::Full, DiskFault::Once(libc::EIO)] {
        replacing.run(true, fault, None);
    }
    replacing.run(true, DiskFault::Kill, Some(8));
    // A build that continues another one may be killed, too.
    Sweep::new(&data, kind, true).after_kill(operations * 2 / 3).run(true, DiskFault::Kill, None);
}

#[test]
fn padded_graphs_are_published_whole_or_not_at_all() {
    sweep(graph(GraphLayoutChoice::Padded));
}

#[test]
fn striped_indexes_are_published_whole_or_not_at_all() {
    let data = Data::new();
    let striped = |kind, striped| Kind { striped, ..kind };
    let kinds = [
        striped(graph(GraphLayoutChoice::Padded), [true, true]),
        striped(CLUSTER, [true, true]),
        striped(CLUSTER, [false, true]),
        striped(lists(PostingLayout::Coupled, true), [true, false]),
    ];
    for (_, kind) in kinds.into_iter().enumerate().filter(|(number, _)| case_runs(*number, 2)) {
        let replacing = Sweep::new(&data, kind, true);
        let operations = replacing.run(true, DiskFault::Kill, None);
        for fault in [DiskFault::Full, DiskFault::Once(libc::EIO)] {
            replacing.run(true, fault, None);
        }
        replacing.run(false, DiskFault::Kill, Some(8));
        replacing.after_kill(operations / 2).run(true, DiskFault::Kill, Some(9));
    }
    let converted =
        Kind { striped: [true, true], ..converted(GraphLayoutChoice::Padded, GraphLayoutChoice::Csr) };
    Sweep::new(&data, converted, false).run(true, DiskFault::Kill, None);
}

#[test]
fn graphs_with_held_out_vectors_are_published_whole_or_not_at_all() {
    let data = Data::new();
    Sweep::new(&data, Kind { held_out: true, ..graph(GraphLayoutChoice::Csr) }, true).run(
        true,
        DiskFault::Kill,
        None,
    );
}

#[test]
fn page_local_graphs_are_published_whole_or_not_at_all() {
    sweep(graph(GraphLayoutChoice::PageLocal));
}

#[test]
fn packed_graphs_are_published_whole_or_not_at_all() {
    sweep(graph(GraphLayoutChoice::Csr));
}

#[test]
fn groups_are_published_whole_or_not_at_all() {
    sweep(CLUSTER);
}

/// Builds in parts write spill files and remove them.
#[test]
fn sets_in_parts_are_published_whole_or_not_at_all() {
    let kinds = [CLUSTER, lists(PostingLayout::Grouped, false)].into_iter().enumerate();
    for (_, kind) in kinds.filter(|(number, _)| strikes_all() || case_runs(*number, 2)) {
        let data = Data::new();
        let kind = Kind { in_parts: true, ..kind };
        let sweep = Sweep::new(&data, kind, true);
        let operations = sweep.run(true, DiskFault::Kill, None);
        assert!(operations > 100, "{kind:?}: the sweep found {operations} operations");
        if strikes_all() {
            sweep.run(true, DiskFault::Full, None);
            sweep.run(true, DiskFault::Kill, Some(11));
            sweep.after_kill(operations / 2).run(true, DiskFault::Kill, None);
        }
    }
}

#[test]
fn graphs_in_parts_are_published_whole_or_not_at_all() {
    let data = Data::new();
    let kind = Kind { held_out: true, in_parts: true, ..graph(GraphLayoutChoice::Padded) };
    let sweep = Sweep::new(&data, kind, true);
    let operations = sweep.run(true, DiskFault::Kill, None);
    assert!(operations > 150, "the sweep found {operations} operations");
    sweep.run(true, DiskFault::Full, None);
    sweep.run(true, DiskFault::Kill, Some(11));
    sweep.after_kill(operations / 2).run(true, DiskFault::Kill, None);
}

#[test]
fn flat_indexes_are_published_whole_or_not_at_all() {
    for code_bytes in [None, Some(8)] {
        sweep(Kind { structure: Structure::Flat(code_bytes), ..CLUSTER });
    }
}

#[test]
fn hash_tables_are_published_whole_or_not_at_all() {
    sweep(Kind { structure: Structure::Tables, ..CLUSTER });
}

#[test]
fn groups_are_published_whole_or_not_at_all_without_exchange_of_names() {
    let data = Data::new();
    for old in [false, true] {
        let sweep = Sweep::new(&data, CLUSTER, old);
        sweep.run(false, DiskFault::Kill, None);
        (0..full_or_quick(10, 3)).for_each(|seed| _ = sweep.run(false, DiskFault::Kill, Some(seed << 16)));
    }
}

#[test]
fn coupled_lists_are_published_whole_or_not_at_all() {
    sweep(lists(PostingLayout::Coupled, false));
}

#[test]
fn coupled_lists_of_codes_are_published_whole_or_not_at_all() {
    sweep(lists(PostingLayout::Coupled, true));
}

#[test]
fn decoupled_lists_are_published_whole_or_not_at_all() {
    sweep(lists(PostingLayout::Decoupled, false));
}

#[test]
fn grouped_lists_are_published_whole_or_not_at_all() {
    sweep(lists(PostingLayout::Grouped, false));
}

#[test]
fn conversions_are_published_whole_or_not_at_all() {
    sweep(converted(GraphLayoutChoice::Padded, GraphLayoutChoice::Csr));
    sweep(converted(GraphLayoutChoice::Csr, GraphLayoutChoice::Padded));
}

#[test]
fn a_killed_build_continues_after_its_last_finished_stage() {
    let data = Data::new();
    for kind in [graph(GraphLayoutChoice::Padded), CLUSTER, lists(PostingLayout::Grouped, false)] {
        let sweep = Sweep::new(&data, kind, true);
        let mut stage_counts = Vec::new();
        for number in 0.. {
            let trial = sweep.start.copy(true);
            trial.faults.inject(number, DiskFault::Kill);
            let killed = trial.build(true);
            trial.faults.clear();
            if killed.is_ok() || trial.answers().as_ref() == Some(&sweep.new) {
                break;
            }
            let stages = StageLog::default();
            let options = kind.options(&data, true);
            build_in(&data.sets[1], &trial.store, "index", &options, &stages).unwrap();
            stage_counts.push(stages.names().len());
        }
        // The later the kill, the fewer stages are left. In the end only the publishing is left.
        assert!(stage_counts.windows(2).all(|pair| pair[0] >= pair[1]), "{kind:?}: {stage_counts:?}");
        assert_eq!(
            (stage_counts[0] > 1, stage_counts.last()),
            (true, Some(&1)),
            "{kind:?}: {stage_counts:?}"
        );
    }
}

#[test]
fn targets_that_cannot_be_replaced_are_refused_before_any_work() {
    let data = Data::new();
    let trial = Trial::new(&data, CLUSTER, true);
    trial.disk.create_folder(Path::new("/folder/photos")).unwrap();
    trial.disk.create(Path::new("/folder/photos/holiday")).unwrap();
    let paths = trial.disk.paths();
    for (name, overwrite) in [("photos", true), ("photos", false), ("index", false)] {
        let stages = StageLog::default();
        let options = CLUSTER.options(&data, overwrite);
        let refused = build_in(&data.sets[1], &trial.store, name, &options, &stages).unwrap_err();
        assert!(matches!(refused, IndexError::NotAnIndex { .. } | IndexError::Exists { .. }), "{refused}");
        assert_eq!(stages.names(), [""; 0], "{name}: no stage began");
    }
    assert_eq!(trial.disk.paths(), paths);
}
