//! Counters that change only on purpose.

use crate::clustered::vectors;
use crate::golden;
use crate::kinds::{Family, KINDS};
use crate::places::open;
use bathyal_index::{OpenOptions, PostingLayout, SearchMode};
use bathyal_kernels::{Element, Metric};

#[test]
fn counters_of_posting_lists_change_only_on_purpose() {
    if golden::ran_on_every_isa("counters::counters_of_posting_lists_change_only_on_purpose") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 3000, 32, 1), vectors(Element::U8, 50, 32, 2));
    let mut found = serde_json::Map::new();
    for kind in KINDS.into_iter().filter(|kind| kind.is_lists()) {
        let path = dir.path().join(kind.name);
        kind.build(&path, &data, Metric::L2);
        let index = open(&path, OpenOptions::default());
        let totals = kind.search(&index, &queries, SearchMode::Batched).unwrap().totals;
        // Round trips are one of the lists, and one more of addresses or candidates.
        assert!(totals.hops <= 100 && totals.lists == 50 * u64::from(kind.effort), "{totals:?}");
        let copies = kind.family == Family::Lists(PostingLayout::Coupled) && kind.code.is_none();
        assert_eq!(totals.small_reads == 0, copies, "{totals:?}");
        found.insert(kind.name.into(), serde_json::to_value(totals).unwrap());
    }
    golden::compare("lists.json", found.into());
}
