//! Conversions of a graph to another layout: links, answers and calibration stay the same.

use crate::cases::quick_build;
use crate::clustered::vectors;
use crate::progress::CancelAfter;
use bathyal_index::families::graph::GraphEntry;
use bathyal_index::families::graph::layout::GraphLayout;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, GraphLayoutChoice, GraphOptions, Index, IndexError, OpenOptions,
    SearchOptions, SearchResult, TierChoice, build, convert_layout, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::Path;

fn options(metric: Metric, layout: GraphLayoutChoice) -> BuildOptions {
    let family = GraphOptions {
        layout,
        max_degree: 16,
        search_list: 40,
        code_bytes: Some(16),
        ..GraphOptions::default()
    };
    BuildOptions { metric, threads: 1, ..quick_build(family) }
}

fn search(path: &Path, queries: &VectorFile, search_list: u32) -> SearchResult {
    let options = OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
    let index = Index::open(path, &options).unwrap();
    let options = SearchOptions { effort: Effort::SearchList(search_list), ..SearchOptions::default() };
    index.search(queries, &options, Control::default()).unwrap()
}

/// Returns the vector and the sorted neighbours of every record of a padded graph.
fn records(path: &Path) -> Vec<(Vec<u8>, Vec<u32>)> {
    let manifest = Manifest::read(path).unwrap();
    let graph = GraphEntry::read(&manifest).unwrap();
    let GraphLayout::Padded(layout) = graph.layout(&manifest).unwrap() else { panic!("another layout") };
    let file = std::fs::read(path.join(&graph.file.name)).unwrap();
    let record = |id: u32| {
        let span = layout.span(id);
        let record = layout.decode(&file[span.offset as usize..span.end() as usize], id).unwrap();
        let mut neighbors: Vec<u32> = record.neighbors().collect();
        neighbors.sort_unstable();
        (record.vector.to_vec(), neighbors)
    };
    (0..manifest.vectors as u32).map(record).collect()
}

#[test]
fn a_conversion_and_its_inverse_return_the_same_graph() {
    let dir = tempfile::tempdir().unwrap();
    for (element, metric, dim, count) in [
        (Element::U8, Metric::L2, 24, 3000),
        (Element::F32, Metric::Cosine, 20, 1500),
        (Element::F16, Metric::InnerProduct, 16, 700),
        (Element::I8, Metric::L2, 1, 1),
        (Element::F32, Metric::L2, 1500, 40),
    ] {
        let path = |name: &str| dir.path().join(format!("{element}-{dim}-{name}"));
        let (padded, packed, back) = (path("padded"), path("packed"), path("back"));
        let (data, queries) = (vectors(element, count, dim, 1), vectors(element, 40, dim, 2));
        build(&data, &padded, &options(metric, GraphLayoutChoice::Padded), &Silent).unwrap();
        let made = convert_layout(&padded, &packed, GraphLayoutChoice::Csr, 2, &Silent).unwrap();
        assert_eq!((made.from.as_str(), made.to.as_str(), made.vectors), ("padded", "csr", count as u64));
        assert!(count < 100 || made.index_bytes < made.index_bytes_before);
        convert_layout(&packed, &back, GraphLayoutChoice::Padded, 2, &Silent).unwrap();
        let manifests = [&padded, &packed, &back].map(|path| {
            assert!(verify(path, &Silent).unwrap().sound, "{}", path.display());
            Manifest::read(path).unwrap()
        });
        assert_eq!(records(&padded), records(&back));
        for name in ["codes.bin", "codec.bin"] {
            assert!(std::fs::read(padded.join(name)).unwrap() == std::fs::read(back.join(name)).unwrap());
        }
        let [before, between, after] = manifests;
        let calibration = |manifest: &Manifest| GraphEntry::read(manifest).unwrap().calibration;
        assert_eq!(calibration(&before), calibration(&between));
        // The order of neighbours in a record may differ, and therefore the checksum of the file.
        let mut after = after;
        assert_eq!(after.files[0].name, "graph.bin");
        after.files[0].crc32c = before.paged_file().crc32c;
        assert_eq!(before, after);
        let list = count.min(60) as u32;
        let found = [&padded, &packed, &back].map(|path| search(path, &queries, list.max(10)));
        // The candidate list is so long that all layouts find the same.
        let same = found[0].ids.iter().zip(&found[1].ids).filter(|(a, b)| a == b).count();
        assert!(same as f64 >= 0.98 * found[0].ids.len() as f64, "{element} {dim}: {same}");
        assert_eq!(found[0].ids, found[2].ids);
        assert_eq!(found[0].totals, found[2].totals);
        let reads = found.map(|found| found.totals.reads as f64);
        assert!((reads[1] / reads[0] - 1.0).abs() < 0.05, "{reads:?}");
    }
}

