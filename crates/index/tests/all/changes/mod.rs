//! Indexes that change after their build: inserted vectors are found and deleted ones are not, also after
//! faults.

mod faults;

use crate::cases::{case_runs, quick_build};
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::format::manifest::MANIFEST_NAME;
use bathyal_index::open::compact_in;
use bathyal_index::{
    BuildOptions, ClusterOptions, CompactOptions, Effort, Index, IndexError, OpenOptions, RangeOptions,
    SearchOptions, StoreAs, TierChoice, build, build_in, compact, inspect, search_many, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_store::memory::MemoryStore;
use bathyal_store::{Store, StoreError};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const DIM: usize = 6;
/// More candidates and blocks than any index of these tests has.
const ALL: u32 = 2000;

fn rows(element: Element, count: usize, random: &mut StdRng) -> Vec<Vec<u8>> {
    let value = |random: &mut StdRng| match element {
        Element::F32 => (random.random::<f32>() - 0.3).to_le_bytes().to_vec(),
        Element::F16 => half::f16::from_f32(random.random::<f32>() - 0.3).to_le_bytes().to_vec(),
        Element::U8 => vec![random.random::<u8>() | 1],
        Element::I8 => vec![random.random::<u8>() | 1],
        Element::Bf16 => half::bf16::from_f32(random.random::<f32>() - 0.3).to_le_bytes().to_vec(),
        Element::B1 => unreachable!("bits have tests of their own"),
    };
    (0..count).map(|_| (0..DIM).flat_map(|_| value(random)).collect()).collect()
}

fn file(element: Element, rows: &[Vec<u8>]) -> VectorFile {
    VectorFile::from_rows(element, DIM, rows.concat()).unwrap()
}

fn floats(element: Element, row: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; DIM];
    bathyal_kernels::to_f32(element, row, &mut values);
    values
}

fn exact_distance(metric: Metric, a: &[f32], b: &[f32]) -> f32 {
    let sum =
        |of: fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| of((*a).into(), (*b).into())).sum::<f64>();
    let product = sum(|a, b| a * b);
    let distance = match metric {
        Metric::L2 => sum(|a, b| (a - b) * (a - b)),
        Metric::InnerProduct => -product,
        Metric::Cosine => 1.0 - product / (sum(|a, _| a * a) * sum(|_, b| b * b)).sqrt(),
    };
    distance as f32
}

/// Vectors that an index should contain.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    vectors: BTreeMap<u32, Vec<u8>>,
    next: u32,
}

impl Model {
    fn insert(&mut self, rows: &[Vec<u8>]) {
        self.vectors.extend((self.next..).zip(rows.iter().cloned()));
        self.next += rows.len() as u32;
    }

    fn delete(&mut self, ids: &[u32]) {
        ids.iter().for_each(|id| drop(self.vectors.remove(id)));
    }
}

fn options(k: usize) -> SearchOptions {
    SearchOptions {
        k,
        effort: Effort::SearchList(ALL),
        probes: Some(ALL),
        threads: 2,
        ..SearchOptions::default()
    }
}

/// Compares searches that read everything with exact search of the model.
fn check(index: &Index, model: &Model, queries: &VectorFile, what: &str) {
    let (element, metric) = (index.element(), index.metric());
    assert_eq!((index.len(), index.next_id()), (model.vectors.len(), model.next), "{what}");
    for k in [1, 10, model.vectors.len(), model.vectors.len() + 3] {
        let found = index.search(queries, &options(k), Control::default()).unwrap();
        assert_eq!(found.k, k.min(model.vectors.len()), "{what}");
        let truth = index.exact_neighbors(queries, k, 2, &Silent).unwrap();
        assert_eq!((truth.k(), truth.all_ids()), (found.k, &found.ids[..]), "{what}: the ground truth");
        assert_eq!(truth.all_distances(), Some(&found.distances[..]), "{what}: the ground truth");
        assert_eq!(found.notes.is_empty(), k <= model.vectors.len(), "{what}: {:?}", found.notes);
        for query in 0..queries.count() {
            let of_query = floats(element, queries.row(query));
            let distance = |row: &Vec<u8>| exact_distance(metric, &of_query, &floats(element, row));
            let mut exact: Vec<f32> = model.vectors.values().map(distance).collect();
            exact.sort_by(f32::total_cmp);
            let answers = query * found.k..(query + 1) * found.k;
            // The rounding of the stored vectors.
            let tolerance = match (index.manifest().stored, element) {
                (Some(_), _) => 0.03,
                (None, Element::F16) => 1e-3,
                (None, Element::Bf16) => 1e-2,
                _ => 1e-5,
            };
            let scale = exact.iter().fold(1.0_f32, |most, distance| most.max(distance.abs()));
            for ((id, distance), exact) in
                found.ids[answers.clone()].iter().zip(&found.distances[answers.clone()]).zip(&exact)
            {
                let Some(row) = model.vectors.get(id) else { panic!("{what}: vector {id} was deleted") };
                let own = exact_distance(metric, &of_query, &floats(element, row));
                assert!((own - distance).abs() <= tolerance * scale, "{what}: {id}: {own} {distance}");
                assert!((exact - distance).abs() <= tolerance * scale, "{what}: {exact} {distance}");
            }
            let mut ids = found.ids[answers].to_vec();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), found.k, "{what}: an id is there twice");
        }
    }
}

