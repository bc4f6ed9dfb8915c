//! `bathyal bench`: efforts by recall, ground truth that is found at need, and several indexes in one run.

use std::path::Path;

use serde_json::Value;

use crate::harness::{bathyal, copy, shared};

/// Returns the objects of a file with a JSON object on each line.
fn lines_of(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn recalls_are_reported_as_asked_and_as_found() {
    let folder = copy();
    let line = "bench idx queries.fbin --groundtruth gt.ibin --recall 0.5,0.9 --repeats 1 -q";
    let text = bathyal(folder.path(), line).stdout;
    assert!(text.starts_with(" asked search_list   recall    ratio"), "{text}");
    assert!(text.contains("\n   0.5 ") && text.contains("\n   0.9 "), "{text}");
    let answer: Value =
        serde_json::from_str(&bathyal(folder.path(), &format!("{line} --json")).stdout).unwrap();
    let points = answer["points"].as_array().unwrap();
    let asked: Vec<f64> = points.iter().map(|point| point["recall_target"].as_f64().unwrap()).collect();
    assert_eq!(asked, [0.5, 0.9]);
    assert!(points.iter().all(|point| point["recall"].as_f64() >= Some(0.3)), "{answer}");
    // A calibration gives the efforts.
    bathyal(folder.path(), "calibrate idx queries.fbin --name own --groundtruth gt.ibin").good();
    assert_eq!(bathyal(folder.path(), &format!("{line} --calibration own")).code, Some(0));
    bathyal(folder.path(), &format!("{line} --calibration other")).fails(1, &["\"other\""]);
    let named = "bench idx queries.fbin --groundtruth gt.ibin --calibration own";
    bathyal(folder.path(), named).fails(2, &["--recall"]);
}

#[test]
fn ground_truth_is_found_if_none_is_given() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    let search = "--search-lists 20,400 --repeats 1";
    let given = run(&format!("bench idx queries.fbin {search} --groundtruth gt.ibin --json")).json();
    assert_eq!(given["found_groundtruth"], Value::Null);
    let found = run(&format!("bench idx queries.fbin {search} --save-groundtruth own.ibin --json")).json();
    let truth = &found["found_groundtruth"];
    assert_eq!(
        (&truth["index"], &truth["vectors"], &truth["k"], &truth["file"]),
        (&"idx".into(), &400.into(), &10.into(), &"own.ibin".into())
    );
    for (given, found) in [0, 1].map(|at| (&given["points"][at], &found["points"][at])) {
        assert_eq!(given["recall"], found["recall"]);
    }
    let text = run(&format!("bench idx queries.fbin {search}")).good();
    assert!(text.contains("\nground truth: the 10 nearest of the 400 vectors of idx, "), "{text}");
    // The file is a ground truth like any other.
    let again = run(&format!("bench idx queries.fbin {search} --groundtruth own.ibin --json")).json();
    assert_eq!(again["points"][1]["recall"], found["points"][1]["recall"]);
    run("bench i q --groundtruth g --save-groundtruth own.ibin").fails(2, &["--save-groundtruth"]);
    run("bench i q --save-groundtruth own.txt").fails(1, &["own.txt"]);
}

#[test]
fn ground_truth_is_that_of_the_current_vectors() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    run("build base.fbin tables --metric l2 --family lsh").good();
    run("insert tables queries.fbin").good();
    run("delete tables --ids 400,3").good();
    let exact =
        run("bench tables queries.fbin -k 1 --search-lists 2000 --probes 2000 --repeats 1 --json").json();
    assert_eq!(exact["found_groundtruth"]["vectors"], 423, "{exact}");
    assert_eq!(exact["points"][0]["recall"], 1.0, "{exact}");
    // The first query was deleted; each other one is its own neighbour.
    run("bench tables queries.fbin -k 1 --search-lists 10 --repeats 1 --save-groundtruth own.ivecs").good();
    let ids: Vec<u8> = std::fs::read(folder.path().join("own.ivecs")).unwrap();
    let ids: Vec<i32> =
        ids.chunks_exact(8).map(|row| i32::from_le_bytes(row[4..].try_into().unwrap())).collect();
    assert_eq!(ids[1..], (401..425).collect::<Vec<i32>>());
    assert!(ids[0] < 400 && ids[0] != 3, "{ids:?}");
}

#[test]
fn several_indexes_share_the_table_and_the_plot() {
    let folder = copy();
    let line = "bench idx queries.fbin --also graph.idx --search-lists 20,40 --repeats 2 --output both";
    let text = bathyal(folder.path(), line).good();
    assert!(text.starts_with("index      search_list   recall"), "{text}");
    for name in ["\nidx        ", "\ngraph.idx  "] {
        assert_eq!(text.matches(name).count(), 2, "{text}");
    }
    let points = lines_of(&folder.path().join("both.jsonl"));
    let names: Vec<&str> = points.iter().filter_map(|point| point["index"].as_str()).collect();
    assert_eq!(names, ["idx", "idx", "graph.idx", "graph.idx"]);
    let plot = std::fs::read_to_string(folder.path().join("both.svg")).unwrap();
    assert_eq!(plot.matches("<circle").count(), 4);
    assert!(plot.contains("2 indexes (") && plot.contains("graph.idx") && plot.contains("idx"), "{plot}");
    let answer = bathyal(folder.path(), &format!("{line} --json")).json();
    assert_eq!(answer["indexes"], serde_json::json!(["idx", "graph.idx"]));
}

#[test]
fn an_index_without_candidate_lists_is_measured_once() {
    let folder = copy();
    bathyal(folder.path(), "build base.fbin flat.idx --metric l2 --family flat").good();
    let line = "bench idx queries.fbin --also flat.idx --repeats 1 --json";
    let answer = bathyal(folder.path(), line).json();
    let of_flat = |point: &&Value| point["index"] == "flat.idx";
    let flat: Vec<&Value> = answer["points"].as_array().unwrap().iter().filter(of_flat).collect();
    assert_eq!((flat.len(), &flat[0]["recall"]), (1, &1.0.into()), "{answer}");
}

#[test]
fn indexes_of_other_vectors_are_refused() {
    let folder = copy();
    bathyal(folder.path(), "build queries.fbin small.idx --metric l2").good();
    bathyal(folder.path(), "build base.fbin other.idx --metric ip").good();
    bathyal(folder.path(), "bench idx queries.fbin --also small.idx")
        .fails(1, &["small.idx: its number of vectors is 25, that of idx is 400"]);
    bathyal(folder.path(), "bench idx queries.fbin --also other.idx")
        .fails(1, &["other.idx: its metric is ip, that of idx is l2"]);
}

#[test]
fn efforts_that_exclude_each_other_are_refused() {
    let sentence = "recall is 0.9 and search_list is 20; give one of them";
    bathyal(shared(), "bench i q --recall 0.9 --search-lists 20").fails(2, &[sentence]);
    bathyal(shared(), "bench i q --recall 0.9,1.5").fails(2, &["recall is 1.5; it must be above 0"]);
}
