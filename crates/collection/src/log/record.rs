//! The bytes of a log. docs/format/collection.md specifies them.

use crate::caught::caught;
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

/// Records begin at multiples of these: a device writes a sector whole or not, so no write that power interrupts damages a record
/// that was there before.
pub(super) const SECTOR_BYTES: usize = 512;
/// Vectors begin at multiples of these, where the processor reads them best.
const ALIGNED_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"bathrows";
const VERSION: u32 = 1;
/// Vectors of a field that take as many bytes are written from where they are, without a copy.
const APART_BYTES: u64 = 64 << 10;
/// Bytes of a record before what was changed.
const HEAD_BYTES: usize = 64;
const PUT: u32 = 1;
const DELETE: u32 = 2;
const SEAL: u32 = 3;

/// What is done to a collection by one record: wholly, or not at all.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// These rows are there from now on, in the place of those with the same ids.
    Put(Rows),
    /// The rows with these ids are there no more.
    Delete(Ids),
}

/// Changes as bytes, on their way to a log.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Room for the log's head, then the records, but for what is `apart`. Of their heads the places, numbers and checksums are missing.
    bytes: Vec<u8>,
    /// Vectors that belong behind so many of `bytes`.
    apart: Vec<(usize, VectorFile)>,
    /// What they come to.
    apart_bytes: usize,
    /// Where each record begins: among `bytes`, and among all.
    records: Vec<(usize, usize)>,
}

impl Batch {
    /// Without any.
    pub(crate) fn new() -> Batch {
        Batch { bytes: vec![0; SECTOR_BYTES], apart: Vec::new(), apart_bytes: 0, records: Vec::new() }
    }

    /// How many changes there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Bytes of the records.
    pub(crate) fn bytes(&self) -> usize {
        self.all() - SECTOR_BYTES
    }

    /// Bytes of the records, and of the room for the log's head.
    fn all(&self) -> usize {
        self.bytes.len() + self.apart_bytes
    }

    /// Adds zeros, so that what comes next begins at a multiple of so many bytes.
    fn align(&mut self, to: usize) {
        let zeros = self.all().next_multiple_of(to) - self.all();
        self.bytes.resize(self.bytes.len() + zeros, 0);
    }

