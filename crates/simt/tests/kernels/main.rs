//! Tests of all kernels on the emulated card: their results are those of a processor, bit for bit, in any
//! order of threads, and mistakes in kernels are detected.

mod groups;
mod losses;
mod mutants;
mod pages;
mod pairs;
mod races;
mod stored;
mod walks;

use bathyal_gpu::losses::Losses;
use bathyal_gpu::nearest::{Cells, Nearest, ProductSizes};
use bathyal_kernels::{Element, Metric};
use bathyal_simt::{EmulatedCard, EmulatedOptions};
use groups::Groups;
use losses::Grouped;
use pages::Paged;
use pairs::Pairs;
use stored::Stored;
use walks::Walks;

/// Returns true if all cases are tested (`make soak`), and not a part of them.
fn is_whole() -> bool {
    std::env::var_os("BATHYAL_WHOLE").is_some()
}

/// Returns the seeds of the orders of threads for case number `number`: one of three, unless all cases are
/// tested.
fn seeds(number: usize) -> Vec<u64> {
    if is_whole() { vec![0, 1, 2] } else { vec![number as u64 % 3] }
}

fn all_walks() -> [Walks; 4] {
    [
        // Codes of an odd length, so that their words are not aligned; one record for each hop; queries with
        // two bytes for each dimension.
        Walks::new("axes", 37, 24, 60, (20, 1)),
        // More links in a hop than a block has threads, and equal links of several records.
        Walks::new("axes", 32, 128, 90, (50, 4)),
        // Factors of four bytes.
        Walks::new("rabitq8", 200, 96, 40, (10, 3)),
        // A list longer than a block has threads.
        Walks::new("rabitq2", 24, 60, 30, (300, 8)),
    ]
}

#[test]
fn hops_equal_those_of_a_processor_in_any_order_of_threads() {
    for (number, walks) in all_walks().into_iter().enumerate() {
        for seed in seeds(number) {
            let card = EmulatedCard::new(EmulatedOptions { seed, ..EmulatedOptions::default() });
            if let Err(reason) = walks.check(&card) {
                panic!("walks {number}, seed {seed}: {reason}");
            }
            assert_eq!(card.taken_bytes(), 0, "all memory is freed");
        }
    }
}

fn all_pages() -> [Paged; 5] {
    [
        // Codes of an odd length; one page for each hop; so few links that one launch takes them.
        Paged::new(("axes", 37, 24), (7, 20, 200), (20, 1)),
        // Pages with more links than a block has threads, which take several launches.
        Paged::new(("axes", 32, 128), (5, 300, 150), (60, 4)),
        // Factors of four bytes; launches with very few links.
        Paged::new(("rabitq8", 200, 96), (3, 12, 5), (10, 3)),
        // A list that is full at once, so that few links are near.
        Paged::new(("axes", 32, 128), (2, 60, 25), (10, 2)),
        // A list longer than a block has threads, and larger pages.
        Paged::new(("rabitq2", 24, 60), (140, 30, 500), (300, 2)),
    ]
}

#[test]
fn hops_through_pages_equal_those_of_a_processor_in_any_order_of_threads() {
    for (number, pages) in all_pages().into_iter().enumerate() {
        for seed in seeds(number) {
            let card = EmulatedCard::new(EmulatedOptions { seed, ..EmulatedOptions::default() });
            if let Err(reason) = pages.check(&card) {
                panic!("pages {number}, seed {seed}: {reason}");
            }
            assert_eq!(card.taken_bytes(), 0, "all memory is freed");
        }
    }
}

fn all_groups() -> [Groups; 4] {
    [
        // Codes whose last word has one byte; groups of fewer codes than a block has threads.
        Groups::new("axes", 33, 24, 93, 20, Metric::L2),
        // Groups and a list of several times as many codes as a block has threads.
        Groups::new("axes", 32, 128, 300, 400, Metric::L2),
        // Factors of four bytes.
        Groups::new("rabitq8", 200, 96, 40, 7, Metric::InnerProduct),
        // Only the best code is requested.
        Groups::new("rabitq2", 24, 60, 64, 1, Metric::L2),
    ]
}

