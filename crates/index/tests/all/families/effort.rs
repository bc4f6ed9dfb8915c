//! Searches of little effort find k vectors.

use crate::clustered::vectors;
use crate::families::kinds::KINDS;
use crate::families::places::PLACES;
use bathyal_index::SearchOptions;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;

#[test]
fn searches_find_k_vectors_at_any_effort() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 500, 16, 1), vectors(Element::U8, 20, 16, 2));
    for kind in KINDS {
        let path = dir.path().join(kind.name);
        kind.build_with(&path, &data, &kind.options_with(Metric::L2, |lists| lists.replicas = Some(1)));
        for place in &PLACES {
            let index = place.open(&path);
            // One list, some lists, and more lists than there are. The nearest list has fewer than k vectors.
            for probes in [1, 5, 1000] {
                let lists = kind.is_lists();
                let (probes, prune) = (lists.then_some(probes), lists.then_some(1e-6));
                let effort = kind.effort(100);
                let options = SearchOptions { k: 100, effort, probes, prune, ..SearchOptions::default() };
                let what = format!("{} on {}, {probes:?}", kind.name, place.name);
                let found = index.search(&queries, &options, Control::default());
                let found = found.unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(found.ids.len(), 20 * 100, "{what}");
            }
        }
    }
}
