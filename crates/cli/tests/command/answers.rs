//! The output of commands that succeed.

use serde_json::Value;

use crate::harness::{DIM, INDEXES, QUERIES, VECTORS, bathyal, copy, names, shared, write_vectors};

fn has_keys(object: &Value, keys: &[&str]) {
    for key in keys {
        assert!(object.get(key).is_some(), "'{key}' is missing in {object}");
    }
}

const SEARCH_KEYS: [&str; 24] = [
    "recall",
    "queries",
    "k",
    "threads",
    "search_list",
    "qps",
    "latency_us",
    "reads_per_query",
    "bytes_per_query",
    "hops_per_query",
    "distance_computations_per_query",
    "open_seconds",
    "processor_us_per_query",
    "query_state_bytes",
    "dram_bytes",
    "not_counted",
    "peak_rss_bytes",
    "index_bytes",
    "data_bytes",
    "amplification",
    "ratio",
    "ratio_p99",
    "ratio_left_out",
    "recall_left_out",
];

#[test]
fn build_reports_sizes_and_times() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", VECTORS, DIM, 1);
    let built = bathyal(folder.path(), "build base.fbin idx --metric cosine --json").json();
    let keys = ["build_seconds", "peak_rss_bytes", "index_bytes", "data_bytes", "amplification"];
    has_keys(&built, &keys);
    has_keys(&built, &["vectors", "dim", "element", "metric"]);
    assert_eq!((&built["vectors"], &built["dim"]), (&VECTORS.into(), &DIM.into()));
    assert_eq!((&built["element"], &built["metric"]), (&"f32".into(), &"cosine".into()));
    assert_eq!(built["data_bytes"], VECTORS * DIM * 4);
    let share = built["index_bytes"].as_f64().unwrap() / built["data_bytes"].as_f64().unwrap();
    assert!((built["amplification"].as_f64().unwrap() - share).abs() < 1e-9);
    assert!(built["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(built["processor_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(names(folder.path()), ["base.fbin", "idx"]);
}

#[test]
fn phases_divide_the_time_of_a_query() {
    for family in INDEXES {
        let search = format!("search {family} queries.fbin --search-list 40 --threads 1 --json");
        let plain = bathyal(shared(), &search).json();
        assert_eq!(plain["phase_us_per_query"], Value::Null, "{family}");
        // The times of all blocks are added.
        for block in [QUERIES, 7] {
            let timed = bathyal(shared(), &format!("{search} --phases --block {block}")).json();
            let us = |phase: &str| timed["phase_us_per_query"][phase].as_f64().unwrap();
            let computing: f64 = ["navigate", "scan", "rerank"].map(us).iter().sum();
            let processor = timed["processor_us_per_query"].as_f64().unwrap();
            assert!(us("read") > 0.0 && computing > 0.0, "{family}: {timed}");
            assert!(computing < processor, "{family}: {timed}");
            assert!(timed["query_state_bytes"].as_u64().unwrap() > 4096, "{family}: {timed}");
        }
    }
}

#[test]
fn the_loss_of_smaller_vectors_is_printed() {
    let folder = copy();
    for family in ["graph", "cluster", "spann"] {
        for form in ["f16", "i8"] {
            let name = format!("{family}-{form}");
            let line = format!("build base.fbin {name} --metric l2 --family {family} --store-as {form}");
            let printed = bathyal(folder.path(), &line).good();
            let words = format!("stored as {form}; exact search of them finds ");
            assert!(printed.contains(&words) && printed.contains(" of the 10 nearest"), "{printed}");
            let shown = bathyal(folder.path(), &format!("inspect {name}")).good();
            assert!(shown.contains("stored as     ") && shown.contains("f32, l2"), "{shown}");
            let report = bathyal(folder.path(), &format!("inspect {name} --json")).json();
            let stored = &report["manifest"]["stored"];
            assert_eq!((&stored["element"], &stored["loss"]["k"]), (&form.into(), &10.into()));
            let line = format!("search {name} queries.fbin --search-list 200 --groundtruth gt.ibin --json");
            let recall = bathyal(folder.path(), &line).json()["recall"].as_f64().unwrap();
            assert!(recall > 0.9, "{name}: {recall}");
            bathyal(folder.path(), &format!("verify {name}")).good();
        }
    }
    bathyal(folder.path(), "convert base.fbin base.f16bin").good();
    let refused = bathyal(folder.path(), "build base.f16bin half --metric l2 --store-as i8");
    refused.fails(1, &["store_as is i8", "the data is f16"]);
}

#[test]
fn every_kind_of_code_is_built_and_searched() {
    let folder = copy();
    let cases = [
        ("graph", "pq", 6),
        ("graph", "pq4", 6),
        ("graph", "axes", 12),
        ("cluster", "axes", 12),
        ("cluster", "rabitq4", 12),
        ("spann --layout coupled", "axes", 12),
        ("spann --layout coupled", "rabitq4", 12),
    ];
    for (family, kind, bytes) in cases {
        let name = format!("{}-{kind}", &family[..5]);
        let line = format!(
            "build base.fbin {name} --family {family} --metric l2 --code-kind {kind} --code-bytes {bytes} \
             --json"
        );
        let built = bathyal(folder.path(), &line).json();
        assert_eq!((&built["code_kind"], &built["code_bytes"]), (&kind.into(), &bytes.into()));
        let line = format!("search {name} queries.fbin --search-list 200 --groundtruth gt.ibin --json");
        let recall = bathyal(folder.path(), &line).json()["recall"].as_f64().unwrap();
        assert!(recall > 0.9, "{name}: {recall}");
    }
    let refused = bathyal(folder.path(), "build base.fbin other --metric l2 --code-kind pq");
    refused.fails(2, &["codes of kind pq", "groups", "axes"]);
    let line = "build base.fbin other --metric l2 --family spann --code-kind axes";
    bathyal(folder.path(), line).fails(2, &["layout grouped hold no codes", "take the layout coupled"]);
    let line = "build base.fbin other --metric l2 --family spann --layout coupled --code-kind pq4";
    bathyal(folder.path(), line).fails(2, &["code kind pq4", "posting lists", "axes"]);
}

#[test]
fn another_layout_gives_the_same_answers() {
    let folder = copy();
    let line = "build base.fbin padded --family graph --metric l2 --max-degree 16 --json";
    bathyal(folder.path(), line).json();
    let made = bathyal(folder.path(), "convert-layout padded packed --layout csr --json").json();
    assert_eq!((&made["from"], &made["to"]), (&"padded".into(), &"csr".into()));
    assert!(made["index_bytes"].as_u64() < made["index_bytes_before"].as_u64());
    assert_eq!(bathyal(folder.path(), "verify packed --json").json()["sound"], true);
    let shape = bathyal(folder.path(), "inspect packed --json").json();
    assert!(shape["packed"]["offset_bits"].as_f64().unwrap() < 16.0);
    for name in ["padded", "packed"] {
        let line = format!("search {name} queries.fbin --search-list 200 --groundtruth gt.ibin --json");
        let recall = bathyal(folder.path(), &line).json()["recall"].as_f64().unwrap();
        assert!(recall > 0.95, "{name}: {recall}");
    }
    let refused = bathyal(folder.path(), "convert-layout padded packed --layout csr");
    refused.fails(1, &["packed: already exists"]);
    let refused = bathyal(folder.path(), "convert-layout padded pages --layout page_local");
    refused.fails(1, &["page_local", "build the index again"]);
}

#[test]
fn search_reports_recall_and_cost() {
    let line = "search idx queries.fbin -k 5 --recall 0.9 --groundtruth gt.ibin --threads 1 --json";
    let found = bathyal(shared(), line).json();
    has_keys(&found, &SEARCH_KEYS);
    has_keys(&found["latency_us"], &["mean", "p50", "p95", "p99"]);
    assert!(found["recall"].as_f64().unwrap() > 0.8, "{found}");
    assert_eq!((&found["queries"], &found["k"], &found["threads"]), (&QUERIES.into(), &5.into(), &1.into()));
    assert_eq!(found["tier"], "file");
    for key in ["qps", "reads_per_query", "bytes_per_query", "hops_per_query", "dram_bytes"] {
        assert!(found[key].as_f64().unwrap() > 0.0, "{key}: {found}");
    }
}

#[test]
fn recall_is_null_without_ground_truth() {
    let found = bathyal(shared(), "search idx queries.fbin -k 5 --search-list 30 --json").json();
    assert_eq!((&found["recall"], &found["search_list"]), (&Value::Null, &30.into()));
}

#[test]
fn a_full_search_list_finds_everything_on_every_tier() {
    for index in INDEXES {
        for (tier, mode) in
            [("file", "batched"), ("file", "pipelined"), ("dram", "batched"), ("dram", "pipelined")]
        {
            let line = format!(
                "search {index} queries.fbin -k 10 --search-list {VECTORS} --groundtruth gt.ibin --tier \
                 {tier} --json"
            );
            let found = bathyal(shared(), &format!("{line} --mode {mode}"));
            if bathyal(shared(), &format!("inspect {index} --json")).json()["manifest"]["family"] == "cluster"
            {
                // This family reads in one round, so the order of arrival has no effect.
                found.fails(1, &["cluster index knows no mode", "search_list, probes"]);
                assert_eq!(bathyal(shared(), &line).json()["recall"], 1.0, "{index} {tier}");
                continue;
            }
            let found = found.json();
            assert_eq!(found["recall"], 1.0, "{index} {tier} {mode}: {found}");
        }
    }
}

#[test]
fn tiers_agree_on_answers_and_counters() {
    let folder = copy();
    for index in INDEXES {
        let mut seen = Vec::new();
        // In DRAM, searches of groups read only the candidates.
        for tier in ["file", if index == "idx" { "mapped:region" } else { "dram" }] {
            let line = format!(
                "search {index} queries.fbin --search-list 20 --tier {tier} --output found.ibin --json"
            );
            let found = bathyal(folder.path(), &line).json();
            let counters: Vec<_> = SEARCH_KEYS[7..11].iter().map(|key| found[key].clone()).collect();
            seen.push((counters, std::fs::read(folder.path().join("found.ibin")).unwrap()));
        }
        assert_eq!(seen[0], seen[1], "{index}");
    }
}

#[test]
fn the_size_of_blocks_changes_no_answer() {
    let folder = copy();
    let line = "search idx queries.fbin --search-list 40 --groundtruth gt.ibin --json --warm --output";
    let whole = bathyal(folder.path(), &format!("{line} whole.ibin")).json();
    let parts = bathyal(folder.path(), &format!("{line} parts.ibin --block 7")).json();
    for key in ["recall", "queries", "k", "reads_per_query", "hops_per_query"] {
        assert_eq!(whole[key], parts[key], "{key}");
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("whole.ibin"), read("parts.ibin"));
}

#[test]
fn range_searches_find_the_same_as_searches_for_the_nearest() {
    let folder = copy();
    for index in INDEXES {
        let line = format!("search {index} queries.fbin --radius 2.5 --output found.rbin --json");
        let found = bathyal(folder.path(), &line).json();
        has_keys(&found, &["radius", "recall_target", "neighbors", "qps", "latency_us", "reads_per_query"]);
        let bytes = std::fs::read(folder.path().join("found.rbin")).unwrap();
        let numbers: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        let total = numbers[1] as usize;
        assert_eq!((numbers[0] as usize, found["neighbors"].as_u64()), (QUERIES, Some(total as u64)));
        assert_eq!(numbers.len(), 2 + QUERIES + 2 * total);
        assert_eq!(numbers[2..2 + QUERIES].iter().sum::<u32>() as usize, total);
        assert!(total > 0);
        assert!(numbers[2 + QUERIES + total..].iter().all(|bits| f32::from_bits(*bits) <= 2.5));
        let few = bathyal(folder.path(), &format!("search {index} queries.fbin --radius 100 --limit 3"));
        assert_eq!(few.code, Some(0), "{few:?}");
        few.mentions(&["note:", "the limit"]);
    }
    let text = bathyal(folder.path(), "search idx queries.fbin --radius 0").good();
    assert!(text.contains("25 queries have none"), "{text}");
    bathyal(folder.path(), "search idx queries.fbin --radius -1")
        .fails(1, &["the radius is -1", "squared l2"]);
    let wrong = bathyal(folder.path(), "search idx queries.fbin --radius 1 --output found.ibin");
    wrong.fails(1, &["found.ibin", ".rbin"]);
}

#[test]
fn several_indexes_are_searched_as_one() {
    let folder = copy();
    for (rows, name) in [("0..150", "a"), ("150..400", "b")] {
        bathyal(folder.path(), &format!("convert base.fbin {name}.fbin --rows {rows}")).good();
        bathyal(folder.path(), &format!("build {name}.fbin {name} --metric l2")).good();
    }
    let line =
        "search a queries.fbin --also b --search-list 250 --groundtruth gt.ibin --output both.ibin --json";
    let found = bathyal(folder.path(), line).json();
    assert_eq!((&found["recall"], &found["first_ids"]), (&1.0.into(), &serde_json::json!([0, 150])));
    assert_eq!((&found["ratio"], &found["ratio_p99"]), (&1.0.into(), &1.0.into()));
    let both = std::fs::read(folder.path().join("both.ibin")).unwrap();
    bathyal(folder.path(), "search idx queries.fbin --search-list 400 --output one.ibin").good();
    assert_eq!(both, std::fs::read(folder.path().join("one.ibin")).unwrap());
    bathyal(folder.path(), "build base.fbin ip --metric ip").good();
    let refused = bathyal(folder.path(), "search a queries.fbin --also ip");
    refused.fails(1, &["ip: its metric is ip", "l2"]);
}

#[test]
fn a_query_is_explained() {
    for index in INDEXES {
        let report = bathyal(shared(), &format!("search {index} queries.fbin --explain=3 --json")).json();
        has_keys(
            &report,
            &["hops", "reads", "bytes", "code_distances", "phases", "memory", "ids", "total_ns"],
        );
        assert_eq!(report["phases"].as_array().unwrap().len(), 4);
        let text = bathyal(shared(), &format!("search {index} queries.fbin --explain")).good();
        for word in ["query 0", "reads", "navigate", "scan", "rerank", "memory", "nearest"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    bathyal(shared(), "search idx queries.fbin --explain=25").fails(1, &["query 25", "25 queries"]);
}

#[test]
fn several_queries_are_explained_by_their_means() {
    for index in INDEXES {
        let report = bathyal(shared(), &format!("search {index} queries.fbin --explain=all --json")).json();
        assert_eq!(report["queries"], 25);
        for side in ["predicted", "actual"] {
            has_keys(&report[side], &["rounds", "reads", "bytes", "navigate_ns", "scan_ns", "total_ns"]);
        }
        has_keys(&report, &["tiers", "failed", "factor", "memory", "notes"]);
        let text = bathyal(shared(), &format!("search {index} queries.fbin --explain=3..9")).good();
        for word in ["6 queries", "predicted", "actual", "navigate, us", "model", "memory"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    let explain = |rows: &str| bathyal(shared(), &format!("search idx queries.fbin --explain={rows}"));
    explain("20..30").fails(1, &["20 to 29", "25 queries"]);
    explain("9..3").fails(2, &["rows 9..3 are none"]);
    explain("x").fails(2, &["expected a row"]);
}

#[test]
fn a_note_says_that_k_exceeds_the_number_of_vectors() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", 7, 3, 1);
    bathyal(folder.path(), "build base.fbin idx --metric l2").good();
    let ran = bathyal(folder.path(), "search idx base.fbin -k 10 --search-list 10 --json");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.mentions(&["note:", "10 neighbours", "only 7"]);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["k"], 7);
}

#[test]
fn one_vector_and_equal_vectors_are_indexed() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "one.fbin", 1, 5, 1);
    bathyal(folder.path(), "build one.fbin one.idx --metric l2").good();
    bathyal(folder.path(), "groundtruth one.fbin one.fbin one.ibin -k 1").good();
    let found = bathyal(folder.path(), "search one.idx one.fbin -k 1 --groundtruth one.ibin --json").json();
    assert_eq!(found["recall"], 1.0);
    bathyal(folder.path(), "verify one.idx").good();

    let equal = crate::harness::fbin(60, 4, &[0.5; 240]);
    std::fs::write(folder.path().join("equal.fbin"), equal).unwrap();
    bathyal(folder.path(), "build equal.fbin equal.idx --metric l2").good();
    bathyal(folder.path(), "groundtruth equal.fbin equal.fbin equal.ibin -k 60").good();
    let line = "search equal.idx equal.fbin -k 10 --groundtruth equal.ibin --json";
    assert_eq!(bathyal(folder.path(), line).json()["recall"], 1.0);
}

#[test]
fn bench_writes_table_lines_and_plot() {
    let folder = copy();
    let line = "bench idx queries.fbin --groundtruth gt.ibin --search-lists 10,40 --repeats 2";
    let table = bathyal(folder.path(), line).good();
    assert!(table.starts_with("search_list   recall    ratio  ratio p99"), "{table}");
    let lines = std::fs::read_to_string(folder.path().join("idx-bench.jsonl")).unwrap();
    let points: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(points.len(), 2);
    points.iter().for_each(|point| has_keys(point, &SEARCH_KEYS));
    let plot = std::fs::read_to_string(folder.path().join("idx-bench.svg")).unwrap();
    assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"));
    assert_eq!(plot.matches("<circle").count(), 2);

    let answer = bathyal(folder.path(), &format!("{line} --output out.1 --json")).json();
    assert_eq!(answer["points"].as_array().unwrap().len(), 2);
    assert_eq!((&answer["jsonl"], &answer["plot"]), (&"out.1.jsonl".into(), &"out.1.svg".into()));
    assert_eq!(answer["exact_scan"], Value::Null);
    // With an exact scan of the vectors.
    let beside = format!("{line} --data base.fbin");
    let scan = &bathyal(folder.path(), &format!("{beside} --json")).json()["exact_scan"];
    has_keys(scan, &["vectors", "batch", "threads", "qps", "alone_ms"]);
    assert_eq!(
        (scan["vectors"].as_u64(), scan["batch"].as_u64()),
        (Some(VECTORS as u64), Some(QUERIES as u64))
    );
    assert!(scan["qps"].as_f64() > Some(0.0) && scan["alone_ms"].as_f64() > Some(0.0), "{scan}");
    assert!(bathyal(folder.path(), &beside).good().contains("\nexact scan of 400 vectors in memory: "));
    bathyal(folder.path(), &format!("{line} --data queries.fbin"))
        .fails(1, &["queries.fbin: holds 25 vectors and the index 400"]);
}

#[test]
fn groundtruth_is_exact() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", 30, 4, 1);
    let answer = bathyal(folder.path(), "groundtruth base.fbin base.fbin gt.ibin -k 2 --json").json();
    assert_eq!((&answer["queries"], &answer["k"]), (&30.into(), &2.into()));
    let bytes = std::fs::read(folder.path().join("gt.ibin")).unwrap();
    let ids: Vec<u32> = bytes[8..].as_chunks::<4>().0.iter().map(|&id| u32::from_le_bytes(id)).collect();
    let nearest: Vec<u32> = ids[..60].iter().step_by(2).copied().collect();
    assert_eq!(nearest, (0..30).collect::<Vec<u32>>());
}