#[test]
fn scans_equal_those_of_a_processor_in_any_order_of_threads() {
    for (number, groups) in all_groups().into_iter().enumerate() {
        for seed in seeds(number) {
            let card = EmulatedCard::new(EmulatedOptions { seed, ..EmulatedOptions::default() });
            if let Err(reason) = groups.check(&card) {
                panic!("groups {number}, seed {seed}: {reason}");
            }
            assert_eq!(card.taken_bytes(), 0, "all memory is freed");
        }
    }
}

/// Returns all combinations of an element, a flag for f32 queries, and a metric. Vectors of bits have queries
/// of bits.
fn forms() -> impl Iterator<Item = (Element, bool, Metric)> {
    let elements = Element::ALL.into_iter().flat_map(|element| [(element, false), (element, true)]);
    let elements = elements.filter(|form| *form != (Element::B1, true));
    elements.flat_map(|(element, of_floats)| Metric::ALL.map(|metric| (element, of_floats, metric)))
}

/// Calls `check` with vectors of all forms. Their numbers of dimensions are odd, or exceed the lanes of a
/// warp. Unless all cases are tested, each element has one of the metrics, depending on `first`.
fn check_all_forms(
    first: usize,
    stored: impl Fn((Element, bool, Metric), usize) -> Stored,
    check: impl Fn(&Stored, &str),
) {
    for (number, form) in forms().enumerate() {
        if !is_whole() && !(first + number / Metric::ALL.len() + number).is_multiple_of(Metric::ALL.len()) {
            continue;
        }
        let dim = [37, 160, 3][number % 3];
        check(&stored(form, dim), &format!("{form:?} of {dim} dimensions"));
    }
}

#[test]
fn searches_of_vectors_on_a_card_equal_those_of_a_processor() {
    let card = EmulatedCard::new(EmulatedOptions::default());
    let (walks, groups) =
        (Walks::new("axes", 24, 16, 20, (12, 3)), Groups::new("axes", 24, 16, 60, 40, Metric::L2));
    check_all_forms(
        0,
        |form, dim| walks.stored(form, dim),
        |stored, what| {
            walks.check_resident(&card, stored).unwrap_or_else(|reason| panic!("{what}: {reason}"))
        },
    );
    check_all_forms(
        1,
        |form, dim| groups.stored(form, dim),
        |stored, what| {
            groups.check_resident(&card, stored).unwrap_or_else(|reason| panic!("{what}: {reason}"))
        },
    );
    let form = (Element::U8, false, Metric::L2);
    for (seed, (walks, groups)) in all_walks().into_iter().zip(all_groups()).enumerate() {
        let card = EmulatedCard::new(EmulatedOptions { seed: seed as u64, ..EmulatedOptions::default() });
        walks.check_resident(&card, &walks.stored(form, 20)).unwrap();
        groups.check_resident(&card, &groups.stored(form, 20)).unwrap();
        assert_eq!(card.taken_bytes(), 0, "all memory is freed");
    }
}

fn all_pairs() -> [Pairs; 8] {
    [
        // Fewer cells than a step, and fewer rows than a tile.
        Pairs::new(Cells::Floats, 3, 7, 40),
        // Three steps, and several tiles of queries and of vectors.
        Pairs::new(Cells::Floats, 37, 130, 300),
        // An odd number of cells, so that half of the last word is unused.
        Pairs::new(Cells::Halves, 33, 129, 260),
        // The last word is not full; whole tiles.
        Pairs::new(Cells::Unsigned, 101, 128, 256),
        Pairs::new(Cells::Signed, 66, 140, 384),
        Pairs::new(Cells::Unsigned, 1, 1, 6),
        Pairs::new(Cells::UpperHalves, 33, 129, 260),
        Pairs::new(Cells::Bits, 1048, 130, 300),
    ]
}

