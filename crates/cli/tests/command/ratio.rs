//! The overall ratio that `search` and `bench` report.

use std::path::Path;

use serde_json::Value;

use crate::harness::{QUERIES, VECTORS, bathyal, copy, fbin};

/// The options of `build` for every family.
const FAMILIES: [&str; 5] = ["flat", "cluster", "graph", "spann --layout coupled", "spann --layout grouped"];

fn search(folder: &Path, line: &str) -> Value {
    bathyal(folder, &format!("search {line} --json")).json()
}

fn number(answer: &Value, key: &str) -> f64 {
    answer[key].as_f64().unwrap_or_else(|| panic!("{key} of {answer}"))
}

/// Computes the mean ratio of the answers in the file `found` (`queries x 10`) to the exact neighbours in the
/// file `exact` (`queries x 20`), with squared distances, independently of the command.
fn ratio_of_files(folder: &Path, found: &str, exact: &str) -> f64 {
    let distances = |name: &str, k: usize| -> Vec<f64> {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let words = bytes[8 + QUERIES * k * 4..].as_chunks::<4>().0;
        words.iter().map(|word| f64::from(f32::from_le_bytes(*word))).collect()
    };
    let (found, exact) = (distances(found, 10), distances(exact, 20));
    let pairs = found.chunks(10).zip(exact.chunks(20)).flat_map(|(found, exact)| found.iter().zip(exact));
    pairs.map(|(found, exact)| (found / exact).sqrt().max(1.0)).sum::<f64>() / found.len() as f64
}

#[test]
fn every_family_reports_the_ratio() {
    let folder = copy();
    for metric in ["l2", "cosine"] {
        let exact = format!("groundtruth base.fbin queries.fbin {metric}.ibin -k 20 --metric {metric}");
        bathyal(folder.path(), &exact).good();
        for family in FAMILIES {
            let build = format!("build base.fbin one --metric {metric} --family {family} --overwrite");
            bathyal(folder.path(), &build).good();
            // An index without codes compares all vectors and has no effort.
            let effort =
                |list: usize| if family == "flat" { String::new() } else { format!("--search-list {list}") };
            let line = format!("one queries.fbin -k 10 --groundtruth {metric}.ibin");
            let all = search(folder.path(), &format!("{line} {}", effort(VECTORS)));
            for (key, value) in [("recall", 1.0), ("ratio", 1.0), ("ratio_p99", 1.0), ("ratio_left_out", 0.0)]
            {
                assert_eq!(number(&all, key), value, "{family} {metric} {key}");
            }
            let few = search(folder.path(), &format!("{line} {} --output few.ibin", effort(10)));
            let expected = ratio_of_files(folder.path(), "few.ibin", &format!("{metric}.ibin"));
            assert!((number(&few, "ratio") - expected).abs() < 1e-4, "{family} {metric}: {few} {expected}");
            assert_eq!(number(&few, "recall") == 1.0, number(&few, "ratio") == 1.0, "{family}: {few}");
            assert!(number(&few, "ratio_p99") >= number(&few, "ratio"), "{family}: {few}");
            // The size of blocks changes nothing.
            let blocks = search(folder.path(), &format!("{line} {} --block 7", effort(10)));
            assert_eq!((&blocks["ratio"], &blocks["ratio_p99"]), (&few["ratio"], &few["ratio_p99"]));
        }
    }
}

#[test]
fn ratios_of_smaller_vectors_use_the_vectors_as_given() {
    let folder = copy();
    bathyal(folder.path(), "build base.fbin bytes --metric l2 --store-as i8").good();
    let line = format!("bytes queries.fbin -k 10 --search-list {VECTORS} --groundtruth gt.ibin");
    let found = search(folder.path(), &line);
    let (recall, ratio) = (number(&found, "recall"), number(&found, "ratio"));
    // The vectors found instead of neighbours are hardly farther away.
    assert!(recall > 0.9 && (1.0..1.005).contains(&ratio), "{found}");
}

#[test]
fn queries_that_are_in_the_data_have_a_ratio_if_they_are_found() {
    let folder = copy();
    bathyal(folder.path(), "groundtruth base.fbin base.fbin own.ibin -k 20").good();
    let line = format!("idx base.fbin -k 10 --search-list {VECTORS} --groundtruth own.ibin");
    let found = search(folder.path(), &line);
    assert_eq!((number(&found, "ratio"), number(&found, "ratio_left_out")), (1.0, 0.0));
    // The search misses neighbours at distance 0: such queries have no ratio.
    let mut zeros = std::fs::read(folder.path().join("gt.ibin")).unwrap();
    let ids = 8..8 + QUERIES * 20 * 4;
    zeros[ids.end..].fill(0);
    let far = VECTORS as u32 - 1;
    zeros[ids].as_chunks_mut::<4>().0.iter_mut().for_each(|id| *id = far.to_le_bytes());
    std::fs::write(folder.path().join("zeros.ibin"), zeros).unwrap();
    let line = "idx queries.fbin -k 10 --search-list 40 --groundtruth zeros.ibin";
    let found = search(folder.path(), line);
    assert_eq!((&found["ratio"], &found["ratio_p99"]), (&Value::Null, &Value::Null));
    assert_eq!(found["ratio_left_out"], QUERIES);
    let text = bathyal(folder.path(), &format!("search {line}")).good();
    assert!(text.contains("\nratio@10         none, queries left out: 25\n"), "{text}");
}

