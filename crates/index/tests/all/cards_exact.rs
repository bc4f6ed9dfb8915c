//! Exact search with a graphics card: it finds the same as this processor, byte for byte, for any vectors
//! in any order and any memory of the card. The card is emulated and runs the kernels of a real one.

use crate::cases::CaseSelection;
use crate::clustered::vectors;
use bathyal_gpu::{Card, GpuError};
use bathyal_index::exact_neighbors_on;
use bathyal_kernels::{Element, Metric};
use bathyal_simt::{EmulatedCard, EmulatedOptions};
use bathyal_vectors::groundtruth::GroundTruthError;
use bathyal_vectors::progress::{Progress, Silent};
use bathyal_vectors::{FileFormat, IdFile, VectorFile};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn card(memory_bytes: u64) -> Arc<EmulatedCard> {
    Arc::new(EmulatedCard::new(EmulatedOptions { memory_bytes, ..EmulatedOptions::default() }))
}

fn exact(
    card: Option<Arc<dyn Card>>,
    base: &VectorFile,
    queries: &VectorFile,
    metric: Metric,
    k: usize,
) -> Result<IdFile, GroundTruthError> {
    exact_neighbors_on(card.as_ref(), base, queries, metric, k, NonZeroUsize::new(2), &Silent)
}

/// Compares a card of `memory_bytes` with this processor. Includes the real card of the number
/// `BATHYAL_CARD`, if that is set (`make check-gpu`). Returns the number of launches of the emulated card.
fn compare(base: &VectorFile, queries: &VectorFile, metric: Metric, k: usize, memory_bytes: u64) -> u64 {
    let (emulated, what) = (card(memory_bytes), format!("{metric} {} {k}", base.element()));
    let real = std::env::var("BATHYAL_CARD").ok();
    let real = real.map(|number| bathyal_gpu::card::open(number.parse().unwrap()).unwrap());
    let expected = exact(None, base, queries, metric, k).unwrap();
    for card in [Some(emulated.clone() as Arc<dyn Card>), real].into_iter().flatten() {
        let found = exact(Some(card), base, queries, metric, k).unwrap();
        assert_eq!(found.all_ids(), expected.all_ids(), "{what}");
        let bits = |found: &IdFile| -> Vec<u32> {
            found.all_distances().unwrap().iter().map(|distance| distance.to_bits()).collect()
        };
        assert_eq!(bits(&found), bits(&expected), "{what}");
    }
    assert_eq!(emulated.taken_bytes(), 0, "{what}: all memory is released");
    emulated.launches()
}

const PLENTY: u64 = 1 << 30;

#[test]
fn a_card_finds_the_same_neighbours_as_a_processor() {
    let mut cases = CaseSelection::one_in(5);
    for element in Element::ALL {
        for (number, metric) in Metric::ALL.into_iter().enumerate() {
            for dim in [[1, 3, 40], [2, 17, 101], [5, 16, 33]][number] {
                if !cases.next_runs() {
                    continue;
                }
                let (base, queries) = (vectors(element, 803, dim, 1), vectors(element, 37, dim, 2));
                for k in [1, 10, 500, 803] {
                    let launches = compare(&base, &queries, metric, k, PLENTY);
                    // If k is the number of vectors, the processor computes all distances.
                    assert_eq!(launches > 0, k < 803);
                }
            }
        }
    }
}

#[test]
fn blocks_and_tiles_may_end_anywhere() {
    for count in [1, 255, 256, 257, 384, 385, 511, 512, 513, 1025] {
        for queries in [1, 127, 129] {
            let (base, queries) = (vectors(Element::F32, count, 9, 1), vectors(Element::F32, queries, 9, 2));
            assert_eq!(compare(&base, &queries, Metric::L2, 1, PLENTY) > 0, count > 256);
        }
    }
}

#[test]
fn equal_distances_come_in_order_of_id() {
    for element in Element::ALL {
        let one = vectors(element, 1, 4, 1);
        let base = VectorFile::from_rows(element, one.dim(), one.row(0).repeat(700)).unwrap();
        for metric in Metric::ALL {
            compare(&base, &vectors(element, 3, 4, 2), metric, 20, PLENTY);
        }
    }
}

fn floats(dim: usize, values: impl Iterator<Item = f32>) -> VectorFile {
    VectorFile::from_rows(Element::F32, dim, values.flat_map(f32::to_le_bytes).collect()).unwrap()
}

#[test]
fn huge_and_tiny_values_are_ranked() {
    for scale in [1e-30_f32, 1e-20, 1e-8, 1.0, 1e12, 1e18, 1e19] {
        let value = move |at: usize| ((at * 37 % 64) as f32 - 20.5) * scale;
        let queries = floats(2, (0..12).map(value));
        let alike = floats(2, (0..1200).map(value));
        // One vector of another magnitude: every query gets it back from the card, and it hides no other.
        let alone = floats(2, (0..1200).map(move |at| if at == 900 { value(3) } else { value(at) / scale }));
        for base in [alike, alone] {
            for metric in Metric::ALL {
                compare(&base, &queries, metric, 10, PLENTY);
            }
        }
    }
}

