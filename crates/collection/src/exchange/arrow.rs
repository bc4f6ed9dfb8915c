//! Files of Arrow IPC.

use super::kind::{bad, open, refused};
use crate::error::CollectionError;
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader, read_footer_length};
use arrow_ipc::root_as_footer;
use arrow_schema::{ArrowError, SchemaRef};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// What such a file begins with, and a stream does not.
const MAGIC: &[u8] = b"ARROW1";
/// Bytes at the end: how long the footer before them is, and the magic.
const TRAILER_BYTES: usize = 10;

/// The batches of a file or of a stream.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// The schema of the file at `path`, and its batches.
pub(super) fn read(path: &Path) -> Result<(SchemaRef, Batches), CollectionError> {
    let wrong = |error| bad(path, format!("is no file of Arrow IPC that can be read: {error}"));
    let failed = refused(path, "read the file");
    let mut file = BufReader::new(open(path)?);
    let mut begin = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut begin).map_err(&failed)?;
    if begin != MAGIC {
        file.rewind().map_err(&failed)?;
        let reader = StreamReader::try_new(file, None).map_err(wrong)?;
        return Ok((reader.schema(), Box::new(reader)));
    }
    check_blocks(&mut file).map_err(wrong)?;
    let reader = FileReader::try_new(file, None).map_err(wrong)?;
    Ok((reader.schema(), Box::new(reader)))
}

/// Checks that every batch is within the file: the reader asks for as much memory as the footer says.
fn check_blocks(file: &mut (impl Read + Seek)) -> Result<(), ArrowError> {
    let len = file.seek(SeekFrom::End(0))?;
    let outside = |what: &str| ArrowError::ParseError(format!("{what} is not within its {len} bytes"));
    let end = len.checked_sub(TRAILER_BYTES as u64).ok_or_else(|| outside("its end"))?;
    file.seek(SeekFrom::Start(end))?;
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact(&mut trailer)?;
    let footer_bytes = read_footer_length(trailer)?;
    let begin = end.checked_sub(footer_bytes as u64).ok_or_else(|| outside("its footer"))?;
    file.seek(SeekFrom::Start(begin))?;
    let mut footer = vec![0; footer_bytes];
    file.read_exact(&mut footer)?;
    let footer = root_as_footer(&footer)
        .map_err(|error| ArrowError::ParseError(format!("its footer cannot be read: {error}")))?;
    for block in footer.dictionaries().iter().flatten().chain(footer.recordBatches().iter().flatten()) {
        let parts = [block.offset(), block.metaDataLength().into(), block.bodyLength()];
        let block_end = parts.into_iter().try_fold(0_u64, |sum, part| sum.checked_add(part.try_into().ok()?));
        if block_end.is_none_or(|block_end| block_end > begin) {
            return Err(outside("one of its batches"));
        }
    }
    file.rewind()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};
    use arrow_ipc::writer::FileWriter;
    use std::sync::Arc;

    #[test]
    fn a_batch_that_would_be_longer_than_the_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.arrow");
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        drop(writer);
        std::fs::write(&path, &bytes).unwrap();
        let (schema, batches) = read(&path).unwrap();
        assert_eq!(schema, batch.schema());
        assert_eq!(batches.map(Result::unwrap).collect::<Vec<_>>(), [batch]);

        // A block is an offset, the length of what describes the batch, and that of the batch, which is 64 bytes.
        let body = bytes.windows(8).rposition(|eight| eight == 64_u64.to_le_bytes()).unwrap();
        for claimed in [1_u64 << 20, 1 << 62, u64::MAX] {
            bytes[body..body + 8].copy_from_slice(&claimed.to_le_bytes());
            std::fs::write(&path, &bytes).unwrap();
            let error = read(&path).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("one of its batches is not within its"), "{error}");
        }
        for len in 0..bytes.len() {
            std::fs::write(&path, &bytes[..len]).unwrap();
            assert!(read(&path).is_err(), "cut to {len}");
        }
    }
}