#[test]
fn inserted_vectors_are_found_and_deleted_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let forms =
        [Element::F32, Element::F16, Element::Bf16, Element::U8, Element::I8].map(|element| (element, None));
    let forms =
        forms.into_iter().chain([(Element::F32, Some(StoreAs::F16)), (Element::F32, Some(StoreAs::I8))]);
    for (number, (element, store_as)) in forms.enumerate() {
        // Each form with a metric.
        let metrics = [Metric::L2, Metric::InnerProduct, Metric::Cosine].into_iter().enumerate();
        for (_, metric) in metrics.filter(|(at, _)| case_runs(number + at, 3)) {
            let what = format!("{element} {metric} {store_as:?}");
            let mut random = StdRng::seed_from_u64(number as u64);
            let queries = file(element, &rows(element, 4, &mut random));
            let mut model = Model::default();
            let built = rows(element, 300, &mut random);
            model.insert(&built);
            let path = dir.path().join(what.replace(' ', "_"));
            let own = LshOptions { tables: 3, block_bytes: 128, ..LshOptions::default() };
            let building = BuildOptions { metric, store_as, threads: 1, ..quick_build(own) };
            build(&file(element, &built), &path, &building, &Silent).unwrap();
            let open = |tier| Index::open(&path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap();
            for round in 0..2 {
                let index = open(TierChoice::File);
                for some in [1, 40, 7] {
                    let new = rows(element, some, &mut random);
                    let ids = index.insert(&file(element, &new)).unwrap();
                    assert_eq!(ids, model.next..model.next + some as u32, "{what}");
                    model.insert(&new);
                    check(&index, &model, &queries, &what);
                }
                // Vectors of the build, inserted ones, and the nearest one.
                let nearest = index.search(&queries, &options(1), Control::default()).unwrap().ids[0];
                let gone: Vec<u32> = [nearest, 3, 4, 5, model.next - 1, model.next - 9].into();
                let present = gone.iter().filter(|id| model.vectors.contains_key(id)).count();
                assert_eq!(index.delete(&gone).unwrap(), present as u64, "{what}");
                assert_eq!(index.delete(&gone).unwrap(), 0, "{what}: they are deleted already");
                model.delete(&gone);
                check(&index, &model, &queries, &what);
                let changed = index.changed();
                assert_eq!((changed.inserted, changed.deleted), (48, present as u64), "{what}");
                drop(index);
                for tier in [TierChoice::File, TierChoice::Dram] {
                    check(&open(tier), &model, &queries, &format!("{what}: opened again"));
                }
                let (verified, count) = (verify(&path, &Silent).unwrap(), model.vectors.len() as u64);
                assert!(verified.sound && verified.vectors == count, "{what}: {}", verified.vectors);
                let report = inspect(&path, &Silent).unwrap();
                let manifest = std::fs::metadata(path.join(MANIFEST_NAME)).unwrap().len();
                assert_eq!(report.index_bytes, report.manifest.index_bytes() + manifest + changed.log_bytes);
                let counts = report.changed.map(|changed| (changed.inserted, changed.deleted));
                assert_eq!(counts, Some((48, present as u64)));
                let done = compact(&path, &CompactOptions::default(), &Silent).unwrap();
                assert_eq!((done.changed.inserted, done.build.map(|built| built.vectors)), (48, Some(count)));
                assert_eq!(inspect(&path, &Silent).unwrap().changed, None, "{what}");
                assert!(verify(&path, &Silent).unwrap().sound, "{what}");
                for tier in [TierChoice::File, TierChoice::Dram] {
                    check(&open(tier), &model, &queries, &format!("{what}: compacted {round}"));
                }
                let again = compact(&path, &CompactOptions::default(), &Silent).unwrap();
                assert!(again.build.is_none(), "{what}: nothing had changed");
            }
        }
    }
}

