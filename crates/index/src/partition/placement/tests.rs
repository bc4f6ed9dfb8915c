//! The order is a permutation, does not depend on the number of threads, and brings near vectors together.

use super::planes::Planes;
use super::{Placement, Points};
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

struct TestPoints(Vec<f32>, usize);

impl Points for TestPoints {
    fn dim(&self) -> usize {
        self.1
    }

    fn read(&self, id: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.0[id as usize * self.1..][..self.1]);
    }
}

fn placement(unit: usize, threads: usize) -> Placement<'static> {
    Placement { units: vec![unit, 4 * unit], exchanged: None, threads, seed: 7, card: None }
}

/// Returns the same placement, with units that exchange members.
fn exchanging(unit: usize, threads: usize) -> Placement<'static> {
    Placement { exchanged: Some(unit), ..placement(unit, threads) }
}

fn order(rows: &TestPoints, placement: Placement) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..(rows.0.len() / rows.1) as u32).collect();
    placement.order(rows, &mut ids, &Silent).expect("nothing cancels");
    ids
}

#[test]
fn clumps_are_placed_together() {
    // 40 clumps of 10 vectors, far from each other, shuffled.
    let mut random = StdRng::seed_from_u64(1);
    let centres: Vec<f32> = (0..40 * 8).map(|_| random.random_range(-100.0..100.0)).collect();
    let clump = |id: u32| (id as usize * 7) % 40;
    let rows = (0..400_u32)
        .flat_map(|id| centres[clump(id) * 8..][..8].to_vec())
        .map(|v| v + random.random_range(-0.1..0.1))
        .collect();
    let rows = TestPoints(rows, 8);
    let ids = order(&rows, placement(10, 1));
    let pure = ids.chunks(10).filter(|unit| unit.iter().all(|id| clump(*id) == clump(unit[0]))).count();
    assert!(pure >= 30, "only {pure} of 40 units are one clump");
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().enumerate().all(|(i, id)| i as u32 == *id), "not a permutation");
}

#[test]
fn the_order_does_not_depend_on_the_number_of_threads() {
    let mut random = StdRng::seed_from_u64(2);
    let rows = TestPoints((0..5000 * 5).map(|_| random.random_range(0.0..1.0)).collect(), 5);
    let one = order(&rows, placement(31, 1));
    let one_exchanged = order(&rows, exchanging(31, 1));
    assert_ne!(one, one_exchanged);
    for threads in [2, 3, 8] {
        assert_eq!(one, order(&rows, placement(31, threads)), "{threads} threads");
        assert_eq!(one_exchanged, order(&rows, exchanging(31, threads)), "{threads} threads");
    }
}

/// Returns the sum of the squared distances of vectors to the means of their units.
fn scatter(rows: &TestPoints, ids: &[u32], unit: usize) -> f64 {
    let value = |id: &u32, i: usize| f64::from(rows.0[*id as usize * rows.1 + i]);
    let of_unit = |unit: &[u32], i: usize| {
        let mean = unit.iter().map(|id| value(id, i)).sum::<f64>() / unit.len() as f64;
        unit.iter().map(|id| (value(id, i) - mean).powi(2)).sum::<f64>()
    };
    ids.chunks(unit).map(|unit| (0..rows.1).map(|i| of_unit(unit, i)).sum::<f64>()).sum()
}

#[test]
fn exchange_brings_members_nearer_to_the_means_of_their_groups() {
    let mut random = StdRng::seed_from_u64(3);
    // More groups than are searched at once, so that near groups are found by runs and by runs of runs.
    let (dim, unit, count) = (6, 8, 8 * 600 + 3);
    let rows = TestPoints((0..count * dim).map(|_| random.random_range(-1.0_f32..1.0)).collect(), dim);
    let (halved, swapped) = (order(&rows, placement(unit, 2)), order(&rows, exchanging(unit, 2)));
    let mut sorted = swapped.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..count as u32).collect::<Vec<_>>(), "not a permutation");
    let (before, after) = (scatter(&rows, &halved, unit), scatter(&rows, &swapped, unit));
    assert!(after < 0.92 * before, "{before} before, {after} after");
    // Only groups change: the units of four groups stay as halving placed them.
    let near = |ids: &[u32]| scatter(&rows, ids, 4 * unit);
    assert!(near(&swapped) < 1.1 * near(&halved), "{} {}", near(&halved), near(&swapped));
}

