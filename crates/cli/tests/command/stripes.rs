//! Indexes over several disks: build, inspect, search and convert.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{bathyal, copy, names};

/// Creates folders in place of disks.
fn disks(folder: &Path) {
    ["a", "b", "c"].iter().for_each(|name| fs::create_dir(folder.join(name)).unwrap());
}

const BUILD: &str = "build base.fbin striped --metric l2 --stripe-unit 4KiB --overwrite";

#[test]
fn the_output_lists_the_reads_of_each_disk() {
    let folder = copy();
    disks(folder.path());
    let printed = bathyal(folder.path(), &format!("{BUILD} --stripe a,b")).good();
    // All folders of a test are on one device.
    assert!(printed.contains("a and b are on the same device"), "{printed}");
    let parts = |name: &str| names(&folder.path().join(name)).len();
    assert_eq!((parts("a"), parts("b")), (2, 2), "vectors and codes");

    let shown = bathyal(folder.path(), "inspect striped --json").json();
    let listed = shown["parts"].as_array().unwrap();
    assert_eq!((listed.len(), &shown["manifest"]["format_version"]), (4, &4.into()));
    assert!(listed[1]["path"].as_str().unwrap().starts_with(folder.path().join("b").to_str().unwrap()));
    let shown = bathyal(folder.path(), "inspect striped").good();
    assert!(shown.contains("part 2        of vectors.bin, "), "{shown}");
    assert_eq!(bathyal(folder.path(), "verify striped --json").json()["sound"], true);

    let search = "queries.fbin --search-list 100 --groundtruth gt.ibin --threads 1";
    let whole = bathyal(folder.path(), &format!("search idx {search} --json")).json();
    let found = bathyal(folder.path(), &format!("search striped {search} --json")).json();
    assert!(found["recall"].as_f64().unwrap() > 0.9 && whole.get("parts").is_none(), "{found}");
    let served = |key: &str| -> Vec<u64> {
        found["parts"].as_array().unwrap().iter().map(|part| part[key].as_u64().unwrap()).collect()
    };
    let asked = found["reads_per_query"].as_f64().unwrap() * found["queries"].as_f64().unwrap();
    assert!(served("reads").iter().sum::<u64>() as f64 >= asked - 0.5, "{found}");
    assert!(served("bytes").iter().chain(&served("p99_us")).all(|figure| *figure > 0), "{found}");
    let printed = bathyal(folder.path(), &format!("search striped {search}")).good();
    assert!(printed.contains("\npart 1 ") && printed.contains(" reads, "), "{printed}");
    let line =
        "bench striped queries.fbin --groundtruth gt.ibin --search-lists 50 --repeats 1 --output bench";
    let printed = bathyal(folder.path(), line).good();
    assert!(printed.contains("\npart 2 "), "{printed}");
    let point: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("bench.jsonl")).unwrap()).unwrap();
    assert_eq!(point["parts"].as_array().unwrap().len(), 2);
}

#[test]
fn disks_that_are_missing_or_exchanged_are_named() {
    let folder = copy();
    disks(folder.path());
    bathyal(folder.path(), &format!("{BUILD} --stripe a,b")).good();
    let at = |name: &str| folder.path().join(name);
    fs::rename(at("b"), at("elsewhere")).unwrap();
    let search = "search striped queries.fbin --search-list 100";
    let b = at("b").display().to_string();
    let missing = ["part 2 of 2 of vectors.bin", &b, "not mounted", "--stripe"];
    bathyal(folder.path(), search).fails(1, &missing);
    bathyal(folder.path(), "inspect striped").fails(1, &missing);
    let ran = bathyal(folder.path(), "verify striped");
    assert!(ran.code == Some(3) && ran.stdout.contains("part 2 of 2"), "{ran:?}");
    for line in [search, "inspect striped", "verify striped"] {
        bathyal(folder.path(), &format!("{line} --stripe elsewhere,a")).good();
    }
    fs::rename(at("a"), at("b")).unwrap();
    fs::rename(at("elsewhere"), at("a")).unwrap();
    bathyal(folder.path(), search).fails(1, &["the disks were exchanged"]);
    let parts = names(&at("a"));
    fs::write(at("a").join(&parts[0]), b"nothing").unwrap();
    let search = format!("{search} --stripe a,b");
    bathyal(folder.path(), &search).fails(1, &["is neither there nor in a, b"]);
    bathyal(folder.path(), &format!("{search} --also idx")).fails(2, &["--also", "--stripe"]);
    bathyal(folder.path(), "search idx queries.fbin --stripe a,b").fails(1, &["idx: is not striped"]);
}

#[test]
fn an_index_is_converted_from_one_disk_to_several_and_back() {
    let folder = copy();
    disks(folder.path());
    let made = bathyal(folder.path(), "convert-stripes idx striped --stripe a,b --json").json();
    assert_eq!((&made["parts_before"], &made["parts"]), (&1.into(), &2.into()));
    let refused = bathyal(folder.path(), "convert-stripes idx striped --stripe a,b,c");
    refused.fails(1, &["striped: already exists", "--overwrite"]);
    let printed = bathyal(folder.path(), "convert-stripes striped striped --stripe a,b,c --overwrite").good();
    assert!(printed.contains("from 2 disks to 3"), "{printed}");
    fs::rename(folder.path().join("c"), folder.path().join("d")).unwrap();
    bathyal(folder.path(), "convert-stripes striped whole --from-stripe d").good();
    for name in names(&folder.path().join("idx")) {
        let bytes = |index: &str| fs::read(folder.path().join(index).join(&name)).unwrap();
        assert_eq!(bytes("idx"), bytes("whole"), "{name}");
    }
}

#[test]
fn invalid_stripe_folders_are_refused() {
    let folder = copy();
    disks(folder.path());
    for (stripe, words) in [
        ("--stripe a", "one folder is given"),
        ("--stripe a,a", "is named twice"),
        ("--stripe a,base.fbin", "base.fbin: is not a folder"),
        ("--stripe a,nowhere", "nowhere: there is no such folder; mount its disk, or create the folder"),
        ("--stripe a,b --stripe-unit 5000", "a multiple of 4096"),
    ] {
        bathyal(folder.path(), &format!("build base.fbin new --metric l2 {stripe}")).fails(1, &[words]);
    }
    bathyal(folder.path(), "build base.fbin new --metric l2 --stripe-unit 4KiB").fails(2, &["--stripe"]);
    assert!(!folder.path().join("new").exists());
}