/// An index of 100 vectors of f32.
struct SmallIndex {
    path: PathBuf,
    /// The vectors of the index.
    model: Model,
    /// The state of the random generator after the build.
    random: StdRng,
}

impl SmallIndex {
    fn build(dir: &Path, seed: u64) -> SmallIndex {
        let mut random = StdRng::seed_from_u64(seed);
        let (path, built) = (dir.join(seed.to_string()), rows(Element::F32, 100, &mut random));
        let own = LshOptions { tables: 2, ..LshOptions::default() };
        let building = BuildOptions { threads: 1, ..quick_build(own) };
        build(&file(Element::F32, &built), &path, &building, &Silent).unwrap();
        let mut model = Model::default();
        model.insert(&built);
        SmallIndex { path, model, random }
    }
}

#[test]
fn one_writer_changes_an_index_and_readers_see_it_after_a_refresh() {
    let dir = tempfile::tempdir().unwrap();
    let SmallIndex { path, mut model, mut random } = SmallIndex::build(dir.path(), 1);
    let queries = file(Element::F32, &rows(Element::F32, 3, &mut random));
    let [writer, reader] = [0; 2].map(|_| Index::open(&path, &OpenOptions::default()).unwrap());
    let before = model.clone();
    let new = rows(Element::F32, 5, &mut random);
    writer.insert(&file(Element::F32, &new)).unwrap();
    writer.delete(&[7]).unwrap();
    model.insert(&new);
    model.delete(&[7]);
    check(&reader, &before, &queries, "before the refresh");
    for refused in [
        reader.insert(&file(Element::F32, &new)).unwrap_err(),
        reader.delete(&[1]).unwrap_err(),
        compact(&path, &CompactOptions::default(), &Silent).unwrap_err(),
    ] {
        assert!(matches!(refused, IndexError::Store(StoreError::Busy { .. })), "{refused}");
    }
    assert!(reader.refresh().unwrap() && !reader.refresh().unwrap() && !writer.refresh().unwrap());
    check(&reader, &model, &queries, "after the refresh");
    drop(writer);
    // Changes that the reader has not seen count as well.
    let other = Index::open(&path, &OpenOptions::default()).unwrap();
    other.delete(&[8]).unwrap();
    drop(other);
    assert_eq!(reader.insert(&file(Element::F32, &new)).unwrap(), 105..110);
    model.delete(&[8]);
    model.insert(&new);
    check(&reader, &model, &queries, "the reader writes now");
    drop(reader);

    let late = Index::open(&path, &OpenOptions::default()).unwrap();
    compact(&path, &CompactOptions::default(), &Silent).unwrap();
    check(&late, &model, &queries, "searches continue in the replaced index");
    for refused in [late.refresh().unwrap_err(), late.delete(&[9]).unwrap_err()] {
        assert!(matches!(refused, IndexError::Store(StoreError::Replaced { .. })), "{refused}");
    }
    let new = Index::open(&path, &OpenOptions::default()).unwrap();
    check(&new, &model, &queries, "the new one");
    assert_eq!(new.delete(&[9]).unwrap(), 1);
}

