//! Files of Arrow IPC.

use super::kind::{bad, open, refused};
use crate::error::CollectionError;
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader, read_footer_length};
use arrow_ipc::{CompressionType, Message, root_as_footer, root_as_message};
use arrow_schema::{ArrowError, SchemaRef};
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// What such a file begins with, and a stream does not.
const MAGIC: &[u8] = b"ARROW1";
/// Bytes at the end: how long the footer before them is, and the magic.
const TRAILER_BYTES: usize = 10;
/// What comes before the length of a message, but in files of before 2020.
const CONTINUES: [u8; 4] = [0xFF; 4];
/// Bytes that one byte of LZ4 can stand for at most: each adds at most 255 to the length of a repetition.
const LZ4_RATIO: u64 = 255;
/// Bytes that one byte of Zstandard can stand for at most: 128 KiB of one value are a block of four bytes.
const ZSTD_RATIO: u64 = 32_768;

/// The batches of a file or of a stream.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// The schema of the file at `path`, and its batches.
pub(super) fn read(path: &Path) -> Result<(SchemaRef, Batches), CollectionError> {
    let wrong = |error| bad(path, format!("is no file of Arrow IPC that can be read: {error}"));
    let failed = refused(path, "read the file");
    let mut file = BufReader::new(open(path)?);
    let mut begin = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut begin).map_err(&failed)?;
    let is_stream = begin != MAGIC;
    let len = file.seek(SeekFrom::End(0)).map_err(&failed)?;
    let mut messages = Messages { file, end: len };
    if is_stream { messages.check_stream() } else { messages.check_blocks() }.map_err(wrong)?;
    let mut file = messages.file;
    file.rewind().map_err(&failed)?;
    if is_stream {
        let reader = StreamReader::try_new(file, None).map_err(wrong)?;
        return Ok((reader.schema(), Box::new(reader)));
    }
    let reader = FileReader::try_new(file, None).map_err(wrong)?;
    Ok((reader.schema(), Box::new(reader)))
}

/// The messages of a file, each of which describes a batch that follows it. They are looked at before the library reads
/// them, because it asks for as much memory as they say, and a process that asks for too much is stopped.
struct Messages<F> {
    file: F,
    /// Where the last batch ends at the latest.
    end: u64,
}

impl<F: Read + Seek> Messages<F> {
    /// Checks the batches that the footer names.
    fn check_blocks(&mut self) -> Result<(), ArrowError> {
        let len = self.end;
        let outside = |what: &str| wrong(format!("{what} is not within its {len} bytes"));
        let end = len.checked_sub(TRAILER_BYTES as u64).ok_or_else(|| outside("its end"))?;
        self.file.seek(SeekFrom::Start(end))?;
        let mut trailer = [0; TRAILER_BYTES];
        self.file.read_exact(&mut trailer)?;
        let footer_bytes = read_footer_length(trailer)?;
        self.end = end.checked_sub(footer_bytes as u64).ok_or_else(|| outside("its footer"))?;
        self.file.seek(SeekFrom::Start(self.end))?;
        let mut footer = vec![0; footer_bytes];
        self.file.read_exact(&mut footer)?;
        let footer =
            root_as_footer(&footer).map_err(|error| wrong(format!("its footer cannot be read: {error}")))?;
        for block in footer.dictionaries().iter().flatten().chain(footer.recordBatches().iter().flatten()) {
            let parts = [block.offset(), block.metaDataLength().into(), block.bodyLength()];
            let ends = parts.map(|part| u64::try_from(part).ok());
            let [Some(begin), Some(described), Some(body)] = ends else {
                return Err(outside("one of its batches"));
            };
            let body_begin = begin.checked_add(described);
            let body_end = body_begin.and_then(|begin| begin.checked_add(body));
            let (Some(body_begin), Some(body_end)) = (body_begin, body_end.filter(|&end| end <= self.end))
            else {
                return Err(outside("one of its batches"));
            };
            self.file.seek(SeekFrom::Start(begin))?;
            let Some(message) = self.message()? else {
                return Err(wrong("one of its batches is empty".into()));
            };
            self.check_batch(&message, body_begin..body_end)?;
        }
        Ok(())
    }

    /// Checks the batches of a stream, from the first on.
    fn check_stream(&mut self) -> Result<(), ArrowError> {
        self.file.rewind()?;
        while let Some(message) = self.message()? {
            let begin = self.file.stream_position()?;
            let body = u64::try_from(decoded(&message)?.bodyLength()).ok();
            let end = body.and_then(|body| begin.checked_add(body)).filter(|&end| end <= self.end);
            let Some(end) = end else {
                return Err(wrong(format!("one of its batches is not within its {} bytes", self.end)));
            };
            self.check_batch(&message, begin..end)?;
            self.file.seek(SeekFrom::Start(end))?;
        }
        Ok(())
    }

