use super::shared::SharedStore;
use super::turns::Turns;
use super::*;
use bathyal_object::StoreOptions;
use bathyal_store::memory::MemoryStore;
use bathyal_store::{Durability, StoreError};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Schedules that are tried: without the check in `take_begun` one of these fails.
const SCHEDULES: u64 = 60;

/// What all writers together know.
#[derive(Debug, Default)]
struct Known {
    /// Labels that were acknowledged, by their numbers.
    acknowledged: BTreeMap<u64, u64>,
    /// Labels that may be there or not.
    doubtful: BTreeSet<u64>,
    labels: u64,
    /// By the last record in them: the labels in segments, by their numbers.
    segments: BTreeMap<u64, BTreeMap<u64, u64>>,
}

/// A writer, and all that it has.
struct Actor {
    writer: LogWriter,
    version: Version,
    rows: BTreeMap<u64, u64>,
}

fn known(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Actor {
    /// Takes over, and looks whether all is there that has to be.
    fn acquire(place: &Place, all: &Mutex<Known>) -> Result<Actor, CollectionError> {
        let before = known(all).acknowledged.clone();
        let Acquired { writer, version, changes, .. } = LogWriter::acquire(place, 2, &BTreeSet::new)?;
        let all = known(all);
        let mut rows = all.segments.get(&version.through).cloned().unwrap_or_default();
        for (sequence, label) in labelled(&changes) {
            assert!(sequence > version.through);
            assert_eq!(rows.insert(sequence, label), None, "never two records of the same number");
            let meant = all.acknowledged.get(&sequence);
            assert!(
                meant == Some(&label) || all.doubtful.contains(&label),
                "{sequence} is {label}, not {meant:?}"
            );
        }
        for (sequence, label) in before {
            assert_eq!(rows.get(&sequence), Some(&label), "record {sequence} was acknowledged");
        }
        Ok(Actor { writer, version, rows })
    }

    fn append(
        &mut self,
        count: u64,
        durability: Durability,
        all: &Mutex<Known>,
    ) -> Result<(), CollectionError> {
        let labels: Vec<u64> = {
            let mut all = known(all);
            let first = all.labels + 1;
            all.labels += count;
            // Until the answer is here.
            all.doubtful.extend(first..first + count);
            (first..first + count).collect()
        };
        let last = self.writer.append(batch(labels.iter().copied()), durability)?;
        let mut all = known(all);
        for (label, sequence) in labels.into_iter().rev().zip((0..=last).rev()) {
            assert_eq!(
                all.acknowledged.insert(sequence, label),
                None,
                "never two records of the same number"
            );
            self.rows.insert(sequence, label);
        }
        Ok(())
    }

    fn publish(&mut self, all: &Mutex<Known>) -> Result<(), CollectionError> {
        let last = self.writer.last();
        {
            let mut all = known(all);
            let segments = all.segments.entry(last).or_insert_with(|| self.rows.clone());
            assert_eq!(segments, &self.rows, "up to a record there is one history");
        }
        let mut version = Version { through: last, ..self.version.clone() };
        self.writer.publish(&mut version, &[])?;
        self.version = version;
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Acquire,
    Append(u64),
    Rotate,
    Publish,
    Sweep,
    LoseAnswer,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Acquire),
        6 => (1_u64..4).prop_map(Step::Append),
        2 => Just(Step::Rotate),
        2 => Just(Step::Publish),
        2 => Just(Step::Sweep),
        1 => Just(Step::LoseAnswer),
    ]
}

fn act(actor: &mut Actor, step: Step, all: &Mutex<Known>) -> Result<(), CollectionError> {
    match step {
        Step::Append(count) => actor.append(count, Durability::Disk, all),
        Step::Rotate => actor.writer.rotate(),
        Step::Publish => actor.publish(all),
        Step::Sweep => actor.writer.sweep(&actor.version.clone(), 2, &BTreeSet::new),
        Step::Acquire | Step::LoseAnswer => Ok(()),
    }
}

