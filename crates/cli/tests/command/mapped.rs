//! Mapped memory: `--tier mapped:PLACE`.

use crate::harness::{INDEXES, bathyal, command, copy, shared};
use serde_json::Value;
use std::process::Stdio;

/// Returns the report and the answers to the shared queries, as bytes of ids and distances.
fn answers(folder: &std::path::Path, index: &str, tier: &str) -> (Value, Vec<u8>) {
    let output = folder.join("found.ibin");
    let index = shared().join(index);
    let queries = shared().join("queries.fbin");
    let (index, queries, output) = (index.display(), queries.display(), output.display());
    let line =
        format!("search {index} {queries} -k 10 --search-list 40 --tier {tier} --output {output} --json");
    let answer = bathyal(folder, &line).json();
    (answer, std::fs::read(folder.join("found.ibin")).unwrap())
}

#[test]
fn every_place_gives_the_same_answers_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("pmem")).unwrap();
    let mut places = vec![("mapped", "anonymous memory"), ("mapped:pmem", "pmem/bathyal-")];
    places.extend([("mapped:one.region", "one.region"), ("mapped:one.region,verify", "one.region")]);
    if cfg!(target_os = "linux") {
        places.push(("mapped:node=0", "NUMA node 0"));
    }
    for index in INDEXES {
        let [dram, file] = ["dram", "file"].map(|tier| answers(folder.path(), index, tier).1);
        for (tier, method) in &places {
            // Pages were checked when they were loaded, so groups are not read page by page.
            let expected = if index == "idx" && *tier != "mapped" { &file } else { &dram };
            let (answer, found) = answers(folder.path(), index, tier);
            assert_eq!(answer["tier"], *tier);
            assert!(answer["method"].as_str().unwrap().contains(method), "{answer}");
            assert!(found == *expected, "{index} on {tier}");
        }
    }
}

#[test]
fn concurrent_commands_share_loaded_memory() {
    let folder = copy();
    let arguments = ["search", "idx", "queries.fbin", "--tier", "mapped:shared.region"];
    let start = |_| command(folder.path(), &arguments).stdout(Stdio::null()).spawn().unwrap();
    let children: Vec<_> = (0..6).map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let region = folder.path().join("shared.region").metadata().unwrap();
    assert!(region.len() > 4096);
}

#[test]
fn missing_places_are_named() {
    let folder = copy();
    let search = |tier: &str| bathyal(folder.path(), &format!("search idx queries.fbin --tier {tier}"));
    search("tape").fails(2, &["unknown tier 'tape'", "mapped:node=N"]);
    search("mapped:node=x").fails(2, &["node=1"]);
    search("mapped:node=999").fails(1, &["no NUMA node 999"]);
    search("mapped:/dev/dax77.7").fails(1, &["/dev/dax77.7: there is no such device"]);
    search("mapped:base.fbin").fails(1, &["base.fbin", "overwrite"]);
    bathyal(folder.path(), "verify idx").good();
    bathyal(folder.path(), "probe --tier file").fails(2, &["mapped memory only"]);
}

#[test]
fn a_damaged_index_is_not_loaded() {
    let folder = copy();
    for index in INDEXES {
        let pages = crate::harness::index_files(&folder.path().join(index));
        let largest = pages.iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
        let mut bytes = std::fs::read(largest).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(largest, bytes).unwrap();
        for tier in ["mapped", "mapped:a.region"] {
            let line = format!("search {index} queries.fbin --tier {tier}");
            bathyal(folder.path(), &line).fails(3, &["damaged", "checksum"]);
        }
    }
}

#[test]
fn memory_is_probed_and_its_profile_saved() {
    let folder = tempfile::tempdir().unwrap();
    let line = "probe --tier mapped --size 2MB --output profile.json --json";
    let answer = bathyal(folder.path(), line).json();
    assert_eq!(answer["profile"]["kind"], "mapped");
    assert!(answer["dependent_load_ns"].as_f64().unwrap() > 0.0);
    let most = answer["cells"].as_array().unwrap().iter().map(|cell| cell["threads"].as_u64().unwrap()).max();
    assert!(most >= Some(1) && !answer["mixed"].as_array().unwrap().is_empty());
    let saved: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("profile.json")).unwrap()).unwrap();
    assert_eq!(saved, answer["profile"]);
}
