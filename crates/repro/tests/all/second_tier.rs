//! Graphs and posting lists on second-tier memory.

use std::path::Path;

use serde_json::Value;

use crate::harness::{RunRecords, folder, names, number, records, repro};

#[test]
fn graphs_on_second_tier_memory_are_measured_and_reused() {
    let folder = folder();
    let line = "second-tier graph base.fbin queries.fbin --work graphs --output report --degrees 8,16 \
                --devices cxl,rdma --repeats 2 --seconds 0 --sweep 1,4";
    let RunRecords { run, rows: records } = records(folder.path(), "second-tier graph", line);
    assert_eq!(
        (&run["sweep_degree"], &run["layouts"][1], &run["file_queries"]),
        (&16.into(), &"csr".into(), &25.into())
    );
    assert_eq!((&run["devices"][1]["name"], &run["devices"][1]["issue_ns"]), (&"rdma".into(), &150.into()));
    // Two degrees in padded (3 cells) and csr (6, and 9 with the sweep), and a file each.
    assert_eq!(records.len(), 2 * 3 + 6 + 9 + 2);
    for record in &records {
        let device = record["device"].as_str().unwrap();
        assert_eq!(record["emulated"], device.starts_with("emulated "), "{device}");
        assert!(record["recall"].as_f64().unwrap() >= 0.9);
        assert!(record["qps"].as_f64().unwrap() > 0.0);
        assert_eq!(record["samples"].as_array().unwrap().len(), 2);
        assert_eq!(record["predicted"].is_object(), device.starts_with("emulated "));
        assert_eq!(record["share_of_dram"].is_number(), device.starts_with("emulated "));
    }
    let made = names(&folder.path().join("graphs"));
    assert_eq!(made, ["groundtruth-400-25-10.ibin", "r16-csr", "r16-padded", "r8-csr", "r8-padded"]);

    // An existing index is reused, and refused if it is over other vectors.
    let again = "second-tier graph base.fbin queries.fbin --groundtruth gt.ibin --work graphs --output again \
                 --degrees 8 --layouts csr --devices nvm --repeats 1 --seconds 0 --sweep 1 --without-file";
    let RunRecords { run, rows } = self::records(folder.path(), "second-tier graph", again);
    assert!(run["file_queries"].is_null() && rows.iter().any(|row| row["device"] == "emulated nvm"));
    let fewer = format!("{again} --vectors 300");
    repro(folder.path(), &fewer).fails(1, &["gt.ibin"]);
    let fewer = fewer.replace("--groundtruth gt.ibin", "");
    repro(folder.path(), &fewer)
        .fails(1, &["r8-csr", "over 400 vectors", "300 vectors", "another work folder"]);
}

#[test]
fn posting_lists_on_second_tier_memory_are_measured_and_compared_with_graphs() {
    let folder = folder();
    let line = "second-tier cluster base.fbin queries.fbin --work indexes --output report --replicas 4,1 \
                --devices cxl --repeats 2 --seconds 0 --centroid-share 0.1";
    let RunRecords { run, rows: records } = records(folder.path(), "second-tier cluster", line);
    assert_eq!((&run["layouts"][2], number(&run, "centroid_share")), (&"grouped".into(), 0.1));
    // Two numbers of replicas in three layouts, each in DRAM and on the device, and one layout with one query
    // at a time, too. Also one file per index.
    assert_eq!(records.len(), 2 * (2 + 2 + 4) + 6);
    for record in &records {
        let device = record["device"].as_str().unwrap();
        assert_eq!(record["emulated"], device == "emulated cxl");
        assert!(number(record, "recall") >= 0.9 && number(record, "qps") > 0.0, "{record}");
        assert_eq!(record["predicted"].is_object(), device == "emulated cxl");
        assert!(number(record, "lists_per_query") >= 1.0);
        // The same lists hold the same vectors in every layout, so the same lists are searched and the same
        // vectors found.
        for other in records.iter().filter(|other| other["replicas"] == record["replicas"]) {
            assert_eq!(other["lists_per_query"], record["lists_per_query"]);
            assert_eq!(other["recall"], record["recall"]);
        }
    }
    let in_dram = |layout: &str| {
        let fits = |record: &&Value| {
            record["device"] == "dram" && record["replicas"] == 4 && record["layout"] == layout
        };
        records.iter().find(fits).unwrap()
    };
    let (coupled, decoupled, grouped) = (in_dram("coupled"), in_dram("decoupled"), in_dram("grouped"));
    // In so small a set reads are merged across the few gaps, so compare bytes, not reads.
    assert!(
        number(grouped, "small_reads_per_query") > 0.0 && number(decoupled, "small_reads_per_query") > 0.0
    );
    assert!(number(grouped, "amplification") < number(coupled, "amplification"));
    assert_eq!(number(coupled, "small_reads_per_query"), 0.0);
    compare(folder.path());
    let other = line.replace("--centroid-share 0.1", "--centroid-share 0.2");
    repro(folder.path(), &other).fails(1, &["x1-coupled", "centroid share 0.1", "another work folder"]);
}

/// Compares the posting lists that exist in `folder` with a graph.
fn compare(folder: &Path) {
    let line = "second-tier compare base.fbin queries.fbin --work indexes --output comparison --degrees 8 \
                --replicas 4 --devices nvm --repeats 1 --seconds 0 --centroid-share 0.1";
    let records = records(folder, "second-tier compare", line).rows;
    // Two graphs, two indexes of lists, and groups, each in DRAM, on the device and from the file.
    assert_eq!(records.len(), 5 * 3);
    assert!(records.iter().any(|record| record["device"] == "emulated nvm"));
    for record in &records {
        assert!(record["recall"].as_f64().unwrap() >= 0.9, "{record}");
        assert!(record["operations_per_query"].as_f64().unwrap() > 0.0, "{record}");
    }
    let made = names(&folder.join("indexes"));
    for name in ["codes", "r8-csr", "r8-padded", "x1-grouped", "x4-coupled", "x4-grouped"] {
        assert!(made.iter().any(|other| other == name), "{name} is missing in {made:?}");
    }
}
