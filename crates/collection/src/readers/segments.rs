//! Versions and segments.

use crate::collection::Collection;
use crate::ids::IdKind;
use crate::location::{CollectionLocation, MARK, Part};
use crate::options::CollectionOptions;
use crate::schema::{Schema, VectorField};
use crate::segment::untrusted::{SampleSegment, read_block, read_fence};
use crate::version::{FORMAT, IdEntry, SegmentEntry, Version, deleted_name};
use bathyal_kernels::{Element, Metric};
use bathyal_store::memory::MemoryStore;
use bathyal_store::{DraftExt, Replace};
use roaring::RoaringBitmap;
use std::sync::Arc;

const NAME: &str = "s-1-aa";
const ROWS: u32 = 100_000;

fn entry(deleted: u32, deleted_crc32c: u32) -> SegmentEntry {
    SegmentEntry {
        name: NAME.into(),
        rows: ROWS,
        bytes: 1234,
        ids: (IdEntry::Number(0), IdEntry::Number(7_000_000)),
        manifest_crc32c: 5,
        deleted,
        deleted_crc32c,
        hasty: false,
    }
}

fn a_version(segments: Vec<SegmentEntry>) -> Version {
    Version {
        bathyal_collection: FORMAT,
        id: "00112233445566778899aabbccddeeff".into(),
        number: 1,
        schema: Schema {
            id_kind: IdKind::Number,
            vectors: vec![VectorField::new("v", 2, Element::F32, Metric::L2)],
            columns: Vec::new(),
        },
        through: 7,
        log: Some(6),
        next_segment: 3,
        writer: String::new(),
        published: 0,
        segments,
        calibrations: Vec::new(),
    }
}

/// Creates a location with a version of this JSON and a bitmap of deleted rows.
fn place(json: &[u8], bitmap: &[u8]) -> CollectionLocation {
    let place = CollectionLocation::in_store(Arc::new(MemoryStore::new("version")));
    let text = [format!("{:08x}\n", crc32c::crc32c(json)).as_bytes(), json].concat();
    let (name, bitmap_name) = (Part::Version(1).name(), deleted_name(NAME));
    let put = || {
        let draft = place.store().begin(&name, Replace::Never)?;
        draft.put(MARK, &text)?;
        draft.put(&bitmap_name, bitmap)?;
        draft.publish(&[MARK, &bitmap_name], "")
    };
    put().unwrap_or_else(|error| panic!("{error}"));
    place
}

pub(super) fn versions() -> Vec<Vec<u8>> {
    let all = [a_version(Vec::new()), a_version(vec![entry(0, 0)])];
    all.iter().filter_map(|version| serde_json::to_vec_pretty(version).ok()).collect()
}

pub(super) fn version(bytes: &[u8]) {
    let options = CollectionOptions { background: false, threads: 1, ..CollectionOptions::default() };
    match Collection::open_in(place(bytes, &[]), &options) {
        Ok(collection) => {
            let description = collection.describe();
            let rows: u64 = description.segments.iter().map(|segment| u64::from(segment.rows)).sum();
            assert!(
                description.rows <= rows && collection.snapshot().count(None, Default::default()).is_ok()
            );
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(super) fn bitmaps() -> Vec<Vec<u8>> {
    let few: RoaringBitmap = [1, 7, 70_000].into_iter().collect();
    let many: RoaringBitmap = (5..30_000).filter(|row| row % 3 > 0).chain(80_000..90_000).collect();
    let seed = |rows: &RoaringBitmap| {
        let mut bytes = (rows.len() as u32).to_le_bytes().to_vec();
        rows.serialize_into(&mut bytes).ok().map(|()| bytes)
    };
    [few, many].iter().filter_map(seed).collect()
}

/// Reads a count of rows, and a bitmap of them.
pub(super) fn bitmap(bytes: &[u8]) {
    let Some((count, bytes)) = bytes.split_first_chunk() else { return };
    let (count, place) = (u32::from_le_bytes(*count), place(b"{}", bytes));
    let entry = entry(count, crc32c::crc32c(bytes));
    let generation = place.store().open(&Part::Version(1).name());
    let Ok(generation) = generation else { return };
    match entry.read_deleted(&*generation) {
        Ok(rows) => assert!(rows.len() == u64::from(count) && rows.max() < Some(ROWS)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(super) fn manifests() -> Vec<Vec<u8>> {
    vec![SampleSegment::get().manifest()]
}

pub(super) fn manifest(bytes: &[u8]) {
    SampleSegment::get().with_manifest(bytes);
}

pub(super) fn column_files() -> Vec<Vec<u8>> {
    vec![SampleSegment::get().columns()]
}

pub(super) fn columns(bytes: &[u8]) {
    SampleSegment::get().with_columns(bytes);
}

pub(super) fn blocks() -> Vec<Vec<u8>> {
    SampleSegment::get().blocks()
}

pub(super) fn block(bytes: &[u8]) {
    read_block(bytes);
}

pub(super) fn fences() -> Vec<Vec<u8>> {
    SampleSegment::get().fences()
}

pub(super) fn fence(bytes: &[u8]) {
    read_fence(bytes);
}
