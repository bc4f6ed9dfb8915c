//! Makes codes of whole vectors during a build: trains the codec on a sample, and encodes all vectors in
//! order, with all threads, some megabytes at once.

use super::intake::Intake;
use super::{CHECK_BYTES, READ_BYTES, Work, sample_rows};
use crate::build::codes::CodeChoice;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::query::codes::VectorCodes;
use bathyal_kernels::quantize::{CodeKind, Codec, EncodeScratch, SCAN_BLOCK};
use bathyal_vectors::{RowReader, VectorError};
use std::sync::Mutex;

/// Bytes of codes that are passed on at once.
pub(crate) const CODES_BYTES: usize = 4 << 20;
/// Vectors that a thread encodes at once: whole blocks.
const ENCODE_ROWS: usize = 8 * SCAN_BLOCK;

/// Most training vectors of a codec that only takes a mean and a spread from them.
const MEAN_ROWS: usize = 4096;

/// Returns the number of vectors that a codec is trained on.
fn training_rows(count: usize, dim: usize, kind: CodeKind) -> usize {
    let rows = sample_rows(count, dim);
    if matches!(kind, CodeKind::RaBitQ { .. }) { rows.min(MEAN_ROWS) } else { rows }
}

/// Returns the peak memory in bytes of training a codec and making codes.
pub(crate) fn planned_bytes(count: usize, dim: usize, choice: CodeChoice, threads: u64) -> u64 {
    // The codec needs its sample twice: unchanged and centred.
    let sample = (training_rows(count, dim, choice.of_groups(dim).0) * dim * 4) as u64;
    let training = 2 * sample + choice.training_bytes(dim);
    let encoding = 2 * CODES_BYTES as u64 + threads * (ENCODE_ROWS as u64 + 64) * 4 * dim as u64;
    training.max(encoding) + choice.codec_bytes(dim)
}

/// Reads one vector as `dim` floats, by its number.
pub(crate) trait ReadFloats: FnMut(usize, &mut [f32]) -> Result<(), VectorError> {}

impl<F: FnMut(usize, &mut [f32]) -> Result<(), VectorError>> ReadFloats for F {}

/// Reads vectors of the data as the floats that codes are made of.
pub(crate) struct FloatRows<'a> {
    given: RowReader<'a>,
    intake: &'a Intake,
    stored: Vec<u8>,
}

impl<'a> FloatRows<'a> {
    pub(crate) fn new(data: &SourceVectors<'a>, intake: &'a Intake, ahead_bytes: usize) -> FloatRows<'a> {
        let stored = vec![0; data.row_bytes()];
        FloatRows { given: RowReader::new(data.given(), ahead_bytes), intake, stored }
    }

    /// Writes vector `id` to `out`.
    pub(crate) fn read(&mut self, id: usize, out: &mut [f32]) -> Result<(), VectorError> {
        self.intake.take(self.given.row(id)?, &mut self.stored);
        self.intake.floats(&self.stored, out);
        Ok(())
    }
}

/// Makes codes of whole vectors.
pub(crate) trait Encoder: Sync {
    /// Returns the bytes of a code.
    fn code_bytes(&self) -> usize;

    /// Encodes `rows` (row-major, may be overwritten) to consecutive codes.
    fn encode(&self, rows: &mut [f32], codes: &mut [u8], scratch: &mut EncodeScratch);
}

impl Encoder for VectorCodes {
    fn code_bytes(&self) -> usize {
        VectorCodes::code_bytes(self)
    }

    fn encode(&self, rows: &mut [f32], codes: &mut [u8], scratch: &mut EncodeScratch) {
        VectorCodes::encode(self, rows, codes, scratch);
    }
}

impl Encoder for Codec {
    fn code_bytes(&self) -> usize {
        Codec::code_bytes(self)
    }

    fn encode(&self, rows: &mut [f32], codes: &mut [u8], scratch: &mut EncodeScratch) {
        Codec::encode(self, rows, codes, scratch);
    }
}

