//! Calibrations of a whole collection with queries unlike its rows, and audits with given queries.

use bathyal_collection::{
    Collection, CollectionAuditRequest, CollectionCalibration, CollectionError, CollectionLocation,
    CollectionOptions, CompactOptions, Durability, Filter, IdKind, Ids, RepairOptions, Rows, Schema,
    SearchRequest, VectorField,
};
use bathyal_index::{AuditReport, Effort, StoreOptions};
use bathyal_kernels::{Element, Metric};
use bathyal_store::disk::Disk;
use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const DIM: usize = 48;
const SEGMENT: u64 = 1500;

fn schema(family: &str) -> Schema {
    let field = VectorField::new("v", DIM, Element::F32, Metric::Cosine);
    let field = VectorField { family: family.into(), ..field };
    Schema { id_kind: IdKind::Number, vectors: vec![field], columns: Vec::new() }
}

fn options() -> CollectionOptions {
    CollectionOptions {
        durability: Durability::System,
        background: false,
        compact: false,
        threads: 2,
        // Small segments have codes and lists, too.
        flat_below_rows: 100,
        ..CollectionOptions::default()
    }
}

fn file(values: Vec<f32>) -> VectorFile {
    VectorFile::from_rows(Element::F32, DIM, values.into_iter().flat_map(f32::to_le_bytes).collect()).unwrap()
}

/// Returns rows whose components are smaller and smaller.
fn rows(range: Range<u64>) -> Rows {
    let mut values = Vec::new();
    for row in range.clone() {
        let mut random = StdRng::seed_from_u64(row);
        values.extend((0..DIM).map(|at| random.random_range(-1.0_f32..1.0) / (1 + at) as f32));
    }
    let ids = Ids::Numbers(range.collect::<Vec<_>>().into());
    Rows::new(&schema("spann"), ids, vec![file(values)], None).unwrap()
}

/// Returns queries in random directions, which are unlike the rows.
fn directions(count: usize, seed: u64) -> VectorFile {
    let mut random = StdRng::seed_from_u64(seed);
    file((0..count * DIM).map(|_| random.random_range(-1.0_f32..1.0)).collect())
}

fn audit(collection: &Collection, search: SearchRequest) -> AuditReport {
    let request = CollectionAuditRequest { recalls: vec![0.9, 0.95], search, ..Default::default() };
    collection.audit(&directions(100, 2), &request, &Silent).unwrap()
}

fn found(report: &AuditReport) -> Vec<f64> {
    report.recalls.iter().map(|one| one.estimate.found).collect()
}

fn named(name: &str) -> SearchRequest {
    SearchRequest { calibration: Some(name.into()), ..SearchRequest::default() }
}

fn calibrate(collection: &Collection, name: &str, queries: usize) -> Result<usize, CollectionError> {
    let options = CollectionCalibration { name: name.into(), queries, ..CollectionCalibration::default() };
    collection.calibrate(&directions(300, 1), &options, &Silent).map(|report| report.segments)
}

/// Returns the names, numbers of queries, and measured segments of the calibrations.
fn described(collection: &Collection) -> Vec<(String, u32, usize)> {
    let all = collection.describe().calibrations;
    all.into_iter().map(|one| (one.name, one.queries, one.segments)).collect()
}

/// Returns the notes of a search that say that segments were not measured.
fn missing(collection: &Collection, request: &SearchRequest) -> Vec<String> {
    let found = collection.search(&directions(3, 9), request, Control::default()).unwrap();
    found.notes.into_iter().filter(|note| note.contains("could not be measured")).collect()
}

fn check_recall(collection: &Collection, what: &str) {
    let report = audit(collection, SearchRequest::default());
    println!("{what}: {:?}", found(&report));
    assert!(report.recalls.iter().all(|one| one.reached), "{what}: {report:?}");
}

