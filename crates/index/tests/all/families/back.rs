//! Vectors that an index returns by their ids.

use crate::cases::{CaseSelection, case_runs, quick_build};
use crate::clustered::vectors;
use crate::families::kinds::KINDS;
use crate::families::places::{PLACES, open};
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::{
    BuildOptions, Index, IndexError, OpenOptions, StoreAs, StoredVectors, StripeOptions, build, compact,
};
use bathyal_kernels::{Element, Metric, to_f32};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::fs;
use std::sync::atomic::AtomicBool;

const DIM: usize = 24;
/// Ids in no order: the first and the last, adjacent ones, and some twice.
const IDS: [u32; 12] = [799, 0, 400, 401, 402, 7, 7, 123, 799, 1, 650, 33];

fn vectors_of(index: &Index, ids: &[u32]) -> Result<StoredVectors, IndexError> {
    index.vectors(ids, Control::default())
}

fn rows(data: &VectorFile, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| data.row(*id as usize)).copied().collect()
}

fn floats(element: Element, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; element.components_in(bytes.len())];
    to_f32(element, bytes, &mut values);
    values
}

/// Returns each vector scaled to length 1.
fn directions(values: &[f32]) -> Vec<f32> {
    let unit = |row: &[f32]| {
        let length = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        row.iter().map(|value| (f64::from(*value) / length) as f32).collect::<Vec<_>>()
    };
    values.chunks(DIM).flat_map(unit).collect()
}

/// Checks that values differ by `tolerance` at most.
fn check_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance, "{what}: {found} and {expected}");
    }
}

#[test]
fn every_layout_returns_its_vectors_on_every_tier() {
    let dir = tempfile::tempdir().unwrap();
    for (number, element) in [Element::F32, Element::U8].into_iter().enumerate() {
        let data = vectors(element, 800, DIM, 1);
        // Each kind with an element.
        for (_, kind) in KINDS.into_iter().enumerate().filter(|(at, _)| case_runs(number + at, 2)) {
            let path = dir.path().join(format!("{}-{element}", kind.name));
            kind.build_with(&path, &data, &kind.options(Metric::L2));
            for place in &PLACES {
                let (what, index) = (format!("{element} {} on {}", kind.name, place.name), place.open(&path));
                // The second call may use the places that the first one noted.
                for _ in 0..2 {
                    let found = vectors_of(&index, &IDS).unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!((found.element, found.dim), (element, DIM), "{what}");
                    assert!(found.bytes == rows(&data, &IDS), "{what}");
                }
                let all: Vec<u32> = (0..800).collect();
                assert!(vectors_of(&index, &all).unwrap().bytes == rows(&data, &all), "{what}: all");
                assert!(vectors_of(&index, &[]).unwrap().bytes.is_empty(), "{what}: none");
                assert_eq!(index.ids(Control::default()).unwrap(), std::slice::from_ref(&(0..800)), "{what}");
                let refused = vectors_of(&index, &[3, 800, 5]).expect_err("no such id").to_string();
                assert!(refused.contains("no vector 800: ids are below 800"), "{what}: {refused}");
            }
        }
    }
}

#[test]
fn striped_indexes_return_their_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, 800, DIM, 1);
    for kind in KINDS {
        let folders = ["a", "b"].map(|disk| dir.path().join(format!("{}-{disk}", kind.name)));
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let stripe = Some(StripeOptions { stripe_bytes: 4096, ..StripeOptions::over(&folders) });
        let path = dir.path().join(kind.name);
        kind.build_with(&path, &data, &BuildOptions { stripe, ..kind.options(Metric::L2) });
        let found = vectors_of(&open(&path, OpenOptions::default()), &IDS).unwrap();
        assert!(found.bytes == rows(&data, &IDS), "{}", kind.name);
    }
}

#[test]
fn floats_are_returned_as_they_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, 800, DIM, 1);
    let given = floats(Element::F32, &rows(&data, &IDS));
    let forms = [(None, 1e-6), (Some(StoreAs::F16), 1e-3), (Some(StoreAs::I8), 2e-2)];
    let mut cases = CaseSelection::one_in(7);
    for (metric, (store_as, tolerance)) in Metric::ALL.into_iter().flat_map(|m| forms.map(|form| (m, form))) {
        for kind in KINDS.into_iter().filter(|_| cases.next_runs()) {
            let what = format!("{metric} {store_as:?} {}", kind.name);
            let path = dir.path().join(&what);
            kind.build_with(&path, &data, &BuildOptions { store_as, ..kind.options(metric) });
            let found = vectors_of(&open(&path, OpenOptions::default()), &IDS).unwrap();
            assert_eq!(found.element, Element::F32, "{what}");
            let found = floats(Element::F32, &found.bytes);
            let largest = given.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            match (metric, store_as) {
                (Metric::Cosine, _) => check_close(&found, &directions(&given), tolerance, &what),
                (_, None) => check_close(&found, &given, 0.0, &what),
                _ => check_close(&found, &given, tolerance * largest, &what),
            }
        }
    }
}