#[test]
fn pairs_equal_those_of_a_processor_in_any_order_of_threads() {
    for (number, pairs) in all_pairs().into_iter().enumerate() {
        for seed in seeds(number) {
            let card = EmulatedCard::new(EmulatedOptions { seed, ..EmulatedOptions::default() });
            if let Err(reason) = pairs.check(&card) {
                panic!("pairs {number}, seed {seed}: {reason}");
            }
            assert_eq!(card.taken_bytes(), 0, "all memory is freed");
        }
    }
}

fn all_grouped() -> [Grouped; 4] {
    [
        // Fewer coordinates than a step, few other groups, and a last group with one member.
        Grouped::new(3, 41, 10, 2),
        // Several steps, groups with more members than a block has, and the maximum number of other groups.
        Grouped::new(70, 96 * 40 + 5, 96, 32),
        // Whole steps and blocks.
        Grouped::new(64, 64 * 5, 64, 4),
        Grouped::new(1, 4, 2, 1),
    ]
}

#[test]
fn losses_equal_those_of_a_processor_in_any_order_of_threads_and_with_any_memory() {
    for (number, grouped) in all_grouped().into_iter().enumerate() {
        let bytes = 4 * grouped.shape.points as u64 * grouped.shape.dim as u64;
        for (seed, memory_bytes) in [(0, 1 << 30), (1, 1 << 30), (2, bytes)] {
            let card =
                EmulatedCard::new(EmulatedOptions { seed, memory_bytes, ..EmulatedOptions::default() });
            let shape = grouped.shape;
            // With so few points, less memory does not suffice.
            if memory_bytes == bytes && shape.points < 1000 {
                continue;
            }
            let losses = Losses::new(&card, shape).unwrap();
            assert_eq!(losses.is_resident(), memory_bytes > bytes);
            assert_eq!(losses.block_groups() == shape.points.div_ceil(shape.unit), memory_bytes > bytes);
            drop(losses);
            if let Err(reason) = grouped.check(&card) {
                panic!("grouped {number}, seed {seed}: {reason}");
            }
            assert_eq!(card.taken_bytes(), 0, "all memory is freed");
        }
    }
    let small = EmulatedCard::new(EmulatedOptions { memory_bytes: 10_000, ..EmulatedOptions::default() });
    let error = Losses::new(&small, all_grouped()[1].shape).map(drop).unwrap_err().to_string();
    assert!(error.contains("bytes free") && error.contains("41 groups"), "{error}");
}

#[test]
fn exact_search_adapts_to_the_memory_of_a_card() {
    let wanted = ProductSizes { queries: 1000, rows: 100_000, pairs: 1 << 20 };
    let sizes_with = |memory_bytes| {
        let card = EmulatedCard::new(EmulatedOptions { memory_bytes, ..EmulatedOptions::default() });
        let nearest = Nearest::new(&card, Cells::Floats, 512, wanted).map(|nearest| nearest.sizes());
        assert_eq!(card.taken_bytes(), 0);
        nearest
    };
    assert_eq!(sizes_with(1 << 30).unwrap(), wanted);
    let mut before = wanted;
    for megabytes in [64, 8, 2, 1] {
        let now = sizes_with(megabytes << 20).unwrap();
        assert!(
            now.rows < before.rows && now.queries <= before.queries && now.pairs >= now.queries,
            "{now:?}"
        );
        before = now;
    }
    let error = sizes_with(100_000).unwrap_err().to_string();
    assert!(error.contains("bytes free") && error.contains("at least"), "{error}");
}

