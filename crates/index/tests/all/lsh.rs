//! Properties of hash tables alone: the promise, tables that are sorted in parts, additional buckets, and
//! ratios.

use crate::cases::{full_or_quick, quick_build};
use bathyal_index::build::planned_memory;
use bathyal_index::families::lsh::{LshEntry, LshOptions};
use bathyal_index::open::MAX_MULTI_PROBE;
use bathyal_index::{
    BuildOptions, Effort, Index, IndexError, OpenOptions, SearchOptions, TierChoice, build, inspect, verify,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{OverallRatio, exact_neighbors};
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const DIM: usize = 24;

/// Returns a random vector of length 1.
fn direction(random: &mut StdRng) -> Vec<f32> {
    let values: Vec<f32> = (0..DIM).map(|_| (0..12).map(|_| random.random::<f32>() - 0.5).sum()).collect();
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    values.iter().map(|value| value / length).collect()
}

fn vectors(rows: impl Iterator<Item = Vec<f32>>) -> VectorFile {
    let bytes = rows.flatten().flat_map(f32::to_le_bytes).collect();
    VectorFile::from_rows(Element::F32, DIM, bytes).unwrap()
}

/// Every query has a vector within R. All others are some 14 away from it, which is beyond four times R.
#[test]
fn searches_return_a_near_vector_as_often_as_promised() {
    let dir = tempfile::tempdir().unwrap();
    let (count, asked, tables, block_ids) = (full_or_quick(12_000, 6000), 250, 16, 28);
    let own = LshOptions { tables, hashes: 16, block_bytes: 128, ..LshOptions::default() };
    let radius_of = |query: usize| 1.2 * (query as f32 / asked as f32).exp2();
    let mut counts = [(3_u32, 0, 0.0), (5, 0, 0.0), (16, 0, 0.0)];
    let seeds = full_or_quick(3, 1);
    for seed in 0..seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let points: Vec<Vec<f32>> =
            (0..count).map(|_| direction(&mut random).iter().map(|value| 10.0 * value).collect()).collect();
        let queries = vectors((0..asked).map(|query| {
            let radius = radius_of(query);
            let step = direction(&mut random);
            points[query].iter().zip(step).map(|(value, step)| value + radius * step).collect()
        }));
        let path = dir.path().join(seed.to_string());
        let options = BuildOptions { seed, ..quick_build(own) };
        build(&vectors(points.into_iter()), &path, &options, &Silent).unwrap();
        let manifest = inspect(&path, &Silent).unwrap().manifest;
        let entry = LshEntry::read(&manifest).unwrap();
        let (of, buckets) = (entry.promise_parameters(count as u64), entry.buckets(&manifest).unwrap());
        let index = Index::open(&path, &OpenOptions::default()).unwrap();
        for (probes, succeeded, promised) in &mut counts {
            // All vectors that are looked at are compared.
            let options = SearchOptions {
                k: 1,
                effort: Effort::SearchList(*probes * tables * block_ids),
                probes: Some(*probes),
                threads: 1,
                ..SearchOptions::default()
            };
            let found = index.search(&queries, &options, Control::default()).unwrap();
            let near = |(query, distance): &(usize, &f32)| **distance <= (4.0 * radius_of(*query)).powi(2);
            *succeeded += found.distances.iter().enumerate().filter(near).count();
            // A bucket takes two blocks more than it fills.
            let scored = f64::from((*probes - 2) * tables * block_ids);
            let of_query = |query| of.at(&buckets, 4.0, radius_of(query).into(), scored).probability;
            *promised += (0..asked).map(of_query).sum::<f64>();
        }
    }
    let tried = (asked as u64 * seeds) as f64;
    for (probes, succeeded, promised) in counts {
        let (measured, promised) = (succeeded as f64 / tried, promised / tried);
        println!("{probes} blocks of each table: {measured:.3} succeed, {promised:.3} is promised");
        assert!(measured >= promised, "{probes} blocks: {measured} of {promised}");
    }
    // With keys that mean nothing, a query looks at the near vector with the share of the vectors that it
    // looks at: far less than is promised.
    let by_chance = f64::from(counts[0].0 * tables * block_ids) / count as f64;
    assert!(counts[0].2 / tried > 2.0 * by_chance, "{} {by_chance}", counts[0].2 / tried);
}

