//! A segment that others are being merged into, once its rows are written. What is left then is to build its indexes, which is most of
//! the work: whoever comes after one that was stopped there goes on with it.
//!
//! The draft of the rows says so by an object of its own, which is written last and is not published with them.

use super::spool::Spool;
use super::write::{Begun, WriteOptions, Written, indexes};
use super::written::FileEntry;
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::place::{Part, Place};
use crate::schema::Schema;
use crate::seal::{seal, unseal};
use crate::version::SegmentEntry;
use bathyal_store::{Draft, DraftExt, Generation, GenerationExt, Replace, StoreError};
use bathyal_vectors::progress::Progress;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The object that says so.
const NAME: &str = "merge.json";
/// The rows that were left out, a bitmap for each segment, one after the other.
const LEFT_OUT_NAME: &str = "merge.deleted";
/// The only version of both. They are no part of the format of collections: another one is begun anew.
const FORMAT: u32 = 1;
/// Bytes that are read at once to be compared with their checksum.
const READ_BYTES: usize = 1 << 20;

/// What a segment is merged from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Merged {
    /// The rows of each segment that are left out because they were deleted, by its name.
    pub(crate) left_out: BTreeMap<String, RowBits>,
}

/// What the object says.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    bathyal_merge: u32,
    /// The collection's id, and the segment's name.
    collection: String,
    segment: String,
    written: Written,
    /// The vectors of each field.
    vectors: Vec<FileEntry>,
    /// The segments, and the bytes of the bitmap of each.
    merged: Vec<(String, u64)>,
    left_out: FileEntry,
    /// Threads of the builds: another number has them begun anew.
    threads: usize,
}

/// Says in a draft all of whose rows and `vectors` are on the disk that its indexes come next.
///
/// # Errors
/// [`CollectionError::Store`].
pub(super) fn note(
    draft: &dyn Draft,
    (collection, segment): (&str, &str),
    (written, vectors): (&Written, Vec<FileEntry>),
    merged: &Merged,
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
    let note = Note {
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

/// A segment whose writer was stopped. Dropped it is removed.
#[derive(Debug)]
pub(crate) struct Unfinished {
    place: Place,
    draft: Box<dyn Draft>,
    note: Note,
    merged: Merged,
}

impl Unfinished {
    /// Takes over the segment `name` of the collection with the id `collection`; `None` where nobody has left one that can be gone on
    /// with. What cannot is removed.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn take(
        place: &Place,
        collection: &str,
        name: &str,
    ) -> Result<Option<Unfinished>, CollectionError> {
        let drafts = match place.store().abandoned(&Part::Segment(name.into(), None).name(), Replace::Never) {
            Ok(drafts) => drafts,
            // It lacks nothing but a version that names it.
            Err(StoreError::Exists { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let taken = drafts.into_iter().find_map(|draft| {
            let (note, merged) = read(&*draft).filter(|(note, _)| {
                (note.collection.as_str(), note.segment.as_str()) == (collection, name)
            })?;
            Some(Unfinished { place: place.clone(), draft, note, merged })
        });
        Ok(taken)
    }

    /// What it is merged from.
    pub(crate) fn merged(&self) -> &Merged {
        &self.merged
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.note.segment
    }

    /// Leaves it to whoever comes next.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn leave(self) -> Result<(), CollectionError> {
        Ok(self.draft.leave()?)
    }

    /// Whether all that was written is there as it was.
    ///
    /// # Errors
    /// [`CollectionError::Cancelled`].
    pub(crate) fn is_whole(&self, progress: &dyn Progress) -> Result<bool, CollectionError> {
        let Written { ids, parquet, sums, .. } = &self.note.written;
        let built = |field: &usize| {
            let part = Part::Segment(self.note.segment.clone(), Some(*field));
            self.place.store().open(&part.name()).is_ok()
        };
        let vectors = self.note.vectors.iter().enumerate().filter(|(field, _)| !built(field));
        let files: Vec<&FileEntry> =
            [ids, parquet, sums].into_iter().chain(vectors.map(|(_, file)| file)).collect();
        progress.stage("checking what was merged", files.iter().map(|file| file.bytes).sum());
        let mut done = 0;
        for file in files {
            if !is_as_written(&*self.draft, file, &mut done, progress)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Builds the indexes that are missing and publishes the segment, as [`super::SegmentWriter::finish`] does.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn finish(
        self,
        schema: &Arc<Schema>,
        options: &WriteOptions,
        progress: &dyn Progress,
    ) -> Result<SegmentEntry, CollectionError> {
        let Note { collection, segment, written, threads, .. } = self.note;
        let mut begun = Begun::of(self.place, self.draft);
        begun.resumable = true;
        begun.merged = self.merged.left_out.keys().cloned().collect();
        let options = WriteOptions { threads, ..options.clone() };
        let fields = (0..schema.vectors.len()).map(Spool::left).collect();
        indexes(begun, (schema, collection, segment), (written, fields), &options, progress)
    }
}

/// What a draft says, if it makes sense.
fn read(draft: &dyn Generation) -> Option<(Note, Merged)> {
    let text = draft.read(NAME).ok()?;
    let (_, json) = unseal(&text).ok()?;
    let note: Note = serde_json::from_slice(json).ok().filter(|note: &Note| note.bathyal_merge == FORMAT)?;
    let bytes = draft.read(LEFT_OUT_NAME).ok()?;
    let sound = bytes.len() as u64 == note.left_out.bytes && crc32c::crc32c(&bytes) == note.left_out.crc32c;
    let (mut rest, mut merged) = (sound.then_some(&bytes[..])?, Merged::default());
    for (name, len) in &note.merged {
        let (own, behind) = rest.split_at_checked(usize::try_from(*len).ok()?)?;
        let rows = RoaringBitmap::deserialize_from(own).ok()?;
        merged.left_out.insert(name.clone(), RowBits::from_bitmap(&rows));
        rest = behind;
    }
    Some((note, merged))
}

/// Whether a file is what it was when it was written.
fn is_as_written(
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
        let some = &mut bytes[..READ_BYTES.min((file.bytes - at) as usize)];
        if object.read_at(at, some).is_err() {
            return Ok(false);
        }
        crc = crc32c::crc32c_append(crc, some);
        at += some.len() as u64;
        *done += some.len() as u64;
        progress.advance(*done);
    }
    Ok(crc == file.crc32c)
}
