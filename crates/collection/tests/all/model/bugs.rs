//! Bugs of other systems, which must not occur here.

use crate::model::cases::{Case, Row, Value};
use crate::model::columns::{batch, ids, vectors};
use crate::model::compare::{Recall, Search, check_all, check_search, holds};
use crate::model::program::write;
use crate::model::shared::SharedStore;
use crate::model::truth::{Change, Truth};
use bathyal_collection::{
    Collection, CollectionError, CollectionLocation, CollectionOptions, CompactOptions, Durability, Id, Rows,
    Written,
};
use bathyal_index::StoreOptions;
use bathyal_store::memory::MemoryStore;
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const FULL: CompactOptions = CompactOptions { full: true };

type Batch = Vec<(Id, Arc<Row>)>;

/// A collection with numeric ids in a folder, and its expected content.
struct Kept {
    case: Case,
    options: CollectionOptions,
    folder: tempfile::TempDir,
    random: StdRng,
    truth: Truth,
    next: u64,
}

impl Kept {
    fn new() -> Kept {
        let case = Case::numbers();
        let (options, folder) = (case.options(), tempfile::tempdir().unwrap());
        Collection::create(folder.path().join("kept"), case.schema.clone(), &options).unwrap();
        Kept { case, options, folder, random: StdRng::seed_from_u64(1), truth: Truth::default(), next: 0 }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    fn open(&self) -> Collection {
        Collection::open(self.path(), &self.options).unwrap()
    }

    /// Returns rows with new ids.
    fn fresh(&mut self, count: u64) -> Batch {
        let from = self.next;
        self.next += count;
        (from..self.next).map(|number| (Id::Number(number), self.case.row(&mut self.random))).collect()
    }

    fn write(&mut self, collection: &Collection, change: Change) {
        write(&self.case, collection, &change).unwrap();
        self.truth.apply(&change).unwrap();
    }

    fn add(&mut self, collection: &Collection, count: u64) {
        let rows = self.fresh(count);
        self.write(collection, Change::Add(rows));
    }

    /// Checks that all rows exist, and are found by their vectors.
    fn check(&self, collection: &Collection) {
        check_all(&self.case, &collection.snapshot(), &self.truth, None, 100);
        let queries: Vec<&[u8]> = self.truth.rows.values().map(|row| &row.vectors[0][..]).collect();
        let search = Search { field: 0, k: 3, recall: 0.9, condition: None };
        check_search(
            &self.case,
            &collection.snapshot(),
            &self.truth,
            &search,
            &queries,
            &mut Recall::default(),
        );
    }

    /// Returns the file of the newest log.
    fn log(&self) -> PathBuf {
        let entries = self.path().read_dir().unwrap().map(|entry| entry.unwrap().path());
        let log = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("l-");
        entries.filter(log).max().unwrap().join("rows.log")
    }

    /// Returns the newest log after one batch, and after another batch, which is not part of the expected
    /// content.
    fn two_batches(&mut self) -> [Vec<u8>; 2] {
        let collection = self.open();
        self.add(&collection, 7);
        let one = std::fs::read(self.log()).unwrap();
        let lost = self.fresh(5);
        write(&self.case, &collection, &Change::Add(lost)).unwrap();
        let two = std::fs::read(self.log()).unwrap();
        assert!(two.len() > one.len() && two.starts_with(&one));
        [one, two]
    }

    /// Checks that the collection has the expected content with these bytes as its log, and can be written
    /// to.
    fn check_with_log(&mut self, bytes: &[u8]) {
        std::fs::write(self.log(), bytes).unwrap();
        let collection = self.open();
        self.check(&collection);
        self.add(&collection, 3);
        drop(collection);
        let collection = self.open();
        self.add(&collection, 2);
        collection.flush().unwrap();
        self.check(&collection);
    }
}

#[test]
fn a_truncated_log_followed_by_old_bytes_ends_where_it_was_cut() {
    for old in [1, 100, 511, 512, 1024] {
        let mut kept = Kept::new();
        let [one, two] = kept.two_batches();
        // The second batch was truncated, and the disk shows its earlier content again: a part of the first
        // batch.
        let cut = &two[..one.len() + (two.len() - one.len()) / 2];
        let before = &one[one.len() - old.min(one.len())..];
        kept.check_with_log(&[cut, before].concat());
    }
}

#[test]
fn a_tail_of_zeros_ends_a_log() {
    for kept_bytes in [0, 40, 512] {
        let mut kept = Kept::new();
        let [one, two] = kept.two_batches();
        let mut bytes = two.clone();
        bytes[one.len() + kept_bytes..].fill(0);
        bytes.resize(bytes.len() + (1 << 16), 0);
        kept.check_with_log(&bytes);
    }
}

#[test]
fn foreign_files_are_ignored_and_kept() {
    let mut kept = Kept::new();
    let collection = kept.open();
    kept.add(&collection, 5);
    collection.flush().unwrap();
    let segment = collection.describe().segments[0].name.clone();
    drop(collection);
    let strays = ["x.tmp", ".hidden", "notes.txt", "v-00000000000000000099", "l-junk", "s-1-zz-rows.tmp"];
    strays.iter().for_each(|name| std::fs::write(kept.path().join(name), b"stray").unwrap());
    std::fs::create_dir(kept.path().join("lost+found")).unwrap();
    std::fs::create_dir(kept.path().join("v-00000000000000000098")).unwrap();
    std::fs::write(kept.path().join(format!("{segment}-rows")).join("rows.parquet.tmp"), b"stray").unwrap();
    let collection = kept.open();
    kept.check(&collection);
    kept.add(&collection, 5);
    collection.compact(&FULL, &Silent).unwrap();
    kept.check(&collection);
    drop(collection);
    kept.check(&kept.open());
    assert!(strays.iter().all(|name| kept.path().join(name).exists()));
    assert!(kept.path().join("lost+found").exists());
}

#[test]
fn a_collection_that_is_opened_twice_has_one_writer() {
    let mut kept = Kept::new();
    let (one, other) = (kept.open(), kept.open());
    kept.add(&one, 4);
    let refused = |kept: &mut Kept, collection: &Collection| {
        let rows = kept.fresh(1);
        let refused = write(&kept.case, collection, &Change::Add(rows)).unwrap_err();
        assert!(matches!(refused, CollectionError::Busy { .. }), "{refused}");
        for refused in [collection.flush(), collection.compact(&FULL, &Silent).map(|_| ())] {
            assert!(matches!(refused, Err(CollectionError::Busy { .. })), "{refused:?}");
        }
    };
    refused(&mut kept, &other);
    assert!(other.refresh().unwrap());
    kept.check(&other);
    kept.add(&one, 4);
    one.compact(&FULL, &Silent).unwrap();
    // A handle that was not refreshed sees the old content.
    assert_eq!(other.count(None, Control::default()).unwrap(), 4);
    assert!(other.refresh().unwrap());
    kept.check(&other);
    drop(one);
    kept.add(&other, 2);
    kept.check(&other);
    let one = kept.open();
    refused(&mut kept, &one);
    kept.check(&one);
}

#[test]
fn rows_are_added_after_a_collection_was_loaded_again() {
    let mut kept = Kept::new();
    for flushed in [false, true, false, true] {
        let collection = kept.open();
        kept.add(&collection, 20);
        if flushed {
            collection.flush().unwrap();
        }
        drop(collection);
        let collection = kept.open();
        kept.check(&collection);
        let (id, row) = kept.truth.rows.iter().next().map(|(id, row)| (id.clone(), row.clone())).unwrap();
        let content =
            write(&kept.case, &collection, &Change::Add(vec![(id.clone(), row.clone())])).unwrap_err();
        assert!(matches!(content, CollectionError::Duplicate { count: 1, .. }), "{content}");
        kept.write(&collection, Change::Upsert(vec![(id, row)]));
        kept.add(&collection, 1);
        kept.check(&collection);
    }
}

#[test]
fn a_publication_with_a_lost_response_counts() {
    for lost in 0..18 {
        let (case, store) = (Case::small(), SharedStore::new());
        let (place, options) = (CollectionLocation::in_store(Arc::new(store.clone())), case.options());
        let collection = Collection::create_in(place.clone(), case.schema.clone(), &options).unwrap();
        let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(lost));
        let (mut failed, mut step) = (0, 0);
        for _ in 0..6 {
            let change = Change::Upsert(case.rows(4, true, &mut random));
            let before = truth.clone();
            truth.apply(&change);
            let work: [&dyn Fn() -> Result<(), CollectionError>; 3] =
                [&|| write(&case, &collection, &change).map(|_| ()), &|| collection.flush(), &|| {
                    collection.compact(&FULL, &Silent).map(|_| ())
                }];
            for work in work {
                store.lose_response(step == lost);
                failed += usize::from(work().is_err());
                step += 1;
            }
            store.lose_response(false);
            collection.flush().unwrap();
            if holds(&case, &collection.snapshot()) == before {
                truth = before;
            }
            check_all(&case, &collection.snapshot(), &truth, None, 50);
        }
        assert!(failed <= 1, "step {lost}: {failed} failures");
        drop(collection);
        let collection = Collection::open_in(place, &options).unwrap();
        check_all(&case, &collection.snapshot(), &truth, None, 50);
        assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new());
    }
}

