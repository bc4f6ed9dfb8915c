//! Memory budgets hold for the peak of the whole process, as the system measures it.

use crate::harness::bathyal;
use serde_json::Value;
use tempfile::TempDir;

fn number(answer: &Value, key: &str) -> u64 {
    answer[key].as_u64().unwrap_or_else(|| panic!("{key} in {answer}"))
}

#[test]
fn a_build_stays_below_its_budget_and_a_smaller_one_is_refused() {
    let folder = TempDir::new().unwrap();
    crate::harness::write_vectors(folder.path(), "base.fbin", 20_000, 256, 1);
    let line = "build base.fbin index --metric l2 --json";
    let refused = bathyal(folder.path(), &format!("{line} --memory 1MB"));
    assert_eq!(refused.code, Some(1));
    let needed: u64 =
        refused.stderr.split(" needs ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    bathyal(folder.path(), &format!("{line} --memory {}", needed - 1)).fails(1, &["needs"]);
    let answer = bathyal(folder.path(), &format!("{line} --memory {needed}")).json();
    assert!(number(&answer, "peak_rss_bytes") <= needed, "{answer}");

    crate::harness::write_vectors(folder.path(), "queries.fbin", 500, 256, 2);
    let budget = 64 << 20;
    let line = format!("search index queries.fbin -k 10 --search-list 100 --memory {budget} --json");
    let answer = bathyal(folder.path(), &line).json();
    assert!(number(&answer, "dram_bytes") <= budget);
    assert!(number(&answer, "peak_rss_bytes") <= budget + not_counted(&answer), "{answer}");
}

#[test]
fn a_build_takes_less_memory_than_the_data() {
    let folder = TempDir::new().unwrap();
    crate::harness::write_vectors(folder.path(), "base.fbin", 200_000, 64, 3);
    // Few queries, because random numbers take long to calibrate.
    crate::harness::write_vectors(folder.path(), "queries.fbin", 50, 64, 4);
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

/// Returns the bytes outside the budget, as an answer reports them.
fn not_counted(answer: &Value) -> u64 {
    let parts = answer["not_counted"].as_object().unwrap_or_else(|| panic!("{answer}"));
    parts.values().map(|bytes| bytes.as_u64().unwrap()).sum()
}

#[test]
fn a_search_reports_the_memory_outside_its_budget() {
    let folder = TempDir::new().unwrap();
    crate::harness::write_vectors(folder.path(), "base.fbin", 2000, 32, 12);
    // The queries, the answers and the ground truth are each larger than the index.
    crate::harness::write_vectors(folder.path(), "queries.fbin", 60_000, 32, 13);
    bathyal(folder.path(), "groundtruth base.fbin queries.fbin gt.ibin -k 50").good();
    bathyal(folder.path(), "build base.fbin index --metric l2 --threads 2").good();
    let search = "search index queries.fbin -k 50 --search-list 50 --threads 2 --json";
    // The named memory is enough for one thread and short codes, which notes would say.
    let enough = needed(&bathyal(folder.path(), &format!("{search} --memory 1000"))) + (4 << 20);
    let bytes_outside = |options: &str| {
        let answer = bathyal(folder.path(), &format!("{search} --memory {enough} {options}")).json();
        let outside = not_counted(&answer);
        assert!(number(&answer, "peak_rss_bytes") <= enough + outside, "{options}: {answer}");
        outside
    };
    let all = bytes_outside("--groundtruth gt.ibin");
    assert!(bytes_outside("--groundtruth gt.ibin --block 1000") + (40 << 20) < all);
    assert!(bytes_outside("--block 1000") + (40 << 20) < all);
}

/// Returns the number of bytes that a refusal names as needed.
fn needed(refused: &crate::harness::Outcome) -> u64 {
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

/// Builds `base.fbin` in `folder` in the least memory that a refusal names, with many threads that read.
fn check_build_in_needed_memory(folder: &std::path::Path, kind: &str) {
    let line = format!(
        "build base.fbin index --overwrite --metric l2 --threads 8 --calibration queries.fbin --family \
         {kind} --json"
    );
    let enough = needed(&bathyal(folder, &format!("{line} --memory 1MB")));
    assert_eq!(needed(&bathyal(folder, &format!("{line} --memory {}", enough - 1))), enough, "{kind}");
    let answer = bathyal(folder, &format!("{line} --memory {enough}")).json();
    assert_eq!(number(&answer, "planned_memory_bytes"), enough, "{kind}");
    assert!(number(&answer, "peak_rss_bytes") <= enough, "{kind}: {answer}");
}

#[test]
fn every_kind_is_built_in_the_memory_that_a_refusal_names() {
    let folder = TempDir::new().unwrap();
    crate::harness::write_vectors(folder.path(), "base.fbin", 6000, 96, 7);
    crate::harness::write_vectors(folder.path(), "queries.fbin", 20, 96, 8);
    KINDS.iter().for_each(|kind| check_build_in_needed_memory(folder.path(), kind));
}

/// `make check-budgets`: the same with more vectors, if `BATHYAL_LARGE_SETS` is set; takes long.
#[test]
fn large_sets_are_built_in_the_memory_that_a_refusal_names() {
    if std::env::var_os("BATHYAL_LARGE_SETS").is_none() {
        return;
    }
    let folder = TempDir::new().unwrap();
    for (count, dim) in [(130_000, 768), (1_000_000, 96)] {
        crate::harness::write_vectors(folder.path(), "base.fbin", count, dim, 9);
        crate::harness::write_vectors(folder.path(), "queries.fbin", 20, dim, 10);
        KINDS.iter().for_each(|kind| check_build_in_needed_memory(folder.path(), kind));
    }
}

/// Builds with the options that a refusal advises.
#[test]
fn the_advice_of_a_refusal_helps() {
    let folder = TempDir::new().unwrap();
    crate::harness::write_vectors(folder.path(), "base.fbin", 20_000, 64, 11);
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
    crate::harness::write_vectors(folder.path(), "base.fbin", 40_000, 64, 5);
    crate::harness::write_vectors(folder.path(), "queries.fbin", 50, 64, 6);
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
    crate::harness::write_vectors(folder.path(), "base.fbin", 60_000, 128, 5);
    crate::harness::write_vectors(folder.path(), "queries.fbin", 500, 128, 6);
    let line = "build base.fbin index --metric l2 --family partitioned --partition-vectors 500 --json";
    assert_eq!(bathyal(folder.path(), line).code, Some(0));
    let search = "search index queries.fbin -k 10 --search-list 50 --probes 6 --threads 1 --json";
    let least = needed(&bathyal(folder.path(), &format!("{search} --memory 1MB")));
    // Kept sub-indexes and queries in flight: few, some, and all.
    for budget in [least, least + (3 << 20), least + (12 << 20)] {
        let answer = bathyal(folder.path(), &format!("{search} --memory {budget}")).json();
        assert!(number(&answer, "dram_bytes") <= budget, "{answer}");
        assert!(number(&answer, "peak_rss_bytes") <= budget + not_counted(&answer), "{budget}: {answer}");
        assert!(answer["cache_hit_rate"].as_f64().unwrap() > 0.0, "{answer}");
    }
}