/// The writer was told that it is none any more, or not told anything.
fn is_excused(error: &CollectionError) -> bool {
    matches!(
        error,
        CollectionError::Fenced { .. }
            | CollectionError::Busy { .. }
            | CollectionError::Store(StoreError::Remote { .. } | StoreError::Io { .. })
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn whoever_writes_in_whatever_order_nothing_that_was_acknowledged_is_lost(
        steps in prop::collection::vec((0_usize..3, step()), 1..60),
    ) {
        let store = SharedStore::new();
        let place = Place::in_store(Arc::new(store.clone()));
        create(&place);
        let all = Mutex::default();
        let mut actors = [None, None, None];
        let mut newest = None;
        for (who, step) in steps {
            match (&mut actors[who], step) {
                (_, Step::LoseAnswer) => store.lose(true),
                (actor, Step::Acquire) => match Actor::acquire(&place, &all) {
                    Ok(new) => (*actor, newest) = (Some(new), Some(who)),
                    Err(error) => prop_assert!(is_excused(&error), "{}", error),
                },
                (None, _) => {}
                (Some(actor), step) => match act(actor, step, &all) {
                    Ok(()) => {
                        let appended = matches!(step, Step::Append(_) | Step::Rotate | Step::Publish);
                        prop_assert!(!appended || newest == Some(who), "one that was taken over from is told: {step:?}");
                    }
                    Err(error) => prop_assert!(is_excused(&error), "{:?}: {}", step, error),
                },
            }
        }
        store.lose(false);
        let mut last = Actor::acquire(&place, &all).unwrap();
        last.append(2, Durability::Disk, &all).unwrap();
        last.writer.rotate().unwrap();
        last.publish(&all).unwrap();
        last.writer.sweep(&last.version.clone(), 2, &BTreeSet::new).unwrap();
        let names = place.store().list().unwrap();
        let log = Part::Log(last.writer.last() + 1).name();
        let versions = [last.version.number - 1, last.version.number].map(|number| Part::Version(number).name());
        prop_assert_eq!(names, [&[log][..], &versions[..]].concat(), "nothing else is left");
    }
}

/// Writers that take over from each other at any moment, with a reader among them.
fn fight(place: &Place, threads: usize, rounds: usize) {
    fight_in(place, threads, rounds, None);
}

/// The same, of threads that run in turns.
fn fight_in(place: &Place, threads: usize, rounds: usize, turns: Option<&Turns>) {
    create(place);
    let all = Mutex::default();
    std::thread::scope(|scope| {
        for who in 0..threads {
            let (place, all) = (place.clone(), &all);
            scope.spawn(move || {
                let _joined = turns.map(|turns| turns.join(who));
                for round in 0..rounds {
                    let result = Actor::acquire(&place, all).and_then(|mut actor| {
                        for i in 0..(who + round) % 4 + 1 {
                            actor.append(1 + i as u64 % 2, Durability::Disk, all)?;
                            std::thread::yield_now();
                        }
                        match round % 3 {
                            0 => actor.writer.rotate(),
                            1 => actor.publish(all),
                            _ => Ok(()),
                        }
                    });
                    if let Err(error) = result {
                        assert!(is_excused(&error), "{error:?}");
                    }
                }
            });
        }
        let _joined = turns.map(|turns| turns.join(threads));
        for _ in 0..rounds {
            follow(place, &all);
        }
    });
    Actor::acquire(place, &all).unwrap();
}

/// Reads what a reader of another process would, and goes on a few times.
fn follow(place: &Place, all: &Mutex<Known>) {
    let before = known(all).acknowledged.clone();
    let Some(number) = crate::version::numbers(place).unwrap().pop() else { panic!("there is a version") };
    let Ok((version, _)) = Version::read(place, number) else { return };
    let mut reader = LogReader::new(place, &version);
    let mut found = BTreeMap::new();
    for _ in 0..3 {
        let read = reader.read(&mut |sequence, change| {
            assert_eq!(found.insert(sequence, label_of(&change)), None);
            Ok(())
        });
        match read.unwrap() {
            Progress::Now => {}
            Progress::MovedOn(_) => return,
        }
    }
    let all = known(all);
    for (sequence, label) in before.range(version.through + 1..) {
        assert_eq!(
            found.get(sequence),
            Some(label),
            "record {sequence} was acknowledged before it was looked for"
        );
    }
    for (sequence, label) in found {
        assert!(all.acknowledged.get(&sequence) == Some(&label) || all.doubtful.contains(&label));
    }
}

/// Its first append would have taken the place of the other one's seal, and the log would have ended without one.
#[test]
fn who_begins_a_log_that_another_one_seals_at_once_is_not_its_writer() {
    let place = Place::in_store(Arc::new(SharedStore::new()));
    create(&place);
    let first = LogWriter::acquire(&place, 2, &BTreeSet::new).unwrap().writer.last() + 1;
    assert!(writer::take_begun(&place, first).is_ok(), "nobody has written to it");
    let all = Mutex::default();
    let mut other = Actor::acquire(&place, &all).unwrap();
    let refused = writer::take_begun(&place, first).unwrap_err();
    assert!(matches!(refused, StoreError::Busy { .. }), "{refused}");
    other.append(1, Durability::Disk, &all).unwrap();
}

/// See [`Turns`]. A schedule that fails is told with its number and what was done last.
#[test]
fn writers_that_are_held_up_at_any_moment_lose_nothing() {
    let schedules = std::env::var("BATHYAL_SCHEDULES").map_or(SCHEDULES, |text| text.parse().unwrap());
    for schedule in 0..schedules {
        let threads = 2 + schedule as usize % 4;
        let turns = Arc::new(Turns::new(schedule, threads + 1));
        let place = Place::in_store(Arc::new(SharedStore::in_turns(turns.clone())));
        let fought = catch_unwind(AssertUnwindSafe(|| fight_in(&place, threads, 20, Some(&turns))));
        if let Err(panic) = fought {
            eprintln!("schedule {schedule}, thread, what, of which, at:\n{}", turns.told());
            resume_unwind(panic);
        }
    }
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    for _ in 0..10 {
        fight(&Place::in_store(Arc::new(SharedStore::new())), 3, 20);
    }
}

#[test]
fn writers_that_locks_keep_apart_lose_nothing() {
    fight(&Place::in_store(Arc::new(MemoryStore::new("memory"))), 3, 20);
    let folder = tempfile::tempdir().unwrap();
    fight(&Place::at(folder.path().join("collection"), &StoreOptions::default()).unwrap(), 2, 6);
}

#[test]
fn writers_in_a_bucket_lose_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let options = StoreOptions::new([("scratch", scratch.path().to_str().unwrap())]).unwrap();
    fight(&Place::at("memory://log-races/collection", &options).unwrap(), 2, 6);
}