#[test]
fn near_ties_far_from_the_origin_are_ordered_exactly() {
    // The differences are below the rounding of the screen.
    let value =
        |at: usize| 10_000.0 + if at % 8 == at / 8 % 8 { ((at / 8 * 91) % 1200) as f32 * 0.001 } else { 0.0 };
    let base = floats(8, (0..1200 * 8).map(value));
    compare(&base, &floats(8, (0..8).map(|_| 10_000.0)), Metric::L2, 50, PLENTY);
}

#[test]
fn a_card_of_little_memory_takes_smaller_blocks() {
    let (base, queries) = (vectors(Element::U8, 3000, 64, 1), vectors(Element::U8, 300, 64, 2));
    let plenty = compare(&base, &queries, Metric::L2, 10, PLENTY);
    for memory_bytes in [100_000, 50_000] {
        assert!(compare(&base, &queries, Metric::L2, 10, memory_bytes) > plenty);
    }
    let error = exact(Some(card(20_000)), &base, &queries, Metric::L2, 10).unwrap_err();
    let GroundTruthError::Screen(error) = error else { panic!("{error}") };
    let error = error.downcast::<GpuError>().unwrap().to_string();
    assert!(error.contains("bytes free") && error.contains("at least"), "{error}");
}

#[test]
fn blocks_of_ever_nearer_vectors_are_split_in_halves() {
    // Each vector is nearer than all before, so that the card returns all pairs of a block.
    let base = floats(3, (0..3 * 2500).map(|at| (9000 - at) as f32));
    let queries = floats(3, (0..3 * 40).map(|at| at as f32 * 0.01));
    let plenty = compare(&base, &queries, Metric::L2, 5, PLENTY);
    assert!(compare(&base, &queries, Metric::L2, 5, 60_000) > 2 * plenty);
}

#[test]
fn files_with_gaps_between_rows_are_searched() {
    let bytes: Vec<u8> =
        (0..900_u32).flat_map(|row| [2, 0, 0, 0, (row % 251) as u8, (row / 5) as u8]).collect();
    let base = VectorFile::from_file_bytes(FileFormat::Vecs(Element::U8), bytes.clone()).unwrap();
    let queries = VectorFile::from_file_bytes(FileFormat::Vecs(Element::U8), bytes[..60].to_vec()).unwrap();
    compare(&base, &queries, Metric::L2, 5, PLENTY);
    // From a file as well, block by block.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("base.bvecs");
    std::fs::write(&path, bytes).unwrap();
    compare(&VectorFile::open(&path).unwrap(), &queries, Metric::L2, 5, 20_000);
}

#[test]
fn invalid_vectors_cause_the_same_errors_with_and_without_a_card() {
    let good = floats(2, (0..1400).map(|at| at as f32 + 1.0));
    let bad = |at, value| floats(2, (0..1400).map(move |i| if i / 2 == at { value } else { i as f32 + 1.0 }));
    for row in [3, 600] {
        for (base, metric) in [(bad(row, f32::NAN), Metric::L2), (bad(row, 0.0), Metric::Cosine)] {
            for (base, queries) in [(&base, &good), (&good, &base)] {
                let results = [None, Some(card(PLENTY) as Arc<dyn Card>)]
                    .map(|card| exact(card, base, queries, metric, 3));
                let [of_processor, of_card] = results.map(|result| result.unwrap_err().to_string());
                assert_eq!(of_processor, of_card);
                assert!(of_processor.contains(&format!("row {row}")), "{of_processor}");
            }
        }
    }
}

#[test]
fn a_card_that_is_lost_is_an_error() {
    let base = vectors(Element::F32, 3000, 8, 1);
    for fails_at in 1..4 {
        let lost = Arc::new(EmulatedCard::new(EmulatedOptions { fails_at, ..EmulatedOptions::default() }));
        let error = exact(Some(lost.clone()), &base, &base, Metric::L2, 3).unwrap_err();
        assert!(matches!(&error, GroundTruthError::Screen(_)), "{error}");
        assert!(error.to_string().contains("the card is lost"), "{error}");
        assert_eq!(lost.taken_bytes(), 0);
    }
}

/// Notes the reported numbers, and cancels once `limit` vectors are done.
struct Counting {
    total: AtomicU64,
    done: AtomicU64,
    limit: u64,
}

impl Progress for Counting {
    fn stage(&self, _name: &str, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    fn advance(&self, done: u64) {
        self.done.fetch_max(done, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.limit
    }
}

#[test]
fn progress_reaches_the_total_and_cancellation_stops() {
    let (base, queries) = (vectors(Element::U8, 5000, 4, 1), vectors(Element::U8, 300, 4, 2));
    let run = |limit, memory_bytes| {
        let progress = Counting { total: AtomicU64::new(0), done: AtomicU64::new(0), limit };
        let card = card(memory_bytes) as Arc<dyn Card>;
        let found = exact_neighbors_on(Some(&card), &base, &queries, Metric::L2, 3, None, &progress);
        (found.map(drop), progress.total.into_inner(), progress.done.into_inner())
    };
    // In one wave, and in two.
    for (memory_bytes, waves) in [(PLENTY, 1), (9_000, 2)] {
        let (found, total, done) = run(u64::MAX, memory_bytes);
        found.unwrap();
        assert_eq!((total, done), (5000 * waves, 5000 * waves));
    }
    for limit in [0, 1, 1000, 4000] {
        let (found, _, done) = run(limit, PLENTY);
        assert!(matches!(found, Err(GroundTruthError::Cancelled)), "{found:?}");
        assert!(done < 5000, "{limit}: {done}");
    }
}
