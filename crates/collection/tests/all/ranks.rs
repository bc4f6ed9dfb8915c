//! Shares of the cores that merges get.
#![cfg(target_os = "linux")]

use bathyal_collection::{
    Collection, CollectionOptions, CompactOptions, IdKind, Ids, Rows, Schema, VectorField,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use std::sync::Mutex;

const DIM: usize = 8;
const ROWS: u64 = 100;
/// Merges until one has written rows in idle processor time.
const MOST_MERGES: usize = 20;

fn collection(folder: &tempfile::TempDir, background: bool) -> Collection {
    let schema = Schema {
        id_kind: IdKind::Number,
        vectors: vec![VectorField::new("v", DIM, Element::U8, Metric::L2)],
        columns: Vec::new(),
    };
    let options = CollectionOptions { compact: false, background, ..CollectionOptions::default() };
    Collection::create(folder.path().join("collection"), schema, &options).unwrap()
}

/// Writes rows as a segment.
fn segment(collection: &Collection, ids: std::ops::Range<u64>) {
    let bytes = ids.clone().flat_map(|id| (0..DIM as u64).map(move |at| (id * 31 + at * 7) as u8)).collect();
    let vectors = vec![VectorFile::from_rows(Element::U8, DIM, bytes).unwrap()];
    let ids = Ids::Numbers(ids.collect::<Vec<_>>().into());
    collection.add(Rows::new(&collection.schema(), ids, vectors, None).unwrap()).unwrap();
    collection.flush().unwrap();
}

/// Returns the nice value and the scheduling policy of the calling thread.
fn rank() -> (i32, i32) {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[16].parse().unwrap(), fields[38].parse().unwrap())
}

/// Records the priority of each thread that publishes a segment.
struct Publishing {
    ranks: Mutex<Vec<(i32, i32)>>,
}

impl Progress for Publishing {
    fn stage(&self, name: &str, _total: u64) {
        if name == "writing rows" {
            self.ranks.lock().unwrap().push(rank());
        }
    }

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// Merges segments, and returns the priorities of the merging threads.
fn merged(read: bool, background: bool) -> Vec<(i32, i32)> {
    let folder = tempfile::tempdir().unwrap();
    let collection = collection(&folder, background);
    (0..3).for_each(|number| segment(&collection, number * ROWS..(number + 1) * ROWS));
    if read {
        assert_eq!(collection.count(None, Control::default()).unwrap(), 3 * ROWS);
    }
    let before = rank();
    let publishing = Publishing { ranks: Mutex::default() };
    collection.compact(&CompactOptions { full: true }, &publishing).unwrap();
    assert_eq!(rank(), before, "the calling thread keeps its priority");
    assert_eq!(collection.describe().segments.len(), 1);
    publishing.ranks.into_inner().unwrap()
}

#[test]
fn merges_use_only_idle_cores_while_there_are_readers() {
    let (nice, policy) = rank();
    let low = (nice.max(10), policy);
    assert_eq!(merged(false, true), [low]);
    // A merge that gets no idle processor time starts again with a share of its own. If other programs use
    // all cores, it may do so before it has written a row; then another merge shows the idle share.
    let idle = (nice.max(10), libc::SCHED_IDLE);
    let seen = (0..MOST_MERGES).map(|_| merged(true, true)).find(|ranks| ranks[0] == idle);
    let ranks = seen.expect("a merge begins with idle processor time");
    assert!(ranks[1..].iter().all(|rank| *rank == low), "{ranks:?}");
    // Merges by a write itself make that write wait.
    assert_eq!(merged(true, false), [low]);
}
