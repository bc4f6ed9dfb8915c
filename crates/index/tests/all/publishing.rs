//! Builds and conversions that are killed, refused or out of space at every single operation of the store,
//! and a machine that loses power there: the old index or the new one is under its name and answers as it
//! should, a rerun works, and nothing is left over.

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
use bathyal_store::faulty::{Fault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_store::stripe::Striping;
use bathyal_store::{Store, StoreError};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const ROWS: usize = 64;
/// Enough for a graph to hold some vectors out and to be written again with them.
const MANY_ROWS: usize = 200;
const DIM: usize = 4;
/// In large sets one operation in so many is struck unless more is asked for.
const STRIDE: usize = 41;
/// A first kill strikes at every operation of small sets. Whatever else goes wrong strikes at one of so many,
/// unless all are asked for.
const OTHER_STRIDE: usize = 5;
/// Set where every operation is to be struck in them, too: many minutes.
const ALL_OPERATIONS: &str = "BATHYAL_ALL_OPERATIONS";

#[derive(Debug, Clone, Copy)]
enum Structure {
    Graph(GraphLayoutChoice),
    /// Whether they hold codes.
    Lists(PostingLayout, bool),
    Groups,
    /// With codes of so many bytes, or none.
    Flat(Option<u32>),
    Tables,
}

/// What is built.
#[derive(Debug, Clone, Copy)]
struct Kind {
    structure: Structure,
    /// Whether the graph is measured by vectors of its own.
    held_out: bool,
    /// The layout that it is made from, by a conversion.
    from: Option<GraphLayoutChoice>,
    /// Of the old index and of the new one: whether it is striped.
    striped: [bool; 2],
    /// Whether the set is built in parts, for want of memory.
    in_parts: bool,
}

/// Nothing is striped.
const WHOLE: [bool; 2] = [false; 2];

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
    Kind { structure: Structure::Groups, held_out: false, from: None, striped: WHOLE, in_parts: false };

/// The disks of striped indexes.
const DISKS: [&str; 2] = ["/a", "/b"];

/// Whether every operation is struck in large sets, too.
fn strikes_all() -> bool {
    std::env::var_os(ALL_OPERATIONS).is_some()
}

/// A store whose drafts are striped, or not.
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
    /// Of the old index and of the new one: other vectors, as many.
    sets: [VectorFile; 2],
    many: [VectorFile; 2],
    /// Sets that are divided.
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

/// Vectors in a file, since a build from memory is not continued.
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

    /// Rows and dimensions of a set that the least memory divides: its vectors take more than other stages.
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

/// A disk with faults, and the store on it.
struct Bench<'a> {
    data: &'a Data,
    kind: Kind,
    platter: SimulatedDisk,
    faults: Faults,
    store: LocalStore,
}

impl<'a> Bench<'a> {
    fn on(data: &'a Data, kind: Kind, platter: SimulatedDisk, exchange: bool) -> Bench<'a> {
        let faults = Faults::new(Arc::new(platter.clone()));
        let faults = if exchange { faults } else { faults.without_exchange() };
        let store = store(&faults, kind.striped[1]);
        Bench { data, kind, platter, faults, store }
    }

    /// One with the old index on it, or none, and what a conversion is made from.
    fn new(data: &'a Data, kind: Kind, old: bool) -> Bench<'a> {
        let platter = SimulatedDisk::default();
        for folder in DISKS.iter().chain([&"/folder"]) {
            platter.create_folder(Path::new(folder)).unwrap();
        }
        platter.sync_folder(Path::new("/")).unwrap();
        let bench = Bench::on(data, kind, platter, true);
        let before = store(&bench.faults, kind.striped[0]);
        if let Some(layout) = kind.from {
            let options = Kind { held_out: kind.held_out, ..graph(layout) }.options(data, false);
            build_in(&kind.data(data)[1], &before, "source", &options, &Silent).unwrap();
        }
        if old {
            build_in(&kind.data(data)[0], &before, "index", &kind.options(data, false), &Silent).unwrap();
        }
        bench.platter.sync_folder(Path::new("/folder")).unwrap();
        bench
    }

    /// All paths on the disk, without the numbers in the names of parts.
    fn paths(&self) -> Vec<String> {
        let keyless = |path: String| match path.rsplit_once('-') {
            Some((key, part)) if part.contains(".part") => format!("{}-KEY-{part}", &key[..key.len() - 17]),
            _ => path,
        };
        let mut paths: Vec<String> = self.platter.paths().into_iter().map(keyless).collect();
        paths.sort();
        paths
    }

    fn copy(&self, exchange: bool) -> Bench<'a> {
        Bench::on(self.data, self.kind, self.platter.copy(), exchange)
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

    /// What the index under the name answers; `None` if there is none.
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
        assert_eq!(found.list().unwrap(), names, "strays were published");
        let options = OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
        let index = Index::open_in(found.as_ref(), &options, &Silent).unwrap();
        // Where all vectors are compared there are no candidates.
        let all = index.manifest().family == "flat" && index.memory_split().codes == 0;
        let effort = if all { Effort::Recall(1.0) } else { Effort::SearchList(64) };
        let options = SearchOptions { k: 3, effort, threads: 1, ..SearchOptions::default() };
        let result = index.search(self.kind.queries(self.data), &options, Control::default()).unwrap();
        Some((result.ids, result.distances.iter().map(|distance| distance.to_bits()).collect()))
    }
}

/// Ids, and distances as bits.
type Answers = (Vec<u32>, Vec<u32>);

/// A sweep over all operations of one kind of build.
struct Sweep<'a> {
    /// The disk that each build begins with.
    start: Bench<'a>,
    old: Option<Answers>,
    new: Answers,
    /// The names on a disk where all went well.
    paths: Vec<String>,
    /// Whether each build goes on from what a killed one has left.
    resumes: bool,
}

