//! A stated budget holds: the peak of the whole process, measured by the system.

use crate::workshop::bathyal;
use serde_json::Value;
use tempfile::TempDir;

fn number(answer: &Value, key: &str) -> u64 {
    answer[key].as_u64().unwrap_or_else(|| panic!("{key} in {answer}"))
}

#[test]
fn a_build_stays_below_its_budget_and_a_smaller_one_is_refused() {
    let folder = TempDir::new().unwrap();
    crate::workshop::write_vectors(folder.path(), "base.fbin", 20_000, 256, 1);
    let line = "build base.fbin index --metric l2 --json";
    let refused = bathyal(folder.path(), &format!("{line} --memory 1MB"));
    assert_eq!(refused.code, Some(1));
    let needed: u64 =
        refused.stderr.split(" needs ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    bathyal(folder.path(), &format!("{line} --memory {}", needed - 1)).fails(1, &["needs"]);
    let answer = bathyal(folder.path(), &format!("{line} --memory {needed}")).json();
    assert!(number(&answer, "peak_rss_bytes") <= needed, "{answer}");

    crate::workshop::write_vectors(folder.path(), "queries.fbin", 500, 256, 2);
    let budget = 64 << 20;
    let line = format!("search index queries.fbin -k 10 --search-list 100 --memory {budget} --json");
    let answer = bathyal(folder.path(), &line).json();
    assert!(number(&answer, "dram_bytes") <= budget);
    assert!(number(&answer, "peak_rss_bytes") <= budget + not_counted(&answer), "{answer}");
}

#[test]
fn a_set_is_built_in_less_memory_than_it_takes_to_hold() {
    let folder = TempDir::new().unwrap();
    crate::workshop::write_vectors(folder.path(), "base.fbin", 200_000, 64, 3);
    // Few queries, since numbers without any structure take long to calibrate.
    crate::workshop::write_vectors(folder.path(), "queries.fbin", 50, 64, 4);
    let line = "build base.fbin index --metric l2 --threads 2 --calibration queries.fbin --json";
    let whole = bathyal(folder.path(), &format!("{line} --memory 1GB")).json();
    let refused = bathyal(folder.path(), &format!("{line} --overwrite --memory 1MB"));
    let needed: u64 =
        refused.stderr.split(" needs ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(needed + (16 << 20) < number(&whole, "planned_memory_bytes"), "{needed} against {whole}");
    let parts = bathyal(folder.path(), &format!("{line} --overwrite --memory {needed}")).json();
    assert!(parts["stage_seconds"].to_string().contains("spread"), "{parts}");
    assert!(number(&parts, "peak_rss_bytes") <= needed, "{parts}");
    assert_eq!(number(&parts, "vectors"), 200_000);
    bathyal(folder.path(), "verify index").good();
}

/// What an answer says that is held besides what a budget limits.
fn not_counted(answer: &Value) -> u64 {
    let parts = answer["not_counted"].as_object().unwrap_or_else(|| panic!("{answer}"));
    parts.values().map(|bytes| bytes.as_u64().unwrap()).sum()
}

#[test]
fn a_search_says_what_its_budget_leaves_out() {
    let folder = TempDir::new().unwrap();
    crate::workshop::write_vectors(folder.path(), "base.fbin", 2000, 32, 12);
    // Queries, answers and ground truth that are each larger than the index.
    crate::workshop::write_vectors(folder.path(), "queries.fbin", 60_000, 32, 13);
    bathyal(folder.path(), "groundtruth base.fbin queries.fbin gt.ibin -k 50").good();
    bathyal(folder.path(), "build base.fbin index --metric l2 --threads 2").good();
    let search = "search index queries.fbin -k 50 --search-list 50 --threads 2 --json";
    // What opens the index first, then what it is searched in, too.
    let mut enough = 1000;
    for _ in 0..2 {
        let ran = bathyal(folder.path(), &format!("{search} --memory {enough}"));
        enough = if ran.code == Some(0) { enough } else { needed(&ran) };
    }
    let peak_and_besides = |options: &str| {
        let answer = bathyal(folder.path(), &format!("{search} --memory {enough} {options}")).json();
        let besides = not_counted(&answer);
        assert!(number(&answer, "peak_rss_bytes") <= enough + besides, "{options}: {answer}");
        besides
    };
    let all = peak_and_besides("--groundtruth gt.ibin");
    assert!(peak_and_besides("--groundtruth gt.ibin --block 1000") + (40 << 20) < all);
    assert!(peak_and_besides("--block 1000") + (40 << 20) < all);
}

/// What a refusal names as enough.
fn needed(refused: &crate::workshop::Ran) -> u64 {
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let number = refused.stderr.split(" needs ").nth(1).and_then(|rest| rest.split(' ').next());
    number.unwrap_or_else(|| panic!("{refused:?}")).parse().unwrap()
}

/// Every family in every layout.
const KINDS: [&str; 10] = [
    "cluster",
    "graph --layout padded --max-degree 8 --search-list 10",
    "graph --layout page_local --max-degree 8 --search-list 10",
    "graph --layout csr --max-degree 8 --search-list 10",
    "spann --layout coupled",
    "spann --layout decoupled",
    "spann --layout grouped",
    "spann --layout coupled --code-kind axes",
    "lsh",
    "partitioned --replicas 2",
];

/// Builds `base.fbin` in `folder` in the least memory that is said to be enough; many threads, each of which reads.
fn builds_in_what_is_said_to_be_enough(folder: &std::path::Path, kind: &str) {
    let line = format!(
        "build base.fbin index --overwrite --metric l2 --threads 8 --calibration queries.fbin --family {kind} --json"
    );
    let enough = needed(&bathyal(folder, &format!("{line} --memory 1MB")));
    assert_eq!(needed(&bathyal(folder, &format!("{line} --memory {}", enough - 1))), enough, "{kind}");
    let answer = bathyal(folder, &format!("{line} --memory {enough}")).json();
    assert_eq!(number(&answer, "planned_memory_bytes"), enough, "{kind}");
    assert!(number(&answer, "peak_rss_bytes") <= enough, "{kind}: {answer}");
}

#[test]
fn every_kind_is_built_in_what_is_said_to_be_enough() {
    let folder = TempDir::new().unwrap();
    crate::workshop::write_vectors(folder.path(), "base.fbin", 6000, 96, 7);
    crate::workshop::write_vectors(folder.path(), "queries.fbin", 20, 96, 8);
    KINDS.iter().for_each(|kind| builds_in_what_is_said_to_be_enough(folder.path(), kind));
}

/// `make check-budgets`: the same with more vectors than other tests can wait for, where `BATHYAL_LARGE_SETS` is set.
#[test]
fn large_sets_are_built_in_what_is_said_to_be_enough() {
    if std::env::var_os("BATHYAL_LARGE_SETS").is_none() {
        return;
    }
    let folder = TempDir::new().unwrap();
    for (count, dim) in [(130_000, 768), (1_000_000, 96)] {
        crate::workshop::write_vectors(folder.path(), "base.fbin", count, dim, 9);
        crate::workshop::write_vectors(folder.path(), "queries.fbin", 20, dim, 10);
        KINDS.iter().for_each(|kind| builds_in_what_is_said_to_be_enough(folder.path(), kind));
    }
}

/// What a refusal advises, with the options that it names changed.
#[test]
fn what_a_refusal_advises_helps() {
    let folder = TempDir::new().unwrap();
    crate::workshop::write_vectors(folder.path(), "base.fbin", 20_000, 64, 11);
    let changed = |option: &str| match option {
        "fewer threads" => "--threads 1",
        "lower code_bytes" => "--code-bytes 8",
        "lower max_degree" => "--max-degree 4",
        "raise group_vectors" => "--group-vectors 1000",
        "lower centroid_share" => "--centroid-share 0.001",
        "lower replicas" => "--replicas 1",
        "lower tables" => "--tables 4",
        "lower partition_vectors" => "--partition-vectors 500",
        "raise block_bytes" => "--block-bytes 4096",
        other => panic!("{other}"),
    };
    for family in
        ["cluster", "graph", "spann", "spann --layout coupled --code-kind axes", "lsh", "partitioned"]
    {
        let line = format!("build base.fbin index --metric l2 --memory 1MB --family {family}");
        let refused = bathyal(folder.path(), &format!("{line} --threads 8"));
        let enough = needed(&refused);
        let advice = refused.stderr.trim().split("allow at least that much").nth(1).unwrap();
        let options: Vec<&str> = advice.split(", or ").skip(1).collect();
        assert!(!options.is_empty(), "{refused:?}");
        for option in options {
            let changed = changed(option.trim_start_matches("use "));
            let threads = if changed.contains("threads") { "" } else { "--threads 8" };
            let less = needed(&bathyal(folder.path(), &format!("{line} {threads} {changed}")));
            assert!(less < enough, "{family}: {option}: {less} of {enough}");
        }
    }
}

#[test]
fn posting_lists_are_built_and_searched_below_their_budgets() {
    let folder = TempDir::new().unwrap();
    crate::workshop::write_vectors(folder.path(), "base.fbin", 40_000, 64, 5);
    crate::workshop::write_vectors(folder.path(), "queries.fbin", 50, 64, 6);
    let line =
        "build base.fbin index --metric l2 --family spann --threads 2 --calibration queries.fbin --json";
    let refused = bathyal(folder.path(), &format!("{line} --memory 1MB"));
    assert_eq!(refused.code, Some(1));
    let needed: u64 =
        refused.stderr.split(" needs ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let answer = bathyal(folder.path(), &format!("{line} --memory {needed}")).json();
    assert!(number(&answer, "peak_rss_bytes") <= needed, "{answer}");
    for layout in ["coupled", "decoupled", "grouped", "coupled --code-kind axes"] {
        let build = format!("{line} --overwrite --layout {layout} --memory 256MB");
        let answer = bathyal(folder.path(), &build).json();
        assert!(number(&answer, "peak_rss_bytes") <= 256 << 20, "{answer}");
        let budget = 80 << 20;
        let search = format!("search index queries.fbin -k 10 --search-list 100 --memory {budget} --json");
        let answer = bathyal(folder.path(), &search).json();
        assert!(number(&answer, "dram_bytes") <= budget, "{layout}: {answer}");
        assert!(number(&answer, "peak_rss_bytes") <= budget + not_counted(&answer), "{layout}: {answer}");
    }
}

#[test]
fn partitions_are_searched_below_their_budgets() {
    let folder = TempDir::new().unwrap();
    crate::workshop::write_vectors(folder.path(), "base.fbin", 60_000, 128, 5);
    crate::workshop::write_vectors(folder.path(), "queries.fbin", 500, 128, 6);
    let line = "build base.fbin index --metric l2 --family partitioned --partition-vectors 500 --json";
    assert_eq!(bathyal(folder.path(), line).code, Some(0));
    let search = "search index queries.fbin -k 10 --search-list 50 --probes 6 --threads 1 --json";
    let least = needed(&bathyal(folder.path(), &format!("{search} --memory 1MB")));
    // What is kept, and queries under way at once, are few, some, and as many as there are.
    for budget in [least, least + (3 << 20), least + (12 << 20)] {
        let answer = bathyal(folder.path(), &format!("{search} --memory {budget}")).json();
        assert!(number(&answer, "dram_bytes") <= budget, "{answer}");
        assert!(number(&answer, "peak_rss_bytes") <= budget + not_counted(&answer), "{budget}: {answer}");
        assert!(answer["cache_hit_rate"].as_f64().unwrap() > 0.0, "{answer}");
    }
}
