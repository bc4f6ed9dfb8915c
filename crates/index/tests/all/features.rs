//! Functions of an open index besides the search for k neighbours: ranges, several indexes, blocks, warm-up,
//! explanations, counters.

use crate::cases::{CaseSelection, full_or_quick, quick_build};
use crate::clustered::vectors;
use bathyal_index::cost::deviation::judge;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, RangeOptions, SearchOptions, SpannOptions, TierChoice, build, search_many,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::{Control, TierProfile};
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{IdFile, IdWriter, VectorFile};
use std::num::NonZeroUsize;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Family {
    Cluster,
    Graph,
    Spann,
    Flat,
    Lsh,
}

const FAMILIES: [Family; 5] = [Family::Cluster, Family::Graph, Family::Spann, Family::Flat, Family::Lsh];

impl Family {
    fn options(self) -> FamilyOptions {
        match self {
            Family::Cluster => ClusterOptions::default().into(),
            Family::Flat => FlatOptions::default().into(),
            Family::Lsh => LshOptions::default().into(),
            Family::Graph => {
                GraphOptions { max_degree: 24, search_list: 50, ..GraphOptions::default() }.into()
            }
            // Replicas, so that grouped lists have addresses and queries meet vectors twice.
            Family::Spann => SpannOptions { replicas: Some(8), ..SpannOptions::default() }.into(),
        }
    }
}

fn build_index(path: &Path, data: &VectorFile, family: Family, metric: Metric) -> Index {
    let options = BuildOptions { metric, threads: 2, ..quick_build(family.options()) };
    build(data, path, &options, &Silent).unwrap();
    Index::open(path, &OpenOptions::default()).unwrap()
}

#[test]
fn range_searches_find_the_same_as_exact_search() {
    let dir = tempfile::tempdir().unwrap();
    let mut cases = CaseSelection::one_in(2);
    for (metric, element) in
        [(Metric::L2, Element::F32), (Metric::InnerProduct, Element::F16), (Metric::Cosine, Element::U8)]
    {
        let (data, queries) = (vectors(element, 3000, 24, 1), vectors(element, 40, 24, 2));
        let truth = exact_neighbors(&data, &queries, metric, 3000, None, &Silent).unwrap();
        for family in FAMILIES.into_iter().filter(|_| cases.next_runs()) {
            let index = build_index(&dir.path().join(format!("{family:?}-{metric}")), &data, family, metric);
            // From a few answers to more than a cluster of the data has.
            for rank in [3, 40, 400] {
                let radius = truth.distances(0).unwrap()[rank];
                let options = RangeOptions { recall: 0.95, ..RangeOptions::default() };
                let found = index.range_search(&queries, radius, &options, Control::default()).unwrap();
                let (mut hits, mut wanted) = (0, 0);
                assert_eq!(found.offsets.len(), 41);
                for q in 0..40 {
                    let part = found.offsets[q]..found.offsets[q + 1];
                    let (ids, distances) = (&found.ids[part.clone()], &found.distances[part]);
                    assert!(distances.is_sorted() && distances.iter().all(|d| *d <= radius));
                    let within = truth.distances(q).unwrap().partition_point(|d| *d <= radius);
                    hits += truth.ids(q)[..within].iter().filter(|id| ids.contains(id)).count();
                    wanted += within;
                }
                let recall = hits as f64 / wanted as f64;
                println!("{family:?} {metric} rank {rank}: {recall} of {wanted}, {:?}", found.totals);
                assert!(recall >= 0.92, "{family:?} {metric} rank {rank}: {recall} of {wanted}");
                assert!(found.ids.len() <= wanted + wanted / 50 + 1, "{} of {wanted}", found.ids.len());
            }
            // No squared distance is below 0.
            if metric != Metric::L2 {
                let none = f32::NEG_INFINITY;
                let found = index.range_search(&queries, none, &RangeOptions::default(), Control::default());
                let found = found.unwrap();
                assert_eq!((found.ids.len(), found.offsets), (0, vec![0; 41]));
            }
            let all = RangeOptions { limit: Some(25), ..RangeOptions::default() };
            let found = index.range_search(&queries, f32::INFINITY, &all, Control::default()).unwrap();
            assert_eq!(found.ids.len(), 40 * 25);
            assert!(found.notes[0].contains("limit"), "{:?}", found.notes);
        }
    }
}