/// Returns a function that opens handles as on different machines: without locks between them.
fn on_machines(case: &Case) -> impl Fn() -> Collection {
    let (place, options) = (CollectionLocation::in_store(Arc::new(SharedStore::new())), case.options());
    Collection::create_in(place.clone(), case.schema.clone(), &options).unwrap();
    move || Collection::open_in(place.clone(), &options).unwrap()
}

#[test]
fn a_compaction_of_a_stale_version_damages_nothing() {
    let case = Case::small();
    let open = on_machines(&case);
    let (stale, other) = (open(), open());
    let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(3));
    let upsert = |collection: &Collection, truth: &mut Truth, random: &mut StdRng| {
        let change = Change::Upsert(case.rows(5, true, random));
        write(&case, collection, &change).unwrap();
        truth.apply(&change);
    };
    for _ in 0..2 {
        upsert(&stale, &mut truth, &mut random);
        stale.flush().unwrap();
    }
    upsert(&other, &mut truth, &mut random);
    other.flush().unwrap();
    upsert(&other, &mut truth, &mut random);
    let fenced = stale.compact(&FULL, &Silent).unwrap_err();
    assert!(matches!(fenced, CollectionError::Fenced { .. }), "{fenced}");
    upsert(&other, &mut truth, &mut random);
    check_all(&case, &open().snapshot(), &truth, None, 50);
    other.compact(&FULL, &Silent).unwrap();
    check_all(&case, &other.snapshot(), &truth, None, 50);
    // It takes over again, with everything that the other writer has written.
    upsert(&stale, &mut truth, &mut random);
    stale.compact(&FULL, &Silent).unwrap();
    check_all(&case, &stale.snapshot(), &truth, None, 50);
    check_all(&case, &open().snapshot(), &truth, None, 50);
    assert_eq!(open().verify(&Silent).unwrap(), Vec::<String>::new());
}

