//! The byte format of a log. docs/format/collection.md specifies it.

use crate::catch_panic::catch_panic;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::rows::Rows;
use crate::schema::{ID_COLUMN, Schema};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Field, Schema as ArrowSchema, SchemaRef};
use bathyal_vectors::VectorFile;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Records begin at multiples of this. A device writes a sector completely or not at all, so a write that is
/// interrupted by a power failure cannot damage earlier records.
pub(super) const SECTOR_BYTES: usize = 512;
/// Vectors begin at multiples of this, for fast access.
const ALIGNED_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"bathrows";
const VERSION: u32 = 1;
/// Vectors of a field that take at least this many bytes are written from where they are, without a copy.
const MIN_SEPARATE_BYTES: u64 = 64 << 10;
/// Bytes of a record's header.
const HEADER_BYTES: usize = 64;
const PUT: u32 = 1;
const DELETE: u32 = 2;
const SEAL: u32 = 3;

/// A change that one record makes. It is applied completely or not at all.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// Adds these rows, and replaces those with the same ids.
    Put(Rows),
    /// Deletes the rows with these ids.
    Delete(Ids),
}

/// Changes encoded as bytes, to be appended to a log.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Space for the log's header, then the records without `separate` vectors. The headers lack offsets,
    /// sequence numbers and checksums.
    bytes: Vec<u8>,
    /// Vectors that are not in `bytes`, each with the offset in `bytes` at which they belong.
    separate: Vec<(usize, VectorFile)>,
    /// Total bytes of `separate`.
    separate_bytes: usize,
    /// The begin of each record: as an offset in `bytes`, and with the separate vectors counted.
    records: Vec<(usize, usize)>,
}

impl Batch {
    /// Creates an empty batch.
    pub(crate) fn new() -> Batch {
        Batch { bytes: vec![0; SECTOR_BYTES], separate: Vec::new(), separate_bytes: 0, records: Vec::new() }
    }

    /// Returns the number of changes.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the bytes of the records.
    pub(crate) fn bytes(&self) -> usize {
        self.all() - SECTOR_BYTES
    }

    /// Returns the bytes of the records and of the space for the log's header.
    fn all(&self) -> usize {
        self.bytes.len() + self.separate_bytes
    }

    /// Adds zeros up to a multiple of `to` bytes.
    fn align(&mut self, to: usize) {
        let zeros = self.all().next_multiple_of(to) - self.all();
        self.bytes.resize(self.bytes.len() + zeros, 0);
    }

    /// Returns all parts in order, from the offset `begin` of `bytes` on.
    fn parts(&self, begin: usize) -> Vec<&[u8]> {
        let (mut parts, mut at) = (Vec::new(), begin);
        for (end, vectors) in self.separate.iter().filter(|(end, _)| *end > begin) {
            parts.push(&self.bytes[at..*end]);
            parts.extend(vectors.rows(0..vectors.count()));
            at = *end;
        }
        parts.push(&self.bytes[at..]);
        parts
    }

    /// Adds a change.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for more rows than a record holds; [`CollectionError::Arrow`]. The
    /// batch is then unchanged.
    pub(crate) fn push(&mut self, change: &Change) -> Result<(), CollectionError> {
        let (begin, separate, separate_bytes) = (self.bytes.len(), self.separate.len(), self.separate_bytes);
        let pushed = self.try_push(change);
        if pushed.is_err() {
            self.bytes.truncate(begin);
            self.separate.truncate(separate);
            self.separate_bytes = separate_bytes;
        }
        pushed
    }