#[test]
fn a_packed_build_and_a_packed_conversion_give_the_same_graph() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::U8, 2000, 16, 1);
    let [padded, packed, spread] = ["padded", "packed", "spread"].map(|name| dir.path().join(name));
    build(&data, &padded, &options(Metric::L2, GraphLayoutChoice::Padded), &Silent).unwrap();
    build(&data, &packed, &options(Metric::L2, GraphLayoutChoice::Csr), &Silent).unwrap();
    convert_layout(&packed, &spread, GraphLayoutChoice::Padded, 1, &Silent).unwrap();
    assert_eq!(records(&padded), records(&spread));
}

#[test]
fn refused_conversions_state_the_reason_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::U8, 500, 16, 1);
    let [padded, paged, cluster, out] =
        ["padded", "paged", "cluster", "out"].map(|name| dir.path().join(name));
    build(&data, &padded, &options(Metric::L2, GraphLayoutChoice::Padded), &Silent).unwrap();
    build(&data, &paged, &options(Metric::L2, GraphLayoutChoice::PageLocal), &Silent).unwrap();
    build(&data, &cluster, &quick_build(ClusterOptions::default()), &Silent).unwrap();
    let refused = |source: &Path, layout| match convert_layout(source, &out, layout, 1, &Silent) {
        Err(IndexError::Parameter(what)) => what,
        other => panic!("{other:?}"),
    };
    assert!(refused(&padded, GraphLayoutChoice::Padded).contains("already"));
    assert!(refused(&padded, GraphLayoutChoice::PageLocal).contains("build the index again"));
    assert!(refused(&paged, GraphLayoutChoice::Csr).contains("links of pages"));
    assert!(refused(&cluster, GraphLayoutChoice::Csr).contains("not a graph"));
    let kept = convert_layout(&padded, &paged, GraphLayoutChoice::Csr, 1, &Silent);
    assert!(matches!(kept, Err(IndexError::Exists { .. })));
    assert!(convert_layout(dir.path().join("nowhere"), &out, GraphLayoutChoice::Csr, 1, &Silent).is_err());

    let graph = padded.join("graph.bin");
    let original = std::fs::read(&graph).unwrap();
    for at in (0..original.len()).step_by(original.len() / 40) {
        let mut bytes = original.clone();
        bytes[at] ^= 4;
        std::fs::write(&graph, &bytes).unwrap();
        // A flip in unused bytes changes nothing.
        match convert_layout(&padded, &out, GraphLayoutChoice::Csr, 1, &Silent) {
            Ok(_) => std::fs::remove_dir_all(&out).unwrap(),
            Err(error) => assert!(matches!(error, IndexError::Damaged { .. }), "{error}"),
        }
    }
    std::fs::write(&graph, &original).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "a part of a conversion was left behind");
}

#[test]
fn cancelled_conversions_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::U8, 2000, 16, 1);
    let [padded, packed, out] = ["padded", "packed", "out"].map(|name| dir.path().join(name));
    build(&data, &padded, &options(Metric::L2, GraphLayoutChoice::Padded), &Silent).unwrap();
    convert_layout(&padded, &packed, GraphLayoutChoice::Csr, 1, &Silent).unwrap();
    for (source, layout) in [(&padded, GraphLayoutChoice::Csr), (&packed, GraphLayoutChoice::Padded)] {
        for checks in [0, 1, 3] {
            let outcome = convert_layout(source, &out, layout, 1, &CancelAfter::checks(checks));
            assert!(matches!(outcome, Err(IndexError::Cancelled)), "{checks}: {outcome:?}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        }
    }
}
