//! The order is a permutation, the same for any number of threads, and brings near vectors together.

use super::planes::Planes;
use super::{Placement, Points};
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

struct Rows(Vec<f32>, usize);

impl Points for Rows {
    fn dim(&self) -> usize {
        self.1
    }

    fn read(&self, id: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.0[id as usize * self.1..][..self.1]);
    }
}

fn placement(unit: usize, threads: usize) -> Placement {
    Placement { units: vec![unit, 4 * unit], threads, seed: 7 }
}

fn order(rows: &Rows, placement: Placement) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..(rows.0.len() / rows.1) as u32).collect();
    placement.order(rows, &mut ids, &Silent).expect("nothing cancels");
    ids
}

#[test]
fn clumps_come_out_together() {
    // 40 clumps of 10 vectors, far from each other, shuffled.
    let mut random = StdRng::seed_from_u64(1);
    let centres: Vec<f32> = (0..40 * 8).map(|_| random.random_range(-100.0..100.0)).collect();
    let clump = |id: u32| (id as usize * 7) % 40;
    let rows = (0..400_u32)
        .flat_map(|id| centres[clump(id) * 8..][..8].to_vec())
        .map(|v| v + random.random_range(-0.1..0.1))
        .collect();
    let rows = Rows(rows, 8);
    let ids = order(&rows, placement(10, 1));
    let pure = ids.chunks(10).filter(|unit| unit.iter().all(|id| clump(*id) == clump(unit[0]))).count();
    assert!(pure >= 30, "only {pure} of 40 units are one clump");
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().enumerate().all(|(i, id)| i as u32 == *id), "not a permutation");
}

#[test]
fn threads_do_not_matter() {
    let mut random = StdRng::seed_from_u64(2);
    let rows = Rows((0..5000 * 5).map(|_| random.random_range(0.0..1.0)).collect(), 5);
    let one = order(&rows, placement(31, 1));
    for threads in [2, 3, 8] {
        assert_eq!(one, order(&rows, placement(31, threads)), "{threads} threads");
    }
}

#[test]
fn degenerate_sets_are_placed_too() {
    for count in [1, 2, 3, 30, 31, 32, 125] {
        let equal = Rows(vec![1.0; count * 3], 3);
        let mut ids = order(&equal, placement(31, 2));
        ids.sort_unstable();
        assert_eq!(ids, (0..count as u32).collect::<Vec<_>>());
    }
}

#[test]
fn planes_make_parts_of_about_the_size_asked_for() {
    let mut random = StdRng::seed_from_u64(3);
    let rows = Rows((0..8000 * 6).map(|_| random.random_range(-1.0..1.0)).collect(), 6);
    let planes = Planes::new(&rows, 4000, 8000, 1000, 5);
    let mut sizes = vec![0; planes.parts()];
    let mut row = [0.0; 6];
    for id in 0..8000 {
        rows.read(id, &mut row);
        sizes[planes.part(&row)] += 1;
    }
    assert!(sizes.len() >= 8 && sizes.iter().all(|size| (200..=1000).contains(size)), "{sizes:?}");

    let equal = Rows(vec![1.0; 500 * 2], 2);
    let planes = Planes::new(&equal, 500, 500, 100, 5);
    assert!(planes.parts() > 1 && planes.part(&[1.0, 1.0]) < planes.parts());
}
