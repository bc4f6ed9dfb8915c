//! The readers of changes after a build: the log, and the ids of vectors.

use bathyal_index::format::changes::{Change, ChangeLog};
use bathyal_index::format::identity::Identity;
use bathyal_index::format::ids::IdRuns;

const ROW_BYTES: usize = 12;
const VECTORS: u64 = 7;

fn log() -> ChangeLog {
    ChangeLog::new(Identity::of("an index"), ROW_BYTES)
}

/// Returns a log of an insert, a delete, and another insert.
pub fn logs() -> Vec<Vec<u8>> {
    let (rows, ids) = ([7; 60 * ROW_BYTES], [[3, 0, 0, 0], [9, 1, 0, 0]]);
    let mut bytes = log().head();
    for change in [
        Change::Insert { first: 50, rows: &rows },
        Change::Delete(&ids),
        Change::Insert { first: 110, rows: &rows[..ROW_BYTES] },
    ] {
        let record = log().record(bytes.len() as u64, &change);
        bytes.extend_from_slice(&record);
    }
    vec![bytes]
}

pub fn log_of_changes(bytes: &[u8]) {
    for from in [0, 512] {
        let mut end = if from == 0 { 512 } else { from };
        let read_change = |change: Change<'_>| {
            if let Change::Insert { rows, .. } = change {
                assert!(rows.len().is_multiple_of(ROW_BYTES) && rows.len() <= bytes.len());
            }
            end += log().record_bytes(&change) as u64;
            Ok::<(), String>(())
        };
        let Ok(found) = log().read(from, bytes, read_change) else { continue };
        assert!(found == end || found == 0 && end == 512, "{found} {end}");
        assert!(found <= from + bytes.len() as u64);
    }
}

pub fn id_files() -> Vec<Vec<u8>> {
    let mut gaps = IdRuns::none();
    [0, 1, 5, 6, 7, 90, 4_000_000_000].into_iter().for_each(|id| gaps.push(id));
    gaps.end(4_000_000_007);
    vec![IdRuns::all(VECTORS as u32).to_bytes(), gaps.to_bytes()]
}

pub fn ids(bytes: &[u8]) {
    let Ok(runs) = IdRuns::from_bytes(bytes, VECTORS) else { return };
    assert_eq!((runs.to_bytes().as_slice(), runs.vectors()), (bytes, VECTORS as u32));
    let mut ids = Vec::new();
    runs.extend(0..VECTORS as u32, &mut ids);
    assert!(ids.is_sorted_by(|a, b| a < b) && ids.iter().all(|id| *id < runs.next()));
    assert!(ids.iter().zip(0..).all(|(id, place)| runs.place(*id) == Some(place)));
}
