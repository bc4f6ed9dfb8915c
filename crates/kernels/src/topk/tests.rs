use super::*;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// Returns neighbours with many equal distances, both signs, both zeros and infinities.
fn neighbors(count: u32, random: &mut SmallRng) -> Vec<Neighbor> {
    let mut neighbors: Vec<Neighbor> = (0..count)
        .map(|id| Neighbor {
            distance: match random.random_range(0..12) {
                0 => -0.0,
                1 => f32::INFINITY,
                2 => f32::NEG_INFINITY,
                3 => random.random_range(-1e-40_f32..1e-40),
                4..8 => random.random_range(-3_i8..4).into(),
                _ => random.random_range(-9.0..9.0),
            },
            id: id ^ 0x8000_0000,
        })
        .collect();
    neighbors.shuffle(random);
    neighbors
}

fn sorted(neighbors: &[Neighbor]) -> Vec<Neighbor> {
    let mut sorted = neighbors.to_vec();
    sorted.sort_by(|a, b| {
        // Compares floats and not keys.
        let by_distance = a.distance.partial_cmp(&b.distance).unwrap();
        by_distance.then(a.id.cmp(&b.id))
    });
    sorted
}

#[test]
fn top_k_equals_the_first_k_of_all_sorted_neighbours() {
    let mut random = SmallRng::seed_from_u64(5);
    let mut drained = Vec::new();
    for round in 0..600 {
        let neighbors = neighbors(random.random_range(0..90), &mut random);
        let expected = sorted(&neighbors);
        let k = round % 50;
        let mut top = TopK::new(k);
        for (seen, neighbor) in neighbors.iter().enumerate() {
            let before = sorted(&neighbors[..seen]);
            let has_space = seen < k;
            let is_added = has_space || before.get(k.wrapping_sub(1)).is_some_and(|w| neighbor < w);
            assert_eq!(top.push(neighbor.id, neighbor.distance), is_added);
            assert!(!top.push(7, f32::NAN));
            let now = sorted(&neighbors[..=seen]);
            let full = now.len() >= k && k > 0;
            let infinite = if k == 0 { f32::NEG_INFINITY } else { f32::INFINITY };
            let threshold = if full { now[k - 1].distance } else { infinite };
            assert_eq!(top.threshold(), threshold);
        }
        let kept = &expected[..k.min(expected.len())];
        assert_eq!((top.len(), top.is_empty()), (kept.len(), kept.is_empty()));
        drained.truncate(1);
        top.clone().drain_sorted(&mut drained);
        assert_eq!(&drained[drained.len() - kept.len()..], kept);
        assert_eq!(top.into_sorted(), kept);
    }
}

#[test]
fn candidates_agree_with_a_sorted_list_of_all() {
    let mut random = SmallRng::seed_from_u64(6);
    let mut list = CandidateList::new(3);
    for _ in 0..600 {
        let capacity = random.random_range(0..40);
        list.reset(capacity);
        // The reference sorts all candidates after every insert: neighbour, and whether it was expanded.
        let mut naive: Vec<(Neighbor, bool)> = Vec::new();
        for neighbor in neighbors(random.random_range(0..120), &mut random) {
            naive.push((neighbor, false));
            naive.sort();
            naive.truncate(capacity);
            let is_kept = naive.iter().any(|(candidate, _)| *candidate == neighbor);
            assert_eq!(list.insert(neighbor), is_kept);
            assert!(!list.insert(Neighbor { distance: f32::NAN, id: 1 }));
            assert!(list.iter().eq(naive.iter().map(|(candidate, _)| *candidate)));
            assert_eq!((list.len(), list.is_empty()), (naive.len(), naive.is_empty()));
            let worst = if naive.len() < capacity { None } else { naive.last() };
            let infinite = if capacity == 0 { f32::NEG_INFINITY } else { f32::INFINITY };
            let threshold = worst.map_or(infinite, |(candidate, _)| candidate.distance);
            assert_eq!(list.threshold(), threshold);
            while random.random_bool(0.4) {
                let next = naive.iter_mut().find(|(_, expanded)| !expanded);
                assert_eq!(list.peek_unexpanded(), next.as_deref().map(|(candidate, _)| *candidate));
                assert_eq!(list.next_unexpanded(), next.as_deref().map(|(candidate, _)| *candidate));
                match next {
                    Some((_, expanded)) => *expanded = true,
                    None => break,
                }
            }
        }
    }
}

