//! Indexes in an object store, on tiny data.

use serde_json::Value;

use crate::harness::{number, records, repro, write_vectors};

#[test]
fn indexes_in_an_object_store_are_reproduced() {
    let folder = tempfile::tempdir().unwrap();
    // The record that is read when an index is opened would hold all of a smaller index.
    write_vectors(folder.path(), "base.fbin", 2000, 192, 1);
    write_vectors(folder.path(), "queries.fbin", 20, 192, 2);
    let line =
        "cloud --base base.fbin --query queries.fbin --work cloud --output report --sizes 100,1000 --quick";
    let run_records = records(folder.path(), "cloud", line);
    let run = &run_records.run;
    assert!(run["store"]["name"] == "rack" && run["hedge"] == false, "{run}");
    let sets = run["sets"].as_array().unwrap();
    assert!(sets.len() == 3 && sets[0]["name"] == "base" && sets[0]["made"].is_null(), "{run}");
    assert!(sets[1]["name"] == "base-d48" && sets[1]["made"] == "`base` projected to 48 dimensions", "{run}");
    assert!(sets[2]["name"] == "base-u8" && sets[2]["made"] == "`base` rounded to bytes", "{run}");
    let records = run_records.of_kind("point");
    let named = |index: &str| -> Vec<&Value> {
        records.iter().filter(|record| record["index"] == index && record["set"] == "base").collect()
    };
    // Searches do not request what is in memory: groups and lists of vectors take one round, lists of codes
    // two.
    for (index, rounds) in [("cluster", 1.0), ("spann", 1.0), ("coded", 2.0)] {
        assert!(!named(index).is_empty());
        named(index).iter().for_each(|record| assert_eq!(number(record, "rounds"), rounds, "{record}"));
    }
    // With the same candidate list, a wider beam takes fewer rounds.
    let graph = named("graph");
    for one in &graph {
        for other in graph.iter().filter(|other| other["search_list"] == one["search_list"]) {
            if number(one, "beam_width") < number(other, "beam_width") {
                assert!(number(one, "rounds") >= number(other, "rounds"), "{one} {other}");
            }
        }
    }
    let at = |beam: u32| graph.iter().find(|record| record["beam_width"] == beam).unwrap();
    assert!(number(at(4), "rounds") > number(at(64), "rounds"));
    for record in &records {
        assert!((0.0..=1.0).contains(&number(record, "recall")), "{record}");
        assert_eq!(record["asked"].is_number(), record["by"] == "recall", "{record}");
        assert!(number(record, "reads") >= number(record, "requests"), "{record}");
        if record["set"] != "base" {
            continue;
        }
        assert!(number(record, "requests") > 0.0, "{record}");
        for load in record["loads"].as_array().unwrap() {
            assert_eq!(load["emulated"], true);
            // A store in the same rack answers after a millisecond.
            assert!(number(load, "qps") > 0.0 && number(load, "round_ms") > 0.5, "{load}");
            assert!(number(load, "predicted_qps") > 0.0, "{load}");
        }
    }
    assert!(graph.iter().any(|record| record["loads"].as_array().unwrap().len() == 2));
    let sets: std::collections::BTreeSet<_> =
        records.iter().map(|record| record["set"].as_str().unwrap()).collect();
    assert_eq!(Vec::from_iter(sets), ["base", "base-d48", "base-n100", "base-n1000", "base-u8"]);
    let cached = run_records.of_kind("cached");
    assert_eq!(cached.len(), (3 + 3) * 4 * 2, "{:?}", run_records.of_kind("note"));
    for one in &cached {
        assert!((0.0..=1.0).contains(&number(one, "hit_rate")), "{one}");
        assert!(number(one, "saved_waves") <= number(one, "waves"), "{one}");
    }
    assert_eq!(run_records.of_kind("size").len(), 8 + 2 * 3 + 2 * 3, "one for each opened index");

    // The indexes in the work folder are over other vectors than the requested ones.
    repro(folder.path(), &format!("{line} --vectors 300"))
        .fails(1, &["over 2000 vectors", "another work folder"]);
    repro(folder.path(), "cloud --base base.fbin --query a --query b").fails(2, &["--query for each --base"]);
}
