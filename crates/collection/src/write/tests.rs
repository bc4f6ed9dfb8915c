//! Tests of released logs and stopped merges: at any step of acquiring the log again, the process may be
//! killed or another one may write.

use super::compact::MergingGuard;
use super::rank::Priority;
use super::{CompactOptions, Operation, Shared};
use crate::collection::Collection;
use crate::error::CollectionError;
use crate::filter::Filter;
use crate::ids::{IdKind, Ids};
use crate::location::CollectionLocation;
use crate::options::CollectionOptions;
use crate::rows::Rows;
use crate::schema::{Column, Schema, VectorField};
use crate::segment::WriteOptions;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bathyal_index::StoreOptions;
use bathyal_kernels::{Element, Metric};
use bathyal_store::disk::{Disk, DiskFile, Locked, Stat};
use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_tier::Control;
use bathyal_tier::process::Share;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// With this dimension, four batches of 100 rows fill the memory for writes.
const DIM: usize = 256;

/// A hook that runs at a step.
type Hook = Box<dyn FnOnce() + Send>;

/// A disk that runs a hook at a chosen step. A step is an operation on names of files.
#[derive(Clone)]
struct HookedDisk {
    disk: SimulatedDisk,
    /// The hook, and the number of steps before it.
    hook: Arc<Mutex<Option<(usize, Hook)>>>,
}

impl HookedDisk {
    fn at(&self, step: usize, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((step, Box::new(hook)));
    }

    /// Returns true if the hook has run, and removes it otherwise.
    fn is_done(&self) -> bool {
        self.hook.lock().unwrap().take().is_none()
    }

    fn step(&self) -> &SimulatedDisk {
        let due = {
            let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((before, _)) = hook.as_mut().filter(|(before, _)| *before > 0) {
                *before -= 1;
                None
            } else {
                hook.take()
            }
        };
        due.into_iter().for_each(|(_, hook)| hook());
        &self.disk
    }
}

impl std::fmt::Debug for HookedDisk {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(to)
    }
}

impl Disk for HookedDisk {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.disk.stat(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.step().list(folder)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.step().open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.step().create(path)
    }

    fn lock(&self, path: &Path, create: bool) -> io::Result<Locked> {
        self.step().lock(path, create)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.step().create_folder(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step().rename(from, to)
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step().rename_no_replace(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.step().exchange(one, other)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step().remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.step().remove_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step().sync_folder(path)
    }

    fn may_change(&self, folder: &Path) -> bool {
        self.disk.may_change(folder)
    }
}

fn options() -> CollectionOptions {
    CollectionOptions {
        write_memory_bytes: 1 << 20,
        threads: 1,
        background: false,
        ..CollectionOptions::default()
    }
}

fn schema() -> Schema {
    let vectors = vec![VectorField::new("v", DIM, Element::F32, Metric::L2)];
    let columns = vec![Column { name: "n".into(), kind: "int64".parse().unwrap() }];
    Schema { id_kind: IdKind::Number, vectors, columns }
}

fn add(ids: Range<u64>) -> Operation {
    let numbers = ids.clone().flat_map(|id| (0..DIM as u64).map(move |at| (id * 7 + at) as f32));
    let bytes = numbers.flat_map(f32::to_le_bytes).collect();
    let vectors = VectorFile::from_rows(Element::F32, DIM, bytes).unwrap();
    let number: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id as i64)));
    let columns = RecordBatch::try_from_iter([("n", number)]).unwrap();
    let ids = Ids::Numbers(ids.collect::<Vec<_>>().into());
    Operation::Add(Rows::new(&schema(), ids, vec![vectors], Some(&columns)).unwrap())
}

fn open(disk: Arc<dyn Disk>) -> Arc<Shared> {
    open_like(disk, options())
}

fn open_like(disk: Arc<dyn Disk>, options: CollectionOptions) -> Arc<Shared> {
    let place = CollectionLocation::in_store(Arc::new(LocalStore::on_disk(
        disk,
        "/folder",
        CollectionLocation::MARK,
    )));
    Arc::new(Shared::open(place, options, None).unwrap())
}

