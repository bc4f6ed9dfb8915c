//! A build that was killed continues where it was, and comes out as if nobody had killed it.

use crate::cases::{all_cases_run, full_or_quick};
use crate::files::contents;
use crate::progress::StageLog;
use bathyal_index::build::planned_memory;
use bathyal_index::{BuildOptions, ClusterOptions, FamilyOptions, SpannOptions, StoreAs, build, verify};
use bathyal_kernels::Metric;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Says to a child process where to die: folder, kind of index, metric, whether in parts, stage, number of steps.
const CHILD: &str = "BATHYAL_RESUME_CHILD";
/// Rows and dimensions of sets that are built in one piece: any numbers do.
const IN_ONE_PIECE: (u32, u32) = (20_000, 32);
const QUERIES: u32 = 40;

/// Kills its own process after some steps of a stage, as a power cut would: nothing is cleaned up.
struct Dying {
    stage: String,
    steps: u32,
    present: Mutex<String>,
    done: AtomicU32,
}

impl Progress for Dying {
    fn stage(&self, name: &str, _total: u64) {
        name.clone_into(&mut self.present.lock().unwrap());
    }

    fn advance(&self, _done: u64) {
        let here = *self.present.lock().unwrap() == self.stage;
        if here && self.done.fetch_add(1, Ordering::Relaxed) + 1 == self.steps {
            // SAFETY: ends this process and nothing else.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }

    fn cancelled(&self) -> bool {
        false
    }
}

/// Rows and dimensions of a set that the least memory divides: its vectors take more than other stages. The
/// largest of these is a sample of 65,536 vectors for groups, and the calibration or the codes for lists.
fn shape_of(kind: &str) -> (u32, u32) {
    match form_of(kind) {
        (CLUSTER, None) => (full_or_quick(160_000, 90_000), 8),
        // Of smaller vectors there have to be more.
        (CLUSTER, Some(_)) => (160_000, 8),
        (coded, _) if coded.ends_with(" codes") => full_or_quick((160_000, 32), (58_000, 128)),
        _ => full_or_quick((160_000, 32), (28_000, 128)),
    }
}

fn write_data(folder: &Path, kind: &str, parts: bool) {
    let (rows, dim) = if parts { shape_of(kind) } else { IN_ONE_PIECE };
    let mut random = StdRng::seed_from_u64(11);
    for (name, rows) in [("base.fbin", rows), ("queries.fbin", QUERIES)] {
        let mut bytes: Vec<u8> = [rows, dim].into_iter().flat_map(u32::to_le_bytes).collect();
        (0..rows * dim).for_each(|_| bytes.extend(random.random_range(-1.0_f32..1.0).to_le_bytes()));
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// What is built: a cluster index, or posting lists of a layout, some of codes.
const CLUSTER: &str = "cluster";

/// What is built, and as what its vectors are stored.
fn form_of(kind: &str) -> (&str, Option<StoreAs>) {
    match kind.split_once(" as ") {
        Some((kind, form)) => (kind, Some(form.parse().unwrap())),
        None => (kind, None),
    }
}

/// The least memory that will do, so that the set is built in parts; all of it if `parts` is off.
fn options(data: &VectorFile, kind: &str, metric: &str, parts: bool) -> BuildOptions {
    let (kind, store_as) = form_of(kind);
    let (layout, coded) = kind.strip_suffix(" codes").map_or((kind, false), |layout| (layout, true));
    let family: FamilyOptions = match kind {
        CLUSTER => ClusterOptions::default().into(),
        _ => SpannOptions {
            layout: layout.parse().unwrap(),
            replicas: Some(2),
            code_kind: coded.then(|| "rabitq4".parse().unwrap()),
            ..SpannOptions::default()
        }
        .into(),
    };
    let least = BuildOptions {
        metric: metric.parse().unwrap(),
        threads: 2,
        memory_bytes: Some(1),
        store_as,
        calibration: Some(VectorFile::open(data.path().with_file_name("queries.fbin")).unwrap()),
        ..BuildOptions::of(family)
    };
    let memory_bytes = parts.then(|| planned_memory(data, &least));
    let enough = planned_memory(data, &BuildOptions { memory_bytes: None, ..least.clone() });
    assert!(memory_bytes.is_none_or(|bytes| bytes < enough), "{kind}: the least memory holds all");
    BuildOptions { memory_bytes, ..least }
}

/// Runs in a child process only: begins the build that dies.
#[test]
fn child() {
    let Ok(said) = std::env::var(CHILD) else { return };
    let said: Vec<&str> = said.split('|').collect();
    let folder = PathBuf::from(said[0]);
    let data = VectorFile::open(folder.join("base.fbin")).unwrap();
    let dying = Dying {
        stage: said[4].into(),
        steps: said[5].parse().unwrap(),
        present: Mutex::default(),
        done: AtomicU32::new(0),
    };
    let options = options(&data, said[1], said[2], said[3] == "true");
    let built = build(&data, &folder.join("killed"), &options, &dying);
    panic!("the build went past {said:?}: {built:?}");
}

fn die(folder: &Path, kind: &str, metric: &str, parts: bool, stage: &str, steps: u32) {
    let said = format!("{}|{kind}|{metric}|{parts}|{stage}|{steps}", folder.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    let ended = command.args(["--exact", "resume::child"]).env(CHILD, &said).output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{said}: {ended:?}");
    assert_eq!(building(folder).len(), 1, "{said}: one directory, taken over each time");
}

fn building(folder: &Path) -> Vec<String> {
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".building-")).collect()
}

/// Kills a build at each of `deaths` in turn; the last one is not to do the stages `done` again.
fn check(kind: &str, metric: &str, parts: bool, deaths: &[(&str, u32)], done: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path(), kind, parts);
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let options = options(&data, kind, metric, parts);
    let whole = folder.path().join("whole");
    build(&data, &whole, &options, &Silent).unwrap();

    for (stage, steps) in deaths {
        die(folder.path(), kind, metric, parts, stage, *steps);
    }
    let killed = folder.path().join("killed");
    let stages = StageLog::default();
    build(&data, &killed, &options, &stages).unwrap();
    let stages = stages.names();
    assert!(done.iter().all(|stage| !stages.contains(&(*stage).to_owned())), "done again: {stages:?}");
    assert_eq!(building(folder.path()), [""; 0]);
    let (expected, found) = (contents(&whole), contents(&killed));
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{name} differs");
    }
    assert_eq!(verify(&killed, &Silent).unwrap().faults, [""; 0], "{kind} {metric}");
}

#[test]
fn a_build_in_parts_continues_after_every_kind_of_step() {
    let deaths = [("spreading", 1), ("grouping", 1), ("grouping", 60), ("encoding", 1), ("calibrating", 2)];
    check(CLUSTER, "l2", true, &deaths, &["spreading", "grouping", "training codes"]);
}

#[test]
fn the_extra_coordinate_of_the_inner_product_survives() {
    let done = ["spreading", "grouping", "training codes"];
    check(CLUSTER, "ip", true, &[("grouping", 45), ("exact neighbours", 1)], &done);
    if all_cases_run() {
        check("grouped", "ip", true, &[("grouping", 45), ("assigning", 1)], &["spreading", "grouping"]);
    }
}

#[test]
fn a_build_in_one_piece_continues_too() {
    let done = ["loading vectors", "grouping", "training codes"];
    if all_cases_run() {
        check(CLUSTER, "cosine", false, &[("grouping", 1), ("encoding", 1)], &done);
    }
    check("coupled", "ip", false, &[("grouping", 1), ("admitting", 1)], &done[..2]);
}

#[test]
fn posting_lists_continue_after_every_kind_of_step() {
    let deaths = [
        ("spreading", 1),
        ("grouping", 1),
        ("grouping", 60),
        ("assigning", 2),
        ("admitting", 1),
        ("exact neighbours", 1),
        ("calibrating", 2),
    ];
    let done = ["spreading", "grouping", "first pass", "assigning", "training codes", "admitting"];
    if all_cases_run() {
        check("grouped", "l2", true, &deaths, &done);
    }
    check("decoupled", "l2", true, &[("first pass", 1), ("calibrating", 1)], &done);
    check("coupled codes", "l2", true, &[("assigning", 1), ("calibrating", 2)], &done[1..4]);
}

#[test]
fn vectors_that_are_stored_smaller_continue_too() {
    let deaths = [("spreading", 1), ("grouping", 1), ("grouping", 60), ("calibrating", 2)];
    check("cluster as i8", "ip", true, &deaths, &["spreading", "grouping", "training codes"]);
    if all_cases_run() {
        check("grouped as f16", "cosine", true, &deaths[1..], &["spreading", "grouping"]);
    }
}

#[test]
fn another_form_is_another_build() {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path(), "cluster as f16", true);
    die(folder.path(), "cluster as f16", "l2", true, "encoding", 1);
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let stages = StageLog::default();
    build(&data, &folder.path().join("killed"), &options(&data, "cluster as i8", "l2", true), &stages)
        .unwrap();
    assert!(stages.names().contains(&"spreading".to_owned()));
    assert_eq!(building(folder.path()), [""; 0]);
    assert!(verify(folder.path().join("killed"), &Silent).unwrap().faults.is_empty());
}

