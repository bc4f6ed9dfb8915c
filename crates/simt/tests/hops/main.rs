//! Hops of graph searches on the emulated card: those of a processor, bit for bit, in any order of threads; and kernels that are wrong
//! are found out.

mod mutants;
mod walks;

use bathyal_simt::{EmulatedCard, EmulatedOptions};
use walks::Walks;

#[test]
fn hops_are_those_of_a_processor_in_any_order_of_threads() {
    for (number, walks) in [
        // Codes of an odd length, of which words lie askew; one round of links a hop; queries of two bytes a dimension.
        Walks::new("axes", 37, 24, 60, (20, 1)),
        // More links a hop than a block has threads, and of several records the same.
        Walks::new("axes", 32, 128, 90, (50, 4)),
        // Factors of four bytes each.
        Walks::new("rabitq8", 200, 96, 40, (10, 3)),
        // A list longer than a block has threads.
        Walks::new("rabitq2", 24, 60, 30, (300, 8)),
    ]
    .into_iter()
    .enumerate()
    {
        for seed in 0..3 {
            let card = EmulatedCard::new(EmulatedOptions { seed, ..EmulatedOptions::default() });
            if let Err(reason) = walks.check(&card) {
                panic!("walks {number}, seed {seed}: {reason}");
            }
            assert_eq!(card.taken_bytes(), 0, "all memory is given back");
        }
    }
}

#[test]
fn a_query_takes_little_of_the_card() {
    // Vectors of 128 bytes and of 1,024 floats, lists that reach 0.95 and more.
    for (kind, bytes, dim, list) in [("axes", 32, 128, 100), ("axes", 32, 128, 400), ("axes", 160, 1024, 300)]
    {
        let walks = Walks::new(kind, bytes, dim, 64, (list, 4));
        let slot = walks.shape(1).slot_bytes();
        assert!(slot <= 18 << 10, "{kind} of {bytes} bytes, {list} candidates: {slot} bytes");
    }
}

#[test]
fn what_a_card_cannot_do_is_said() {
    let walks = Walks::new("axes", 32, 128, 64, (100, 4));
    let small = EmulatedCard::new(EmulatedOptions { memory_bytes: 10_000, ..EmulatedOptions::default() });
    let error = walks.check(&small).unwrap_err();
    assert!(error.contains("the codes of the index") && error.contains("--code-bytes"), "{error}");
    let narrow = EmulatedCard::new(EmulatedOptions { shared_bytes: 2048, ..EmulatedOptions::default() });
    let error = walks.check(&narrow).unwrap_err();
    assert!(error.contains("100 candidates"), "{error}");
    for fails_at in [1, 3] {
        let lost = EmulatedCard::new(EmulatedOptions { fails_at, ..EmulatedOptions::default() });
        let error = walks.check(&lost).unwrap_err();
        assert!(error.contains("the card is lost"), "{error}");
    }
}
