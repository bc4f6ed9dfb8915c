//! Injects a fault at every single operation of a build: a killed process, an error, a full disk, or a power
//! failure.

use bathyal_store::disk::Disk;
use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_store::stripe::Striping;
use bathyal_store::{Draft, DraftExt, GenerationExt, Replace, Store, StoreError, StoreExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MARK: &str = "manifest";
const JOURNAL: &str = "journal";
/// The length of the first half: more than a unit of a stripe, so that the second half begins in another
/// part.
const HALF_BYTES: usize = 5000;

fn half() -> Vec<u8> {
    b"first half,".iter().copied().cycle().take(HALF_BYTES).collect()
}

/// The number of folders that the old and the new index are striped over; 0 means not striped.
type Striped = [usize; 2];

const PLAIN: Striped = [0, 0];

/// From and to several disks, over other disks, and over the same ones.
const STRIPED: [Striped; 4] = [[0, 2], [2, 0], [2, 3], [2, 2]];

/// A disk with injected faults, and the stores on it.
struct Bench {
    simulated: SimulatedDisk,
    faults: Faults,
    /// The store of the old index.
    old_store: LocalStore,
    store: LocalStore,
    /// All paths on the disk after a finished build.
    expected: Vec<String>,
}

impl Bench {
    fn new(exchange: bool, striped: Striped) -> Bench {
        let simulated = SimulatedDisk::default();
        let disks: Vec<PathBuf> = ["/a", "/b", "/c"].iter().map(PathBuf::from).collect();
        let faults = Faults::new(Arc::new(simulated.clone()));
        let faults = if exchange { faults } else { faults.without_exchange() };
        let [old_store, store] = striped.map(|parts| {
            let store = LocalStore::on_disk(Arc::new(faults.clone()), "/folder", MARK);
            match parts {
                0 => store,
                n => store.striped(Striping::new(&disks[..n], 4096, &["data", "stray"]).unwrap()),
            }
        });
        simulated.create_folder(Path::new("/folder")).unwrap();
        disks.iter().for_each(|disk| simulated.create_folder(disk).unwrap());
        simulated.sync_folder(Path::new("/")).unwrap();
        let mut expected = vec!["/folder", "/folder/index", "/folder/index/manifest", "/a", "/b", "/c"];
        let parts = ["/a/index-KEY-data.part1", "/b/index-KEY-data.part2", "/c/index-KEY-data.part3"];
        expected.push(if striped[1] > 0 { "/folder/index/stripe.json" } else { "/folder/index/data" });
        expected.extend(&parts[..striped[1]]);
        expected.sort_unstable();
        let expected = expected.into_iter().map(str::to_string).collect();
        Bench { simulated, faults, old_store, store, expected }
    }

    /// Returns all paths on the disk, with `KEY` for the random numbers in the names of parts.
    fn paths(&self) -> Vec<String> {
        let keyless = |path: String| match path.split_once("-").zip(path.rsplit_once("-")) {
            Some(((index, _), (_, part))) if part.contains(".part") => format!("{index}-KEY-{part}"),
            _ => path,
        };
        self.simulated.paths().into_iter().map(keyless).collect()
    }

    /// Returns the index's data after the first half; `None` if there is no index.
    fn content(&self) -> Option<String> {
        let found = match self.store.open("index") {
            Ok(found) => found,
            Err(StoreError::Missing { .. }) => return None,
            Err(other) => panic!("{other}"),
        };
        let data = found.read("data").unwrap();
        assert_eq!(found.read(MARK).unwrap(), data, "all of one generation");
        assert_eq!(found.list().unwrap(), ["data", MARK], "no strays");
        Some(String::from_utf8(data.strip_prefix(&half()[..]).unwrap().to_vec()).unwrap())
    }
}

/// The progress of the earlier build that a build continued from.
const PROGRESS: [&str; 5] = ["nothing", "half", "all", "sealed", "published"];

/// Builds an index in two steps, with a journal after each. Returns the progress that it continued from.
fn build(store: &LocalStore, kind: &str, replace: Replace) -> Result<&'static str, StoreError> {
    let (half, whole) = (half(), [&half()[..], kind.as_bytes()].concat());
    let (draft, found) =
        store.resume("index", replace, |draft: &dyn Draft| match draft.publication_note() {
            Some(note) => (note == kind).then_some("sealed"),
            None => {
                let journal = draft.read(JOURNAL).ok()?;
                let (steps, len) = [("half", half.len()), ("all", whole.len())]
                    .into_iter()
                    .find(|(steps, _)| journal == format!("{kind}: {steps}").as_bytes())?;
                // The journal's name may become durable earlier than the names of the objects that it lists.
                (draft.len_of("data") >= Some(len as u64)).then_some(steps)
            }
        })?;
    let from = found.unwrap_or("nothing");
    if from == "sealed" {
        draft.publish(&["data", MARK], kind)?;
        return Ok(from);
    }
    if from == "nothing" {
        draft.put("data", &half)?;
        draft.replace(JOURNAL, format!("{kind}: half").as_bytes())?;
    }
    if from != "all" {
        draft.put("stray", b"of this step")?;
        let mut data = draft.append("data", half.len() as u64)?;
        data.append(kind.as_bytes())?;
        data.sync()?;
        draft.replace(JOURNAL, format!("{kind}: all").as_bytes())?;
    }
    draft.put(MARK, &whole)?;
    draft.publish(&["data", MARK], kind)?;
    Ok(from)
}

