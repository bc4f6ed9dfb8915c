//! Writes packed records. A record is sealed when the offset of the next one is known.

use super::places::Places;
use super::section::{GRAPH_NAME, OFFSETS_NAME};
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::csr::CsrLayout;
use crate::format::manifest::FileEntry;
use crate::format::offsets;
use crate::partition::space::Space;
use crate::proximity::adjacency::Adjacency;
use bathyal_store::Draft;
use bathyal_vectors::progress::Progress;

/// Bytes written at once.
const WRITE_BYTES: usize = 4 << 20;
/// Records between two checks for cancellation.
const CHECK_EVERY: usize = 1024;

/// The two files of a packed graph under construction.
pub(crate) struct Packer<'a> {
    directory: &'a dyn Draft,
    layout: CsrLayout,
    file: Appender,
    buffer: Vec<u8>,
    /// Offset in `buffer` of the last record, which is not sealed yet.
    last: usize,
    record: Vec<u8>,
    lengths: Vec<u32>,
}

impl<'a> Packer<'a> {
    /// Bytes of memory for each record until the files are finished: its length, and its encoded offset.
    pub(crate) const BYTES_PER_RECORD: u64 = 4 + 4;

    pub(crate) fn create(
        directory: &'a dyn Draft,
        layout: CsrLayout,
        count: usize,
    ) -> Result<Self, IndexError> {
        Ok(Packer {
            directory,
            layout,
            file: Appender::create(directory, GRAPH_NAME)?,
            buffer: Vec::with_capacity(WRITE_BYTES + layout.read_bytes()),
            last: 0,
            record: Vec::new(),
            lengths: Vec::with_capacity(count),
        })
    }

    /// Appends the record of vector `id`. Its place is the number of records before it. `links` are places,
    /// in rising order.
    pub(crate) fn push(&mut self, id: u32, vector: &[u8], links: &[u32]) -> Result<(), IndexError> {
        self.record.clear();
        self.layout.encode(id, vector, links, &mut self.record);
        let end = self.file.written().bytes + self.buffer.len() as u64;
        let shift = self.layout.shift(end, self.record.len());
        self.buffer.resize(self.buffer.len() + shift, 0);
        self.seal();
        if self.buffer.len() >= WRITE_BYTES {
            self.file.append(&self.buffer)?;
            self.buffer.clear();
        }
        self.last = self.buffer.len();
        self.buffer.extend_from_slice(&self.record);
        Ok(())
    }

    fn seal(&mut self) {
        let bytes = &mut self.buffer[self.last..];
        if !bytes.is_empty() {
            self.layout.seal(self.lengths.len() as u32, bytes);
            self.lengths.push(bytes.len() as u32);
        }
    }

    /// Writes the rest of the records and the offsets. Returns the entries of both files.
    pub(crate) fn finish(mut self) -> Result<(FileEntry, FileEntry), IndexError> {
        self.seal();
        self.file.append(&self.buffer)?;
        let mut file = Appender::create(self.directory, OFFSETS_NAME)?;
        file.append(&offsets::encode(&self.lengths))?;
        Ok((self.file.finish()?, file.finish()?))
    }
}

/// Writes the records of `graph` in the order of `places`.
pub(crate) fn write_packed(
    directory: &dyn Draft,
    layout: &CsrLayout,
    places: &Places,
    space: &Space,
    graph: &Adjacency,
    progress: &dyn Progress,
) -> Result<(FileEntry, FileEntry), IndexError> {
    progress.stage("writing graph", space.count() as u64);
    let mut packer = Packer::create(directory, *layout, space.count())?;
    let mut links = Vec::new();
    for (place, id) in places.ids.iter().enumerate() {
        if place % CHECK_EVERY == 0 {
            if progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
            progress.advance(place as u64);
        }
        links.clear();
        links.extend(graph.neighbors(*id).map(|neighbor| places.place_of(neighbor)));
        links.sort_unstable();
        links.dedup();
        packer.push(*id, space.row(*id), &links)?;
    }
    progress.advance(space.count() as u64);
    packer.finish()
}
