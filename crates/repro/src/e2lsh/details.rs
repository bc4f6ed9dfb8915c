//! What the records say beside the measurements: of the run, and of the tables that were chosen.

use serde::Serialize;

use super::build::Built;
use super::lab::Lab;
use crate::workload::file_name;

/// The first line: what was searched for in what, and how it was measured.
#[derive(Serialize)]
pub(super) struct Details<'a> {
    data: String,
    vectors: usize,
    dim: usize,
    element: &'static str,
    data_bytes: u64,
    query_file: String,
    queries: usize,
    /// The first is what parameters were chosen for.
    k: &'a [u32],
    ratio: f32,
    /// Of a hash, in units of the radius.
    width: f64,
    in_flight: u32,
    repeats: u32,
    synchronous_queries: u32,
    /// Microseconds that SRS takes for a query, where they were given.
    srs_us: Option<f64>,
}

impl<'a> Details<'a> {
    pub(super) fn of(lab: &Lab<'a>) -> Details<'a> {
        let (arguments, work) = (lab.arguments, lab.work);
        Details {
            data: file_name(&arguments.data),
            vectors: work.base.count(),
            dim: work.base.dim(),
            element: work.base.element().name(),
            data_bytes: work.base.data_bytes(),
            query_file: file_name(&arguments.queries),
            queries: work.all.queries.count(),
            k: &arguments.k,
            ratio: arguments.ratio,
            width: arguments.width,
            in_flight: arguments.in_flight,
            repeats: arguments.repeats,
            synchronous_queries: arguments.synchronous_queries,
            srs_us: arguments.srs_us,
        }
    }
}

/// The tables that were measured further: what they were drawn for, and what they take.
#[derive(Serialize)]
pub(super) struct Tables {
    of: &'static str,
    /// Tables a radius (L), values of a compound hash (m), radii (r).
    tables: usize,
    hashes: usize,
    radii: usize,
    first_radius: f64,
    /// Bits of a hash value that tables look at (u).
    slot_bits: u32,
    index_bytes: u64,
    /// Bytes of memory: of the hash functions, and of the filter of empty buckets with all its bits.
    hash_bytes: u64,
    filter_bytes: u64,
    /// None where the tables were found in the work folder.
    build_seconds: Option<f64>,
}

impl Tables {
    pub(super) fn of(built: &Built) -> Tables {
        let (ladder, layout) = (&built.plan.ladder, &built.plan.layout);
        Tables {
            of: "chosen",
            tables: ladder.tables,
            hashes: ladder.hashes,
            radii: ladder.radii,
            first_radius: ladder.first,
            slot_bits: layout.slot_bits,
            index_bytes: built.index_bytes,
            hash_bytes: built.hashes.bytes(),
            filter_bytes: built.filter.bytes(),
            build_seconds: built.seconds,
        }
    }
}
