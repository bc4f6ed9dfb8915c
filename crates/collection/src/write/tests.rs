//! Collections that let go of their log: until it is taken up again, the process may be killed at any step, and another one may write.

use super::rank::Rank;
use super::{CompactOptions, Operation, Shared};
use crate::collection::Collection;
use crate::error::CollectionError;
use crate::filter::Filter;
use crate::ids::{IdKind, Ids};
use crate::options::CollectionOptions;
use crate::place::Place;
use crate::rows::Rows;
use crate::schema::{Column, Schema, VectorField};
use crate::segment::WriteOptions;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bathyal_index::StoreOptions;
use bathyal_kernels::{Element, Metric};
use bathyal_store::disk::{Disk, DiskFile, Locked, Stat};
use bathyal_store::faulty::{Fault, Faults, SimulatedDisk};
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

/// Four batches of 100 rows fill the memory for writes.
const DIM: usize = 256;

/// What is done at a step.
type Act = Box<dyn FnOnce() + Send>;

/// A disk on which something else is done at a chosen step: an operation on names.
#[derive(Clone)]
struct Stepping {
    disk: SimulatedDisk,
    /// How many steps come before, and what is done then.
    act: Arc<Mutex<Option<(usize, Act)>>>,
}

impl Stepping {
    fn at(&self, step: usize, act: impl FnOnce() + Send + 'static) {
        *self.act.lock().unwrap() = Some((step, Box::new(act)));
    }

    /// Whether it was done; it is not done any more.
    fn is_done(&self) -> bool {
        self.act.lock().unwrap().take().is_none()
    }

    fn step(&self) -> &SimulatedDisk {
        let due = {
            let mut act = self.act.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((before, _)) = act.as_mut().filter(|(before, _)| *before > 0) {
                *before -= 1;
                None
            } else {
                act.take()
            }
        };
        due.into_iter().for_each(|(_, act)| act());
        &self.disk
    }
}

impl std::fmt::Debug for Stepping {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(to)
    }
}

impl Disk for Stepping {
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
    open_as(disk, options())
}

fn open_as(disk: Arc<dyn Disk>, options: CollectionOptions) -> Arc<Shared> {
    let place = Place::in_store(Arc::new(LocalStore::on_disk(disk, "/folder", Place::MARK)));
    Arc::new(Shared::open(place, options, None).unwrap())
}

/// A disk with a collection: rows 0..20 in a segment, rows 20..30 in the log.
fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    disk.create_folder(Path::new("/folder")).unwrap();
    let place =
        Place::in_store(Arc::new(LocalStore::on_disk(Arc::new(disk.clone()), "/folder", Place::MARK)));
    drop(Collection::create_in(place, schema(), &options()).unwrap());
    let writer = open(Arc::new(disk.clone()));
    writer.write(add(0..20)).unwrap();
    writer.flush_all(None).unwrap();
    writer.write(add(20..30)).unwrap();
    disk
}

/// Whether all rows of `ids` are there, each once, and no others.
fn holds(shared: &Shared, ids: impl IntoIterator<Item = u64>) -> bool {
    let all: Vec<u64> = ids.into_iter().collect();
    let (state, count) = (shared.state(), all.len() as u64);
    let found = state.find(&Ids::Numbers(all.into())).unwrap();
    state.live() == count && found.iter().all(Option::is_some)
}

fn is_second(error: &CollectionError) -> bool {
    matches!(error, CollectionError::Fenced { .. } | CollectionError::Busy { .. })
}

