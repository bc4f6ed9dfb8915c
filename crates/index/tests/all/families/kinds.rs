//! Every family in every layout, with options for building and searching it.

use crate::cases::quick_build;
use crate::clustered::vectors;
use crate::shared;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::families::partitioned::PartitionedOptions;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    PostingLayout, SearchMode, SearchOptions, SearchResult, SpannOptions, build, inspect, verify,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{IdFile, VectorFile};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A family with one of its layouts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Family {
    Cluster,
    Flat,
    Lsh,
    Graph(GraphLayoutChoice),
    Lists(PostingLayout),
    Partitioned,
}

/// A kind of index, and the effort that finds nearly all neighbours in it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub family: Family,
    pub name: &'static str,
    /// Candidates, or lists of about 40 vectors, at which nearly all neighbours are found.
    pub effort: u32,
    /// Kind of the codes of lists of codes and of flat indexes with codes.
    pub code: Option<CodeKind>,
}

const fn kind(family: Family, name: &'static str, effort: u32) -> Kind {
    Kind { family, name, effort, code: None }
}

pub const KINDS: [Kind; 12] = [
    kind(Family::Cluster, "cluster", 60),
    kind(Family::Graph(GraphLayoutChoice::Padded), "padded", 60),
    kind(Family::Graph(GraphLayoutChoice::PageLocal), "page_local", 60),
    kind(Family::Graph(GraphLayoutChoice::Csr), "csr", 60),
    kind(Family::Lists(PostingLayout::Coupled), "coupled", 10),
    kind(Family::Lists(PostingLayout::Decoupled), "decoupled", 10),
    kind(Family::Lists(PostingLayout::Grouped), "grouped", 10),
    Kind { code: Some(CodeKind::Axes), ..kind(Family::Lists(PostingLayout::Coupled), "codes", 10) },
    kind(Family::Flat, "flat", 60),
    Kind { code: Some(CodeKind::Axes), ..kind(Family::Flat, "flat_codes", 60) },
    kind(Family::Lsh, "lsh", 60),
    kind(Family::Partitioned, "partitioned", 60),
];

/// Partitions at which nearly all neighbours are found.
const PARTITIONS: u32 = 10;
/// Candidates that are compared for each list of codes.
const CANDIDATES_PER_LIST: u32 = 10;

impl Kind {
    pub fn is_lists(self) -> bool {
        matches!(self.family, Family::Lists(_))
    }

    /// Returns true if the order in which reads arrive does not change the answers.
    pub fn ignores_read_order(self) -> bool {
        !matches!(self.family, Family::Graph(_))
    }

    /// Returns true if searches read single vectors where that costs no more than a page. Their answers
    /// differ, because the other vectors of the pages are not compared.
    pub fn reads_single_in_memory(self) -> bool {
        matches!(self.family, Family::Cluster | Family::Lsh)
            || self.family == Family::Flat && self.code.is_some()
    }

    /// Returns true if searches read single vectors in the memory of other machines as well.
    pub fn reads_single_in_nodes(self) -> bool {
        self.family == Family::Cluster
    }

    /// Returns true if the lengths of reads depend on the profile of the tier.
    pub fn adapts_reads(self) -> bool {
        matches!(self.family, Family::Lists(_) | Family::Flat)
    }

    /// Returns true if a search reads all vectors.
    pub fn reads_all(self) -> bool {
        self.family == Family::Flat && self.code.is_none()
    }

    /// Returns true if a search submits all its reads in one round.
    fn reads_in_one_round(self) -> bool {
        matches!(self.family, Family::Cluster | Family::Flat | Family::Lsh | Family::Partitioned)
    }

    /// Returns true if the family caches its reads, so that fewer reads reach the tier than queries submit.
    pub fn caches(self) -> bool {
        self.family == Family::Partitioned
    }

    /// Returns the number of lists or partitions that a search reads.
    fn probes(self) -> Option<u32> {
        match self.family {
            Family::Lists(_) => Some(self.effort),
            Family::Partitioned => Some(PARTITIONS),
            _ => None,
        }
    }

    /// Returns the effort of a search with `candidates`, or of one that compares all vectors.
    pub fn effort(self, candidates: u32) -> Effort {
        if self.reads_all() { Effort::Recall(1.0) } else { Effort::SearchList(candidates) }
    }

