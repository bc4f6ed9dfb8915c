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
fn the_answer_is_written_as_a_page_and_as_a_plot() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    write_vectors(folder.path(), "more.fbin", 3_000, 16, 3);
    let line = "advise more.fbin --metric l2 --quick --family cluster --threads 1 --on dram";
    run(&format!("{line} --page advice.html")).good();
    run(&format!("{line} --page advice.svg --memory 1KB")).good();
    let several = run(&format!("{line} --recall 0.9,0.99 -k 5")).good();
    assert!(several.contains("recall@5 0.9,") && several.contains("\n\nrecall@5 0.99\nindex "), "{several}");
    run(&format!("{line} --recall 0.9,0.9")).fails(1, &["0.9 is given twice"]);
    run(&format!("{line} --recall 0.9,high")).fails(2, &["high"]);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let page = read("advice.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<td>cluster, codes of"), "{page}");
    assert!(read("advice.svg").starts_with("<svg") && read("advice.svg").contains("cluster, codes of"));
    // The ending is refused before the vectors are opened.
    run("advise none.fbin --metric l2 --page advice.pdf").fails(1, &["advice.pdf", ".html", ".svg"]);
    run("advise none.fbin --metric l2 --page none/advice.html").fails(1, &["none/advice.html", "folder"]);
    run("advise none.fbin --metric l2 --page idx.svg --check p.json").fails(2, &["cannot be used with"]);
}

#[test]
fn data_that_does_not_exist_yet_is_assumed() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    let line = "advise --vectors 1000000 --metric l2 --quick --family cluster --threads 1 --on dram";
    let advice = run(&format!("{line} --dim 48 --json --page page.html --output plan.json")).json();
    assert_eq!((&advice["vectors"], &advice["dim"]), (&1_000_000.into(), &48.into()));
    assert!(advice["assumed"]["widened_by"].as_f64().is_some_and(|factor| factor > 1.0), "{advice}");
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("no data was given"), "{page}");
    let text = run(&format!("{line} --dim 48 --element u8")).good();
    assert!(text.contains("of 48 u8") && text.contains("assumed sample of "), "{text}");
    assert!(text.contains("note: no data was given"), "{text}");
    let bits = "advise --vectors 5000 --dim 64 --element b1 --metric hamming --quick --family flat --on dram";
    assert!(run(bits).good().contains("(hamming)"));
    run("advise --metric l2").fails(2, &["DATA"]);
    run("advise --vectors 1000000 --metric l2").fails(2, &["--dim"]);
    run("advise --dim 48 --metric l2").fails(2, &["--vectors"]);
    run("advise base.fbin --vectors 4000 --dim 48 --metric l2").fails(2, &["cannot be used with"]);
    run("advise --vectors 4000 --element u8 --metric l2").fails(2, &["--dim"]);
    run("advise --vectors 4000 --dim 0 --metric l2 --on dram").fails(1, &["dim"]);
    run("advise --vectors 100 --dim 8 --metric l2 --on dram").fails(1, &["100 vectors", "2000"]);
    run("advise --vectors 5000000000 --dim 8 --metric l2 --on dram").fails(1, &["4294967295"]);
    run("advise --vectors 4000 --dim 8 --metric hamming --on dram").fails(1, &["hamming"]);
}

#[test]
fn mapped_memory_is_measured_and_holds_the_pages_of_an_index() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    write_vectors(folder.path(), "more.fbin", 3_000, 16, 3);
    let region = vec![7; 4 << 20];
    std::fs::write(folder.path().join("region"), &region).unwrap();
    let line = "advise more.fbin --metric l2 --quick --family graph --family cluster --threads 1 --json";
    let advice = run(&format!("{line} --on dram --on mapped:region")).json();
    assert_eq!(advice["devices"][1]["kind"], "mapped", "{advice}");
    let of = |tier: &str, family: &str| {
        let ranked = advice["ranked"].as_array().unwrap();
        let one = ranked.iter().find(|one| one["tier"] == tier && one["build"]["family"] == family);
        one.unwrap_or_else(|| panic!("{family} on {tier}: {advice}")).clone()
    };
    for label in ["graph", "cluster"] {
        let (dram, mapped) = (of("dram", label), of("mapped:region", label));
        assert_eq!(mapped["label"], dram["label"]);
        assert_eq!(mapped["disk_bytes"], dram["disk_bytes"], "{label}");
        // Pages in a file or on a device are no memory of the process.
        let bytes = |one: &serde_json::Value| one["dram_bytes"]["value"].as_f64().unwrap();
        assert!(bytes(&mapped) < bytes(&dram), "{label}: {} {}", bytes(&mapped), bytes(&dram));
    }
    let kept = std::fs::read(folder.path().join("region")).unwrap();
    assert!(kept == region, "the place is measured, and not changed");
    run(&format!("{line} --on mapped:none")).fails(1, &["none"]);
    run(&format!("{line} --on mapped:node=999")).fails(1, &["999"]);
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