#[test]
fn two_writers_without_locks_lose_nothing_that_was_acknowledged() {
    let case = Case::small();
    let open = on_machines(&case);
    let mut writers = [open(), open()];
    let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(4));
    let (mut fenced, mut done) = (0, 0);
    for step in 0..300 {
        let writer = random.random_range(0..2);
        let change = crate::model::program::random_change(&case, &truth, &mut random);
        let mut after = truth.clone();
        let meant = after.apply(&change);
        let outcome = match random.random_range(0..12) {
            0 => {
                after = truth.clone();
                writers[writer].flush()
            }
            1 => {
                after = truth.clone();
                writers[writer].compact(&FULL, &Silent).map(|_| ())
            }
            2 => {
                writers[writer] = open();
                continue;
            }
            _ => match write(&case, &writers[writer], &change) {
                Ok(Written { added: 0, replaced: 0, deleted: 0, .. })
                | Err(CollectionError::Duplicate { .. }) => {
                    // The handle got an error; another writer may have written since.
                    after = truth.clone();
                    Ok(())
                }
                Ok(written) => {
                    assert_eq!(Some(written), meant, "step {step}");
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        match outcome {
            Ok(()) => (truth, done) = (after, done + 1),
            Err(
                CollectionError::Fenced { .. }
                | CollectionError::Busy { .. }
                | CollectionError::NotWritten { .. },
            ) => {
                fenced += 1;
                let content = holds(&case, &open().snapshot());
                assert!(content == truth || content == after, "step {step}: {change:?}");
                truth = content;
            }
            Err(error) => panic!("step {step}: {error}"),
        }
        if step % 10 == 0 {
            check_all(&case, &open().snapshot(), &truth, None, 50);
        }
    }
    assert!(fenced > 20 && done > 100, "{fenced} were fenced, {done} done");
}

/// Creates a collection in memory that writes its segments in the background.
fn in_background(case: &Case) -> (CollectionLocation, CollectionOptions) {
    let place = CollectionLocation::in_store(Arc::new(MemoryStore::new("background")));
    let options =
        CollectionOptions { background: true, durability: Durability::System, threads: 2, ..case.options() };
    Collection::create_in(place.clone(), case.schema.clone(), &options).unwrap();
    (place, options)
}

#[test]
fn rows_that_are_deleted_during_a_compaction_stay_deleted() {
    let case = Case::numbers();
    // More rounds in `make soak`.
    for round in 0..if std::env::var_os("BATHYAL_WHOLE").is_some() { 6 } else { 1 } {
        let (place, options) = in_background(&case);
        let collection = Collection::open_in(place.clone(), &options).unwrap();
        let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(round));
        for part in 0..4 {
            let rows = (part * 150..part * 150 + 150).map(|id| (Id::Number(id), case.row(&mut random)));
            let change = Change::Add(rows.collect());
            write(&case, &collection, &change).unwrap();
            truth.apply(&change);
            collection.flush().unwrap();
        }
        let compacting = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2 {
                    collection.compact(&FULL, &Silent).unwrap();
                }
                compacting.store(false, Ordering::Relaxed);
            });
            // Deletes, and flushes that publish some of them, while segments are merged. Their number is
            // bounded, because merges have a lower priority, and each batch adds to what they merge.
            let mut more = 600;
            while compacting.load(Ordering::Relaxed) && more < 800 {
                let batch_ids = (0..3).map(|_| Id::Number(random.random_range(0..600))).collect();
                let added = vec![(Id::Number(more), case.row(&mut random))];
                more += 1;
                for change in [Change::Delete(batch_ids), Change::Add(added)] {
                    let written = write(&case, &collection, &change).unwrap();
                    assert_eq!(Some(written), truth.apply(&change));
                }
                if random.random_range(0..3) == 0 {
                    collection.flush().unwrap();
                }
            }
        });
        check_all(&case, &collection.snapshot(), &truth, None, 500);
        drop(collection);
        let collection = Collection::open_in(place, &options).unwrap();
        check_all(&case, &collection.snapshot(), &truth, None, 500);
        collection.compact(&FULL, &Silent).unwrap();
        check_all(&case, &collection.snapshot(), &truth, None, 500);
    }
}

