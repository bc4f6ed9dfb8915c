//! A merged segment whose rows are written, but not yet its indexes. Building the indexes is most of the
//! work. If the merge is stopped during that, a later merge continues with the rows.
//!
//! The draft of the rows contains an object that describes the merge. It is written last, and is not
//! published with the rows.

use super::file_writer::FileEntry;
use super::spool::Spool;
use super::write::{DraftSegment, UnbuiltSegment, WriteOptions, WrittenRows, build_indexes};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::location::{CollectionLocation, Part};
use crate::schema::Schema;
use crate::seal::{seal, unseal};
use crate::version::SegmentEntry;
use bathyal_store::{Draft, DraftExt, Generation, GenerationExt, Replace, StoreError};
use bathyal_vectors::progress::Progress;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Object that describes the merge.
const NAME: &str = "merge.json";
/// Object with the rows that were left out: one bitmap for each segment.
const LEFT_OUT_NAME: &str = "merge.deleted";
/// The only format version of both objects. They are not part of the format of collections: a merge of
/// another version is started again.
const FORMAT: u32 = 1;
/// Bytes that are read at once to compute checksums.
const READ_BYTES: usize = 1 << 20;

/// The segments that are merged into one.
#[derive(Debug, Clone, Default)]
pub(crate) struct MergeSources {
    /// For each segment, by name, the rows that are left out because they were deleted.
    pub(crate) left_out: BTreeMap<String, RowBits>,
}

/// Content of the object that describes the merge.
#[derive(Debug, Serialize, Deserialize)]
struct MergeNote {
    bathyal_merge: u32,
    /// Identity of the collection.
    collection: String,
    /// Name of the new segment.
    segment: String,
    written: WrittenRows,
    /// The vectors of each field.
    vectors: Vec<FileEntry>,
    /// Names of the merged segments, each with the bytes of its bitmap.
    merged: Vec<(String, u64)>,
    left_out: FileEntry,
    /// Threads of the builds; with another number, the builds are started again.
    threads: usize,
}

/// Writes the description of a merge into its draft. All rows and `vectors` must be on the disk. Building the
/// indexes comes next.
///
/// # Errors
/// [`CollectionError::Store`].
pub(super) fn write_note(
    draft: &dyn Draft,
    (collection, segment): (&str, &str),
    (written, vectors): (&WrittenRows, Vec<FileEntry>),
    merged: &MergeSources,
    threads: usize,
) -> Result<(), CollectionError> {
    let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
    for (name, rows) in &merged.left_out {
        let before = bytes.len();
        let written = rows.to_bitmap().serialize_into(&mut bytes);
        written.map_err(|error| CollectionError::Internal(error.to_string()))?;
        lengths.push((name.clone(), (bytes.len() - before) as u64));
    }
    draft.put(LEFT_OUT_NAME, &bytes)?;
    let left_out =
        FileEntry { name: LEFT_OUT_NAME.into(), bytes: bytes.len() as u64, crc32c: crc32c::crc32c(&bytes) };
    let note = MergeNote {
        bathyal_merge: FORMAT,
        collection: collection.into(),
        segment: segment.into(),
        written: written.clone(),
        vectors,
        merged: lengths,
        left_out,
        threads,
    };
    Ok(draft.replace(NAME, &seal(&note)?)?)
}

/// A segment whose writer was stopped. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct UnfinishedSegment {
    place: CollectionLocation,
    draft: Box<dyn Draft>,
    note: MergeNote,
    merged: MergeSources,
}

