//! Making the codes of all vectors, in the order of the data.

use super::build::Work;
use super::section::{CODEC_NAME, CODES_NAME, FlatCodes};
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::manifest::CodesEntry;
use crate::partition::intake::Intake;
use crate::partition::{CHECK_BYTES, READ_BYTES, sample_rows};
use crate::query::codes::VectorCodes;
use bathyal_kernels::quantize::{EncodeScratch, SCAN_BLOCK};
use bathyal_vectors::{RowReader, VectorError};
use std::sync::Mutex;

/// Bytes of codes that are made before they are written.
const CODES_BYTES: usize = 4 << 20;
/// Vectors that a thread encodes at once: whole blocks.
const ENCODE_ROWS: usize = 8 * SCAN_BLOCK;

/// Bytes of memory at the peak of making codes.
pub(super) fn planned_bytes(count: usize, dim: usize, threads: u64) -> u64 {
    // The codec takes its sample as it is and centred, and covariances of the dimensions.
    let sample = (sample_rows(count, dim) * dim * 4) as u64;
    let training = 2 * sample + 2 * (dim.min(1024) as u64).pow(2) * 8;
    let encoding = 3 * CODES_BYTES as u64 + threads * (ENCODE_ROWS as u64 + 64) * 4 * dim as u64;
    // The codec itself is a matrix at most.
    training.max(encoding) + 8 * (dim * dim.min(1024)) as u64
}

/// Trains the codec on a sample, and writes it and the codes of all vectors.
pub(super) fn write(work: &Work<'_>, intake: &Intake) -> Result<Option<FlatCodes>, IndexError> {
    let Some(choice) = work.own.codes() else { return Ok(None) };
    work.progress.stage("training codes", 1);
    let (data, dim) = (work.data, intake.dim);
    let mut sample = sample(work, intake)?;
    let (kind, seed) = (choice.of_groups(dim), work.options.seed);
    let codes = VectorCodes::train(kind, intake.metric, &mut sample, dim, seed, work.threads)?;
    let squares: f64 = sample.iter().map(|value| f64::from(*value).powi(2)).sum();
    let radius = (squares * dim as f64 / sample.len() as f64).sqrt() as f32;
    drop(sample);
    let mut codec = Appender::create(work.directory, CODEC_NAME)?;
    codec.append(&codes.to_bytes())?;
    work.progress.stage("encoding", data.count() as u64);
    let size = codes.code_bytes();
    let at_once = (CODES_BYTES / size).min(CHECK_BYTES / data.given_row_bytes());
    let at_once = at_once.next_multiple_of(ENCODE_ROWS).min(data.count());
    let (mut bytes, mut blocks) = (vec![0_u8; at_once * size], Vec::new());
    let mut file = Appender::create(work.directory, CODES_NAME)?;
    for first in (0..data.count()).step_by(at_once) {
        work.go_on()?;
        let bytes = &mut bytes[..at_once.min(data.count() - first) * size];
        encode(work, intake, &codes, first, bytes)?;
        blocks.clear();
        codes.append_blocks(bytes, &mut blocks);
        file.append(&blocks)?;
        work.progress.advance((first + bytes.len() / size) as u64);
    }
    let (kind, code_bytes) = (codes.codec.kind().to_string(), size as u32);
    let codes = CodesEntry { file: file.finish()?, codec: codec.finish()?, kind, code_bytes };
    Ok(Some(FlatCodes { codes, radius }))
}

/// Vectors from all over the data as floats, row-major.
fn sample(work: &Work<'_>, intake: &Intake) -> Result<Vec<f32>, IndexError> {
    let (data, dim) = (work.data, intake.dim);
    let rows = sample_rows(data.count(), dim);
    let mut sample = vec![0.0_f32; rows * dim];
    let (mut given, mut taken) = (RowReader::new(data.given(), 0), vec![0_u8; data.row_bytes()]);
    for (i, row) in sample.chunks_exact_mut(dim).enumerate() {
        if i % 4096 == 0 {
            work.go_on()?;
        }
        intake.take(given.row((i as u64 * data.count() as u64 / rows as u64) as usize)?, &mut taken);
        intake.floats(&taken, row);
    }
    Ok(sample)
}

/// Encodes the vectors from `first` on, split over threads.
fn encode(
    work: &Work<'_>,
    intake: &Intake,
    codes: &VectorCodes,
    first: usize,
    bytes: &mut [u8],
) -> Result<(), VectorError> {
    let (dim, size) = (intake.dim, codes.code_bytes());
    let part = (bytes.len() / size).div_ceil(work.threads).next_multiple_of(ENCODE_ROWS);
    let encode = |mut id: usize, bytes: &mut [u8]| {
        let mut scratch = EncodeScratch::default();
        let mut given = RowReader::new(work.data.given(), READ_BYTES);
        let (mut rows, mut taken) = (vec![0.0_f32; ENCODE_ROWS * dim], vec![0_u8; work.data.row_bytes()]);
        for bytes in bytes.chunks_mut(ENCODE_ROWS * size) {
            let rows = &mut rows[..bytes.len() / size * dim];
            for row in rows.chunks_exact_mut(dim) {
                intake.take(given.row(id)?, &mut taken);
                intake.floats(&taken, row);
                id += 1;
            }
            codes.encode(rows, bytes, &mut scratch);
        }
        Ok(())
    };
    let failed = Mutex::new(Ok(()));
    std::thread::scope(|scope| {
        for (number, bytes) in bytes.chunks_mut(part * size).enumerate() {
            let (encode, failed) = (&encode, &failed);
            scope.spawn(move || {
                if let (Err(error), Ok(mut failed)) = (encode(first + number * part, bytes), failed.lock()) {
                    *failed = Err(error);
                }
            });
        }
    });
    failed.into_inner().unwrap_or(Ok(()))
}
