//! Options without a meaning for the given input are refused, never ignored.

use std::path::Path;

use crate::harness::{Outcome, bathyal, copy};

/// A folder with one index of each family, a collection, exports of it, and files of ids.
fn folder() -> tempfile::TempDir {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line).good();
    for family in ["flat", "spann", "lsh", "partitioned"] {
        run(&format!("build base.fbin {family}.idx --metric l2 --family {family}"));
    }
    run("collection create c --id u64 --vector vector:12 --column year:int64");
    run("collection add c base.fbin --first-id 5");
    for output in ["rows.parquet", "rows.arrow", "rows.jsonl", "alone.fbin"] {
        run(&format!(
            "collection export c {output} {}",
            if output == "alone.fbin" { "" } else { "--columns year" }
        ));
    }
    std::fs::write(folder.path().join("ids.txt"), "1\n".repeat(400)).unwrap();
    let schema = bathyal(folder.path(), "collection inspect c --json").json()["schema"].to_string();
    std::fs::write(folder.path().join("schema.json"), schema).unwrap();
    folder
}

fn refused(folder: &Path, line: &str, part: &str) {
    let ran: Outcome = bathyal(folder, line);
    assert!(matches!(ran.code, Some(1 | 2)), "{line}: {ran:?}");
    let text = ran.stderr.replace('\n', " ");
    assert!(text.contains(part), "{line}: '{part}' is missing in: {text}");
}

/// Part of the refusal of options that exclude each other.
const CANNOT: &str = "cannot be used with";

/// Command lines with an option that has no meaning for their input, each with a part of its refusal.
const MEANINGLESS: &[(&str, &str)] = &[
    // Files of rows, and files of vectors alone.
    ("collection add c rows.parquet --first-id 1000", "has its ids in it; a first id"),
    ("collection upsert c rows.arrow --first-id 1000", "has its ids in it; a first id"),
    ("collection upsert c rows.jsonl --first-id 0", "has its ids in it; a first id"),
    ("collection upsert c - --first-id 1000", "standard input: has its ids in it; a first id"),
    ("collection upsert c - --ids ids.txt", "standard input: has its ids in it; a file of ids"),
    ("collection upsert c rows.parquet --ids ids.txt", "has its ids in it; a file of ids"),
    ("collection upsert c base.fbin --ids ids.txt --first-id 3", CANNOT),
    ("collection upsert c base.fbin --id-column id", "no columns; leave the column of ids"),
    ("collection upsert c base.fbin --columns year", "no columns; leave the columns out"),
    ("collection export c x.parquet --ids ids.npy", "has the ids in it"),
    ("collection export c x.jsonl --ids ids.npy", "has the ids in it"),
    ("collection export c x.fbin --columns year", "holds vectors of one field, and nothing else"),
    ("collection export c x.fbin --no-vectors", "holds vectors of one field, and nothing else"),
    // Options whose values the schema has already.
    ("collection create d --schema schema.json --metric ip", CANNOT),
    ("collection create d --schema schema.json --columns year", "--like"),
    ("collection create d --schema schema.json --id-column id", "--like"),
    ("collection create d --vector a:8 --columns year", "--like"),
    ("collection create d --like rows.parquet --metric ip", "names the metric of each field (vector l2)"),
    ("collection create d --like rows.parquet --id-column key", "whose ids are \"id\", not \"key\""),
    ("collection create d --like rows.parquet --columns month", "has no column \"month\""),
    ("collection create d --vector a:8:f32:ip --metric cosine", "names the metric of each field (a ip)"),
    ("collection create d --like base.fbin --id-column id", "holds vectors alone and no columns"),
    ("collection create d --like base.fbin --columns year", "holds vectors alone and no columns"),
    // Options of one kind of search, given to another.
    ("search idx queries.fbin --radius 1 -k 3", CANNOT),
    ("search idx queries.fbin --limit 5", "--radius"),
    ("search idx queries.fbin --limit 5 -k 3", "--radius"),
    ("search idx queries.fbin --limit 5 --search-list 50", "--radius"),
    ("search idx queries.fbin --limit 5 --also graph.idx", "--radius"),
    ("search idx queries.fbin --radius 1 --probes 3", CANNOT),
    ("search spann.idx queries.fbin --radius 1 --prune 0.1", CANNOT),
    ("search idx queries.fbin --radius 1 --block 3", CANNOT),
    ("search lsh.idx queries.fbin --radius 1 --multi-probe 3", "--multi-probe is not an option of a range"),
    ("search idx queries.fbin --explain --groundtruth gt.ibin", CANNOT),
    ("search idx queries.fbin --explain --threads 2", CANNOT),
    ("search idx queries.fbin --explain --in-flight 2", CANNOT),
    ("search idx queries.fbin --explain --block 3", CANNOT),
    ("search idx queries.fbin --also graph.idx --beam-width 4", "knows no beam_width"),
    ("bench flat.idx queries.fbin --groundtruth gt.ibin --search-lists 20", "knows no search_list"),
    // Options for measurements, stripes and remote stores that are not used.
    ("build base.fbin d --metric l2 --family flat --calibration queries.fbin", "nothing to calibrate"),
    ("build base.fbin d --metric l2 --stripe-unit 64KiB", "--stripe"),
    ("convert gt.ibin x.ivecs --element f32", "holds ids"),
    ("convert-stripes idx d --from-stripe .", "is not striped"),
    ("inspect idx --stripe .", "is not striped"),
    ("verify idx --stripe .", "is not striped"),
    ("get idx 1 --stripe .", "is not striped"),
    ("probe --tier mapped --store-option region=x", "takes no store options"),
    ("probe . --store-option region=x", "takes no store options"),
    ("list . --store-option region=x", "takes no store options"),
    ("copy idx d --store-option region=x", "takes no store options"),
    ("copy idx d --from-store-option region=x", "takes no store options"),
    ("collection count c --store-option region=x", "takes no store options"),
    (
        "memory-node --capacity 1MB --listen 127.0.0.1:0 --keys k --load idx --store-option region=x",
        "no --load is an address",
    ),
];

#[test]
fn an_option_without_a_meaning_for_its_input_is_refused() {
    let folder = folder();
    let here = folder.path();
    for (line, part) in MEANINGLESS {
        refused(here, line, part);
    }
    assert!(!here.join("d").exists());
}

#[test]
fn families_refuse_efforts_that_they_do_not_have() {
    let folder = folder();
    let efforts = [
        ("--search-list 50", "idx graph.idx spann.idx lsh.idx partitioned.idx"),
        ("--probes 3", "idx spann.idx lsh.idx partitioned.idx"),
        ("--prune 0.2", "spann.idx"),
        ("--beam-width 8", "graph.idx"),
        ("--mode pipelined", "graph.idx spann.idx"),
        ("--multi-probe 1", "lsh.idx"),
        ("--ratio 1.1", "lsh.idx"),
    ];
    for (effort, known) in efforts {
        for index in ["idx", "graph.idx", "spann.idx", "flat.idx", "lsh.idx", "partitioned.idx"] {
            let line = format!("search {index} queries.fbin -k 5 {effort}");
            if known.split(' ').any(|one| one == index) {
                let ran = bathyal(folder.path(), &line);
                assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
            } else {
                refused(folder.path(), &line, "knows no ");
            }
        }
    }
}