#[test]
fn a_calibrated_collection_finds_the_recall_also_after_flushes_and_merges() {
    let path = "memory://calibrations/c";
    let collection = Collection::create(path, schema("spann"), &options()).unwrap();
    for first in [0, SEGMENT] {
        collection.add(rows(first..first + SEGMENT)).unwrap();
        collection.flush().unwrap();
    }
    collection.add(rows(9000..9200)).unwrap();
    collection.delete(Ids::Numbers((0..100).collect::<Vec<u64>>().into())).unwrap();
    let before = audit(&collection, SearchRequest::default());
    println!("before: {:?}", found(&before));
    assert!(before.recalls.iter().all(|one| !one.reached), "too easy for this test: {before:?}");

    let reader = Collection::open(path, &options()).unwrap();
    assert_eq!(found(&audit(&reader, SearchRequest::default())), found(&before));
    let report = collection.calibrate(&directions(300, 1), &CollectionCalibration::default(), &Silent);
    let report = report.unwrap();
    assert_eq!((report.queries, report.segments, report.exact_segments), (300, 2, 0));
    let ten = report.before.iter().find(|one| one.k == 10 && one.asked == 0.9).unwrap();
    assert!(ten.found < 0.9 && report.recalls.iter().all(|one| one.most > 0.95), "{report:?}");
    check_recall(&collection, "calibrated");
    assert_eq!(found(&audit(&collection, named("build"))), found(&before));
    // Another handle has read the indexes' calibrations before there were any.
    assert!(reader.refresh().unwrap());
    check_recall(&reader, "in another handle");

    collection.flush().unwrap();
    assert_eq!(described(&collection), [("default".to_string(), 300, 3)]);
    check_recall(&collection, "flushed");
    collection.compact(&CompactOptions { full: true }, &Silent).unwrap();
    assert_eq!(described(&collection), [("default".to_string(), 300, 1)]);
    check_recall(&collection, "merged");
    drop(collection);
    let collection = Collection::open(path, &options()).unwrap();
    check_recall(&collection, "opened again");
    assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new());

    let copy = "memory://calibrations/copy";
    collection.add(rows(20_000..20_300)).unwrap();
    collection.copy_to(copy, &StoreOptions::default(), &Silent).unwrap();
    let copy = Collection::open(copy, &options()).unwrap();
    assert_eq!(missing(&copy, &SearchRequest::default()), Vec::<String>::new());
    assert_eq!(described(&copy), [("default".to_string(), 300, 2)]);
    assert!(collection.remove_calibration("default", None).unwrap());
    assert!(!collection.remove_calibration("default", None).unwrap());
    assert!(audit(&collection, SearchRequest::default()).recalls.iter().all(|one| !one.reached));
}

#[test]
fn calibrations_are_chosen_by_their_names() {
    let path = "memory://calibrations/names";
    let options = CollectionOptions { keep_versions: 1, ..options() };
    let collection = Collection::create(path, schema("spann"), &options).unwrap();
    assert_eq!(calibrate(&collection, "early", 20).unwrap(), 0, "no segment is there");
    collection.add(rows(0..400)).unwrap();
    collection.flush().unwrap();
    assert_eq!(described(&collection), [("early".to_string(), 20, 1)]);
    assert_eq!(calibrate(&collection, "late", 30).unwrap(), 1);
    let lists = |request: &SearchRequest| {
        let found = collection.search(&directions(2, 3), request, Control::default()).unwrap();
        found.plans[0].search_list
    };
    let all = [lists(&named("early")), lists(&named("late")), lists(&named("build"))];
    assert_eq!(lists(&SearchRequest::default()), *all.iter().max().unwrap(), "{all:?}");
    let refused = collection.search(&directions(1, 3), &named("other"), Control::default()).unwrap_err();
    assert!(refused.to_string().contains("there is build, early, late"), "{refused}");
    for name in ["c", "d", "e", "f", "g", "h"] {
        calibrate(&collection, name, 2).unwrap();
    }
    let many = calibrate(&collection, "i", 2).unwrap_err().to_string();
    assert!(many.contains("8 calibrations, which is the most") && many.contains("late"), "{many}");
    assert_eq!(calibrate(&collection, "h", 3).unwrap(), 1, "one of the name is replaced");
    drop(collection);
    let numbers = Collection::open(path, &options).unwrap().versions().unwrap();
    let before = Collection::open_version(path, numbers[0], &options).unwrap();
    assert!(described(&before).contains(&("h".to_string(), 2, 1)));
    assert_eq!(missing(&before, &named("h")), Vec::<String>::new());
    assert!(calibrate(&before, "x", 2).is_err_and(|error| error.to_string().contains("read-only")));
}

