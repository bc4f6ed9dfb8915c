//! Writers that take over from each other, race, and are killed, while others read.

use crate::model::compare::{holds, read};
use crate::server::batches::{after, batches, case, create, error_text, open, put};
use crate::server::service::{Place, Service, service};
use bathyal_collection::{Collection, CollectionError, CollectionOptions, CompactOptions};
use bathyal_vectors::progress::Silent;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of batches that each of two racing writers must write.
const RACED: u64 = 12;
/// Number of times that a writer is killed.
const KILLS: u64 = 4;
/// Environment variable of a started process: its part.
const PART: &str = "BATHYAL_BUCKET_PART";

fn is_lost_race(error: &CollectionError) -> bool {
    matches!(error, CollectionError::Fenced { .. } | CollectionError::Busy { .. })
}

/// Writes all batches of a writer. When another writer has taken over, opens the collection again.
fn write_all(service: &Service, place: &Place, writer: u64) {
    let mut collection = open(place, &service.endpoint).unwrap();
    let mut next = 1;
    while next <= RACED {
        let outcome = put(&collection, writer, next).and_then(|()| match next % 5 {
            0 => collection.flush(),
            _ => Ok(()),
        });
        if let Err(error) = outcome {
            assert!(is_lost_race(&error), "{}", error_text(service, &error));
            drop(collection);
            collection = open(place, &service.endpoint).unwrap();
        }
        // A batch that was not acknowledged may be stored.
        next = batches(&holds(&case(), &collection.snapshot()), writer) + 1;
    }
}

#[test]
fn writers_that_race_lose_nothing_that_was_acknowledged() {
    let Some(service) = service() else { return };
    let place = service.place("race");
    drop(create(service, &place));
    std::thread::scope(|scope| {
        for writer in 0..2 {
            scope.spawn({
                let place = &place;
                move || write_all(service, place, writer)
            });
        }
    });
    let collection = open(&place, &service.endpoint).unwrap();
    assert!(holds(&case(), &collection.snapshot()) == after(&[RACED, RACED]));
    assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new());
}

/// Starts this program again for a part. The address of the store is passed in the environment, which is not
/// visible to others.
fn start(service: &Service, place: &Place, part: &str, next: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("server::writers::part_{part}"), "--nocapture"]);
    command.env(PART, format!("{}|{next}", place.address("docs")));
    command.env("AWS_ENDPOINT", &service.endpoint).env("AWS_REGION", &service.region);
    command.env("AWS_ACCESS_KEY_ID", &service.access_key).env("AWS_SECRET_ACCESS_KEY", &service.secret);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Returns the collection, and the number of the next batch, if this process was started for a part.
fn arguments_of_part() -> Option<(Collection, u64)> {
    let arguments = std::env::var(PART).ok()?;
    let (address, next) = arguments.split_once('|').unwrap();
    // As in production, segments are written in the background.
    let options = CollectionOptions { background: true, ..case().options() };
    Some((Collection::open(address, &options).unwrap(), next.parse().unwrap()))
}

/// A part, not a test: writes batches, and prints each acknowledgement.
#[test]
fn part_writer() {
    let Some((collection, next)) = arguments_of_part() else { return };
    for number in next.. {
        put(&collection, 0, number).unwrap();
        println!("acknowledged {number}");
        std::io::stdout().flush().unwrap();
        if number % 7 == 0 {
            collection.flush().unwrap();
        }
    }
}

/// A part, not a test: reads until its input ends, and prints the last batch that it has seen.
#[test]
fn part_reader() {
    let Some((collection, _)) = arguments_of_part() else { return };
    let ended = std::sync::Arc::new(AtomicBool::new(false));
    let seen = ended.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        seen.store(true, Ordering::Relaxed);
    });
    let mut before = 0;
    while !ended.load(Ordering::Relaxed) {
        collection.refresh().unwrap();
        let content = match read(&case(), &collection.snapshot()) {
            Ok(content) => content,
            // Objects of the snapshot may have been removed; a new snapshot has them.
            Err(error) => {
                assert!(collection.refresh().unwrap(), "{error}");
                continue;
            }
        };
        let number = batches(&content, 0);
        assert!(number >= before && content == after(&[number]), "{number} batches after {before}");
        before = number;
    }
    println!("seen {before}");
}

/// Returns the number at the end of the next line that contains a word; `None` at the end of the output.
fn next_number(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> Option<u64> {
    let number = |line: String| line.split_once(word).map(|(_, number)| number.trim().parse().unwrap());
    lines.map_while(Result::ok).find_map(number)
}

#[test]
fn a_writer_that_is_killed_is_taken_over_from_while_another_process_reads() {
    let Some(service) = service() else { return };
    let place = service.place("killed");
    drop(create(service, &place));
    let mut reader = start(service, &place, "reader", 0);
    let mut stored = 0;
    for kill in 0..KILLS {
        let next = stored + 1;
        let mut writer = start(service, &place, "writer", next);
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut acknowledged = stored;
        while acknowledged < next + 5 + 4 * kill {
            acknowledged = next_number(&mut lines, "acknowledged ").expect("the writer has ended by itself");
        }
        writer.kill().unwrap();
        assert_eq!(writer.wait().unwrap().signal(), Some(libc::SIGKILL));
        while let Some(number) = next_number(&mut lines, "acknowledged ") {
            acknowledged = number;
        }
        let collection = open(&place, &service.endpoint).unwrap();
        let found = holds(&case(), &collection.snapshot());
        stored = batches(&found, 0);
        assert!([acknowledged, acknowledged + 1].contains(&stored), "{stored}, {acknowledged} acknowledged");
        assert!(found == after(&[stored]), "of {stored} batches something else is there");
        // Another writer writes at once: there is no lease to wait for.
        put(&collection, 0, stored + 1).unwrap();
        stored += 1;
    }
    drop(reader.stdin.take());
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    let seen = next_number(&mut lines, "seen ");
    assert!(reader.wait().unwrap().success());
    assert!(seen.is_some_and(|seen| seen <= stored), "{seen:?} of {stored}");
    let collection = open(&place, &service.endpoint).unwrap();
    collection.compact(&CompactOptions { full: true }, &Silent).unwrap();
    assert!(holds(&case(), &collection.snapshot()) == after(&[stored]));
}