#[test]
fn what_another_build_left_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path(), CLUSTER, true);
    die(folder.path(), CLUSTER, "l2", true, "encoding", 1);
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let options = BuildOptions { seed: 5, ..options(&data, CLUSTER, "l2", true) };
    let stages = StageLog::default();
    build(&data, &folder.path().join("killed"), &options, &stages).unwrap();
    assert_eq!(stages.names().iter().filter(|stage| *stage == "spreading").count(), 1);
    assert_eq!(building(folder.path()), [""; 0]);

    // The same file name with other vectors in it.
    std::fs::remove_dir_all(folder.path().join("killed")).unwrap();
    die(folder.path(), CLUSTER, "l2", true, "encoding", 1);
    let mut bytes = std::fs::read(folder.path().join("base.fbin")).unwrap();
    bytes[8..].rotate_left(4);
    std::fs::write(folder.path().join("fresh"), bytes).unwrap();
    std::fs::rename(folder.path().join("fresh"), folder.path().join("base.fbin")).unwrap();
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let options = BuildOptions { metric: Metric::L2, ..self::options(&data, CLUSTER, "l2", true) };
    let stages = StageLog::default();
    build(&data, &folder.path().join("killed"), &options, &stages).unwrap();
    assert!(stages.names().contains(&"spreading".to_owned()));
    assert!(verify(folder.path().join("killed"), &Silent).unwrap().faults.is_empty());
}