/// Checks the state after a fault: either the old index or the new one is there, and another build leaves the
/// new one and nothing else. Returns the progress that this build continued from.
fn examine(bench: &Bench, old: Option<&str>, what: &str) -> &'static str {
    let (old, new) = (old.map(str::to_string), Some("new".to_string()));
    let found = bench.content();
    assert!(found == old || found == new, "{what}: {found:?}");
    let from = match build(&bench.store, "new", Replace::Never) {
        Ok(from) => from,
        // The new index is already published.
        Err(StoreError::Exists { .. }) if found == new => "published",
        Err(StoreError::Exists { .. }) => build(&bench.store, "new", Replace::Generation).unwrap(),
        Err(other) => panic!("{what}: {other}"),
    };
    assert_eq!(bench.content(), new, "{what}");
    assert_eq!(bench.paths(), bench.expected, "{what}: something is left over");
    from
}

/// Runs a build once for each of its operations, with `fault` injected there, until a build ends without
/// reaching the fault. Returns the progress that each rerun continued from.
fn sweep(
    exchange: bool,
    striped: Striped,
    old: Option<&str>,
    resumed: bool,
    fault: DiskFault,
    powerless: Option<u64>,
) -> Vec<&'static str> {
    let mut froms = Vec::new();
    for number in 0.. {
        let bench = Bench::new(exchange, striped);
        if let Some(old) = old {
            build(&bench.old_store, old, Replace::Never).unwrap();
        }
        if resumed {
            // The first build is killed after its journal records the first half. A striped draft writes a
            // table and parts before that.
            let begun = if striped[1] > 0 { 44 } else { 24 };
            bench.faults.inject(begun, DiskFault::Kill);
            build(&bench.store, "new", Replace::Generation).unwrap_err();
            bench.faults.clear();
        }
        bench.faults.inject(number, fault);
        let built = build(&bench.store, "new", Replace::Generation);
        let failed = bench.faults.injected();
        bench.faults.clear();
        let Some(failed) = failed else {
            built.unwrap();
            assert!(number > 20, "the sweep found {number} operations");
            return froms;
        };
        let what = format!("{exchange} {striped:?} {old:?} {resumed} {powerless:?}: {failed}");
        // Only operations after the publication may fail without an error; the next build removes what they
        // leave.
        assert!(built.is_err() || bench.content().as_deref() == Some("new"), "{what}");
        if let Some(seed) = powerless {
            bench.simulated.lose_power(seed ^ number as u64);
        }
        froms.push(examine(&bench, old, &what));
    }
    froms
}