#[test]
fn smaller_units_within_exchanged_groups_are_full() {
    let mut random = StdRng::seed_from_u64(4);
    let rows = TestPoints((0..1000 * 4).map(|_| random.random_range(0.0..1.0)).collect(), 4);
    let pages = Placement { units: vec![5, 30, 120], ..exchanging(30, 2) };
    let groups = Placement { units: vec![30, 120], ..exchanging(30, 2) };
    let (ids, coarse) = (order(&rows, pages), order(&rows, groups));
    for (fine, coarse) in ids.chunks(30).zip(coarse.chunks(30)) {
        let mut sorted = fine.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, coarse, "members of another group");
    }
    assert!(scatter(&rows, &ids, 5) < 0.8 * scatter(&rows, &coarse, 5));
}

#[test]
fn degenerate_sets_are_placed() {
    let values: [fn(usize) -> f32; 5] = [
        |_| 1.0,
        |i| if i.is_multiple_of(2) { 1e19 } else { -1e19 },
        |i| i as f32 * 1e-30,
        |i| if i == 7 { f32::MAX } else { 0.0 },
        |i| if i.is_multiple_of(9) { f32::MAX } else { -f32::MAX },
    ];
    for value in values {
        for count in [1, 2, 3, 30, 31, 32, 125, 5000] {
            let rows = TestPoints((0..count * 3).map(value).collect(), 3);
            for placement in [placement(31, 2), exchanging(31, 2), exchanging(1, 2), exchanging(125, 2)] {
                let mut ids = order(&rows, placement);
                ids.sort_unstable();
                assert_eq!(ids, (0..count as u32).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn exchange_can_be_cancelled() {
    struct CancelAt(std::sync::atomic::AtomicU64, u64);
    impl bathyal_vectors::progress::Progress for CancelAt {
        fn stage(&self, _name: &str, _total: u64) {}
        fn advance(&self, _done: u64) {}
        fn cancelled(&self) -> bool {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= self.1
        }
    }
    let mut random = StdRng::seed_from_u64(5);
    let rows = TestPoints((0..4000 * 4).map(|_| random.random_range(0.0..1.0)).collect(), 4);
    let all = CancelAt(0.into(), u64::MAX);
    let mut ids: Vec<u32> = (0..4000).collect();
    exchanging(16, 1).order(&rows, &mut ids, &all).expect("nothing cancels");
    let checks = all.0.into_inner();
    assert!(checks > 1000, "only {checks} checks for cancellation");
    for at in (0..checks).step_by(checks as usize / 50) {
        let mut ids: Vec<u32> = (0..4000).collect();
        let cancelled = exchanging(16, 1).order(&rows, &mut ids, &CancelAt(0.into(), at));
        assert!(matches!(cancelled, Err(crate::error::IndexError::Cancelled)), "at {at} of {checks}");
    }
}

#[test]
fn planes_make_parts_of_about_the_requested_size() {
    let mut random = StdRng::seed_from_u64(3);
    let rows = TestPoints((0..8000 * 6).map(|_| random.random_range(-1.0..1.0)).collect(), 6);
    let planes = Planes::new(&rows, 4000, 8000, 1000, 5);
    let mut sizes = vec![0; planes.parts()];
    let mut row = [0.0; 6];
    for id in 0..8000 {
        rows.read(id, &mut row);
        sizes[planes.part(&row)] += 1;
    }
    assert!(sizes.len() >= 8 && sizes.iter().all(|size| (200..=1000).contains(size)), "{sizes:?}");

    let equal = TestPoints(vec![1.0; 500 * 2], 2);
    let planes = Planes::new(&equal, 500, 500, 100, 5);
    assert!(planes.parts() > 1 && planes.part(&[1.0, 1.0]) < planes.parts());
}
