//! Every page of a cluster index, looked at: checksums, ids, vectors.

use super::centroids::Centroids;
use super::section::ClusterEntry;
use crate::error::IndexError;
use crate::family::{VerifyReport, Verifying};
use crate::format::walk::read_through;
use bathyal_kernels::first_non_finite;

/// Compares the vectors that the pages of each group hold with what a scan believes.
pub(super) fn compare_groups(centroids: &Centroids, held: &[u32], report: &mut VerifyReport) {
    for (group, held) in (0..centroids.groups() as u32).zip(held) {
        let count = centroids.count(group);
        if count != *held as usize {
            report.fault(format!("group {group}: its pages hold {held} vectors, the centroids say {count}"));
        }
    }
}

/// Checks every page of a cluster index: its checksum, and that each vector is there once. Returns the vectors of
/// each group.
pub(super) fn walk_groups(
    verifying: &Verifying<'_>,
    entry: &ClusterEntry,
    report: &mut VerifyReport,
) -> Result<Vec<u32>, IndexError> {
    let Verifying { object, manifest, progress, .. } = *verifying;
    let wrong = |reason: String| IndexError::damaged(object.address(), "the manifest", reason);
    let element = manifest.element().map_err(wrong)?;
    let layout = entry.layout(manifest).map_err(wrong)?;
    let mut seen = vec![0_u64; manifest.vectors as usize / 64 + 1];
    let mut held = vec![0_u32; entry.groups as usize];
    let file = entry.file.clone();
    let pages = u64::from(entry.groups) * layout.group_pages() as u64;
    let crc = read_through(object, file.bytes, layout.page_bytes(), progress, |number, page| {
        if number >= pages {
            if page.iter().any(|byte| *byte != 0) {
                report.fault("unused bytes behind the last page are not zero".into());
            }
            return;
        }
        if let Err(reason) = layout.check(number as u32, page) {
            return report.fault(format!("page {number}: {reason}"));
        }
        let vectors = layout.vectors(page).chunks_exact(layout.vector_bytes());
        for (slot, vector) in vectors.enumerate() {
            let Some(id) = layout.id(page, slot) else { continue };
            report.vectors += 1;
            held[number as usize / layout.group_pages()] += 1;
            if u64::from(id) >= manifest.vectors || seen[id as usize / 64] >> (id % 64) & 1 == 1 {
                report.fault(format!(
                    "page {number}: vector {id} is there twice or none of {}",
                    manifest.vectors
                ));
                continue;
            }
            seen[id as usize / 64] |= 1 << (id % 64);
            if let Some(at) = first_non_finite(element, vector) {
                report.fault(format!("vector {id}: component {at} is not finite"));
            }
        }
    })?;
    report.bytes += file.bytes;
    if crc != file.crc32c {
        report.fault(format!("{}: checksum {crc:08x}, the manifest says {:08x}", file.name, file.crc32c));
    }
    if report.vectors != manifest.vectors {
        report.fault(format!("the pages hold {} vectors of {}", report.vectors, manifest.vectors));
    }
    Ok(held)
}