#[test]
fn after_any_fault_the_old_or_the_new_index_is_there() {
    let faults = [
        DiskFault::Kill,
        DiskFault::Full,
        DiskFault::Twice(libc::EACCES),
        DiskFault::Once(libc::EIO),
        DiskFault::Once(libc::ENOSPC),
    ];
    for fault in faults {
        for exchange in [true, false] {
            for old in [None, Some("old")] {
                for resumed in [false, true] {
                    let froms = sweep(exchange, PLAIN, old, resumed, fault, None);
                    if fault == DiskFault::Kill {
                        let steps = |from| PROGRESS.iter().position(|step| *step == from).unwrap();
                        // The later the kill, the more progress the rerun continues from.
                        assert!(froms.is_sorted_by_key(|from| steps(*from)), "{froms:?}");
                        let expected = if resumed { &PROGRESS[1..] } else { &PROGRESS[..] };
                        assert!(expected.iter().all(|from| froms.contains(from)), "{froms:?}");
                        assert!(!resumed || froms[0] == "half", "{froms:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn after_a_power_failure_the_old_or_the_new_index_is_there() {
    for seed in 0..40 {
        for exchange in [true, false] {
            for old in [None, Some("old")] {
                sweep(exchange, PLAIN, old, seed % 2 == 1, DiskFault::Kill, Some(seed << 16));
            }
        }
    }
}

#[test]
fn parts_are_created_and_removed_with_their_index() {
    let faults =
        [DiskFault::Kill, DiskFault::Full, DiskFault::Twice(libc::EACCES), DiskFault::Once(libc::ENOSPC)];
    for striped in STRIPED {
        for fault in faults {
            for exchange in [true, false] {
                sweep(exchange, striped, Some("old"), false, fault, None);
            }
            sweep(true, striped, None, false, fault, None);
        }
        for exchange in [true, false] {
            let froms = sweep(exchange, striped, Some("old"), true, DiskFault::Kill, None);
            assert_eq!(froms[0], "half", "{striped:?}: {froms:?}");
            assert!(PROGRESS[1..].iter().all(|from| froms.contains(from)), "{striped:?}: {froms:?}");
            for seed in 0..8 {
                sweep(exchange, striped, Some("old"), seed % 2 == 1, DiskFault::Kill, Some(seed << 16));
            }
        }
        sweep(true, striped, None, false, DiskFault::Kill, Some(5 << 16));
    }
}

#[test]
fn the_error_names_the_part_on_the_full_disk() {
    let bench = Bench::new(true, [0, 2]);
    let draft = bench.store.begin("index", Replace::Never).unwrap();
    let mut data = draft.append("data", 0).unwrap();
    // The first unit is written; the second write fails.
    bench.faults.inject(1, DiskFault::Full);
    let error = data.append(&half()).unwrap_err().to_string();
    assert!(error.contains("cannot write /b/index-") && error.contains("No space left"), "{error}");
    bench.faults.clear();
    drop((data, draft));
    assert_eq!(bench.paths(), ["/a", "/b", "/c", "/folder"], "nothing is left over");
}

#[test]
fn parts_on_a_missing_disk_are_removed_by_a_later_build() {
    let bench = Bench::new(true, [2, 0]);
    build(&bench.old_store, "old", Replace::Never).unwrap();
    bench.simulated.rename(Path::new("/b"), Path::new("/away")).unwrap();
    build(&bench.store, "new", Replace::Generation).unwrap();
    assert_eq!(bench.content().as_deref(), Some("new"));
    assert!(
        bench.paths().iter().any(|path| path.starts_with("/away/index-")),
        "the old part on the missing disk remains"
    );
    bench.simulated.rename(Path::new("/away"), Path::new("/b")).unwrap();
    build(&bench.store, "new", Replace::Generation).unwrap();
    assert_eq!(bench.paths(), bench.expected, "the next build removes the old part");
}

#[test]
fn a_published_index_survives_a_power_failure() {
    for seed in 0..200 {
        let striped = [PLAIN, STRIPED[0], STRIPED[1], STRIPED[2], STRIPED[3]][seed as usize % 5];
        let bench = Bench::new(seed % 2 == 0, striped);
        build(&bench.old_store, "old", Replace::Never).unwrap();
        bench.simulated.lose_power(seed);
        assert_eq!(bench.content().as_deref(), Some("old"));
        build(&bench.store, "new", Replace::Generation).unwrap();
        bench.simulated.lose_power(seed);
        assert_eq!(bench.content().as_deref(), Some("new"), "seed {seed}");
    }
}

#[test]
fn an_index_is_not_replaced_without_permission_after_a_kill() {
    for number in 0.. {
        let bench = Bench::new(false, PLAIN);
        build(&bench.store, "old", Replace::Never).unwrap();
        bench.faults.inject(number, DiskFault::Kill);
        let built = build(&bench.store, "new", Replace::Generation);
        let failed = bench.faults.injected();
        bench.faults.clear();
        let Some(failed) = failed else { return built.map(|_| ()).unwrap() };
        let found = bench.content();
        // While the old index is in the workspace of the killed build, its name is still taken.
        let refused = build(&bench.store, "other", Replace::Never).unwrap_err();
        assert!(matches!(refused, StoreError::Exists { .. }), "{failed}: {refused}");
        assert_eq!(bench.content(), found, "{failed}");
    }
}
