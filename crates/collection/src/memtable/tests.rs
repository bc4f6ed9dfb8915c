use super::*;
use crate::ids::IdKind;
use crate::schema::{Schema, VectorField};
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::VectorFile;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;

const DIM: usize = 16;

fn schema(id_kind: IdKind) -> Schema {
    let vectors = vec![
        VectorField::new("v", DIM, Element::F32, Metric::L2),
        VectorField::new("w", 8, Element::U8, Metric::L2),
    ];
    Schema { id_kind, vectors, columns: Vec::new() }
}

fn ids_of(kind: IdKind, numbers: &[u64]) -> Ids {
    match kind {
        IdKind::Number => Ids::Numbers(numbers.to_vec().into()),
        IdKind::Text => {
            Ids::Texts(numbers.iter().map(|number| format!("row {number}")).collect::<Vec<_>>().into())
        }
    }
}

/// Rows whose vectors hold the number of the row, counted from `first`.
fn rows(kind: IdKind, numbers: &[u64], first: u32) -> Rows {
    let count = numbers.len();
    let floats = (0..count * DIM).flat_map(|at| (first as f32 + (at / DIM) as f32).to_le_bytes()).collect();
    let bytes = (0..count * 8).map(|at| (first as usize + at / 8) as u8).collect();
    let vectors = vec![
        VectorFile::from_rows(Element::F32, DIM, floats).unwrap(),
        VectorFile::from_rows(Element::U8, 8, bytes).unwrap(),
    ];
    Rows::new(&schema(kind), ids_of(kind, numbers), vectors, None).unwrap()
}

/// Checks the vectors, the order of ids, the bytes and the lookup of ids of all rows.
fn check_all(memtable: &MemTable, kind: IdKind, live: &HashMap<u64, u32>, largest: u64) {
    for row in (0..memtable.rows()).step_by(97) {
        assert_eq!(memtable.vector(0, row).unwrap(), (row as f32).to_le_bytes().repeat(DIM));
        assert_eq!(memtable.vector(1, row).unwrap(), [row as u8; 8]);
    }
    let requested: Vec<u64> = (0..largest + 100).collect();
    let expected: Vec<Option<u32>> = requested.iter().map(|id| live.get(id).copied()).collect();
    assert_eq!(memtable.find(&ids_of(kind, &requested)), expected);
    for chunk in &memtable.chunks {
        assert_eq!(chunk.order(), chunk.rows().ids().order());
    }
    let bytes: u64 = memtable.chunks.iter().map(|chunk| chunk.bytes()).sum();
    assert_eq!(memtable.bytes() - memtable.deleted().bytes(), bytes);
    let mut sorted: Vec<(Id, u32)> =
        live.iter().map(|(id, row)| (ids_of(kind, &[*id]).get(0), *row)).collect();
    sorted.sort_unstable();
    assert_eq!(memtable.sorted().unwrap(), sorted.into_iter().map(|(_, row)| row).collect::<Vec<_>>());
}

#[test]
fn batches_of_any_size_become_few_chunks_and_each_row_is_found() {
    for (kind, seed) in [(IdKind::Number, 1), (IdKind::Text, 2)] {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut memtable, mut live, largest) = (MemTable::default(), HashMap::new(), 40_000);
        let mut before = Vec::new();
        let sizes = [1, 1, 1, 3, 200, 1, 7_000, 1, 30, 2, 9_000, 9_000, 1, 1, 12_000, 500, 1];
        for size in sizes.into_iter().chain([1; 300]) {
            // Rows with the same ids are deleted first.
            let mut numbers: Vec<u64> = (0..size).map(|_| rng.random_range(0..largest)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.shuffle(&mut rng);
            for row in memtable.find(&ids_of(kind, &numbers)).into_iter().flatten() {
                assert!(memtable.delete(row));
            }
            let first = memtable.rows();
            let kept = memtable.push(&rows(kind, &numbers, first)).unwrap();
            assert_eq!(kept.ids(), &ids_of(kind, &numbers));
            live.extend(numbers.iter().copied().zip(first..));
            if numbers.len() > 100 || live.len() % 100 == 0 {
                check_all(&memtable, kind, &live, largest);
                before.push((memtable.clone(), live.clone()));
            }
        }
        check_all(&memtable, kind, &live, largest);
        assert!(memtable.chunks.len() < 30, "{} chunks", memtable.chunks.len());
        // Later rows do not change earlier copies.
        before.iter().for_each(|(memtable, live)| check_all(memtable, kind, live, largest));
    }
}

#[test]
fn copies_grow_independently() {
    let mut one = MemTable::default();
    one.push(&rows(IdKind::Number, &[5, 3], 0)).unwrap();
    one.push(&rows(IdKind::Number, &[9, 1, 4], 2)).unwrap();
    let mut other = one.clone();
    // Both append to the same buffer.
    for id in [7, 8, 17, 18] {
        let memtable = if id % 10 == 7 { &mut one } else { &mut other };
        memtable.push(&rows(IdKind::Number, &[id], memtable.rows())).unwrap();
    }
    for (memtable, ids) in [(&one, [7, 17]), (&other, [8, 18])] {
        let live = [5, 3, 9, 1, 4].into_iter().chain(ids).zip(0..).collect();
        check_all(memtable, IdKind::Number, &live, 20);
    }
}

#[test]
fn joining_chunks_does_not_copy_adjacent_vectors() {
    let mut memtable = MemTable::default();
    memtable.push(&rows(IdKind::Number, &(0..4_000).collect::<Vec<_>>(), 0)).unwrap();
    let two = memtable.push(&rows(IdKind::Number, &(4_000..6_000).collect::<Vec<_>>(), 4_000)).unwrap();
    let three = memtable.push(&rows(IdKind::Number, &(6_000..8_000).collect::<Vec<_>>(), 6_000)).unwrap();
    let at = |row: u32| memtable.vector(0, row).unwrap().as_ptr();
    assert_eq!([at(4_000), at(6_000)], [&two, &three].map(|rows| rows.vectors()[0].row(0).as_ptr()));
    assert_eq!(memtable.chunks.iter().map(|chunk| chunk.rows().len()).collect::<Vec<_>>(), [4_000, 4_000]);
}
