//! Files of a segment for fuzzing: a valid segment in memory, one file of which is replaced, with correct
//! checksums.

use super::block::{BLOCK_BYTES, IdBlock, Key, numbered_checksum};
use super::fence::Fence;
use super::file_writer::{FileEntry, PIECE_BYTES};
use super::id_map::IdCollector;
use super::id_writer::FenceEntry;
use super::manifest::{IDS_NAME, Manifest, ROWS_NAME, SUMS_NAME, identity};
use super::{Segment, SegmentOptions, SegmentWriter, WriteOptions};
use crate::error::CollectionError;
use crate::ids::{Id, IdKind, Ids};
use crate::location::{CollectionLocation, MARK, Part};
use crate::schema::{Column, Schema, VectorField};
use crate::seal::{seal, unseal};
use crate::version::SegmentEntry;
use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bathyal_kernels::{Element, Metric};
use bathyal_store::memory::MemoryStore;
use bathyal_store::{DraftExt, GenerationExt, Replace};
use bathyal_vectors::progress::Silent;
use std::sync::{Arc, OnceLock};

const COLLECTION: &str = "00112233445566778899aabbccddeeff";
const NAME: &str = "s-1-aa";
const ROWS: u32 = 60;

/// A valid segment.
pub(crate) struct SampleSegment {
    schema: Arc<Schema>,
    entry: SegmentEntry,
    files: Vec<(&'static str, Vec<u8>)>,
}

fn create_sample() -> Result<SampleSegment, CollectionError> {
    let column = |name: &str, kind: &str| kind.parse().ok().map(|kind| Column { name: name.into(), kind });
    let schema = Arc::new(Schema {
        id_kind: IdKind::Text,
        vectors: vec![VectorField::new("v", 2, Element::F32, Metric::L2)],
        columns: [column("year", "int64"), column("tags", "list<string>")].into_iter().flatten().collect(),
    });
    let place = CollectionLocation::in_store(Arc::new(MemoryStore::new("segment")));
    let options = WriteOptions { threads: 1, ..WriteOptions::default() };
    let mut writer = SegmentWriter::begin(&place, schema.clone(), COLLECTION, NAME.into(), &options)?;
    let ids: Vec<String> = (0..ROWS).map(|row| format!("row/{row:04}")).collect();
    let years = Int64Array::from_iter((0..i64::from(ROWS)).map(|row| (row % 5 > 0).then_some(row)));
    let mut tags = ListBuilder::new(StringBuilder::new());
    (0..ROWS).for_each(|row| tags.append_value((0..row % 3).map(|tag| Some(format!("t{tag}")))));
    let arrays: Vec<ArrayRef> = vec![Arc::new(years), Arc::new(tags.finish())];
    let columns = RecordBatch::try_new(schema.metadata(), arrays)?;
    writer.push(&Ids::Texts(ids.into()), &[&vec![60; 8 * ROWS as usize]], &columns)?;
    let entry = writer.finish(&Silent)?;
    let generation = place.store().open(&Part::Segment(NAME.into(), None).name())?;
    let mut files = Vec::new();
    for name in [IDS_NAME, ROWS_NAME, SUMS_NAME, MARK] {
        files.push((name, generation.read(name)?));
    }
    Ok(SampleSegment { schema, entry, files })
}

impl SampleSegment {
    /// Returns the only instance.
    pub(crate) fn get() -> &'static SampleSegment {
        static SAMPLE: OnceLock<SampleSegment> = OnceLock::new();
        SAMPLE.get_or_init(|| create_sample().unwrap_or_else(|error| panic!("{error}")))
    }

    fn file(&self, name: &str) -> Vec<u8> {
        self.files.iter().find(|(other, _)| *other == name).map_or_else(Vec::new, |(_, bytes)| bytes.clone())
    }

    /// Returns its manifest as JSON.
    pub(crate) fn manifest(&self) -> Vec<u8> {
        let file = self.file(MARK);
        unseal(&file).map_or_else(|_| Vec::new(), |(_, json)| json.to_vec())
    }

    /// Returns its file of columns.
    pub(crate) fn columns(&self) -> Vec<u8> {
        self.file(ROWS_NAME)
    }

    /// Reads the whole segment, with `files` instead of its own.
    fn read(&self, files: &[(&str, Vec<u8>)]) -> Result<(), CollectionError> {
        let place = CollectionLocation::in_store(Arc::new(MemoryStore::new("segment")));
        let draft = place.store().begin(&Part::Segment(NAME.into(), None).name(), Replace::Never)?;
        for (name, bytes) in &self.files {
            let other = files.iter().find(|(other, _)| other == name);
            draft.put(name, other.map_or(bytes, |(_, bytes)| bytes))?;
        }
        draft.publish(&[IDS_NAME, ROWS_NAME, SUMS_NAME, MARK], "")?;
        let manifest = files.iter().find(|(name, _)| *name == MARK);
        let crc =
            manifest.map_or(self.entry.manifest_crc32c, |(_, text)| unseal(text).map_or(0, |(crc, _)| crc));
        let entry = SegmentEntry { manifest_crc32c: crc, ..self.entry.clone() };
        let segment = Segment::new(&place, self.schema.clone(), entry, Arc::new(SegmentOptions::default()));
        let requested = Ids::Texts(vec!["row/0000", "row/0033", "row/9", "a"].into());
        let found = segment.find(&requested);
        if let Ok(found) = &found {
            assert!(found.iter().flatten().all(|row| *row < ROWS));
        }
        let below = segment.lower_bound(&Id::Text("row/0030".into()));
        if let Ok(row) = below {
            assert!(row <= ROWS);
        }
        let columns = segment.columns_of(&[59, 0, 31], &[1, 0]);
        if let Ok(columns) = columns {
            assert_eq!(columns.num_rows(), 3);
        }
        let mut rows = 0;
        let scanned = segment.scan(&[0, 1], true, &mut |first, batch| {
            assert_eq!(first, rows);
            rows += batch.num_rows() as u32;
            Ok(())
        });
        assert!(scanned.is_err() || rows == ROWS);
        segment.verify(&Silent)?;
        let mut faults = super::Faults::default();
        segment.salvage(COLLECTION, &Default::default(), &Silent, &mut faults, &mut |_| Ok(()))
    }

