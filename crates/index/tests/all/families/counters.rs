//! Counters of the families, compared with golden files.

use crate::clustered::vectors;
use crate::families::kinds::{Family, KINDS};
use crate::families::places::open;
use bathyal_index::{MOST_OWN_COUNTERS, OpenOptions, PostingLayout, SearchMode, SearchTotals, families};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use std::collections::BTreeSet;

#[test]
fn results_show_the_counters_of_their_family_and_no_others() {
    let common = serde_json::to_value(SearchTotals::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 400, 16, 1), vectors(Element::U8, 5, 16, 2));
    for kind in KINDS {
        let path = dir.path().join(kind.name);
        kind.build(&path, &data, Metric::L2);
        let index = open(&path, OpenOptions::default());
        let counters = families::find(&index.manifest().family).unwrap().counters;
        let names: BTreeSet<&str> = counters.iter().map(|counter| counter.name).collect();
        assert!(names.len() == counters.len() && counters.len() <= MOST_OWN_COUNTERS, "{counters:?}");
        assert!(counters.iter().all(|own| common.get(own.name).is_none() && !own.about.ends_with('.')));
        let found = kind.search(&index, &queries, SearchMode::Batched).unwrap();
        let own: BTreeSet<&str> = found.own.columns().map(|(counter, _)| counter.name).collect();
        assert_eq!((&own, &names), (&names, &own), "{}", kind.name);
        assert!(found.own.columns().all(|(_, counts)| counts.len() == 5));
        let shown = serde_json::to_value(&found.totals).unwrap();
        let expected = common.as_object().unwrap().len() + names.len();
        assert_eq!(shown.as_object().unwrap().len(), expected, "{shown}");
        let stats = index.stats();
        assert!(found.totals.own.iter().all(|(counter, count)| stats.own.of(counter.name) == Some(count)));
        let text = stats.to_prometheus();
        assert!(names.iter().all(|name| text.contains(&format!("bathyal_{name}_total{{"))), "{text}");
    }
}

#[test]
fn counters_of_posting_lists_change_only_on_purpose() {
    if crate::golden::ran_on_every_isa(module_path!(), "counters_of_posting_lists_change_only_on_purpose") {
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
        // A query has one round for the lists, and one for addresses or candidates.
        assert!(
            totals.hops <= 100 && totals.own.of("lists") == Some(50 * u64::from(kind.effort)),
            "{totals:?}"
        );
        let copies = kind.family == Family::Lists(PostingLayout::Coupled) && kind.code.is_none();
        assert_eq!(totals.own.of("small_reads") == Some(0), copies, "{totals:?}");
        found.insert(kind.name.into(), serde_json::to_value(totals).unwrap());
    }
    crate::golden::compare("lists.json", found.into());
}

#[test]
fn counters_of_hash_tables_change_only_on_purpose() {
    if crate::golden::ran_on_every_isa(module_path!(), "counters_of_hash_tables_change_only_on_purpose") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tables");
    let (data, queries) = (vectors(Element::U8, 3000, 32, 1), vectors(Element::U8, 50, 32, 2));
    let kind = KINDS.into_iter().find(|kind| kind.family == Family::Lsh).unwrap();
    kind.build(&path, &data, Metric::L2);
    let index = open(&path, OpenOptions::default());
    let built = kind.search(&index, &queries, SearchMode::Batched).unwrap().totals;
    // Two rounds: the blocks of all tables, and the candidates.
    assert_eq!((built.hops, built.own.of("entries")), (100, Some(built.code_distances)), "{built:?}");
    let mut options = kind.search_options(SearchMode::Batched);
    (options.probes, options.multi_probe) = (Some(1), Some(3));
    let more_buckets = index.search(&queries, &options, Control::default()).unwrap().totals;
    // One read covers two buckets that are near each other, and the blocks between them.
    assert!(
        more_buckets.own.of("table_reads") <= built.own.of("table_reads").map(|reads| 4 * reads),
        "{more_buckets:?}"
    );
    // Inserted vectors are compared without a read. Deleted ones are not candidates.
    index.insert(&vectors(Element::U8, 300, 32, 3)).unwrap();
    index.delete(&(0..3000).step_by(10).collect::<Vec<_>>()).unwrap();
    let changed = kind.search(&index, &queries, SearchMode::Batched).unwrap().totals;
    assert_eq!(changed.own.of("table_reads"), built.own.of("table_reads"));
    assert_eq!(changed.code_distances, built.code_distances);
    let found = serde_json::json!({ "built": built, "changed": changed, "further": more_buckets });
    crate::golden::compare("tables.json", found);
}