/// In the hardest case, one vector is at distance R from the query, and all others are just beyond twice R.
#[test]
fn searches_succeed_at_least_as_often_as_promised_in_the_hardest_case() {
    let dir = tempfile::tempdir().unwrap();
    let (count, seeds) = (3000, full_or_quick(30, 10));
    let own = LshOptions { tables: 12, hashes: 12, block_bytes: 128, ..LshOptions::default() };
    let query = vectors(std::iter::once(vec![0.0; DIM]));
    let mut succeeded = [(1_u32, 0, 0.0), (8, 0, 0.0), (24, 0, 0.0), (72, 0, 0.0)];
    for seed in 0..seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let far = (1..count).map(|_| direction(&mut random).iter().map(|value| 2.05 * value).collect());
        let rows: Vec<Vec<f32>> = far.collect();
        let near = std::iter::once(direction(&mut random));
        let path = dir.path().join(seed.to_string());
        let options = BuildOptions { seed, calibration: Some(query.clone()), ..quick_build(own) };
        build(&vectors(near.chain(rows)), &path, &options, &Silent).unwrap();
        let manifest = inspect(&path, &Silent).unwrap().manifest;
        let entry = LshEntry::read(&manifest).unwrap();
        let (of, buckets) = (entry.promise_parameters(count as u64), entry.buckets(&manifest).unwrap());
        let index = Index::open(&path, &OpenOptions::default()).unwrap();
        for (probes, succeeded, promised) in &mut succeeded {
            let looked_at = f64::from(probes.saturating_sub(2)) * 12.0 * 28.0;
            *promised += of.at(&buckets, 2.0, 1.0, looked_at).probability;
            let effort = Effort::SearchList(10);
            let options =
                SearchOptions { k: 1, effort, probes: Some(*probes), threads: 1, ..SearchOptions::default() };
            let found = index.search(&query, &options, Control::default()).unwrap();
            *succeeded += u32::from(found.ids == [0]);
        }
    }
    for (probes, succeeded, promised) in succeeded {
        let (measured, promised) = (f64::from(succeeded) / seeds as f64, promised / seeds as f64);
        println!("{probes} blocks of each table: {measured:.3} succeed, {promised:.3} is promised");
        assert!(measured >= promised, "{probes} blocks: {measured} of {promised}");
    }
    assert!(succeeded[0].1 < succeeded[3].1, "more blocks find more: {succeeded:?}");
}

