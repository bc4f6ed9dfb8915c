//! Memory budgets of every family: indexes keep to them, and the bytes that a refusal names are enough.

use crate::cases::case_runs;
use crate::clustered::vectors;
use crate::families::kinds::{KINDS, recall};
use crate::families::places::PLACES;
use bathyal_index::{Index, IndexError, MemorySplit, OpenOptions, SearchOptions};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;

#[test]
fn budgets_hold_on_every_tier() {
    let dir = tempfile::tempdir().unwrap();
    // Long rows, so that codes are much smaller than centroids.
    let (data, queries) = (vectors(Element::F32, 2000, 400, 1), vectors(Element::F32, 40, 400, 2));
    let truth = exact_neighbors(&data, &queries, Metric::L2, 10, None, &Silent).unwrap();
    for (number, kind) in KINDS.into_iter().enumerate() {
        let path = dir.path().join(kind.name);
        let options = kind.options_with(Metric::L2, |lists| {
            (lists.code_bytes, lists.centroid_share, lists.replicas) = (Some(32), 0.3, Some(2));
        });
        kind.build_with(&path, &data, &options);
        for (_, place) in PLACES.iter().enumerate().filter(|(at, _)| case_runs(number + 2 * at, 5)) {
            let what = format!("{} on {}", kind.name, place.name);
            let budget = |bytes| move |options| OpenOptions { memory_bytes: Some(bytes), ..options };
            let least = match place.try_open_with(&path, budget(1)) {
                Err(IndexError::Memory { needed, .. }) => needed,
                other => panic!("{what}: {:?}", other.err()),
            };
            let refused = place.try_open_with(&path, budget(least - 1));
            assert!(matches!(refused, Err(IndexError::Memory { .. })), "{what}");
            let mut splits = Vec::new();
            for bytes in [0, 100 << 10, 1 << 20, 4 << 20, 64 << 20].map(|more| least + more) {
                let index = place.open_with(&path, budget(bytes));
                splits.push(*index.memory_split());
                let options = SearchOptions { effort: kind.effort(100), threads: 1, ..Default::default() };
                let found = index.search(&queries, &options, Control::default()).unwrap();
                let share = recall(&found, &truth);
                // Graphs with few links find a little less in so many dimensions.
                assert!(share >= 0.88, "{what} with {bytes} bytes: recall {share}");
                check_budget(&index, bytes, &what);
            }
            if kind.is_lists() {
                let coded = splits.iter().filter(|split| split.codes > 0).count();
                assert!((1..5).contains(&coded), "{what}: codes in {coded} of 5 budgets");
            }
        }
    }
}

/// Returns the resident bytes of the mappings of `file`.
#[cfg(target_os = "linux")]
fn mapped_bytes(file: &std::path::Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let file = file.to_str().unwrap();
    let mut found = false;
    let of_file = maps.lines().filter_map(|line| match line.strip_prefix("Rss:") {
        Some(size) if found => size.trim().strip_suffix(" kB").map(|size| size.parse::<u64>().unwrap() << 10),
        Some(_) => None,
        None => {
            if line.contains('-') {
                found = line.ends_with(file);
            }
            None
        }
    });
    of_file.sum()
}

/// Builds read the data instead of mapping it. One byte of a mapped file may take 2 MiB, and advice to the
/// system does not return pages in time if several threads use them.
#[cfg(target_os = "linux")]
#[test]
fn builds_map_little_of_the_data() {
    let dir = tempfile::tempdir().unwrap();
    // Four large pages in few rows, since codes of long rows take long to train.
    let (path, count, dim) = (dir.path().join("data.fbin"), 2100, 1026);
    let rows = vectors(Element::F32, count, dim, 1);
    let header = bathyal_vectors::bin_header_bytes(count as u32, dim as u32);
    std::fs::write(&path, [&header, rows.rows(0..count).unwrap()].concat()).unwrap();
    let data = VectorFile::open(&path).unwrap();
    assert!(mapped_bytes(&path) > 0, "the file is mapped, and its header was read");
    // One graph and one kind of lists are enough, because the others read in the same functions. Axes of so
    // many dimensions would take long to train.
    for kind in KINDS.into_iter().filter(|kind| ["cluster", "padded", "grouped"].contains(&kind.name)) {
        // Cosine normalises vectors, and the calibration takes vectors from the whole data.
        kind.build_with(&dir.path().join(kind.name), &data, &kind.options(Metric::Cosine));
        let mapped = mapped_bytes(&path);
        assert!(mapped <= 2 << 20, "{}: {mapped} bytes of {}", kind.name, data.data_bytes());
    }
}

fn check_budget(index: &Index, bytes: u64, what: &str) {
    let split: MemorySplit = *index.memory_split();
    assert!(split.fixed() + split.searches <= bytes, "{what}: {split:?}");
    assert!(index.dram_bytes(1, 1, 100) <= bytes, "{what}: {split:?}");
}