#[test]
fn calibrations_and_audits_that_make_no_sense_are_refused() {
    let collection = Collection::create("memory://calibrations/odd", schema("spann"), &options()).unwrap();
    let refused = |queries: &VectorFile, name: &str, queries_most: usize| {
        let options =
            CollectionCalibration { name: name.into(), queries: queries_most, ..Default::default() };
        collection.calibrate(queries, &options, &Silent).unwrap_err().to_string()
    };
    let good = directions(3, 1);
    let short = VectorFile::from_rows(Element::F32, DIM - 1, vec![0; 4 * (DIM - 1)]).unwrap();
    let bytes = VectorFile::from_rows(Element::U8, DIM, vec![1; DIM]).unwrap();
    let wrong = file(vec![f32::NAN; DIM]);
    assert!(refused(&short, "a", 9).contains("47 dimensions"));
    assert!(refused(&bytes, "a", 9).contains("u8"));
    assert!(refused(&wrong, "a", 9).to_lowercase().contains("nan"));
    assert!(refused(&good, "a", 0).contains("at least one query"));
    assert!(refused(&good, "build", 9).contains("build"));
    assert!(refused(&good, "a/b", 9).contains("cannot name a calibration"));
    assert_eq!(described(&collection), []);
    let audit = |queries: &VectorFile, request: &CollectionAuditRequest| {
        collection.audit(queries, request, &Silent).unwrap_err().to_string()
    };
    let request = CollectionAuditRequest::default();
    assert!(audit(&good, &request).contains("no row is there"));
    assert!(audit(&wrong, &request).to_lowercase().contains("nan"));
    assert!(audit(&short, &request).contains("47 dimensions"));
    assert!(audit(&good, &CollectionAuditRequest { recalls: vec![], ..request.clone() }).contains("recall"));
    assert!(audit(&good, &CollectionAuditRequest { recalls: vec![1.5], ..request.clone() }).contains("1.5"));
    let search = named("x");
    collection.add(rows(0..10)).unwrap();
    assert!(audit(&good, &CollectionAuditRequest { search, ..request }).contains("no calibration"));
}

#[test]
fn an_audit_compares_with_the_live_rows_that_match() {
    // All searches of flat segments and of memory are exact, so any other count of rows would show.
    let options = CollectionOptions { flat_below_rows: 100_000, ..options() };
    let collection = Collection::create("memory://calibrations/exact", schema("spann"), &options).unwrap();
    collection.add(rows(0..300)).unwrap();
    collection.flush().unwrap();
    collection.add(rows(300..500)).unwrap();
    collection.delete(Ids::Numbers((0..500).filter(|id| id % 3 == 0).collect::<Vec<u64>>().into())).unwrap();
    let filter = Some(Filter::parse("id >= 100").unwrap());
    for (filter, k, expected) in [(None, 20, 20), (filter.clone(), 20, 20), (filter, 400, 267)] {
        let report = audit(&collection, SearchRequest { filter, k, ..SearchRequest::default() });
        assert_eq!((report.queries, report.k, found(&report)), (100, expected, vec![1.0, 1.0]));
        assert!(report.recalls.iter().all(|one| one.reached) && report.exact_bytes > 0);
    }
    let report = collection.calibrate(&directions(5, 1), &CollectionCalibration::default(), &Silent).unwrap();
    assert_eq!((report.segments, report.exact_segments, report.notes.len()), (0, 1, 1));
    assert_eq!(missing(&collection, &SearchRequest::default()), Vec::<String>::new());
}

