//! Writes posting lists: the file of postings with the checksums of its blocks, the table of lists, and the
//! ids.

use super::group::{NO_LIST, Owners};
use super::members::Memberships;
use super::place::Leaves;
use super::section::{CHECKSUMS_NAME, IDS_NAME, LISTS_NAME, POSTINGS_NAME};
use super::work::Work;
use crate::allocate::try_zeros;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::identity::Identity;
use crate::format::manifest::FileEntry;
use crate::format::postings::{BLOCK_BYTES, ListEntry, PackedIds, PostingLayout, Postings, encode_members};
use crate::format::runs::encode_section;
use crate::partition::intake::Intake;
use crate::partition::{CHECK_BYTES, READ_BYTES};
use bathyal_vectors::RowReader;
use std::ops::Range;

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;
/// Lists between two checks for cancellation.
pub(super) const CHECK_EVERY: u32 = 256;

/// The written files.
pub(crate) struct WrittenFiles {
    pub(crate) postings: FileEntry,
    pub(crate) checksums: FileEntry,
    pub(crate) lists: FileEntry,
    pub(crate) ids: Option<FileEntry>,
    /// The positions of the lists in the file of postings.
    pub(crate) table: Postings,
}

/// The place where each vector is stored.
enum StoragePlaces {
    /// A copy is stored with every list.
    Copies,
    /// Vectors are stored in the order of ids.
    Ids(Vec<u32>),
    /// A vector is stored with the list that owns it: the place of each slot, and the first place of each
    /// list, with the end of the last.
    Owned { places: Vec<u32>, firsts: Vec<u32> },
}

impl StoragePlaces {
    fn new(
        work: &Work<'_>,
        leaves: &Leaves,
        members: &Memberships,
        frequencies: &[u32],
    ) -> Result<StoragePlaces, IndexError> {
        match work.layout.postings {
            PostingLayout::Coupled => Ok(StoragePlaces::Copies),
            PostingLayout::Decoupled => Ok(StoragePlaces::Ids(leaves.ids()?)),
            PostingLayout::Grouped => owned_places(leaves, members, frequencies),
        }
    }

    /// Returns the places of the rows that are stored with a list.
    fn stored_with(&self, list: u32) -> Range<u32> {
        match self {
            StoragePlaces::Copies | StoragePlaces::Ids(_) => 0..0,
            StoragePlaces::Owned { firsts, .. } => firsts[list as usize]..firsts[list as usize + 1],
        }
    }

    /// Collects the places of vectors of which a list has only the address, in ascending order, from its
    /// slots.
    fn elsewhere(&self, list: u32, slots: &[u32], out: &mut Vec<u32>) {
        out.clear();
        let stored = self.stored_with(list);
        if let StoragePlaces::Ids(places) | StoragePlaces::Owned { places, .. } = self {
            let places = slots.iter().map(|slot| places[*slot as usize]);
            out.extend(places.filter(|place| !stored.contains(place)));
        }
        out.sort_unstable();
    }

    /// Appends the member section for these places, and returns its length.
    fn encode(&self, elsewhere: &[u32], out: &mut Vec<u8>) -> usize {
        match self {
            StoragePlaces::Copies => 0,
            StoragePlaces::Ids(_) => encode_members(elsewhere, out),
            StoragePlaces::Owned { firsts, .. } => encode_section(elsewhere, firsts, out),
        }
    }
}

/// Computes the place of each slot: lists in their order, each with the vectors that it owns.
fn owned_places(
    leaves: &Leaves,
    members: &Memberships,
    frequencies: &[u32],
) -> Result<StoragePlaces, IndexError> {
    let mut owners = Owners::new(leaves.rows.count(), frequencies);
    let mut slots = Vec::new();
    let mut reader = members.read(leaves)?;
    while let Some(list) = reader.next(&mut slots)? {
        owners.offer(list, &slots);
    }
    let owners = owners.finish();
    let mut places = vec![NO_LIST; owners.len()];
    let (mut next, mut firsts) = (0, vec![0]);
    let mut reader = members.read(leaves)?;
    while let Some(list) = reader.next(&mut slots)? {
        for slot in slots.iter().map(|slot| *slot as usize).filter(|slot| owners[*slot] == list) {
            places[slot] = next;
            next += 1;
        }
        firsts.push(next);
    }
    Ok(StoragePlaces::Owned { places, firsts })
}

