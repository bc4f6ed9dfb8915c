//! Making and writing lists of codes: the codec, the codes of all vectors in the order of their leaves, the file of postings.

use super::members::Memberships;
use super::place::Leaves;
use super::section::{LIST_CODEC_NAME, ListCodesEntry};
use super::work::Work;
use super::write::{Blocks, CHECK_EVERY, Files, write_table};
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::postings::{ListEntry, Postings};
use crate::partition::intake::Intake;
use crate::partition::{CHECK_BYTES, READ_BYTES, sample_rows};
use crate::query::codes::VectorCodes;
use bathyal_kernels::quantize::{EncodeScratch, SCAN_BLOCK};
use bathyal_store::Object;
use bathyal_vectors::{RowReader, VectorError};
use std::sync::{Arc, Mutex};

/// While building: the codes by slot, one after the other.
const CODES_NAME: &str = "codes.tmp";
/// Bytes of codes that are made before they are written.
const CODES_BYTES: usize = 4 << 20;
/// Vectors that a thread encodes at once: whole blocks.
const ENCODE_ROWS: usize = 8 * SCAN_BLOCK;

/// The codes of all vectors, while the index is built.
pub(crate) struct CodedVectors {
    pub(crate) codes: VectorCodes,
    pub(crate) entry: ListCodesEntry,
    file: Arc<dyn Object>,
}

/// Bytes of memory of a build at the peak of making codes.
pub(crate) fn planned_bytes(count: usize, dim: usize, threads: u64) -> u64 {
    // The codec takes its sample as it is and centred, and covariances of the dimensions.
    let sample = (sample_rows(count, dim) * dim * 4) as u64;
    let training = 2 * sample + 2 * (dim.min(1024) as u64).pow(2) * 8;
    let encoding = 2 * CODES_BYTES as u64 + threads * (ENCODE_ROWS as u64 + 64) * 4 * dim as u64;
    // The codec itself is a matrix at most.
    training.max(encoding) + 8 * (dim * dim.min(1024)) as u64
}

/// Trains a codec and encodes all vectors, where lists are to hold codes.
pub(crate) fn encode(
    work: &Work<'_>,
    intake: &Intake,
    leaves: &Leaves,
) -> Result<Option<CodedVectors>, IndexError> {
    if work.own.code_kind.is_none() {
        return Ok(None);
    }
    let codes = train(work, intake, leaves)?;
    let mut codec = Appender::create(work.directory, LIST_CODEC_NAME)?;
    codec.append(&codes.to_bytes())?;
    let (kind, code_bytes) = (codes.codec.kind().to_string(), codes.code_bytes());
    let entry = ListCodesEntry { codec: codec.finish()?, kind, code_bytes: code_bytes as u32 };
    let vectors = leaves.rows.count();
    work.progress.stage("encoding", vectors as u64);
    let mut file = Appender::create(work.directory, CODES_NAME)?;
    let at_once = (CODES_BYTES / code_bytes).min(CHECK_BYTES / leaves.rows.row_bytes());
    let at_once = at_once.next_multiple_of(ENCODE_ROWS).min(vectors);
    let mut bytes = vec![0_u8; at_once * code_bytes];
    for first in (0..vectors).step_by(at_once) {
        work.go_on()?;
        let bytes = &mut bytes[..at_once.min(vectors - first) * code_bytes];
        encode_slots(work, intake, leaves, &codes, first, bytes)?;
        file.append(bytes)?;
        work.progress.advance((first + bytes.len() / code_bytes) as u64);
    }
    drop(file);
    let file = work.directory.get(CODES_NAME)?;
    Ok(Some(CodedVectors { codes, entry, file }))
}

/// Trains the codec on vectors from all leaves.
fn train(work: &Work<'_>, intake: &Intake, leaves: &Leaves) -> Result<VectorCodes, IndexError> {
    work.progress.stage("training codes", 1);
    let (dim, count) = (intake.dim, leaves.rows.count());
    let rows = sample_rows(count, dim);
    let mut sample = vec![0.0_f32; rows * dim];
    let mut taken = RowReader::new(&leaves.rows, 0);
    for (i, row) in sample.chunks_exact_mut(dim).enumerate() {
        if i % 4096 == 0 {
            work.go_on()?;
        }
        intake.floats(taken.row((i as u64 * count as u64 / rows as u64) as usize)?, row);
    }
    let (choice, seed) = (work.own.codes().of_groups(dim), work.options.seed);
    VectorCodes::train(choice, intake.metric, &mut sample, dim, seed, work.threads)
}