#[test]
fn the_output_says_why_there_is_no_ratio() {
    let folder = copy();
    let null = |answer: &Value| {
        for key in ["ratio", "ratio_p99", "ratio_left_out"] {
            assert_eq!(answer[key], Value::Null, "{answer}");
        }
    };
    let plain = "idx queries.fbin -k 10 --search-list 40";
    null(&search(folder.path(), plain));
    assert!(!bathyal(folder.path(), &format!("search {plain}")).good().contains("ratio@"));

    bathyal(folder.path(), "convert gt.ibin gt.ivecs").good();
    let bare = format!("{plain} --groundtruth gt.ivecs");
    let found = search(folder.path(), &bare);
    null(&found);
    assert!(number(&found, "recall") > 0.5);
    let text = bathyal(folder.path(), &format!("search {bare}")).good();
    assert!(text.contains("\nratio@10         none: gt.ivecs holds no distances\n"), "{text}");
    let bench = "bench idx queries.fbin --search-lists 10 --repeats 1 --groundtruth gt.ivecs";
    assert!(bathyal(folder.path(), bench).good().contains("        -          - "));

    bathyal(folder.path(), "build base.fbin ip --metric ip").good();
    bathyal(folder.path(), "groundtruth base.fbin queries.fbin ip.ibin -k 20 --metric ip").good();
    let product = "ip queries.fbin -k 10 --search-list 40 --groundtruth ip.ibin";
    null(&search(folder.path(), product));
    let text = bathyal(folder.path(), &format!("search {product}")).good();
    assert!(text.contains("\nratio@10         none: an inner product is not a distance\n"), "{text}");
}

#[test]
fn the_ratio_uses_distances_and_not_their_squares() {
    let folder = tempfile::tempdir().unwrap();
    // One query at 0. Its exact neighbours are at 1 and 2; the index holds vectors at 1 and 3.
    let write = |name: &str, rows: &[f32]| {
        std::fs::write(folder.path().join(name), fbin(rows.len() as u32, 1, rows)).unwrap();
    };
    write("query.fbin", &[0.0]);
    write("all.fbin", &[1.0, 50.0, 2.0]);
    write("held.fbin", &[1.0, 50.0, 50.0, 3.0]);
    bathyal(folder.path(), "groundtruth all.fbin query.fbin gt.ibin -k 2").good();
    bathyal(folder.path(), "build held.fbin idx --metric l2 --family flat").good();
    let found = search(folder.path(), "idx query.fbin -k 2 --groundtruth gt.ibin");
    assert_eq!((number(&found, "recall"), number(&found, "ratio")), (0.5, 1.25));
    let text = bathyal(folder.path(), "search idx query.fbin -k 2 --groundtruth gt.ibin").good();
    assert!(text.contains("\nratio@2          mean 1.2500, p99 1.2500\n"), "{text}");
    bathyal(folder.path(), "build held.fbin lists --metric l2").good();
    let bench = "bench lists query.fbin -k 2 --search-lists 2 --repeats 1 --groundtruth gt.ibin --json";
    assert_eq!(bathyal(folder.path(), bench).json()["points"][0]["ratio"], 1.25);
}

#[test]
fn lsh_searches_aim_for_a_ratio() {
    let folder = copy();
    bathyal(folder.path(), "build base.fbin tables --metric l2 --family lsh").good();
    let line = "tables queries.fbin -k 10 --ratio 1.05 --groundtruth gt.ibin";
    let found = search(folder.path(), line);
    assert_eq!((number(&found, "ratio_target"), &found["recall_target"]), (1.05, &Value::Null));
    assert!(number(&found, "ratio") < 1.1 && number(&found, "probes") >= 1.0, "{found}");
    let text = bathyal(folder.path(), &format!("search {line}")).good();
    assert!(text.contains(", asked for 1.05\nsearch_list ") && text.contains(", probes "), "{text}");
    let blind = bathyal(folder.path(), "search tables queries.fbin -k 10 --ratio 1.05").good();
    assert!(blind.contains("\nratio@10         unknown without --groundtruth, asked for 1.05\n"), "{blind}");
    bathyal(folder.path(), "search idx queries.fbin --ratio 1.05").fails(1, &["knows no ratio"]);
    for (wrong, part) in [
        ("0.9", "at least 1"),
        ("nan", "at least 1"),
        ("1.05 --recall 0.9", "recall is 0.9 and ratio is 1.05; give one of them"),
    ] {
        let line = format!("search tables queries.fbin --ratio {wrong}");
        bathyal(folder.path(), &line).fails(2, &[part]);
    }
    bathyal(folder.path(), "search tables queries.fbin --ratio 1.05 --explain=0").good();
}

#[test]
fn lsh_searches_read_additional_buckets() {
    let folder = copy();
    bathyal(folder.path(), "build base.fbin tables --metric l2 --family lsh --tables 2 --block-bytes 128")
        .good();
    let line = "tables queries.fbin -k 10 --search-list 400 --probes 1 --groundtruth gt.ibin";
    let none = search(folder.path(), line);
    let found = search(folder.path(), &format!("{line} --multi-probe 4"));
    assert_eq!((&none["multi_probe"], &found["multi_probe"]), (&Value::Null, &4.into()));
    for key in ["recall", "entries_per_query"] {
        assert!(number(&found, key) > number(&none, key), "{key}: {found} {none}");
    }
    let text = bathyal(folder.path(), &format!("search {line} --multi-probe 4")).good();
    assert!(text.contains(", probes 1, multi_probe 4\n"), "{text}");
    bathyal(folder.path(), "search tables queries.fbin --multi-probe 4 --explain=0").good();
    let bench =
        "bench tables queries.fbin --groundtruth gt.ibin --multi-probe 4 --search-lists 20 --repeats 1";
    bathyal(folder.path(), bench).good();
    bathyal(folder.path(), "search idx queries.fbin --multi-probe 4").fails(1, &["knows no multi_probe"]);
    let range = "search tables queries.fbin --multi-probe 4 --radius 1";
    bathyal(folder.path(), range).fails(2, &["--multi-probe", "range search"]);
}