/// The vectors to encode: `count` vectors of `dim` floats each.
pub(crate) struct Encoding<'a, 'w, L, O, M> {
    pub(crate) work: &'a Work<'w, L, O>,
    pub(crate) count: usize,
    pub(crate) dim: usize,
    /// Bytes of a vector in the form in which it is read.
    pub(crate) row_bytes: usize,
    /// Makes a reader of vectors for one thread, which reads the given number of bytes ahead.
    pub(crate) reader: M,
}

impl<L: Sync, O: Sync, F: ReadFloats, M: Fn(usize) -> F + Sync> Encoding<'_, '_, L, O, M> {
    /// Trains a codec on a sample. Returns the sample as well, from which the mean is computed.
    pub(crate) fn train(&self, choice: (CodeKind, usize)) -> Result<(VectorCodes, Vec<f32>), IndexError> {
        let (work, dim) = (self.work, self.dim);
        let mut sample = self.sample(training_rows(self.count, dim, choice.0))?;
        let options = work.options;
        let codes = VectorCodes::train(choice, options.metric, &mut sample, dim, options.seed, work.threads)?;
        Ok((codes, sample))
    }

    /// Returns a sample of `rows` vectors, spread over the data, on which a codec is trained.
    pub(crate) fn sample(&self, rows: usize) -> Result<Vec<f32>, IndexError> {
        let (work, dim) = (self.work, self.dim);
        work.progress.stage("training codes", 1);
        let mut sample = vec![0.0_f32; rows * dim];
        let mut read = (self.reader)(0);
        for (i, row) in sample.chunks_exact_mut(dim).enumerate() {
            if i % 4096 == 0 {
                work.check_cancelled()?;
            }
            // Evenly spread, since neighbours in a file are often similar.
            read((i as u64 * self.count as u64 / rows as u64) as usize, row)?;
        }
        Ok(sample)
    }

    /// Passes the codes of all vectors to `take`, in order, several whole blocks at once.
    pub(crate) fn encode(
        &self,
        codes: &impl Encoder,
        mut take: impl FnMut(&[u8]) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        self.work.progress.stage("encoding", self.count as u64);
        let size = codes.code_bytes();
        let at_once = (CODES_BYTES / size).min(CHECK_BYTES / self.row_bytes);
        let at_once = at_once.next_multiple_of(ENCODE_ROWS).min(self.count);
        let mut bytes = vec![0_u8; at_once * size];
        for first in (0..self.count).step_by(at_once) {
            self.work.check_cancelled()?;
            let bytes = &mut bytes[..at_once.min(self.count - first) * size];
            self.encode_from(codes, first, bytes)?;
            take(bytes)?;
            self.work.progress.advance((first + bytes.len() / size) as u64);
        }
        Ok(())
    }

    /// Encodes the vectors from `first` on, with all threads.
    fn encode_from(&self, codes: &impl Encoder, first: usize, bytes: &mut [u8]) -> Result<(), VectorError> {
        let (dim, size) = (self.dim, codes.code_bytes());
        let part = (bytes.len() / size).div_ceil(self.work.threads).next_multiple_of(ENCODE_ROWS);
        let encode = |mut number: usize, bytes: &mut [u8]| {
            let mut scratch = EncodeScratch::default();
            let mut read = (self.reader)(READ_BYTES);
            let mut rows = vec![0.0_f32; ENCODE_ROWS * dim];
            for bytes in bytes.chunks_mut(ENCODE_ROWS * size) {
                let rows = &mut rows[..bytes.len() / size * dim];
                for row in rows.chunks_exact_mut(dim) {
                    read(number, row)?;
                    number += 1;
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
                    let encoded = encode(first + number * part, bytes);
                    if let (Err(error), Ok(mut failed)) = (encoded, failed.lock()) {
                        *failed = Err(error);
                    }
                });
            }
        });
        failed.into_inner().unwrap_or(Ok(()))
    }
}
