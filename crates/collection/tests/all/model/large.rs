//! Batches that exceed the memory for writes: they are written as a segment at once, completely or not at
//! all.

use crate::model::cases::{Case, Value};
use crate::model::compare::check_all;
use crate::model::program::{random_change, write};
use crate::model::shared::SharedStore;
use crate::model::truth::{Change, Truth};
use bathyal_collection::{
    Collection, CollectionError, CollectionLocation, CollectionOptions, CompactOptions, Durability, Id,
    Written,
};
use bathyal_store::memory::MemoryStore;
use bathyal_store::{Draft, Generation, Replace, Store, StoreError};
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const FULL: CompactOptions = CompactOptions { full: true };

/// Returns rows with the ids of a range.
fn numbered(
    case: &Case,
    range: std::ops::Range<u64>,
    random: &mut StdRng,
) -> Vec<(Id, Arc<crate::model::cases::Row>)> {
    range.map(|id| (Id::Number(id), case.row(random))).collect()
}

fn in_memory() -> CollectionLocation {
    CollectionLocation::in_store(Arc::new(MemoryStore::new("large")))
}

#[test]
fn batches_of_any_size_are_written_completely() {
    let case = Case::numbers();
    let (place, options) = (in_memory(), case.options());
    let collection = Collection::create_in(place.clone(), case.schema.clone(), &options).unwrap();
    let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(1));
    // Some of the replaced rows are in memory, and some in segments.
    let mut changes = vec![
        Change::Add(numbered(&case, 0..50, &mut random)),
        Change::Add(numbered(&case, 50..20_000, &mut random)),
        Change::Upsert(numbered(&case, 19_990..20_010, &mut random)),
        Change::Upsert(numbered(&case, 10_000..30_000, &mut random)),
    ];
    let years = vec![Value::Whole(7); 12_000];
    changes.push(Change::Update((5_000..17_000).map(Id::Number).collect(), vec![(0, years)]));
    changes.push(Change::Delete((0..40_000).filter(|id| id % 3 == 0).map(Id::Number).collect()));
    for change in &changes {
        let meant = truth.apply(change);
        assert_eq!(write(&case, &collection, change).ok(), meant);
        check_all(&case, &collection.snapshot(), &truth, None, 5_000);
    }
    let written = collection.describe().written;
    assert!(written.log < written.given / 4, "large batches are not in the log: {written:?}");
    // Existing and duplicate ids are also found in large batches, and nothing of the batch is stored.
    let segments = collection.describe().segments.len();
    let mut twice = numbered(&case, 50_000..60_000, &mut random);
    twice[9_000].0 = Id::Number(50_000);
    for refused in [numbered(&case, 29_999..45_000, &mut random), twice] {
        let error = write(&case, &collection, &Change::Add(refused)).unwrap_err();
        assert!(matches!(error, CollectionError::Duplicate { count: 1, .. }), "{error}");
    }
    assert_eq!(collection.describe().segments.len(), segments);
    drop(collection);
    let collection = Collection::open_in(place, &options).unwrap();
    check_all(&case, &collection.snapshot(), &truth, None, 5_000);
    collection.compact(&FULL, &Silent).unwrap();
    check_all(&case, &collection.snapshot(), &truth, None, 5_000);
    assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new());
}

#[test]
fn a_delete_without_matches_writes_nothing() {
    let case = Case::small();
    let options = CollectionOptions { direct_bytes: Some(0), ..case.options() };
    let collection = Collection::create_in(in_memory(), case.schema.clone(), &options).unwrap();
    let mut random = StdRng::seed_from_u64(2);
    write(&case, &collection, &Change::Add(case.rows(5, true, &mut random))).unwrap();
    let before = collection.describe().version;
    let missing = write(&case, &collection, &Change::Delete(vec![Id::Number(77_777)])).unwrap();
    assert_eq!(missing, Written { missing: 1, ..Written::default() });
    let update = Change::Update(vec![Id::Number(77_777)], vec![(0, vec![Value::Whole(1)])]);
    assert_eq!(write(&case, &collection, &update).unwrap(), missing);
    assert_eq!(collection.describe().version, before);
}

