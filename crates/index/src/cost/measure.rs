//! Measures the constants of this machine's processor, in some milliseconds.

use super::processor::Processor;
use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec, EncodeScratch, GroupScan, SCAN_BLOCK};
use bathyal_kernels::{Distance, Element, Metric};
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::{FileOptions, FileTier};
use bathyal_tier::probe::{ProbeOptions, probe_tier};
use bathyal_tier::{Control, Cx, Engine, EngineOptions, ReadError, Span, Tier};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Measurements of a constant. The median is used, since a busy machine disturbs some of them.
const REPEATS: usize = 9;
/// Bytes of memory that is too large for the cache of a core.
const FAR_BYTES: usize = 16 << 20;
/// Bytes that fit in the first-level cache together with a query.
const NEAR_BYTES: usize = 16 << 10;
/// Accesses to memory in one measurement.
const ACCESSES: usize = 4096;
/// Distance of the prefetch from its use in accesses, as in searches.
const PREFETCH_DISTANCE: usize = 8;
/// Dimensions of the vectors and codes of the measurement.
const DIM: usize = 64;
/// Bytes of a code of one bit per dimension, with its factors.
const CODE_BYTES: usize = 16;
/// Passes over the bytes in the cache in one measurement.
const PASSES: usize = 64;
/// Queries of a measurement of suspends, how many of them run at once, and the reads of each.
const SUSPENDED_QUERIES: usize = 64;
const IN_FLIGHT: usize = 16;
const LINES_A_QUERY: usize = 32;
/// Distance of consecutive reads in lines: odd, so that they visit every line.
const LINE_STEP: usize = 7;
/// Bytes of a cache line.
const LINE_BYTES: u32 = 64;
/// Bytes of the reads of a file, how many are in flight, and for how long.
const SUBMIT_BLOCK: u32 = 4096;
const SUBMIT_DEPTH: u32 = 32;
const SUBMIT_TIME: Duration = Duration::from_millis(4);
/// The largest factor between a measurement and the reference: a larger one would be due to other programs on
/// the machine.
const MOST_UNLIKE: f64 = 8.0;

/// Measures the constants. A constant that cannot be measured is that of the reference. The numbers are
/// rounded to powers of the fourth root of 2, so that two measurements usually agree.
pub(super) fn measure() -> Processor {
    let far: Vec<u64> = (0..FAR_BYTES as u64 / 8).collect();
    let reference = Processor::REFERENCE;
    let plausible = |measured: Option<f64>, reference: f64| {
        let measured = measured.filter(|ns| ns.is_finite()).unwrap_or(reference);
        rounded(measured.clamp(reference / MOST_UNLIKE, reference * MOST_UNLIKE))
    };
    Processor {
        code_byte_ns: plausible(code_byte_ns(), reference.code_byte_ns),
        stream_byte_ns: plausible(median(|round| stream_byte_ns(&far, round)), reference.stream_byte_ns),
        vector_byte_ns: plausible(vector_byte_ns(), reference.vector_byte_ns),
        access_ns: plausible(median(|round| access_ns(&far, round)), reference.access_ns),
        suspend_ns: plausible(suspend_ns(), reference.suspend_ns),
        submit_ns: plausible(submit_ns(), reference.submit_ns),
        table_ns: plausible(table_ns(reference.stream_byte_ns), reference.table_ns),
    }
}

/// Returns the nearest power of the fourth root of 2.
fn rounded(number: f64) -> f64 {
    ((4.0 * number.log2()).round() / 4.0).exp2()
}

/// Returns the median of several measurements.
fn median(measured: impl FnMut(usize) -> f64) -> Option<f64> {
    let mut all: Vec<f64> = (0..REPEATS).map(measured).collect();
    all.sort_by(f64::total_cmp);
    all.get(REPEATS / 2).copied()
}

/// Returns the nanoseconds of `work`, divided by `amount`.
fn ns_per_unit(amount: usize, work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_nanos() as f64 / amount.max(1) as f64
}

