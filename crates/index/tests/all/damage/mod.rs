//! Damaged, truncated, missing and foreign files: `verify` finds them, and `open` or `search` refuses the
//! index when it reads them. No search returns a wrong answer.
//!
//! The sweeps over all files of an index are in `sweep`. They run here over the families, and in `cluster`.

mod builds;
mod cluster;
mod graph;
mod manifests;
mod sweep;

use crate::cases::{case_runs, full_or_quick};
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::{
    ClusterOptions, FamilyOptions, GraphLayoutChoice, GraphOptions, PartitionedOptions, PostingLayout,
    SpannOptions,
};
use bathyal_kernels::quantize::CodeKind;
use sweep::TestIndex;

const CODE_BYTES: Option<u32> = Some(8);

fn graph(layout: GraphLayoutChoice) -> FamilyOptions {
    let (max_degree, search_list, code_bytes) = (8, 20, CODE_BYTES);
    GraphOptions { layout, max_degree, search_list, code_bytes, ..GraphOptions::default() }.into()
}

fn lists(layout: PostingLayout, code_kind: Option<CodeKind>) -> FamilyOptions {
    // With replicas the lists contain addresses, which damage can change.
    let (code_bytes, replicas) = (CODE_BYTES, Some(8));
    SpannOptions { layout, code_kind, code_bytes, replicas, ..SpannOptions::default() }.into()
}

fn cluster() -> FamilyOptions {
    ClusterOptions { code_bytes: CODE_BYTES, ..ClusterOptions::default() }.into()
}

fn tables() -> FamilyOptions {
    LshOptions { tables: 4, code_bytes: CODE_BYTES, ..LshOptions::default() }.into()
}

fn partitioned() -> FamilyOptions {
    PartitionedOptions { partition_vectors: 50, ..PartitionedOptions::default() }.into()
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let families = [
        graph(GraphLayoutChoice::Padded),
        graph(GraphLayoutChoice::PageLocal),
        graph(GraphLayoutChoice::Csr),
        lists(PostingLayout::Coupled, None),
        lists(PostingLayout::Decoupled, None),
        lists(PostingLayout::Grouped, None),
        lists(PostingLayout::Coupled, Some(CodeKind::Axes)),
        FlatOptions::default().into(),
        tables(),
        FlatOptions { code_bytes: CODE_BYTES, ..FlatOptions::default() }.into(),
        partitioned(),
    ];
    for (_, family) in families.into_iter().enumerate().filter(|(number, _)| case_runs(*number, 2)) {
        TestIndex::build(family).flip_bits(full_or_quick(60, 25));
    }
}

#[test]
fn missing_and_truncated_files_are_named() {
    for family in [
        graph(GraphLayoutChoice::Csr),
        lists(PostingLayout::Grouped, None),
        lists(PostingLayout::Coupled, Some(CodeKind::RaBitQ { bits: 2 })),
        tables(),
        partitioned(),
    ] {
        TestIndex::build(family).remove_and_truncate();
    }
}
