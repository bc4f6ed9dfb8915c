//! `bathyal advise`.

use crate::harness::{bathyal, copy};
use crate::program::write_vectors;

const DISK: &str = r#"{"kind": "file", "method": "", "granularity": 4096, "alignment": 512,
    "addressable": false, "latency_ns": 80000, "iops": 1e5, "bandwidth_bytes_per_s": 2e9, "depth": 64}"#;

#[test]
fn an_index_is_advised_built_and_compared_with_its_plan() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    write_vectors(folder.path(), "more.fbin", 4_000, 16, 3);
    write_vectors(folder.path(), "asked.fbin", 100, 16, 4);
    std::fs::write(folder.path().join("disk.json"), DISK).unwrap();
    let line =
        "advise more.fbin asked.fbin --metric l2 --quick --family cluster --family flat --threads 1 --seed 7";
    let advice = run(&format!("{line} --on dram --on disk.json --output plan.json --json")).json();
    assert_eq!((&advice["vectors"], &advice["sample_queries"]), (&4_000.into(), &100.into()));
    assert!(advice["ranked"].as_array().is_some_and(|ranked| ranked.len() == 4), "{advice}");
    run("build more.fbin advised --metric l2 --advice plan.json").good();
    let plan = std::fs::read_to_string(folder.path().join("plan.json")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let built = run("inspect advised --json").json();
    assert_eq!(built["manifest"]["family"], plan["index"]["build"]["family"], "{built}");
    assert_eq!((&built["manifest"]["seed"], &plan["seed"]), (&7.into(), &7.into()), "{built}");
    for line in ["advise advised asked.fbin --check plan.json", "advise advised asked.fbin --check"] {
        let compared = run(&format!("{line} --json")).json();
        let size = &compared["numbers"][0];
        assert_eq!((&size["name"], &size["within"]), (&"index bytes".into(), &true.into()), "{compared}");
    }
    let text = run("advise --check advised asked.fbin --metric l2").good();
    assert!(text.contains("predicted") && text.contains("reads a query"), "{text}");
    // The index keeps the plan, and so does its copy.
    run("copy advised copied").good();
    let text = run("inspect copied").good();
    assert!(text.contains("plan          cluster") || text.contains("plan          flat"), "{text}");
    assert_eq!(run("inspect copied --json").json()["manifest"]["plan"], plan);
    let explained = run("search advised asked.fbin --explain=all --json").json();
    let reads = &explained["plan"]["numbers"][1];
    assert_eq!((&reads["name"], &reads["measured"]), (&"reads".into(), &explained["actual"]["reads"]));
    let text = run("search advised asked.fbin --explain=0 -k 3").good();
    assert!(text.contains("by its plan") && text.contains("for k 10, and this search has k 3"), "{text}");
    assert!(run("search idx queries.fbin --explain=0 --json").json().get("plan").is_none());
    let text = run(&format!("{line} --on dram --memory 1KB")).good();
    assert!(text.contains("left out: flat on dram: memory ") && text.contains("over your 1.0 KB"), "{text}");
    assert!(text.contains("note: no index meets all limits"), "{text}");
    let refused = run(&format!("{line} --on dram --memory 1KB --output none.json"));
    assert!(refused.code == Some(1) && refused.stdout.contains("left out: flat"), "{refused:?}");
    refused.mentions(&["there is no plan to write"]);
    assert!(!folder.path().join("none.json").exists());
}

#[test]
fn bad_devices_and_plans_are_refused() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    write_vectors(folder.path(), "more.fbin", 3_000, 16, 3);
    let lying = DISK.replace("\"latency_ns\": 80000", "\"latency_ns\": 0");
    std::fs::write(folder.path().join("lying.json"), lying).unwrap();
    run("advise more.fbin --metric l2 --on lying.json").fails(1, &["lying.json", "above 0"]);
    run("advise more.fbin --metric l2 --on missing").fails(1, &["missing"]);
    run("advise more.fbin --metric l2 --on dram --family tree").fails(1, &["tree"]);
    write_vectors(folder.path(), "few.fbin", 500, 16, 3);
    run("advise few.fbin --metric l2 --on dram").fails(1, &["few.fbin", "500 vectors", "2000"]);
    run("advise idx --metric l2 --check plan.json").fails(2, &["QUERIES"]);
    for option in ["--recall 0.9", "-k 5", "--on dram", "--memory 1GB", "--memory-price 1", "--quick"] {
        run(&format!("advise idx asked.fbin --metric l2 --check plan.json {option}"))
            .fails(2, &["cannot be used with"]);
    }
    run("advise idx queries.fbin --check").fails(1, &["idx", "keeps no plan"]);
    run("advise --check idx").fails(2, &["DATA"]);
    run("advise idx --check").fails(2, &["bathyal advise INDEX QUERIES --check"]);
    run("build base.fbin new --metric l2 --advice lying.json").fails(1, &["lying.json", "plan"]);
    run("build base.fbin new --metric l2 --advice p.json --family graph").fails(2, &["--advice"]);
}

#[test]
fn changed_plans_and_those_of_other_vectors_are_refused() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    write_vectors(folder.path(), "more.fbin", 3_000, 16, 3);
    write_vectors(folder.path(), "half.fbin", 1_500, 16, 3);
    write_vectors(folder.path(), "wide.fbin", 1_500, 24, 3);
    run("advise more.fbin --metric l2 --quick --family cluster --threads 1 --on dram --output plan.json")
        .good();
    let plan = std::fs::read_to_string(folder.path().join("plan.json")).unwrap();
    std::fs::write(folder.path().join("edited.json"), plan.replace("\"k\": 10", "\"k\": 11")).unwrap();
    std::fs::write(folder.path().join("cut.json"), &plan[..plan.len() / 2]).unwrap();
    for (name, reason) in [("edited.json", "was changed"), ("cut.json", "a part of one")] {
        run(&format!("build more.fbin new --metric l2 --advice {name}")).fails(1, &[name, reason]);
        run(&format!("advise idx queries.fbin --check {name}")).fails(1, &[name, reason]);
    }
    let built = run("build half.fbin half --metric l2 --advice plan.json");
    built.mentions(&["note: plan.json: the plan is for a number of vectors of 3000, and this is 1500"]);
    run("build wide.fbin new --metric l2 --advice plan.json").fails(1, &["plan.json", "dim 16", "24"]);
    run("build more.fbin new --metric cosine --advice plan.json").fails(1, &["metric l2", "cosine"]);
    run("advise half wide.fbin --check --metric cosine").fails(2, &["--metric is cosine", "for l2"]);
    run("advise idx queries.fbin --check plan.json").fails(1, &["idx", "make a plan for these"]);
}

#[test]
fn a_small_build_asks_nobody() {
    let folder = copy();
    write_vectors(folder.path(), "more.fbin", 3_000, 16, 3);
    let built = bathyal(folder.path(), "build more.fbin new --metric l2 --json");
    let report = built.json();
    assert_eq!((&report["family"], report.get("chosen")), (&"cluster".into(), None), "{report}");
}
