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

/// Rows whose vectors say which row it is, by the order in which they came.
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

/// What is said of all rows is true: of the vectors, of the order of ids, of what is found.
fn check_all(memory: &Memory, kind: IdKind, there: &HashMap<u64, u32>, largest: u64) {
    for row in (0..memory.rows()).step_by(97) {
        assert_eq!(memory.vector(0, row).unwrap(), (row as f32).to_le_bytes().repeat(DIM));
        assert_eq!(memory.vector(1, row).unwrap(), [row as u8; 8]);
    }
    let asked: Vec<u64> = (0..largest + 100).collect();
    let expected: Vec<Option<u32>> = asked.iter().map(|id| there.get(id).copied()).collect();
    assert_eq!(memory.find(&ids_of(kind, &asked)), expected);
    for chunk in &memory.chunks {
        assert_eq!(chunk.order(), chunk.rows().ids().order());
    }
    let bytes: u64 = memory.chunks.iter().map(|chunk| chunk.bytes()).sum();
    assert_eq!(memory.bytes() - memory.deleted().bytes(), bytes);
    let mut sorted: Vec<(Id, u32)> =
        there.iter().map(|(id, row)| (ids_of(kind, &[*id]).get(0), *row)).collect();
    sorted.sort_unstable();
    assert_eq!(memory.sorted().unwrap(), sorted.into_iter().map(|(_, row)| row).collect::<Vec<_>>());
}

#[test]
fn batches_of_any_size_in_any_order_are_few_chunks_and_each_row_is_found() {
    for (kind, seed) in [(IdKind::Number, 1), (IdKind::Text, 2)] {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut memory, mut there, largest) = (Memory::default(), HashMap::new(), 40_000);
        let mut before = Vec::new();
        let sizes = [1, 1, 1, 3, 200, 1, 7_000, 1, 30, 2, 9_000, 9_000, 1, 1, 12_000, 500, 1];
        for size in sizes.into_iter().chain([1; 300]) {
            // Some are there already: what was there goes first.
            let mut numbers: Vec<u64> = (0..size).map(|_| rng.random_range(0..largest)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.shuffle(&mut rng);
            for row in memory.find(&ids_of(kind, &numbers)).into_iter().flatten() {
                assert!(memory.delete(row));
            }
            let first = memory.rows();
            let kept = memory.push(&rows(kind, &numbers, first)).unwrap();
            assert_eq!(kept.ids(), &ids_of(kind, &numbers));
            there.extend(numbers.iter().copied().zip(first..));
            if numbers.len() > 100 || there.len() % 100 == 0 {
                check_all(&memory, kind, &there, largest);
                before.push((memory.clone(), there.clone()));
            }
        }
        check_all(&memory, kind, &there, largest);
        assert!(memory.chunks.len() < 30, "{} chunks", memory.chunks.len());
        // What came since changes nothing of what was seen before.
        before.iter().for_each(|(memory, there)| check_all(memory, kind, there, largest));
    }
}

#[test]
fn copies_that_go_on_apart_have_each_their_own() {
    let mut one = Memory::default();
    one.push(&rows(IdKind::Number, &[5, 3], 0)).unwrap();
    one.push(&rows(IdKind::Number, &[9, 1, 4], 2)).unwrap();
    let mut other = one.clone();
    // Both into the same room.
    for id in [7, 8, 17, 18] {
        let memory = if id % 10 == 7 { &mut one } else { &mut other };
        memory.push(&rows(IdKind::Number, &[id], memory.rows())).unwrap();
    }
    for (memory, ids) in [(&one, [7, 17]), (&other, [8, 18])] {
        let there = [5, 3, 9, 1, 4].into_iter().chain(ids).zip(0..).collect();
        check_all(memory, IdKind::Number, &there, 20);
    }
}

#[test]
fn vectors_of_one_room_are_not_copied_when_chunks_are_joined() {
    let mut memory = Memory::default();
    memory.push(&rows(IdKind::Number, &(0..4_000).collect::<Vec<_>>(), 0)).unwrap();
    let two = memory.push(&rows(IdKind::Number, &(4_000..6_000).collect::<Vec<_>>(), 4_000)).unwrap();
    let three = memory.push(&rows(IdKind::Number, &(6_000..8_000).collect::<Vec<_>>(), 6_000)).unwrap();
    let at = |row: u32| memory.vector(0, row).unwrap().as_ptr();
    assert_eq!([at(4_000), at(6_000)], [&two, &three].map(|rows| rows.vectors()[0].row(0).as_ptr()));
    assert_eq!(memory.chunks.iter().map(|chunk| chunk.rows().len()).collect::<Vec<_>>(), [4_000, 4_000]);
}
