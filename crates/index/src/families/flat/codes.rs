//! Makes the codes of all vectors, in the order of the data.

use super::build::Work;
use super::section::{CODEC_NAME, CODES_NAME, FlatCodes};
use crate::build::codes::CodeChoice;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::manifest::CodesEntry;
use crate::partition::encoding::{CODES_BYTES, Encoding, FloatRows};
use crate::partition::{encoding, intake::Intake};

/// Returns the peak memory in bytes of making the codes, including the blocks that they are packed into.
pub(super) fn planned_bytes(count: usize, dim: usize, choice: CodeChoice, threads: u64) -> u64 {
    encoding::planned_bytes(count, dim, choice, threads) + CODES_BYTES as u64
}

/// Trains the codec on a sample, and writes it and the codes of all vectors.
pub(super) fn write(work: &Work<'_>, intake: &Intake) -> Result<Option<FlatCodes>, IndexError> {
    let Some(choice) = work.own.codes() else { return Ok(None) };
    let (data, dim) = (work.data, intake.dim);
    let reader = |ahead| {
        let mut rows = FloatRows::new(data, intake, ahead);
        move |id, out: &mut [f32]| rows.read(id, out)
    };
    let encoding = Encoding { work, count: data.count(), dim, row_bytes: data.given_row_bytes(), reader };
    let (codes, sample) = encoding.train(choice.of_groups(dim))?;
    let squares: f64 = sample.iter().map(|value| f64::from(*value).powi(2)).sum();
    let radius = (squares * dim as f64 / sample.len() as f64).sqrt() as f32;
    drop(sample);
    let mut codec = Appender::create(work.directory, CODEC_NAME)?;
    codec.append(&codes.to_bytes())?;
    let (mut file, mut blocks) = (Appender::create(work.directory, CODES_NAME)?, Vec::new());
    encoding.encode(&codes, |bytes| {
        blocks.clear();
        codes.append_blocks(bytes, &mut blocks);
        file.append(&blocks)
    })?;
    let (kind, code_bytes) = (codes.codec.kind().to_string(), codes.code_bytes() as u32);
    let codes = CodesEntry { file: file.finish()?, codec: codec.finish()?, kind, code_bytes };
    Ok(Some(FlatCodes { codes, radius }))
}