#[test]
fn a_probability_that_is_asked_for_is_kept_or_refused_with_what_it_would_take() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(51);
    let (count, asked) = (12_000, 200);
    let points: Vec<Vec<f32>> =
        (0..count).map(|_| direction(&mut random).iter().map(|value| 10.0 * value).collect()).collect();
    let queries = vectors((0..asked).map(|query| {
        let step = direction(&mut random);
        points[query].iter().zip(step).map(|(value, step)| value + 2.0 * step).collect()
    }));
    let data = vectors(points.into_iter());
    let built = |name: &str, options: BuildOptions| {
        let path = dir.path().join(name);
        build(&data, &path, &options, &Silent).unwrap();
        Index::open(&path, &OpenOptions::default()).unwrap()
    };
    let own = LshOptions { block_bytes: 128, ..LshOptions::default() };
    let index = built("l2", quick_build(own));
    let promised = |probability, within| SearchOptions {
        k: 1,
        effort: Effort::Probability { probability, within },
        ..SearchOptions::default()
    };
    let search = |index: &Index, probability, within| {
        index.search(&queries, &promised(probability, within), Control::default())
    };
    let found = search(&index, 0.5, 4.0).unwrap();
    let near = found.distances.iter().filter(|distance| **distance <= 64.0).count();
    assert!(near as f64 >= 0.5 * asked as f64, "{near}");
    let note = &found.notes[0];
    assert!(note.contains("within 4 times the nearest distance with probability 0.5, for queries"), "{note}");
    // All that is looked at is compared: 28 entries of each block of 16 tables.
    let probes = found.probes.unwrap();
    assert!((3..8).contains(&probes) && found.search_list == probes * 16 * 28, "{probes}");
    let less = search(&index, 0.4, 5.0).unwrap();
    assert!(less.probes.unwrap() <= probes);

    let refused = |found: Result<bathyal_index::SearchResult, IndexError>| match found {
        Err(IndexError::Parameter(what)) => what,
        other => panic!("not refused: {:?}", other.map(|found| found.notes)),
    };
    let told = refused(search(&index, 0.9, 4.0));
    for part in ["probability 0.9 takes as many entries", " tables (--tables) it takes", "blocks of each"] {
        assert!(told.contains(part), "{told}");
    }
    let told = refused(search(&index, 0.99, 1.1));
    assert!(told.contains("no number of tables up to 4096 takes fewer"), "{told}");
    let set = std::sync::Arc::new(bathyal_index::RowSet::from_ids(count as u32, 0..5000));
    let told = refused(index.search_within(&queries, &promised(0.5, 4.0), &set, Control::default()));
    assert!(told.contains("no probability is promised within a set of rows"), "{told}");
    let told = refused(search(&built("ip", options_of(Metric::InnerProduct, own)), 0.5, 4.0));
    assert!(told.contains("no probability is promised under ip"), "{told}");
    let told = refused(search(&built("cluster", BuildOptions::default()), 0.5, 4.0));
    assert!(told.contains("knows no probability"), "{told}");

    // A deleted vector may take the place of one that counts in every table.
    index.delete(&(6000..6100).collect::<Vec<u32>>()).unwrap();
    assert!(search(&index, 0.5, 4.0).unwrap().probes.unwrap() > probes);
}

/// Vectors, some of which are copies of one vector, and some of which are so near another that all their keys
/// and codes are equal.
fn with_twins(random: &mut StdRng) -> VectorFile {
    let mut rows: Vec<Vec<f32>> = (0..1500).map(|_| direction(random)).collect();
    rows.extend((0..200).map(|_| rows[7].clone()).collect::<Vec<_>>());
    let near = rows[8].clone();
    rows.extend((0..300).map(|_| {
        let step = direction(random);
        near.iter().zip(step).map(|(value, step)| value + 3e-5 * step).collect::<Vec<_>>()
    }));
    vectors(rows.into_iter())
}

/// The codes of a vector may be nearer to others than to itself, so they do not choose in this case.
#[test]
fn a_vector_that_is_identical_is_always_returned() {
    let dir = tempfile::tempdir().unwrap();
    let data = with_twins(&mut StdRng::seed_from_u64(41));
    let kinds = ["axes", "pq", "pq4", "rabitq1", "rabitq4"].map(|kind| kind.parse::<CodeKind>().unwrap());
    for (metric, hashes) in [(Metric::L2, 16), (Metric::L2, 32), (Metric::Cosine, 12)] {
        for kind in kinds {
            let path = dir.path().join(format!("{} {hashes} {kind}", metric.name()));
            let own = LshOptions {
                tables: 2,
                hashes,
                block_bytes: 128,
                code_kind: Some(kind),
                ..LshOptions::default()
            };
            build(&data, &path, &options_of(metric, own), &Silent).unwrap();
            let index = Index::open(&path, &OpenOptions::default()).unwrap();
            for k in [1, 5] {
                let effort = Effort::SearchList(k as u32);
                let options = SearchOptions { k, effort, probes: Some(1), ..SearchOptions::default() };
                let found = index.search(&data, &options, Control::default()).unwrap();
                for (query, distances) in found.distances.chunks(k).enumerate() {
                    let told = format!("{metric:?} {hashes} {kind} {query}: {distances:?}");
                    // 32-bit floats do not tell cosines nearer to 1 apart.
                    assert!(distances[0] <= if metric == Metric::Cosine { 1e-6 } else { 0.0 }, "{told}");
                    assert!(
                        metric == Metric::Cosine
                            || data.row(found.ids[query * k] as usize) == data.row(query)
                    );
                    let copies = (1500..1700).contains(&query) || query == 7;
                    assert!(!copies || distances[k - 1] <= 1e-6, "{told}");
                }
            }
        }
    }
}

