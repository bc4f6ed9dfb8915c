//! A search that no index accepts is refused before anything is opened, with the sentence of the library. It
//! is the same in Rust (`crates/index/src/open/request.rs`) and in Python
//! (`python/tests/test_contradictions.py`).

use crate::harness::{bathyal, shared};

/// Options of a search, and the sentence that refuses them.
const REFUSED: &[(&str, &str)] = &[
    ("--recall 0.9 --search-list 50", "recall is 0.9 and search_list is 50; give one of them"),
    ("--recall 0.9 --ratio 1.1", "recall is 0.9 and ratio is 1.1; give one of them"),
    ("--search-list 50 --ratio 1.1", "search_list is 50 and ratio is 1.1; give one of them"),
    (
        "--recall 0.9 --search-list 50 --ratio 1.1",
        "recall is 0.9 and search_list is 50 and ratio is 1.1; give one of them",
    ),
    ("--recall 1.5", "recall is 1.5; it must be above 0 and at most 1"),
    ("--ratio 0.5", "ratio is 0.5; it must be at least 1, for example 1.05"),
    ("--ratio 1.1 --probability 0.5", "ratio is 1.1 and probability is 0.5; give one of them"),
    ("--within 2", "within is 2, but there is no probability; give both"),
    ("--probability 1", "probability is 1; it must be above 0 and below 1, for example 0.9"),
    ("--probability 0.5 --within 1", "within is 1; it must be above 1, for example 4"),
    ("--search-list 0", "search_list is 0; it must be at least k"),
    ("--search-list 2097152", "search_list is 2097152; it must be at most 1048576"),
    ("--probes 0", "probes is 0; at least one group must be scanned"),
    ("--prune=-0.5", "prune is -0.5; it must be 0 or above"),
    ("--beam-width 0", "beam_width is 0; it must be between 1 and 128"),
    ("--beam-width 129", "beam_width is 129; it must be between 1 and 128"),
    ("--multi-probe 65", "multi_probe is 65; it must be at most 64"),
    ("--in-flight 0", "in_flight is 0; at least one query must run on each thread"),
];

#[test]
fn a_contradiction_is_refused_with_the_sentence_of_the_library() {
    for (options, sentence) in REFUSED {
        // Neither file exists, so the refusal does not depend on them.
        let line = format!("search missing.idx missing.fbin {options}");
        bathyal(shared(), &line).fails(2, &[sentence]);
    }
}

#[test]
fn other_searches_refuse_the_same_contradictions() {
    let sentence = "recall is 0.9 and search_list is 50; give one of them";
    for search in ["search i q --explain", "search i q --also j", "collection search c q"] {
        let line = format!("{search} --recall 0.9 --search-list 50");
        bathyal(shared(), &line).fails(2, &[sentence]);
    }
    bathyal(shared(), "search i q --radius 1 --in-flight 0").fails(2, &["in_flight is 0"]);
    bathyal(shared(), "bench i q --groundtruth g --search-lists 20,0").fails(2, &["search_list is 0"]);
}
