//! Memory: what is allowed is kept to, and what is said to be enough is.

use crate::clustered::vectors;
use crate::kinds::{KINDS, recall};
use crate::places::PLACES;
use bathyal_index::{Effort, Index, IndexError, MemorySplit, OpenOptions, SearchOptions};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;

#[test]
fn budgets_hold_on_every_tier() {
    let dir = tempfile::tempdir().unwrap();
    // Long rows, so that codes are much smaller than centroids.
    let (data, queries) = (vectors(Element::F32, 2000, 400, 1), vectors(Element::F32, 40, 400, 2));
    let truth = exact_neighbors(&data, &queries, Metric::L2, 10, None, &Silent).unwrap();
    for kind in KINDS {
        let path = dir.path().join(kind.name);
        let options = kind.options_with(Metric::L2, |lists| {
            (lists.code_bytes, lists.centroid_share, lists.replicas) = (Some(32), 0.3, Some(2));
        });
        kind.build_with(&path, &data, &options);
        for place in &PLACES {
            let what = format!("{} on {}", kind.name, place.name);
            let budget = |bytes| move |options| OpenOptions { memory_bytes: Some(bytes), ..options };
            let least = match place.try_open_with(&path, budget(1)) {
                Err(IndexError::Memory { needed, .. }) => needed,
                other => panic!("{what}: {:?}", other.err()),
            };
            let refused = place.try_open_with(&path, budget(least - 1));
            assert!(matches!(refused, Err(IndexError::Memory { .. })), "{what}");
            let mut splits = Vec::new();
            for bytes in [0, 100 << 10, 1 << 20, 4 << 20, 64 << 20].map(|more| least + more) {
                let index = place.open_with(&path, budget(bytes));
                splits.push(*index.memory_split());
                let options =
                    SearchOptions { effort: Effort::SearchList(100), threads: 1, ..Default::default() };
                let found = index.search(&queries, &options, Control::default()).unwrap();
                let share = recall(&found, &truth);
                // Graphs of few links in so many dimensions find a little less.
                assert!(share >= 0.9, "{what} with {bytes} bytes: recall {share}");
                within(&index, bytes, &what);
            }
            if kind.is_lists() {
                let coded = splits.iter().filter(|split| split.codes > 0).count();
                assert!((1..5).contains(&coded), "{what}: codes in {coded} of 5 budgets");
            }
        }
    }
}

fn within(index: &Index, bytes: u64, what: &str) {
    let split: MemorySplit = *index.memory_split();
    assert!(split.fixed() + split.searches <= bytes, "{what}: {split:?}");
    assert!(index.dram_bytes(1, 1, 100) <= bytes, "{what}: {split:?}");
}