#[test]
fn codes_choose_nothing_if_as_many_vectors_are_compared_as_are_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let [data, queries] = clusters(&mut StdRng::seed_from_u64(42), 4000, 100);
    let ids = |kind: &str, list: u32| {
        let path = dir.path().join(format!("{kind} {list}"));
        let own = LshOptions {
            tables: 3,
            block_bytes: 128,
            code_kind: Some(kind.parse().unwrap()),
            ..LshOptions::default()
        };
        build(&data, &path, &quick_build(own), &Silent).unwrap();
        let index = Index::open(&path, &OpenOptions::default()).unwrap();
        let effort = Effort::SearchList(list);
        let options = SearchOptions { effort, probes: Some(2), ..SearchOptions::default() };
        index.search(&queries, &options, Control::default()).unwrap().ids
    };
    // Two blocks of 28 entries of each of three tables.
    assert_eq!(ids("rabitq1", 2 * 3 * 28), ids("pq", 2 * 3 * 28));
    assert_ne!(ids("rabitq1", 10), ids("pq", 10));
}

/// Values outside of all cells are in the outermost ones there, so its promise covers fewer queries.
#[test]
fn an_index_of_an_earlier_version_has_a_promise_of_its_own() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/indexes");
    let report = inspect(folder.join("version_2_later/lsh"), &Silent).unwrap();
    let entry = LshEntry::read(&report.manifest).unwrap();
    assert!(!entry.circle && entry.buckets(&report.manifest).unwrap().reach().is_finite());
    let told = format!("{report:?}");
    assert!(told.contains("from the mean of the data") && told.contains("promises_reach"), "{told}");
}

#[test]
fn tables_that_are_sorted_in_parts_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(5);
    // The entries of all tables take more memory than any other stage.
    let (count, tables) = (full_or_quick(150_000, 40_000), 12);
    let rows: Vec<u8> = (0..count * 6).map(|_| random.random::<u8>() >> 3).collect();
    let data = VectorFile::from_rows(Element::U8, 6, rows).unwrap();
    let own = LshOptions { tables, ..LshOptions::default() };
    let options = BuildOptions { threads: 2, ..quick_build(own) };
    let build_index = |name: &str, memory_bytes: Option<u64>| {
        let path = dir.path().join(name);
        build(&data, &path, &BuildOptions { memory_bytes, ..options.clone() }, &Silent).map(|_| path)
    };
    let Err(IndexError::Memory { needed, .. }) = build_index("none", Some(1)) else {
        panic!("a byte is enough")
    };
    assert!(needed < planned_memory(&data, &options), "the least memory divides the tables");
    let [whole, parts] = [build_index("whole", None).unwrap(), build_index("parts", Some(needed)).unwrap()];
    assert!(verify(&parts, &Silent).unwrap().sound);
    for name in ["tables.bin", "fences.bin", "hashes.bin", "codes.bin"] {
        assert!(
            std::fs::read(whole.join(name)).unwrap() == std::fs::read(parts.join(name)).unwrap(),
            "{name}"
        );
    }
    let report = inspect(&whole, &Silent).unwrap();
    let text = format!("{report:?}");
    assert!(
        text.contains(
            "a vector within four times the nearest distance (Euclidean) is looked at with \
             probability 0.1 with"
        ),
        "{text}"
    );
    let manifest = report.manifest;
    assert_eq!(LshEntry::read(&manifest).unwrap().tables, tables);
}

