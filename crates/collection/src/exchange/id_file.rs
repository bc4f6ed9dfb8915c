//! Files of ids for files of vectors: `.npy` of whole numbers, or text with an id on each line.

use super::kind::{file_error, io_error, open};
use crate::error::CollectionError;
use crate::ids::{Id, IdKind, Ids};
use bathyal_vectors::AtomicFile;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// The first bytes of a `.npy` file.
const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header that is read; NumPy has the same limit.
const MAX_HEADER: usize = 10_000;
/// Bytes of a written header. The length is fixed, so that the count can be filled in at the end.
const HEADER_BYTES: usize = 128;
/// The most ids for which memory is allocated before they are read.
const READ_AT_ONCE: usize = 1 << 16;
/// The longest line that is read; ids are shorter.
const MAX_LINE: u64 = 1 << 16;

/// Reads ids from a file in order.
pub(super) struct IdReader {
    path: PathBuf,
    kind: IdKind,
    input: BufReader<File>,
    format: IdFormat,
    /// Number of ids in the file.
    pub(super) count: u64,
    read: u64,
}

/// Format of the ids in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdFormat {
    Lines,
    /// Numbers of `bytes` bytes, signed or not.
    Numbers {
        bytes: usize,
        signed: bool,
    },
}

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npy"))
}

/// Reads all ids of a file: `.npy` of whole numbers, or text with an id on each line.
///
/// # Errors
/// [`CollectionError::File`] for values that are not ids of this kind; [`CollectionError::Vectors`] if the
/// file cannot be read.
pub fn read_ids(path: &Path, kind: IdKind) -> Result<Ids, CollectionError> {
    let mut reader = IdReader::open(path, kind)?;
    let count = usize::try_from(reader.count).map_err(|error| file_error(path, error))?;
    reader.next(count)
}

impl IdReader {
    pub(super) fn open(path: &Path, kind: IdKind) -> Result<IdReader, CollectionError> {
        let mut input = BufReader::new(open(path)?);
        let (format, count) = if is_npy(path) {
            if kind == IdKind::Text {
                return Err(file_error(
                    path,
                    "ids of the collection are strings: give a text file with an id on each line",
                ));
            }
            npy_header(&mut input, path)?
        } else {
            let count = count_lines(&mut input).map_err(io_error(path, "read the ids"))?;
            input = BufReader::new(open(path)?);
            (IdFormat::Lines, count)
        };
        Ok(IdReader { path: path.to_path_buf(), kind, input, format, count, read: 0 })
    }

    /// Returns the next `count` ids; fewer at the end.
    pub(super) fn next(&mut self, count: usize) -> Result<Ids, CollectionError> {
        let count = (count as u64).min(self.count - self.read) as usize;
        // The header may announce more ids than the file has.
        let mut ids = Vec::with_capacity(count.min(READ_AT_ONCE));
        for _ in 0..count {
            ids.push(match self.format {
                IdFormat::Lines => self.line()?,
                IdFormat::Numbers { bytes, signed } => self.number(bytes, signed)?,
            });
            self.read += 1;
        }
        Ids::from_ids(self.kind, &ids).map_err(|error| file_error(&self.path, error))
    }

    fn line(&mut self) -> Result<Id, CollectionError> {
        let mut line = Vec::new();
        let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut line);
        read.map_err(io_error(&self.path, "read the ids"))?;
        let invalid = |problem: &str| file_error(&self.path, format!("line {} {problem}", self.read + 1));
        let text = String::from_utf8(line).map_err(|_| invalid("is not UTF-8"))?;
        let text = text.trim_end_matches(['\n', '\r']);
        match self.kind {
            IdKind::Text => Ok(Id::Text(text.to_string())),
            IdKind::Number => {
                let number = text.trim().parse().map_err(|_| {
                    invalid(&format!("is {text:?}; ids of the collection are numbers from 0 to 2^64 - 1"))
                })?;
                Ok(Id::Number(number))
            }
        }
    }

    fn number(&mut self, bytes: usize, signed: bool) -> Result<Id, CollectionError> {
        let mut number = [0; 8];
        self.input.read_exact(&mut number[..bytes]).map_err(io_error(&self.path, "read the ids"))?;
        if signed && number[bytes - 1] & 0x80 != 0 {
            return Err(file_error(&self.path, format!("id {} is negative", self.read)));
        }
        Ok(Id::Number(u64::from_le_bytes(number)))
    }
}

