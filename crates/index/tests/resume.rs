//! A build that was killed continues where it was, and comes out as if nobody had killed it.

use bathyal_index::build::planned_memory;
use bathyal_index::progress::{Progress, Silent};
use bathyal_index::vectors::VectorFile;
use bathyal_index::{BuildOptions, build, verify};
use bathyal_kernels::Metric;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Says to a child process where to die: folder, metric, stage, number of steps.
const CHILD: &str = "BATHYAL_RESUME_CHILD";
/// More than twice a sample, so that the least memory is less than all vectors take, and short, so that it is quick.
const ROWS: u32 = 160_000;
const DIM: u32 = 8;
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

/// Notes the stages that a build goes through.
#[derive(Default)]
struct Noted(Mutex<Vec<String>>);

impl Progress for Noted {
    fn stage(&self, name: &str, _total: u64) {
        self.0.lock().unwrap().push(name.into());
    }

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

fn write_data(folder: &Path) {
    let mut random = StdRng::seed_from_u64(11);
    for (name, rows) in [("base.fbin", ROWS), ("queries.fbin", QUERIES)] {
        let mut bytes: Vec<u8> = [rows, DIM].into_iter().flat_map(u32::to_le_bytes).collect();
        (0..rows * DIM).for_each(|_| bytes.extend(random.random_range(-1.0_f32..1.0).to_le_bytes()));
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// The least memory that will do, so that the set is built in parts; all of it if `parts` is off.
fn options(data: &VectorFile, metric: &str, parts: bool) -> BuildOptions {
    let least = BuildOptions {
        metric: metric.parse().unwrap(),
        threads: 2,
        memory_bytes: Some(1),
        calibration: Some(VectorFile::open(data.path().with_file_name("queries.fbin")).unwrap()),
        ..BuildOptions::default()
    };
    let memory_bytes = parts.then(|| planned_memory(data, &least));
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
        stage: said[3].into(),
        steps: said[4].parse().unwrap(),
        present: Mutex::default(),
        done: AtomicU32::new(0),
    };
    let options = options(&data, said[1], said[2] == "true");
    let built = build(&data, &folder.join("killed"), &options, &dying);
    panic!("the build went past {said:?}: {built:?}");
}

fn die(folder: &Path, metric: &str, parts: bool, stage: &str, steps: u32) {
    let said = format!("{}|{metric}|{parts}|{stage}|{steps}", folder.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    let ended = command.args(["--exact", "child"]).env(CHILD, &said).output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{said}: {ended:?}");
    assert_eq!(building(folder).len(), 1, "{said}: one directory, taken over each time");
}

fn building(folder: &Path) -> Vec<String> {
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".building-")).collect()
}

/// All files of an index; of the manifest, all but the time that the build took.
fn contents(index: &Path) -> BTreeMap<String, Vec<u8>> {
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let mut bytes = std::fs::read(entry.path()).unwrap();
        if name == "manifest.json" {
            let text = String::from_utf8(bytes).unwrap();
            let lines =
                text.lines().filter(|line| !line.contains("build_seconds") && !line.starts_with("crc32c"));
            bytes = lines.collect::<Vec<_>>().join("\n").into_bytes();
        }
        (name, bytes)
    };
    index.read_dir().unwrap().map(of).collect()
}

fn check(metric: &str, parts: bool, deaths: &[(&str, u32)]) {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let options = options(&data, metric, parts);
    let whole = folder.path().join("whole");
    build(&data, &whole, &options, &Silent).unwrap();

    for (stage, steps) in deaths {
        die(folder.path(), metric, parts, stage, *steps);
    }
    let killed = folder.path().join("killed");
    let noted = Noted::default();
    build(&data, &killed, &options, &noted).unwrap();
    let stages = noted.0.into_inner().unwrap();
    let (last, _) = deaths.last().unwrap();
    let done = ["spreading", "loading vectors", "grouping", "training codes"];
    let done = &done[..done.iter().position(|stage| stage == last).unwrap_or(done.len())];
    assert!(done.iter().all(|stage| !stages.contains(&(*stage).to_owned())), "done again: {stages:?}");
    assert_eq!(building(folder.path()), [""; 0]);
    let (expected, found) = (contents(&whole), contents(&killed));
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{name} differs");
    }
    assert!(verify(&killed, &Silent).unwrap().faults.is_empty());
}

#[test]
fn a_build_in_parts_continues_after_every_kind_of_step() {
    let deaths = [("spreading", 1), ("grouping", 1), ("grouping", 60), ("encoding", 1), ("calibrating", 2)];
    check("l2", true, &deaths);
}

#[test]
fn the_extra_coordinate_of_the_inner_product_survives() {
    check("ip", true, &[("grouping", 45), ("exact neighbours", 1)]);
}

#[test]
fn a_build_in_one_piece_continues_too() {
    check("cosine", false, &[("grouping", 1), ("encoding", 1)]);
}

#[test]
fn what_another_build_left_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    die(folder.path(), "l2", true, "encoding", 1);
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let options = BuildOptions { seed: 5, ..options(&data, "l2", true) };
    let noted = Noted::default();
    build(&data, &folder.path().join("killed"), &options, &noted).unwrap();
    assert_eq!(noted.0.into_inner().unwrap().iter().filter(|stage| *stage == "spreading").count(), 1);
    assert_eq!(building(folder.path()), [""; 0]);

    // The same file name with other vectors in it.
    std::fs::remove_dir_all(folder.path().join("killed")).unwrap();
    die(folder.path(), "l2", true, "encoding", 1);
    let mut bytes = std::fs::read(folder.path().join("base.fbin")).unwrap();
    bytes[8..].rotate_left(4);
    std::fs::write(folder.path().join("fresh"), bytes).unwrap();
    std::fs::rename(folder.path().join("fresh"), folder.path().join("base.fbin")).unwrap();
    let data = VectorFile::open(folder.path().join("base.fbin")).unwrap();
    let options = BuildOptions { metric: Metric::L2, ..self::options(&data, "l2", true) };
    let noted = Noted::default();
    build(&data, &folder.path().join("killed"), &options, &noted).unwrap();
    assert!(noted.0.into_inner().unwrap().contains(&"spreading".to_owned()));
    assert!(verify(folder.path().join("killed"), &Silent).unwrap().faults.is_empty());
}