/// Returns a case with rows that are large enough to fill the memory for writes soon.
fn large() -> Case {
    let mut case = Case::numbers();
    case.schema.vectors[0].dim = 512;
    case
}

#[test]
fn rows_are_added_while_others_are_flushed() {
    let case = large();
    let (place, options) = in_background(&case);
    let collection = Collection::open_in(place.clone(), &options).unwrap();
    let (threads, batches, rows) = (6, 40, 8);
    let truth: Vec<Truth> = std::thread::scope(|scope| {
        let adding: Vec<_> = (0..threads)
            .map(|thread: u64| {
                let (case, collection) = (&case, &collection);
                scope.spawn(move || {
                    let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(thread));
                    for batch in 0..batches {
                        let first = (thread * batches + batch) * rows;
                        let rows = (first..first + rows).map(|id| (Id::Number(id), case.row(&mut random)));
                        let change = Change::Add(rows.collect());
                        write(case, collection, &change).unwrap();
                        truth.apply(&change);
                    }
                    truth
                })
            })
            .collect();
        adding.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all = Truth { rows: truth.into_iter().flat_map(|truth| truth.rows).collect() };
    assert_eq!(all.rows.len() as u64, threads * batches * rows);
    assert!(collection.describe().version > 3, "memory was full");
    check_all(&case, &collection.snapshot(), &all, None, 500);
    drop(collection);
    check_all(&case, &Collection::open_in(place, &options).unwrap().snapshot(), &all, None, 500);
}

#[test]
fn a_collection_is_closed_while_it_is_flushed() {
    let case = large();
    let (place, options) = in_background(&case);
    let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(9));
    for round in 0..25 {
        let collection = Collection::open_in(place.clone(), &options).unwrap();
        check_all(&case, &collection.snapshot(), &truth, None, 500);
        for _ in 0..random.random_range(1..50) {
            let change = Change::Upsert(case.rows(8, true, &mut random));
            write(&case, &collection, &change).unwrap();
            truth.apply(&change);
        }
        if round % 5 == 0 {
            collection.flush().unwrap();
        }
    }
    let collection = Collection::open_in(place, &options).unwrap();
    collection.compact(&FULL, &Silent).unwrap();
    check_all(&case, &collection.snapshot(), &truth, None, 500);
}