impl UnfinishedSegment {
    /// Takes over the segment `name` of the collection with the identity `collection`. Returns `None` if
    /// there is no draft that can be continued; other drafts are removed.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn take_over(
        place: &CollectionLocation,
        collection: &str,
        name: &str,
    ) -> Result<Option<UnfinishedSegment>, CollectionError> {
        let drafts = match place.store().abandoned(&Part::Segment(name.into(), None).name(), Replace::Never) {
            Ok(drafts) => drafts,
            // The segment is published, and only lacks a version that names it.
            Err(StoreError::Exists { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let found = drafts.into_iter().find_map(|draft| {
            let (note, merged) = read(&*draft).filter(|(note, _)| {
                (note.collection.as_str(), note.segment.as_str()) == (collection, name)
            })?;
            Some(UnfinishedSegment { place: place.clone(), draft, note, merged })
        });
        Ok(found)
    }

    /// Returns the segments that it is merged from.
    pub(crate) fn merged(&self) -> &MergeSources {
        &self.merged
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.note.segment
    }

    /// Leaves the segment for a later merge.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn keep_for_later(self) -> Result<(), CollectionError> {
        Ok(self.draft.leave()?)
    }

    /// Returns true if all its files are as they were written.
    ///
    /// # Errors
    /// [`CollectionError::Cancelled`].
    pub(crate) fn is_intact(&self, progress: &dyn Progress) -> Result<bool, CollectionError> {
        let WrittenRows { ids, parquet, sums, .. } = &self.note.written;
        let built = |field: &usize| {
            let part = Part::Segment(self.note.segment.clone(), Some(*field));
            self.place.store().open(&part.name()).is_ok()
        };
        let vectors = self.note.vectors.iter().enumerate().filter(|(field, _)| !built(field));
        let files: Vec<&FileEntry> =
            [ids, parquet, sums].into_iter().chain(vectors.map(|(_, file)| file)).collect();
        progress.stage("checking merged rows", files.iter().map(|file| file.bytes).sum());
        let mut done = 0;
        for file in files {
            if !is_unchanged(&*self.draft, file, &mut done, progress)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Builds the missing indexes and publishes the segment, as [`super::SegmentWriter::finish`] does.
    ///
    /// # Errors
    /// As [`super::SegmentWriter::finish`].
    pub(crate) fn finish(
        self,
        schema: &Arc<Schema>,
        options: &WriteOptions,
        progress: &dyn Progress,
    ) -> Result<SegmentEntry, CollectionError> {
        let MergeNote { collection, segment, written, threads, .. } = self.note;
        let mut segment_draft = DraftSegment::new(self.place, self.draft);
        segment_draft.resumable = true;
        segment_draft.merged = self.merged.left_out.keys().cloned().collect();
        let options = WriteOptions { threads, ..options.clone() };
        let fields = (0..schema.vectors.len()).map(Spool::resumed).collect();
        let segment = UnbuiltSegment { schema, collection, name: segment, written, fields };
        build_indexes(segment_draft, segment, &options, progress)
    }
}

/// Reads the description in a draft; `None` if it is missing or invalid.
fn read(draft: &dyn Generation) -> Option<(MergeNote, MergeSources)> {
    let text = draft.read(NAME).ok()?;
    let (_, json) = unseal(&text).ok()?;
    let note: MergeNote =
        serde_json::from_slice(json).ok().filter(|note: &MergeNote| note.bathyal_merge == FORMAT)?;
    let bytes = draft.read(LEFT_OUT_NAME).ok()?;
    let valid = bytes.len() as u64 == note.left_out.bytes && crc32c::crc32c(&bytes) == note.left_out.crc32c;
    let (mut rest, mut merged) = (valid.then_some(&bytes[..])?, MergeSources::default());
    for (name, len) in &note.merged {
        let (bitmap, following) = rest.split_at_checked(usize::try_from(*len).ok()?)?;
        let rows = RoaringBitmap::deserialize_from(bitmap).ok()?;
        merged.left_out.insert(name.clone(), RowBits::from_bitmap(&rows));
        rest = following;
    }
    Some((note, merged))
}

/// Returns true if a file is as it was written.
fn is_unchanged(
    draft: &dyn Generation,
    file: &FileEntry,
    done: &mut u64,
    progress: &dyn Progress,
) -> Result<bool, CollectionError> {
    let Ok(object) = draft.get(&file.name) else { return Ok(false) };
    if object.len() != file.bytes {
        return Ok(false);
    }
    let (mut crc, mut at, mut bytes) = (0, 0, vec![0; READ_BYTES]);
    while at < file.bytes {
        if progress.cancelled() {
            return Err(CollectionError::Cancelled);
        }
        let chunk = &mut bytes[..READ_BYTES.min((file.bytes - at) as usize)];
        if object.read_at(at, chunk).is_err() {
            return Ok(false);
        }
        crc = crc32c::crc32c_append(crc, chunk);
        at += chunk.len() as u64;
        *done += chunk.len() as u64;
        progress.advance(*done);
    }
    Ok(crc == file.crc32c)
}
