//! Writes the pages of a graph.

use super::section::GRAPH_NAME;
use super::work::Work;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::manifest::FileEntry;
use crate::format::pages::PageLayout;

/// Bytes written at once.
const WRITE_BYTES: usize = 4 << 20;

/// Writes the pages of the graph. Calls `record` once for each id, in rising order, to fill in the vector and
/// its links.
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