/// Small batches, large batches, deletes and merges at the same time.
#[test]
fn large_batches_are_written_beside_small_ones_and_merges() {
    let case = Case::numbers();
    for round in 0..2 {
        let options = CollectionOptions {
            background: true,
            durability: Durability::System,
            direct_bytes: Some(3_000),
            threads: 2,
            ..case.options()
        };
        let place = in_memory();
        let collection = Collection::create_in(place.clone(), case.schema.clone(), &options).unwrap();
        let truths: Vec<Truth> = std::thread::scope(|scope| {
            let writing: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let (case, collection) = (&case, &collection);
                    scope.spawn(move || {
                        let mut random = StdRng::seed_from_u64(round * 10 + thread);
                        let mut truth = Truth::default();
                        let mine = |random: &mut StdRng| thread * 1000 + random.random_range(0..500);
                        for _ in 0..40 {
                            let large = random.random_range(0..3) == 0;
                            let first = mine(&mut random);
                            let count = if large { random.random_range(60..300) } else { 3 };
                            let change = match random.random_range(0..5) {
                                0 => Change::Delete((first..first + count).map(Id::Number).collect()),
                                1 => {
                                    let batch_ids = (first..first + count).map(Id::Number).collect();
                                    let years = vec![Value::Whole(random.random_range(0..9)); count as usize];
                                    Change::Update(batch_ids, vec![(0, years)])
                                }
                                _ => Change::Upsert(numbered(case, first..first + count, &mut random)),
                            };
                            let written = write(case, collection, &change).unwrap();
                            assert_eq!(Some(written), truth.apply(&change));
                            if random.random_range(0..20) == 0 {
                                collection.compact(&FULL, &Silent).unwrap();
                            }
                        }
                        truth
                    })
                })
                .collect();
            writing.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let all = Truth { rows: truths.into_iter().flat_map(|truth| truth.rows).collect() };
        check_all(&case, &collection.snapshot(), &all, None, 500);
        drop(collection);
        let collection = Collection::open_in(place, &options).unwrap();
        check_all(&case, &collection.snapshot(), &all, None, 500);
        assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn machines_that_take_over_from_each_other_lose_no_large_batch() {
    let case = Case::small();
    let place = CollectionLocation::in_store(Arc::new(SharedStore::new()));
    let options = CollectionOptions { direct_bytes: Some(100), ..case.options() };
    Collection::create_in(place.clone(), case.schema.clone(), &options).unwrap();
    let open = || Collection::open_in(place.clone(), &options).unwrap();
    let mut writers = [open(), open()];
    let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(5));
    let (mut refused, mut done) = (0, 0);
    for step in 0..300 {
        let writer = random.random_range(0..2);
        let change = random_change(&case, &truth, &mut random);
        let mut after = truth.clone();
        let meant = after.apply(&change);
        match write(&case, &writers[writer], &change) {
            // The handle got an error; nothing may be written.
            Ok(Written { added: 0, replaced: 0, deleted: 0, .. })
            | Err(CollectionError::Duplicate { .. }) => {}
            Ok(written) => {
                assert_eq!(Some(written), meant, "step {step}");
                (truth, done) = (after, done + 1);
            }
            Err(
                CollectionError::Fenced { .. }
                | CollectionError::Busy { .. }
                | CollectionError::NotWritten { .. },
            ) => {
                refused += 1;
                let content = crate::model::compare::holds(&case, &open().snapshot());
                assert!(content == truth || content == after, "step {step}: {change:?}");
                truth = content;
                writers[writer] = open();
            }
            Err(error) => panic!("step {step}: {error}"),
        }
        if step % 10 == 0 {
            let now = open();
            check_all(&case, &now.snapshot(), &truth, None, 50);
            assert_eq!(now.verify(&Silent).unwrap(), Vec::<String>::new());
        }
    }
    assert!(refused > 20 && done > 100, "{refused} were refused, {done} done");
}

type Hook = Box<dyn FnOnce() + Send>;

/// A store that runs a hook at one of its operations.
#[derive(Clone)]
struct Hooked {
    store: Arc<dyn Store>,
    left: Arc<AtomicUsize>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Hooked({:?})", self.store)
    }
}

impl Hooked {
    fn count(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            let hook = self.hook.lock().unwrap().take();
            hook.into_iter().for_each(|hook| hook());
        }
    }
}

impl Store for Hooked {
    fn address(&self) -> &Path {
        self.store.address()
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.count();
        self.store.list()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        self.count();
        self.store.open(name)
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        self.store.check(name, replace)
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        self.count();
        self.store.begin(name, replace)
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        self.store.abandoned(name, replace)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.count();
        self.store.delete(name)
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        self.count();
        self.store.erase(name)
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        self.store.leftovers()
    }
}

