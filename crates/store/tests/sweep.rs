//! A writer that is killed, refused or out of space at every single operation, and a machine that loses power there.

use bathyal_store::disk::Disk;
use bathyal_store::faulty::{Fault, Faults, Platter};
use bathyal_store::local::LocalStore;
use bathyal_store::{Draft, DraftExt, GenerationExt, Replace, Store, StoreError, StoreExt};
use std::path::Path;
use std::sync::Arc;

const MARK: &str = "manifest";
const JOURNAL: &str = "journal";
const HALF: &[u8] = b"first half,";

/// A disk that holds what it held, under faults, and the store on it.
struct Bench {
    platter: Platter,
    faults: Faults,
    store: LocalStore,
}

impl Bench {
    fn new(exchange: bool) -> Bench {
        let platter = Platter::default();
        let faults = Faults::new(Arc::new(platter.clone()));
        let faults = if exchange { faults } else { faults.without_exchange() };
        let store = LocalStore::on(Arc::new(faults.clone()), "/folder", MARK);
        platter.create_folder(Path::new("/folder")).unwrap();
        platter.sync_folder(Path::new("/")).unwrap();
        Bench { platter, faults, store }
    }

    /// What the index holds; `None` if there is none.
    fn content(&self) -> Option<String> {
        let found = match self.store.open("index") {
            Ok(found) => found,
            Err(StoreError::Missing { .. }) => return None,
            Err(other) => panic!("{other}"),
        };
        let data = String::from_utf8(found.read("data").unwrap()).unwrap();
        assert_eq!(found.read(MARK).unwrap(), data.as_bytes(), "all of one generation");
        assert_eq!(found.list().unwrap(), ["data", MARK], "no strays");
        Some(data)
    }
}

/// How far a build had come that another one went on from.
const PROGRESS: [&str; 5] = ["nothing", "half", "all", "sealed", "published"];

/// Writes `kind` as a build does: in two steps, with a journal after each. Returns what it went on from.
fn build(store: &LocalStore, kind: &str, replace: Replace) -> Result<&'static str, StoreError> {
    let whole = [HALF, kind.as_bytes()].concat();
    let (draft, found) = store.resume("index", replace, |draft: &dyn Draft| match draft.sealed() {
        Some(note) => (note == kind).then_some("sealed"),
        None => {
            let journal = draft.read(JOURNAL).ok()?;
            let (steps, of) = [("half", HALF.len()), ("all", whole.len())]
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
        draft.put("data", HALF)?;
        draft.replace(JOURNAL, format!("{kind}: half").as_bytes())?;
    }
    if from != "all" {
        draft.put("stray", b"of this step")?;
        let mut data = draft.append("data", HALF.len() as u64)?;
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
    let (old, new) = (old.map(|kind| format!("first half,{kind}")), Some("first half,new".to_string()));
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
    let expected = ["/folder", "/folder/index", "/folder/index/data", "/folder/index/manifest"];
    assert_eq!(bench.platter.paths(), expected, "{what}: something is left over");
    from
}

/// Lets `fault` strike at one operation after the other of a build, until one build gets through.
fn sweep(
    exchange: bool,
    old: Option<&str>,
    resumed: bool,
    fault: Fault,
    powerless: Option<u64>,
) -> Vec<&'static str> {
    let mut froms = Vec::new();
    for number in 0.. {
        let bench = Bench::new(exchange);
        if let Some(old) = old {
            build(&bench.store, old, Replace::Never).unwrap();
        }
        if resumed {
            bench.faults.strike(24, Fault::Kill);
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
        let what = format!("{exchange} {old:?} {resumed} {powerless:?}: {struck}");
        // Only what comes after the name is given may fail unnoticed: the next build removes what is left.
        assert!(built.is_err() || bench.content().is_some_and(|found| found.ends_with("new")), "{what}");
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
                    let froms = sweep(exchange, old, resumed, fault, None);
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
                sweep(exchange, old, seed % 2 == 1, Fault::Kill, Some(seed << 16));
            }
        }
    }
}

#[test]
fn what_was_published_outlives_the_power() {
    for seed in 0..200 {
        let bench = Bench::new(seed % 2 == 0);
        build(&bench.store, "old", Replace::Never).unwrap();
        bench.platter.lose_power(seed);
        assert_eq!(bench.content().as_deref(), Some("first half,old"));
        build(&bench.store, "new", Replace::Generation).unwrap();
        bench.platter.lose_power(seed);
        assert_eq!(bench.content().as_deref(), Some("first half,new"), "seed {seed}");
    }
}

#[test]
fn what_was_not_to_be_replaced_is_not_after_a_kill_either() {
    for number in 0.. {
        let bench = Bench::new(false);
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