/// Returns the nanoseconds of a byte of a stream. Each round reads another part of memory, so that no part is
/// in a cache.
fn stream_byte_ns(far: &[u64], round: usize) -> f64 {
    let part = far.len() / REPEATS;
    let part = &far[round * part..(round + 1) * part];
    ns_per_unit(part.len() * 8, || {
        black_box(part.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
    })
}

fn access_ns(far: &[u64], round: usize) -> f64 {
    // Steps by a large odd number visit no place twice in a round.
    let place = |access: usize| (access + round * ACCESSES).wrapping_mul(0x9e37_79b9_7f4a_7c15) % far.len();
    ns_per_unit(ACCESSES, || {
        let mut sum = 0_u64;
        for access in 0..ACCESSES {
            let ahead = &raw const far[place(access + PREFETCH_DISTANCE)];
            bathyal_tier::prefetch(ahead.cast(), size_of::<u64>());
            sum = sum.wrapping_add(far[place(access)]);
        }
        black_box(sum);
    })
}

fn vector_byte_ns() -> Option<f64> {
    let distance = Distance::new(Element::F32, Metric::L2, DIM);
    let (query, rows) = (vec![0_u8; DIM * 4], vec![0_u8; NEAR_BYTES]);
    let mut out = vec![0.0_f32; NEAR_BYTES / distance.row_bytes()];
    median(|_| {
        ns_per_unit(PASSES * NEAR_BYTES, || {
            (0..PASSES).for_each(|_| distance.score_block(black_box(&query), black_box(&rows), &mut out));
        })
    })
}

/// Returns the nanoseconds of a read that suspends a query and resumes it, on bytes in the cache.
fn suspend_ns() -> Option<f64> {
    let tier: Arc<dyn Tier> = Arc::new(DramTier::new(vec![1; NEAR_BYTES]));
    let mut engine = Engine::new(tier, EngineOptions::default()).ok()?;
    let mut run = || {
        let mut made = 0;
        let next = |cx: &Cx| {
            made += 1;
            (made <= SUSPENDED_QUERIES).then(|| read_lines(cx.clone(), made))
        };
        engine.run(IN_FLIGHT, next, |sum| drop(black_box(sum)), Control::default()).is_ok()
    };
    if !run() {
        return None;
    }
    median(|_| {
        ns_per_unit(SUSPENDED_QUERIES * LINES_A_QUERY, || {
            run();
        })
    })
}

/// Reads some cache lines, one after the other.
async fn read_lines(cx: Cx, seed: usize) -> Result<u64, ReadError> {
    let mut sum = 0_u64;
    for line in 0..LINES_A_QUERY {
        let offset = (line + seed).wrapping_mul(LINE_STEP) % (NEAR_BYTES / LINE_BYTES as usize);
        let spans = [Span::at((offset * LINE_BYTES as usize) as u64, LINE_BYTES)];
        let read = cx.read(&spans).await?;
        sum = sum.wrapping_add(u64::from(read.bytes(0).first().copied().unwrap_or_default()));
    }
    Ok(sum)
}

/// Returns the processor nanoseconds of a read of a file, past the page cache if possible. The file is the
/// program that runs: it exists, and nothing has to be written.
fn submit_ns() -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let tier: Arc<dyn Tier> = Arc::new(FileTier::open(&program, FileOptions::default()).ok()?);
    let options = ProbeOptions {
        file_bytes: 0,
        write_time: Duration::ZERO,
        cell_time: SUBMIT_TIME,
        read_time: SUBMIT_TIME,
        blocks: vec![SUBMIT_BLOCK],
        depths: vec![SUBMIT_DEPTH],
        joins_reads: false,
    };
    let report = probe_tier(&tier, &options, &|_| true).ok()?;
    Some(report.profile.issue_ns as f64).filter(|ns| *ns > 0.0)
}

/// Returns the nanoseconds per dimension of making the tables of a query, without its rotation, which takes
/// `matrix_byte_ns` for each byte of the matrix.
fn table_ns(matrix_byte_ns: f64) -> Option<f64> {
    let (codec, vectors) = codec_of_groups()?;
    let mut query = CodeQuery::new();
    let prepared = median(|_| {
        ns_per_unit(PASSES, || {
            let queries = vectors.chunks_exact(DIM).take(PASSES);
            queries.for_each(|vector| query.prepare_groups(&codec, black_box(vector)));
        })
    })?;
    Some(prepared / DIM as f64 - (DIM * size_of::<f32>()) as f64 * matrix_byte_ns)
}

/// Returns a codec of one bit per dimension, and the vectors that it was trained with.
fn codec_of_groups() -> Option<(Codec, Vec<f32>)> {
    // Pseudo-random numbers between -1 and 1.
    let value = |i: usize| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    let vectors: Vec<f32> = (0..4 * SCAN_BLOCK * DIM).map(value).collect();
    let kind = CodeKind::RaBitQ { bits: 1 };
    let codec = Codec::train(kind, CODE_BYTES, Metric::L2, &vectors, DIM, 1, 1).ok()?;
    Some((codec, vectors))
}

fn code_byte_ns() -> Option<f64> {
    let (codec, vectors) = codec_of_groups()?;
    let mut blocks = vec![0_u8; 4 * codec.block_bytes()];
    codec.encode_group(&vectors, &[0.0; DIM], &mut blocks, &mut EncodeScratch::default());
    let mut query = CodeQuery::new();
    query.prepare_groups(&codec, &vectors[..DIM]);
    let scan = GroupScan {
        blocks: &blocks,
        count: 4 * SCAN_BLOCK,
        centroid_distance: 1.0,
        // No estimate is below this threshold, so that no hit is written.
        threshold: f32::NEG_INFINITY,
        first: 0,
        next: &[],
    };
    let mut hits = Vec::new();
    median(|_| {
        ns_per_unit(PASSES * blocks.len(), || {
            (0..PASSES).for_each(|_| query.scan_group_before(&codec, black_box(&scan), &mut hits));
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_constants_are_rounded_and_near_the_reference() {
        let (measured, reference) = (measure(), Processor::REFERENCE);
        let pairs = [
            (measured.code_byte_ns, reference.code_byte_ns),
            (measured.stream_byte_ns, reference.stream_byte_ns),
            (measured.vector_byte_ns, reference.vector_byte_ns),
            (measured.access_ns, reference.access_ns),
            (measured.suspend_ns, reference.suspend_ns),
            (measured.submit_ns, reference.submit_ns),
            (measured.table_ns, reference.table_ns),
        ];
        for (measured, reference) in pairs {
            assert_eq!(rounded(measured), measured);
            let factor = measured / reference;
            // Rounding may add half a step.
            assert!((0.9 / MOST_UNLIKE..1.1 * MOST_UNLIKE).contains(&factor), "{measured} {reference}");
        }
        assert_eq!((rounded(1.0), rounded(0.98), rounded(2.1)), (1.0, 1.0, 2.0));
    }
}