#[test]
fn an_infinite_radius_finds_all_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::U8, 300, 8, 1);
    for family in FAMILIES {
        let index = build_index(&dir.path().join(format!("{family:?}")), &data, family, Metric::L2);
        let range_search =
            |radius, options: &RangeOptions| index.range_search(&data, radius, options, Control::default());
        let found = range_search(f32::INFINITY, &RangeOptions::default()).unwrap();
        assert_eq!(found.ids.len(), 300 * 300, "{family:?}");
        let itself = range_search(0.0, &RangeOptions::default()).unwrap();
        assert!((0..300).all(|q| itself.ids[itself.offsets[q]..itself.offsets[q + 1]].contains(&(q as u32))));
        for radius in [f32::NAN, -1.0, -f32::MIN_POSITIVE, f32::NEG_INFINITY] {
            assert!(matches!(range_search(radius, &RangeOptions::default()), Err(IndexError::Parameter(_))));
        }
        let none = RangeOptions { limit: Some(0), ..RangeOptions::default() };
        assert!(matches!(range_search(1.0, &none), Err(IndexError::Parameter(_))));
        let impossible = RangeOptions { recall: 2.0, ..RangeOptions::default() };
        assert!(matches!(range_search(1.0, &impossible), Err(IndexError::Parameter(_))));
    }
}

#[test]
fn a_range_search_stays_within_its_budget_and_adds_a_note() {
    let dir = tempfile::tempdir().unwrap();
    let count = full_or_quick(20_000, 8000);
    let data = vectors(Element::U8, count, 8, 1);
    let query = VectorFile::from_rows(Element::U8, 8, data.row(5).to_vec()).unwrap();
    for family in FAMILIES {
        let index = build_index(&dir.path().join(format!("{family:?}")), &data, family, Metric::L2);
        // A budget for a usual search, and not for a list of all vectors.
        let open = |bytes| {
            Index::open(index.path(), &OpenOptions { memory_bytes: Some(bytes), ..OpenOptions::default() })
        };
        let needed = match open(1) {
            Err(IndexError::Memory { needed, .. }) => needed,
            other => panic!("{:?}", other.err()),
        };
        let tight = open(needed + (64 << 10)).unwrap();
        let options = RangeOptions { threads: 1, ..RangeOptions::default() };
        let found = tight.range_search(&query, f32::INFINITY, &options, Control::default()).unwrap();
        assert!(found.ids.len() >= 16 && found.ids.len() < count, "{family:?}: {}", found.ids.len());
        assert!(found.notes.iter().any(|note| note.contains("budget")), "{:?}", found.notes);
    }
}

