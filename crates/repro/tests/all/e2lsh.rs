//! E2LSH on storage.

use std::path::Path;

use bathyal_index::BuildOptions;
use bathyal_index::families::flat::FlatOptions;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use serde_json::Value;

use crate::harness::{RunRecords, folder, names, number, records, repro};

#[test]
fn e2lsh_on_storage_is_reproduced() {
    let folder = folder();
    let line = "e2lsh base.fbin queries.fbin --work lsh --output report --tables 6 --gammas 0.3,0.5 --sizes \
                100,200 -k 1,5 --repeats 2 --synchronous-queries 5 --block-sizes 128 --srs-us 100";
    let RunRecords { run, rows: records } = records(folder.path(), "e2lsh", line);
    assert_eq!((&run["k"][1], number(&run, "srs_us"), number(&run, "width")), (&5.into(), 100.0, 4.0));
    // The record of the chosen tables comes before those of further measurements.
    let chosen = records.iter().find(|record| record["of"] == "chosen").unwrap();
    assert!(number(chosen, "tables") == 6.0 && number(chosen, "build_seconds") > 0.0, "{chosen}");
    let of_devices = |key: &str| number_of_devices(&records, number(chosen, "hashes"), key);
    assert_eq!(of_devices("index_bytes"), number(chosen, "index_bytes"));
    assert_eq!(of_devices("memory_bytes"), number(chosen, "hash_bytes"));
    let experiment = |name: &str| -> Vec<&Value> {
        records.iter().filter(|record| record["experiment"] == name).collect()
    };
    for record in experiment("accuracy") {
        // Each bucket that is not empty takes at least one read of a table and one of a block.
        let both = number(record, "table_reads") + number(record, "block_reads");
        assert!((number(record, "reads") - both).abs() < 1e-9, "{record}");
        assert!(number(record, "ratio") >= 1.0 && number(record, "rejected") <= number(record, "entries"));
        assert!(number(record, "searched_radii") <= number(record, "radii"), "{record}");
    }
    // A query compares at most S candidates at each radius.
    let one = experiment("accuracy")[0];
    assert!(
        number(one, "compared") <= number(one, "candidates") * number(one, "searched_radii") + 1e-9,
        "{one}"
    );
    // All variants find the same. Filters and the places of first blocks save reads; reading early saves
    // rounds.
    for k in [1, 5] {
        let ideas: Vec<_> = experiment("ideas").into_iter().filter(|record| record["k"] == k).collect();
        assert_eq!(ideas.len(), 6);
        let reads: Vec<f64> = ideas.iter().map(|record| number(record, "reads")).collect();
        assert!(reads[..5].is_sorted_by(|more, fewer| more >= fewer) && reads[4] < reads[0], "{reads:?}");
        assert!(number(ideas[5], "rounds") <= number(ideas[4], "rounds"));
        // Early reads are those that would come later, plus the wasted ones.
        assert!((reads[5] - number(ideas[5], "wasted") - reads[4]).abs() < 1e-9, "{reads:?}");
        assert_eq!((&ideas[4]["ratio"], &ideas[4]["compared"]), (&ideas[5]["ratio"], &ideas[5]["compared"]));
    }
    // Counters are the same on all devices, and only the paper's devices are emulated.
    let devices = experiment("devices");
    assert_eq!(devices.len(), 2 * (4 + 9));
    for record in &devices {
        let variant = record["variant"].as_str().unwrap();
        assert_eq!(record["emulated"], variant.contains(" x "), "{variant}");
        let same = devices.iter().find(|one| one["k"] == record["k"]).unwrap();
        for counter in ["reads", "entries", "compared", "ratio"] {
            assert_eq!(record[counter], same[counter], "{variant} {counter}");
        }
        assert_eq!(record["predicted_ns"].is_number(), record["emulated"] == true);
    }
    assert_eq!(experiment("synchronous").len(), 5);
    let growth: Vec<f64> = experiment("growth").iter().map(|record| number(record, "vectors")).collect();
    assert!(growth.len() <= 3 && growth.is_sorted());
    // Three sizes, two k, from the file and in memory.
    assert_eq!(experiment("ratio").len(), 12);
    // The work folder keeps only the family's indexes and the exact neighbours.
    let made = names(&folder.path().join("lsh"));
    assert_eq!(made, ["groundtruth-400-25-5.ibin", "lsh-n100", "lsh-n200", "lsh-n400"]);
    check_small_and_wrong_sets(folder.path());
}

/// Runs a set of two vectors, and checks the refusals of wrong work folders and options.
fn check_small_and_wrong_sets(folder: &Path) {
    // A set may have two vectors. An index of another family under the expected name is refused.
    let two = "e2lsh base.fbin queries.fbin --vectors 2 -k 1 --tables 2 --gammas 0.5 --repeats 1 --work two \
               --output of-two";
    repro(folder, two).good();
    let queries = VectorFile::open(folder.join("queries.fbin")).unwrap();
    let options = BuildOptions::of(FlatOptions::default());
    std::fs::create_dir(folder.join("other")).unwrap();
    bathyal_index::build(&queries, &folder.join("other/lsh-n400"), &options, &Silent).unwrap();
    repro(folder, "e2lsh base.fbin queries.fbin --work other")
        .fails(1, &["family flat", "name another work folder"]);
    repro(folder, "e2lsh base.fbin queries.fbin --width 0").fails(2, &["--width", "more than 0"]);
    repro(folder, "e2lsh base.fbin queries.fbin --groundtruth gt.ibin -k 100 --work w")
        .fails(2, &["100 are needed", "--groundtruth"]);
}

/// Returns a number of the records of devices, all of which are of the tables with `hashes` hashes.
fn number_of_devices(records: &[Value], hashes: f64, key: &str) -> f64 {
    let found = records.iter().find(|record| record["experiment"] == "devices").unwrap();
    assert_eq!(number(found, "hashes"), hashes);
    number(found, key)
}
