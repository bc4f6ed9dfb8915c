//! What every index family keeps to, in every layout: one suite, whatever holds the vectors.

mod clustered;
mod golden;

use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, PostingLayout, QueryStats, SearchMode, SearchOptions, SearchResult, SpannOptions,
    TierChoice, build, inspect, verify,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::backend::file::Method;
use bathyal_tier::backend::sim::{Fault, FaultRates, Latency, SimHandle, SimOptions, SimTier, When};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::{Control, Tier};
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{IdFile, VectorFile};
use clustered::vectors;
use std::path::Path;
use std::sync::Arc;

/// A family with one of its layouts.
#[derive(Clone, Copy, PartialEq)]
enum Family {
    Cluster,
    Graph(GraphLayoutChoice),
    Lists(PostingLayout),
}

/// What is built and how much effort it takes to find nearly everything.
#[derive(Clone, Copy)]
struct Kind {
    family: Family,
    name: &'static str,
    /// Candidates, or lists of about 40, at which nearly everything is found.
    effort: u32,
    /// Of lists that hold codes.
    code: Option<CodeKind>,
}

const fn kind(family: Family, name: &'static str, effort: u32) -> Kind {
    Kind { family, name, effort, code: None }
}

const LISTS: [Kind; 4] = [
    kind(Family::Lists(PostingLayout::Coupled), "coupled", 10),
    kind(Family::Lists(PostingLayout::Decoupled), "decoupled", 10),
    kind(Family::Lists(PostingLayout::Grouped), "grouped", 10),
    Kind { code: Some(CodeKind::Axes), ..kind(Family::Lists(PostingLayout::Coupled), "codes", 10) },
];
/// Candidates that are compared for each list of codes.
const CANDIDATES_A_LIST: u32 = 10;
const KINDS: [Kind; 8] = [
    kind(Family::Cluster, "cluster", 60),
    kind(Family::Graph(GraphLayoutChoice::Padded), "padded", 60),
    kind(Family::Graph(GraphLayoutChoice::PageLocal), "page_local", 60),
    kind(Family::Graph(GraphLayoutChoice::Csr), "csr", 60),
    LISTS[0],
    LISTS[1],
    LISTS[2],
    LISTS[3],
];

impl Kind {
    fn is_lists(self) -> bool {
        matches!(self.family, Family::Lists(_))
    }

    fn family(self) -> FamilyOptions {
        match self.family {
            Family::Cluster => ClusterOptions::default().into(),
            Family::Graph(layout) => {
                GraphOptions { layout, max_degree: 20, search_list: 40, ..GraphOptions::default() }.into()
            }
            Family::Lists(layout) => self.lists(layout).into(),
        }
    }

    fn lists(self, layout: PostingLayout) -> SpannOptions {
        // As many replicas in every layout of lists, so that they find the same.
        SpannOptions { layout, code_kind: self.code, replicas: Some(8), ..SpannOptions::default() }
    }

    fn options(self, metric: Metric) -> BuildOptions {
        BuildOptions { metric, threads: 1, ..BuildOptions::of(self.family()) }
    }

    /// The same with other options of lists.
    fn options_with(self, metric: Metric, change: impl FnOnce(&mut SpannOptions)) -> BuildOptions {
        let Family::Lists(layout) = self.family else { panic!("{} has no lists", self.name) };
        let mut lists = self.lists(layout);
        change(&mut lists);
        BuildOptions { family: lists.into(), ..self.options(metric) }
    }

    fn build(self, path: &Path, data: &VectorFile, metric: Metric) {
        build(data, path, &self.options(metric), &Silent)
            .unwrap_or_else(|e| panic!("{} {metric}: {e}", self.name));
        let report = verify(path, &Silent).unwrap();
        assert!(report.sound && report.vectors == data.count() as u64, "{} {metric}: {report:?}", self.name);
        assert_eq!(inspect(path, &Silent).unwrap().manifest.vectors, data.count() as u64);
    }