#[test]
fn several_indexes_answer_like_one() {
    let dir = tempfile::tempdir().unwrap();
    let (all, queries) = (vectors(Element::U8, 2000, 16, 1), vectors(Element::U8, 30, 16, 2));
    let part = |rows: std::ops::Range<usize>| {
        VectorFile::from_rows(Element::U8, 16, all.rows(rows).unwrap().to_vec()).unwrap()
    };
    let one = build_index(&dir.path().join("one"), &part(0..700), Family::Cluster, Metric::L2);
    let two = build_index(&dir.path().join("two"), &part(700..705), Family::Graph, Metric::L2);
    let three = build_index(&dir.path().join("three"), &part(705..2000), Family::Graph, Metric::L2);
    let truth = exact_neighbors(&all, &queries, Metric::L2, 10, None, &Silent).unwrap();
    let options = SearchOptions { effort: Effort::SearchList(300), ..SearchOptions::default() };
    let found = search_many(&[&one, &two, &three], &queries, &options, Control::default()).unwrap();
    assert_eq!((found.k, &found.first_ids[..]), (10, &[0, 700, 705][..]));
    let ids: Vec<u32> = found.places.iter().map(|place| found.id(*place) as u32).collect();
    let found_ids = IdFile::from_parts(10, ids, None).unwrap();
    let hits: usize =
        (0..30).map(|q| truth.ids(q).iter().filter(|id| found_ids.ids(q).contains(id)).count()).sum();
    assert!(hits >= 295, "{hits} of 300");
    assert!(found.distances.chunks(10).all(|row| row.is_sorted()));
    assert!(found.totals.reads > 0 && found.latencies_ns.iter().all(|ns| *ns > 0));

    let few = SearchOptions { k: 5000, effort: Effort::SearchList(5000), ..SearchOptions::default() };
    let found = search_many(&[&two, &one], &queries, &few, Control::default()).unwrap();
    assert_eq!((found.k, found.places.len()), (705, 30 * 705));
    assert!(found.notes[0].contains("only 705"), "{:?}", found.notes);

    let other = build_index(&dir.path().join("ip"), &part(0..100), Family::Cluster, Metric::InnerProduct);
    let wide =
        build_index(&dir.path().join("wide"), &vectors(Element::U8, 50, 17, 1), Family::Graph, Metric::L2);
    for (lot, word) in [(&[&one, &other][..], "metric"), (&[&one, &wide], "dim"), (&[], "at least one")] {
        let refused = search_many(lot, &queries, &options, Control::default()).unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
}

#[test]
fn blocks_of_queries_get_the_same_answers_and_are_written_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 1500, 16, 1), vectors(Element::F32, 103, 16, 2));
    for family in FAMILIES {
        let index = build_index(&dir.path().join(format!("{family:?}")), &data, family, Metric::L2);
        let options = SearchOptions::default();
        let whole = index.search(&queries, &options, Control::default()).unwrap();
        for name in ["found.ibin", "found.ivecs"] {
            let path = dir.path().join(name);
            let mut writer = IdWriter::create(&path, 10).unwrap();
            let mut seen = Vec::new();
            let write = |rows: std::ops::Range<usize>, found: bathyal_index::SearchResult| {
                seen.push(rows);
                writer.push(&found.ids, &found.distances).map_err(IndexError::from)
            };
            let block = NonZeroUsize::new(25).unwrap();
            index.search_blocks(&queries, block, &options, Control::default(), write).unwrap();
            assert_eq!(seen, [0..25, 25..50, 50..75, 75..100, 100..103]);
            assert!(!path.exists(), "the file appears when it is finished");
            writer.finish().unwrap();
            let read = IdFile::open(&path).unwrap();
            assert_eq!(read.all_ids(), whole.ids);
            assert!(name == "found.ivecs" || read.all_distances() == Some(&whole.distances[..]));
            std::fs::remove_file(&path).unwrap();
        }
        let stop = |_, _| Err(IndexError::Cancelled);
        let block = NonZeroUsize::new(1).unwrap();
        assert!(index.search_blocks(&queries, block, &options, Control::default(), stop).is_err());
    }
    assert!(IdWriter::create(dir.path().join("x.ibin"), 0).is_err());
    assert!(IdWriter::create(dir.path().join("x.fbin"), 3).is_err());
    let mut writer = IdWriter::create(dir.path().join("x.ibin"), 3).unwrap();
    assert!(writer.push(&[1, 2], &[0.0, 0.0]).is_err());
    assert!(writer.finish().is_err(), "it has no query");
    assert!(!dir.path().join("x.ibin").exists());
}