#[test]
fn a_file_is_the_same_after_two_conversions() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "a.fbin", 9, 4, 1);
    for (from, to) in [("a.fbin", "b.fvecs"), ("b.fvecs", "c.npy"), ("c.npy", "d.fbin")] {
        bathyal(folder.path(), &format!("convert {from} {to}")).good();
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("a.fbin"), read("d.fbin"));
    let answer = bathyal(folder.path(), "convert a.fbin e.f16bin --rows 2..5 --json").json();
    assert_eq!((&answer["count"], &answer["dim"], &answer["element"]), (&3.into(), &4.into(), &"f16".into()));
}

#[test]
fn inspect_and_verify_describe_the_index() {
    let answer = bathyal(shared(), "inspect idx --json").json();
    has_keys(
        &answer,
        &["manifest", "index_bytes", "data_bytes", "amplification", "groups", "centroid_bytes"],
    );
    assert!(bathyal(shared(), "inspect idx").good().contains("groups  "));
    has_keys(
        &bathyal(shared(), "inspect graph.idx --full --json").json(),
        &["mean_degree", "degree_histogram"],
    );
    assert!(bathyal(shared(), "verify graph.idx").good().contains("links"));
    assert!(!bathyal(shared(), "verify idx").good().contains("links"));
    assert_eq!(answer["manifest"]["vectors"], VECTORS);
    let text = bathyal(shared(), "inspect idx").good();
    assert!(text.contains("400 of 12 f32, l2"), "{text}");
    let answer = bathyal(shared(), "verify idx --json").json();
    assert_eq!((&answer["sound"], &answer["vectors"]), (&true.into(), &VECTORS.into()));
}

