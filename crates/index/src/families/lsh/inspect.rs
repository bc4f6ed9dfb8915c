//! Describes an LSH index: its parts, and its promises.

use super::promise::{Promises, RATIO, Tables};
use super::section::LshEntry;
use super::stated::StatedPromises;
use crate::family::{Description, Fact};
use crate::format::groups::GroupLayout;
use crate::format::manifest::Manifest;
use crate::format::tables::TableLayout;
use bathyal_kernels::lsh::Buckets;

/// Describes an LSH index.
pub(super) fn describe(
    manifest: &Manifest,
    entry: &LshEntry,
    (pages, tables): (&GroupLayout, &TableLayout),
    buckets: &Buckets,
) -> Description {
    let vectors = manifest.vectors;
    let parameters = entry.promise_parameters(vectors);
    let theory = (vectors as f64).powf(Tables::exponent());
    let stated = StatedPromises::new(entry, tables, vectors, buckets);
    let [twice, four_times] = stated.sentences(&manifest.metric);
    let all_entries = parameters.vectors * parameters.tables;
    let width = Promises::new(&parameters, buckets, RATIO).promise(all_entries).width;
    let (count, hashes, bytes) = (entry.tables, entry.hashes, entry.block_bytes);
    let used = manifest.data_bytes + 4 * vectors * (1 + u64::from(count));
    let mut facts = vec![
        Fact::new("tables", count),
        Fact::new("hashes", hashes),
        Fact::new("gamma", parameters.gamma(width)),
        Fact::new("tables_of_theory", theory),
    ];
    facts.extend(stated.facts());
    facts.extend([
        Fact::new("table_bytes", tables.table_bytes()),
        Fact::new("fence_bytes", entry.fences.bytes),
        Fact::new("code_bytes", entry.codes.file.bytes),
    ]);
    Description {
        kind: "hash tables, codes in memory".into(),
        built_with: format!("{count} tables, {hashes} hashes, blocks of {bytes} bytes"),
        read_bytes: tables.block_bytes(),
        records_per_page: pages.page_vectors(),
        // Every vector has its bytes, its id, and its id in each table.
        padding_share: (1.0 - used as f64 / entry.file.bytes as f64).max(0.0),
        facts,
        lines: vec![
            entry.codes.line(),
            (
                "tables",
                format!("{count} of {} blocks, {} bytes in all", tables.blocks(), tables.table_bytes()),
            ),
            ("promise", twice),
            ("promise", four_times),
            ("theory", format!("{theory:.0} tables for 0.13 (1/2 - 1/e) with twice as many entries")),
        ],
        histogram: Vec::new(),
        calibration: entry.calibration.lines("blocks a table"),
    }
}