    /// All of them, from the byte `begin` of `bytes` on.
    fn parts(&self, begin: usize) -> Vec<&[u8]> {
        let (mut parts, mut at) = (Vec::new(), begin);
        for (end, vectors) in self.apart.iter().filter(|(end, _)| *end > begin) {
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
    /// [`CollectionError::Parameter`] for more rows than a record holds; [`CollectionError::Arrow`]. The batch is what it was then.
    pub(crate) fn push(&mut self, change: &Change) -> Result<(), CollectionError> {
        let (begin, apart, apart_bytes) = (self.bytes.len(), self.apart.len(), self.apart_bytes);
        let pushed = self.try_push(change);
        if pushed.is_err() {
            self.bytes.truncate(begin);
            self.apart.truncate(apart);
            self.apart_bytes = apart_bytes;
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
        self.bytes.resize(begin.0 + HEAD_BYTES, 0);
        let columns = match change {
            Change::Put(rows) => write_columns(&with_ids(rows)?, &mut self.bytes)?,
            Change::Delete(ids) => write_columns(&alone(ids)?, &mut self.bytes)?,
        };
        if let Change::Put(rows) = change {
            for vectors in rows.vectors() {
                self.align(ALIGNED_BYTES);
                match vectors.rows(0..vectors.count()) {
                    Some(_) if vectors.data_bytes() >= APART_BYTES => {
                        self.apart.push((self.bytes.len(), vectors.clone()));
                        self.apart_bytes += vectors.data_bytes() as usize;
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

    /// A batch of a seal alone.
    pub(super) fn seal() -> Batch {
        let mut batch = Batch::new();
        batch.bytes.resize(SECTOR_BYTES + HEAD_BYTES, 0);
        batch.finish((SECTOR_BYTES, SECTOR_BYTES), SEAL, 0, 0);
        batch
    }

    /// Fills the last sector of the record at `begin`, and of its head what is known before it has a place.
    fn finish(&mut self, begin: (usize, usize), kind: u32, rows: u32, columns: usize) {
        let payload = self.all() - begin.1 - HEAD_BYTES;
        self.align(SECTOR_BYTES);
        let parts = self.parts(begin.0 + HEAD_BYTES);
        let crc = parts.into_iter().fold(0, crc32c::crc32c_append);
        let head =
            Head { crc, kind, rows, payload: payload as u64, columns: columns as u64, ..Head::default() };
        head.write(&mut self.bytes[begin.0..]);
        self.records.push(begin);
    }

    /// Changes what the only record holds, and makes its checksum that of the result.
    #[cfg(test)]
    pub(super) fn forge(&mut self, change: impl FnOnce(&mut [u8])) {
        let head = Head::parse(&self.bytes[SECTOR_BYTES..]);
        change(&mut self.bytes[SECTOR_BYTES + HEAD_BYTES..]);
        let crc = crc32c::crc32c(&self.bytes[SECTOR_BYTES + HEAD_BYTES..]);
        Head { crc, ..head }.write(&mut self.bytes[SECTOR_BYTES..]);
    }

    /// Makes them records that begin at byte `at` of a log, with numbers from `sequence` on. All before byte `settled` of the log is
    /// on the disk by then. Returns the bytes that are to be appended, in parts: with a head, if the log begins with them.
    pub(super) fn place(&mut self, log: &LogFormat, at: u64, sequence: u64, settled: u64) -> Vec<&[u8]> {
        let skipped = if at == 0 { 0 } else { SECTOR_BYTES };
        if at == 0 {
            self.bytes[..SECTOR_BYTES].copy_from_slice(&log.head());
        }
        for (record, (begin, of_all)) in self.records.iter().enumerate() {
            let bytes = &mut self.bytes[*begin..][..HEAD_BYTES];
            let mut head = Head::parse(bytes);
            head.at = at + (of_all - skipped) as u64;
            (head.sequence, head.settled) = (sequence + record as u64, settled);
            head.write(bytes);
            let crc = log.checksum(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
        self.parts(skipped)
    }
}

/// Ids and columns of rows, as one.
fn with_ids(rows: &Rows) -> Result<RecordBatch, CollectionError> {
    let columns = rows.columns().schema();
    let id = Arc::new(Field::new(ID_COLUMN, rows.ids().kind().data_type(), false));
    let fields: Vec<_> = std::iter::once(id).chain(columns.fields().iter().cloned()).collect();
    let arrays: Vec<ArrayRef> =
        std::iter::once(rows.ids().to_array()).chain(rows.columns().columns().iter().cloned()).collect();
    Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays)?)
}

/// Ids alone.
fn alone(ids: &Ids) -> Result<RecordBatch, CollectionError> {
    let id = Field::new(ID_COLUMN, ids.kind().data_type(), false);
    Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(vec![id])), vec![ids.to_array()])?)
}

/// Appends a batch as a stream of Arrow, and returns how long that is.
fn write_columns(batch: &RecordBatch, to: &mut Vec<u8>) -> Result<usize, CollectionError> {
    let begin = to.len();
    let mut stream = StreamWriter::try_new(&mut *to, &batch.schema())?;
    stream.write(batch)?;
    stream.finish()?;
    drop(stream);
    Ok(to.len() - begin)
}

/// What a record says of itself.
#[derive(Debug, Clone, Copy, Default)]
struct Head {
    /// Of all that follows the head.
    crc: u32,
    kind: u32,
    rows: u32,
    payload: u64,
    at: u64,
    sequence: u64,
    settled: u64,
    columns: u64,
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl Head {
    fn parse(bytes: &[u8]) -> Head {
        let [crc, kind, rows] = [4, 8, 12].map(|at| number(bytes, at, 4) as u32);
        let [payload, at, sequence, settled, columns] = [16, 24, 32, 40, 48].map(|at| number(bytes, at, 8));
        Head { crc, kind, rows, payload, at, sequence, settled, columns }
    }

    fn write(&self, to: &mut [u8]) {
        for (at, number) in [(4, self.crc), (8, self.kind), (12, self.rows)] {
            to[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let wide = [self.payload, self.at, self.sequence, self.settled, self.columns];
        for (at, number) in (16..).step_by(8).zip(wide) {
            to[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Bytes of the record; `None` of one that is longer than memory.
    fn whole(&self) -> Option<usize> {
        usize::try_from(self.payload).ok()?.checked_add(HEAD_BYTES)?.checked_next_multiple_of(SECTOR_BYTES)
    }
}

/// A record that is whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    /// Its number.
    pub(super) sequence: u64,
    kind: u32,
    /// Bytes that it takes.
    pub(super) bytes: usize,
}

impl Whole {
    /// Whether it ends its log.
    pub(super) fn is_seal(&self) -> bool {
        self.kind == SEAL
    }
}

/// Where a log was read to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// The byte at which the next record begins.
    pub(super) at: u64,
    /// Its number.
    pub(super) next: u64,
    /// Whether there will be none.
    pub(super) sealed: bool,
}

/// Reads and writes one log of one collection.
#[derive(Debug, Clone)]
pub(super) struct LogFormat {
    /// Of the collection's id and the log's first record: every checksum goes on from this.
    seed: u32,
    first: u64,
}

impl LogFormat {
    /// The log of the collection `id` whose first record has the number `first`.
    pub(super) fn new(id: &str, first: u64) -> LogFormat {
        LogFormat { seed: crc32c::crc32c_append(crc32c::crc32c(id.as_bytes()), &first.to_le_bytes()), first }
    }

    /// Where a log ends that has not begun.
    pub(super) fn begin(&self) -> End {
        End { at: 0, next: self.first, sealed: false }
    }

    fn checksum(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.seed, bytes)
    }

    fn head(&self) -> [u8; SECTOR_BYTES] {
        let mut head = [0; SECTOR_BYTES];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[16..24].copy_from_slice(&self.first.to_le_bytes());
        let crc = self.checksum(&head[..12]);
        head[12..16].copy_from_slice(&crc.to_le_bytes());
        head
    }

    /// Reads on from where the log was read to, of which `bytes` are all that follows, and tells `each` the records with numbers beyond
    /// `through`. What lies beyond the end was never finished. The vectors of rows stay where they are in `bytes`.
    ///
    /// # Errors
    /// Those of `each`; [`CollectionError::Damaged`]; [`CollectionError::LaterVersion`].
    pub(super) fn read(
        &self,
        path: &Path,
        schema: &Schema,
        mut end: End,
        bytes: &Arc<Vec<u8>>,
        through: u64,
        each: &mut dyn FnMut(u64, Change) -> Result<(), CollectionError>,
    ) -> Result<End, CollectionError> {
        let mut i = 0;
        if end.at == 0 {
            if !self.check_head(path, bytes)? {
                return Ok(end);
            }
            (i, end.at) = (SECTOR_BYTES, SECTOR_BYTES as u64);
        }
        let damaged = |at: u64, reason: String| CollectionError::damaged(path, format!("byte {at}"), reason);
        while !end.sealed && i < bytes.len() {
            let Some(head) = self.head_of(&bytes[i..]) else {
                self.check_torn(path, end.at, bytes, i, SECTOR_BYTES)?;
                break;
            };
            if head.at != end.at {
                return Err(damaged(end.at, format!("the record is that of byte {}", head.at)));
            }
            let whole = head.whole().filter(|whole| *whole <= bytes.len() - i);
            let Some(whole) = whole else { break };
            let payload = i + HEAD_BYTES..i + whole;
            if crc32c::crc32c(&bytes[payload.clone()]) != head.crc {
                self.check_torn(path, end.at, bytes, i, whole)?;
                break;
            }
            if head.sequence != end.next {
                let reason = format!("record {} follows record {}", head.sequence, end.next - 1);
                return Err(damaged(end.at, reason));
            }
            let payload = payload.start..payload.start + head.payload as usize;
            match head.kind {
                SEAL => end.sealed = true,
                _ if head.sequence <= through => {}
                _ => {
                    let change = decode(schema, &head, bytes, payload).map_err(|e| damaged(end.at, e))?;
                    each(head.sequence, change)?;
                }
            }
            (i, end.at, end.next) = (i + whole, end.at + whole as u64, end.next.saturating_add(1));
        }
        Ok(end)
    }

    /// Makes the checksums right of all that claims to be a record where it lies.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn make_right(&self, bytes: &mut [u8]) {
        if bytes.len() >= SECTOR_BYTES {
            let crc = self.checksum(&bytes[..12]);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        for at in (SECTOR_BYTES..bytes.len()).step_by(SECTOR_BYTES) {
            let record = &mut bytes[at..];
            if record.len() < HEAD_BYTES || Head::parse(record).at != at as u64 {
                continue;
            }
            if let Some(payload) = Head::parse(record).whole().and_then(|whole| record.get(HEAD_BYTES..whole))
            {
                let crc = crc32c::crc32c(payload);
                record[4..8].copy_from_slice(&crc.to_le_bytes());
            }
            let crc = self.checksum(&record[4..HEAD_BYTES]);
            record[..4].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Where the first record begins.
    pub(super) fn first_record(&self) -> usize {
        SECTOR_BYTES
    }

    /// The record that begins at byte `at` of a log whose bytes are all here, if it is whole and belongs there.
    pub(super) fn whole(&self, bytes: &[u8], at: usize) -> Option<Whole> {
        let head = self.head_of(bytes.get(at..)?).filter(|head| head.at == at as u64)?;
        let whole = head.whole().filter(|whole| *whole <= bytes.len() - at)?;
        let sound = crc32c::crc32c(&bytes[at + HEAD_BYTES..at + whole]) == head.crc;
        sound.then_some(Whole { sequence: head.sequence, kind: head.kind, bytes: whole })
    }

    /// What the whole record at byte `at` changes.
    ///
    /// # Errors
    /// A sentence where it makes no sense.
    pub(super) fn change(&self, schema: &Schema, bytes: &Arc<Vec<u8>>, at: usize) -> Result<Change, String> {
        let head = bytes.get(at..).and_then(|bytes| self.head_of(bytes)).ok_or("there is no record")?;
        let begin = at + HEAD_BYTES;
        let end = usize::try_from(head.payload).ok().and_then(|payload| begin.checked_add(payload));
        let end = end.filter(|end| *end <= bytes.len()).ok_or("it is longer than the log")?;
        decode(schema, &head, bytes, begin..end)
    }

    /// Where records behind byte `at` may begin.
    pub(super) fn sectors_behind(&self, bytes: &[u8], at: usize) -> impl Iterator<Item = usize> + use<> {
        (at + SECTOR_BYTES..bytes.len()).step_by(SECTOR_BYTES)
    }

    /// The largest number of a record behind byte `at`, if one of these says that all up to beyond `at` was on the disk.
    pub(super) fn settled_behind(&self, bytes: &[u8], at: usize) -> Option<u64> {
        let head = |sector: usize| self.head_of(&bytes[sector..]).filter(|head| head.at == sector as u64);
        // What is within a record is none, and one that is longer than the log is the last.
        let from = head(at).map_or(Some(SECTOR_BYTES), |head| head.whole())?;
        let behind = self.sectors_behind(bytes, at).skip_while(|sector| *sector < at.saturating_add(from));
        let heads: Vec<Head> = behind.filter_map(head).collect();
        let settled = heads.iter().any(|head| head.settled > at as u64);
        heads.iter().map(|head| head.sequence).max().filter(|_| settled)
    }

    /// Whether `bytes`, which follow the seal at which a log ends, say that the next log was begun.
    pub(super) fn names_next(&self, end: End, bytes: &[u8]) -> bool {
        let head = self.head_of(bytes).filter(|head| head.kind == SEAL && head.at == end.at);
        let head = head.filter(|head| end.sealed && head.sequence.checked_add(1) == Some(end.next));
        let payload = |head: &Head| bytes.get(HEAD_BYTES..head.whole()?);
        head.is_some_and(|head| payload(&head).is_some_and(|payload| crc32c::crc32c(payload) == head.crc))
    }

    /// Whether a log has begun. One whose first records were not finished may have no head, or a part of it.
    pub(super) fn check_head(&self, path: &Path, bytes: &[u8]) -> Result<bool, CollectionError> {
        let meant = self.head();
        let begun = &bytes[..bytes.len().min(SECTOR_BYTES)];
        if begun == meant {
            return Ok(true);
        }
        let signed = begun.len() >= 16 && number(begun, 12, 4) as u32 == self.checksum(&begun[..12]);
        if signed && begun.starts_with(MAGIC) && number(begun, 8, 4) as u32 > VERSION {
            let (path, found) = (path.to_path_buf(), number(begun, 8, 4) as u32);
            return Err(CollectionError::LaterVersion { path, found, known: VERSION });
        }
        if begun.iter().zip(meant).any(|(found, meant)| *found != meant && *found != 0) {
            let reason = "its head is not that of this log: it belongs to another one, or is damaged";
            return Err(CollectionError::damaged(path, "byte 0", reason));
        }
        // The power failed between the two; what the record says is as good without it.
        if bytes.get(SECTOR_BYTES..).is_some_and(|records| self.head_of(records).is_some()) {
            return Ok(true);
        }
        self.check_torn(path, 0, bytes, 0, SECTOR_BYTES)?;
        Ok(false)
    }

    /// The head of the record that begins with `bytes`; `None` if there is none.
    fn head_of(&self, bytes: &[u8]) -> Option<Head> {
        let bytes = bytes.get(..HEAD_BYTES)?;
        let sound = number(bytes, 0, 4) as u32 == self.checksum(&bytes[4..]);
        sound.then(|| Head::parse(bytes))
    }

    /// Refuses a log that ends at byte `at`, which is `bytes[i]`, where a record was whole on the disk: one `from` bytes or more
    /// behind it says so.
    fn check_torn(
        &self,
        path: &Path,
        at: u64,
        bytes: &[u8],
        i: usize,
        from: usize,
    ) -> Result<(), CollectionError> {
        for sector in (i + from..bytes.len()).step_by(SECTOR_BYTES) {
            if self.head_of(&bytes[sector..]).is_some_and(|head| head.settled > at) {
                let next = at + (sector - i) as u64;
                let reason = format!("it is not what was written, and there is a record at byte {next}");
                return Err(CollectionError::damaged(path, format!("byte {at}"), reason));
            }
        }
        Ok(())
    }
}

/// A part of a log, lent to vectors.
struct Lent {
    log: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.log.get(self.range.clone()).unwrap_or_default()
    }
}

/// What a record says is changed, or a sentence about what is wrong with it.
fn decode(schema: &Schema, head: &Head, log: &Arc<Vec<u8>>, payload: Range<usize>) -> Result<Change, String> {
    let columns = usize::try_from(head.columns).ok().filter(|columns| *columns <= payload.len());
    let columns = columns.ok_or("its columns are longer than the record")?;
    let stream = &log[payload.start..payload.start + columns];
    match head.kind {
        PUT => {
            let batch = read_columns(stream, &schema.with_ids(), head.rows)?;
            let ids = Ids::of_array(schema.id_kind, batch.column(0)).map_err(|e| e.to_string())?;
            let rest: Vec<usize> = (1..batch.num_columns()).collect();
            let columns_of_rows = batch.project(&rest).map_err(|e| e.to_string())?;
            let vectors = vectors(schema, head.rows, log, payload, columns)?;
            Rows::new(schema, ids, vectors, Some(&columns_of_rows))
                .map(Change::Put)
                .map_err(|e| e.to_string())
        }
        DELETE if columns == payload.len() => {
            let id = Field::new(ID_COLUMN, schema.id_kind.data_type(), false);
            let batch = read_columns(stream, &Arc::new(ArrowSchema::new(vec![id])), head.rows)?;
            Ids::of_array(schema.id_kind, batch.column(0)).map(Change::Delete).map_err(|e| e.to_string())
        }
        DELETE => Err("something follows its ids".into()),
        kind => Err(format!("it is of the unknown kind {kind}")),
    }
}

/// The only batch of a stream of Arrow, if it has this schema and so many rows.
fn read_columns(stream: &[u8], schema: &SchemaRef, rows: u32) -> Result<RecordBatch, String> {
    // The checksum was right, so whoever wrote this meant it; but the library panics for some of what it could be.
    let decoded = caught(|| decode_columns(stream.to_vec()));
    let batch = decoded.ok_or("its columns are no stream of Arrow")??;
    if batch.schema_ref().fields() != schema.fields() {
        return Err("its columns are not those of the collection".into());
    }
    if batch.num_rows() != rows as usize {
        return Err(format!("it has {} rows, not {rows}", batch.num_rows()));
    }
    Ok(batch)
}

fn decode_columns(stream: Vec<u8>) -> Result<RecordBatch, String> {
    let wrong = |error: ArrowError| format!("its columns cannot be read: {error}");
    // Unlike a reader, it asks for no memory on account of what the stream says.
    let (mut decoder, mut stream) = (StreamDecoder::new(), Buffer::from(stream));
    let batch = decoder.decode(&mut stream).map_err(wrong)?.ok_or("it has no columns")?;
    if decoder.decode(&mut stream).map_err(wrong)?.is_some() {
        return Err("it has columns twice".into());
    }
    decoder.finish().map_err(wrong)?;
    Ok(batch)
}

/// The vectors of each field, which follow the first `columns` bytes of the payload.
fn vectors(
    schema: &Schema,
    rows: u32,
    log: &Arc<Vec<u8>>,
    payload: Range<usize>,
    columns: usize,
) -> Result<Vec<VectorFile>, String> {
    let short = || "it has another number of vectors than of rows".to_string();
    let (mut at, mut all) = (columns, Vec::with_capacity(schema.vectors.len()));
    for field in &schema.vectors {
        let begin = at.checked_next_multiple_of(ALIGNED_BYTES).ok_or_else(short)?;
        let bytes = field.row_bytes().checked_mul(rows as usize).ok_or_else(short)?;
        at = begin.checked_add(bytes).filter(|end| *end <= payload.len()).ok_or_else(short)?;
        let lent = Lent { log: log.clone(), range: payload.start + begin..payload.start + at };
        let vectors = VectorFile::from_lent_as(&field.name, field.element, field.dim, Arc::new(lent));
        all.push(vectors.map_err(|error| error.to_string())?);
    }
    if at == payload.len() { Ok(all) } else { Err(short()) }
}