#[test]
fn a_small_segment_does_not_keep_others_from_being_merged() {
    let mut kept = Kept::new();
    let collection = kept.open();
    kept.add(&collection, 1);
    collection.flush().unwrap();
    for _ in 0..40 {
        kept.add(&collection, 10);
        collection.flush().unwrap();
    }
    let segments = collection.describe().segments.len();
    assert!(segments < 12, "{segments} segments");
    kept.check(&collection);
}

#[test]
fn a_collection_in_a_bucket_works_as_in_a_folder() {
    let (case, scratch) = (Case::small(), tempfile::tempdir().unwrap());
    let store = StoreOptions::new([("scratch", scratch.path().display().to_string())]).unwrap();
    let options = CollectionOptions { store, ..case.options() };
    let address = "memory://collection/kept";
    let mut collection = Collection::create(address, case.schema.clone(), &options).unwrap();
    let reader = Collection::open(address, &options).unwrap();
    let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(11));
    for step in 0..120 {
        let change = crate::model::program::random_change(&case, &truth, &mut random);
        match (write(&case, &collection, &change), truth.apply(&change)) {
            (Ok(written), Some(meant)) => assert_eq!(written, meant),
            (Err(CollectionError::Duplicate { .. }), None) => {}
            (written, meant) => panic!("{written:?}, should be {meant:?}"),
        }
        match step % 24 {
            6 => collection.flush().unwrap(),
            12 => drop(collection.compact(&FULL, &Silent).unwrap()),
            18 => {
                drop(collection);
                collection = Collection::open(address, &options).unwrap();
            }
            _ => {}
        }
        reader.refresh().unwrap();
        check_all(&case, &reader.snapshot(), &truth, None, 50);
        check_all(&case, &collection.snapshot(), &truth, None, 50);
    }
    let busy = reader.flush().unwrap_err();
    assert!(matches!(busy, CollectionError::Busy { .. }), "{busy}");
}

#[test]
fn a_slice_of_a_large_batch_counts_only_its_own_bytes() {
    let mut case = Case::texts();
    case.ids = 40_000;
    let mut random = StdRng::seed_from_u64(2);
    let values =
        |column: usize, random: &mut StdRng| (0..20_000).map(|_| case.value(column, random)).collect();
    let columns: Vec<_> = (0..case.schema.columns.len()).map(|at| (at, values(at, &mut random))).collect();
    let all = batch(&case, &columns, 20_000);
    let batch_ids: Vec<Id> = (0..10).map(|number| case.id(number)).collect();
    let bytes: Vec<Vec<u8>> = batch_ids.iter().map(|_| case.vector(0, &mut random)).collect();
    let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    let rows = |columns| {
        Rows::new(&case.schema, ids(&case, &batch_ids), vec![vectors(&case, 0, &bytes)], Some(columns))
            .unwrap()
    };
    let part = rows(&all.slice(9_000, 10));
    assert!(part.bytes() < 8 << 10, "{} bytes", part.bytes());
    let collection = Collection::create_in(
        CollectionLocation::in_store(Arc::new(MemoryStore::new("parts"))),
        case.schema.clone(),
        &case.options(),
    );
    assert_eq!(collection.unwrap().add(part).unwrap().added, 10);
}

#[test]
fn an_update_counts_the_bytes_of_the_rows_that_it_writes() {
    let case = large();
    let (place, options) = in_background(&case);
    let collection = Collection::open_in(place, &options).unwrap();
    let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(6));
    for first in (0..200).step_by(40) {
        let rows = (first..first + 40).map(|id| (Id::Number(id), case.row(&mut random)));
        let change = Change::Add(rows.collect());
        write(&case, &collection, &change).unwrap();
        truth.apply(&change);
    }
    let update = |count: u64| {
        let years = vec![Value::Whole(1); count as usize];
        Change::Update((0..count).map(Id::Number).collect(), vec![(0, years)])
    };
    for (count, apart) in [(40, false), (200, true)] {
        let version = collection.describe().version;
        write(&case, &collection, &update(count)).unwrap();
        truth.apply(&update(count));
        // Rows that go into a segment at once make a version.
        assert_eq!(collection.describe().version > version, apart);
    }
    check_all(&case, &collection.snapshot(), &truth, None, 100);
}
