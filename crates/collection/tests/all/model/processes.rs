//! Processes that share a collection: a writer that is killed at any moment, a reader, and the memory of a
//! writer. Each process runs this program again; an environment variable selects its part.

use crate::model::cases::{Case, Value};
use crate::model::compare::{holds, read};
use crate::model::program::write;
use crate::model::truth::{Change, Truth};
use bathyal_collection::{
    Collection, CollectionError, CollectionOptions, Durability, Id, Ids, Rows, Schema, VectorField,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Environment variable of a started process: its part, and the arguments.
const PART: &str = "BATHYAL_COLLECTION_PART";
/// Number of times that the writer is killed.
const KILLS: usize = 12;
/// Id of the row that contains the number of batches written.
const COUNTER: Id = Id::Number(u64::MAX);

fn case() -> Case {
    let mut case = Case::numbers();
    // Rows of some 4 KB, so that memory is full after some hundred of them.
    case.schema.vectors[0].dim = 1024;
    case
}

fn options() -> CollectionOptions {
    CollectionOptions { background: true, ..case().options() }
}

/// Returns the batch with a number from 1 on. No other batch writes the same rows.
fn batch(number: u64) -> Change {
    let mut random = StdRng::seed_from_u64(number);
    let case = case();
    if number.is_multiple_of(5) {
        // The rows of an earlier batch.
        let mut batch_ids: Vec<Id> =
            (0..4).map(|row| Id::Number(random.random_range(0..number) * 4 + row)).collect();
        batch_ids.sort();
        batch_ids.dedup();
        let values = vec![Value::Whole(number as i64); batch_ids.len() + 1];
        batch_ids.push(COUNTER);
        return Change::Update(batch_ids, vec![(0, values)]);
    }
    let mut rows: Vec<_> =
        (0..4).map(|row| (Id::Number(number % 60 * 4 + row), case.row(&mut random))).collect();
    let mut counter = (*case.row(&mut random)).clone();
    counter.values[0] = Value::Whole(number as i64);
    rows.push((COUNTER, Arc::new(counter)));
    Change::Upsert(rows)
}

/// Returns the number of batches in a collection, from the counter row.
fn batches(truth: &Truth) -> u64 {
    match truth.rows.get(&COUNTER).map(|row| &row.values[0]) {
        Some(Value::Whole(number)) => *number as u64,
        None => 0,
        other => panic!("{other:?} batches"),
    }
}

/// Advances the expected content to `to` batches.
fn advance(truth: &mut Truth, to: u64) {
    (batches(truth) + 1..=to).for_each(|number| {
        truth.apply(&batch(number)).unwrap();
    });
}

/// Starts this program again for a part.
fn start(test: &str, part: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", test, "--nocapture"]).env(PART, part);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Returns the arguments of this process, if it was started for `part`.
fn arguments_of(part: &str) -> Option<Vec<String>> {
    let arguments = std::env::var(PART).ok()?;
    let rest = arguments.strip_prefix(part)?.strip_prefix('|')?;
    Some(rest.split('|').map(str::to_string).collect())
}

/// A part, not a test: writes batches, and prints each acknowledgement.
#[test]
fn part_writer() {
    let Some(arguments) = arguments_of("writer") else { return };
    let collection = Collection::open(&arguments[0], &options()).unwrap();
    for number in arguments[1].parse::<u64>().unwrap().. {
        write(&case(), &collection, &batch(number)).unwrap();
        println!("acknowledged {number}");
        std::io::stdout().flush().unwrap();
    }
}

/// A part, not a test: reads until its input ends, and prints the last batch that it has seen.
#[test]
fn part_reader() {
    let Some(arguments) = arguments_of("reader") else { return };
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = ended.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        seen.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let collection = Collection::open(&arguments[0], &options()).unwrap();
    let (mut truth, mut looks) = (Truth::default(), 0);
    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
        collection.refresh().unwrap();
        let content = match read(&case(), &collection.snapshot()) {
            Ok(content) => content,
            // The writer may have removed objects of the snapshot; a new snapshot has them.
            Err(error) => {
                assert!(collection.refresh().unwrap(), "{error}");
                continue;
            }
        };
        let number = batches(&content);
        assert!(number >= batches(&truth), "{number} batches after {}", batches(&truth));
        advance(&mut truth, number);
        assert!(content == truth, "of {number} batches something else is there");
        looks += 1;
    }
    println!("seen {} in {looks} looks", batches(&truth));
}

/// Returns the number at the end of the next line that begins with a word; `None` at the end of the output.
fn next_number(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> Option<u64> {
    let line = lines.map_while(Result::ok).find_map(|line| {
        // The test harness may have begun the line.
        line.find(word).map(|at| line[at + word.len()..].trim().to_string())
    })?;
    line.split(' ').next().unwrap().parse().ok()
}

#[test]
fn a_killed_writer_leaves_complete_batches_and_a_reader_sees_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared");
    Collection::create(&path, case().schema, &options()).unwrap();
    let mut reader = start("model::processes::part_reader", &format!("reader|{}", path.display()));
    let (mut truth, mut random) = (Truth::default(), StdRng::seed_from_u64(1));
    for kill in 0..KILLS {
        let next = batches(&truth) + 1;
        let mut writer = start("model::processes::part_writer", &format!("writer|{}|{next}", path.display()));
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        // Kills the writer somewhere in the work that follows a batch.
        let (last, turns) = (next + random.random_range(0..120), random.random_range(0..200_000_u64));
        let mut acknowledged = next - 1;
        while acknowledged < last {
            acknowledged = next_number(&mut lines, "acknowledged ").expect("the writer has ended by itself");
        }
        (0..turns).for_each(|_| std::hint::spin_loop());
        writer.kill().unwrap();
        assert_eq!(writer.wait().unwrap().signal(), Some(libc::SIGKILL));
        while let Some(number) = next_number(&mut lines, "acknowledged ") {
            acknowledged = number;
        }
        let collection = Collection::open(&path, &options()).unwrap();
        let content = holds(&case(), &collection.snapshot());
        let number = batches(&content);
        assert!(
            [acknowledged, acknowledged + 1].contains(&number),
            "{kill}: {number}, {acknowledged} acknowledged"
        );
        advance(&mut truth, number);
        assert!(content == truth, "{kill}: of {number} batches something else is there");
    }
    drop(reader.stdin.take());
    let mut output = BufReader::new(reader.stdout.take().unwrap()).lines();
    let seen = next_number(&mut output, "seen ");
    assert!(reader.wait().unwrap().success());
    assert!(seen.is_some_and(|seen| seen <= batches(&truth)), "{seen:?}");
}

/// A part, not a test: keeps the collection open as its writer until its input ends.
#[test]
fn part_holder() {
    let Some(arguments) = arguments_of("holder") else { return };
    let collection = Collection::open(&arguments[0], &options()).unwrap();
    write(&case(), &collection, &batch(1)).unwrap();
    println!("acknowledged 1");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_collection_that_is_opened_in_two_processes_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared");
    let collection = Collection::create(&path, case().schema, &options()).unwrap();
    let mut holder = start("model::processes::part_holder", &format!("holder|{}", path.display()));
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert_eq!(next_number(&mut lines, "acknowledged "), Some(1));
    let refused = write(&case(), &collection, &batch(2)).unwrap_err();
    assert!(matches!(refused, CollectionError::Busy { .. }), "{refused}");
    collection.refresh().unwrap();
    assert_eq!(batches(&holds(&case(), &collection.snapshot())), 1);
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    write(&case(), &collection, &batch(2)).unwrap();
    let mut truth = Truth::default();
    advance(&mut truth, 2);
    assert!(holds(&case(), &collection.snapshot()) == truth);
}

/// Memory for writes in the memory test.
const WRITE_BYTES: u64 = 16 << 20;
/// Memory limit for building an index.
const BUILD_BYTES: u64 = 96 << 20;
/// Memory of a writer besides these two: columns of a segment while they are written, the resident parts of
/// its indexes, and memory that the allocator keeps. It was 86 MB at most. The total was 125 to 164 MB in
/// some 30 runs of a test build, nine of them on busy cores, and 164 to 215 MB when the allocator was not
/// made to give memory back after a segment.
const BESIDE_BYTES: u64 = 80 << 20;
/// Number of imported rows of [`IMPORT_DIM`] components: more than a writer's memory, and ten times the
/// memory for writes.
const IMPORT_ROWS: u64 = 400_000;
const IMPORT_DIM: usize = 512;

/// Returns the peak memory of this process.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// A part, not a test: imports rows, and prints the memory that it took.
#[test]
fn part_importer() {
    let Some(arguments) = arguments_of("importer") else { return };
    let mut case = Case::numbers();
    case.schema.vectors = vec![VectorField::new("v", IMPORT_DIM, Element::U8, Metric::L2)];
    let options = CollectionOptions {
        write_memory_bytes: WRITE_BYTES,
        build_memory_bytes: Some(BUILD_BYTES),
        durability: Durability::System,
        flat_below_rows: usize::MAX,
        threads: 1,
        ..CollectionOptions::default()
    };
    let collection = Collection::create(PathBuf::from(&arguments[0]), case.schema.clone(), &options).unwrap();
    if arguments[1] == "whole" {
        return add_at_once(&collection, &case.schema);
    }
    let begin = peak_bytes();
    let mut random = StdRng::seed_from_u64(5);
    for first in (0..IMPORT_ROWS).step_by(1000) {
        let rows = (first..first + 1000).map(|id| (Id::Number(id), case.row(&mut random))).collect();
        write(&case, &collection, &Change::Add(rows)).unwrap();
    }
    collection.flush().unwrap();
    assert_eq!(collection.count(None, Control::default()).unwrap(), IMPORT_ROWS);
    println!("took {}", peak_bytes() - begin);
}

/// Adds all rows as one batch, and prints the memory that it took besides the batch itself.
fn add_at_once(collection: &Collection, schema: &Schema) {
    let mut bytes = vec![0; IMPORT_ROWS as usize * IMPORT_DIM];
    StdRng::seed_from_u64(5).fill(&mut bytes[..]);
    let vectors = VectorFile::from_rows(Element::U8, IMPORT_DIM, bytes).unwrap();
    let ids: Vec<Id> = (0..IMPORT_ROWS).map(Id::Number).collect();
    let rows = Rows::new(schema, Ids::from_ids(schema.id_kind, &ids).unwrap(), vec![vectors], None).unwrap();
    drop(ids);
    // The peak so far is the memory in use now.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let begin = peak_bytes();
    collection.add(rows).unwrap();
    assert_eq!(collection.count(None, Control::default()).unwrap(), IMPORT_ROWS);
    println!("took {}", peak_bytes() - begin);
}

#[test]
fn a_writer_keeps_to_its_memory() {
    keeps_to_its_memory("batches");
}

#[test]
fn a_writer_of_a_large_batch_keeps_to_its_memory() {
    keeps_to_its_memory("whole");
}

fn keeps_to_its_memory(how: &str) {
    if !Path::new("/proc/self/clear_refs").exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("imported");
    let importer = start("model::processes::part_importer", &format!("importer|{}|{how}", path.display()));
    let mut importer = importer;
    let mut lines = BufReader::new(importer.stdout.take().unwrap()).lines();
    let took = next_number(&mut lines, "took ").expect("the importer has said nothing");
    assert!(importer.wait().unwrap().success());
    let most = WRITE_BYTES + BUILD_BYTES + BESIDE_BYTES;
    assert!(IMPORT_ROWS * IMPORT_DIM as u64 > most);
    assert!(took <= most, "{} MB, of {} MB", took >> 20, most >> 20);
}
