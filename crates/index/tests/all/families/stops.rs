//! Searches that are cancelled, or that reach their deadline.

use crate::clustered::vectors;
use crate::families::kinds::{KINDS, Shared};
use crate::families::places::PLACES;
use bathyal_index::{IndexError, SearchMode, SearchOptions};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

#[test]
fn searches_stop_when_they_are_cancelled_or_late() {
    let (shared, many) = (Shared::get(), vectors(Element::U8, 5_000, 32, 3));
    for (number, kind) in KINDS.into_iter().enumerate() {
        for place in &PLACES {
            let (what, index) =
                (format!("{} on {}", kind.name, place.name), place.open(&shared.path(number)));
            let raised = AtomicBool::new(true);
            let options = SearchOptions { effort: kind.effort(900), ..SearchOptions::default() };
            let stopped = index.search(&many, &options, Control { cancel: Some(&raised), deadline: None });
            assert!(matches!(stopped, Err(IndexError::Cancelled)), "{what}");
            let deadline = Some(Instant::now());
            let late = index.search(&many, &options, Control { cancel: None, deadline });
            assert!(matches!(late, Err(IndexError::Deadline)), "{what}");
            let found = kind.search(&index, &shared.queries, SearchMode::Batched).unwrap();
            assert_eq!(found.ids.len(), 400, "{what}");
        }
    }
}