/// Searches find `k` vectors even if they read one block of each table.
#[test]
fn searches_find_k_vectors_in_few_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(9);
    for count in [1, 5, 3000] {
        let data = vectors((0..count).map(|_| direction(&mut random)));
        let first = VectorFile::from_rows(Element::F32, DIM, data.row(0).to_vec()).unwrap();
        let path = dir.path().join(count.to_string());
        build(&data, &path, &quick_build(LshOptions { tables: 2, ..LshOptions::default() }), &Silent)
            .unwrap();
        for tier in [TierChoice::File, TierChoice::Dram] {
            let index = Index::open(&path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap();
            let k = count.min(1000);
            let options = SearchOptions {
                k,
                effort: Effort::SearchList(k as u32),
                probes: Some(1),
                ..SearchOptions::default()
            };
            let found = index.search(&first, &options, Control::default()).unwrap();
            let mut ids = found.ids.clone();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!((ids.len(), found.ids[0]), (k, 0), "{count}");
        }
    }
}

/// Returns clustered vectors, which have near neighbours, and queries from the same clusters.
fn clusters(random: &mut StdRng, count: usize, queries: usize) -> [VectorFile; 2] {
    let centres: Vec<Vec<f32>> = (0..40).map(|_| direction(random)).collect();
    let mut rows = |count: usize| {
        vectors((0..count).map(|row| {
            let step = direction(random);
            centres[row % 40].iter().zip(step).map(|(centre, step)| 4.0 * centre + 0.8 * step).collect()
        }))
    };
    [rows(count), rows(queries)]
}

/// Additional buckets (`multi_probe`) are read once, add candidates, and are not read by default.
#[test]
fn additional_buckets_add_candidates() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(33);
    let [data, queries] = clusters(&mut random, full_or_quick(6000, 3000), full_or_quick(100, 50));
    for metric in [Metric::L2, Metric::Cosine, Metric::InnerProduct] {
        let path = dir.path().join(metric.name());
        let own = LshOptions { tables: 3, block_bytes: 128, ..LshOptions::default() };
        build(&data, &path, &options_of(metric, own), &Silent).unwrap();
        let exact = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        for tier in [TierChoice::File, TierChoice::Dram] {
            let index = Index::open(&path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap();
            let search = |multi_probe: Option<u32>, effort| {
                let options =
                    SearchOptions { effort, probes: Some(2), multi_probe, ..SearchOptions::default() };
                let found = index.search(&queries, &options, Control::default()).unwrap();
                // Every candidate is compared, so that more candidates find no less.
                let hits = |query: usize| {
                    let found = &found.ids[query * 10..][..10];
                    exact.ids(query).iter().take(10).filter(|id| found.contains(id)).count()
                };
                let hits: Vec<usize> = (0..queries.count()).map(hits).collect();
                let own =
                    |name: &str| found.own.of(name).unwrap().iter().map(|count| u64::from(*count)).collect();
                let (reads, entries): (Vec<u64>, Vec<u64>) = (own("table_reads"), own("entries"));
                (found.ids, hits, reads, entries)
            };
            let all = Effort::SearchList(data.count() as u32);
            let none = search(None, all);
            assert_eq!(search(Some(0), all), none);
            let mut last = none.clone();
            for buckets in [1, 4, 64] {
                let now = search(Some(buckets), all);
                for query in 0..queries.count() {
                    let what = format!("{metric:?}, {buckets} buckets, query {query}");
                    assert!(now.1[query] >= none.1[query], "{what}: {} < {}", now.1[query], none.1[query]);
                    assert!(
                        now.2[query] <= none.2[query] * (1 + u64::from(buckets)),
                        "{what}: {} reads",
                        now.2[query]
                    );
                    assert!(now.3[query] >= none.3[query], "{what}: {} entries", now.3[query]);
                    // No block is read twice.
                    assert!(now.3[query] <= 3 * data.count() as u64, "{what}: {} entries", now.3[query]);
                }
                let sum = |hits: &[usize]| hits.iter().sum::<usize>();
                assert!(sum(&now.1) >= sum(&last.1), "{metric:?}, {buckets} buckets");
                last = now;
            }
            let sum = |hits: &[usize]| hits.iter().sum::<usize>();
            assert!(sum(&last.1) > sum(&none.1), "{metric:?}: {} {}", sum(&last.1), sum(&none.1));
            assert!(sum(&search(Some(4), Effort::Recall(0.9)).1) > 0);
        }
    }
}