/// Returns a disk with a collection: rows 0..20 in a segment, rows 20..30 in the log.
fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    disk.create_folder(Path::new("/folder")).unwrap();
    let place = CollectionLocation::in_store(Arc::new(LocalStore::on_disk(
        Arc::new(disk.clone()),
        "/folder",
        CollectionLocation::MARK,
    )));
    drop(Collection::create_in(place, schema(), &options()).unwrap());
    let writer = open(Arc::new(disk.clone()));
    writer.write(add(0..20)).unwrap();
    writer.flush_all(None).unwrap();
    writer.write(add(20..30)).unwrap();
    // Threads of other tests may hold it a little longer, in the list of writers.
    writer.close();
    disk
}

/// Returns true if exactly the rows `ids` are live, each once.
fn holds(shared: &Shared, ids: impl IntoIterator<Item = u64>) -> bool {
    let all: Vec<u64> = ids.into_iter().collect();
    let (state, count) = (shared.content.state(), all.len() as u64);
    let found = state.find(&Ids::Numbers(all.into())).unwrap();
    state.live() == count && found.iter().all(Option::is_some)
}

fn is_lost_race(error: &CollectionError) -> bool {
    matches!(error, CollectionError::Fenced { .. } | CollectionError::Busy { .. })
}

#[test]
fn a_kill_while_the_log_is_acquired_again_loses_nothing() {
    for step in 0.. {
        let platter = disk();
        let faults = Faults::new(Arc::new(platter.clone()));
        let handle = open(Arc::new(faults.clone()));
        handle.write(add(30..40)).unwrap();
        assert!(handle.release_log());
        faults.inject(step, DiskFault::Kill);
        let written = handle.write(add(40..50)).is_ok();
        let what = format!("{:?}", faults.injected());
        assert!(written || faults.injected().is_some(), "{what}");
        // Locks of a killed process are released.
        let other = open(Arc::new(platter.copy()));
        let whole = holds(&other, 0..50);
        assert!(whole || !written && holds(&other, 0..40), "{what}");
        other.write(add(50..60)).unwrap();
        let rest = if whole { 40..60 } else { 50..60 };
        assert!(holds(&other, (0..40).chain(rest)), "{what}");
        if faults.injected().is_none() {
            assert!(step > 10, "{step} steps");
            return;
        }
    }
}

