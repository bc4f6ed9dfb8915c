//! The plan of a build of partitions: its files, stages and parameters.

use super::growth::group_file::grown_bytes;
use super::section::{FILE_NAME, META_NAME, TABLE_NAME};
use super::subindex::options::{PartitionedOptions, Pivots};
use super::subindex::table::{ALIGNMENT, ENTRY_BYTES};
use super::subindex::{least_bytes, most_bytes};
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedFile};
use crate::error::IndexError;
use crate::form::source::SourceVectors;

/// Returns the planned files, stages and parameters, with the defaults filled in.
pub(super) fn plan(
    data: &SourceVectors<'_>,
    family_options: &PartitionedOptions,
    _options: &BuildOptions,
) -> Result<FamilyPlan, IndexError> {
    let (count, row_bytes) = (data.count() as u64, data.row_bytes());
    let sampled = partitions(data.count(), family_options) as u64;
    // Dividing large partitions makes at most twice as many and one.
    let all = match family_options.pivots {
        Pivots::Sampled => sampled..=sampled,
        Pivots::Balanced => sampled..=(2 * sampled + 1).min(count),
    };
    // The length of a graph depends on its links. The bytes that are not proportional to vectors occur once a
    // partition.
    let least = least_bytes(count, row_bytes) + (all.start() - 1) * least_bytes(0, row_bytes);
    let copies = count * u64::from(family_options.replicas);
    let largest = (family_options.most_vectors() as u64).min(count);
    // In a large partition all links are wider, from the first vector on.
    let largest_links = 2 * 64 * u64::from(family_options.links);
    let (empty, full) = (
        most_bytes(0, row_bytes, family_options.links),
        most_bytes(largest, row_bytes, family_options.links),
    );
    let of_vectors = copies * (full - empty).div_ceil(largest.max(1));
    let most = of_vectors + all.end() * (empty + largest_links + ALIGNMENT);
    let file = match family_options.growth > 0.0 {
        true => {
            let bytes = |partitions| grown_bytes(family_options, row_bytes, count, partitions, least..=most);
            *bytes(*all.start()).start()..=*bytes(*all.end()).end()
        }
        false => least..=most,
    };
    let entries = ENTRY_BYTES as u64;
    let meta = least_bytes(*all.start(), row_bytes)..=most_bytes(*all.end(), row_bytes, family_options.links);
    let files = vec![
        PlannedFile::within(FILE_NAME, file),
        PlannedFile::within(TABLE_NAME, entries * all.start()..=entries * all.end()),
        PlannedFile::within(META_NAME, meta),
    ];
    let mut parameters = Details::from([
        ("partition_vectors", family_options.partition_vectors.into()),
        ("pivots", family_options.pivots.name().into()),
        ("replicas", family_options.replicas.into()),
        ("links", family_options.links.into()),
        ("construction_list", family_options.construction_list.into()),
    ]);
    if let Some(overflow) = family_options.overflow() {
        parameters.insert("growth", f64::from(family_options.growth).into());
        parameters.insert("overflow_vectors", overflow.into());
    }
    let stages = stages(data).into_iter().map(|(name, seconds)| (name, Some(seconds))).collect();
    Ok(FamilyPlan { parameters, rows: data.count(), stages, files })
}

/// Returns the stages with their seconds on one machine.
pub(super) fn stages(data: &SourceVectors<'_>) -> [(&'static str, f64); 3] {
    let values = data.count() as f64 * data.dim() as f64 / 128e6;
    [
        ("assigning", 10.0 * values),
        ("exact neighbours", 3.0 * values),
        ("building sub-indexes", 100.0 * values),
    ]
}

/// Returns the number of partitions for `count` vectors, before large ones are divided.
pub(super) fn partitions(count: usize, family_options: &PartitionedOptions) -> usize {
    count.div_ceil(family_options.partition_vectors as usize).max(1)
}
