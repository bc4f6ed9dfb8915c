//! Builds that are killed continue after their last finished stage, and make the same index.

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

/// Variable that tells a child process when to kill itself: folder, kind of index, metric, true for a build
/// in parts, stage, number of steps.
const CHILD: &str = "BATHYAL_RESUME_CHILD";
/// Rows and dimensions of sets that are built in one piece. Any numbers would do.
const IN_ONE_PIECE: (u32, u32) = (20_000, 32);
const QUERIES: u32 = 40;

/// Kills its own process after some steps of a stage, so that nothing is cleaned up.
struct KillAt {
    stage: String,
    steps: u32,
    current: Mutex<String>,
    done: AtomicU32,
}

impl Progress for KillAt {
    fn stage(&self, name: &str, _total: u64) {
        name.clone_into(&mut self.current.lock().unwrap());
    }

    fn advance(&self, _done: u64) {
        let in_stage = *self.current.lock().unwrap() == self.stage;
        if in_stage && self.done.fetch_add(1, Ordering::Relaxed) + 1 == self.steps {
            // SAFETY: ends this process and nothing else.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }

    fn cancelled(&self) -> bool {
        false
    }
}

/// Returns rows and dimensions of a set that a build in the least memory divides into parts. Its vectors take
/// more memory than any stage: for groups, a sample of 65,536 vectors; for lists, the calibration or the
/// codes.
fn shape_of(kind: &str) -> (u32, u32) {
    match form_of(kind) {
        (CLUSTER, None) => (full_or_quick(160_000, 90_000), 8),
        // A set of smaller vectors needs more of them.
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

/// The kind of a cluster index. Other kinds are layouts of posting lists, with " codes" for lists of codes.
/// Each may have a stored form: " as i8".
const CLUSTER: &str = "cluster";

/// Splits a kind into the index and the stored form of its vectors.
fn form_of(kind: &str) -> (&str, Option<StoreAs>) {
    match kind.split_once(" as ") {
        Some((kind, form)) => (kind, Some(form.parse().unwrap())),
        None => (kind, None),
    }
}

/// Returns the options of a build. If `parts` is true it has the least memory that is enough, so that it
/// divides the set.
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

/// Begins a build that kills its process. It does nothing unless [`kill_build`] starts it.
#[test]
fn a_child_process_kills_itself_during_a_build() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let arguments: Vec<&str> = arguments.split('|').collect();
    let folder = PathBuf::from(arguments[0]);
    let data = VectorFile::open(folder.join("base.fbin")).unwrap();
    let kill = KillAt {
        stage: arguments[4].into(),
        steps: arguments[5].parse().unwrap(),
        current: Mutex::default(),
        done: AtomicU32::new(0),
    };
    let options = options(&data, arguments[1], arguments[2], arguments[3] == "true");
    let built = build(&data, &folder.join("killed"), &options, &kill);
    panic!("the build was not killed at {arguments:?}: {built:?}");
}

/// Builds in a child process that kills itself after some steps of a stage.
fn kill_build(folder: &Path, kind: &str, metric: &str, parts: bool, stage: &str, steps: u32) {
    let arguments = format!("{}|{kind}|{metric}|{parts}|{stage}|{steps}", folder.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "resume::a_child_process_kills_itself_during_a_build";
    let ended = command.args(["--exact", test]).env(CHILD, &arguments).output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{arguments}: {ended:?}");
    assert_eq!(drafts(folder).len(), 1, "{arguments}: each build continues in the same folder");
}

/// Returns the names of unfinished indexes in a folder.
fn drafts(folder: &Path) -> Vec<String> {
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".building-")).collect()
}

/// Kills a build at each of `kills` in turn. The build that is not killed must not repeat the stages `done`.
fn check(kind: &str, metric: &str, parts: bool, kills: &[(&str, u32)], done: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path(), kind, parts);
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let options = options(&data, kind, metric, parts);
    let whole = folder.path().join("whole");
    build(&data, &whole, &options, &Silent).unwrap();

    for (stage, steps) in kills {
        kill_build(folder.path(), kind, metric, parts, stage, *steps);
    }
    let killed = folder.path().join("killed");
    let stages = StageLog::default();
    build(&data, &killed, &options, &stages).unwrap();
    let stages = stages.names();
    assert!(done.iter().all(|stage| !stages.contains(&(*stage).to_owned())), "done again: {stages:?}");
    assert_eq!(drafts(folder.path()), [""; 0]);
    let (expected, found) = (contents(&whole), contents(&killed));
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{name} differs");
    }
    assert_eq!(verify(&killed, &Silent).unwrap().faults, [""; 0], "{kind} {metric}");
}