/// An inserted copy of a vector is found in every bucket in which the vector is found.
#[test]
fn inserted_vectors_are_found_in_additional_buckets() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(34);
    let [data, queries] = clusters(&mut random, 3000, 100);
    let own = LshOptions { tables: 2, block_bytes: 128, ..LshOptions::default() };
    let path = dir.path().join("index");
    build(&data, &path, &quick_build(own), &Silent).unwrap();
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    index.insert(&data).unwrap();
    let search = |multi_probe| {
        let effort = Effort::SearchList(data.count() as u32);
        let options = SearchOptions { effort, probes: Some(1), multi_probe, ..SearchOptions::default() };
        index.search(&queries, &options, Control::default()).unwrap()
    };
    let (none, found) = (search(None), search(Some(8)));
    let mut nearer = 0;
    for (ids, before) in found.ids.chunks(10).zip(none.ids.chunks(10)) {
        // A copy is as far away as its original, and is ranked behind it.
        let count = data.count() as u32;
        for id in ids[..9].iter().filter(|id| **id < count) {
            assert!(ids.contains(&(id + count)), "{id} of {ids:?}");
        }
        nearer += ids.iter().filter(|id| **id >= count && !before.contains(id)).count();
    }
    assert!(nearer > 0, "additional buckets find inserted vectors");
}

