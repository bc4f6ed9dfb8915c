use super::scheduler::Scheduler;
use super::shared::SharedStore;
use super::*;
use bathyal_object::StoreOptions;
use bathyal_store::memory::MemoryStore;
use bathyal_store::{Durability, StoreError};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of schedules. Without the check in `lock_new_log`, one of them fails.
const SCHEDULES: u64 = 60;

/// Records of all writers.
#[derive(Debug, Default)]
struct History {
    /// Labels of acknowledged records, by sequence number.
    acknowledged: BTreeMap<u64, u64>,
    /// Labels of records that may or may not be stored.
    doubtful: BTreeSet<u64>,
    labels: u64,
    /// Labels in segments by sequence number, for each `through` of a version.
    segments: BTreeMap<u64, BTreeMap<u64, u64>>,
}

/// A writer, with its view of the collection.
struct TestWriter {
    writer: LogWriter,
    version: Version,
    rows: BTreeMap<u64, u64>,
}

fn locked(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestWriter {
    /// Takes over, and checks the content of the collection.
    fn acquire(place: &CollectionLocation, history: &Mutex<History>) -> Result<TestWriter, CollectionError> {
        let before = locked(history).acknowledged.clone();
        let Acquisition { writer, version, changes, .. } = LogWriter::acquire(place, 2, &BTreeSet::new)?;
        let history = locked(history);
        let mut rows = history.segments.get(&version.through).cloned().unwrap_or_default();
        for (sequence, label) in labelled(&changes) {
            assert!(sequence > version.through);
            assert_eq!(rows.insert(sequence, label), None, "sequence numbers are unique");
            let expected = history.acknowledged.get(&sequence);
            assert!(
                expected == Some(&label) || history.doubtful.contains(&label),
                "{sequence} is {label}, not {expected:?}"
            );
        }
        for (sequence, label) in before {
            assert_eq!(rows.get(&sequence), Some(&label), "record {sequence} was acknowledged");
        }
        Ok(TestWriter { writer, version, rows })
    }

    fn append(
        &mut self,
        count: u64,
        durability: Durability,
        history: &Mutex<History>,
    ) -> Result<(), CollectionError> {
        let labels: Vec<u64> = {
            let mut history = locked(history);
            let first = history.labels + 1;
            history.labels += count;
            // Until the append returns.
            history.doubtful.extend(first..first + count);
            (first..first + count).collect()
        };
        let last = self.writer.append(batch(labels.iter().copied()), durability)?;
        let mut history = locked(history);
        for (label, sequence) in labels.into_iter().rev().zip((0..=last).rev()) {
            assert_eq!(history.acknowledged.insert(sequence, label), None, "sequence numbers are unique");
            self.rows.insert(sequence, label);
        }
        Ok(())
    }

    fn publish(&mut self, history: &Mutex<History>) -> Result<(), CollectionError> {
        let last = self.writer.last();
        {
            let mut history = locked(history);
            let segments = history.segments.entry(last).or_insert_with(|| self.rows.clone());
            assert_eq!(segments, &self.rows, "all writers agree on the records up to this one");
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
    LoseResponse,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Acquire),
        6 => (1_u64..4).prop_map(Step::Append),
        2 => Just(Step::Rotate),
        2 => Just(Step::Publish),
        2 => Just(Step::Sweep),
        1 => Just(Step::LoseResponse),
    ]
}

fn run_step(writer: &mut TestWriter, step: Step, history: &Mutex<History>) -> Result<(), CollectionError> {
    match step {
        Step::Append(count) => writer.append(count, Durability::Disk, history),
        Step::Rotate => writer.writer.rotate(),
        Step::Publish => writer.publish(history),
        Step::Sweep => writer.writer.sweep(&writer.version.clone(), 2, &BTreeSet::new),
        Step::Acquire | Step::LoseResponse => Ok(()),
    }
}

/// Returns true for errors that a writer gets because another has taken over or because a response was lost.
fn is_expected(error: &CollectionError) -> bool {
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
    fn takeovers_in_any_order_lose_no_acknowledged_record(
        steps in prop::collection::vec((0_usize..3, step()), 1..60),
    ) {
        let store = SharedStore::new();
        let place = CollectionLocation::in_store(Arc::new(store.clone()));
        create(&place);
        let history = Mutex::default();
        let mut writers = [None, None, None];
        let mut newest = None;
        for (who, step) in steps {
            match (&mut writers[who], step) {
                (_, Step::LoseResponse) => store.lose_response(true),
                (writer, Step::Acquire) => match TestWriter::acquire(&place, &history) {
                    Ok(new) => (*writer, newest) = (Some(new), Some(who)),
                    Err(error) => prop_assert!(is_expected(&error), "{}", error),
                },
                (None, _) => {}
                (Some(writer), step) => match run_step(writer, step, &history) {
                    Ok(()) => {
                        let appended = matches!(step, Step::Append(_) | Step::Rotate | Step::Publish);
                        prop_assert!(
                            !appended || newest == Some(who),
                            "a writer that was taken over from gets an error: {step:?}"
                        );
                    }
                    Err(error) => prop_assert!(is_expected(&error), "{:?}: {}", step, error),
                },
            }
        }
        store.lose_response(false);
        let mut last = TestWriter::acquire(&place, &history).unwrap();
        last.append(2, Durability::Disk, &history).unwrap();
        last.writer.rotate().unwrap();
        last.publish(&history).unwrap();
        last.writer.sweep(&last.version.clone(), 2, &BTreeSet::new).unwrap();
        let names = place.store().list().unwrap();
        let log = Part::Log(last.writer.last() + 1).name();
        let numbers = [last.version.number - 1, last.version.number];
        let versions = numbers.map(|number| Part::Version(number).name());
        prop_assert_eq!(names, [&[log][..], &versions[..]].concat(), "all other objects are removed");
    }
}

/// Runs writers that take over from each other, and a reader.
fn race(place: &CollectionLocation, threads: usize, rounds: usize) {
    race_scheduled(place, threads, rounds, None);
}

/// Runs them, optionally with a scheduler.
fn race_scheduled(place: &CollectionLocation, threads: usize, rounds: usize, scheduler: Option<&Scheduler>) {
    create(place);
    let history = Mutex::default();
    std::thread::scope(|scope| {
        for who in 0..threads {
            let (place, history) = (place.clone(), &history);
            scope.spawn(move || {
                let _joined = scheduler.map(|scheduler| scheduler.join(who));
                for round in 0..rounds {
                    let result = TestWriter::acquire(&place, history).and_then(|mut writer| {
                        for i in 0..(who + round) % 4 + 1 {
                            writer.append(1 + i as u64 % 2, Durability::Disk, history)?;
                            std::thread::yield_now();
                        }
                        match round % 3 {
                            0 => writer.writer.rotate(),
                            1 => writer.publish(history),
                            _ => Ok(()),
                        }
                    });
                    if let Err(error) = result {
                        assert!(is_expected(&error), "{error:?}");
                    }
                }
            });
        }
        let _joined = scheduler.map(|scheduler| scheduler.join(threads));
        for _ in 0..rounds {
            read_along(place, &history);
        }
    });
    TestWriter::acquire(place, &history).unwrap();
}

/// Reads as another process would, and continues a few times.
fn read_along(place: &CollectionLocation, history: &Mutex<History>) {
    let before = locked(history).acknowledged.clone();
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
            ReadOutcome::UpToDate => {}
            ReadOutcome::Superseded(_) => return,
        }
    }
    let history = locked(history);
    for (sequence, label) in before.range(version.through + 1..) {
        assert_eq!(
            found.get(sequence),
            Some(label),
            "record {sequence} was acknowledged before the reader started"
        );
    }
    for (sequence, label) in found {
        assert!(history.acknowledged.get(&sequence) == Some(&label) || history.doubtful.contains(&label));
    }
}