    /// Reads it with this JSON as its manifest.
    pub(crate) fn with_manifest(&self, json: &[u8]) {
        let text = [format!("{:08x}\n", crc32c::crc32c(json)).as_bytes(), json].concat();
        check_message(self.read(&[(MARK, text)]));
    }

    /// Reads it with these bytes as its columns.
    pub(crate) fn with_columns(&self, bytes: &[u8]) {
        let identity = identity(COLLECTION, NAME);
        let pieces = (0..).zip(bytes.chunks(PIECE_BYTES));
        let sums: Vec<u8> = pieces
            .flat_map(|(number, piece)| numbered_checksum(identity, number, piece).to_le_bytes())
            .collect();
        let Ok(mut manifest) = serde_json::from_slice::<Manifest>(&self.manifest()) else { return };
        let file = |name: &str, bytes: &[u8]| FileEntry {
            name: name.into(),
            bytes: bytes.len() as u64,
            crc32c: crc32c::crc32c(bytes),
        };
        (manifest.parquet, manifest.sums) = (file(ROWS_NAME, bytes), file(SUMS_NAME, &sums));
        let Ok(text) = seal(&manifest) else { return };
        check_message(self.read(&[(ROWS_NAME, bytes.to_vec()), (SUMS_NAME, sums), (MARK, text)]));
    }

    /// Returns a block of its ids, and one of a segment with numeric ids.
    pub(crate) fn blocks(&self) -> Vec<Vec<u8>> {
        let mut numbers = vec![0; BLOCK_BYTES];
        numbers[4] = 200;
        (0..200_u64)
            .for_each(|at| numbers[16 + 8 * at as usize..][..8].copy_from_slice(&(3 * at).to_le_bytes()));
        vec![self.file(IDS_NAME)[..BLOCK_BYTES].to_vec(), numbers]
    }

    /// Returns valid inputs of [`read_fence`].
    pub(crate) fn fences(&self) -> Vec<Vec<u8>> {
        let ids = self.file(IDS_NAME);
        let head = |kind: u8, rows: u32, blocks: u16| {
            [&[kind][..], &rows.to_le_bytes(), &blocks.to_le_bytes()].concat()
        };
        let numbers: Vec<u8> = [3_u64, 900, 5000].iter().flat_map(|number| number.to_le_bytes()).collect();
        vec![[head(1, ROWS, 1), ids[BLOCK_BYTES..].to_vec()].concat(), [head(0, 1200, 3), numbers].concat()]
    }
}

fn check_message(outcome: Result<(), CollectionError>) {
    if let Err(error) = outcome {
        assert!(!error.to_string().is_empty());
    }
}

/// Reads any bytes as a block, and checks that its ids are within bounds.
pub(crate) fn read_block(bytes: &[u8]) {
    let identity = identity(COLLECTION, NAME);
    let mut block = bytes.to_vec();
    block.resize(BLOCK_BYTES, 0);
    let crc = numbered_checksum(identity, 3, &block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
    for (kind, key) in [(IdKind::Text, Key::Text(b"row/0017")), (IdKind::Number, Key::Number(17))] {
        let Ok(block) = IdBlock::read(kind, identity, 3, &block) else { continue };
        let mut collector = IdCollector::new(kind, block.count());
        if (0..block.count()).all(|at| collector.push(&block, at).is_ok()) {
            assert_eq!(collector.finish().len(), block.count());
        }
        assert!(block.lower_bound(key) <= block.count());
        (0..block.count()).for_each(|at| {
            block.compare(at, key);
        });
    }
}

/// Reads a kind of ids, numbers of rows and blocks, and a fence. Checks that the fence leads to existing
/// blocks.
pub(crate) fn read_fence(bytes: &[u8]) {
    let Some((head, bytes)) = bytes.split_at_checked(7) else { return };
    let kind = if head[0] % 2 == 1 { IdKind::Text } else { IdKind::Number };
    let rows = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let blocks = u32::from(u16::from_le_bytes([head[5], head[6]]));
    let identity = identity(COLLECTION, NAME);
    let entry = FenceEntry { blocks, bytes: bytes.len() as u64, crc32c: identity.checksum(bytes) };
    let Ok(fence) = Fence::read(kind, identity, &entry, rows, bytes) else { return };
    assert_eq!(fence.blocks(), blocks);
    let keys: [Key<'_>; 3] = match kind {
        IdKind::Text => [Key::Text(b""), Key::Text(b"row/0017"), Key::Text(b"\xff")],
        IdKind::Number => [Key::Number(0), Key::Number(17), Key::Number(u64::MAX)],
    };
    assert!(keys.iter().all(|key| fence.block_of(*key) < blocks));
    for row in [0, rows / 2, rows.saturating_sub(1)] {
        let block = fence.block_of_row(row);
        assert!(block < blocks && fence.first_row(block, rows) <= row);
        assert!(row < fence.first_row(block + 1, rows) || row >= rows);
    }
}