#[test]
fn probe_measures_a_folder_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let answer = bathyal(folder.path(), "probe . --output profile.json --json").json();
    has_keys(&answer, &["profile", "cells", "seconds", "past_page_cache"]);
    let text = std::fs::read_to_string(folder.path().join("profile.json")).unwrap();
    let profile: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(profile, answer["profile"]);
    assert!(profile["iops"].as_f64().unwrap() > 0.0);
    assert_eq!(names(folder.path()), ["profile.json"]);
}

#[test]
fn every_command_has_help_with_an_example() {
    let commands = ["build", "search", "bench", "groundtruth", "convert", "inspect", "verify", "probe"];
    for command in commands {
        let help = bathyal(shared(), &format!("{command} --help")).good();
        assert!(help.contains(&format!("  bathyal {command} ")), "{help}");
        assert!(help.contains("--json"), "{help}");
    }
    let help = bathyal(shared(), "--help").good();
    assert!(help.contains("Exit codes:") && help.contains("130"), "{help}");
    assert!(bathyal(shared(), "--version").good().starts_with("bathyal "));
}

#[test]
fn progress_is_shown_when_asked_for() {
    let folder = copy();
    let ran = bathyal(folder.path(), "groundtruth base.fbin queries.fbin gt2.ibin --progress");
    assert_eq!(ran.code, Some(0));
    ran.mentions(&["100% after"]);
}

