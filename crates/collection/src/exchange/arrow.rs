//! Reads files of Arrow IPC.

use super::kind::{catch_panics, file_error, io_error, open};
use crate::error::CollectionError;
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader, read_footer_length};
use arrow_ipc::{CompressionType, Message, root_as_footer, root_as_message};
use arrow_schema::{ArrowError, SchemaRef};
use std::io::{BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// The first bytes of a file; a stream has others.
const MAGIC: &[u8] = b"ARROW1";
/// Bytes at the end of a file: the length of the footer, and the magic.
const TRAILER_BYTES: usize = 10;
/// Marker before the length of a message; files of before 2020 lack it.
const CONTINUATION: [u8; 4] = [0xFF; 4];
/// The most bytes that one byte of LZ4 can stand for: each adds at most 255 to the length of a repetition.
const LZ4_RATIO: u64 = 255;
/// The most bytes that one byte of Zstandard can stand for: a block of four bytes holds 128 KiB of one value.
const ZSTD_RATIO: u64 = 32_768;

/// The batches of a file or of a stream.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// Returns the schema of the file at `path`, and its batches.
pub(super) fn read(path: &Path) -> Result<(SchemaRef, Batches), CollectionError> {
    let invalid = |error| file_error(path, format!("is not a readable file of Arrow IPC: {error}"));
    let failed = io_error(path, "read the file");
    let mut file = BufReader::new(open(path)?);
    let mut begin = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut begin).map_err(&failed)?;
    let is_stream = begin != MAGIC;
    let len = file.seek(SeekFrom::End(0)).map_err(&failed)?;
    let mut messages = Messages { file, end: len, left: u64::MAX };
    if is_stream { messages.check_stream() } else { messages.check_blocks() }.map_err(invalid)?;
    let mut file = messages.file;
    file.rewind().map_err(&failed)?;
    if is_stream {
        let reader = StreamReader::try_new(file, None).map_err(invalid)?;
        return Ok((reader.schema(), Box::new(reader)));
    }
    let reader = FileReader::try_new(file, None).map_err(invalid)?;
    Ok((reader.schema(), Box::new(reader)))
}

/// Returns the tables of a stream of Arrow IPC in memory; `source` names it in errors. Tables whose
/// compressed buffers would take more than `most_bytes` are refused.
pub(super) fn read_stream(
    bytes: &[u8],
    source: &Path,
    most_bytes: u64,
) -> Result<Vec<RecordBatch>, CollectionError> {
    let invalid = |error| file_error(source, format!("is not a readable stream of Arrow IPC: {error}"));
    let (file, end) = (Cursor::new(bytes), bytes.len() as u64);
    let mut messages = Messages { file, end, left: most_bytes };
    messages.check_stream().map_err(invalid)?;
    catch_panics(source, || {
        let reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(invalid)?;
        reader.collect::<Result<Vec<RecordBatch>, ArrowError>>().map_err(invalid)
    })
}

/// The messages of a file; each describes the batch that follows it. They are checked before the library
/// reads the file: it allocates as much memory as they announce, and too large an allocation aborts the
/// process.
struct Messages<F> {
    file: F,
    /// Upper bound of the end of the last batch.
    end: u64,
    /// Bytes that compressed buffers may still take.
    left: u64,
}

impl<F: Read + Seek> Messages<F> {
    /// Checks the batches that the footer lists.
    fn check_blocks(&mut self) -> Result<(), ArrowError> {
        let len = self.end;
        let out_of_file = |part: &str| invalid(format!("{part} is not within its {len} bytes"));
        let end = len.checked_sub(TRAILER_BYTES as u64).ok_or_else(|| out_of_file("its end"))?;
        self.file.seek(SeekFrom::Start(end))?;
        let mut trailer = [0; TRAILER_BYTES];
        self.file.read_exact(&mut trailer)?;
        let footer_bytes = read_footer_length(trailer)?;
        self.end = end.checked_sub(footer_bytes as u64).ok_or_else(|| out_of_file("its footer"))?;
        self.file.seek(SeekFrom::Start(self.end))?;
        let mut footer = vec![0; footer_bytes];
        self.file.read_exact(&mut footer)?;
        let footer = root_as_footer(&footer)
            .map_err(|error| invalid(format!("its footer cannot be read: {error}")))?;
        for block in footer.dictionaries().iter().flatten().chain(footer.recordBatches().iter().flatten()) {
            let parts = [block.offset(), block.metaDataLength().into(), block.bodyLength()];
            let ends = parts.map(|part| u64::try_from(part).ok());
            let [Some(begin), Some(message_bytes), Some(body)] = ends else {
                return Err(out_of_file("one of its batches"));
            };
            let body_begin = begin.checked_add(message_bytes);
            let body_end = body_begin.and_then(|begin| begin.checked_add(body));
            let (Some(body_begin), Some(body_end)) = (body_begin, body_end.filter(|&end| end <= self.end))
            else {
                return Err(out_of_file("one of its batches"));
            };
            self.file.seek(SeekFrom::Start(begin))?;
            let Some(message) = self.message()? else {
                return Err(invalid("one of its batches is empty".into()));
            };
            self.check_batch(&message, body_begin..body_end)?;
        }
        Ok(())
    }