    /// The bytes that describe the next batch; none at the end of a stream.
    fn message(&mut self) -> Result<Option<Vec<u8>>, ArrowError> {
        let mut len = [0; 4];
        match self.file.read_exact(&mut len) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        if len == CONTINUES {
            self.file.read_exact(&mut len)?;
        }
        let len = u32::from_le_bytes(len).into();
        let mut message = Vec::new();
        (&mut self.file).take(len).read_to_end(&mut message)?;
        if (message.len() as u64) < len {
            return Err(wrong(format!("one of its messages is not within its {} bytes", self.end)));
        }
        Ok(Some(message).filter(|message| !message.is_empty()))
    }

    /// Checks that the compressed buffers of a batch, whose bytes are at `body`, say nothing of their lengths that is
    /// not possible, and that there is memory for them.
    fn check_batch(&mut self, message: &[u8], body: Range<u64>) -> Result<(), ArrowError> {
        let message = decoded(message)?;
        let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        let Some(batch) = message.header_as_record_batch().or(dictionary) else { return Ok(()) };
        let Some(compression) = batch.compression() else { return Ok(()) };
        let most = if compression.codec() == CompressionType::LZ4_FRAME { LZ4_RATIO } else { ZSTD_RATIO };
        let mut sum = 0_u64;
        for buffer in batch.buffers().iter().flatten() {
            let place = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
            let (Ok(offset), Ok(len)) = place else {
                return Err(wrong("one of its buffers is at no place".into()));
            };
            let begin = body.start.checked_add(offset);
            if begin.and_then(|begin| begin.checked_add(len)).is_none_or(|end| end > body.end) {
                return Err(wrong("one of its buffers is not within its batch".into()));
            }
            if len == 0 {
                continue;
            }
            self.file.seek(SeekFrom::Start(body.start + offset))?;
            let mut claimed = [0; 8];
            self.file.read_exact(&mut claimed)?;
            // Negative: it is not compressed.
            let Ok(claimed) = u64::try_from(i64::from_le_bytes(claimed)) else { continue };
            if claimed / most > len {
                return Err(wrong(format!(
                    "{len} compressed bytes cannot be {claimed}, as one of its buffers says"
                )));
            }
            sum = sum.saturating_add(claimed);
        }
        let there = usize::try_from(sum).is_ok_and(|sum| Vec::<u8>::new().try_reserve_exact(sum).is_ok());
        if !there {
            return Err(wrong(format!(
                "there is no memory for the {sum} bytes of one of its batches; write smaller ones"
            )));
        }
        Ok(())
    }
}

/// What the bytes of a message say.
fn decoded(message: &[u8]) -> Result<Message<'_>, ArrowError> {
    root_as_message(message).map_err(|error| wrong(format!("one of its messages cannot be read: {error}")))
}

fn wrong(reason: String) -> ArrowError {
    ArrowError::ParseError(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
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

    #[test]
    fn a_buffer_that_would_be_longer_than_its_bytes_can_say_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.arrow");
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 1000]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
            let (mut file, mut stream) = (Vec::new(), Vec::new());
            let schema = batch.schema();
            let mut writer = FileWriter::try_new_with_options(&mut file, &schema, options.clone()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            drop(writer);
            let mut writer = StreamWriter::try_new_with_options(&mut stream, &schema, options).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            drop(writer);
            for mut bytes in [file, stream] {
                std::fs::write(&path, &bytes).unwrap();
                let (_, batches) = read(&path).unwrap();
                assert_eq!(batches.map(Result::unwrap).collect::<Vec<_>>(), std::slice::from_ref(&batch));

                let said = bytes.windows(8).rposition(|eight| eight == 8000_u64.to_le_bytes()).unwrap();
                for claimed in [1_u64 << 32, 1 << 50, i64::MAX as u64] {
                    bytes[said..said + 8].copy_from_slice(&claimed.to_le_bytes());
                    std::fs::write(&path, &bytes).unwrap();
                    let error = read(&path).map(|_| ()).unwrap_err().to_string();
                    assert!(error.contains("compressed bytes cannot be"), "{codec:?}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_stream_that_was_cut_says_so_before_a_row_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.arrows");
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
        let mut ends = vec![writer.get_ref().len()];
        for _ in 0..2 {
            writer.write(&batch).unwrap();
            ends.push(writer.get_ref().len());
        }
        writer.finish().unwrap();
        drop(writer);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&path).unwrap().1.map(Result::unwrap).collect::<Vec<_>>(), vec![batch; 2]);
        // Without its last mark a stream may end behind any batch, and within the four bytes of the next.
        for len in 4..ends[2] {
            std::fs::write(&path, &bytes[..len]).unwrap();
            let found = read(&path).map(|(_, batches)| batches.map(Result::unwrap).count());
            match ends.iter().rposition(|&end| (end..end + 4).contains(&len)) {
                Some(batches) => assert_eq!(found.unwrap(), batches, "cut to {len}"),
                None => assert!(found.is_err(), "cut to {len}"),
            }
        }
    }
}
