//! Indexes on machines with several NUMA nodes. A folder describes two nodes with one processor of this
//! machine each, so that the tests run on machines with one node.
#![cfg(target_os = "linux")]

#[path = "all/clustered/mod.rs"]
mod clustered;

use bathyal_index::{
    BuildOptions, GivenOptions, Index, IndexError, Numa, OpenOptions, SearchOptions, TierChoice, build,
    families,
};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_tier::numa::{Nodes, allowed_processors};
use bathyal_vectors::progress::Silent;
use clustered::vectors;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DIM: usize = 32;
/// Time in which a thread of a busy machine begins.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

fn build_index(dir: &Path, family: &str) -> PathBuf {
    let graph = [("max_degree", 24), ("search_list", 50)].map(|(name, value)| (name.into(), value.into()));
    let given = if family == "graph" { GivenOptions::from(graph) } else { GivenOptions::new() };
    let path = dir.join(family);
    let options = BuildOptions::of(families::options(family, &given).unwrap());
    build(&vectors(Element::U8, 3000, DIM, 1), &path, &options, &Silent).unwrap();
    path
}

/// Describes nodes with these numbers, which have one processor of this process each. Returns `None` if there
/// are fewer processors.
fn nodes(root: &Path, numbers: &[u32]) -> Option<Arc<Nodes>> {
    let allowed = allowed_processors().unwrap();
    let online: Vec<String> = numbers.iter().map(u32::to_string).collect();
    std::fs::write(root.join("online"), online.join(",")).unwrap();
    for (number, processor) in numbers.iter().zip(&allowed) {
        let node = root.join(format!("node{number}"));
        std::fs::create_dir(&node).unwrap();
        std::fs::write(node.join("cpulist"), processor.to_string()).unwrap();
    }
    (allowed.len() >= numbers.len()).then(|| Arc::new(Nodes::read(root, &allowed).unwrap()))
}

/// Returns the processors that each search thread of this process may use, as Linux lists them.
fn processors_of_search_threads() -> Vec<String> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let read = |file| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        if read("comm").trim() == "bathyal-search" {
            let status = read("status");
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            found.push(list.unwrap_or_default().trim().to_owned());
        }
    }
    found.sort();
    found
}

#[test]
fn threads_and_copies_are_spread_over_nodes_without_changing_answers() {
    let (dir, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(nodes) = nodes(root.path(), &[0, 1]) else { return };
    let (allowed, queries) = (allowed_processors().unwrap(), vectors(Element::U8, 100, DIM, 2));
    let search = SearchOptions { threads: 4, ..SearchOptions::default() };
    let row =
        |at| bathyal_vectors::VectorFile::from_rows(Element::U8, DIM, queries.row(at).to_vec()).unwrap();
    let paths = ["cluster", "graph", "spann", "flat", "lsh"].map(|family| build_index(dir.path(), family));
    let open = |path, tier: &TierChoice, numa, memory_bytes| {
        let nodes = Some(nodes.clone());
        Index::open(
            path,
            &OpenOptions { tier: tier.clone(), numa, nodes, memory_bytes, ..OpenOptions::default() },
        )
    };
    // Starts all search threads, without bindings.
    let off = open(&paths[0], &TierChoice::File, Some(Numa::Off), None).unwrap();
    off.search(&queries, &search, Control::default()).unwrap();
    assert!(off.numa_nodes().is_empty());
    // On a busy machine, the others answer all queries before the last thread has begun.
    let started = Instant::now();
    let mut free = processors_of_search_threads();
    while free.len() < 4 && started.elapsed() < STARTS_WITHIN {
        std::thread::yield_now();
        free = processors_of_search_threads();
    }
    assert!(free.len() >= 4 && !free.contains(&allowed[0].to_string()), "{free:?}");
    for path in &paths {
        for tier in [TierChoice::File, TierChoice::Dram] {
            let one = open(path, &tier, Some(Numa::Off), None).unwrap();
            let expected = one.search(&queries, &search, Control::default()).unwrap();
            let copied = open(path, &tier, Some(Numa::Copy), None).unwrap();
            assert_eq!(copied.numa_nodes(), [0, 1]);
            let split = copied.memory_split();
            assert_eq!(split.copies, one.memory_split().fixed());
            assert_eq!(split.fixed(), 2 * split.copies);
            let found = copied.search(&queries, &search, Control::default()).unwrap();
            assert_eq!((&found.ids, &found.per_query), (&expected.ids, &expected.per_query));
            for at in 0..20 {
                let alone = copied.search(&row(at), &search, Control::default()).unwrap();
                assert_eq!(alone.ids, expected.ids[at * 10..][..10]);
            }
            // A budget includes both copies.
            let Err(IndexError::Memory { needed, .. }) = open(path, &tier, Some(Numa::Copy), Some(1000))
            else {
                panic!("1000 bytes are enough")
            };
            for budget in [needed, needed + 100_000, 8 * needed] {
                let within = open(path, &tier, Some(Numa::Copy), Some(budget)).unwrap();
                let split = within.memory_split();
                assert_eq!(
                    (split.budget, split.copies),
                    (Some(budget), split.fixed() - split.cache - split.changes - split.copies)
                );
                assert!(within.dram_bytes(1, 1, 60) <= budget, "{split:?}");
                let one = SearchOptions { threads: 1, ..search };
                let found = within.search(&queries, &one, Control::default()).unwrap();
                assert_eq!(found.ids.len(), expected.ids.len());
            }
        }
    }
    let bound = processors_of_search_threads();
    let on = |processor: u32| bound.iter().filter(|list| **list == processor.to_string()).count();
    assert!(on(allowed[0]) >= 2 && on(allowed[1]) >= 2, "{bound:?}");
    assert_eq!(allowed_processors().unwrap(), allowed, "the calling thread may run where it could");
}

#[test]
fn an_impossible_numa_policy_is_an_error() {
    let (dir, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(far) = nodes(root.path(), &[1000, 1001]) else { return };
    let path = build_index(dir.path(), "flat");
    let open =
        |numa| Index::open(&path, &OpenOptions { numa, nodes: Some(far.clone()), ..OpenOptions::default() });
    let Err(error) = open(Some(Numa::Interleave)) else { panic!("there is no node 1000") };
    assert!(error.to_string().contains("interleave memory over NUMA nodes"), "{error}");
    assert!(open(None).is_ok() && open(Some(Numa::Off)).is_ok());
    assert_eq!(open(Some(Numa::Copy)).unwrap().numa_nodes(), [1000, 1001]);
}
