//! Partitions that take inserts in the memory of a node. All clients see the inserts and deletes of each
//! client at once.

#[path = "../../src/families/partitioned/growth/tests/history.rs"]
mod history;

use crate::cases::{full_or_quick, quick_build};
use crate::clustered::vectors;
use bathyal_index::{
    BuildOptions, CopyOptions, Effort, Index, IndexError, NO_ID, OpenOptions, PartitionedOptions,
    SearchOptions, StoreAs, TierChoice, build, copy, find, verify, verify_in,
};
use bathyal_kernels::{Element, Metric};
use bathyal_object::StoreOptions;
use bathyal_remote::{Credentials, Identity, Node, NodeOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use history::{Act, Event, History};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// An index in the memory of a node.
struct Remote {
    node: Node,
    address: PathBuf,
    folder: tempfile::TempDir,
}

fn growing() -> PartitionedOptions {
    PartitionedOptions {
        partition_vectors: 50,
        links: 8,
        construction_list: 40,
        growth: 1.0,
        overflow_vectors: 12,
        ..PartitionedOptions::default()
    }
}

impl Remote {
    /// Builds an index of `data` on a node.
    fn new(data: &VectorFile, own: PartitionedOptions, metric: Metric) -> Remote {
        Remote::with(data, &BuildOptions { metric, ..quick_build(own) })
    }

    /// Builds an index with these options.
    fn with(data: &VectorFile, options: &BuildOptions) -> Remote {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        build(data, &path, &BuildOptions { threads: 2, ..options.clone() }, &Silent).unwrap();
        let listen = ([127, 0, 0, 1], 0).into();
        let node =
            Node::start(&NodeOptions { listen, capacity_bytes: 1 << 28 }, Identity::new().unwrap()).unwrap();
        let address = PathBuf::from(format!("remote://{}/index", node.address()));
        let remote = Remote { node, address, folder };
        let to = remote.store("tcp");
        copy(&path, &remote.address, &CopyOptions { to, ..CopyOptions::default() }, &Silent).unwrap();
        remote
    }

    fn store(&self, transport: &str) -> StoreOptions {
        let Credentials { token, peer_key } = self.node.credentials();
        let scratch = self.folder.path().join("scratch");
        let options = [
            ("token", token.as_str()),
            ("peer_key", peer_key.as_str()),
            ("transport", transport),
            ("scratch", scratch.to_str().unwrap()),
        ];
        StoreOptions::new(options).unwrap()
    }

    fn open(&self, transport: &str) -> Index {
        let options = OpenOptions { store: self.store(transport), ..OpenOptions::default() };
        Index::open(&self.address, &options).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// Returns options of a search that reads every partition.
fn exhaustive_search() -> SearchOptions {
    SearchOptions {
        k: 1,
        effort: Effort::SearchList(60),
        probes: Some(10_000),
        threads: 1,
        ..SearchOptions::default()
    }
}

fn rows(data: &VectorFile, rows: std::ops::Range<usize>) -> VectorFile {
    let bytes = rows.flat_map(|row| data.row(row).to_vec()).collect();
    VectorFile::from_rows(data.element(), data.dim(), bytes).unwrap()
}

/// Returns the nearest id of each query, and its distance.
fn nearest(index: &Index, queries: &VectorFile) -> Vec<(u32, f32)> {
    let found = index.search(queries, &exhaustive_search(), Control::default()).unwrap();
    found.ids.into_iter().zip(found.distances).collect()
}

/// Inserts rows, 50 at a time. Returns them with their ids.
fn insert(index: &Index, data: &VectorFile, some: std::ops::Range<usize>) -> Vec<(usize, u32)> {
    let mut ids = Vec::new();
    for first in some.step_by(50) {
        let inserted = index.insert(&rows(data, first..first + 50)).unwrap();
        assert_eq!(inserted.len(), 50);
        ids.extend((first..first + 50).zip(inserted));
    }
    ids
}

#[test]
fn vectors_that_one_client_inserts_are_found_by_all() {
    for (element, metric) in
        [(Element::U8, Metric::L2), (Element::F32, Metric::InnerProduct), (Element::F32, Metric::Cosine)]
    {
        let data = vectors(element, 2000, 24, 3);
        let remote = Remote::new(&rows(&data, 0..1000), growing(), metric);
        let (one, other) = (remote.open("tcp"), remote.open("shm"));
        let reader = remote.open("tcp");
        let ids = std::thread::scope(|scope| {
            let first = scope.spawn(|| insert(&one, &data, 1000..1500));
            let second = scope.spawn(|| insert(&other, &data, 1500..2000));
            [first.join().unwrap(), second.join().unwrap()].concat()
        });
        assert_eq!(ids.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>().len(), 1000);
        for index in [&one, &other, &reader, &remote.open("shm")] {
            // A quick run searches for one vector in three.
            let sought: Vec<(usize, u32)> = ids.iter().copied().step_by(full_or_quick(1, 3)).collect();
            let queries = sought.iter().flat_map(|(row, _)| data.row(*row).to_vec()).collect();
            let queries = VectorFile::from_rows(element, data.dim(), queries).unwrap();
            let found = nearest(index, &queries);
            // Under the inner product a longer vector may be nearer than the vector itself.
            if metric != Metric::InnerProduct {
                let missed = sought.iter().zip(found).filter(|((_, id), found)| found.0 != *id).count();
                let all = sought.len();
                assert!(100 * missed < all, "{missed} of {all} are not found as {metric}");
            }
        }
        // Among all 2,000 vectors it finds the same as exact search.
        let queries = rows(&data, 0..200);
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        let row_of: BTreeMap<u32, u32> = ids.iter().map(|(row, id)| (*id, *row as u32)).collect();
        let found = reader
            .search(&queries, &SearchOptions { k: 10, ..exhaustive_search() }, Control::default())
            .unwrap();
        let found: Vec<u32> = found.ids.iter().map(|id| row_of.get(id).copied().unwrap_or(*id)).collect();
        let reached = recall(&truth, &found, 10, 200).unwrap();
        assert!(reached > 0.98, "{reached} as {metric}");
        reader.refresh().unwrap();
        assert_eq!((reader.len(), reader.next_id()), (2000, 2000));
    }
}

/// Returns the ids of the `k` neighbours of each query, nearest first.
fn found(index: &Index, queries: &VectorFile, k: usize) -> Vec<u32> {
    index.search(queries, &SearchOptions { k, ..exhaustive_search() }, Control::default()).unwrap().ids
}

#[test]
fn deleted_vectors_are_found_by_no_client() {
    let data = vectors(Element::U8, 1200, 24, 5);
    let remote = Remote::new(&rows(&data, 0..1000), growing(), Metric::L2);
    let (one, other) = (remote.open("tcp"), remote.open("shm"));
    let ids = insert(&one, &data, 1000..1200);
    // Half of the vectors of the build, and half of the inserted ones.
    let gone: Vec<u32> = (0..1000).step_by(2).chain(ids.iter().step_by(2).map(|(_, id)| *id)).collect();
    assert_eq!(other.delete(&gone).unwrap(), 600);
    assert_eq!(one.delete(&gone[..50]).unwrap(), 0);
    assert_eq!((one.len(), other.len()), (600, 600));
    for index in [&one, &other, &remote.open("tcp")] {
        let ids = found(index, &rows(&data, 0..100), 10);
        assert!(ids.len() == 1000 && ids.iter().all(|id| !gone.contains(id)));
    }
    // All vectors are deleted. Searches find nothing.
    let left: Vec<u32> = (0..1200).filter(|id| !gone.contains(id)).collect();
    assert_eq!(one.delete(&left).unwrap(), 600);
    other.refresh().unwrap();
    assert!(one.is_empty() && other.is_empty());
    let nothing = other
        .search(&rows(&data, 0..3), &SearchOptions { k: 5, ..exhaustive_search() }, Control::default())
        .unwrap();
    assert!(nothing.ids.iter().all(|id| *id == NO_ID) && nothing.notes.len() == 1, "{:?}", nothing.notes);
    // The empty index takes inserts.
    let again = insert(&other, &data, 1000..1050);
    assert_eq!(nearest(&one, &rows(&data, 1000..1050)).iter().map(|(id, _)| *id).collect::<Vec<_>>(), {
        again.iter().map(|(_, id)| *id).collect::<Vec<_>>()
    });
    assert!(matches!(one.delete(&[1_000_000]), Err(IndexError::Parameter(_))));
}

/// Returns the distances of each query to the `k` nearest of the `live` rows of `data`.
fn true_distances(data: &VectorFile, live: &[usize], queries: &VectorFile, k: usize) -> Vec<f32> {
    let bytes = live.iter().flat_map(|row| data.row(*row).to_vec()).collect();
    let live = VectorFile::from_rows(data.element(), data.dim(), bytes).unwrap();
    let truth = exact_neighbors(&live, queries, Metric::L2, k, None, &Silent).unwrap();
    (0..queries.count()).flat_map(|query| truth.distances(query).unwrap().to_vec()).collect()
}

#[test]
fn repeated_vectors_are_found_after_inserts_and_deletes() {
    // 20 copies of each of 100 vectors, which are more than a vector has links, and 400 more copies of one
    // vector.
    let distinct = vectors(Element::F32, 100, 24, 9);
    let order = (0..2000).map(|at| (at * 7) % 100).chain(std::iter::repeat_n(3, 400));
    let bytes = order.flat_map(|row| distinct.row(row).to_vec()).collect();
    let data = VectorFile::from_rows(Element::F32, 24, bytes).unwrap();
    let remote = Remote::new(&rows(&data, 0..1000), growing(), Metric::L2);
    let (one, other) = (remote.open("tcp"), remote.open("shm"));
    let ids: BTreeMap<usize, u32> =
        (0..1000).map(|row| (row, row as u32)).chain(insert(&one, &data, 1000..1600)).collect();
    let queries = vectors(Element::F32, 50, 24, 10);
    let check = |live: &[usize], k: usize| {
        let expected = true_distances(&data, live, &queries, k);
        let live: BTreeSet<u32> = live.iter().map(|row| ids[row]).collect();
        for index in [&one, &other, &remote.open("tcp")] {
            let found = index
                .search(&queries, &SearchOptions { k, ..exhaustive_search() }, Control::default())
                .unwrap();
            for near in found.ids.chunks(k) {
                let near: BTreeSet<u32> = near.iter().copied().collect();
                assert!(near.len() == k && near.is_subset(&live), "{near:?}");
            }
            let same = found.distances.iter().zip(&expected).filter(|(a, b)| (*a - *b).abs() <= 1e-2 * **b);
            let share = same.count() as f32 / expected.len() as f32;
            assert!(share > 0.98, "{share} of {k} neighbours");
            let truth = index.exact_neighbors(&queries, k, 2, &Silent).unwrap();
            assert!(truth.all_ids().iter().all(|id| live.contains(id)), "{truth:?}");
            let own = truth.all_distances().unwrap().iter().zip(&expected);
            own.for_each(|(own, exact)| assert!((own - exact).abs() <= 1e-4 * exact, "{own} {exact}"));
        }
    };
    let all: Vec<usize> = ids.keys().copied().collect();
    check(&all, 10);
    check(&all, 60);
    // Most copies of each vector are deleted.
    let (gone, live): (Vec<usize>, Vec<usize>) = all.into_iter().partition(|row| row % 4 != 0);
    let gone: Vec<u32> = gone.iter().map(|row| ids[row]).collect();
    assert_eq!(other.delete(&gone).unwrap(), gone.len() as u64);
    check(&live, 10);
    check(&live, 60);
}

/// The nearest vectors are deleted. The next ones are found as if the deleted ones had never existed.
#[test]
fn deleted_vectors_do_not_hide_others() {
    let data = vectors(Element::U8, 3000, 24, 8);
    let own = PartitionedOptions { partition_vectors: 500, overflow_vectors: 400, ..growing() };
    let remote = Remote::new(&data, own, Metric::L2);
    let index = remote.open("tcp");
    let query = rows(&data, 7..8);
    let truth = exact_neighbors(&data, &query, Metric::L2, 210, None, &Silent).unwrap();
    let (gone, next) = truth.ids(0).split_at(200);
    assert_eq!(index.delete(gone).unwrap(), 200);
    let options = SearchOptions { k: 10, effort: Effort::SearchList(20), ..exhaustive_search() };
    let found = index.search(&query, &options, Control::default()).unwrap().ids;
    let hits = found.iter().filter(|id| next.contains(id)).count();
    assert!(hits >= 9, "{found:?} instead of {next:?}");
}

#[test]
fn a_copy_of_an_index_contains_its_changes() {
    let data = vectors(Element::F32, 1500, 16, 6);
    let remote = Remote::new(&rows(&data, 0..1000), growing(), Metric::L2);
    let index = remote.open("tcp");
    insert(&index, &data, 1000..1500);
    index.delete(&(100..200).collect::<Vec<_>>()).unwrap();
    let queries = rows(&data, 0..200);
    let wanted = found(&index, &queries, 10);
    let stored = find(&remote.address, &[], &remote.store("tcp")).unwrap();
    let report = verify_in(stored.as_ref(), &Silent).unwrap();
    assert!(report.sound && report.vectors == 1400, "{report:?}");
    let path = remote.folder.path().join("copy");
    let from = CopyOptions { from: remote.store("tcp"), ..CopyOptions::default() };
    copy(&remote.address, &path, &from, &Silent).unwrap();
    let report = verify(&path, &Silent).unwrap();
    assert!(report.sound && report.vectors == 1400, "{report:?}");
    let kinds = [TierChoice::File, TierChoice::Dram, "mapped".parse().unwrap()];
    for tier in kinds {
        let index = Index::open(&path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap();
        assert_eq!((index.len(), index.next_id()), (1400, 1500));
        assert_eq!(found(&index, &queries, 10), wanted);
        let refused = index.insert(&queries).unwrap_err().to_string();
        assert!(refused.contains("remote://"), "{refused}");
    }
    // A copy on a node takes inserts again.
    let again = PathBuf::from(remote.address.to_str().unwrap().replace("/index", "/again"));
    let to = remote.store("tcp");
    copy(&path, &again, &CopyOptions { to, ..CopyOptions::default() }, &Silent).unwrap();
    let options = OpenOptions { store: remote.store("shm"), ..OpenOptions::default() };
    let again = Index::open(&again, &options).unwrap();
    assert_eq!(again.insert(&rows(&data, 100..200)).unwrap(), 1500..1600);
    assert_eq!(found(&again, &rows(&data, 100..200), 1), (1500..1600).collect::<Vec<_>>());
    assert!(index.insert(&queries).is_ok());
}

#[test]
fn inserts_that_exceed_the_growth_are_refused() {
    let data = vectors(Element::U8, 3000, 16, 7);
    let own = PartitionedOptions { growth: 0.1, ..growing() };
    let remote = Remote::new(&rows(&data, 0..500), own, Metric::L2);
    let index = remote.open("tcp");
    let refused = index.insert(&rows(&data, 500..3000)).unwrap_err().to_string();
    assert!(refused.contains("growth"), "{refused}");
    // The vectors of the build are still found.
    let before = index.len();
    assert!(before >= 500);
    let ids = found(&index, &rows(&data, 0..500), 1);
    assert_eq!(ids.iter().zip(0..).filter(|(id, row)| *id != row).count(), 0);
    let remote = Remote::new(
        &rows(&data, 0..500),
        PartitionedOptions { growth: 0.0, overflow_vectors: 0, ..growing() },
        Metric::L2,
    );
    let refused = remote.open("tcp").insert(&rows(&data, 0..1)).unwrap_err().to_string();
    assert!(refused.contains("does not change"), "{refused}");
}

/// Several clients insert, delete and search at the same time over connections of their own. Some sequential
/// order explains what each has observed.
#[test]
fn histories_are_linearizable() {
    let data = vectors(Element::U8, 600, 16, 9);
    let own = PartitionedOptions { partition_vectors: 30, overflow_vectors: 4, growth: 4.0, ..growing() };
    let remote = Remote::new(&rows(&data, 0..100), own, Metric::L2);
    let (clock, next) = (AtomicU64::new(0), AtomicU64::new(100));
    let now = || clock.fetch_add(1, Ordering::SeqCst);
    // The events of each id. Clients search only for rows whose ids are known.
    let history = Mutex::new(History { built: (0..100).collect(), ..History::default() });
    let known: Mutex<Vec<(u32, u32)>> = Mutex::new((0..100).map(|row| (row, row)).collect());
    let client = |seed: u64, transport: &str| {
        let index = remote.open(transport);
        let mut random = seed;
        let mut draw = |end: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % end
        };
        for _ in 0..120 {
            match draw(10) {
                0..3 => {
                    let row = next.fetch_add(1, Ordering::SeqCst) as u32;
                    let begin = now();
                    let ids = index.insert(&rows(&data, row as usize..row as usize + 1)).unwrap();
                    let event = Event { act: Act::Insert, begin, end: Some(now()) };
                    history.lock().unwrap().add(ids.start, event);
                    known.lock().unwrap().push((row, ids.start));
                }
                3 => {
                    let (_, id) = *known.lock().unwrap().get(draw(100)).unwrap();
                    let begin = now();
                    index.delete(&[id]).unwrap();
                    history.lock().unwrap().add(id, Event { act: Act::Delete, begin, end: Some(now()) });
                }
                _ => {
                    let (row, id) = {
                        let known = known.lock().unwrap();
                        // Half of the searches are for one of the last inserts.
                        known[if draw(2) == 0 { draw(known.len()) } else { known.len() - 1 - draw(10) }]
                    };
                    let begin = now();
                    let found = found(&index, &rows(&data, row as usize..row as usize + 1), 5);
                    let event = Event { act: Act::See(found.contains(&id)), begin, end: Some(now()) };
                    history.lock().unwrap().add(id, event);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for (seed, transport) in [(1, "tcp"), (2, "shm"), (3, "tcp")] {
            let client = &client;
            scope.spawn(move || client(seed, transport));
        }
    });
    let history = history.into_inner().unwrap();
    assert!(history.wrong().is_none(), "{:?}", history.wrong());
    let stored = find(&remote.address, &[], &remote.store("tcp")).unwrap();
    assert!(verify_in(stored.as_ref(), &Silent).unwrap().sound);
}

#[test]
fn current_vectors_are_returned_by_id() {
    let all = vectors(Element::U8, 500, 16, 1);
    let file = |rows: Range<usize>| {
        VectorFile::from_rows(Element::U8, 16, all.rows(rows).unwrap().to_vec()).unwrap()
    };
    let remote = Remote::new(&file(0..400), growing(), Metric::L2);
    let (writer, reader) = (remote.open("tcp"), remote.open("shm"));
    let expect = |index: &Index, held: &[Range<u32>]| {
        let ids: Vec<u32> = held.iter().cloned().flatten().rev().collect();
        assert_eq!(index.ids(Control::default()).unwrap(), held);
        let found = index.vectors(&ids, Control::default()).unwrap();
        let rows: Vec<u8> = ids.iter().flat_map(|id| all.row(*id as usize)).copied().collect();
        assert!(found.bytes == rows);
    };
    expect(&reader, std::slice::from_ref(&(0..400)));
    writer.insert(&file(400..500)).unwrap();
    writer.delete(&[0, 17, 18, 450, 499]).unwrap();
    for index in [&writer, &reader] {
        expect(index, &[1..17, 19..450, 451..499]);
        for id in [17, 499, 500] {
            let refused = index.vectors(&[1, id], Control::default()).expect_err("not there").to_string();
            assert!(refused.contains(&format!("no vector {id}")), "{refused}");
        }
    }
}

#[test]
fn vectors_that_the_form_cannot_hold_are_refused_with_their_row() {
    let data = vectors(Element::F32, 400, 16, 1);
    let times = |factor: f32| {
        let rows = (0..3).flat_map(|row| data.row(row).as_chunks::<4>().0.to_vec());
        let scaled = rows.flat_map(|value| (f32::from_le_bytes(value) * factor).to_le_bytes()).collect();
        VectorFile::from_rows(Element::F32, 16, scaled).unwrap()
    };
    for (store_as, factor) in [(StoreAs::I8, 3.0), (StoreAs::F16, 1e6)] {
        let options = BuildOptions { store_as: Some(store_as), ..quick_build(growing()) };
        let remote = Remote::with(&data, &options);
        let index = remote.open("tcp");
        let refused = index.insert(&times(factor)).unwrap_err().to_string();
        assert!(refused.contains("row 0 has a value of"), "{store_as}: {refused}");
        assert!(refused.contains("nothing was inserted"), "{store_as}: {refused}");
        assert_eq!(index.insert(&times(0.5)).unwrap(), 400..403, "{store_as}: vectors in range are inserted");
        let half = index.vectors(&[400], Control::default()).unwrap();
        let (got, given) = (half.bytes.as_chunks::<4>().0, times(0.5));
        for (got, given) in got.iter().zip(given.row(0).as_chunks::<4>().0) {
            assert!((f32::from_le_bytes(*got) - f32::from_le_bytes(*given)).abs() < 0.5, "{store_as}");
        }
    }
    // Under cosine lengths do not matter.
    let cosine =
        BuildOptions { store_as: Some(StoreAs::I8), metric: Metric::Cosine, ..quick_build(growing()) };
    let remote = Remote::with(&data, &cosine);
    assert_eq!(remote.open("tcp").insert(&times(1e6)).unwrap(), 400..403);
}