#[test]
fn another_writer_may_be_killed_at_any_step_while_the_log_is_released() {
    for step in 0.. {
        let platter = disk();
        let handle = open(Arc::new(platter.clone()));
        handle.write(add(30..40)).unwrap();
        assert!(handle.release_log());
        let faults = Faults::new(Arc::new(platter.clone()));
        let other = open(Arc::new(faults.clone()));
        faults.inject(step, DiskFault::Kill);
        let written = other.write(add(100..110)).and_then(|_| other.flush_all(None)).is_ok();
        let what = format!("{:?}", faults.injected());
        if written {
            let busy = handle.write(add(40..41)).unwrap_err();
            assert!(matches!(busy, CollectionError::Busy { .. }), "{busy}");
        }
        // A background merge would keep the lock of the log.
        other.close();
        drop(other);
        handle.write(add(40..50)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let includes_other = holds(&handle, (0..50).chain(100..110));
        assert!(includes_other || !written && holds(&handle, 0..50), "{what}");
        assert!(handle.release_log());
        let again = open(Arc::new(platter));
        assert_eq!(holds(&again, (0..50).chain(100..110)), includes_other, "{what}");
        if faults.injected().is_none() {
            assert!(written && step > 20, "{step} steps");
            return;
        }
    }
}

#[test]
fn another_writer_may_write_at_any_step_of_acquiring_the_log_again() {
    let mut outcomes = [0; 2];
    for step in 0.. {
        let platter = disk();
        let hooked_disk = HookedDisk { disk: platter.clone(), hook: Arc::default() };
        let handle = open(Arc::new(hooked_disk.clone()));
        handle.write(add(30..40)).unwrap();
        assert!(handle.release_log());
        let other_written = Arc::new(Mutex::new(false));
        let (at, result) = (platter.clone(), other_written.clone());
        hooked_disk.at(step, move || {
            let other = open(Arc::new(at));
            let written = other.write(add(100..110)).and_then(|_| other.flush_all(None));
            assert!(written.as_ref().err().is_none_or(is_lost_race), "{written:?}");
            // A background merge would keep the lock of the log.
            other.close();
            *result.lock().unwrap() = written.is_ok();
        });
        let written = handle.write(add(40..50));
        let done = hooked_disk.is_done();
        let other_written = *other_written.lock().unwrap();
        outcomes[usize::from(other_written)] += usize::from(done);
        let what = format!("step {step}: {written:?}, and the other one's: {other_written}");
        match &written {
            Ok(_) => {}
            Err(error) => {
                assert!(other_written && is_lost_race(error), "{what}");
                handle.write(add(40..50)).unwrap_or_else(|error| panic!("{what}: then {error}"));
            }
        }
        let meanwhile = if other_written { 100..110 } else { 0..0 };
        assert!(holds(&handle, (0..50).chain(meanwhile.clone())), "{what}");
        handle.write(add(50..51)).unwrap();
        assert!(handle.release_log());
        let other = open(Arc::new(platter));
        assert!(holds(&other, (0..51).chain(meanwhile)), "{what}");
        if !done {
            break;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

/// Does all kinds of writes, until the memtable becomes a segment.
fn write_all_kinds(handle: &Arc<Shared>) -> Result<(), CollectionError> {
    for first in (30..530).step_by(100) {
        handle.write(add(first..first + 100))?;
    }
    // Too large for the log.
    handle.write(add(2000..2200))?;
    let late = Filter::parse("n >= 2100")?.bind(&schema())?;
    handle.delete_matching(late, &Control::default())?;
    handle.compact(&CompactOptions { full: true }, &Silent)?;
    handle.write(add(2100..2101))?;
    Ok(())
}

#[test]
fn the_log_may_be_released_at_any_step_of_a_write() {
    let mut released = 0;
    for step in (0..).step_by(7) {
        let platter = disk();
        let hooked_disk = HookedDisk { disk: platter.clone(), hook: Arc::default() };
        let handle = open(Arc::new(hooked_disk.clone()));
        let (releasing, was_released) = (handle.clone(), Arc::new(Mutex::new(false)));
        let result = was_released.clone();
        hooked_disk.at(step, move || *result.lock().unwrap() = releasing.release_log());
        let written = write_all_kinds(&handle);
        let done = hooked_disk.is_done();
        assert!(written.is_ok(), "step {step}: {written:?}");
        assert!(holds(&handle, (0..530).chain(2000..2101)), "step {step}");
        released += usize::from(*was_released.lock().unwrap());
        if !done {
            break;
        }
    }
    assert!(released > 0, "the log was never released");
}

/// Records the stages of some work, and cancels it at the stage `last`.
#[derive(Debug, Default)]
struct RecordedStages {
    started: Mutex<Vec<String>>,
    last: Option<String>,
}

impl RecordedStages {
    fn has(&self, name: &str) -> bool {
        self.started.lock().unwrap().iter().any(|started| started == name)
    }
}

impl Progress for RecordedStages {
    fn stage(&self, name: &str, _total: u64) {
        self.started.lock().unwrap().push(name.into());
    }

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.last.as_ref().is_some_and(|last| self.has(last))
    }
}

/// Stages of a merge: reading rows, and checking the rows of a stopped merge.
const READING: &str = "reading rows";
const CHECKING: &str = "checking merged rows";

/// Returns a disk with a collection of three segments with the rows 0..60, of which 0..5 and 25 are deleted.
fn segments() -> SimulatedDisk {
    let disk = disk();
    disk.sync_folder(Path::new("/")).unwrap();
    let writer = open_like(Arc::new(disk.clone()), without_merges());
    writer.flush_all(None).unwrap();
    writer.write(add(30..60)).unwrap();
    writer.write(Operation::Delete(Ids::Numbers((0..5).chain([25]).collect::<Vec<u64>>().into()))).unwrap();
    writer.flush_all(None).unwrap();
    writer.close();
    disk
}

/// Options without automatic merges.
fn without_merges() -> CollectionOptions {
    CollectionOptions { compact: false, ..options() }
}

/// Merges all segments, spooling to the disk as for many rows.
fn merge(shared: &Shared, progress: &dyn Progress) -> Result<(), CollectionError> {
    let state = shared.content.state();
    let names: Vec<String> =
        state.segments.iter().map(|segment| segment.segment.entry().name.clone()).collect();
    let options = WriteOptions { held_bytes: 64, ..shared.content.options.for_writing() };
    let priority = Priority { share: Share::Tenth, starved: &AtomicBool::new(false) };
    shared.writer().acquire()?;
    MergingGuard::wait_for(shared).merge(&names, &options, priority, progress).map(drop)
}

/// Returns true if only objects of the latest version exist.
fn is_tidy(disk: &SimulatedDisk) -> bool {
    let (paths, place) = (
        disk.paths(),
        CollectionLocation::in_store(Arc::new(LocalStore::on_disk(
            Arc::new(disk.clone()),
            "/folder",
            CollectionLocation::MARK,
        ))),
    );
    let segments = place.store().list().unwrap().iter().filter(|name| name.ends_with("-rows")).count();
    segments == 1 && !paths.iter().any(|path| path.contains(".building"))
}

/// The rows at the end: more of those of [`segments`] are deleted, and some are added.
fn remaining_rows() -> impl Iterator<Item = u64> {
    (5..24).chain(26..40).chain(41..70)
}

/// Compacts as another process does that has written a little before.
fn compact_by_another(disk: &SimulatedDisk, full: bool, what: &str) -> RecordedStages {
    let (other, stages) = (open_like(Arc::new(disk.clone()), without_merges()), RecordedStages::default());
    other.write(Operation::Delete(Ids::Numbers(vec![24, 40].into()))).unwrap();
    other.compact(&CompactOptions { full }, &stages).unwrap();
    other.write(add(60..70)).unwrap();
    assert!(holds(&other, remaining_rows()), "{what}");
    other.compact(&CompactOptions { full: true }, &Silent).unwrap();
    assert!(holds(&other, remaining_rows()), "{what}");
    let faults =
        other.content.state().segments.iter().flat_map(|one| one.segment.verify(&Silent).unwrap()).count();
    assert_eq!(faults, 0, "{what}");
    drop(other);
    assert!(is_tidy(disk), "{what}: {:?}", disk.paths());
    stages
}

#[test]
fn a_killed_merge_is_continued() {
    for power in [None, Some(7)] {
        let (mut resumed, mut restarted) = (0, 0);
        for step in 0.. {
            let platter = segments();
            let faults = Faults::new(Arc::new(platter.clone()));
            let handle = open_like(Arc::new(faults.clone()), without_merges());
            handle.writer().acquire().unwrap();
            faults.inject(step, DiskFault::Kill);
            let merged = merge(&handle, &Silent);
            let Some(what) = faults.injected() else {
                merged.unwrap();
                break;
            };
            let disk = platter.copy();
            if let Some(seed) = power {
                disk.lose_power(seed + step as u64);
            }
            let stages = compact_by_another(&disk, step % 2 == 0, &what);
            match (stages.has(CHECKING), stages.has(READING)) {
                (true, false) => resumed += 1,
                (false, _) => restarted += 1,
                (true, true) => panic!("{what}: the stopped merge is damaged"),
            }
        }
        assert!(resumed > 20 && restarted > 20, "power {power:?}: {resumed} resumed, {restarted} restarted");
    }
}

#[test]
fn a_cancelled_merge_is_continued_unless_its_files_are_damaged() {
    for (last, resumes) in [(READING, false), ("checking vectors", true)] {
        let platter = segments();
        let handle = open_like(Arc::new(platter.clone()), without_merges());
        let ended = merge(&handle, &RecordedStages { last: Some(last.into()), ..RecordedStages::default() });
        assert!(matches!(ended, Err(CollectionError::Cancelled)), "{ended:?}");
        let left: Vec<String> =
            platter.paths().into_iter().filter(|path| path.contains("objects/")).collect();
        assert_eq!(!left.is_empty(), resumes, "{left:?}");
        // The handle itself knows of the stopped merge, and does not remove it.
        handle.write(add(100..101)).unwrap();
        handle.write(Operation::Delete(Ids::Numbers(vec![100].into()))).unwrap();
        handle.clean();
        for path in &left {
            let damaged = platter.copy();
            let file = damaged.open(Path::new(path)).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, 3).unwrap();
            file.write_at(&[byte[0] ^ 1], 3).unwrap();
            let stages = compact_by_another(&damaged, true, path);
            assert!(stages.has(READING), "{path}");
        }
        let copy = platter.copy();
        drop(handle);
        if resumes {
            let again = open_like(Arc::new(copy.clone()), without_merges());
            let ended = again.compact(
                &CompactOptions { full: true },
                &RecordedStages { last: Some(CHECKING.into()), ..RecordedStages::default() },
            );
            assert!(matches!(ended, Err(CollectionError::Cancelled)), "{ended:?}");
        }
        let stages = compact_by_another(&copy, true, last);
        assert_eq!((stages.has(CHECKING), stages.has(READING)), (resumes, !resumes), "{last}");
    }
}

#[test]
fn a_merge_that_is_cancelled_at_any_stage_is_continued_with_the_index_that_it_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        || CollectionOptions { flat_below_rows: 100, write_memory_bytes: 4 << 20, ..without_merges() };
    let open = |name: &str| {
        let place = CollectionLocation::at(folder.path().join(name), &StoreOptions::default()).unwrap();
        Arc::new(Shared::open(place, options(), None).unwrap())
    };
    let begin = |name: &str| {
        drop(Collection::create(folder.path().join(name), schema(), &options()).unwrap());
        let handle = open(name);
        for first in [0, 700, 1400] {
            handle.write(add(first..first + 700)).unwrap();
            handle.flush_all(None).unwrap();
        }
        handle
    };
    let names = |name: &str| -> Vec<String> {
        let names = folder.path().join(name).read_dir().unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let all = RecordedStages::default();
    merge(&begin("usual"), &all).unwrap();
    let stages: BTreeSet<String> = all.started.into_inner().unwrap().into_iter().collect();
    let (mut started, mut rows) = (0, 0);
    for (number, last) in stages.iter().enumerate() {
        let name = format!("c{number}");
        let handle = begin(&name);
        let ended = merge(&handle, &RecordedStages { last: Some(last.clone()), ..RecordedStages::default() });
        drop(handle);
        let left = names(&name);
        let is_left = |part: &str| left.iter().any(|name| name.contains(part));
        started += usize::from(is_left("-v0.building"));
        rows += usize::from(is_left("-rows.building"));
        let (other, seen) = (open(&name), RecordedStages::default());
        other.write(Operation::Delete(Ids::Numbers(vec![3, 2099].into()))).unwrap();
        let compacted = other.compact(&CompactOptions { full: true }, &seen).unwrap();
        assert!(holds(&other, (0..3).chain(4..2099)), "{last}");
        let resumed = if seen.has(CHECKING) { 2100 } else { 0 };
        assert_eq!(compacted.rows_resumed, resumed, "{last}");
        let went_on = ended.is_ok() || seen.has(CHECKING);
        assert_eq!(went_on, ended.is_ok() || is_left("-rows.building"), "{last}: {left:?}");
        let faults = other
            .content
            .state()
            .segments
            .iter()
            .flat_map(|one| one.segment.verify(&Silent).unwrap())
            .count();
        assert_eq!(faults, 0, "{last}");
        let left = names(&name);
        assert!(left.iter().all(|name| !name.contains(".building")), "{last}: {left:?}");
    }
    assert!(
        started > 3 && rows > started,
        "{rows} of {} stages left rows, {started} an index: {stages:?}",
        stages.len()
    );
}
