use super::*;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// Distances with many ties, both signs, both zeros and infinities.
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
        // By comparison of floats, independently of keys.
        let by_distance = a.distance.partial_cmp(&b.distance).unwrap();
        by_distance.then(a.id.cmp(&b.id))
    });
    sorted
}

#[test]
fn top_k_is_the_start_of_the_sorted_whole() {
    let mut random = SmallRng::seed_from_u64(5);
    let mut drained = Vec::new();
    for round in 0..600 {
        let neighbors = neighbors(random.random_range(0..90), &mut random);
        let expected = sorted(&neighbors);
        let k = round % 50;
        let mut top = TopK::new(k);
        for (seen, neighbor) in neighbors.iter().enumerate() {
            let before = sorted(&neighbors[..seen]);
            let room = seen < k;
            let wins = room || before.get(k.wrapping_sub(1)).is_some_and(|w| neighbor < w);
            assert_eq!(top.push(neighbor.id, neighbor.distance), wins);
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
        // The same by sorting everything anew: neighbour, and whether it was expanded.
        let mut naive: Vec<(Neighbor, bool)> = Vec::new();
        for neighbor in neighbors(random.random_range(0..120), &mut random) {
            naive.push((neighbor, false));
            naive.sort();
            naive.truncate(capacity);
            let kept = naive.iter().any(|(held, _)| *held == neighbor);
            assert_eq!(list.insert(neighbor), kept);
            assert!(!list.insert(Neighbor { distance: f32::NAN, id: 1 }));
            assert!(list.iter().eq(naive.iter().map(|(held, _)| *held)));
            assert_eq!((list.len(), list.is_empty()), (naive.len(), naive.is_empty()));
            let worst = if naive.len() < capacity { None } else { naive.last() };
            let infinite = if capacity == 0 { f32::NEG_INFINITY } else { f32::INFINITY };
            let threshold = worst.map_or(infinite, |(held, _)| held.distance);
            assert_eq!(list.threshold(), threshold);
            while random.random_bool(0.4) {
                let next = naive.iter_mut().find(|(_, expanded)| !expanded);
                assert_eq!(list.peek_unexpanded(), next.as_deref().map(|(held, _)| *held));
                assert_eq!(list.next_unexpanded(), next.as_deref().map(|(held, _)| *held));
                match next {
                    Some((_, expanded)) => *expanded = true,
                    None => break,
                }
            }
        }
    }
}

/// A distance that ties with others more often than not.
fn distance() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => (-3_i8..4).prop_map(f32::from),
        2 => -9.0_f32..9.0,
        1 => prop_oneof![Just(-0.0), Just(0.0), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(f32::NAN)],
        1 => any::<f32>(),
    ]
}

fn pushed() -> impl Strategy<Value = Vec<(u32, f32)>> {
    prop::collection::vec((any::<u32>(), distance()), 0..80)
}

proptest! {
    #[test]
    fn what_is_kept_does_not_depend_on_the_order(
        (pushed, shuffled) in pushed().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        k in 0_usize..40,
    ) {
        let kept = |all: &[(u32, f32)]| {
            let mut top = TopK::new(k);
            for (id, distance) in all {
                top.push(*id, *distance);
            }
            top.into_sorted()
        };
        let found = kept(&pushed);
        prop_assert_eq!(&found, &kept(&shuffled));
        let numbers = pushed.iter().filter(|(_, distance)| !distance.is_nan()).count();
        prop_assert_eq!(found.len(), k.min(numbers));
        prop_assert!(found.is_sorted());
    }

    #[test]
    fn lists_in_parts_are_the_list_of_all(pushed in pushed(), k in 0_usize..40, cut in 0_usize..80) {
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
    fn a_key_is_a_neighbor_and_orders_as_it(left in (any::<u32>(), distance()), right in (any::<u32>(), distance())) {
        let [left, right] = [left, right].map(|(id, distance)| Neighbor { distance, id });
        for neighbor in [left, right] {
            let back = Neighbor::from_key(neighbor.key());
            prop_assert!(back.id == neighbor.id && back.distance.to_bits() == (neighbor.distance + 0.0).to_bits());
        }
        if let Some(order) = left.distance.partial_cmp(&right.distance) {
            prop_assert_eq!(left.cmp(&right), order.then(left.id.cmp(&right.id)));
        }
    }

    #[test]
    fn candidates_are_expanded_nearest_first_and_once(
        pushed in pushed(), capacity in 0_usize..30, expand in prop::collection::vec(0_usize..4, 80),
    ) {
        let mut list = CandidateList::new(capacity);
        let mut expanded: Vec<Neighbor> = Vec::new();
        // Each id once, as the visited set of a search has it.
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
        // What is held in the end was expanded.
        for held in list.iter() {
            prop_assert!(ids.binary_search(&held.id).is_ok());
        }
    }
}

#[test]
fn the_nearest_are_kept_whatever_they_are_and_however_many() {
    let mut random = SmallRng::seed_from_u64(5);
    for count in [1, 2, 95, 96, 97, 103, 104, 200, 1000, 2047, 2048, 5003, 30_000] {
        for sort in [None, Some(false), Some(true)] {
            let mut all = neighbors(count, &mut random);
            if let Some(falling) = sort {
                all.sort_unstable();
                if falling {
                    all.reverse();
                }
            }
            let order = sorted(&all);
            let some =
                [1, 2, 7, 8, 9, 31, 50, 95, count / 10, count / 3, count / 2, count - 1, count, count + 1];
            for wanted in some.into_iter().filter(|wanted| *wanted > 0) {
                let mut found = all.clone();
                let worst = keep_nearest(&mut found, wanted as usize);
                let kept = order.len().min(wanted as usize);
                assert_eq!(sorted(&found), order[..kept], "{wanted} of {count}");
                let farthest = if wanted > count { f32::INFINITY } else { order[kept - 1].distance };
                assert_eq!(worst.partial_cmp(&farthest), Some(Ordering::Equal), "{wanted} of {count}");
            }
        }
    }
}
