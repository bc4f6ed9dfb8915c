//! Codes of vectors as they are, without the centre of a group: one per vector or centroid, in order.

use super::encoding::{Encoder, Encoding, ReadFloats};
use crate::build::codes::CodeChoice;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::manifest::{CODEC_NAME, CODES_NAME, CodesEntry};
use crate::query::codes::plain_metric;
use bathyal_kernels::quantize::Codec;

/// Most vectors that a codec is trained on: 256 for each centroid of a codebook of 256.
const TRAINING_VECTORS: usize = 65_536;

/// Returns the number of vectors that a codec is trained on, if all `count` vectors are in memory.
pub(crate) fn training_rows(count: usize) -> usize {
    count.min(TRAINING_VECTORS)
}

/// Returns the bytes of a training sample of `rows` vectors: the given one, and the centred copy of the
/// codec.
pub(crate) fn sample_bytes(rows: usize, dim: usize) -> u64 {
    2 * (rows * dim * 4) as u64
}

/// Trains the codec on `sample` (rows of f32), and writes it and the codes of all vectors.
pub(crate) fn write_codes<L: Sync, O: Sync, F: ReadFloats, M: Fn(usize) -> F + Sync>(
    encoding: &Encoding<'_, '_, L, O, M>,
    choice: CodeChoice,
    sample: Vec<f32>,
) -> Result<CodesEntry, IndexError> {
    let (work, dim) = (encoding.work, encoding.dim);
    let (directory, options) = (work.directory, work.options);
    let bytes = choice.bytes(dim) as usize;
    let kind = choice.kind.unwrap_or_else(|| Codec::default_for(dim, bytes));
    let metric = plain_metric(options.metric);
    let codec = Codec::train(kind, bytes, metric, &sample, dim, options.seed, work.threads)?;
    drop(sample);
    let mut file = Appender::create(directory, CODES_NAME)?;
    encoding.encode(&codec, |codes| file.append(codes))?;
    let mut codec_file = Appender::create(directory, CODEC_NAME)?;
    codec_file.append(&codec.to_bytes())?;
    let (kind, code_bytes) = (codec.kind().to_string(), Encoder::code_bytes(&codec) as u32);
    Ok(CodesEntry { file: file.finish()?, codec: codec_file.finish()?, kind, code_bytes })
}