    fn try_push(&mut self, change: &Change) -> Result<(), CollectionError> {
        let (kind, rows) = match change {
            Change::Put(rows) => (PUT, rows.len()),
            Change::Delete(ids) => (DELETE, ids.len()),
        };
        let rows = u32::try_from(rows)
            .map_err(|_| CollectionError::Parameter(format!("{rows} rows are too many at once")))?;
        let begin = (self.bytes.len(), self.all());
        self.bytes.resize(begin.0 + HEADER_BYTES, 0);
        let columns = match change {
            Change::Put(rows) => write_columns(&with_ids(rows)?, &mut self.bytes)?,
            Change::Delete(ids) => write_columns(&ids_batch(ids)?, &mut self.bytes)?,
        };
        if let Change::Put(rows) = change {
            for vectors in rows.vectors() {
                self.align(ALIGNED_BYTES);
                match vectors.rows(0..vectors.count()) {
                    Some(_) if vectors.data_bytes() >= MIN_SEPARATE_BYTES => {
                        self.separate.push((self.bytes.len(), vectors.clone()));
                        self.separate_bytes += vectors.data_bytes() as usize;
                    }
                    Some(rows) => self.bytes.extend_from_slice(rows),
                    None => {
                        (0..vectors.count()).for_each(|row| self.bytes.extend_from_slice(vectors.row(row)))
                    }
                }
            }
        }
        self.finish(begin, kind, rows, columns);
        Ok(())
    }

    /// Creates a batch that consists of a seal.
    pub(super) fn seal() -> Batch {
        let mut batch = Batch::new();
        batch.bytes.resize(SECTOR_BYTES + HEADER_BYTES, 0);
        batch.finish((SECTOR_BYTES, SECTOR_BYTES), SEAL, 0, 0);
        batch
    }

    /// Fills the last sector of the record at `begin`, and those fields of its header that do not depend on
    /// the offset.
    fn finish(&mut self, begin: (usize, usize), kind: u32, rows: u32, columns: usize) {
        let payload = self.all() - begin.1 - HEADER_BYTES;
        self.align(SECTOR_BYTES);
        let parts = self.parts(begin.0 + HEADER_BYTES);
        let crc = parts.into_iter().fold(0, crc32c::crc32c_append);
        let header = RecordHeader {
            crc,
            kind,
            rows,
            payload: payload as u64,
            columns: columns as u64,
            ..RecordHeader::default()
        };
        header.write(&mut self.bytes[begin.0..]);
        self.records.push(begin);
    }

    /// Changes the payload of the only record, and corrects its checksum.
    #[cfg(test)]
    pub(super) fn forge(&mut self, change: impl FnOnce(&mut [u8])) {
        let header = RecordHeader::parse(&self.bytes[SECTOR_BYTES..]);
        change(&mut self.bytes[SECTOR_BYTES + HEADER_BYTES..]);
        let crc = crc32c::crc32c(&self.bytes[SECTOR_BYTES + HEADER_BYTES..]);
        RecordHeader { crc, ..header }.write(&mut self.bytes[SECTOR_BYTES..]);
    }

    /// Completes the headers for records that begin at byte `at` of a log and are numbered from `sequence`
    /// on. The first `durable_end` bytes of the log are on the disk. Returns the bytes to append, in parts;
    /// at the begin of a log these include its header.
    pub(super) fn encode_at(
        &mut self,
        log: &LogFormat,
        at: u64,
        sequence: u64,
        durable_end: u64,
    ) -> Vec<&[u8]> {
        let skipped = if at == 0 { 0 } else { SECTOR_BYTES };
        if at == 0 {
            self.bytes[..SECTOR_BYTES].copy_from_slice(&log.header());
        }
        for (record, (begin, offset)) in self.records.iter().enumerate() {
            let bytes = &mut self.bytes[*begin..][..HEADER_BYTES];
            let mut header = RecordHeader::parse(bytes);
            header.at = at + (offset - skipped) as u64;
            (header.sequence, header.durable_end) = (sequence + record as u64, durable_end);
            header.write(bytes);
            let crc = log.checksum(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
        self.parts(skipped)
    }
}

/// Returns ids and columns of rows as one batch.
fn with_ids(rows: &Rows) -> Result<RecordBatch, CollectionError> {
    let columns = rows.columns().schema();
    let id = Arc::new(Field::new(ID_COLUMN, rows.ids().kind().data_type(), false));
    let fields: Vec<_> = std::iter::once(id).chain(columns.fields().iter().cloned()).collect();
    let arrays: Vec<ArrayRef> =
        std::iter::once(rows.ids().to_array()).chain(rows.columns().columns().iter().cloned()).collect();
    Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays)?)
}

/// Returns ids as a batch.
fn ids_batch(ids: &Ids) -> Result<RecordBatch, CollectionError> {
    let id = Field::new(ID_COLUMN, ids.kind().data_type(), false);
    Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(vec![id])), vec![ids.to_array()])?)
}