/// Writes the lists of `members`. `frequencies` gives how often each is read.
pub(crate) fn write(
    work: &Work<'_>,
    intake: &Intake,
    leaves: &Leaves,
    members: &Memberships,
    frequencies: &[u32],
) -> Result<WrittenFiles, IndexError> {
    work.progress.stage("placing vectors", 1);
    let places = StoragePlaces::new(work, leaves, members, frequencies)?;
    let entries = entries(work, leaves, members, &places)?;
    let lists = write_table(work, &entries)?;
    let (vectors, row_bytes) = (work.data.count() as u64, work.data.row_bytes());
    let table = Postings::new(work.layout.postings, row_bytes, vectors, entries.into_iter())
        .map_err(|reason| IndexError::Internal(format!("the built lists are invalid: {reason}")))?;
    let writer = PostingWriter { work, intake, leaves, members, places, table };
    let mut file = BlockWriter::create(work)?;
    work.progress.stage("writing lists", 2 * vectors);
    writer.rows(&mut file)?;
    writer.sections(&mut file)?;
    let (postings, checksums) = file.finish(work)?;
    let ids = writer.ids()?;
    Ok(WrittenFiles { postings, checksums, lists, ids, table: writer.table })
}

/// Writes the table of lists.
pub(super) fn write_table(work: &Work<'_>, entries: &[ListEntry]) -> Result<FileEntry, IndexError> {
    let mut lists = Appender::create(work.directory, LISTS_NAME)?;
    for entries in entries.chunks(WRITE_BYTES / size_of::<ListEntry>()) {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes()).collect();
        lists.append(&bytes)?;
    }
    lists.finish()
}

/// Returns the table of all lists.
fn entries(
    work: &Work<'_>,
    leaves: &Leaves,
    members: &Memberships,
    places: &StoragePlaces,
) -> Result<Vec<ListEntry>, IndexError> {
    let mut entries = Vec::with_capacity(leaves.count());
    let (mut slots, mut elsewhere, mut section) = (Vec::new(), Vec::new(), Vec::new());
    let mut reader = members.read(leaves)?;
    while let Some(list) = reader.next(&mut slots)? {
        if list % CHECK_EVERY == 0 {
            work.check_cancelled()?;
        }
        let stored = match places {
            StoragePlaces::Copies => slots.len() as u32,
            StoragePlaces::Ids(_) | StoragePlaces::Owned { .. } => places.stored_with(list).len() as u32,
        };
        places.elsewhere(list, &slots, &mut elsewhere);
        section.clear();
        let member_bytes = places.encode(&elsewhere, &mut section) as u32;
        entries.push(ListEntry { stored, members: elsewhere.len() as u32, member_bytes });
    }
    Ok(entries)
}

/// The input for writing the file of postings.
struct PostingWriter<'a> {
    work: &'a Work<'a>,
    intake: &'a Intake,
    leaves: &'a Leaves,
    members: &'a Memberships,
    places: StoragePlaces,
    table: Postings,
}