    fn search(
        self,
        index: &Index,
        queries: &VectorFile,
        mode: SearchMode,
    ) -> Result<SearchResult, IndexError> {
        let candidates = self.effort * if self.code.is_some() { CANDIDATES_A_LIST } else { 1 };
        let effort = Effort::SearchList(candidates.max(10));
        let probes = self.is_lists().then_some(self.effort);
        // Groups are read in one round, which knows no modes.
        let mode = (self.family != Family::Cluster).then_some(mode);
        let options = SearchOptions {
            effort,
            probes,
            mode,
            threads: 2,
            in_flight: Some(9),
            ..SearchOptions::default()
        };
        index.search(queries, &options, Control::default())
    }
}

fn open(path: &Path, options: OpenOptions) -> Index {
    Index::open(path, &options).unwrap()
}

fn on(tier: TierChoice) -> OpenOptions {
    OpenOptions { tier, ..OpenOptions::default() }
}

fn delayed(tier: TierChoice, profile: DelayProfile) -> OpenOptions {
    let wrap: bathyal_index::open::WrapTier =
        Arc::new(move |tier| Ok(Arc::new(DelayTier::new(tier, profile.clone())) as Arc<dyn Tier>));
    OpenOptions { tier, wrap: Some(wrap), ..OpenOptions::default() }
}

fn simulated(index: &Index, options: SimOptions) -> (Index, SimHandle) {
    let sim = Arc::new(SimTier::over(index.tier().clone(), options));
    let handle = sim.handle();
    let wrap: bathyal_index::open::WrapTier = Arc::new(move |_| Ok(sim.clone() as Arc<dyn Tier>));
    (open(index.path(), OpenOptions { wrap: Some(wrap), ..OpenOptions::default() }), handle)
}

/// What each query cost, but for the bytes: tiers read in units of their own.
fn without_bytes(found: &SearchResult) -> Vec<QueryStats> {
    found.per_query.iter().map(|stats| QueryStats { bytes: 0, ..*stats }).collect()
}

fn recall(found: &SearchResult, truth: &IdFile) -> f64 {
    let rows = found.ids.chunks(found.k).enumerate();
    let hits: usize =
        rows.map(|(q, row)| truth.ids(q)[..found.k].iter().filter(|id| row.contains(id)).count()).sum();
    hits as f64 / found.ids.len() as f64
}

#[test]
fn every_metric_and_element_reaches_its_recall_in_every_layout() {
    let dir = tempfile::tempdir().unwrap();
    for (metric, element) in [Metric::L2, Metric::InnerProduct, Metric::Cosine]
        .into_iter()
        .flat_map(|metric| Element::ALL.map(|element| (metric, element)))
    {
        let (data, queries) = (vectors(element, 800, 24, 1), vectors(element, 40, 24, 2));
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        let mut of_lists: Option<SearchResult> = None;
        // Other tests of each family have more of the graph and of resident codes.
        for kind in [KINDS[0], KINDS[2]].into_iter().chain(LISTS) {
            let what = format!("{metric} {element} {}", kind.name);
            let path = dir.path().join(&what);
            kind.build(&path, &data, metric);
            let file = open(&path, on(TierChoice::File));
            let found = kind.search(&file, &queries, SearchMode::Batched).unwrap();
            let share = recall(&found, &truth);
            assert!(share >= 0.95, "{what}: recall {share}");
            for (q, row) in found.distances.chunks(10).enumerate() {
                assert!(row.is_sorted(), "{what} query {q}: {row:?}");
                for (id, distance) in found.ids[q * 10..].iter().zip(row) {
                    let Some(rank) = truth.ids(q).iter().position(|near| near == id) else { continue };
                    let exact = truth.distances(q).unwrap()[rank];
                    assert!((distance - exact).abs() <= 1e-2 * exact.abs().max(0.1), "{what}: {distance}");
                }
            }
            if kind.is_lists() {
                // Where vectors lie changes nothing but the reads; codes may miss one.
                if kind.code.is_none() {
                    let same = of_lists.get_or_insert(found.clone());
                    assert_eq!((&found.ids, &found.distances), (&same.ids, &same.distances), "{what}");
                }
                let piped = kind.search(&file, &queries, SearchMode::Pipelined).unwrap();
                assert_eq!((&piped.ids, &piped.distances), (&found.ids, &found.distances), "{what}");
                let dram = open(&path, on(TierChoice::Dram));
                for mode in [SearchMode::Batched, SearchMode::Pipelined] {
                    let loaded = kind.search(&dram, &queries, mode).unwrap();
                    assert_eq!((&loaded.ids, &loaded.distances), (&found.ids, &found.distances), "{what}");
                }
            }
        }
    }
}