/// Encodes the vectors from slot `first` on, split over threads.
fn encode_slots(
    work: &Work<'_>,
    intake: &Intake,
    leaves: &Leaves,
    codes: &VectorCodes,
    first: usize,
    bytes: &mut [u8],
) -> Result<(), VectorError> {
    let (dim, size) = (intake.dim, codes.code_bytes());
    let part = (bytes.len() / size).div_ceil(work.threads).next_multiple_of(ENCODE_ROWS);
    let encode = |mut slot: usize, bytes: &mut [u8]| {
        let mut scratch = EncodeScratch::default();
        let mut taken = RowReader::new(&leaves.rows, READ_BYTES);
        let mut rows = vec![0.0_f32; ENCODE_ROWS * dim];
        for bytes in bytes.chunks_mut(ENCODE_ROWS * size) {
            let rows = &mut rows[..bytes.len() / size * dim];
            for row in rows.chunks_exact_mut(dim) {
                intake.floats(taken.row(slot)?, row);
                slot += 1;
            }
            codes.encode(rows, bytes, &mut scratch);
        }
        Ok(())
    };
    let failed = Mutex::new(Ok(()));
    std::thread::scope(|scope| {
        for (number, bytes) in bytes.chunks_mut(part * size).enumerate() {
            let (encode, failed) = (&encode, &failed);
            scope.spawn(move || {
                let encoded = encode(first + number * part, bytes);
                if let (Err(error), Ok(mut failed)) = (encoded, failed.lock()) {
                    *failed = Err(error);
                }
            });
        }
    });
    failed.into_inner().unwrap_or(Ok(()))
}

impl CodedVectors {
    /// Reads the codes of `slots` (rising), one after the other; neighbours are one read.
    pub(crate) fn read(&self, slots: &[u32], codes: &mut Vec<u8>) -> Result<(), IndexError> {
        let size = self.codes.code_bytes();
        codes.resize(slots.len() * size, 0);
        let mut rest = &mut codes[..];
        for run in slots.chunk_by(|a, b| a + 1 == *b) {
            let (bytes, others) = std::mem::take(&mut rest).split_at_mut(run.len() * size);
            self.file.read_at(u64::from(run[0]) * size as u64, bytes)?;
            rest = others;
        }
        Ok(())
    }

    /// Writes the vectors with their ids, and the lists of `members`.
    pub(crate) fn write(
        &self,
        work: &Work<'_>,
        leaves: &Leaves,
        members: &Memberships,
    ) -> Result<Files, IndexError> {
        work.progress.stage("placing vectors", 1);
        let entries = entries(work, leaves, members)?;
        let lists = write_table(work, &entries)?;
        let (vectors, row_bytes) = (work.data.count() as u64, work.data.row_bytes());
        let table = Postings::coded(row_bytes, self.codes.code_bytes(), vectors, entries.into_iter())
            .map_err(|reason| IndexError::Internal(format!("the lists as built are wrong: {reason}")))?;
        let mut file = Blocks::create(work)?;
        work.progress.stage("writing lists", 2 * vectors);
        write_rows(work, leaves, &mut file)?;
        self.write_lists(work, leaves, members, &table, &mut file)?;
        let (postings, checksums) = file.finish(work)?;
        Ok(Files { postings, checksums, lists, ids: None, table })
    }

    fn write_lists(
        &self,
        work: &Work<'_>,
        leaves: &Leaves,
        members: &Memberships,
        table: &Postings,
        file: &mut Blocks,
    ) -> Result<(), IndexError> {
        let (vectors, lists) = (work.data.count() as u64, table.lists() as u64);
        let (mut slots, mut codes, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let mut reading = members.read(leaves)?;
        while let Some(list) = reading.next(&mut slots)? {
            if list % CHECK_EVERY == 0 {
                work.go_on()?;
                work.progress.advance(vectors + vectors * u64::from(list) / lists);
            }
            self.read(&slots, &mut codes)?;
            bytes.clear();
            self.codes.append_blocks(&codes, &mut bytes);
            bytes.extend(slots.iter().flat_map(|slot| slot.to_le_bytes()));
            let range = table.rows_range(list);
            if range.end - range.start != bytes.len() as u64 {
                return Err(IndexError::Internal(format!("list {list} has {} bytes", bytes.len())));
            }
            file.pad(range.start)?;
            file.append(&bytes)?;
        }
        Ok(())
    }
}

/// The table of all lists.
fn entries(work: &Work<'_>, leaves: &Leaves, members: &Memberships) -> Result<Vec<ListEntry>, IndexError> {
    let mut entries = Vec::with_capacity(leaves.count());
    let mut slots = Vec::new();
    let mut reading = members.read(leaves)?;
    while let Some(list) = reading.next(&mut slots)? {
        if list % CHECK_EVERY == 0 {
            work.go_on()?;
        }
        entries.push(ListEntry { stored: slots.len() as u32, ..ListEntry::default() });
    }
    Ok(entries)
}

/// Writes all vectors in the order of their slots, each with its id.
fn write_rows(work: &Work<'_>, leaves: &Leaves, file: &mut Blocks) -> Result<(), IndexError> {
    let ids = leaves.ids()?;
    let mut rows = RowReader::new(&leaves.rows, READ_BYTES);
    let often = (CHECK_BYTES / work.data.row_bytes()).max(1);
    for (slot, id) in ids.iter().enumerate() {
        if slot % often == 0 {
            work.go_on()?;
            work.progress.advance(slot as u64);
        }
        file.append(rows.row(slot)?)?;
        file.append(&id.to_le_bytes())?;
    }
    Ok(())
}