#[test]
fn segments_that_cannot_be_measured_are_published_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c");
    let collection = Collection::create(&path, schema("spann"), &options()).unwrap();
    collection.add(rows(0..400)).unwrap();
    collection.flush().unwrap();
    calibrate(&collection, "default", 20).unwrap();
    let is_queries = |name: &str| name.starts_with("q-") && !name.contains('.');
    let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
    let mut queries = entries.map(|name| name.into_string().unwrap()).filter(|name| is_queries(name));
    let damaged = path.join(queries.next().unwrap()).join("queries.bin");
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    assert!(collection.verify(&Silent).unwrap().iter().any(|fault| fault.contains("queries.bin")));
    collection.add(rows(400..800)).unwrap();
    collection.flush().unwrap();
    assert_eq!(described(&collection), [("default".to_string(), 20, 1)]);
    let notes = missing(&collection, &SearchRequest::default());
    assert!(notes.len() == 1 && notes[0].starts_with("1 of 2 segments"), "{notes:?}");
    let by_list = SearchRequest { effort: Effort::SearchList(50), ..SearchRequest::default() };
    assert_eq!(missing(&collection, &by_list), Vec::<String>::new());
    drop(collection);
    let (to, store) = (folder.path().join("repaired"), StoreOptions::default());
    let repaired =
        Collection::repair(&path, &options(), (&to, &store), &RepairOptions::default(), &Silent).unwrap();
    assert!(repaired.faults.iter().any(|fault| fault.contains("calibration")), "{repaired:?}");
    assert_eq!(described(&Collection::open(&to, &options()).unwrap()), []);
    let collection = Collection::open(&path, &options()).unwrap();
    calibrate(&collection, "default", 20).unwrap();
    assert_eq!(missing(&collection, &SearchRequest::default()), Vec::<String>::new());
    let again = folder.path().join("again");
    Collection::repair(&path, &options(), (&again, &store), &RepairOptions::default(), &Silent).unwrap();
    let again = Collection::open(&again, &options()).unwrap();
    assert_eq!(described(&again), [("default".to_string(), 20, 2)]);
    assert_eq!(missing(&again, &SearchRequest::default()), Vec::<String>::new());
}

/// A collection with one calibrated segment on a simulated disk.
struct TestDisk {
    platter: SimulatedDisk,
    faults: Faults,
    place: CollectionLocation,
}

impl TestDisk {
    fn of(platter: SimulatedDisk) -> TestDisk {
        let faults = Faults::new(Arc::new(platter.clone()));
        let store = LocalStore::on_disk(Arc::new(faults.clone()), "/folder", CollectionLocation::MARK);
        TestDisk { platter, faults, place: CollectionLocation::in_store(Arc::new(store)) }
    }

    fn new() -> TestDisk {
        let platter = SimulatedDisk::default();
        platter.create_folder(Path::new("/folder")).unwrap();
        platter.sync_folder(Path::new("/")).unwrap();
        let disk = TestDisk::of(platter);
        let options = CollectionOptions { durability: Durability::Disk, ..options() };
        let collection = Collection::create_in(disk.place.clone(), schema("spann"), &options).unwrap();
        collection.add(rows(0..200)).unwrap();
        collection.flush().unwrap();
        calibrate(&collection, "default", 4).unwrap();
        disk
    }

    /// Checks the collection after a fault. Returns the number of queries of its calibration.
    fn check(&self, what: &str) -> u32 {
        let options = CollectionOptions { durability: Durability::Disk, ..options() };
        let collection = Collection::open_in(self.place.clone(), &options).unwrap();
        let calibrations = described(&collection);
        let [(name, queries, measured)] = &calibrations[..] else { panic!("{what}: {calibrations:?}") };
        assert_eq!((name.as_str(), *measured), ("default", collection.describe().segments.len()), "{what}");
        assert_eq!(missing(&collection, &SearchRequest::default()), Vec::<String>::new(), "{what}");
        assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new(), "{what}");
        // The next writer removes queries that no version names.
        collection.add(rows(900..901)).unwrap();
        let paths = self.platter.paths();
        let queries_of = |path: &&String| path.contains("/q-") && path.ends_with("queries.bin");
        assert_eq!(paths.iter().filter(queries_of).count(), 1, "{what}: {paths:?}");
        *queries
    }
}

#[test]
fn a_calibration_is_published_as_a_whole_or_not_at_all() {
    let whole = TestDisk::new();
    let options = CollectionOptions { durability: Durability::Disk, ..options() };
    let mut seen = Vec::new();
    for (fault, stride) in [(DiskFault::Kill, 3), (DiskFault::Once(5), 4)] {
        for number in (0..).step_by(stride) {
            let disk = TestDisk::of(whole.platter.copy());
            disk.faults.inject(number, fault);
            let outcome = Collection::open_in(disk.place.clone(), &options)
                .and_then(|collection| calibrate(&collection, "default", 5));
            let injected = disk.faults.injected();
            disk.faults.clear();
            if fault == DiskFault::Kill {
                disk.platter.lose_power(number as u64);
            }
            let what = format!("{fault:?} at {number}: {injected:?}, {outcome:?}");
            let queries = disk.check(&what);
            assert!(outcome.is_err() || queries == 5, "{what}");
            seen.push(queries);
            if injected.is_none() {
                break;
            }
        }
    }
    assert!(seen.contains(&4) && seen.contains(&5), "{seen:?}");
}
