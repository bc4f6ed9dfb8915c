//! The load of the devices of a stripe under searches of every family.
//!
//! `cargo test -p bathyal-index --test all the_load_is_even -- --nocapture` prints a table like that of
//! `docs/stripes.md`, which `examples/stripe_spread.rs` prints for any index.

use crate::cases::quick_build;
use crate::clustered::vectors;
use crate::stripes::spread::measure;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::{
    ClusterOptions, Effort, GraphLayoutChoice, GraphOptions, PostingLayout, SearchOptions, SpannOptions,
    build,
};
use bathyal_kernels::Element;
use bathyal_vectors::progress::Silent;

const DEVICES: usize = 6;
/// Bytes of a unit. The files of these small indexes have as many units as a file of a gigabyte has units of
/// 256 KB.
const UNIT: u32 = 4096;

#[test]
fn the_load_is_even_under_the_searches_of_every_family() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 12_000, 64, 1), vectors(Element::U8, 1500, 64, 2));
    let graph = |layout| GraphOptions { layout, max_degree: 20, search_list: 40, ..GraphOptions::default() };
    let lists = SpannOptions { layout: PostingLayout::Coupled, ..SpannOptions::default() };
    let kinds = [
        ("padded", quick_build(graph(GraphLayoutChoice::Padded))),
        ("page_local", quick_build(graph(GraphLayoutChoice::PageLocal))),
        ("cluster", quick_build(ClusterOptions::default())),
        ("lists", quick_build(lists)),
        ("flat", quick_build(FlatOptions::default())),
    ];
    println!("{:<10} {:>9} {:>9} {:>9} {:>16}", "index", "reads", "most/mean", "crossing", "p99 us");
    for (name, options) in kinds {
        let path = dir.path().join(name);
        build(&data, &path, &options, &Silent).unwrap();
        let (queries, effort) = match name {
            // Every query reads all vectors, so that few queries are enough.
            "flat" => (vectors(Element::U8, 50, 64, 2), Effort::Recall(1.0)),
            _ => (queries.clone(), Effort::SearchList(40)),
        };
        let options = SearchOptions { effort, in_flight: Some(8), ..SearchOptions::default() };
        let spread = measure(&path, &queries, &options, DEVICES, UNIT);
        let (all, (least, most)) = (spread.reads.iter().sum::<u64>(), spread.p99_range_us());
        println!(
            "{name:<10} {all:>9} {:>9.3} {:>9.3} {:>16}",
            spread.imbalance(),
            spread.crossing,
            format!("{least}..{most}")
        );
        assert!(spread.imbalance() < 1.25, "{name}: {spread:?}");
        assert!(most < 2 * least, "{name}: {spread:?}");
    }
}