#[test]
fn searches_run_while_the_index_changes() {
    let dir = tempfile::tempdir().unwrap();
    let SmallIndex { path, mut random, .. } = SmallIndex::build(dir.path(), 2);
    let queries = file(Element::F32, &rows(Element::F32, 8, &mut random));
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    // Ids below `gone` are deleted. It is stored after the deletion, and ids from `next_id` on do not exist
    // yet.
    let (gone, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let searched = std::thread::scope(|scope| {
        let searchers = [0; 2].map(|_| {
            scope.spawn(|| {
                let mut searched = 0;
                while !stop.load(Ordering::Acquire) {
                    let deleted = gone.load(Ordering::Acquire);
                    let found = index.search(&queries, &options(20), Control::default()).unwrap();
                    let next = index.next_id();
                    assert_eq!(found.ids.len(), 8 * 20);
                    assert!(found.ids.iter().all(|id| (deleted..next).contains(id)), "{deleted} {next}");
                    searched += 1;
                }
                searched
            })
        });
        for round in 0..60 {
            let new = rows(Element::F32, 3, &mut random);
            index.insert(&file(Element::F32, &new)).unwrap();
            assert_eq!(index.delete(&[2 * round, 2 * round + 1]).unwrap(), 2);
            gone.store(2 * round + 2, Ordering::Release);
        }
        stop.store(true, Ordering::Release);
        searchers.map(|searcher| searcher.join().unwrap())
    });
    assert!(searched.iter().all(|searched| *searched > 0));
    assert_eq!(index.len(), 100 + 60);
}

#[test]
fn changes_that_do_not_fit_are_refused_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let SmallIndex { path, model, mut random } = SmallIndex::build(dir.path(), 3);
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    let queries = file(Element::F32, &rows(Element::F32, 2, &mut random));
    let vector_of =
        |values: [f32; DIM]| file(Element::F32, &[values.iter().flat_map(|v| v.to_le_bytes()).collect()]);
    let mut with_nan = [0.5; DIM];
    with_nan[3] = f32::NAN;
    let longer = VectorFile::from_rows(Element::F32, DIM + 1, vec![0; 4 * (DIM + 1)]).unwrap();
    for (vectors, words) in [
        (longer, "the vectors have 7 dimensions, the index has 6"),
        (file(Element::U8, &[vec![1; DIM]]), "the vectors are u8, the index holds f32"),
        (vector_of(with_nan), "dimension 3 is NaN"),
        (vector_of([1e19; DIM]), "1e19"),
        (vector_of([1e-30; DIM]), "1e-30"),
    ] {
        let refused = index.insert(&vectors).unwrap_err().to_string();
        assert!(refused.to_lowercase().contains(&words.to_lowercase()), "{refused}");
    }
    for ids in [&[100][..], &[1, 2, u32::MAX]] {
        let refused = index.delete(ids).unwrap_err().to_string();
        assert!(refused.contains("there is no vector") && refused.contains("up to 99"), "{refused}");
    }
    assert_eq!(index.delete(&[]).unwrap(), 0);
    check(&index, &model, &queries, "nothing was changed");
    assert_eq!(index.changed().log_bytes, 0, "and nothing written");

    // All vectors may be deleted, and others inserted afterwards.
    assert_eq!(index.delete(&(0..100).collect::<Vec<_>>()).unwrap(), 100);
    assert!(index.is_empty());
    let none = index.search(&queries, &options(5), Control::default()).unwrap();
    assert_eq!((none.k, none.ids.len(), none.notes.len()), (0, 0, 1), "{:?}", none.notes);
    let within = index.range_search(&queries, 1e9, &RangeOptions::default(), Control::default()).unwrap();
    assert_eq!((within.ids.len(), within.offsets), (0, vec![0, 0, 0]));
    drop(index);
    let refused = compact(&path, &CompactOptions::default(), &Silent).unwrap_err().to_string();
    assert!(refused.contains("all its vectors were deleted"), "{refused}");
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(index.insert(&queries).unwrap(), 100..102);
    let within = index.range_search(&queries, 1e9, &RangeOptions::default(), Control::default()).unwrap();
    assert_eq!(within.ids.len(), 4);
    let explained = index.explain(&queries, 0, &options(2), Control::default()).unwrap();
    assert_eq!(explained.ids, [100, 101]);
    index.warm(&options(1), Control::default()).unwrap();

    // Ids of several indexes do not overlap.
    let other = SmallIndex::build(dir.path(), 4).path;
    let other = Index::open(&other, &OpenOptions::default()).unwrap();
    let both = search_many(&[&index, &other], &queries, &options(1), Control::default()).unwrap();
    assert_eq!(both.first_ids, [0, 102]);

    let clusters = dir.path().join("clusters");
    let built = file(Element::F32, &rows(Element::F32, 50, &mut random));
    build(&built, &clusters, &quick_build(ClusterOptions::default()), &Silent).unwrap();
    let clusters = Index::open(&clusters, &OpenOptions::default()).unwrap();
    for refused in [clusters.insert(&built).unwrap_err(), clusters.delete(&[0]).unwrap_err()] {
        assert!(refused.to_string().contains("of the family cluster does not change"), "{refused}");
    }
    assert!(!clusters.refresh().unwrap());
}