/// Runs only if `BATHYAL_CARD` has the number of a real card (`make check-gpu`).
#[test]
fn a_real_card_has_the_results_of_a_processor() {
    let Ok(number) = std::env::var("BATHYAL_CARD") else { return };
    let card = bathyal_gpu::card::open(number.parse().unwrap()).unwrap();
    println!("{:?}", card.profile());
    for repeat in 0..20 {
        for (number, walks) in all_walks().into_iter().enumerate() {
            walks.check(&*card).unwrap_or_else(|reason| panic!("walks {number}, repeat {repeat}: {reason}"));
        }
        for (number, pages) in all_pages().into_iter().enumerate() {
            pages.check(&*card).unwrap_or_else(|reason| panic!("pages {number}, repeat {repeat}: {reason}"));
        }
        for (number, groups) in all_groups().into_iter().enumerate() {
            groups
                .check(&*card)
                .unwrap_or_else(|reason| panic!("groups {number}, repeat {repeat}: {reason}"));
        }
        let form = forms().nth(repeat).unwrap_or((Element::U8, false, Metric::L2));
        for walks in all_walks() {
            walks.check_resident(&*card, &walks.stored(form, 37)).unwrap();
        }
        for groups in all_groups() {
            groups.check_resident(&*card, &groups.stored(form, 37)).unwrap();
        }
        for (number, pairs) in all_pairs().into_iter().enumerate() {
            pairs.check(&*card).unwrap_or_else(|reason| panic!("pairs {number}, repeat {repeat}: {reason}"));
        }
        for (number, grouped) in all_grouped().into_iter().enumerate() {
            grouped
                .check(&*card)
                .unwrap_or_else(|reason| panic!("grouped {number}, repeat {repeat}: {reason}"));
        }
    }
}

#[test]
fn a_query_takes_little_memory_of_the_card() {
    // Vectors of 128 bytes and of 1,024 floats, and lists that reach recall 0.95 or more.
    for (kind, bytes, dim, list) in [("axes", 32, 128, 100), ("axes", 32, 128, 400), ("axes", 160, 1024, 300)]
    {
        let walks = Walks::new(kind, bytes, dim, 64, (list, 4));
        let slot = walks.shape(1).slot_bytes(&walks.codes());
        assert!(slot <= 18 << 10, "{kind} of {bytes} bytes, {list} candidates: {slot} bytes");
        // An index submits this many links at a time.
        let shape = bathyal_gpu::hops::HopShape { width: 32, ids: 2048, ..walks.shape(1) };
        let slot = bathyal_gpu::pages::slot_bytes(&shape, &walks.codes());
        assert!(slot <= 18 << 10, "{kind} of {bytes} bytes, {list} candidates of pages: {slot} bytes");
        let groups = Groups::new(kind, bytes, dim, 96, list, Metric::L2);
        let slot = bathyal_gpu::scans::ScanShape { scanned: 512, ..groups.shape(1) }.slot_bytes();
        assert!(slot <= 18 << 10, "{kind} of {bytes} bytes, {list} candidates of 512 groups: {slot} bytes");
    }
}

#[test]
fn unsuited_and_lost_cards_are_errors() {
    let walks = Walks::new("axes", 32, 128, 64, (100, 4));
    let small = EmulatedCard::new(EmulatedOptions { memory_bytes: 10_000, ..EmulatedOptions::default() });
    let error = walks.check(&small).unwrap_err();
    assert!(error.contains("the codes of the index") && error.contains("--code-bytes"), "{error}");
    let narrow = EmulatedCard::new(EmulatedOptions { shared_bytes: 2048, ..EmulatedOptions::default() });
    let error = walks.check(&narrow).unwrap_err();
    assert!(error.contains("100 candidates"), "{error}");
    let groups = Groups::new("axes", 32, 128, 93, 100, Metric::L2);
    let small = EmulatedCard::new(EmulatedOptions { memory_bytes: 10_000, ..EmulatedOptions::default() });
    let error = groups.check(&small).unwrap_err();
    assert!(error.contains("the queries in flight") || error.contains("the codes of the index"), "{error}");
    let error = groups.check(&narrow).unwrap_err();
    assert!(error.contains("--code-bytes"), "{error}");
    for fails_at in [1, 3] {
        let lost = EmulatedCard::new(EmulatedOptions { fails_at, ..EmulatedOptions::default() });
        let error = walks.check(&lost).unwrap_err();
        assert!(error.contains("the card is lost"), "{error}");
    }
}