#[test]
fn who_is_killed_while_it_takes_the_writing_up_again_loses_nothing() {
    for step in 0.. {
        let platter = disk();
        let faults = Faults::new(Arc::new(platter.clone()));
        let own = open(Arc::new(faults.clone()));
        own.write(add(30..40)).unwrap();
        assert!(own.rest());
        faults.inject(step, Fault::Kill);
        let written = own.write(add(40..50)).is_ok();
        let what = format!("{:?}", faults.injected());
        assert!(written || faults.injected().is_some(), "{what}");
        // Whatever it held is free, as that of a process that has ended.
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
fn whoever_writes_meanwhile_may_be_killed_at_any_step() {
    for step in 0.. {
        let platter = disk();
        let own = open(Arc::new(platter.clone()));
        own.write(add(30..40)).unwrap();
        assert!(own.rest());
        let faults = Faults::new(Arc::new(platter.clone()));
        let other = open(Arc::new(faults.clone()));
        faults.inject(step, Fault::Kill);
        let written = other.write(add(100..110)).and_then(|_| other.flush_all(None)).is_ok();
        let what = format!("{:?}", faults.injected());
        if written {
            let busy = own.write(add(40..41)).unwrap_err();
            assert!(matches!(busy, CollectionError::Busy { .. }), "{busy}");
        }
        drop(other);
        own.write(add(40..50)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let with = holds(&own, (0..50).chain(100..110));
        assert!(with || !written && holds(&own, 0..50), "{what}");
        assert!(own.rest());
        let again = open(Arc::new(platter));
        assert_eq!(holds(&again, (0..50).chain(100..110)), with, "{what}");
        if faults.injected().is_none() {
            assert!(written && step > 20, "{step} steps");
            return;
        }
    }
}

#[test]
fn another_one_may_write_at_every_step_of_taking_the_writing_up_again() {
    let mut outcomes = [0; 2];
    for step in 0.. {
        let platter = disk();
        let stepping = Stepping { disk: platter.clone(), act: Arc::default() };
        let own = open(Arc::new(stepping.clone()));
        own.write(add(30..40)).unwrap();
        assert!(own.rest());
        let theirs = Arc::new(Mutex::new(false));
        let (at, told) = (platter.clone(), theirs.clone());
        stepping.at(step, move || {
            let other = open(Arc::new(at));
            let written = other.write(add(100..110)).and_then(|_| other.flush_all(None));
            assert!(written.as_ref().err().is_none_or(is_second), "{written:?}");
            *told.lock().unwrap() = written.is_ok();
        });
        let written = own.write(add(40..50));
        let done = stepping.is_done();
        let theirs = *theirs.lock().unwrap();
        outcomes[usize::from(theirs)] += usize::from(done);
        let what = format!("step {step}: {written:?}, and the other one's: {theirs}");
        match &written {
            Ok(_) => {}
            Err(error) => {
                assert!(theirs && is_second(error), "{what}");
                own.write(add(40..50)).unwrap_or_else(|error| panic!("{what}: then {error}"));
            }
        }
        let meanwhile = if theirs { 100..110 } else { 0..0 };
        assert!(holds(&own, (0..50).chain(meanwhile.clone())), "{what}");
        own.write(add(50..51)).unwrap();
        assert!(own.rest());
        let other = open(Arc::new(platter));
        assert!(holds(&other, (0..51).chain(meanwhile)), "{what}");
        if !done {
            break;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

/// All kinds of writes, until memory has become a segment.
fn write_all_kinds(own: &Arc<Shared>) -> Result<(), CollectionError> {
    for first in (30..530).step_by(100) {
        own.write(add(first..first + 100))?;
    }
    // Larger than what goes through the log.
    own.write(add(2000..2200))?;
    let late = Filter::parse("n >= 2100")?.bind(&schema())?;
    own.delete_matching(late, &Control::default())?;
    own.compact(&CompactOptions { full: true }, &Silent)?;
    own.write(add(2100..2101))?;
    Ok(())
}

#[test]
fn the_log_may_be_let_go_of_at_every_step_of_a_write() {
    let mut rested = 0;
    for step in (0..).step_by(7) {
        let platter = disk();
        let stepping = Stepping { disk: platter.clone(), act: Arc::default() };
        let own = open(Arc::new(stepping.clone()));
        let (resting, let_go) = (own.clone(), Arc::new(Mutex::new(false)));
        let told = let_go.clone();
        stepping.at(step, move || *told.lock().unwrap() = resting.rest());
        let written = write_all_kinds(&own);
        let done = stepping.is_done();
        assert!(written.is_ok(), "step {step}: {written:?}");
        assert!(holds(&own, (0..530).chain(2000..2101)), "step {step}");
        rested += usize::from(*let_go.lock().unwrap());
        if !done {
            break;
        }
    }
    assert!(rested > 0, "there were steps at which it was let go of");
}

/// What work was begun, and the stage at which it is ended.
#[derive(Debug, Default)]
struct Stages {
    begun: Mutex<Vec<String>>,
    last: Option<String>,
}

impl Stages {
    fn has(&self, name: &str) -> bool {
        self.begun.lock().unwrap().iter().any(|begun| begun == name)
    }
}

impl Progress for Stages {
    fn stage(&self, name: &str, _total: u64) {
        self.begun.lock().unwrap().push(name.into());
    }

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.last.as_ref().is_some_and(|last| self.has(last))
    }
}

/// What reads rows, and what looks whether they are what was read before.
const READS: &str = "reading rows";
const CHECKS: &str = "checking what was merged";

/// A disk with a collection of three segments with the rows 0..60, of which 0..5 and 25 are deleted.
fn segments() -> SimulatedDisk {
    let disk = disk();
    disk.sync_folder(Path::new("/")).unwrap();
    let writer = open_as(Arc::new(disk.clone()), alone());
    writer.flush_all(None).unwrap();
    writer.write(add(30..60)).unwrap();
    writer.write(Operation::Delete(Ids::Numbers((0..5).chain([25]).collect::<Vec<u64>>().into()))).unwrap();
    writer.flush_all(None).unwrap();
    disk
}

/// Merges are begun by the tests alone.
fn alone() -> CollectionOptions {
    CollectionOptions { compact: false, ..options() }
}

/// Merges all segments by way of the disk, as many rows are.
fn merge(shared: &Shared, progress: &dyn Progress) -> Result<(), CollectionError> {
    let state = shared.state();
    let names: Vec<String> =
        state.segments.iter().map(|segment| segment.segment.entry().name.clone()).collect();
    let options = WriteOptions { held_bytes: 64, ..shared.options.of_writing() };
    let rank = Rank { share: Share::Tenth, starved: &AtomicBool::new(false) };
    shared.acquire(&mut shared.writing())?;
    shared.merge(&names, (&options, rank), progress).map(drop)
}

/// Whether nothing is there but what the latest version needs.
fn is_tidy(disk: &SimulatedDisk) -> bool {
    let (paths, place) = (
        disk.paths(),
        Place::in_store(Arc::new(LocalStore::on_disk(Arc::new(disk.clone()), "/folder", Place::MARK))),
    );
    let segments = place.store().list().unwrap().iter().filter(|name| name.ends_with("-rows")).count();
    segments == 1 && !paths.iter().any(|path| path.contains(".building"))
}

/// The rows that are there in the end: of those of [`segments`] more are deleted.
fn rest() -> impl Iterator<Item = u64> {
    (5..24).chain(26..40).chain(41..70)
}

/// Merges what is there as another process does that has written a little more first.
fn go_on(disk: &SimulatedDisk, full: bool, what: &str) -> Stages {
    let (other, stages) = (open_as(Arc::new(disk.clone()), alone()), Stages::default());
    other.write(Operation::Delete(Ids::Numbers(vec![24, 40].into()))).unwrap();
    other.compact(&CompactOptions { full }, &stages).unwrap();
    other.write(add(60..70)).unwrap();
    assert!(holds(&other, rest()), "{what}");
    other.compact(&CompactOptions { full: true }, &Silent).unwrap();
    assert!(holds(&other, rest()), "{what}");
    let faults = other.state().segments.iter().flat_map(|one| one.segment.verify(&Silent).unwrap()).count();
    assert_eq!(faults, 0, "{what}");
    drop(other);
    assert!(is_tidy(disk), "{what}: {:?}", disk.paths());
    stages
}

#[test]
fn a_merge_that_is_killed_anywhere_is_gone_on_with() {
    for power in [None, Some(7)] {
        let (mut resumed, mut anew) = (0, 0);
        for step in 0.. {
            let platter = segments();
            let faults = Faults::new(Arc::new(platter.clone()));
            let own = open_as(Arc::new(faults.clone()), alone());
            own.acquire(&mut own.writing()).unwrap();
            faults.inject(step, Fault::Kill);
            let merged = merge(&own, &Silent);
            let Some(what) = faults.injected() else {
                merged.unwrap();
                break;
            };
            let disk = platter.copy();
            if let Some(seed) = power {
                disk.lose_power(seed + step as u64);
            }
            let stages = go_on(&disk, step % 2 == 0, &what);
            match (stages.has(CHECKS), stages.has(READS)) {
                (true, false) => resumed += 1,
                (false, _) => anew += 1,
                (true, true) => panic!("{what}: what was written is not as it was"),
            }
        }
        assert!(resumed > 20 && anew > 20, "power {power:?}: {resumed} went on, {anew} began anew");
    }
}

#[test]
fn a_merge_that_is_ended_is_gone_on_with_unless_what_it_has_left_is_damaged() {
    for (last, resumes) in [(READS, false), ("checking vectors", true)] {
        let platter = segments();
        let own = open_as(Arc::new(platter.clone()), alone());
        let ended = merge(&own, &Stages { last: Some(last.into()), ..Stages::default() });
        assert!(matches!(ended, Err(CollectionError::Cancelled)), "{ended:?}");
        let left: Vec<String> =
            platter.paths().into_iter().filter(|path| path.contains("objects/")).collect();
        assert_eq!(!left.is_empty(), resumes, "{left:?}");
        // The same handle knows of it, too, and does not remove it.
        own.write(add(100..101)).unwrap();
        own.write(Operation::Delete(Ids::Numbers(vec![100].into()))).unwrap();
        own.clean();
        for path in &left {
            let damaged = platter.copy();
            let file = damaged.open(Path::new(path)).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, 3).unwrap();
            file.write_at(&[byte[0] ^ 1], 3).unwrap();
            let stages = go_on(&damaged, true, path);
            assert!(stages.has(READS), "{path}");
        }
        let copy = platter.copy();
        drop(own);
        if resumes {
            let again = open_as(Arc::new(copy.clone()), alone());
            let ended = again.compact(
                &CompactOptions { full: true },
                &Stages { last: Some(CHECKS.into()), ..Stages::default() },
            );
            assert!(matches!(ended, Err(CollectionError::Cancelled)), "{ended:?}");
        }
        let stages = go_on(&copy, true, last);
        assert_eq!((stages.has(CHECKS), stages.has(READS)), (resumes, !resumes), "{last}");
    }
}

#[test]
fn a_merge_that_is_ended_at_any_stage_in_a_folder_goes_on_with_the_index_that_it_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let options = || CollectionOptions { flat_below_rows: 100, write_memory_bytes: 4 << 20, ..alone() };
    let open = |name: &str| {
        let place = Place::at(folder.path().join(name), &StoreOptions::default()).unwrap();
        Arc::new(Shared::open(place, options(), None).unwrap())
    };
    let begin = |name: &str| {
        drop(Collection::create(folder.path().join(name), schema(), &options()).unwrap());
        let own = open(name);
        for first in [0, 700, 1400] {
            own.write(add(first..first + 700)).unwrap();
            own.flush_all(None).unwrap();
        }
        own
    };
    let names = |name: &str| -> Vec<String> {
        let names = folder.path().join(name).read_dir().unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let all = Stages::default();
    merge(&begin("usual"), &all).unwrap();
    let stages: BTreeSet<String> = all.begun.into_inner().unwrap().into_iter().collect();
    let (mut begun, mut rows) = (0, 0);
    for (number, last) in stages.iter().enumerate() {
        let name = format!("c{number}");
        let own = begin(&name);
        let ended = merge(&own, &Stages { last: Some(last.clone()), ..Stages::default() });
        drop(own);
        let left = names(&name);
        let is_left = |part: &str| left.iter().any(|name| name.contains(part));
        begun += usize::from(is_left("-v0.building"));
        rows += usize::from(is_left("-rows.building"));
        let (other, seen) = (open(&name), Stages::default());
        other.write(Operation::Delete(Ids::Numbers(vec![3, 2099].into()))).unwrap();
        let compacted = other.compact(&CompactOptions { full: true }, &seen).unwrap();
        assert!(holds(&other, (0..3).chain(4..2099)), "{last}");
        let resumed = if seen.has(CHECKS) { 2100 } else { 0 };
        assert_eq!(compacted.rows_resumed, resumed, "{last}");
        let went_on = ended.is_ok() || seen.has(CHECKS);
        assert_eq!(went_on, ended.is_ok() || is_left("-rows.building"), "{last}: {left:?}");
        let faults =
            other.state().segments.iter().flat_map(|one| one.segment.verify(&Silent).unwrap()).count();
        assert_eq!(faults, 0, "{last}");
        let left = names(&name);
        assert!(left.iter().all(|name| !name.contains(".building")), "{last}: {left:?}");
    }
    assert!(
        begun > 3 && rows > begun,
        "{rows} of {} stages left rows, {begun} an index: {stages:?}",
        stages.len()
    );
}