#[test]
fn answers_are_the_same_on_every_tier() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 2000, 32, 1), vectors(Element::U8, 40, 32, 2));
    let truth = exact_neighbors(&data, &queries, Metric::L2, 10, None, &Silent).unwrap();
    for kind in KINDS {
        let path = dir.path().join(kind.name);
        kind.build(&path, &data, Metric::L2);
        let file = open(&path, OpenOptions::default());
        let slow = SimOptions {
            latency: Latency::Uniform { low_ns: 1_000, high_ns: 900_000 },
            depth: 5,
            rates: FaultRates { delay: 0.1, reorder: 0.5, refuse: 0.2, ..FaultRates::NONE },
            ..SimOptions::default()
        };
        let (sim, handle) = simulated(&file, slow);
        let devices = [
            ("file", file),
            ("positioned", open(&path, OpenOptions { method: Method::Positioned, ..OpenOptions::default() })),
            ("page cache", open(&path, OpenOptions { page_cache: true, ..OpenOptions::default() })),
            ("ssd", open(&path, delayed(TierChoice::File, DelayProfile::ssd()))),
            ("sim", sim),
        ];
        let memories = [
            ("dram", open(&path, on(TierChoice::Dram))),
            ("mapped", open(&path, on("mapped".parse().unwrap()))),
            ("cxl", open(&path, delayed(TierChoice::Dram, DelayProfile::cxl()))),
        ];
        let expected = kind.search(&devices[0].1, &queries, SearchMode::Batched).unwrap();
        let loaded = kind.search(&memories[0].1, &queries, SearchMode::Batched).unwrap();
        // Resident codes have other candidates read where vectors can be read alone.
        if kind.family != Family::Cluster {
            assert_eq!(
                (&loaded.ids, &loaded.distances),
                (&expected.ids, &expected.distances),
                "{}",
                kind.name
            );
        }
        let tiers = devices.iter().map(|tier| (&expected, tier)).chain(memories.iter().map(|t| (&loaded, t)));
        for (expected, (name, index)) in tiers {
            let what = format!("{} on {name}", kind.name);
            let found = kind.search(index, &queries, SearchMode::Batched).unwrap();
            assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{what}");
            assert_eq!(without_bytes(&found), without_bytes(expected), "{what}");
            let piped = kind.search(index, &queries, SearchMode::Pipelined).unwrap();
            // A walk that goes on as reads arrive takes other ways; what lists hold is the same in any order.
            if kind.is_lists() {
                assert_eq!((&piped.ids, &piped.distances), (&expected.ids, &expected.distances), "{what}");
            }
            assert!(recall(&piped, &truth) >= 0.95, "{what}: {}", recall(&piped, &truth));
        }
        assert!(handle.violations().is_empty(), "{:?}", handle.violations());
    }
}