/// Appends a batch as an Arrow stream. Returns the bytes of the stream.
fn write_columns(batch: &RecordBatch, to: &mut Vec<u8>) -> Result<usize, CollectionError> {
    let begin = to.len();
    let mut stream = StreamWriter::try_new(&mut *to, &batch.schema())?;
    stream.write(batch)?;
    stream.finish()?;
    drop(stream);
    Ok(to.len() - begin)
}

/// Header of a record.
#[derive(Debug, Clone, Copy, Default)]
struct RecordHeader {
    /// Checksum of everything that follows the header.
    crc: u32,
    kind: u32,
    rows: u32,
    payload: u64,
    at: u64,
    sequence: u64,
    /// The log was on the disk up to this offset when the record was appended.
    durable_end: u64,
    columns: u64,
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl RecordHeader {
    fn parse(bytes: &[u8]) -> RecordHeader {
        let [crc, kind, rows] = [4, 8, 12].map(|at| number(bytes, at, 4) as u32);
        let [payload, at, sequence, durable_end, columns] =
            [16, 24, 32, 40, 48].map(|at| number(bytes, at, 8));
        RecordHeader { crc, kind, rows, payload, at, sequence, durable_end, columns }
    }

    fn write(&self, to: &mut [u8]) {
        for (at, number) in [(4, self.crc), (8, self.kind), (12, self.rows)] {
            to[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let wide = [self.payload, self.at, self.sequence, self.durable_end, self.columns];
        for (at, number) in (16..).step_by(8).zip(wide) {
            to[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Returns the bytes of the whole record; `None` if they exceed the address space.
    fn record_bytes(&self) -> Option<usize> {
        usize::try_from(self.payload).ok()?.checked_add(HEADER_BYTES)?.checked_next_multiple_of(SECTOR_BYTES)
    }
}

/// A record that was written completely.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompleteRecord {
    /// Its sequence number.
    pub(super) sequence: u64,
    kind: u32,
    /// Its length in bytes.
    pub(super) bytes: usize,
}

impl CompleteRecord {
    /// Returns true if the record is a seal.
    pub(super) fn is_seal(&self) -> bool {
        self.kind == SEAL
    }
}

/// Position up to which a log was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogEnd {
    /// Offset of the next record.
    pub(super) at: u64,
    /// Sequence number of the next record.
    pub(super) next: u64,
    /// True if the log ends here.
    pub(super) sealed: bool,
}

/// Reads and writes one log of a collection.
#[derive(Debug, Clone)]
pub(super) struct LogFormat {
    /// Checksum of the collection's id and the log's first sequence number. Every checksum continues from it.
    seed: u32,
    first: u64,
}

impl LogFormat {
    /// Creates the format of the log whose first record is `first`, in the collection `id`.
    pub(super) fn new(id: &str, first: u64) -> LogFormat {
        LogFormat { seed: crc32c::crc32c_append(crc32c::crc32c(id.as_bytes()), &first.to_le_bytes()), first }
    }

    /// Returns the position of a log without bytes.
    pub(super) fn empty_end(&self) -> LogEnd {
        LogEnd { at: 0, next: self.first, sealed: false }
    }

    fn checksum(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.seed, bytes)
    }

    fn header(&self) -> [u8; SECTOR_BYTES] {
        let mut header = [0; SECTOR_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&self.first.to_le_bytes());
        let crc = self.checksum(&header[..12]);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Continues reading at `end`; `bytes` are all bytes of the log from there on. Calls `each` for each
    /// record numbered above `through`. Bytes behind the last complete record belong to an unfinished append.
    /// Vectors of rows refer to `bytes`.
    ///
    /// # Errors
    /// Errors of `each`; [`CollectionError::Damaged`]; [`CollectionError::LaterVersion`].
    pub(super) fn read(
        &self,
        path: &Path,
        schema: &Schema,
        mut end: LogEnd,
        bytes: &Arc<Vec<u8>>,
        through: u64,
        each: &mut dyn FnMut(u64, Change) -> Result<(), CollectionError>,
    ) -> Result<LogEnd, CollectionError> {
        let mut i = 0;
        if end.at == 0 {
            if !self.check_header(path, bytes)? {
                return Ok(end);
            }
            (i, end.at) = (SECTOR_BYTES, SECTOR_BYTES as u64);
        }
        let damaged = |at: u64, reason: String| CollectionError::damaged(path, format!("byte {at}"), reason);
        while !end.sealed && i < bytes.len() {
            let Some(header) = self.header_of(&bytes[i..]) else {
                self.check_torn(path, end.at, bytes, i, SECTOR_BYTES)?;
                break;
            };
            if header.at != end.at {
                return Err(damaged(end.at, format!("the record belongs at byte {}", header.at)));
            }
            let record_bytes = header.record_bytes().filter(|record_bytes| *record_bytes <= bytes.len() - i);
            let Some(record_bytes) = record_bytes else { break };
            let payload = i + HEADER_BYTES..i + record_bytes;
            if crc32c::crc32c(&bytes[payload.clone()]) != header.crc {
                self.check_torn(path, end.at, bytes, i, record_bytes)?;
                break;
            }
            if header.sequence != end.next {
                let reason = format!("record {} follows record {}", header.sequence, end.next - 1);
                return Err(damaged(end.at, reason));
            }
            let payload = payload.start..payload.start + header.payload as usize;
            match header.kind {
                SEAL => end.sealed = true,
                _ if header.sequence <= through => {}
                _ => {
                    let change = decode(schema, &header, bytes, payload).map_err(|e| damaged(end.at, e))?;
                    each(header.sequence, change)?;
                }
            }
            (i, end.at, end.next) =
                (i + record_bytes, end.at + record_bytes as u64, end.next.saturating_add(1));
        }
        Ok(end)
    }

    /// Corrects the checksums of everything that looks like a record at its offset.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn fix_checksums(&self, bytes: &mut [u8]) {
        if bytes.len() >= SECTOR_BYTES {
            let crc = self.checksum(&bytes[..12]);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        for at in (SECTOR_BYTES..bytes.len()).step_by(SECTOR_BYTES) {
            let record = &mut bytes[at..];
            if record.len() < HEADER_BYTES || RecordHeader::parse(record).at != at as u64 {
                continue;
            }
            if let Some(payload) = RecordHeader::parse(record)
                .record_bytes()
                .and_then(|record_bytes| record.get(HEADER_BYTES..record_bytes))
            {
                let crc = crc32c::crc32c(payload);
                record[4..8].copy_from_slice(&crc.to_le_bytes());
            }
            let crc = self.checksum(&record[4..HEADER_BYTES]);
            record[..4].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Returns the offset of the first record.
    pub(super) fn first_record(&self) -> usize {
        SECTOR_BYTES
    }

    /// Returns the record at byte `at`, if it is complete and was written for this offset. `bytes` is the
    /// whole log.
    pub(super) fn complete_record(&self, bytes: &[u8], at: usize) -> Option<CompleteRecord> {
        let header = self.header_of(bytes.get(at..)?).filter(|header| header.at == at as u64)?;
        let record_bytes = header.record_bytes().filter(|record_bytes| *record_bytes <= bytes.len() - at)?;
        let valid = crc32c::crc32c(&bytes[at + HEADER_BYTES..at + record_bytes]) == header.crc;
        valid.then_some(CompleteRecord { sequence: header.sequence, kind: header.kind, bytes: record_bytes })
    }

    /// Decodes the change of the complete record at byte `at`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn change(&self, schema: &Schema, bytes: &Arc<Vec<u8>>, at: usize) -> Result<Change, String> {
        let header = bytes.get(at..).and_then(|bytes| self.header_of(bytes)).ok_or("there is no record")?;
        let begin = at + HEADER_BYTES;
        let end = usize::try_from(header.payload).ok().and_then(|payload| begin.checked_add(payload));
        let end = end.filter(|end| *end <= bytes.len()).ok_or("the record is longer than the log")?;
        decode(schema, &header, bytes, begin..end)
    }

    /// Returns the offsets behind byte `at` at which records may begin.
    pub(super) fn sectors_behind(&self, bytes: &[u8], at: usize) -> impl Iterator<Item = usize> + use<> {
        (at + SECTOR_BYTES..bytes.len()).step_by(SECTOR_BYTES)
    }

    /// Returns the largest sequence number of a record behind byte `at`, if a record there proves that byte
    /// `at` was durable.
    pub(super) fn durable_behind(&self, bytes: &[u8], at: usize) -> Option<u64> {
        let header =
            |sector: usize| self.header_of(&bytes[sector..]).filter(|header| header.at == sector as u64);
        // Sectors within a record are skipped. A record that is longer than the log is the last.
        let from = header(at).map_or(Some(SECTOR_BYTES), |header| header.record_bytes())?;
        let behind = self.sectors_behind(bytes, at).skip_while(|sector| *sector < at.saturating_add(from));
        let heads: Vec<RecordHeader> = behind.filter_map(header).collect();
        let proven = heads.iter().any(|header| header.durable_end > at as u64);
        heads.iter().map(|header| header.sequence).max().filter(|_| proven)
    }

    /// Returns true if `bytes`, which follow the seal of a log, mark that the next log was begun.
    pub(super) fn next_log_marked(&self, end: LogEnd, bytes: &[u8]) -> bool {
        let header = self.header_of(bytes).filter(|header| header.kind == SEAL && header.at == end.at);
        let header = header.filter(|header| end.sealed && header.sequence.checked_add(1) == Some(end.next));
        let payload = |header: &RecordHeader| bytes.get(HEADER_BYTES..header.record_bytes()?);
        header.is_some_and(|header| {
            payload(&header).is_some_and(|payload| crc32c::crc32c(payload) == header.crc)
        })
    }

    /// Checks the header of the log. Returns false if the log has not begun: if its first append was not
    /// finished, the header may be missing or incomplete.
    pub(super) fn check_header(&self, path: &Path, bytes: &[u8]) -> Result<bool, CollectionError> {
        let expected = self.header();
        let found = &bytes[..bytes.len().min(SECTOR_BYTES)];
        if found == expected {
            return Ok(true);
        }
        let signed = found.len() >= 16 && number(found, 12, 4) as u32 == self.checksum(&found[..12]);
        if signed && found.starts_with(MAGIC) && number(found, 8, 4) as u32 > VERSION {
            let (path, found) = (path.to_path_buf(), number(found, 8, 4) as u32);
            return Err(CollectionError::LaterVersion { path, found, known: VERSION });
        }
        if found.iter().zip(expected).any(|(byte, expected)| *byte != expected && *byte != 0) {
            let reason = "its header is wrong: the file belongs to another log, or is damaged";
            return Err(CollectionError::damaged(path, "byte 0", reason));
        }
        // The power failed after the record was written, but before the header was. The record is valid
        // without it.
        if bytes.get(SECTOR_BYTES..).is_some_and(|records| self.header_of(records).is_some()) {
            return Ok(true);
        }
        self.check_torn(path, 0, bytes, 0, SECTOR_BYTES)?;
        Ok(false)
    }

    /// Reads the header of a record; `None` if its checksum is wrong.
    fn header_of(&self, bytes: &[u8]) -> Option<RecordHeader> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let valid = number(bytes, 0, 4) as u32 == self.checksum(&bytes[4..]);
        valid.then(|| RecordHeader::parse(bytes))
    }

    /// Checks an incomplete record at byte `at` of the log, which is `bytes[i]`. It is damage if a record
    /// that follows it by at least `from` bytes proves that it was on the disk.
    fn check_torn(
        &self,
        path: &Path,
        at: u64,
        bytes: &[u8],
        i: usize,
        from: usize,
    ) -> Result<(), CollectionError> {
        for sector in (i + from..bytes.len()).step_by(SECTOR_BYTES) {
            if self.header_of(&bytes[sector..]).is_some_and(|header| header.durable_end > at) {
                let next = at + (sector - i) as u64;
                let reason = format!("the record is damaged; a later record follows at byte {next}");
                return Err(CollectionError::damaged(path, format!("byte {at}"), reason));
            }
        }
        Ok(())
    }
}

/// A range of a log that vectors share.
struct LogSlice {
    log: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl AsRef<[u8]> for LogSlice {
    fn as_ref(&self) -> &[u8] {
        self.log.get(self.range.clone()).unwrap_or_default()
    }
}

/// Decodes the change of a record.
///
/// # Errors
/// A sentence that says what is wrong.
fn decode(
    schema: &Schema,
    header: &RecordHeader,
    log: &Arc<Vec<u8>>,
    payload: Range<usize>,
) -> Result<Change, String> {
    let columns = usize::try_from(header.columns).ok().filter(|columns| *columns <= payload.len());
    let columns = columns.ok_or("its columns are longer than the record")?;
    let stream = &log[payload.start..payload.start + columns];
    match header.kind {
        PUT => {
            let batch = read_columns(stream, &schema.with_ids(), header.rows)?;
            let ids = Ids::from_array(schema.id_kind, batch.column(0)).map_err(|e| e.to_string())?;
            let rest: Vec<usize> = (1..batch.num_columns()).collect();
            let columns_of_rows = batch.project(&rest).map_err(|e| e.to_string())?;
            let vectors = vectors(schema, header.rows, log, payload, columns)?;
            Rows::new(schema, ids, vectors, Some(&columns_of_rows))
                .map(Change::Put)
                .map_err(|e| e.to_string())
        }
        DELETE if columns == payload.len() => {
            let id = Field::new(ID_COLUMN, schema.id_kind.data_type(), false);
            let batch = read_columns(stream, &Arc::new(ArrowSchema::new(vec![id])), header.rows)?;
            Ids::from_array(schema.id_kind, batch.column(0)).map(Change::Delete).map_err(|e| e.to_string())
        }
        DELETE => Err("bytes follow its ids".into()),
        kind => Err(format!("its kind {kind} is unknown")),
    }
}

/// Decodes the only batch of an Arrow stream and checks its schema and its number of rows.
fn read_columns(stream: &[u8], schema: &SchemaRef, rows: u32) -> Result<RecordBatch, String> {
    // The checksum is correct, but the library panics on some invalid streams.
    let decoded = catch_panic(|| decode_columns(stream.to_vec()));
    let batch = decoded.ok_or("its columns are not a valid Arrow stream")??;
    if batch.schema_ref().fields() != schema.fields() {
        return Err("its columns differ from the schema of the collection".into());
    }
    if batch.num_rows() != rows as usize {
        return Err(format!("it has {} rows instead of {rows}", batch.num_rows()));
    }
    Ok(batch)
}

fn decode_columns(stream: Vec<u8>) -> Result<RecordBatch, String> {
    let wrong = |error: ArrowError| format!("its columns cannot be read: {error}");
    // Unlike a stream reader, this decoder does not allocate memory by lengths in the stream.
    let (mut decoder, mut stream) = (StreamDecoder::new(), Buffer::from(stream));
    let batch = decoder.decode(&mut stream).map_err(wrong)?.ok_or("it has no columns")?;
    if decoder.decode(&mut stream).map_err(wrong)?.is_some() {
        return Err("it has more than one batch of columns".into());
    }
    decoder.finish().map_err(wrong)?;
    Ok(batch)
}

/// Decodes the vectors of each field; they follow the first `columns` bytes of the payload.
fn vectors(
    schema: &Schema,
    rows: u32,
    log: &Arc<Vec<u8>>,
    payload: Range<usize>,
    columns: usize,
) -> Result<Vec<VectorFile>, String> {
    let short = || "its numbers of vectors and rows differ".to_string();
    let (mut at, mut all) = (columns, Vec::with_capacity(schema.vectors.len()));
    for field in &schema.vectors {
        let begin = at.checked_next_multiple_of(ALIGNED_BYTES).ok_or_else(short)?;
        let bytes = field.row_bytes().checked_mul(rows as usize).ok_or_else(short)?;
        at = begin.checked_add(bytes).filter(|end| *end <= payload.len()).ok_or_else(short)?;
        let slice = LogSlice { log: log.clone(), range: payload.start + begin..payload.start + at };
        let vectors = VectorFile::from_lent_as(&field.name, field.element, field.dim, Arc::new(slice));
        all.push(vectors.map_err(|error| error.to_string())?);
    }
    if at == payload.len() { Ok(all) } else { Err(short()) }
}
