//! Graphs and groups on a graphics card, on tiny data.

use crate::harness::{RunRecords, number, records, repro, write_vectors};

#[test]
fn predictions_for_a_graphics_card_are_consistent() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", 3000, 48, 1);
    write_vectors(folder.path(), "queries.fbin", 200, 48, 2);
    let line = "gustann --base base.fbin --query queries.fbin --work work --output report --quick";
    let run_records = records(folder.path(), "gustann", line);
    let run = &run_records.run;
    assert!(run["k"] == 10 && run["max_degree"] == 64, "{run}");
    let machine = &run["predicted"];
    assert!(machine["ssds"] == 6 && machine["price"] == 30_789.0 && machine["price_ssd"] == 1025.0, "{run}");
    let records = run_records.of_kind("row");
    assert_eq!(records.len(), 4 * 3);
    for row in &records {
        assert!((0.85..=1.0).contains(&number(row, "recall")) && number(row, "pages") > 0.0, "{row}");
        assert!(
            number(row, "sent_bytes") <= number(row, "record_bytes") && number(row, "slot_bytes") <= 18432.0,
            "{row}"
        );
        let prediction = &row["prediction"];
        assert!(prediction["predicted"] == true && number(prediction, "qps") > 0.0, "{row}");
        let by_disks: Vec<f64> =
            row["by_disks"].as_array().unwrap().iter().map(|one| number(one, "qps")).collect();
        assert!(by_disks.len() == 6 && by_disks.is_sorted(), "{row}");
        // Sending whole pages is not twice as fast as sending records.
        assert!(number(prediction, "qps") >= number(&row["sending_pages"], "qps") * 0.5, "{row}");
    }
    let rounds = |index: &str| {
        let rows = records.iter().filter(|row| row["index"] == index);
        rows.map(|row| number(row, "rounds")).fold(0.0, f64::max)
    };
    assert!(rounds("cluster") == 1.0 && rounds("graph-beam-1") > 2.0 * rounds("graph"), "{records:?}");
    starts_queries_and_loads_are_consistent(&run_records);
    repro(folder.path(), &format!("{line} --vectors 300")).fails(1, &["another work folder"]);
    repro(folder.path(), "gustann --base base.fbin --query queries.fbin --link 0")
        .fails(2, &["--link", "above 0"]);
}

/// Figures 12 to 14, 16 and 17.
fn starts_queries_and_loads_are_consistent(run_records: &RunRecords) {
    let (records, begun) = (run_records.of_kind("row"), run_records.of_kind("begun"));
    let counted = records.iter().find(|row| row["index"] == "graph-beam-1").unwrap();
    // A walk that starts where searches start reads and finds the same.
    let walked = begun.iter().find(|row| row["begin"] == "pivots" && row["list"] == counted["search_list"]);
    let walked = walked.unwrap();
    for key in ["recall", "pages"] {
        assert_eq!(number(walked, key), number(counted, key), "{key}: {walked} {counted}");
    }
    for begin in ["entry_point", "nearest", "pivots"] {
        let all: Vec<_> =
            begun.iter().filter(|row| row["begin"] == begin && row["is_figure_12"] == true).collect();
        assert!(all.len() >= 6 && all.is_sorted_by_key(|row| number(row, "pages")), "{all:?}");
        for row in all {
            assert!(number(row, "predicted_in_step_qps") <= number(&row["prediction"], "qps"), "{row}");
            assert!((0.0..=1.0).contains(&number(row, "in_step")), "{row}");
        }
    }
    // In the first round all queries read the page of the entry point, which is on one of six disks.
    let shown =
        begun.iter().find(|row| row["begin"] == "entry_point" && row["rounds"][0].is_object()).unwrap();
    let first = &shown["rounds"][0];
    assert!(first["pages"] == 1 && first["most"] == 200 && number(first, "fullest") == 6.0, "{first}");
    let copied = run_records.of_kind("copied");
    assert_eq!(copied.iter().map(|row| row["copies"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 1, 2, 2]);
    assert!(copied.iter().all(|row| row["dim"].as_u64() == Some(48 * row["copies"].as_u64().unwrap())));
    let queried = run_records.of_kind("queried");
    assert_eq!(queried.len(), 5 * 3);
    let held = queried.iter().find(|row| row["kind"] == "held").unwrap();
    assert_eq!(number(held, "nearest"), 0.0, "{held}");
    for loads in run_records.of_kind("loaded").chunk_by(|a, b| a["index"] == b["index"]) {
        // If the slowest resource is saturated, rounding may go either way.
        let rising =
            loads.windows(2).all(|two| number(&two[0], "qps") <= number(&two[1], "qps") * (1.0 + 1e-9));
        assert!(loads.len() == 9 && rising, "{loads:?}");
        assert!(
            loads
                .iter()
                .all(|row| row["predicted"] == true && number(row, "qps") <= number(row, "most_qps") * 1.001)
        );
    }
}

/// Predictions follow from the counters alone, so that a run can be predicted again without its data.
#[test]
fn records_are_predicted_again_from_their_counters() {
    let folder = tempfile::tempdir().unwrap();
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/repro/gustann/minilm/records.jsonl");
    std::fs::copy(kept, folder.path().join("kept.jsonl")).unwrap();
    let line = "gustann --recompute kept.jsonl --output again --system-read-ns 3400 --tables-ns 5000";
    repro(folder.path(), line).good();
    let parse = |path: &str| -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(folder.path().join(path)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (before, after) = (parse("kept.jsonl"), parse("again/records.jsonl"));
    assert_eq!(before.len(), after.len());
    assert_eq!(after[0]["predicted"]["through_system"]["read_ns"], 3400.0);
    assert_eq!(after[0]["counted_on"], before[0].get("counted_on").unwrap_or(&before[0]["machine"]).clone());
    for (before, after) in before.iter().zip(&after).skip(1) {
        let asks = &after["asks"];
        for key in ["pages", "recall", "rounds", "list", "asks"] {
            assert_eq!(before[key], after[key], "{key}: {after}");
        }
        if asks.is_null() {
            continue;
        }
        let (cluster, paper) = (after["index"] == "cluster", number(&after["prediction"], "qps"));
        assert!((paper / number(&before["prediction"], "qps") - 1.0).abs() < 1e-9, "{after}");
        let query_ns = if cluster { 24_000.0 } else { 5_000.0 };
        let ns = number(asks, "pages") * 3400.0 + number(asks, "vector_bytes") * 0.03 + query_ns;
        let qps = number(&after["through_system"], "qps");
        assert!((qps / paper.min(8e9 / ns) - 1.0).abs() < 1e-9, "{after}");
    }
    repro(folder.path(), "gustann --recompute absent.jsonl").fails(1, &["absent.jsonl", "cannot be read"]);
    std::fs::write(folder.path().join("other.jsonl"), "{\"of\":\"run\",\"paper\":\"cloud\"}\n").unwrap();
    repro(folder.path(), "gustann --recompute other.jsonl").fails(1, &["a run of gustann"]);
}
