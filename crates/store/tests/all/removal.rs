//! Removal of generations whose folders hold files of others, with a fault at every operation.

use bathyal_store::disk::{Disk, write_all};
use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_store::stripe::Striping;
use bathyal_store::{DraftExt, GenerationExt, Replace, Store, StoreError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MARK: &str = "manifest";
const OBJECTS: [&str; 2] = ["data", MARK];

/// A disk with a published generation, and what else may be beside its objects.
struct Bench {
    simulated: SimulatedDisk,
    faults: Faults,
    store: LocalStore,
    /// All paths after the removal.
    expected: Vec<String>,
}

impl Bench {
    fn new(striped: bool, foreign: bool) -> Bench {
        let simulated = SimulatedDisk::default();
        let faults = Faults::new(Arc::new(simulated.clone()));
        let store = LocalStore::on_disk(Arc::new(faults.clone()), "/folder", MARK);
        let disks = ["/a", "/b"].map(PathBuf::from);
        for folder in ["/folder", "/a", "/b"] {
            simulated.create_folder(Path::new(folder)).unwrap();
        }
        simulated.sync_folder(Path::new("/")).unwrap();
        let builder = match striped {
            true => store.clone().striped(Striping::new(&disks, 4096, &["data"]).unwrap()),
            false => store.clone(),
        };
        let draft = builder.begin("index", Replace::Never).unwrap();
        draft.put("data", &[7; 9000]).unwrap();
        draft.put(MARK, b"mark").unwrap();
        draft.publish(&OBJECTS, "").unwrap();
        let mut expected = vec!["/a", "/b", "/folder"];
        if foreign {
            let file = simulated.create(Path::new("/folder/index/notes")).unwrap();
            write_all(file.as_ref(), b"mine", 0).unwrap();
            file.sync().unwrap();
            simulated.sync_folder(Path::new("/folder/index")).unwrap();
            expected.extend(["/folder/index", "/folder/index/notes"]);
        }
        let expected = expected.into_iter().map(str::to_string).collect();
        Bench { simulated, faults, store, expected }
    }

    /// Returns true if the whole generation can be opened, and false if nothing can.
    fn is_there(&self, what: &str) -> bool {
        match self.store.open("index") {
            Ok(found) => {
                assert_eq!(found.read("data").unwrap(), [7; 9000], "{what}");
                assert_eq!(found.read(MARK).unwrap(), b"mark", "{what}");
                true
            }
            Err(StoreError::Missing { .. } | StoreError::NoGeneration { .. }) => false,
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// Removes the generation once for each operation, with `fault` injected there, and checks that the next call
/// finishes.
fn sweep(striped: bool, foreign: bool, fault: DiskFault, powerless: Option<u64>) {
    for number in 0.. {
        let bench = Bench::new(striped, foreign);
        bench.faults.inject(number, fault);
        let removed = bench.store.erase_objects("index", &["data", "absent"]);
        let failed = bench.faults.injected();
        bench.faults.clear();
        let Some(failed) = failed else {
            removed.unwrap();
            assert_eq!(bench.simulated.paths(), bench.expected);
            assert!(number > 10, "the sweep found {number} operations");
            return;
        };
        let what = format!("{striped} {foreign} {powerless:?}: {failed}");
        if let Some(seed) = powerless {
            bench.simulated.lose_power(seed ^ number as u64);
        }
        if !bench.is_there(&what) && !bench.store.has_leftovers("index").unwrap() {
            assert_eq!(bench.simulated.paths(), bench.expected, "{what}");
            continue;
        }
        bench.store.erase_objects("index", &["data"]).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!bench.is_there(&what), "{what}");
        assert_eq!(bench.simulated.paths(), bench.expected, "{what}");
    }
}

#[test]
fn a_killed_removal_is_finished_by_the_next_and_keeps_files_of_others() {
    for striped in [false, true] {
        for foreign in [false, true] {
            for fault in
                [DiskFault::Kill, DiskFault::Full, DiskFault::Once(libc::EIO), DiskFault::Twice(libc::EACCES)]
            {
                sweep(striped, foreign, fault, None);
            }
            for seed in 0..20 {
                sweep(striped, foreign, DiskFault::Kill, Some(seed << 16));
            }
        }
    }
}

#[test]
fn a_build_after_a_killed_removal_finds_the_name_free() {
    for number in 0.. {
        let bench = Bench::new(true, false);
        bench.faults.inject(number, DiskFault::Kill);
        let _ = bench.store.erase_objects("index", &["data"]);
        let failed = bench.faults.injected();
        bench.faults.clear();
        let Some(failed) = failed else { return };
        drop(bench.store.abandoned("index", Replace::Generation).unwrap());
        let draft = bench.store.begin("index", Replace::Generation).unwrap();
        draft.put("data", &[7; 9000]).unwrap();
        draft.put(MARK, b"mark").unwrap();
        draft.publish(&OBJECTS, "").unwrap();
        assert!(bench.is_there(&failed));
        bench.store.erase_objects("index", &["data"]).unwrap();
        assert_eq!(bench.simulated.paths(), bench.expected, "{failed}");
    }
}

#[test]
fn what_is_no_generation_is_not_removed() {
    let bench = Bench::new(false, true);
    bench.store.erase_objects("index", &["data"]).unwrap();
    let error = bench.store.erase_objects("index", &["data"]).unwrap_err();
    assert!(matches!(error, StoreError::NoGeneration { .. }), "{error}");
    bench.store.erase_objects("nothing", &[]).unwrap();
    assert!(matches!(bench.store.erase_objects("../folder", &[]), Err(StoreError::Name { .. })));
    assert!(matches!(bench.store.erase_objects("index", &["../a"]), Err(StoreError::Name { .. })));
    // A draft that another process writes is not touched.
    let draft = bench.store.begin("other", Replace::Never).unwrap();
    draft.put("data", b"half").unwrap();
    assert!(!bench.store.has_leftovers("other").unwrap());
    bench.store.erase_objects("other", &[]).unwrap();
    assert_eq!(draft.read("data").unwrap(), b"half");
    draft.leave().unwrap();
    assert!(bench.store.has_leftovers("other").unwrap());
    bench.store.erase_objects("other", &[]).unwrap();
    assert_eq!(bench.simulated.paths(), bench.expected);
}

#[test]
fn parts_on_a_missing_disk_are_an_error_and_removed_by_a_later_call() {
    let bench = Bench::new(true, false);
    bench.simulated.rename(Path::new("/b"), Path::new("/away")).unwrap();
    let error = bench.store.erase_objects("index", &["data"]).unwrap_err();
    assert!(error.to_string().contains("cannot remove all of"), "{error}");
    assert!(!bench.is_there("on a missing disk"));
    bench.simulated.rename(Path::new("/away"), Path::new("/b")).unwrap();
    bench.store.erase_objects("index", &[]).unwrap();
    assert_eq!(bench.simulated.paths(), bench.expected);
}