#[test]
fn a_killed_build_in_parts_continues_after_every_stage() {
    let kills = [("spreading", 1), ("grouping", 1), ("grouping", 60), ("encoding", 1), ("calibrating", 2)];
    check(CLUSTER, "l2", true, &kills, &["spreading", "grouping", "training codes"]);
}

#[test]
fn the_extra_coordinate_of_the_inner_product_survives_a_kill() {
    let done = ["spreading", "grouping", "training codes"];
    check(CLUSTER, "ip", true, &[("grouping", 45), ("exact neighbours", 1)], &done);
    if all_cases_run() {
        check("grouped", "ip", true, &[("grouping", 45), ("assigning", 1)], &["spreading", "grouping"]);
    }
}

#[test]
fn a_killed_build_in_one_piece_continues() {
    let done = ["loading vectors", "grouping", "training codes"];
    if all_cases_run() {
        check(CLUSTER, "cosine", false, &[("grouping", 1), ("encoding", 1)], &done);
    }
    check("coupled", "ip", false, &[("grouping", 1), ("admitting", 1)], &done[..2]);
}

#[test]
fn a_killed_build_of_posting_lists_continues_after_every_stage() {
    let kills = [
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
        check("grouped", "l2", true, &kills, &done);
    }
    check("decoupled", "l2", true, &[("first pass", 1), ("calibrating", 1)], &done);
    check("coupled codes", "l2", true, &[("assigning", 1), ("calibrating", 2)], &done[1..4]);
}

#[test]
fn a_killed_build_of_a_smaller_stored_form_continues() {
    let kills = [("spreading", 1), ("grouping", 1), ("grouping", 60), ("calibrating", 2)];
    check("cluster as i8", "ip", true, &kills, &["spreading", "grouping", "training codes"]);
    if all_cases_run() {
        check("grouped as f16", "cosine", true, &kills[1..], &["spreading", "grouping"]);
    }
}

#[test]
fn a_build_of_another_stored_form_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path(), "cluster as f16", true);
    kill_build(folder.path(), "cluster as f16", "l2", true, "encoding", 1);
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let stages = StageLog::default();
    build(&data, &folder.path().join("killed"), &options(&data, "cluster as i8", "l2", true), &stages)
        .unwrap();
    assert!(stages.names().contains(&"spreading".to_owned()));
    assert_eq!(drafts(folder.path()), [""; 0]);
    assert!(verify(folder.path().join("killed"), &Silent).unwrap().faults.is_empty());
}

#[test]
fn a_build_does_not_use_the_files_of_another_build() {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path(), CLUSTER, true);
    kill_build(folder.path(), CLUSTER, "l2", true, "encoding", 1);
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let options = BuildOptions { seed: 5, ..options(&data, CLUSTER, "l2", true) };
    let stages = StageLog::default();
    build(&data, &folder.path().join("killed"), &options, &stages).unwrap();
    assert_eq!(stages.names().iter().filter(|stage| *stage == "spreading").count(), 1);
    assert_eq!(drafts(folder.path()), [""; 0]);

    // A file of the same name with other vectors.
    std::fs::remove_dir_all(folder.path().join("killed")).unwrap();
    kill_build(folder.path(), CLUSTER, "l2", true, "encoding", 1);
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