#[test]
fn explanations_agree_with_searches() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 2000, 32, 1), vectors(Element::U8, 5, 32, 2));
    for family in FAMILIES {
        let path = dir.path().join(format!("{family:?}"));
        build_index(&path, &data, family, Metric::L2);
        for tier in [TierChoice::File, TierChoice::Dram] {
            let index = Index::open(&path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap();
            let options = SearchOptions::default();
            let found = index.search(&queries, &options, Control::default()).unwrap();
            let explained = index.explain(&queries, 3, &options, Control::default()).unwrap();
            let cost = found.per_query[3];
            // Queries that share reads count them with the first one.
            let reads = if family == Family::Flat { found.per_query[0] } else { cost };
            assert_eq!(
                (explained.hops, explained.reads, explained.bytes),
                (reads.hops, reads.reads, reads.bytes)
            );
            assert_eq!(explained.code_distances, cost.code_distances);
            assert_eq!(explained.full_distances, cost.full_distances);
            assert_eq!(explained.ids, found.ids[30..40]);
            assert_eq!(explained.distances, found.distances[30..40]);
            assert_eq!(explained.groups_scanned.is_some(), matches!(family, Family::Cluster | Family::Spann));
            let phases: u64 = explained.phases.iter().map(|phase| phase.ns).sum();
            assert!(phases > 0 && phases <= explained.total_ns, "{explained:?}");
            let memory: u64 = explained.memory.iter().map(|part| part.bytes).sum();
            // A query of a cluster index may rank twice the number of groups of its effort. Each takes the
            // memory of a candidate.
            let ranked = match family {
                Family::Cluster => explained.groups.unwrap().min(2 * explained.probes.unwrap()),
                _ => 0,
            };
            let planned = explained.search_list.max(ranked) as u32;
            assert_eq!(memory, index.dram_bytes(1, 1, planned), "{explained:?}");
            assert!(index.explain(&queries, 5, &options, Control::default()).is_err());
        }
    }
}

/// The means of a batch are those of its queries, answered one at a time. The judge sees the same numbers.
#[test]
fn explanations_of_several_queries_have_their_means() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 2000, 32, 1), vectors(Element::U8, 5, 32, 2));
    for family in FAMILIES {
        let path = dir.path().join(format!("{family:?}"));
        build_index(&path, &data, family, Metric::L2);
        let index = Index::open(&path, &OpenOptions::default()).unwrap();
        let options = SearchOptions::default();
        let batch = index.explain_batch(&queries, 1..4, &options, Control::default()).unwrap();
        let single = |row| index.explain(&queries, row, &options, Control::default()).unwrap();
        let singles = [single(1), single(2), single(3)];
        let mean = |number: &dyn Fn(&bathyal_index::Explanation) -> f64| {
            singles.iter().map(number).sum::<f64>() / singles.len() as f64
        };
        let (actual, predicted) = (&batch.actual, &batch.predicted);
        for (found, expected) in [
            (actual.rounds, mean(&|one| f64::from(one.hops))),
            (actual.reads, mean(&|one| f64::from(one.reads))),
            (actual.bytes, mean(&|one| one.bytes as f64)),
            (actual.code_distances, mean(&|one| f64::from(one.code_distances))),
            (actual.full_distances, mean(&|one| f64::from(one.full_distances))),
            (predicted.rounds, singles[0].predicted.hops),
            (predicted.reads, singles[0].predicted.reads),
            (predicted.bytes, singles[0].predicted.moved_bytes),
            (predicted.total_ns, singles[0].predicted.total_ns),
            (predicted.navigate_ns, singles[0].predicted.navigate_ns),
        ] {
            assert!((found - expected).abs() < 1e-6 * expected.max(1.0), "{family:?}: {found} {expected}");
        }
        assert_eq!((batch.queries, batch.k, batch.search_list), (3, 10, singles[0].search_list));
        for (own, counter) in batch.own.iter().map(|(counter, total)| (total, counter.name)) {
            assert_eq!(own, singles.iter().map(|one| one.own.of(counter).unwrap()).sum::<u64>(), "{counter}");
        }
        assert_eq!(batch.tiers.iter().map(|tier| tier.reads).sum::<f64>(), actual.reads);
        assert_eq!(batch.failed, judge(predicted, actual, batch.factor));
        for rows in [4..6, 2..2] {
            let refused = index.explain_batch(&queries, rows, &options, Control::default());
            assert!(refused.unwrap_err().to_string().contains("5 queries"));
        }
    }
}

