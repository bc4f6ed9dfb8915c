//! Options of collections whose tests start all work themselves.

use bathyal_collection::{CollectionOptions, Durability};

/// Returns options without background work and merges. Small segments have codes and groups, too.
pub fn without_background() -> CollectionOptions {
    CollectionOptions {
        durability: Durability::System,
        background: false,
        compact: false,
        flat_below_rows: 100,
        ..CollectionOptions::default()
    }
}
