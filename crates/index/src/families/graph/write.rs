//! Writing the files of a graph index: pages, codec, codes.

use super::adjacency::Adjacency;
use super::section::{CODEC_NAME, CODES_NAME, GRAPH_NAME};
use crate::build::codes::CodeChoice;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::manifest::{CodesEntry, FileEntry};
use crate::format::pages::PageLayout;
use crate::partition::space::Space;
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::{Codec, EncodeScratch};
use bathyal_store::Draft;
use bathyal_vectors::progress::Progress;

/// Bytes written at once.
const WRITE_BYTES: usize = 4 << 20;
/// Vectors that a codec is trained on: 256 a centroid of a byte's codebook.
const TRAINING_VECTORS: usize = 65_536;
/// Vectors encoded at once by one thread.
const ENCODE_ROWS: usize = 1024;

/// Writes the pages of the graph.
pub(crate) fn write_graph(
    directory: &dyn Draft,
    layout: &PageLayout,
    space: &Space,
    graph: &Adjacency,
    progress: &dyn Progress,
) -> Result<FileEntry, IndexError> {
    progress.stage("writing graph", space.count() as u64);
    let mut file = Appender::create(directory, GRAPH_NAME)?;
    let per_read = layout.records_per_page().max(1);
    let reads_at_once = (WRITE_BYTES / layout.read_bytes()).max(1);
    let mut pages = vec![0_u8; reads_at_once * layout.read_bytes()];
    let mut neighbors = Vec::new();
    let mut id = 0;
    while id < space.count() {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        pages.fill(0);
        let mut used = 0;
        for page in pages.chunks_mut(layout.read_bytes()) {
            if id >= space.count() {
                break;
            }
            for id in id..space.count().min(id + per_read) {
                neighbors.clear();
                neighbors.extend(graph.neighbors(id as u32));
                layout.encode(page, id as u32, space.row(id as u32), &neighbors);
            }
            id += per_read;
            used += layout.read_bytes();
        }
        file.append(&pages[..used])?;
        progress.advance(id.min(space.count()) as u64);
    }
    file.finish()
}

/// How codes are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coding {
    pub(crate) codes: CodeChoice,
    pub(crate) metric: Metric,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
}

/// Bytes of the training sample.
pub(crate) fn sample_bytes(count: usize, dim: usize) -> u64 {
    2 * (count.min(TRAINING_VECTORS) * dim * 4) as u64
}

/// Trains the codec and writes it with the codes of all vectors, in the order of their ids or of `order`.
pub(crate) fn write_codes(
    directory: &dyn Draft,
    space: &Space,
    order: Option<&[u32]>,
    coding: Coding,
    progress: &dyn Progress,
) -> Result<CodesEntry, IndexError> {
    progress.stage("training codes", 1);
    let threads = coding.threads;
    let codec = train(space, coding)?;
    if progress.cancelled() {
        return Err(IndexError::Cancelled);
    }
    progress.stage("encoding", space.count() as u64);
    let code_bytes = codec.code_bytes();
    let mut file = Appender::create(directory, CODES_NAME)?;
    let rows_at_once = (WRITE_BYTES / code_bytes).max(ENCODE_ROWS).min(space.count());
    let mut codes = vec![0_u8; rows_at_once * code_bytes];
    for first in (0..space.count()).step_by(rows_at_once) {
        let rows = rows_at_once.min(space.count() - first);
        let codes = &mut codes[..rows * code_bytes];
        encode(space, order, &codec, first, codes, threads, progress);
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        file.append(codes)?;
        progress.advance((first + rows) as u64);
    }
    let file = file.finish()?;
    let mut codec_file = Appender::create(directory, CODEC_NAME)?;
    codec_file.append(&codec.to_bytes())?;
    let kind = codec.kind().to_string();
    Ok(CodesEntry { file, codec: codec_file.finish()?, kind, code_bytes: code_bytes as u32 })
}

fn train(space: &Space, coding: Coding) -> Result<Codec, IndexError> {
    let dim = space.dim();
    let bytes = coding.codes.bytes(dim) as usize;
    let rows = space.count().min(TRAINING_VECTORS);
    let mut sample = vec![0.0_f32; rows * dim];
    for (i, row) in sample.chunks_mut(dim).enumerate() {
        // Evenly spread over the file, in which neighbours often resemble each other.
        let id = (i as u64 * space.count() as u64 / rows as u64) as u32;
        space.row_f32(id, row);
    }
    let kind = coding.codes.kind.unwrap_or_else(|| Codec::default_for(dim, bytes));
    Ok(Codec::train(kind, bytes, code_metric(coding.metric), &sample, dim, coding.seed, coding.threads)?)
}

/// The metric that codes estimate: normalised vectors are ordered alike by cosine and L2.
fn code_metric(metric: Metric) -> Metric {
    match metric {
        Metric::Cosine | Metric::L2 => Metric::L2,
        Metric::InnerProduct => Metric::InnerProduct,
    }
}

/// Encodes the rows from `first` on into `codes`, split over threads.
fn encode(
    space: &Space,
    order: Option<&[u32]>,
    codec: &Codec,
    first: usize,
    codes: &mut [u8],
    threads: usize,
    progress: &dyn Progress,
) {
    let (dim, code_bytes) = (space.dim(), codec.code_bytes());
    let rows = codes.len() / code_bytes;
    let rows_a_thread = rows.div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for (part, chunk) in codes.chunks_mut(rows_a_thread * code_bytes).enumerate() {
            scope.spawn(move || {
                let mut scratch = EncodeScratch::default();
                let mut vectors = vec![0.0_f32; ENCODE_ROWS * dim];
                for (block, codes) in chunk.chunks_mut(ENCODE_ROWS * code_bytes).enumerate() {
                    if progress.cancelled() {
                        return;
                    }
                    let rows = codes.len() / code_bytes;
                    let start = first + part * rows_a_thread + block * ENCODE_ROWS;
                    for (i, row) in vectors.chunks_mut(dim).take(rows).enumerate() {
                        let id = order.map_or((start + i) as u32, |order| order[start + i]);
                        space.row_f32(id, row);
                    }
                    codec.encode(&vectors[..rows * dim], codes, &mut scratch);
                }
            });
        }
    });
}
