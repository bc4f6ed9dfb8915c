//! Wider intervals of a prediction that rests on assumed data.

use crate::filtered::FilteredPrediction;
use crate::interval::Interval;
use crate::prediction::{IndexPrediction, PredictedLoad};
use crate::updates::UpdatesPrediction;
use bathyal_index::BuildPlan;

/// Factor by which the interval of the time of a build is wider than that of a sample.
const BUILD_FACTOR: f64 = 1.5;

/// Returns a prediction from assumed vectors, with intervals of searches that are wider by `factor`. Files
/// whose length depends on the vectors may have any length that the plan of the build allows.
pub(crate) fn widened(prediction: IndexPrediction, factor: f64, plan: &BuildPlan) -> IndexPrediction {
    // A counter that is known, such as the reads of a scan, is that of any data.
    let search = |number: Interval| match number.low < number.high {
        true => number.widened(factor),
        false => number,
    };
    let disk = prediction.disk_bytes;
    let depends = disk.low < disk.high;
    let disk_bytes = match depends {
        true => Interval {
            low: disk.low.min(plan.least_index_bytes as f64),
            high: disk.high.max(plan.most_index_bytes as f64),
            ..disk
        },
        false => disk,
    };
    let dram = prediction.dram_bytes;
    let dram_bytes = Interval {
        low: dram.low * (disk_bytes.low / disk.low.max(1.0)),
        high: dram.high * (disk_bytes.high / disk.high.max(1.0)),
        ..dram
    };
    let speeds = |loads: Vec<PredictedLoad>| {
        let load = |load: PredictedLoad| PredictedLoad {
            queries_per_second: search(load.queries_per_second),
            p50_us: search(load.p50_us),
            p99_us: search(load.p99_us),
            ..load
        };
        loads.into_iter().map(load).collect()
    };
    let filters = prediction.filters.into_iter().map(|filter| FilteredPrediction {
        reads: search(filter.reads),
        read_bytes: search(filter.read_bytes),
        moved_bytes: search(filter.moved_bytes),
        processor_us: search(filter.processor_us),
        loads: speeds(filter.loads),
        ..filter
    });
    let updates = prediction.updates.map(|updates| UpdatesPrediction {
        reads: search(updates.reads),
        read_bytes: search(updates.read_bytes),
        processor_us: search(updates.processor_us),
        merge_seconds_a_day: updates.merge_seconds_a_day.widened(BUILD_FACTOR),
        loads: speeds(updates.loads),
        ..updates
    });
    IndexPrediction {
        disk_bytes,
        dram_bytes,
        build_seconds: prediction.build_seconds.widened(BUILD_FACTOR),
        rounds: search(prediction.rounds),
        reads: search(prediction.reads),
        read_bytes: search(prediction.read_bytes),
        moved_bytes: search(prediction.moved_bytes),
        processor_us: search(prediction.processor_us),
        filters: filters.collect(),
        updates,
        loads: speeds(prediction.loads),
        ..prediction
    }
}