#[test]
fn an_emulated_device_changes_no_answer_and_is_named_in_all() {
    let search = |index: &str, more: &str| {
        let command = format!("search {index} queries.fbin --search-list 40 --groundtruth gt.ibin {more}");
        bathyal(shared(), &command)
    };
    for index in INDEXES {
        for tier in ["dram", "file"] {
            let plain = search(index, &format!("--tier {tier} --json")).json();
            let slow = search(index, &format!("--tier {tier} --delay rdma --json")).json();
            for key in ["recall", "hops_per_query", "reads_per_query", "bytes_per_query"] {
                assert_eq!(plain[key], slow[key], "{index} {tier} {key}");
            }
            assert_eq!((&plain["emulated"], &slow["emulated"]), (&Value::Null, &"rdma".into()));
            assert_eq!(slow["tier"], format!("emulated rdma over {tier}"));
            assert!(slow["method"].as_str().unwrap().starts_with("emulated over"), "{}", slow["method"]);
        }
        assert!(search(index, "--delay cxl").good().contains("emulated         cxl"));
    }
    let radius = "search idx queries.fbin --radius 0.5 --delay nvm";
    assert!(bathyal(shared(), radius).good().contains("emulated         nvm"));
    assert!(
        bathyal(shared(), "search idx queries.fbin --explain --delay nvm").good().contains("emulated nvm")
    );
    let also = "search idx queries.fbin --also graph.idx --delay nvm";
    assert!(bathyal(shared(), also).good().contains("emulated         nvm"));
    let unknown = bathyal(shared(), "search idx queries.fbin --delay tape");
    unknown.fails(2, &["tape", "no device of that name"]);
}

/// No machine has a hundred cards, so the processor searches, and a note says so.
#[test]
fn the_processor_goes_on_where_there_is_no_graphics_card() {
    let here = bathyal(shared(), "search idx queries.fbin -k 5 --json").json();
    let ran = bathyal(shared(), "search idx queries.fbin -k 5 --json --device gpu:100,cpu --mini-batch 8");
    ran.mentions(&["note: this processor searches, and not a graphics card: "]);
    assert_eq!(ran.code, Some(0));
    let there: Value = serde_json::from_str(&ran.stdout).expect("one JSON value");
    assert!(there["card_trouble"].as_str().is_some_and(|text| text.contains("graphics card")), "{there}");
    assert_eq!((&there["reads_per_query"], there.get("card")), (&here["reads_per_query"], None));
    assert!(here.get("card_trouble").is_none());
}