fn count_lines(input: &mut impl BufRead) -> std::io::Result<u64> {
    let (mut lines, mut last) = (0, b'\n');
    loop {
        let buffer = input.fill_buf()?;
        let Some(end) = buffer.last() else { break };
        lines += buffer.iter().filter(|byte| **byte == b'\n').count() as u64;
        last = *end;
        let length = buffer.len();
        input.consume(length);
    }
    Ok(lines + u64::from(last != b'\n'))
}

/// Parses the header of a `.npy` file with one dimension. Returns the format and the number of ids.
fn npy_header(input: &mut impl Read, path: &Path) -> Result<(IdFormat, u64), CollectionError> {
    let expected =
        "expected an array of one dimension of <u8, <i8, <u4 or <i4: numpy.save(path, ids.astype('uint64'))";
    let invalid = |problem: &str| file_error(path, format!("{problem}; {expected}"));
    let mut head = [0; 10];
    input.read_exact(&mut head).map_err(|_| invalid("is too short for a .npy file"))?;
    if !head.starts_with(MAGIC) {
        return Err(invalid("is not a .npy file"));
    }
    let mut length = usize::from(u16::from_le_bytes([head[8], head[9]]));
    if head[6] != 1 {
        let mut more = [0; 2];
        input.read_exact(&mut more).map_err(|_| invalid("is too short for a .npy file"))?;
        length |= usize::from(u16::from_le_bytes(more)) << 16;
    }
    if length > MAX_HEADER {
        return Err(invalid("has a header that is too long"));
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text).map_err(|_| invalid("is too short for its header"))?;
    let text = String::from_utf8_lossy(&text).replace(' ', "").replace('"', "'");
    let value = |key: &str, end: &str| {
        let rest = text.split_once(&format!("'{key}':"))?.1;
        Some(rest.split_once(end)?.0.to_string())
    };
    let format = match value("descr", ",").as_deref() {
        Some("'<u8'") => IdFormat::Numbers { bytes: 8, signed: false },
        Some("'<i8'") => IdFormat::Numbers { bytes: 8, signed: true },
        Some("'<u4'") => IdFormat::Numbers { bytes: 4, signed: false },
        Some("'<i4'") => IdFormat::Numbers { bytes: 4, signed: true },
        other => return Err(invalid(&format!("has values of type {}", other.unwrap_or("unknown")))),
    };
    let shape =
        value("shape", ")").and_then(|shape| shape.trim_start_matches('(').strip_suffix(',')?.parse().ok());
    Ok((format, shape.ok_or_else(|| invalid("does not have exactly one dimension"))?))
}

/// Writes ids in the formats that [`IdReader`] reads.
pub(super) struct IdFileWriter {
    file: AtomicFile,
    path: PathBuf,
    npy: bool,
    count: u64,
}

impl IdFileWriter {
    pub(super) fn create(path: &Path, kind: IdKind) -> Result<IdFileWriter, CollectionError> {
        let npy = is_npy(path);
        if npy && kind == IdKind::Text {
            return Err(file_error(
                path,
                "ids of the collection are strings: name a text file, such as ids.txt",
            ));
        }
        let mut writer =
            IdFileWriter { file: AtomicFile::create(path)?, path: path.to_path_buf(), npy, count: 0 };
        let header = writer.header();
        writer.write(&header)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), CollectionError> {
        self.file.write_all(bytes).map_err(io_error(&self.path, "write the file"))
    }

    fn header(&self) -> Vec<u8> {
        if !self.npy {
            return Vec::new();
        }
        let mut header = [MAGIC, &[1, 0], &((HEADER_BYTES - 10) as u16).to_le_bytes()].concat();
        let text = format!("{{'descr': '<u8', 'fortran_order': False, 'shape': ({},), }}", self.count);
        header.extend_from_slice(text.as_bytes());
        header.resize(HEADER_BYTES - 1, b' ');
        header.push(b'\n');
        header
    }

    pub(super) fn push(&mut self, ids: &Ids) -> Result<(), CollectionError> {
        for at in 0..ids.len() {
            match ids.get(at) {
                Id::Number(number) if self.npy => self.write(&number.to_le_bytes())?,
                Id::Text(text) if text.contains(['\n', '\r']) => {
                    let reason = format!(
                        "the id {text:?} has a line break, which a file of lines cannot hold; export to \
                         Parquet"
                    );
                    return Err(file_error(&self.path, reason));
                }
                id => self.write(format!("{id}\n").as_bytes())?,
            }
        }
        self.count += ids.len() as u64;
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), CollectionError> {
        let header = self.header();
        self.file.finish(&header)?;
        Ok(())
    }
}