#[test]
fn odd_data_returns_all_there_is() {
    let dir = tempfile::tempdir().unwrap();
    for (name, data) in [
        ("one", vectors(Element::F32, 1, 7, 3)),
        ("two", vectors(Element::U8, 2, 1, 3)),
        ("few", vectors(Element::I8, 11, 3, 3)),
        ("equal", VectorFile::from_rows(Element::U8, 4, vec![9; 4 * 300]).unwrap()),
        ("zeros", VectorFile::from_rows(Element::F32, 4, vec![0; 16 * 100]).unwrap()),
        ("wide", vectors(Element::F16, 60, 1500, 3)),
    ] {
        let n = data.count();
        for kind in LISTS {
            // Axes of so many dimensions take long to find.
            let code =
                kind.code.map(|code| if data.dim() > 1000 { CodeKind::RaBitQ { bits: 1 } } else { code });
            let kind = Kind { code, ..kind };
            let path = dir.path().join(format!("{name}-{}", kind.name));
            kind.build(&path, &data, Metric::L2);
            for tier in [TierChoice::File, TierChoice::Dram] {
                let index = open(&path, on(tier));
                let all = SearchOptions { k: n, effort: Effort::SearchList(n as u32), ..Default::default() };
                let more = SearchOptions { k: n + 5, effort: Effort::Recall(0.9), ..Default::default() };
                // The nearest list alone holds fewer than are asked for.
                let least = SearchOptions { probes: Some(1), ..all };
                for options in [all, more, least] {
                    let found = index.search(&data, &options, Control::default()).unwrap();
                    assert_eq!(found.k, n, "{name} {}", kind.name);
                    for row in found.ids.chunks(n) {
                        let mut ids = row.to_vec();
                        ids.sort_unstable();
                        assert!(ids.iter().copied().eq(0..n as u32), "{name} {}: {ids:?}", kind.name);
                    }
                }
            }
        }
    }
}

#[test]
fn however_many_lists_are_left_out_as_many_are_found_as_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 500, 16, 1), vectors(Element::U8, 20, 16, 2));
    for kind in LISTS {
        let path = dir.path().join(kind.name);
        build(&data, &path, &kind.options_with(Metric::L2, |lists| lists.replicas = Some(1)), &Silent)
            .unwrap();
        let index = open(&path, OpenOptions::default());
        // Few lists, some of them, and more than there are; the nearest alone holds fewer than are wanted.
        for probes in [1, 5, 1000] {
            let effort = Effort::SearchList(100);
            let (probes, prune) = (Some(probes), Some(1e-6));
            let options = SearchOptions { k: 100, effort, probes, prune, ..SearchOptions::default() };
            let found = index.search(&queries, &options, Control::default());
            let found = found.unwrap_or_else(|e| panic!("{} {probes:?}: {e}", kind.name));
            assert_eq!(found.ids.len(), 20 * 100, "{} {probes:?}", kind.name);
        }
    }
}

#[test]
fn what_did_not_arrive_is_never_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (data, query) = (vectors(Element::U8, 2000, 128, 1), vectors(Element::U8, 1, 128, 2));
    for kind in LISTS {
        // Few reads, so that many pages are not touched at all.
        let kind = Kind { effort: 1, ..kind };
        let path = dir.path().join(kind.name);
        let options = kind.options_with(Metric::L2, |lists| lists.replicas = Some(3));
        build(&data, &path, &options, &Silent).unwrap();
        let index = open(&path, OpenOptions::default());
        let sound = kind.search(&index, &query, SearchMode::Batched).unwrap();
        for fault in [Fault::Error(5), Fault::Short(100), Fault::Flip(12_345)] {
            let (mut failed, mut answered) = (0, 0);
            for page in 0..index.tier().len().div_ceil(4096) {
                let script = vec![(When::Touching(page * 4096), fault)];
                let (sim, handle) = simulated(&index, SimOptions { script, ..SimOptions::default() });
                for mode in [SearchMode::Batched, SearchMode::Pipelined] {
                    match kind.search(&sim, &query, mode) {
                        Err(IndexError::Read { .. } | IndexError::Damaged { .. }) => failed += 1,
                        Err(other) => panic!("{} {fault:?}: {other}", kind.name),
                        Ok(found) => {
                            let what = format!("{} {fault:?} at page {page}", kind.name);
                            assert_eq!(
                                (&found.ids, &found.distances),
                                (&sound.ids, &sound.distances),
                                "{what}"
                            );
                            answered += 1;
                        }
                    }
                }
                assert!(handle.violations().is_empty());
            }
            assert!(failed > 0 && answered > 0, "{fault:?}: {failed} failed, {answered} answered");
        }
    }
}