/// A reader never sees a batch without the earlier ones, whatever is written between two of its operations.
#[test]
fn a_reader_sees_no_batch_without_the_large_one_before_it() {
    let case = Case::small();
    let options = CollectionOptions { direct_bytes: Some(1_000), keep_versions: 3, ..case.options() };
    for opened in [false, true] {
        let mut seen = [0, 0];
        for at in 0.. {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new("hooked"));
            let place = CollectionLocation::in_store(store.clone());
            let writer = Collection::create_in(place, case.schema.clone(), &options).unwrap();
            let mut random = StdRng::seed_from_u64(at as u64);
            write(&case, &writer, &Change::Add(numbered(&case, 0..2, &mut random))).unwrap();
            let hooked = Hooked { store, left: Arc::new(AtomicUsize::new(usize::MAX)), hook: Arc::default() };
            let place = CollectionLocation::in_store(Arc::new(hooked.clone()));
            let reader = opened.then(|| Collection::open_in(place.clone(), &options).unwrap());
            let (case_clone, writing) = (case.clone(), Arc::new(writer));
            let kept = writing.clone();
            *hooked.hook.lock().unwrap() = Some(Box::new(move || {
                for range in [100..160, 2..4] {
                    let change = Change::Add(numbered(&case_clone, range, &mut random));
                    write(&case_clone, &writing, &change).unwrap();
                }
            }));
            hooked.left.store(at, Ordering::Relaxed);
            let reader = match reader {
                Some(reader) => {
                    reader.refresh().unwrap();
                    reader
                }
                None => Collection::open_in(place, &options).unwrap(),
            };
            let rows = reader.count(None, Control::default()).unwrap();
            assert!([2, 62, 64].contains(&rows), "{rows} rows at {at}, opened before: {opened}");
            seen[usize::from(rows > 2)] += 1;
            if hooked.hook.lock().unwrap().is_some() {
                break;
            }
            reader.refresh().unwrap();
            assert_eq!(reader.count(None, Control::default()).unwrap(), 64);
            drop(kept);
        }
        assert!(seen[1] > 0, "{seen:?}");
    }
}

/// Replaces random rows again and again. The space of the collection and the bytes written stay below the
/// bounds in docs/decisions/collections.md.
#[test]
fn space_and_bytes_written_stay_bounded_while_rows_are_replaced() {
    let mut case = Case::numbers();
    case.schema.vectors[0].dim = 128;
    // Building graphs would take long.
    case.flat_below_rows = usize::MAX;
    let (rows, batch, rounds) =
        (12_000_u64, 60, if std::env::var_os("BATHYAL_WHOLE").is_some() { 4 } else { 1 });
    let options = CollectionOptions { durability: Durability::System, ..case.options() };
    let collection = Collection::create_in(in_memory(), case.schema.clone(), &options).unwrap();
    let mut random = StdRng::seed_from_u64(8);
    for first in (0..rows).step_by(100) {
        write(&case, &collection, &Change::Add(numbered(&case, first..first + 100, &mut random))).unwrap();
    }
    let before = collection.describe().written;
    let (mut sum, mut most) = (0.0, 0.0_f64);
    let steps = rows * rounds / batch;
    for _ in 0..steps {
        let batch_rows: std::collections::BTreeSet<u64> =
            (0..batch).map(|_| random.random_range(0..rows)).collect();
        let batch_rows = batch_rows.into_iter().map(|id| (Id::Number(id), case.row(&mut random))).collect();
        write(&case, &collection, &Change::Upsert(batch_rows)).unwrap();
        let now = collection.describe().space_amplification;
        (sum, most) = (sum + now, most.max(now));
    }
    let after = collection.describe().written;
    let amplification = |counter: fn(&bathyal_collection::WrittenBytes) -> u64| {
        (counter(&after) - counter(&before)) as f64 / (after.given - before.given) as f64
    };
    let (log, segments, merged) =
        (amplification(|w| w.log), amplification(|w| w.segments), amplification(|w| w.merged));
    println!(
        "space {:.3}, at most {most:.3}; log {log:.3}, segments {segments:.3}, merged {merged:.3}",
        sum / steps as f64
    );
    assert!(most < 1.5, "{most}");
    assert!(log < 1.2 && segments < 1.5 && merged < 6.0, "{log} {segments} {merged}");
}

#[test]
fn memory_that_is_too_small_for_any_segment_is_refused_when_a_collection_is_opened() {
    let case = Case::small();
    let open = |build: Option<u64>, compact: Option<u64>| {
        let options = CollectionOptions {
            build_memory_bytes: build,
            compact_memory_bytes: compact,
            threads: 0,
            ..case.options()
        };
        Collection::create_in(in_memory(), case.schema.clone(), &options)
    };
    let refused = open(Some(1 << 20), None).map(|_| ()).unwrap_err();
    let CollectionError::Memory { needed, given, .. } = refused else { panic!("{refused}") };
    assert_eq!(given, 1 << 20);
    assert!(needed <= 78 << 20, "docs/guide/collections.md says less than {needed}");
    let other = open(None, Some(needed - 1)).map(|_| ()).unwrap_err();
    assert!(matches!(other, CollectionError::Memory { .. }), "{other}");
    // The advice of the message works.
    let collection = open(Some(needed), Some(needed)).unwrap();
    let mut random = StdRng::seed_from_u64(3);
    for range in [0..1_500, 1_500..20_000] {
        write(&case, &collection, &Change::Add(numbered(&case, range, &mut random))).unwrap();
        collection.flush().unwrap();
    }
    collection.compact(&FULL, &Silent).unwrap();
    assert_eq!(collection.count(None, Control::default()).unwrap(), 20_000);
    assert_eq!(collection.describe().segments.len(), 1);
}
