//! Writing the files of a graph index: pages, codec, codes.

use super::section::{CODEC_NAME, CODES_NAME, GRAPH_NAME};
use super::work::Work;
use crate::build::codes::CodeChoice;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::manifest::{CodesEntry, FileEntry};
use crate::format::pages::PageLayout;
use crate::partition::encoding::{Encoder, Encoding, ReadFloats};
use crate::query::codes::plain_metric;
use bathyal_kernels::quantize::Codec;

/// Bytes written at once.
const WRITE_BYTES: usize = 4 << 20;
/// Vectors that a codec is trained on: 256 a centroid of a byte's codebook.
const TRAINING_VECTORS: usize = 65_536;

/// Writes the pages of the graph. `record` gives the vectors and their links in the order of their ids, each once.
pub(crate) fn write_graph(
    work: &Work<'_>,
    layout: &PageLayout,
    mut record: impl FnMut(u32, &mut [u8], &mut Vec<u32>) -> Result<(), IndexError>,
) -> Result<FileEntry, IndexError> {
    let count = work.data.count();
    work.progress.stage("writing graph", count as u64);
    let mut file = Appender::create(work.directory, GRAPH_NAME)?;
    let per_read = layout.records_per_page().max(1);
    let reads_at_once = (WRITE_BYTES / layout.read_bytes()).max(1);
    let mut pages = vec![0_u8; reads_at_once * layout.read_bytes()];
    let (mut vector, mut neighbors) = (vec![0_u8; work.data.row_bytes()], Vec::new());
    let mut id = 0;
    while id < count {
        work.check_cancelled()?;
        pages.fill(0);
        let mut used = 0;
        for page in pages.chunks_mut(layout.read_bytes()) {
            if id >= count {
                break;
            }
            for id in id..count.min(id + per_read) {
                neighbors.clear();
                record(id as u32, &mut vector, &mut neighbors)?;
                layout.encode(page, id as u32, &vector, &neighbors);
            }
            id += per_read;
            used += layout.read_bytes();
        }
        file.append(&pages[..used])?;
        work.progress.advance(id.min(count) as u64);
    }
    file.finish()
}

/// Vectors that the codec of so many is trained on, where there is memory for these.
pub(crate) fn training_rows(count: usize) -> usize {
    count.min(TRAINING_VECTORS)
}

/// Bytes of a training sample: the codec takes it as it is and centred.
pub(crate) fn sample_bytes(rows: usize, dim: usize) -> u64 {
    2 * (rows * dim * 4) as u64
}

/// Trains the codec on `sample` and writes it with the codes of all vectors.
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