impl<'a> Sweep<'a> {
    fn new(data: &'a Data, kind: Kind, old: bool) -> Sweep<'a> {
        let start = Bench::new(data, kind, old);
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

    /// The same after a build that was killed at an operation.
    fn after_kill(mut self, operation: usize) -> Sweep<'a> {
        let bench = self.start.copy(true);
        bench.faults.inject(operation, Fault::Kill);
        bench.build(self.old.is_some()).unwrap_err();
        self.start = Bench::on(bench.data, bench.kind, bench.platter.copy(), true);
        self.resumes = true;
        self
    }

    /// Lets `fault` strike at one operation after the other until a build gets through; returns how many
    /// there are.
    fn run(&self, exchange: bool, fault: Fault, powerless: Option<u64>) -> usize {
        let stride = match self.start.kind.in_parts {
            _ if strikes_all() => 1,
            true => STRIDE,
            false if fault == Fault::Kill && powerless.is_none() && !self.resumes => 1,
            false => OTHER_STRIDE,
        };
        for number in (0..).step_by(stride) {
            let bench = self.start.copy(exchange);
            bench.faults.inject(number, fault);
            let built = bench.build(self.old.is_some());
            let struck = bench.faults.injected();
            bench.faults.clear();
            let Some(struck) = struck else {
                built.unwrap();
                return number;
            };
            let what = format!("{:?}, {exchange} {powerless:?}: {struck}: {built:?}", bench.kind);
            if let Some(seed) = powerless {
                bench.platter.lose_power(seed ^ number as u64);
            }
            self.examine(&bench, &what);
        }
        unreachable!("a build has an end")
    }

    fn examine(&self, bench: &Bench<'_>, what: &str) {
        let found = bench.answers();
        assert!(
            found == self.old || found.as_ref() == Some(&self.new),
            "{what}: neither old nor new: {found:?}"
        );
        let published = found.as_ref() == Some(&self.new);
        match bench.build(self.old.is_some()) {
            Ok(()) => {}
            // Nobody asked for it to be replaced.
            Err(IndexError::Exists { .. }) if published && self.old.is_none() => {}
            Err(other) => panic!("{what}: the rerun: {other}"),
        }
        assert_eq!(bench.answers().as_ref(), Some(&self.new), "{what}: the rerun");
        assert_eq!(bench.paths(), self.paths, "{what}: something is left over");
    }
}

/// All sweeps of one kind.
fn sweep(kind: Kind) {
    let data = Data::new();
    let fresh = Sweep::new(&data, kind, false);
    let operations = fresh.run(true, Fault::Kill, None);
    // One file takes the fewest.
    assert!(operations > 30, "{kind:?}: the sweep found {operations} operations");
    fresh.run(true, Fault::Kill, Some(7));
    // A conversion replaces nothing.
    if kind.from.is_some() {
        fresh.run(true, Fault::Full, None);
        fresh.run(true, Fault::Once(libc::EIO), None);
        return;
    }
    let replacing = Sweep::new(&data, kind, true);
    for fault in [Fault::Kill, Fault::Full, Fault::Once(libc::EIO)] {
        replacing.run(true, fault, None);
    }
    replacing.run(true, Fault::Kill, Some(8));
    // What a build goes on from it may lose again.
    Sweep::new(&data, kind, true).after_kill(operations * 2 / 3).run(true, Fault::Kill, None);
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
        let operations = replacing.run(true, Fault::Kill, None);
        for fault in [Fault::Full, Fault::Once(libc::EIO)] {
            replacing.run(true, fault, None);
        }
        replacing.run(false, Fault::Kill, Some(8));
        replacing.after_kill(operations / 2).run(true, Fault::Kill, Some(9));
    }
    let converted =
        Kind { striped: [true, true], ..converted(GraphLayoutChoice::Padded, GraphLayoutChoice::Csr) };
    Sweep::new(&data, converted, false).run(true, Fault::Kill, None);
}