/// Generates distances that are often equal.
fn distance() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => (-3_i8..4).prop_map(f32::from),
        2 => -9.0_f32..9.0,
        1 => prop_oneof![Just(-0.0), Just(0.0), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(f32::NAN)],
        1 => any::<f32>(),
    ]
}

fn pushes() -> impl Strategy<Value = Vec<(u32, f32)>> {
    prop::collection::vec((any::<u32>(), distance()), 0..80)
}

proptest! {
    #[test]
    fn the_list_does_not_depend_on_the_order_of_pushes(
        (pushed, shuffled) in pushes().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        k in 0_usize..40,
    ) {
        let top_k_of = |all: &[(u32, f32)]| {
            let mut top = TopK::new(k);
            for (id, distance) in all {
                top.push(*id, *distance);
            }
            top.into_sorted()
        };
        let found = top_k_of(&pushed);
        prop_assert_eq!(&found, &top_k_of(&shuffled));
        let numbers = pushed.iter().filter(|(_, distance)| !distance.is_nan()).count();
        prop_assert_eq!(found.len(), k.min(numbers));
        prop_assert!(found.is_sorted());
    }

    #[test]
    fn lists_of_parts_merge_into_the_list_of_all(pushed in pushes(), k in 0_usize..40, cut in 0_usize..80) {
        let top = |all: &[(u32, f32)]| {
            let mut top = TopK::new(k);
            for (id, distance) in all {
                top.push(*id, *distance);
            }
            top
        };
        let (left, right) = pushed.split_at(cut.min(pushed.len()));
        let mut joined = top(left);
        for neighbor in top(right).into_sorted() {
            joined.push(neighbor.id, neighbor.distance);
        }
        prop_assert_eq!(joined.into_sorted(), top(&pushed).into_sorted());
    }

    #[test]
    fn a_key_round_trips_and_has_the_order_of_its_neighbor(
        left in (any::<u32>(), distance()),
        right in (any::<u32>(), distance()),
    ) {
        let [left, right] = [left, right].map(|(id, distance)| Neighbor { distance, id });
        for neighbor in [left, right] {
            let back = Neighbor::from_key(neighbor.key());
            prop_assert_eq!(back.id, neighbor.id);
            prop_assert_eq!(back.distance.to_bits(), (neighbor.distance + 0.0).to_bits());
        }
        if let Some(order) = left.distance.partial_cmp(&right.distance) {
            prop_assert_eq!(left.cmp(&right), order.then(left.id.cmp(&right.id)));
        }
    }

    #[test]
    fn candidates_are_expanded_nearest_first_and_once(
        pushed in pushes(), capacity in 0_usize..30, expand in prop::collection::vec(0_usize..4, 80),
    ) {
        let mut list = CandidateList::new(capacity);
        let mut expanded: Vec<Neighbor> = Vec::new();
        // Each id appears once, as the visited set of a search ensures.
        for (id, ((_, distance), times)) in (0..).zip(pushed.iter().zip(expand)) {
            list.insert(Neighbor { id, distance: *distance });
            for _ in 0..times {
                let peeked = list.peek_unexpanded();
                let next = list.next_unexpanded();
                prop_assert_eq!(peeked, next);
                expanded.extend(next);
            }
            prop_assert!(list.len() <= capacity && list.iter().is_sorted());
        }
        expanded.extend(std::iter::from_fn(|| list.next_unexpanded()));
        let mut ids: Vec<u32> = expanded.iter().map(|neighbor| neighbor.id).collect();
        ids.sort_unstable();
        prop_assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "one was expanded twice");
        // All candidates that are left at the end were expanded.
        for candidate in list.iter() {
            prop_assert!(ids.binary_search(&candidate.id).is_ok());
        }
    }
}