/// A graph with a page for each vector moves too many bytes for a narrow device, and says so.
#[test]
fn a_layout_that_does_not_suit_the_tier_is_named_in_a_note() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 2000, 32, 1), vectors(Element::U8, 5, 32, 2));
    let narrow = |bandwidth_bytes_per_s| TierProfile {
        kind: "narrow".into(),
        method: String::new(),
        granularity: 64,
        alignment: 1,
        addressable: true,
        latency_ns: 300,
        iops: 0.0,
        bandwidth_bytes_per_s,
        depth: 64,
        issue_ns: 0,
        rates: Vec::new(),
    };
    let noted = |layout, bandwidth| {
        let path = dir.path().join(format!("{layout:?}"));
        if !path.exists() {
            let options = GraphOptions { max_degree: 24, search_list: 50, layout, ..GraphOptions::default() };
            let options = BuildOptions { threads: 2, ..quick_build(FamilyOptions::from(options)) };
            build(&data, &path, &options, &Silent).unwrap();
        }
        let profile = Some(narrow(bandwidth));
        let open = OpenOptions { tier: TierChoice::Dram, profile, ..OpenOptions::default() };
        let index = Index::open(&path, &open).unwrap();
        let options = SearchOptions { threads: 1, ..SearchOptions::default() };
        let notes = index.search(&queries, &options, Control::default()).unwrap().notes;
        let advice = index.layout_advice(&options).unwrap();
        assert_eq!(notes, Vec::from_iter(advice.map(|advice| advice.note())));
        advice
    };
    // A hundred megabytes a second take far longer for pages than the processor for the query.
    let advice = noted(GraphLayoutChoice::Padded, 1e8).unwrap();
    assert_eq!((advice.layout, advice.other), ("padded", "csr"));
    assert!(advice.times >= 1.5 && advice.bytes > 5.0 * advice.other_bytes, "{advice:?}");
    assert_eq!(noted(GraphLayoutChoice::Padded, 0.0), None, "the bandwidth is not known");
    assert_eq!(noted(GraphLayoutChoice::Padded, 1e12), None, "the processor is slower than the device");
    assert_eq!(noted(GraphLayoutChoice::Csr, 1e8), None, "no layout moves fewer bytes");
    assert_eq!(noted(GraphLayoutChoice::PageLocal, 1e8), None, "it cannot be converted");
}

#[test]
fn a_warm_index_answers_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for (element, metric) in [(Element::U8, Metric::L2), (Element::F16, Metric::Cosine)] {
        let (data, queries) = (vectors(element, 1000, 16, 1), vectors(element, 20, 16, 2));
        for family in FAMILIES {
            let cold = build_index(&dir.path().join(format!("{family:?}-{element}")), &data, family, metric);
            let warm = Index::open(cold.path(), &OpenOptions::default()).unwrap();
            let options = SearchOptions { threads: 2, ..SearchOptions::default() };
            let report = warm.warm(&options, Control::default()).unwrap();
            assert!(report.queries > 0 && report.reads > 0 && report.bytes > 0, "{report:?}");
            let [a, b] = [&cold, &warm].map(|i| i.search(&queries, &options, Control::default()).unwrap());
            assert_eq!((a.ids, a.distances), (b.ids, b.distances));
        }
    }
}

#[test]
fn counters_count_every_query_once() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 1000, 16, 1), vectors(Element::U8, 37, 16, 2));
    for family in FAMILIES {
        let index = build_index(&dir.path().join(format!("{family:?}")), &data, family, Metric::L2);
        assert_eq!(index.stats().queries, 0);
        let found = index.search(&queries, &SearchOptions::default(), Control::default()).unwrap();
        let again = index.search(&queries, &SearchOptions::default(), Control::default()).unwrap();
        let deadline = Some(std::time::Instant::now());
        index.search(&queries, &SearchOptions::default(), Control { cancel: None, deadline }).unwrap_err();
        let stats = index.stats();
        assert_eq!(stats.errors, 1);
        assert!((74..=111).contains(&stats.queries), "{stats:?}");
        assert!(stats.reads >= found.totals.reads + again.totals.reads);
        assert_eq!(stats.latency_histogram.iter().map(|bar| bar.queries).sum::<u64>(), stats.queries);
        let text = stats.to_prometheus();
        assert!(text.contains("# TYPE bathyal_queries_total counter"), "{text}");
        assert!(text.contains("le=\"+Inf\""), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("bathyal_") && value.parse::<f64>().is_ok(), "{line}");
        }
    }
}