#[test]
fn graphs_with_held_out_vectors_are_published_whole_or_not_at_all() {
    let data = Data::new();
    Sweep::new(&data, Kind { held_out: true, ..graph(GraphLayoutChoice::Csr) }, true).run(
        true,
        Fault::Kill,
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

/// Sets that are divided first: what is spilled and removed beside the rest of a build.
#[test]
fn sets_in_parts_are_published_whole_or_not_at_all() {
    let kinds = [CLUSTER, lists(PostingLayout::Grouped, false)].into_iter().enumerate();
    for (_, kind) in kinds.filter(|(number, _)| strikes_all() || case_runs(*number, 2)) {
        let data = Data::new();
        let kind = Kind { in_parts: true, ..kind };
        let sweep = Sweep::new(&data, kind, true);
        let operations = sweep.run(true, Fault::Kill, None);
        assert!(operations > 100, "{kind:?}: the sweep found {operations} operations");
        if strikes_all() {
            sweep.run(true, Fault::Full, None);
            sweep.run(true, Fault::Kill, Some(11));
            sweep.after_kill(operations / 2).run(true, Fault::Kill, None);
        }
    }
}

#[test]
fn graphs_in_parts_are_published_whole_or_not_at_all() {
    let data = Data::new();
    let kind = Kind { held_out: true, in_parts: true, ..graph(GraphLayoutChoice::Padded) };
    let sweep = Sweep::new(&data, kind, true);
    let operations = sweep.run(true, Fault::Kill, None);
    assert!(operations > 150, "the sweep found {operations} operations");
    sweep.run(true, Fault::Full, None);
    sweep.run(true, Fault::Kill, Some(11));
    sweep.after_kill(operations / 2).run(true, Fault::Kill, None);
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
        sweep.run(false, Fault::Kill, None);
        (0..full_or_quick(10, 3)).for_each(|seed| _ = sweep.run(false, Fault::Kill, Some(seed << 16)));
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
            let bench = sweep.start.copy(true);
            bench.faults.inject(number, Fault::Kill);
            let killed = bench.build(true);
            bench.faults.clear();
            if killed.is_ok() || bench.answers().as_ref() == Some(&sweep.new) {
                break;
            }
            let stages = StageLog::default();
            let options = kind.options(&data, true);
            build_in(&data.sets[1], &bench.store, "index", &options, &stages).unwrap();
            stage_counts.push(stages.names().len());
        }
        // The nearer to the end, the less is left to do; in the end only the name is missing.
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
    let bench = Bench::new(&data, CLUSTER, true);
    bench.platter.create_folder(Path::new("/folder/photos")).unwrap();
    bench.platter.create(Path::new("/folder/photos/holiday")).unwrap();
    let paths = bench.platter.paths();
    for (name, overwrite) in [("photos", true), ("photos", false), ("index", false)] {
        let stages = StageLog::default();
        let options = CLUSTER.options(&data, overwrite);
        let refused = build_in(&data.sets[1], &bench.store, name, &options, &stages).unwrap_err();
        assert!(matches!(refused, IndexError::NotAnIndex { .. } | IndexError::Exists { .. }), "{refused}");
        assert_eq!(stages.names(), [""; 0], "{name}: no stage began");
    }
    assert_eq!(bench.platter.paths(), paths);
}
