//! The cluster index: groups of near vectors, whose codes are scanned in memory, and one round of reads for
//! the best candidates.
//!
//! A query finds the nearest groups by their centroids (`centroids`). It scans the codes of the groups, which
//! encode residuals to the centroid (IVF-RaBitQ, SIGMOD'25) in blocks that stay in registers. Then it reads
//! the pages of the best candidates in one submission (`search`). Near vectors share pages
//! (`crate::partition::placement`), so one read serves several candidates.

mod among;
mod build;
mod calibrate;
mod centroids;
mod codes;
mod cost;
mod early;
mod effort;
mod encode;
mod inspect;
mod on_card;
mod open;
mod options;
mod place;
mod plan;
mod search;
mod section;
mod shorter;
mod sizes;
mod verify;

pub use centroids::scope::MeasuredPrune;
pub use options::{ClusterOptions, DEFAULT_GROUP_VECTORS};
pub use section::ClusterEntry;

use crate::family::{Capability, Family};
use crate::format::groups::GroupLayout;
use crate::partition::staged::BuildShape;
use bathyal_kernels::Metric;

/// The family, for the registry.
pub static FAMILY: Family = Family {
    name: section::NAME,
    about: "groups of near vectors that share pages, their codes in memory: one round of few reads, \
           quick to build",
    options: options::DOCS,
    counters: &[],
    capabilities: &[Capability::Card],
    striped: section::STRIPED,
    defaults: || ClusterOptions::default().into(),
    parse: options::parse,
    read: |manifest| Ok(Box::new(open::StoredCluster::read(manifest)?)),
};

/// Parses and checks the bytes of a file of centroids.
///
/// # Errors
/// A sentence that names the first fault.
pub fn check_centroids(
    bytes: &[u8],
    entry: &ClusterEntry,
    layout: &GroupLayout,
    metric: Metric,
    vectors: u64,
) -> Result<(), String> {
    centroids::Centroids::from_bytes(bytes, &entry.centroid_file(layout, metric), layout, metric, vectors)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Parses and checks the journal of an interrupted build of `vectors` vectors, of which at most `rows` are
/// placed at a time.
///
/// # Errors
/// A sentence that names the first fault.
pub fn check_journal(bytes: &[u8], vectors: usize, rows: usize, layout: &GroupLayout) -> Result<(), String> {
    let (dim, row_bytes, layout) = (layout.dim(), layout.vector_bytes(), *layout);
    let shape = BuildShape { vectors, dim, row_bytes, rows: rows.max(1), layout };
    build::Journal::parse::<ClusterOptions>(bytes, &shape).map(|_| ())
}