    /// Checks the batches of a stream.
    fn check_stream(&mut self) -> Result<(), ArrowError> {
        self.file.rewind()?;
        while let Some(message) = self.message()? {
            let begin = self.file.stream_position()?;
            let body = u64::try_from(parse_message(&message)?.bodyLength()).ok();
            let end = body.and_then(|body| begin.checked_add(body)).filter(|&end| end <= self.end);
            let Some(end) = end else {
                return Err(invalid(format!("one of its batches is not within its {} bytes", self.end)));
            };
            self.check_batch(&message, begin..end)?;
            self.file.seek(SeekFrom::Start(end))?;
        }
        Ok(())
    }

    /// Reads the next message; `None` at the end of a stream.
    fn message(&mut self) -> Result<Option<Vec<u8>>, ArrowError> {
        let mut len = [0; 4];
        match self.file.read_exact(&mut len) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        if len == CONTINUATION {
            self.file.read_exact(&mut len)?;
        }
        let len = u32::from_le_bytes(len).into();
        let mut message = Vec::new();
        (&mut self.file).take(len).read_to_end(&mut message)?;
        if (message.len() as u64) < len {
            return Err(invalid(format!("one of its messages is not within its {} bytes", self.end)));
        }
        Ok(Some(message).filter(|message| !message.is_empty()))
    }

    /// Checks the compressed buffers of a batch, whose bytes are at `body`: their uncompressed lengths must
    /// be possible, and fit into memory.
    fn check_batch(&mut self, message: &[u8], body: Range<u64>) -> Result<(), ArrowError> {
        let message = parse_message(message)?;
        let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        let Some(batch) = message.header_as_record_batch().or(dictionary) else { return Ok(()) };
        let Some(compression) = batch.compression() else { return Ok(()) };
        let max_ratio =
            if compression.codec() == CompressionType::LZ4_FRAME { LZ4_RATIO } else { ZSTD_RATIO };
        let mut sum = 0_u64;
        for buffer in batch.buffers().iter().flatten() {
            let location = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
            let (Ok(offset), Ok(len)) = location else {
                return Err(invalid("one of its buffers has an invalid location".into()));
            };
            let begin = body.start.checked_add(offset);
            if begin.and_then(|begin| begin.checked_add(len)).is_none_or(|end| end > body.end) {
                return Err(invalid("one of its buffers is not within its batch".into()));
            }
            if len == 0 {
                continue;
            }
            self.file.seek(SeekFrom::Start(body.start + offset))?;
            let mut claimed = [0; 8];
            self.file.read_exact(&mut claimed)?;
            // A negative length means that the buffer is not compressed.
            let Ok(claimed) = u64::try_from(i64::from_le_bytes(claimed)) else { continue };
            if claimed / max_ratio > len {
                return Err(invalid(format!(
                    "{len} compressed bytes cannot be {claimed}, as one of its buffers says"
                )));
            }
            sum = sum.saturating_add(claimed);
        }
        self.left = self.left.checked_sub(sum).ok_or_else(|| {
            invalid(format!(
                "its compressed buffers take more than the memory that is left for them, {} bytes; send \
                 fewer rows at once",
                self.left
            ))
        })?;
        let fits_memory =
            usize::try_from(sum).is_ok_and(|sum| Vec::<u8>::new().try_reserve_exact(sum).is_ok());
        if !fits_memory {
            return Err(invalid(format!(
                "there is not enough memory for the {sum} bytes of one of its batches; write smaller batches"
            )));
        }
        Ok(())
    }
}

/// Parses a message.
fn parse_message(message: &[u8]) -> Result<Message<'_>, ArrowError> {
    root_as_message(message).map_err(|error| invalid(format!("one of its messages cannot be read: {error}")))
}

fn invalid(reason: String) -> ArrowError {
    ArrowError::ParseError(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
    use std::sync::Arc;

    #[test]
    fn a_batch_that_is_longer_than_the_file_is_refused() {
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

        // A block consists of an offset, the length of the message, and the length of the batch, which is 64
        // bytes.
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
    fn a_buffer_with_an_impossible_length_is_refused() {
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

                let length_at = bytes.windows(8).rposition(|eight| eight == 8000_u64.to_le_bytes()).unwrap();
                for claimed in [1_u64 << 32, 1 << 50, i64::MAX as u64] {
                    bytes[length_at..length_at + 8].copy_from_slice(&claimed.to_le_bytes());
                    std::fs::write(&path, &bytes).unwrap();
                    let error = read(&path).map(|_| ()).unwrap_err().to_string();
                    assert!(error.contains("compressed bytes cannot be"), "{codec:?}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_truncated_stream_is_refused_before_a_row_is_read() {
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
        // Without its end marker, a stream may end after any batch, and within the first four bytes of the
        // next.
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
