//! The number of bytes that a refusal for lack of memory names. It is enough to open and search an index, or
//! to build it.

use crate::cases::{CaseSelection, case_runs, quick_build};
use crate::clustered::vectors;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::families::partitioned::PartitionedOptions;
use bathyal_index::{
    BuildOptions, ClusterOptions, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, PostingLayout, SearchOptions, SpannOptions, TierChoice, build,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;

const DIMS: [usize; 7] = [1, 3, 7, 128, 960, 4096, 12_288];

fn families(dim: usize) -> Vec<(&'static str, FamilyOptions)> {
    let lists = |layout, code_kind| SpannOptions { layout, code_kind, ..SpannOptions::default() };
    let graph = |layout| GraphOptions { layout, ..GraphOptions::default() };
    // Axes of so many dimensions take long to train.
    let kind = CodeKind::RaBitQ { bits: 1 };
    let mut all: Vec<(&'static str, FamilyOptions)> = vec![
        ("cluster", ClusterOptions { code_kind: (dim > 128).then_some(kind), ..Default::default() }.into()),
        ("padded", graph(GraphLayoutChoice::Padded).into()),
        ("csr", graph(GraphLayoutChoice::Csr).into()),
        ("coupled", lists(PostingLayout::Coupled, None).into()),
        ("decoupled", lists(PostingLayout::Decoupled, None).into()),
        ("grouped", lists(PostingLayout::Grouped, None).into()),
        ("codes", lists(PostingLayout::Coupled, Some(kind)).into()),
        ("flat", FlatOptions::default().into()),
        ("flat_codes", FlatOptions { code_kind: Some(kind), ..Default::default() }.into()),
        ("lsh", LshOptions::default().into()),
        ("partitioned", PartitionedOptions { partition_vectors: 30, ..Default::default() }.into()),
    ];
    // A vector has to fit in a page.
    if dim <= 128 {
        all.push(("page_local", graph(GraphLayoutChoice::PageLocal).into()));
    }
    all
}

/// Runs `work` with a byte of memory, and then with the memory that its error names. Returns the number of
/// refusals.
fn with_named_memory<T>(what: &str, work: impl Fn(u64) -> Result<T, IndexError>) -> (usize, T) {
    let mut given = 1;
    for refused in 0..=3 {
        match work(given) {
            Ok(done) => return (refused, done),
            Err(IndexError::Memory { needed, given: reported, what: named, .. }) => {
                assert_eq!(reported, given, "{what}: {named}");
                assert!(needed > given, "{what}: {named} needs {needed}, given {given}");
                given = needed;
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
    panic!("{what}: refused with {given} bytes, which its error named");
}

fn data(element: Element, count: usize, dim: usize) -> VectorFile {
    if element == Element::B1 {
        vectors(element, count, dim.div_ceil(8), 1)
    } else {
        vectors(element, count, dim, 1)
    }
}

#[test]
fn the_memory_that_a_refused_search_names_is_enough() {
    let mut twice = Vec::new();
    let mut cases = CaseSelection::one_in(13);
    for dim in DIMS {
        let (elements, count) = match dim {
            0..=128 => (&[Element::F32, Element::U8, Element::F16, Element::B1][..], 300),
            _ => (&[Element::F32, Element::I8][..], 70),
        };
        for element in elements {
            let data = data(*element, count, dim);
            let queries = VectorFile::from_rows(
                *element,
                data.dim(),
                (0..8).flat_map(|row| data.row(row).to_vec()).collect(),
            )
            .unwrap();
            for (name, family) in families(data.dim()) {
                if !cases.next_runs() {
                    continue;
                }
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("index");
                let options = BuildOptions { metric: Metric::L2, threads: 1, ..quick_build(family) };
                build(&data, &path, &options, &Silent)
                    .unwrap_or_else(|e| panic!("{name} {element} {dim}: {e}"));
                for tier in [TierChoice::File, TierChoice::Dram] {
                    for (threads, k) in [(0, 10), (1, 10), (3, 10), (1, 60)] {
                        let what = format!("{name} of {element} x {dim} on {tier}, {threads} threads, k {k}");
                        let (refused, found) = with_named_memory(&what, |memory| {
                            let options = OpenOptions {
                                memory_bytes: Some(memory),
                                tier: tier.clone(),
                                ..Default::default()
                            };
                            let index = Index::open(&path, &options)?;
                            let options = SearchOptions { k, threads, ..SearchOptions::default() };
                            index.search(&queries, &options, Control::default())
                        });
                        assert_eq!(found.k, k, "{what}");
                        assert!(refused <= 2, "{what}: refused {refused} times");
                        if refused > 1 {
                            twice.push(what);
                        }
                    }
                }
            }
        }
    }
    println!("refused twice: {} {twice:#?}", twice.len());
}

#[test]
fn the_memory_that_a_refused_build_names_is_enough() {
    let mut cases = CaseSelection::one_in(29);
    for dim in [1, 7, 128, 4096] {
        for element in [Element::F32, Element::U8] {
            for count in [1, 2, 20, 63, 300] {
                let data = data(element, count, dim);
                for (name, family) in families(dim) {
                    for threads in [1, 3] {
                        if !cases.next_runs() {
                            continue;
                        }
                        let what = format!("{name} of {count} x {dim} {element}, {threads} threads");
                        let dir = tempfile::tempdir().unwrap();
                        let path = dir.path().join("index");
                        let options = BuildOptions { threads, ..quick_build(family.clone()) };
                        let (refused, _) = with_named_memory(&what, |memory| {
                            let options = BuildOptions { memory_bytes: Some(memory), ..options.clone() };
                            build(&data, &path, &options, &Silent)
                        });
                        assert_eq!(refused, 1, "{what}");
                        let build_with = |memory| {
                            let options = BuildOptions { memory_bytes: Some(memory), ..options.clone() };
                            match build(&data, &dir.path().join("less"), &options, &Silent) {
                                Err(IndexError::Memory { needed, .. }) => needed,
                                other => panic!("{what}: {other:?}"),
                            }
                        };
                        let enough = build_with(1);
                        assert_eq!(build_with(enough - 1), enough, "{what}: one byte less");
                    }
                }
            }
        }
    }
}

/// Reserved buffers that are never used take no memory.
#[test]
fn the_reported_memory_of_a_search_leaves_out_unused_buffers() {
    let dim = 16_384;
    let data = data(Element::F32, 48, dim);
    let queries = VectorFile::from_rows(Element::F32, dim, data.row(3).to_vec()).unwrap();
    for (_, (name, family)) in
        families(dim).into_iter().enumerate().filter(|(number, _)| case_runs(*number, 2))
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let report = build(&data, &path, &quick_build(family), &Silent).unwrap();
        let index = Index::open(&path, &OpenOptions::default()).unwrap();
        let options = SearchOptions { threads: 8, ..SearchOptions::default() };
        let found = index.search(&queries, &options, Control::default()).unwrap();
        let (used, fixed) = (index.dram_bytes_of(&found, &options), index.dram_bytes(0, 0, 0));
        // A query of a graph holds the records of a beam. Queries of other families read the file once at
        // most.
        let graph = ["padded", "csr"].contains(&name);
        let most = fixed + (6 << 20) + if graph { 0 } else { 2 * report.index_bytes };
        let index_bytes = report.index_bytes;
        assert!(
            used > fixed && used <= most,
            "{name}: {used}, {fixed} of the open index, {index_bytes} of its files"
        );
        assert!(index.dram_bytes(4, 4, 100) >= used, "{name}");
    }
}
