//! Sub-indexes in the memory of a node, on tiny data.

use std::path::Path;

use serde_json::Value;

use crate::harness::{number, records, repro, write_vectors};

#[test]
fn sub_indexes_in_the_memory_of_a_node_are_reproduced() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", 4000, 32, 1);
    write_vectors(folder.path(), "queries.fbin", 400, 32, 2);
    let line = "d-hnsw --base base.fbin --query queries.fbin --work d-hnsw --output report --quick";
    let run_records = records(folder.path(), "d-hnsw", line);
    let run = &run_records.run;
    assert!(run["device"]["name"] == "connectx6", "{run}");
    assert!(run["batch"] == 200 && run["partition_vectors"] == 50 && run["repeats"] == 1, "{run}");
    assert_eq!(run["sets"][0]["queries"], 400);
    let records = run_records.of_kind("row");
    let curve = |scheme: &str| -> Vec<&Value> {
        records.iter().filter(|row| row["varied"] == "recall" && row["scheme"] == scheme).collect()
    };
    let naive = curve("naive");
    // k = 1 with search lists of 1, 10 and 48, and k = 10 with two.
    assert_eq!(naive.len(), 5);
    for scheme in ["without-doorbell", "d-hnsw", "ours"] {
        let rows = curve(scheme);
        assert_eq!(rows.len(), naive.len());
        for (row, alone) in rows.iter().zip(&naive) {
            assert_eq!((&row["search_list"], &row["k"]), (&alone["search_list"], &alone["k"]));
            // The same sub-indexes are searched, whatever other queries are in flight.
            assert_eq!(
                (&row["recall"], &row["wanted"]),
                (&alone["recall"], &alone["wanted"]),
                "{row} {alone}"
            );
            assert!(number(alone, "reads") > 5.0 * number(row, "reads"), "{row} {alone}");
        }
    }
    for row in &naive {
        // One round trip per sub-index; few of eighty are still there from the query before.
        assert_eq!(row["round_trips"], row["reads"]);
        assert_eq!(number(row, "wanted"), number(row, "probes"));
        let trips = number(row, "round_trips");
        assert!(trips <= number(row, "probes") && trips > 0.7 * number(row, "probes"), "{row}");
    }
    for row in curve("without-doorbell") {
        assert_eq!(row["round_trips"], row["reads"]);
    }
    for row in &records {
        assert_eq!(row["emulated"], true);
        assert!((0.0..=1.0).contains(&number(row, "recall")) && number(row, "wall_us") > 0.0, "{row}");
        let parts = number(row, "network_us") + number(row, "meta_us") + number(row, "subindex_us");
        assert!(parts >= number(row, "wall_us") - 1e-6, "{row}");
        if let Some(doorbell) = row["doorbell"].as_f64() {
            assert!(number(row, "reads") <= doorbell * number(row, "round_trips") + 1e-9, "{row}");
        }
    }
    for varied in ["batch", "doorbell", "cache"] {
        assert!(records.iter().filter(|row| row["varied"] == varied).count() > 1, "{varied}");
    }
    let asked = run_records.of_kind("asked");
    assert_eq!(asked.len(), 5 * 3);
    assert!(asked.iter().all(|one| number(one, "alone_p50_us") > 0.0 && number(one, "kept_bytes") > 0.0));
    let grown = run_records.of_kind("grown");
    let vectors: Vec<u64> = grown.iter().map(|row| row["vectors"].as_u64().unwrap()).collect();
    assert_eq!(vectors, [2000, 2500, 3000, 3500, 4000]);
    assert!(grown.iter().all(|row| number(row, "recall") > 0.85), "{grown:?}");
    assert!(
        grown[1..]
            .iter()
            .all(|row| number(row, "inserts_a_second") > 0.0 && number(row, "insert_p50_us") > 0.0)
    );
    check_refusals(folder.path(), line);
}

/// Checks the refusals of wrong command lines. `line` is the one that was run in `folder`.
fn check_refusals(folder: &Path, line: &str) {
    // The indexes in the work folder are over other vectors than the requested ones.
    repro(folder, &format!("{line} --vectors 300")).fails(1, &["over 4000 vectors", "another work folder"]);
    repro(folder, "d-hnsw --base base.fbin --query a --query b").fails(2, &["--query for each --base"]);
    repro(folder, "d-hnsw --base base.fbin --query queries.fbin --emulate tape")
        .fails(2, &["tape", "connectx6"]);
}