impl PostingWriter<'_> {
    /// Appends all rows.
    fn rows(&self, file: &mut BlockWriter) -> Result<(), IndexError> {
        match &self.places {
            StoragePlaces::Copies => self.copies(file),
            StoragePlaces::Ids(_) => self.rows_by_id(file),
            StoragePlaces::Owned { places, .. } => self.owned_rows(places, file),
        }
    }

    /// Coupled: appends each list's rows and ids.
    fn copies(&self, file: &mut BlockWriter) -> Result<(), IndexError> {
        let ids = self.leaves.ids()?;
        let mut rows = RowReader::new(&self.leaves.rows, 0);
        self.each_list(|list, slots| {
            file.pad(self.table.rows_range(list).start)?;
            append_rows(&mut rows, slots, file)?;
            slots.iter().try_for_each(|slot| file.append(&ids[*slot as usize].to_le_bytes()))
        })
    }

    /// Decoupled: appends all rows in the order of the data.
    fn rows_by_id(&self, file: &mut BlockWriter) -> Result<(), IndexError> {
        let data = self.work.data;
        let mut rows = RowReader::new(data.given(), READ_BYTES);
        let mut taken = vec![0; data.row_bytes()];
        let check_rows = (CHECK_BYTES / data.given_row_bytes()).max(1);
        for id in 0..data.count() {
            if id % check_rows == 0 {
                self.work.check_cancelled()?;
                self.work.progress.advance(id as u64);
            }
            self.intake.take(rows.row(id)?, &mut taken);
            file.append(&taken)?;
        }
        Ok(())
    }

    /// Grouped: appends the rows that each list owns.
    fn owned_rows(&self, places: &[u32], file: &mut BlockWriter) -> Result<(), IndexError> {
        let mut rows = RowReader::new(&self.leaves.rows, 0);
        let mut owned = Vec::new();
        self.each_list(|list, slots| {
            let stored = self.places.stored_with(list);
            owned.clear();
            owned.extend(slots.iter().copied().filter(|slot| stored.contains(&places[*slot as usize])));
            append_rows(&mut rows, &owned, file)
        })
    }

    /// Appends the member sections of all lists.
    fn sections(&self, file: &mut BlockWriter) -> Result<(), IndexError> {
        if matches!(self.places, StoragePlaces::Copies) {
            return Ok(());
        }
        let (mut elsewhere, mut section) = (Vec::new(), Vec::new());
        self.each_list(|list, slots| {
            let range = self.table.members_range(list);
            file.pad(range.start)?;
            self.places.elsewhere(list, slots, &mut elsewhere);
            section.clear();
            let bytes = self.places.encode(&elsewhere, &mut section) as u64;
            if bytes != range.end - range.start {
                return Err(IndexError::Internal(format!(
                    "list {list} has {bytes} bytes of members, and {} were planned",
                    range.end - range.start
                )));
            }
            file.append(&section)
        })
    }

    /// Writes the ids by place, of grouped lists.
    fn ids(&self) -> Result<Option<FileEntry>, IndexError> {
        let StoragePlaces::Owned { places, .. } = &self.places else { return Ok(None) };
        let mut by_place: Vec<u32> = try_zeros("the ids of vectors", places.len())?;
        let mut next = places.iter();
        self.leaves.each_id(|id| {
            if let Some(place) = next.next() {
                by_place[*place as usize] = id;
            }
        })?;
        let mut file = Appender::create(self.work.directory, IDS_NAME)?;
        file.append(&PackedIds::encode(by_place.into_iter()))?;
        file.finish().map(Some)
    }

    /// Calls `work` for every list with its slots.
    fn each_list(
        &self,
        mut work: impl FnMut(u32, &[u32]) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let mut slots = Vec::new();
        let mut reader = self.members.read(self.leaves)?;
        while let Some(list) = reader.next(&mut slots)? {
            if list % CHECK_EVERY == 0 {
                self.work.check_cancelled()?;
            }
            work(list, &slots)?;
        }
        Ok(())
    }
}

/// Appends the rows of `slots`. Consecutive slots share a read.
fn append_rows(rows: &mut RowReader<'_>, slots: &[u32], file: &mut BlockWriter) -> Result<(), IndexError> {
    for run in slots.chunk_by(|a, b| a + 1 == *b) {
        let block = rows.block(run[0] as usize..run[0] as usize + run.len())?;
        block.rows().try_for_each(|row| file.append(block.row(row)))?;
    }
    Ok(())
}

/// The file of postings with the checksums of its blocks.
pub(super) struct BlockWriter {
    file: Appender,
    /// Bytes not written yet; they begin at a block.
    waiting: Vec<u8>,
    checksums: Vec<u8>,
    identity: Identity,
}

impl BlockWriter {
    pub(super) fn create(work: &Work<'_>) -> Result<BlockWriter, IndexError> {
        let file = Appender::create(work.directory, POSTINGS_NAME)?;
        Ok(BlockWriter {
            file,
            waiting: Vec::with_capacity(WRITE_BYTES),
            checksums: Vec::new(),
            identity: work.identity,
        })
    }

    pub(super) fn append(&mut self, mut bytes: &[u8]) -> Result<(), IndexError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(WRITE_BYTES - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            bytes = later;
            if self.waiting.len() == WRITE_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Appends zeros up to `end`.
    pub(super) fn pad(&mut self, end: u64) -> Result<(), IndexError> {
        const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
        let written = self.file.written().bytes + self.waiting.len() as u64;
        let missing = usize::try_from(end.checked_sub(written).unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let zeros = ZEROS.get(..missing).ok_or_else(|| {
            IndexError::Internal(format!("the postings end at {written}, and the next list begins at {end}"))
        })?;
        self.append(zeros)
    }

    fn write(&mut self) -> Result<(), IndexError> {
        let sums = self.waiting.chunks(BLOCK_BYTES).map(|block| self.identity.checksum(block));
        self.checksums.extend(sums.flat_map(u32::to_le_bytes));
        self.file.append(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }

    pub(super) fn finish(mut self, work: &Work<'_>) -> Result<(FileEntry, FileEntry), IndexError> {
        self.write()?;
        let mut checksums = Appender::create(work.directory, CHECKSUMS_NAME)?;
        checksums.append(&self.checksums)?;
        Ok((self.file.finish()?, checksums.finish()?))
    }
}
