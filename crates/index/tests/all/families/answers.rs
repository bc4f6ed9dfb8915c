//! Answers of every family: they reach the recall, have the true distances, and are the same on every tier.

use crate::cases::case_runs;
use crate::clustered::vectors;
use crate::families::kinds::{KINDS, Kind, Shared, recall};
use crate::families::places::{PLACES, Place, VARIANTS, some};
use bathyal_index::{QueryStats, SearchMode, SearchResult};
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{IdFile, VectorFile};
use std::path::Path;

/// Returns the counters of each query without the bytes, because tiers read in units of different sizes.
fn without_bytes(found: &SearchResult) -> Vec<QueryStats> {
    found.per_query.iter().map(|stats| QueryStats { bytes: 0, ..*stats }).collect()
}

/// The least recall, and the largest relative error of distances.
pub struct Allowed {
    pub recall: f64,
    pub error: f32,
}

const NEARLY_ALL: Allowed = Allowed { recall: 0.95, error: 1e-2 };

/// Searches on the tiers `places`, batched and pipelined, and checks that tiers of the same kind give the
/// same answers and counters. Returns the answers of files.
pub fn same_everywhere<'a>(
    kind: Kind,
    places: impl IntoIterator<Item = &'a Place>,
    path: &Path,
    queries: &VectorFile,
    truth: &IdFile,
    allowed: &Allowed,
    what: &str,
) -> SearchResult {
    let mut expected: [Option<SearchResult>; 2] = [None, None];
    for place in places {
        let what = format!("{what} on {}", place.name);
        let index = place.open(path);
        let found = kind.search(&index, queries, SearchMode::Batched).unwrap();
        let single =
            place.memory && kind.reads_single_in_memory() || place.node && kind.reads_single_in_nodes();
        let expected = expected[usize::from(single)].get_or_insert_with(|| found.clone());
        assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{what}");
        let same_cost = !kind.adapts_reads() || place.reads_like_files;
        assert!(!same_cost || without_bytes(&found) == without_bytes(expected), "{what}: other counters");
        let piped = kind.search(&index, queries, SearchMode::Pipelined).unwrap();
        if kind.ignores_read_order() {
            assert_eq!((&piped.ids, &piped.distances), (&expected.ids, &expected.distances), "{what}");
        }
        for found in [&found, &piped] {
            let share = recall(found, truth);
            assert!(share >= allowed.recall, "{what}: recall {share}");
            check_distances(found, truth, allowed.error, &what);
        }
    }
    expected[0].take().unwrap()
}

/// Checks that distances are sorted, and that they are the true ones but for `error`.
fn check_distances(found: &SearchResult, truth: &IdFile, error: f32, what: &str) {
    for (q, row) in found.distances.chunks(found.k).enumerate() {
        assert!(row.is_sorted(), "{what} query {q}: {row:?}");
        for (id, distance) in found.ids[q * found.k..].iter().zip(row) {
            let Some(rank) = truth.ids(q).iter().position(|near| near == id) else { continue };
            let exact = truth.distances(q).unwrap()[rank];
            assert!((distance - exact).abs() <= error * exact.abs().max(0.1), "{what}: {distance}");
        }
    }
}

#[test]
fn every_metric_and_element_reaches_its_recall_in_every_layout_on_every_tier() {
    let pairs = Metric::ALL.into_iter().flat_map(|metric| Element::ALL.map(|element| (metric, element)));
    for (number, (metric, element)) in pairs.enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let (data, queries) = (vectors(element, 800, 24, 1), vectors(element, 40, 24, 2));
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        let mut of_lists: Option<SearchResult> = None;
        // Under the inner product of bits, the nearest vectors have the most ones. They are in all
        // partitions.
        let most_ones = (metric, element) == (Metric::InnerProduct, Element::B1);
        let allowed = Allowed { recall: if most_ones { 0.85 } else { NEARLY_ALL.recall }, ..NEARLY_ALL };
        for (at, kind) in
            KINDS.into_iter().enumerate().filter(|(at, _)| case_runs(number * KINDS.len() + at, 7))
        {
            let what = format!("{metric} {element} {}", kind.name);
            let path = dir.path().join(kind.name);
            kind.build(&path, &data, metric);
            let found = same_everywhere(kind, some(number + at), &path, &queries, &truth, &allowed, &what);
            // The layout of lists changes the reads and not the answers. Codes may miss a neighbour.
            if kind.is_lists() && kind.code.is_none() {
                let same = of_lists.get_or_insert_with(|| found.clone());
                assert_eq!((&found.ids, &found.distances), (&same.ids, &same.distances), "{what}");
            }
        }
    }
}

#[test]
fn answers_and_counters_are_the_same_on_every_tier() {
    let shared = Shared::get();
    for (number, kind) in KINDS.into_iter().enumerate() {
        same_everywhere(
            kind,
            // Every kind has other variants.
            PLACES.iter().chain(
                VARIANTS
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| case_runs(number + at, 2))
                    .map(|(_, place)| place),
            ),
            &shared.path(number),
            &shared.queries,
            &shared.truth,
            &NEARLY_ALL,
            kind.name,
        );
    }
}