    pub fn options(self, metric: Metric) -> BuildOptions {
        BuildOptions { metric, threads: 1, ..quick_build(self.family()) }
    }

    /// Returns [`Kind::options`] with other options of posting lists, if it has lists.
    pub fn options_with(self, metric: Metric, change: impl FnOnce(&mut SpannOptions)) -> BuildOptions {
        let Family::Lists(layout) = self.family else { return self.options(metric) };
        let mut lists = self.lists(layout);
        change(&mut lists);
        BuildOptions { family: lists.into(), ..self.options(metric) }
    }

    fn family(self) -> FamilyOptions {
        match self.family {
            Family::Cluster => ClusterOptions::default().into(),
            Family::Lsh => LshOptions::default().into(),
            Family::Flat => FlatOptions { code_kind: self.code, ..FlatOptions::default() }.into(),
            Family::Graph(layout) => {
                GraphOptions { layout, max_degree: 20, search_list: 40, ..GraphOptions::default() }.into()
            }
            Family::Lists(layout) => self.lists(layout).into(),
            // Small partitions, so that few vectors have several.
            Family::Partitioned => {
                PartitionedOptions { partition_vectors: 50, ..PartitionedOptions::default() }.into()
            }
        }
    }

    fn lists(self, layout: PostingLayout) -> SpannOptions {
        // The same number of replicas in every layout, so that all layouts find the same.
        SpannOptions { layout, code_kind: self.code, replicas: Some(8), ..SpannOptions::default() }
    }

    pub fn build(self, path: &Path, data: &VectorFile, metric: Metric) {
        self.build_with(path, data, &self.options(metric));
    }

    pub fn build_with(self, path: &Path, data: &VectorFile, options: &BuildOptions) {
        let what = format!("{} {}", self.name, options.metric);
        build(data, path, options, &Silent).unwrap_or_else(|e| panic!("{what}: {e}"));
        let report = verify(path, &Silent).unwrap();
        assert!(report.sound && report.vectors == data.count() as u64, "{what}: {report:?}");
        assert_eq!(inspect(path, &Silent).unwrap().manifest.vectors, data.count() as u64);
    }

    pub fn search_options(self, mode: SearchMode) -> SearchOptions {
        let candidates =
            self.effort * if self.is_lists() && self.code.is_some() { CANDIDATES_PER_LIST } else { 1 };
        SearchOptions {
            effort: self.effort(candidates.max(10)),
            probes: self.probes(),
            // A search of one round has no mode.
            mode: (!self.reads_in_one_round()).then_some(mode),
            threads: 2,
            in_flight: Some(9),
            ..SearchOptions::default()
        }
    }

    pub fn search(
        self,
        index: &Index,
        queries: &VectorFile,
        mode: SearchMode,
    ) -> Result<SearchResult, IndexError> {
        index.search(queries, &self.search_options(mode), Control::default())
    }
}

/// Returns the share of the true neighbours that were found.
pub fn recall(found: &SearchResult, truth: &IdFile) -> f64 {
    bathyal_vectors::groundtruth::recall(truth, &found.ids, found.k, found.latencies_ns.len()).unwrap()
}

/// Data that all tests share, with an index of each kind that is built when it is first used.
pub struct Shared {
    pub data: VectorFile,
    pub queries: VectorFile,
    pub truth: IdFile,
    built: [OnceLock<()>; KINDS.len()],
}

impl Shared {
    /// Returns the data and indexes of this process.
    pub fn get() -> &'static Shared {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        SHARED.get_or_init(|| {
            let (data, queries) = (vectors(Element::U8, 2000, 32, 1), vectors(Element::U8, 40, 32, 2));
            let truth = exact_neighbors(&data, &queries, Metric::L2, 10, None, &Silent).unwrap();
            Shared { data, queries, truth, built: Default::default() }
        })
    }

    /// Returns the index of `KINDS[number]`, and builds it if necessary.
    pub fn path(&self, number: usize) -> PathBuf {
        let kind = KINDS[number];
        let path = shared::folder().join(format!("families-{}", kind.name));
        self.built[number].get_or_init(|| kind.build(&path, &self.data, Metric::L2));
        path
    }
}
