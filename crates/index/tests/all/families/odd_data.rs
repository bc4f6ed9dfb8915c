//! Sets of one vector, of equal vectors, of zeros, and of many dimensions.

use crate::cases::{case_runs, full_or_quick};
use crate::clustered::vectors;
use crate::families::kinds::{KINDS, Kind};
use crate::families::places::some;
use bathyal_index::{Effort, SearchOptions};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;

#[test]
fn sets_of_odd_sizes_are_found_completely() {
    let sets = [
        ("one", vectors(Element::F32, 1, 7, 3)),
        ("two", vectors(Element::U8, 2, 1, 3)),
        ("few", vectors(Element::I8, 11, 3, 3)),
        ("equal", VectorFile::from_rows(Element::U8, 4, vec![9; 4 * 120]).unwrap()),
        ("zeros", VectorFile::from_rows(Element::F32, 4, vec![0; 16 * 100]).unwrap()),
        ("wide", vectors(Element::F16, 60, full_or_quick(1500, 1024), 3)),
    ];
    for (number, (name, data)) in sets.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        // A build of wide vectors takes seconds.
        let stride = if data.dim() < 1000 { 2 } else { 4 };
        let kinds = KINDS.into_iter().enumerate().filter(|(at, _)| case_runs(number + at, stride));
        for (at, kind) in kinds {
            // Axes of so many dimensions take long to train.
            let code =
                kind.code.map(|code| if data.dim() > 1000 { CodeKind::RaBitQ { bits: 1 } } else { code });
            let kind = Kind { code, ..kind };
            let path = dir.path().join(kind.name);
            kind.build(&path, &data, Metric::L2);
            let n = data.count();
            let all = SearchOptions { k: n, effort: kind.effort(n as u32), ..Default::default() };
            let more = SearchOptions { k: n + 5, effort: Effort::Recall(0.9), ..Default::default() };
            // The nearest list alone has fewer than k vectors.
            let least = SearchOptions { probes: kind.is_lists().then_some(1), ..all };
            for place in some(number + at) {
                let (what, index) = (format!("{name} {} on {}", kind.name, place.name), place.open(&path));
                for options in [all, more, least] {
                    let found = index.search(&data, &options, Control::default()).unwrap();
                    assert_eq!(found.k, n, "{what}");
                    for row in found.ids.chunks(n) {
                        let mut ids = row.to_vec();
                        ids.sort_unstable();
                        assert!(ids.iter().copied().eq(0..n as u32), "{what}: {ids:?}");
                    }
                }
            }
        }
    }
}
