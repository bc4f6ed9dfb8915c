//! A writer that is killed, refused or out of space at every single operation, and a machine that loses power there.

use bathyal_store::disk::Disk;
use bathyal_store::faulty::{Fault, Faults, Platter};
use bathyal_store::local::LocalStore;
use bathyal_store::stripe::Striping;
use bathyal_store::{Draft, DraftExt, GenerationExt, Replace, Store, StoreError, StoreExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MARK: &str = "manifest";
const JOURNAL: &str = "journal";
/// Bytes of the first half: more than a unit of a stripe, so that the second is in another part.
const HALF_BYTES: usize = 5000;

fn half() -> Vec<u8> {
    b"first half,".iter().copied().cycle().take(HALF_BYTES).collect()
}

/// Of the old index and the new one: over how many folders they are striped, 0 for not at all.
type Striped = [usize; 2];

const PLAIN: Striped = [0, 0];

/// From and to several disks, over other ones, and over the same.
const STRIPED: [Striped; 4] = [[0, 2], [2, 0], [2, 3], [2, 2]];

/// A disk that holds what it held, under faults, and the stores on it.
struct Bench {
    platter: Platter,
    faults: Faults,
    /// Of the old index.
    before: LocalStore,
    store: LocalStore,
    /// What the folders of a finished index hold.
    expected: Vec<String>,
}

impl Bench {
    fn new(exchange: bool, striped: Striped) -> Bench {
        let platter = Platter::default();
        let disks: Vec<PathBuf> = ["/a", "/b", "/c"].iter().map(PathBuf::from).collect();
        let faults = Faults::new(Arc::new(platter.clone()));
        let faults = if exchange { faults } else { faults.without_exchange() };
        let [before, store] = striped.map(|parts| {
            let store = LocalStore::on(Arc::new(faults.clone()), "/folder", MARK);
            match parts {
                0 => store,
                n => store.striped(Striping::new(&disks[..n], 4096, &["data", "stray"]).unwrap()),
            }
        });
        platter.create_folder(Path::new("/folder")).unwrap();
        disks.iter().for_each(|disk| platter.create_folder(disk).unwrap());
        platter.sync_folder(Path::new("/")).unwrap();
        let mut expected = vec!["/folder", "/folder/index", "/folder/index/manifest", "/a", "/b", "/c"];
        let parts = ["/a/index-KEY-data.part1", "/b/index-KEY-data.part2", "/c/index-KEY-data.part3"];
        expected.push(if striped[1] > 0 { "/folder/index/stripe.json" } else { "/folder/index/data" });
        expected.extend(&parts[..striped[1]]);
        expected.sort_unstable();
        let expected = expected.into_iter().map(str::to_string).collect();
        Bench { platter, faults, before, store, expected }
    }

    /// All paths on the disk, without the numbers in the names of parts.
    fn paths(&self) -> Vec<String> {
        let keyless = |path: String| match path.split_once("-").zip(path.rsplit_once("-")) {
            Some(((index, _), (_, part))) if part.contains(".part") => format!("{index}-KEY-{part}"),
            _ => path,
        };
        self.platter.paths().into_iter().map(keyless).collect()
    }

    /// What the index holds; `None` if there is none.
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

/// How far a build had come that another one went on from.
const PROGRESS: [&str; 5] = ["nothing", "half", "all", "sealed", "published"];

/// Writes `kind` as a build does: in two steps, with a journal after each. Returns what it went on from.
fn build(store: &LocalStore, kind: &str, replace: Replace) -> Result<&'static str, StoreError> {
    let (half, whole) = (half(), [&half()[..], kind.as_bytes()].concat());
    let (draft, found) = store.resume("index", replace, |draft: &dyn Draft| match draft.sealed() {
        Some(note) => (note == kind).then_some("sealed"),
        None => {
            let journal = draft.read(JOURNAL).ok()?;
            let (steps, of) = [("half", half.len()), ("all", whole.len())]
                .into_iter()
                .find(|(steps, _)| journal == format!("{kind}: {steps}").as_bytes())?;
            // The name of the journal may outlive the machine sooner than the names of what it speaks of.
            (draft.len_of("data") >= Some(of as u64)).then_some(steps)
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

/// What has to hold after a fault: the old index or the new one is there, and a rerun leaves the new one and nothing else.
fn examine(bench: &Bench, old: Option<&str>, what: &str) -> &'static str {
    let (old, new) = (old.map(str::to_string), Some("new".to_string()));
    let found = bench.content();
    assert!(found == old || found == new, "{what}: {found:?}");
    let from = match build(&bench.store, "new", Replace::Never) {
        Ok(from) => from,
        // It is there already.
        Err(StoreError::Exists { .. }) if found == new => "published",
        Err(StoreError::Exists { .. }) => build(&bench.store, "new", Replace::Generation).unwrap(),
        Err(other) => panic!("{what}: {other}"),
    };
    assert_eq!(bench.content(), new, "{what}");
    assert_eq!(bench.paths(), bench.expected, "{what}: something is left over");
    from
}

/// Lets `fault` strike at one operation after the other of a build, until one build gets through.
fn sweep(
    exchange: bool,
    striped: Striped,
    old: Option<&str>,
    resumed: bool,
    fault: Fault,
    powerless: Option<u64>,
) -> Vec<&'static str> {
    let mut froms = Vec::new();
    for number in 0.. {
        let bench = Bench::new(exchange, striped);
        if let Some(old) = old {
            build(&bench.before, old, Replace::Never).unwrap();
        }
        if resumed {
            // After the journal has said that the first half is there: a striped draft has a table and parts to begin first.
            let begun = if striped[1] > 0 { 44 } else { 24 };
            bench.faults.strike(begun, Fault::Kill);
            build(&bench.store, "new", Replace::Generation).unwrap_err();
            bench.faults.heal();
        }
        bench.faults.strike(number, fault);
        let built = build(&bench.store, "new", Replace::Generation);
        let struck = bench.faults.struck();
        bench.faults.heal();
        let Some(struck) = struck else {
            built.unwrap();
            assert!(number > 20, "the sweep found {number} operations");
            return froms;
        };
        let what = format!("{exchange} {striped:?} {old:?} {resumed} {powerless:?}: {struck}");
        // Only what comes after the name is given may fail unnoticed: the next build removes what is left.
        assert!(built.is_err() || bench.content().as_deref() == Some("new"), "{what}");
        if let Some(seed) = powerless {
            bench.platter.lose_power(seed ^ number as u64);
        }
        froms.push(examine(&bench, old, &what));
    }
    froms
}

#[test]
fn whatever_fails_the_old_index_or_the_new_one_is_there() {
    let faults = [
        Fault::Kill,
        Fault::Full,
        Fault::Twice(libc::EACCES),
        Fault::Once(libc::EIO),
        Fault::Once(libc::ENOSPC),
    ];
    for fault in faults {
        for exchange in [true, false] {
            for old in [None, Some("old")] {
                for resumed in [false, true] {
                    let froms = sweep(exchange, PLAIN, old, resumed, fault, None);
                    if fault == Fault::Kill {
                        let steps = |from| PROGRESS.iter().position(|step| *step == from).unwrap();
                        // The later it was killed, the less is done again.
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
fn nothing_is_lost_with_the_power() {
    for seed in 0..40 {
        for exchange in [true, false] {
            for old in [None, Some("old")] {
                sweep(exchange, PLAIN, old, seed % 2 == 1, Fault::Kill, Some(seed << 16));
            }
        }
    }
}

#[test]
fn parts_come_and_go_with_their_index() {
    let faults = [Fault::Kill, Fault::Full, Fault::Twice(libc::EACCES), Fault::Once(libc::ENOSPC)];
    for striped in STRIPED {
        for fault in faults {
            for exchange in [true, false] {
                sweep(exchange, striped, Some("old"), false, fault, None);
            }
            sweep(true, striped, None, false, fault, None);
        }
        for exchange in [true, false] {
            let froms = sweep(exchange, striped, Some("old"), true, Fault::Kill, None);
            assert_eq!(froms[0], "half", "{striped:?}: {froms:?}");
            assert!(PROGRESS[1..].iter().all(|from| froms.contains(from)), "{striped:?}: {froms:?}");
            for seed in 0..8 {
                sweep(exchange, striped, Some("old"), seed % 2 == 1, Fault::Kill, Some(seed << 16));
            }
        }
        sweep(true, striped, None, false, Fault::Kill, Some(5 << 16));
    }
}

#[test]
fn a_disk_that_is_full_is_named() {
    let bench = Bench::new(true, [0, 2]);
    let draft = bench.store.begin("index", Replace::Never).unwrap();
    let mut data = draft.append("data", 0).unwrap();
    // The first unit is written, and nothing more.
    bench.faults.strike(1, Fault::Full);
    let error = data.append(&half()).unwrap_err().to_string();
    assert!(error.contains("cannot write /b/index-") && error.contains("No space left"), "{error}");
    bench.faults.heal();
    drop((data, draft));
    assert_eq!(bench.paths(), ["/a", "/b", "/c", "/folder"], "nothing is left over");
}

#[test]
fn parts_wait_for_a_disk_that_is_away() {
    let bench = Bench::new(true, [2, 0]);
    build(&bench.before, "old", Replace::Never).unwrap();
    bench.platter.rename(Path::new("/b"), Path::new("/away")).unwrap();
    build(&bench.store, "new", Replace::Generation).unwrap();
    assert_eq!(bench.content().as_deref(), Some("new"));
    assert!(bench.paths().iter().any(|path| path.starts_with("/away/index-")), "it cannot be reached");
    bench.platter.rename(Path::new("/away"), Path::new("/b")).unwrap();
    build(&bench.store, "new", Replace::Generation).unwrap();
    assert_eq!(bench.paths(), bench.expected, "the next build removes what waited");
}

#[test]
fn what_was_published_outlives_the_power() {
    for seed in 0..200 {
        let striped = [PLAIN, STRIPED[0], STRIPED[1], STRIPED[2], STRIPED[3]][seed as usize % 5];
        let bench = Bench::new(seed % 2 == 0, striped);
        build(&bench.before, "old", Replace::Never).unwrap();
        bench.platter.lose_power(seed);
        assert_eq!(bench.content().as_deref(), Some("old"));
        build(&bench.store, "new", Replace::Generation).unwrap();
        bench.platter.lose_power(seed);
        assert_eq!(bench.content().as_deref(), Some("new"), "seed {seed}");
    }
}

#[test]
fn what_was_not_to_be_replaced_is_not_after_a_kill_either() {
    for number in 0.. {
        let bench = Bench::new(false, PLAIN);
        build(&bench.store, "old", Replace::Never).unwrap();
        bench.faults.strike(number, Fault::Kill);
        let built = build(&bench.store, "new", Replace::Generation);
        let struck = bench.faults.struck();
        bench.faults.heal();
        let Some(struck) = struck else { return built.map(|_| ()).unwrap() };
        let found = bench.content();
        // In the moment in which nothing has the name, the name is not free.
        let refused = build(&bench.store, "other", Replace::Never).unwrap_err();
        assert!(matches!(refused, StoreError::Exists { .. }), "{struck}: {refused}");
        assert_eq!(bench.content(), found, "{struck}");
    }
}