#[test]
fn one_that_is_at_work_is_not_disturbed_where_there_are_locks() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::at(folder.path().join("collection"), &StoreOptions::default()).unwrap();
    create(&place);
    let mut first = LogWriter::acquire(&place, 2, &BTreeSet::new).unwrap().writer;
    for _ in 0..2 {
        let busy = LogWriter::acquire(&place, 2, &BTreeSet::new).unwrap_err();
        assert!(matches!(busy, CollectionError::Busy { .. }), "{busy}");
        first.append(batch([1, 2]), Durability::System).unwrap();
        first.rotate().unwrap();
    }
    drop(first);
    let Acquired { changes, mut writer, version, .. } =
        LogWriter::acquire(&place, 2, &BTreeSet::new).unwrap();
    assert_eq!(labelled(&changes), [(1, 1), (2, 2), (4, 1), (5, 2)], "3 and 6 are seals");
    assert_eq!((version.number, writer.last()), (3, 7));

    // What others have put there stays.
    let root = folder.path().join("collection");
    std::fs::write(root.join("l-00000000000000000001.tmp"), b"stray").unwrap();
    std::fs::write(root.join("v-00000000000000000009"), b"stray").unwrap();
    std::fs::create_dir(root.join("l-00000000000000000099")).unwrap();
    std::fs::create_dir(root.join("photos")).unwrap();
    let mut through = Version { through: writer.last(), ..version };
    writer.append(batch([4]), Durability::Disk).unwrap();
    writer.rotate().unwrap();
    through.through = writer.last();
    writer.publish(&mut through, &[]).unwrap();
    writer.sweep(&through, 2, &BTreeSet::new).unwrap();
    drop(writer);
    assert!(LogWriter::acquire(&place, 2, &BTreeSet::new).unwrap().changes.is_empty());
    let mut names: Vec<String> =
        root.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let ours = [Part::Log(10).name(), Part::Log(11).name(), Part::Version(4).name(), Part::Version(5).name()];
    let strays = ["l-00000000000000000001.tmp", "l-00000000000000000099", "photos", "v-00000000000000000009"];
    let mut expected: Vec<String> = ours.into_iter().chain(strays.map(String::from)).collect();
    expected.sort();
    assert_eq!(names, expected);
}