/// Without this refusal, its first append would overwrite the seal, and the log would end without one.
#[test]
fn a_new_log_that_another_writer_has_sealed_is_not_locked() {
    let place = CollectionLocation::in_store(Arc::new(SharedStore::new()));
    create(&place);
    let first = LogWriter::acquire(&place, 2, &BTreeSet::new).unwrap().writer.last() + 1;
    assert!(writer::lock_new_log(&place, first).is_ok(), "the log is empty");
    let history = Mutex::default();
    let mut other = TestWriter::acquire(&place, &history).unwrap();
    let refused = writer::lock_new_log(&place, first).unwrap_err();
    assert!(matches!(refused, StoreError::Busy { .. }), "{refused}");
    other.append(1, Durability::Disk, &history).unwrap();
}

/// Runs writers under many schedules of the [`Scheduler`]. A failure prints the schedule's number and its
/// last steps.
#[test]
fn writers_that_are_paused_at_any_moment_lose_no_record() {
    let schedules = std::env::var("BATHYAL_SCHEDULES").map_or(SCHEDULES, |text| text.parse().unwrap());
    for schedule in 0..schedules {
        let threads = 2 + schedule as usize % 4;
        let scheduler = Arc::new(Scheduler::new(schedule, threads + 1));
        let place = CollectionLocation::in_store(Arc::new(SharedStore::scheduled(scheduler.clone())));
        let outcome =
            catch_unwind(AssertUnwindSafe(|| race_scheduled(&place, threads, 20, Some(&scheduler))));
        if let Err(panic) = outcome {
            eprintln!("schedule {schedule}: thread, operation, name, number\n{}", scheduler.trace());
            resume_unwind(panic);
        }
    }
}

#[test]
fn concurrent_writers_lose_no_record() {
    for _ in 0..10 {
        race(&CollectionLocation::in_store(Arc::new(SharedStore::new())), 3, 20);
    }
}

#[test]
fn writers_with_locks_lose_no_record() {
    race(&CollectionLocation::in_store(Arc::new(MemoryStore::new("memory"))), 3, 20);
    let folder = tempfile::tempdir().unwrap();
    race(&CollectionLocation::at(folder.path().join("collection"), &StoreOptions::default()).unwrap(), 2, 6);
}

#[test]
fn writers_in_a_bucket_lose_no_record() {
    let scratch = tempfile::tempdir().unwrap();
    let options = StoreOptions::new([("scratch", scratch.path().to_str().unwrap())]).unwrap();
    race(&CollectionLocation::at("memory://log-races/collection", &options).unwrap(), 2, 6);
}

#[test]
fn a_lock_protects_a_working_writer() {
    let folder = tempfile::tempdir().unwrap();
    let place = CollectionLocation::at(folder.path().join("collection"), &StoreOptions::default()).unwrap();
    create(&place);
    let mut first = LogWriter::acquire(&place, 2, &BTreeSet::new).unwrap().writer;
    for _ in 0..2 {
        let busy = LogWriter::acquire(&place, 2, &BTreeSet::new).unwrap_err();
        assert!(matches!(busy, CollectionError::Busy { .. }), "{busy}");
        first.append(batch([1, 2]), Durability::System).unwrap();
        first.rotate().unwrap();
    }
    drop(first);
    let Acquisition { changes, mut writer, version, .. } =
        LogWriter::acquire(&place, 2, &BTreeSet::new).unwrap();
    assert_eq!(labelled(&changes), [(1, 1), (2, 2), (4, 1), (5, 2)], "3 and 6 are seals");
    assert_eq!((version.number, writer.last()), (3, 7));

    // Foreign files are kept.
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
