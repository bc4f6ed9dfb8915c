//! The plan of a build of posting lists: its files, stages and parameters.

use super::centroids::centroid_element;
use super::graph::CENTROID_DEGREE;
use super::options::SpannOptions;
use super::plan::SpannPlan;
use super::section::{
    CENTROIDS_NAME, CHECKSUMS_NAME, CODEC_NAME, CODES_NAME, IDS_NAME, LINKS_NAME, LIST_CODEC_NAME,
    LISTS_NAME, POSTINGS_NAME,
};
use super::work::ListShape;
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedCodes, PlannedFile};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::postings::{BLOCK_BYTES, ENTRY_BYTES, PackedIds, PostingLayout};
use crate::partition::MOST_PARTS;
use crate::partition::staged::all_stages;
use std::ops::RangeInclusive;

/// Bytes of an id next to a row, or of a place next to a code.
const ID_BYTES: u64 = 4;
/// The most bytes of an address in a member section, and of the rest of a section.
const ADDRESS_BYTES: u64 = 8;
const SECTION_BYTES: u64 = 32;

/// Returns the planned files, stages and parameters, with the defaults filled in.
pub(super) fn plan(
    data: &SourceVectors<'_>,
    family_options: &SpannOptions,
    options: &BuildOptions,
) -> Result<FamilyPlan, IndexError> {
    let shape = ListShape::of(family_options, data);
    shape.check(data, family_options)?;
    let (count, rows) = (data.count() as u64, SpannPlan::new(data, family_options, options).rows);
    let full = count.div_ceil(shape.leaf as u64);
    // A leaf never spans two pieces of a divided set, of which there are some two for each part.
    let lists = full..=full + if rows >= data.count() { 0 } else { 2 * MOST_PARTS as u64 };
    let per_list = |each: u64| lists.start() * each..=lists.end() * each;
    let list_codes =
        family_options.code_kind.map(|_| PlannedCodes::grouped(family_options.codes(), data.dim()));
    let postings = postings(data, family_options, &shape, &lists, list_codes);
    let block = BLOCK_BYTES as u64;
    let checksums = 4 * postings.start().div_ceil(block)..=4 * postings.end().div_ceil(block);
    let element = centroid_element(data.element(), options.metric);
    // Two bytes a list, and for each link the bits of a list's number and two more.
    let link_bits = u64::from(lists.end().ilog2()) + 3;
    let links = 2 * lists.start()..=lists.end() * (2 + (u64::from(CENTROID_DEGREE) * link_bits).div_ceil(8));
    let codes = PlannedCodes::lone(family_options.centroid_codes(), data.dim());
    let mut files = vec![
        PlannedFile::within(POSTINGS_NAME, postings),
        PlannedFile::within(CHECKSUMS_NAME, checksums),
        PlannedFile::within(LISTS_NAME, per_list(ENTRY_BYTES as u64)),
        PlannedFile::within(CENTROIDS_NAME, per_list(element.row_bytes(data.dim()) as u64)),
        PlannedFile::within(LINKS_NAME, links),
        PlannedFile::within(CODES_NAME, codes.file_bytes(lists.clone())),
        PlannedFile::within(CODEC_NAME, codes.codec_bytes()),
    ];
    if family_options.layout == PostingLayout::Grouped {
        files.push(PlannedFile::exactly(IDS_NAME, PackedIds::file_bytes(count)));
    }
    if let Some(codes) = list_codes {
        // The mean of the vectors precedes the codec.
        let (shift, codec) = (4 * data.dim() as u64, codes.codec_bytes());
        files.push(PlannedFile::within(LIST_CODEC_NAME, shift + codec.start()..=shift + codec.end()));
    }
    let mut parameters = Details::from(list_codes.unwrap_or(codes).parameters());
    parameters.extend([
        ("layout", family_options.layout.name().into()),
        ("list_vectors", shape.leaf.into()),
        ("replicas", family_options.list_replicas().into()),
        ("list_limit", shape.list_limit.into()),
    ]);
    Ok(FamilyPlan { parameters, rows, stages: all_stages(data, family_options, &shape, rows), files })
}

/// Returns the bytes of the file of postings. The number of lists of a vector depends on its position.
fn postings(
    data: &SourceVectors<'_>,
    family_options: &SpannOptions,
    shape: &ListShape,
    lists: &RangeInclusive<u64>,
    codes: Option<PlannedCodes>,
) -> RangeInclusive<u64> {
    let (count, row, block) = (data.count() as u64, data.row_bytes() as u64, BLOCK_BYTES as u64);
    let listed = lists.end() * (shape.list_limit + shape.leaf) as u64;
    let copies = count..=(count * u64::from(family_options.list_replicas())).min(listed).max(count);
    // A list that would touch an additional block begins at the next block.
    let padding = lists.end() * block;
    match (shape.postings, codes) {
        (PostingLayout::Coupled, None) => {
            copies.start() * (row + ID_BYTES)..=copies.end() * (row + ID_BYTES) + padding
        }
        (PostingLayout::Coupled, Some(codes)) => {
            let rows = (count * (row + ID_BYTES)).next_multiple_of(block);
            let code = codes.code_bytes();
            let least = rows + copies.start() * (code.start() + ID_BYTES);
            least..=rows + copies.end() * (code.end() + ID_BYTES) + padding
        }
        (layout, _) => {
            let rows = (count * row).next_multiple_of(block);
            let owned = if layout == PostingLayout::Grouped { count } else { 0 };
            let elsewhere = copies.end() - owned;
            let sections = if elsewhere > 0 { lists.end() * SECTION_BYTES } else { 0 };
            rows..=rows + elsewhere * ADDRESS_BYTES + sections
        }
    }
}