#[test]
fn budgets_hold_with_centroids_or_with_their_codes() {
    let dir = tempfile::tempdir().unwrap();
    // Long rows, so that codes are much smaller than centroids.
    let (data, queries) = (vectors(Element::F32, 2000, 400, 1), vectors(Element::F32, 40, 400, 2));
    let truth = exact_neighbors(&data, &queries, Metric::L2, 10, None, &Silent).unwrap();
    for kind in LISTS {
        let path = dir.path().join(kind.name);
        let options = kind.options_with(Metric::L2, |lists| {
            (lists.code_bytes, lists.centroid_share, lists.replicas) = (Some(32), 0.3, Some(2));
        });
        build(&data, &path, &options, &Silent).unwrap();
        let budget = |bytes| OpenOptions { memory_bytes: Some(bytes), ..OpenOptions::default() };
        let least = match Index::open(&path, &budget(1)) {
            Err(IndexError::Memory { needed, .. }) => needed,
            other => panic!("{:?}", other.err()),
        };
        assert!(matches!(Index::open(&path, &budget(least - 1)), Err(IndexError::Memory { .. })));
        let mut coded = 0;
        for bytes in [least, least + (100 << 10), least + (1 << 20), least + (4 << 20), least + (64 << 20)] {
            let index = open(&path, budget(bytes));
            let split = *index.memory_split();
            assert!(split.fixed() + split.searches <= bytes, "{split:?}");
            coded += usize::from(split.codes > 0);
            let options = SearchOptions { effort: Effort::SearchList(100), threads: 1, ..Default::default() };
            let found = index.search(&queries, &options, Control::default()).unwrap();
            assert!(index.dram_bytes(1, 1, 100) <= bytes);
            let share = recall(&found, &truth);
            assert!(share >= 0.95, "{} with {bytes} bytes: {share}, {split:?}", kind.name);
        }
        assert!((1..5).contains(&coded), "{}: codes in {coded} of 5 budgets", kind.name);
    }
}

#[test]
fn searches_stop_when_told_or_late() {
    let dir = tempfile::tempdir().unwrap();
    let (data, many) = (vectors(Element::U8, 1000, 16, 1), vectors(Element::U8, 5_000, 16, 3));
    for kind in KINDS {
        let path = dir.path().join(kind.name);
        kind.build(&path, &data, Metric::L2);
        let index = open(&path, OpenOptions::default());
        let raised = std::sync::atomic::AtomicBool::new(true);
        let options = SearchOptions { effort: Effort::SearchList(900), ..SearchOptions::default() };
        let stopped = index.search(&many, &options, Control { cancel: Some(&raised), deadline: None });
        assert!(matches!(stopped, Err(IndexError::Cancelled)), "{}", kind.name);
        let deadline = Some(std::time::Instant::now());
        let late = index.search(&many, &options, Control { cancel: None, deadline });
        assert!(matches!(late, Err(IndexError::Deadline)), "{}", kind.name);
        let queries = vectors(Element::U8, 20, 16, 4);
        assert_eq!(kind.search(&index, &queries, SearchMode::Batched).unwrap().ids.len(), 200);
    }
}

#[test]
fn counters_of_posting_lists_change_only_on_purpose() {
    if golden::ran_on_every_isa("counters_of_posting_lists_change_only_on_purpose") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 3000, 32, 1), vectors(Element::U8, 50, 32, 2));
    let mut found = serde_json::Map::new();
    for kind in LISTS {
        let path = dir.path().join(kind.name);
        kind.build(&path, &data, Metric::L2);
        let index = open(&path, OpenOptions::default());
        let totals = kind.search(&index, &queries, SearchMode::Batched).unwrap().totals;
        // Round trips are one of the lists, and one more of addresses or candidates.
        assert!(totals.hops <= 100 && totals.lists == 50 * u64::from(kind.effort), "{totals:?}");
        let copies = kind.family == Family::Lists(PostingLayout::Coupled) && kind.code.is_none();
        assert_eq!(totals.small_reads == 0, copies, "{totals:?}");
        found.insert(kind.name.into(), serde_json::to_value(totals).unwrap());
    }
    golden::compare("lists.json", found.into());
}
