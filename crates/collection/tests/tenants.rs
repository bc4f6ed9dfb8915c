//! Thousands of collections, one for each user, in one process with a limit of a thousand open files.
#![cfg(target_os = "linux")]

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bathyal_collection::{
    Collection, CollectionOptions, Column, Durability, Filter, IdKind, Ids, Rows, Schema, SearchRequest,
    VectorField, search_many,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TENANTS: usize = 2000;
/// The usual limit of open files of a process.
const FILES: u64 = 1024;
const ROWS: u64 = 200;
const DIM: usize = 16;
/// Collections that are written to; more than can hold a log open at the same time.
const WRITTEN: usize = 200;
/// Bytes of memory of an open collection that was not read: some kilobytes.
const OPEN_BYTES: u64 = 24 << 10;
/// The same after all were searched. Most of it is buffers of search threads and open segments; these do not
/// grow with the number of collections.
const SEARCHED_BYTES: u64 = 256 << 10;

fn options() -> CollectionOptions {
    CollectionOptions { durability: Durability::System, ..CollectionOptions::default() }
}

fn schema() -> Schema {
    Schema {
        id_kind: IdKind::Number,
        vectors: vec![VectorField::new("v", DIM, Element::F32, Metric::L2)],
        columns: vec![Column { name: "year".into(), kind: "int64".parse().unwrap() }],
    }
}

fn vectors(rows: impl Iterator<Item = u64>) -> VectorFile {
    let numbers = rows.flat_map(|row| (0..DIM as u64).map(move |at| ((row * 31 + at * 7) % 997) as f32));
    VectorFile::from_rows(Element::F32, DIM, numbers.flat_map(f32::to_le_bytes).collect()).unwrap()
}

fn rows(ids: impl Iterator<Item = u64> + Clone) -> Rows {
    let years: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| 2000 + id as i64 % 20)));
    let columns = RecordBatch::try_from_iter([("year", years)]).unwrap();
    let given = Ids::Numbers(ids.clone().collect::<Vec<_>>().into());
    Rows::new(&schema(), given, vec![vectors(ids)], Some(&columns)).unwrap()
}

/// Creates a collection with a segment, and a row that is only in the log.
fn template(path: &Path) {
    let collection = Collection::create(path, schema(), &options()).unwrap();
    collection.add(rows(0..ROWS)).unwrap();
    collection.flush().unwrap();
    collection.add(rows(ROWS..ROWS + 1)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn allow_files(most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a limit of this process, which the value says.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// Returns the open files, the threads, and the bytes of memory of the process.
fn resources() -> (u64, u64, u64) {
    let entries = |path: &str| std::fs::read_dir(path).unwrap().count() as u64;
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    (entries("/proc/self/fd"), entries("/proc/self/task"), resident * 4096)
}

fn request() -> SearchRequest {
    let filter = Some(Filter::parse("year >= 2003").unwrap());
    SearchRequest { k: 3, filter, columns: vec!["year".into()], vectors: true, ..SearchRequest::default() }
}

#[test]
fn thousands_of_collections_are_open_in_a_process_that_may_open_a_thousand_files() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("0");
    template(&first);
    let paths: Vec<PathBuf> = (1..=TENANTS).map(|number| folder.path().join(number.to_string())).collect();
    paths.iter().for_each(|path| copy(&first, path));
    allow_files(FILES);

    let before = resources();
    let open = |path: &PathBuf| Collection::open(path, &options()).unwrap();
    let tenants: Vec<Collection> = paths.iter().map(open).collect();
    let idle = resources();
    let bytes_each = (idle.2.saturating_sub(before.2)) / TENANTS as u64;
    println!("open: {} files, {} threads, {bytes_each} bytes each", idle.0 - before.0, idle.1 - before.1);
    assert_eq!((idle.0, idle.1), (before.0, before.1), "an idle collection has no file and no thread");
    assert!(bytes_each < OPEN_BYTES, "{bytes_each} bytes each");

    let query = vectors(13..14);
    for tenant in tenants.iter().chain(&tenants[..10]) {
        let found = tenant.search(&query, &request(), Control::default()).unwrap();
        assert_eq!((found.ids.get(0), found.distances[0]), (bathyal_collection::Id::Number(13), 0.0));
    }
    let searched = resources();
    let bytes_each = (searched.2.saturating_sub(before.2)) / TENANTS as u64;
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    println!("searched: {} files, {} threads, {bytes_each} bytes each", searched.0, searched.1);
    assert!(searched.0 < FILES * 3 / 4, "{} files are open", searched.0);
    assert!(searched.1 <= before.1 + cores, "{} threads", searched.1);
    assert!(bytes_each < SEARCHED_BYTES, "{bytes_each} bytes each");

    // Twice, so that each collection releases its log and acquires it again.
    for round in 0..2 {
        for (number, tenant) in tenants[..WRITTEN].iter().enumerate() {
            let id = 1000 + round;
            tenant.add(rows(id..id + 1)).unwrap_or_else(|error| panic!("{number}: {error}"));
        }
    }
    let written = resources();
    println!("written: {} files, {} threads", written.0, written.1);
    assert!(written.0 < FILES && written.1 <= before.1 + cores);
    for tenant in &tenants[..WRITTEN] {
        assert_eq!(tenant.count(None, Control::default()).unwrap(), ROWS + 3);
    }
    let some: Vec<&Collection> = tenants[WRITTEN..].iter().step_by(20).collect();
    let found = search_many(&some, &query, &request(), Control::default()).unwrap();
    assert_eq!((found.collections, found.matches % 100), (vec![0, 1, 2], 0));
    // Other handles see the writes, although no handle was closed.
    assert_eq!(open(&paths[0]).count(None, Control::default()).unwrap(), ROWS + 3);
}
