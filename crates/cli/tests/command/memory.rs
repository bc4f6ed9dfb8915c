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
    // The program itself, its stacks and the mapped queries come on top of what the index holds.
    assert!(number(&answer, "peak_rss_bytes") <= budget + (32 << 20), "{answer}");
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
        assert!(number(&answer, "peak_rss_bytes") <= budget + (32 << 20), "{layout}: {answer}");
    }
}
