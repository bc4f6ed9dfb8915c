//! Reads that fail, are short, are damaged or return other bytes. They never change an answer.

use crate::cases::CaseSelection;
use crate::clustered::vectors;
use crate::families::kinds::{KINDS, Kind};
use crate::families::places::{open, simulated};
use bathyal_index::{IndexError, OpenOptions, SearchMode};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::backend::sim::{SimFault, SimOptions, When};

/// Most pages that are damaged, one after the other. Pages of larger indexes are sampled.
const MOST_PAGES: u64 = 60;

#[test]
fn failed_and_damaged_reads_never_change_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (data, query) = (vectors(Element::U8, 2000, 128, 1), vectors(Element::U8, 1, 128, 2));
    let mut cases = CaseSelection::one_in(3);
    for kind in KINDS {
        let path = dir.path().join(kind.name);
        kind.build_with(&path, &data, &kind.options_with(Metric::L2, |lists| lists.replicas = Some(3)));
        // A search of few reads, so that it does not read many of the pages.
        let kind = Kind { effort: if kind.is_lists() { 1 } else { 10 }, ..kind };
        let index = open(&path, OpenOptions::default());
        let sound = kind.search(&index, &query, SearchMode::Batched).unwrap();
        let pages = index.tier().len().div_ceil(4096);
        for fault in
            [SimFault::Error(5), SimFault::Short(100), SimFault::Flip(12_345), SimFault::Misdirect(7)]
        {
            let (mut failed, mut answered) = (0, 0);
            if !cases.next_runs() {
                continue;
            }
            for page in (0..pages).step_by(pages.div_ceil(MOST_PAGES) as usize) {
                let script = vec![(When::Touching(page * 4096), fault)];
                let (sim, handle) = simulated(&index, SimOptions { script, ..SimOptions::default() });
                for mode in [SearchMode::Batched, SearchMode::Pipelined] {
                    let what = format!("{} {fault:?} at page {page}", kind.name);
                    match kind.search(&sim, &query, mode) {
                        Err(IndexError::Read { .. } | IndexError::Damaged { .. }) => failed += 1,
                        Err(other) => panic!("{what}: {other}"),
                        Ok(found) => {
                            answered += 1;
                            if mode == SearchMode::Batched || kind.ignores_read_order() {
                                assert_eq!(found.ids, sound.ids, "{what}");
                                assert_eq!(found.distances, sound.distances, "{what}");
                            }
                        }
                    }
                }
                assert!(handle.violations().is_empty());
            }
            let what = format!("{} {fault:?}: {failed} failed, {answered} answered", kind.name);
            assert!(failed > 0 && (answered > 0 || kind.reads_all()), "{what}");
        }
    }
}
