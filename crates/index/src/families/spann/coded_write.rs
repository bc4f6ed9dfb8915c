//! The creation of lists of codes: the codec, the codes of all vectors by slot, and the file of postings.

use super::members::Memberships;
use super::place::Leaves;
use super::section::{LIST_CODEC_NAME, ListCodesEntry};
use super::work::Work;
use super::write::{BlockWriter, CHECK_EVERY, WrittenFiles, write_table};
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::postings::{ListEntry, Postings};
use crate::partition::encoding::Encoding;
use crate::partition::intake::Intake;
use crate::partition::{CHECK_BYTES, READ_BYTES};
use crate::query::codes::VectorCodes;
use bathyal_store::Object;
use bathyal_vectors::RowReader;
use std::sync::Arc;

/// The temporary file of codes, by slot.
const CODES_NAME: &str = "codes.tmp";

/// The codes of all vectors during a build.
pub(crate) struct CodedVectors {
    pub(crate) codes: VectorCodes,
    pub(crate) entry: ListCodesEntry,
    file: Arc<dyn Object>,
}

/// Trains a codec and encodes all vectors. Returns `None` if lists hold no codes.
pub(crate) fn encode(
    work: &Work<'_>,
    intake: &Intake,
    leaves: &Leaves,
) -> Result<Option<CodedVectors>, IndexError> {
    if work.own.code_kind.is_none() {
        return Ok(None);
    }
    let (rows, dim) = (&leaves.rows, intake.dim);
    let reader = |ahead| {
        let mut taken = RowReader::new(rows, ahead);
        move |slot, out: &mut [f32]| {
            intake.floats(taken.row(slot)?, out);
            Ok(())
        }
    };
    let encoding = Encoding { work, count: rows.count(), dim, row_bytes: rows.row_bytes(), reader };
    let (codes, _) = encoding.train(work.own.codes().of_groups(dim))?;
    let mut codec = Appender::create(work.directory, LIST_CODEC_NAME)?;
    codec.append(&codes.to_bytes())?;
    let (kind, code_bytes) = (codes.codec.kind().to_string(), codes.code_bytes());
    let entry = ListCodesEntry { codec: codec.finish()?, kind, code_bytes: code_bytes as u32 };
    let mut file = Appender::create(work.directory, CODES_NAME)?;
    encoding.encode(&codes, |bytes| file.append(bytes))?;
    drop(file);
    let file = work.directory.get(CODES_NAME)?;
    Ok(Some(CodedVectors { codes, entry, file }))
}

impl CodedVectors {
    /// Reads the codes of `slots` (ascending). Consecutive slots share a read.
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
    ) -> Result<WrittenFiles, IndexError> {
        work.progress.stage("placing vectors", 1);
        let entries = entries(work, leaves, members)?;
        let lists = write_table(work, &entries)?;
        let (vectors, row_bytes) = (work.data.count() as u64, work.data.row_bytes());
        let table = Postings::coded(row_bytes, self.codes.code_bytes(), vectors, entries.into_iter())
            .map_err(|reason| IndexError::Internal(format!("the built lists are invalid: {reason}")))?;
        let mut file = BlockWriter::create(work)?;
        work.progress.stage("writing lists", 2 * vectors);
        write_rows(work, leaves, &mut file)?;
        self.write_lists(work, leaves, members, &table, &mut file)?;
        let (postings, checksums) = file.finish(work)?;
        Ok(WrittenFiles { postings, checksums, lists, ids: None, table })
    }

    fn write_lists(
        &self,
        work: &Work<'_>,
        leaves: &Leaves,
        members: &Memberships,
        table: &Postings,
        file: &mut BlockWriter,
    ) -> Result<(), IndexError> {
        let (vectors, lists) = (work.data.count() as u64, table.lists() as u64);
        let (mut slots, mut codes, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let mut reader = members.read(leaves)?;
        while let Some(list) = reader.next(&mut slots)? {
            if list % CHECK_EVERY == 0 {
                work.check_cancelled()?;
                work.progress.advance(vectors + vectors * u64::from(list) / lists);
            }
            self.read(&slots, &mut codes)?;
            bytes.clear();
            self.codes.append_blocks(&codes, &mut bytes);
            bytes.extend(slots.iter().flat_map(|slot| slot.to_le_bytes()));
            let range = table.rows_range(list);
            if range.end - range.start != bytes.len() as u64 {
                return Err(IndexError::Internal(format!(
                    "list {list} has {} bytes, and {} were planned",
                    bytes.len(),
                    range.end - range.start
                )));
            }
            file.pad(range.start)?;
            file.append(&bytes)?;
        }
        Ok(())
    }
}

/// Returns the table of all lists.
fn entries(work: &Work<'_>, leaves: &Leaves, members: &Memberships) -> Result<Vec<ListEntry>, IndexError> {
    let mut entries = Vec::with_capacity(leaves.count());
    let mut slots = Vec::new();
    let mut reader = members.read(leaves)?;
    while let Some(list) = reader.next(&mut slots)? {
        if list % CHECK_EVERY == 0 {
            work.check_cancelled()?;
        }
        entries.push(ListEntry { stored: slots.len() as u32, ..ListEntry::default() });
    }
    Ok(entries)
}

/// Writes all vectors in the order of their slots, each with its id.
fn write_rows(work: &Work<'_>, leaves: &Leaves, file: &mut BlockWriter) -> Result<(), IndexError> {
    let ids = leaves.ids()?;
    let mut rows = RowReader::new(&leaves.rows, READ_BYTES);
    let check_rows = (CHECK_BYTES / work.data.row_bytes()).max(1);
    for (slot, id) in ids.iter().enumerate() {
        if slot % check_rows == 0 {
            work.check_cancelled()?;
            work.progress.advance(slot as u64);
        }
        file.append(rows.row(slot)?)?;
        file.append(&id.to_le_bytes())?;
    }
    Ok(())
}