#[test]
fn changes_keep_to_the_memory_budget() {
    let dir = tempfile::tempdir().unwrap();
    let SmallIndex { path, mut random, .. } = SmallIndex::build(dir.path(), 5);
    let new = file(Element::F32, &rows(Element::F32, 20_000, &mut random));
    let index = Index::open(&path, &OpenOptions { memory_bytes: Some(4_000_000), ..OpenOptions::default() });
    let index = index.unwrap();
    let refused = index.insert(&new).unwrap_err();
    assert!(matches!(refused, IndexError::Memory { .. }), "{refused}");
    assert_eq!((index.len(), index.changed().log_bytes), (100, 0));
    drop(index);
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    index.insert(&new).unwrap();
    let taken = index.changed().memory_bytes;
    assert!(taken >= 20_000 * 24, "{taken}");
    drop(index);
    let open = |memory_bytes| {
        Index::open(&path, &OpenOptions { memory_bytes: Some(memory_bytes), ..OpenOptions::default() })
    };
    assert!(matches!(open(taken / 2), Err(IndexError::Memory { .. })));
    assert_eq!(open(taken + 4_000_000).unwrap().len(), 20_100);
}

#[test]
fn the_smallest_budget_is_enough_to_delete_all_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let path = SmallIndex::build(dir.path(), 6).path;
    let open = |memory_bytes| {
        Index::open(&path, &OpenOptions { memory_bytes: Some(memory_bytes), ..OpenOptions::default() })
    };
    let Err(IndexError::Memory { needed, .. }) = open(1) else { panic!("a byte is enough") };
    let index = open(needed).unwrap();
    let reserved = index.memory_split().changes;
    assert_eq!(index.delete(&(0..100).collect::<Vec<_>>()).unwrap(), 100);
    let taken = index.changed().memory_bytes;
    assert!(taken > 0 && taken <= reserved, "{taken} of {reserved}");
    drop(index);
    // The log is in memory while an index is opened.
    let changed = inspect(&path, &Silent).unwrap().changed.unwrap();
    assert!(open(needed + changed.log_bytes).unwrap().is_empty());
}

#[test]
fn a_log_that_is_damaged_or_of_another_index_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let SmallIndex { path, mut random, .. } = SmallIndex::build(dir.path(), 6);
    let other = SmallIndex::build(dir.path(), 7).path;
    for changed in [&path, &other] {
        let index = Index::open(changed, &OpenOptions::default()).unwrap();
        for _ in 0..3 {
            index.insert(&file(Element::F32, &rows(Element::F32, 2, &mut random))).unwrap();
        }
    }
    let log = path.join("changes.log");
    let good = std::fs::read(&log).unwrap();
    let open = || Index::open(&path, &OpenOptions::default()).map(|index| index.len());
    assert_eq!(open().unwrap(), 106);
    for at in [9, 600, 1100] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        std::fs::write(&log, &bad).unwrap();
        let refused = open().unwrap_err();
        assert!(matches!(refused, IndexError::Damaged { .. }), "{at}: {refused}");
        let report = verify(&path, &Silent).unwrap();
        assert!(
            !report.sound && report.faults.iter().any(|fault| fault.contains("changes.log")),
            "{report:?}"
        );
        assert!(compact(&path, &CompactOptions::default(), &Silent).is_err());
    }
    std::fs::copy(other.join("changes.log"), &log).unwrap();
    assert!(open().unwrap_err().to_string().contains("not that of this index"));
    // A record that a killed writer has not finished.
    std::fs::write(&log, &good[..good.len() - 100]).unwrap();
    assert_eq!((open().unwrap(), inspect(&path, &Silent).unwrap().unfinished_change_bytes), (104, 412));
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(index.insert(&file(Element::F32, &rows(Element::F32, 1, &mut random))).unwrap(), 104..105);
    drop(index);
    assert_eq!((open().unwrap(), inspect(&path, &Silent).unwrap().unfinished_change_bytes), (105, 0));
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    assert!(open().is_err());
}

#[test]
fn an_index_in_memory_changes_too() {
    let store = MemoryStore::new("memory");
    let mut random = StdRng::seed_from_u64(11);
    let built = rows(Element::F32, 60, &mut random);
    let own = LshOptions { tables: 2, ..LshOptions::default() };
    build_in(&file(Element::F32, &built), &store, "index", &quick_build(own), &Silent).unwrap();
    let mut model = Model::default();
    model.insert(&built);
    let open =
        || Index::open_in(store.open("index").unwrap().as_ref(), &OpenOptions::default(), &Silent).unwrap();
    let index = open();
    let new = rows(Element::F32, 9, &mut random);
    index.insert(&file(Element::F32, &new)).unwrap();
    index.delete(&[0, 61]).unwrap();
    model.insert(&new);
    model.delete(&[0, 61]);
    drop(index);
    compact_in(&store, "index", None, &CompactOptions::default(), &Silent).unwrap();
    check(&open(), &model, &file(Element::F32, &rows(Element::F32, 3, &mut random)), "in memory");
}
