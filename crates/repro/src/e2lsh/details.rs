//! Records besides the measurements: one for the run, one for the chosen tables.

use serde::Serialize;

use super::build::BuiltTables;
use super::experiment::E2lshExperiment;
use crate::workload::file_name;

/// Details in the line about the run: the data, the queries and the conditions of the measurements.
#[derive(Serialize)]
pub(super) struct E2lshDetails<'a> {
    data: String,
    vectors: usize,
    dim: usize,
    element: &'static str,
    data_bytes: u64,
    query_file: String,
    queries: usize,
    /// The parameters are chosen for the first.
    k: &'a [u32],
    ratio: f32,
    /// Parallelism of a hash, in units of the radius.
    width: f64,
    in_flight: u32,
    repeats: u32,
    synchronous_queries: u32,
    /// Microseconds that SRS takes for a query, if they were given.
    srs_us: Option<f64>,
}

impl<'a> E2lshDetails<'a> {
    pub(super) fn of(experiment: &E2lshExperiment<'a>) -> E2lshDetails<'a> {
        let (arguments, work) = (experiment.arguments, experiment.work);
        E2lshDetails {
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

/// Parameters and sizes of the chosen tables.
#[derive(Serialize)]
pub(super) struct TablesRecord {
    of: &'static str,
    /// Tables per radius (L), values of a compound hash (m), radii (r).
    tables: usize,
    hashes: usize,
    radii: usize,
    first_radius: f64,
    /// Bits of a hash value that select a slot of a table (u).
    slot_bits: u32,
    index_bytes: u64,
    /// Bytes in memory of the hash functions, and of the filter of empty buckets with all its bits.
    hash_bytes: u64,
    filter_bytes: u64,
    /// `None` if the tables were found in the work folder.
    build_seconds: Option<f64>,
}

impl TablesRecord {
    pub(super) fn of(built: &BuiltTables) -> TablesRecord {
        let (ladder, layout) = (&built.plan.ladder, &built.plan.layout);
        TablesRecord {
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