#[test]
fn vectors_are_returned_within_the_smallest_budget() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, 800, DIM, 1);
    for kind in KINDS {
        let path = dir.path().join(kind.name);
        kind.build_with(&path, &data, &kind.options(Metric::L2));
        let tight =
            |bytes| Index::open(&path, &OpenOptions { memory_bytes: Some(bytes), ..OpenOptions::default() });
        let Err(IndexError::Memory { needed, .. }) = tight(0) else { panic!("{}: no need", kind.name) };
        let index = tight(needed).unwrap();
        let before = index.dram_bytes(0, 0, 0);
        for _ in 0..2 {
            assert!(vectors_of(&index, &IDS).unwrap().bytes == rows(&data, &IDS), "{}", kind.name);
        }
        let taken = index.dram_bytes(0, 0, 0);
        assert!(taken <= before.max(needed), "{}: {before} bytes, then {taken} of {needed}", kind.name);
    }
}

#[test]
fn damaged_vectors_are_an_error_and_are_not_returned() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::U8, 800, DIM, 1);
    let all: Vec<u32> = (0..800).collect();
    for kind in KINDS {
        let path = dir.path().join(kind.name);
        kind.build_with(&path, &data, &kind.options(Metric::L2));
        let index = open(&path, OpenOptions::default());
        let file = path.join(&index.manifest().paged_file().name);
        let sound = fs::read(&file).unwrap();
        for at in [100, sound.len() / 3, sound.len() / 2] {
            let mut bytes = sound.clone();
            bytes[at] ^= 4;
            fs::write(&file, bytes).unwrap();
            match vectors_of(&open(&path, OpenOptions::default()), &all) {
                Ok(found) => assert!(found.bytes == rows(&data, &all), "{} at {at}", kind.name),
                Err(IndexError::Damaged { .. }) => {}
                Err(error) => panic!("{} at {at}: {error}", kind.name),
            }
        }
        fs::write(&file, sound).unwrap();
    }
}

#[test]
fn a_cancelled_call_returns_no_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = (dir.path().join("index"), vectors(Element::U8, 800, DIM, 1));
    let kind = KINDS[0];
    kind.build_with(&path, &data, &kind.options(Metric::L2));
    let cancel = AtomicBool::new(true);
    let control = Control { cancel: Some(&cancel), deadline: None };
    let cancelled = open(&path, OpenOptions::default()).vectors(&IDS, control);
    assert!(matches!(cancelled, Err(IndexError::Cancelled)));
}

#[test]
fn inserted_vectors_are_returned_and_deleted_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = (dir.path().join("index"), vectors(Element::U8, 900, DIM, 1));
    let first = VectorFile::from_rows(Element::U8, DIM, data.rows(0..800).unwrap().to_vec()).unwrap();
    build(&first, &path, &quick_build(LshOptions::default()), &Silent).unwrap();
    let index = open(&path, OpenOptions::default());
    for at in (800..900).step_by(20) {
        let some = data.rows(at..at + 20).unwrap().to_vec();
        index.insert(&VectorFile::from_rows(Element::U8, DIM, some).unwrap()).unwrap();
    }
    index.delete(&[0, 5, 6, 850, 899]).unwrap();
    let ranges = [1..5, 7..850, 851..899];
    let ids: Vec<u32> = ranges.iter().cloned().flatten().rev().collect();
    let check = |index: &Index, what: &str| {
        assert_eq!(index.ids(Control::default()).unwrap(), ranges, "{what}");
        assert!(vectors_of(index, &ids).unwrap().bytes == rows(&data, &ids), "{what}");
        for (id, why) in [(5, "deleted"), (850, "deleted"), (899, "deleted"), (900, "below 900")] {
            let refused = vectors_of(index, &[1, id]).expect_err("not there").to_string();
            assert!(refused.contains(&format!("no vector {id}")) && refused.contains(why), "{refused}");
        }
    };
    check(&index, "changed");
    drop(index);
    compact(&path, &Default::default(), &Silent).unwrap();
    check(&open(&path, OpenOptions::default()), "compacted");
}