#[test]
fn too_many_additional_buckets_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors((0..50).map(|row| vec![row as f32; DIM]));
    let path = dir.path().join("index");
    build(&data, &path, &quick_build(LshOptions::default()), &Silent).unwrap();
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    let search = |multi_probe| {
        let options = SearchOptions { multi_probe: Some(multi_probe), ..SearchOptions::default() };
        index.search(&data, &options, Control::default())
    };
    assert_eq!(search(MAX_MULTI_PROBE).unwrap().ids.len(), 500);
    match search(MAX_MULTI_PROBE + 1) {
        Err(IndexError::Parameter(what)) => assert_eq!(what, "multi_probe is 65; it must be at most 64"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_requested_ratio_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(21);
    let [data, queries] = clusters(&mut random, 6000, 400);
    for metric in [Metric::L2, Metric::Cosine] {
        let path = dir.path().join(metric.name());
        let own = LshOptions { tables: 8, ..LshOptions::default() };
        let options = BuildOptions { metric, threads: 3, ..BuildOptions::of(own) };
        build(&data, &path, &options, &Silent).unwrap();
        let exact = exact_neighbors(&data, &queries, metric, 100, None, &Silent).unwrap();
        let index = Index::open(&path, &OpenOptions::default()).unwrap();
        let mut last = 0.0;
        for (k, ratio) in [(1, 1.1), (1, 1.02), (10, 1.1), (10, 1.003), (7, 1.02), (100, 1.1), (100, 1.01)] {
            let options = SearchOptions { k, effort: Effort::Ratio(ratio), ..SearchOptions::default() };
            let found = index.search(&queries, &options, Control::default()).unwrap();
            let mut judge = OverallRatio::new(metric, &exact).unwrap();
            judge.add(&exact, &found.ids, &found.distances, k, queries.count()).unwrap();
            let mean = judge.mean().unwrap();
            assert!(mean - 1.0 < 1.3 * (f64::from(ratio) - 1.0), "{metric:?} k {k}: {mean} for {ratio}");
            assert!(found.notes.is_empty() && found.probes.is_some(), "{:?}", found.notes);
            let work = found.totals.code_distances + 100 * found.totals.full_distances;
            assert!(k != 10 || ratio > 1.05 || work as f64 > last, "less work for a smaller ratio");
            last = work as f64;
        }
        // No measured effort has ratio 1 for 100 neighbours.
        let options =
            SearchOptions { k: 100, effort: Effort::Ratio(1.0), threads: 1, ..SearchOptions::default() };
        let found = index.search(&queries, &options, Control::default()).unwrap();
        assert!(found.notes.iter().any(|note| note.contains("an overall ratio of 1")), "{:?}", found.notes);
        // The number of threads does not change the calibration.
        let again = dir.path().join(format!("{} again", metric.name()));
        build(&data, &again, &BuildOptions { metric, threads: 1, ..BuildOptions::of(own) }, &Silent).unwrap();
        let curves = |path: &std::path::Path| {
            LshEntry::read(&inspect(path, &Silent).unwrap().manifest).unwrap().calibration
        };
        assert_eq!(curves(&path), curves(&again));
        let measured = curves(&path).curves;
        let ratios = measured.iter().flat_map(|curve| &curve.points).filter_map(|point| point.ratio);
        assert!(ratios.count() > 20);
    }
}

fn options_of(metric: Metric, own: LshOptions) -> BuildOptions {
    BuildOptions { metric, ..quick_build(own) }
}

#[test]
fn an_impossible_ratio_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(22);
    let [data, queries] = clusters(&mut random, 300, 2);
    let refused = |path: &std::path::Path, queries: &VectorFile, ratio: f32| {
        let index = Index::open(path, &OpenOptions::default()).unwrap();
        let options = SearchOptions { k: 3, effort: Effort::Ratio(ratio), ..SearchOptions::default() };
        match index.search(queries, &options, Control::default()) {
            Ok(found) => format!("found {}", found.ids.len()),
            Err(error) => error.to_string(),
        }
    };
    let build_index = |name: &str, options: BuildOptions| {
        let path = dir.path().join(name);
        build(&data, &path, &options, &Silent).unwrap();
        path
    };
    let own = LshOptions { tables: 2, ..LshOptions::default() };
    let tables = build_index("l2", options_of(Metric::L2, own));
    for ratio in [0.99, 0.0, -1.0, f32::NAN, f32::INFINITY] {
        let message = refused(&tables, &queries, ratio);
        assert!(message.contains(&format!("ratio is {ratio}; it must be at least 1")), "{message}");
    }
    let message = refused(&build_index("ip", options_of(Metric::InnerProduct, own)), &queries, 1.05);
    assert!(message.contains("no ratio under ip"), "{message}");
    let message = refused(&build_index("cluster", BuildOptions::default()), &queries, 1.05);
    assert!(message.contains("cluster index knows no ratio; it knows search_list, probes"), "{message}");
    // An index from before ratios were measured.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/indexes");
    let wide = VectorFile::open(folder.join("wide.fbin")).unwrap();
    let message = refused(&folder.join("version_2_later/lsh"), &wide, 1.05);
    assert!(message.contains("was not measured when it was built"), "{message}");
    // An index of too few vectors for a calibration is searched completely.
    let few = dir.path().join("few");
    let [little, _] = clusters(&mut random, 50, 1);
    build(&little, &few, &options_of(Metric::L2, own), &Silent).unwrap();
    let index = Index::open(&few, &OpenOptions::default()).unwrap();
    let options = SearchOptions { k: 3, effort: Effort::Ratio(1.0), ..SearchOptions::default() };
    let found = index.search(&queries, &options, Control::default()).unwrap();
    let exact = exact_neighbors(&little, &queries, Metric::L2, 3, None, &Silent).unwrap();
    assert_eq!((found.ids.as_slice(), found.notes.len()), (&[exact.ids(0), exact.ids(1)].concat()[..], 0));
}
