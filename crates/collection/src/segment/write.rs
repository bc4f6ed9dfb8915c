//! Writes a segment: rows in the order of their ids, as they come, then the index of each field of vectors, then the manifest that
//! makes all of it a segment.

use super::block::key;
use super::id_writer::{FenceEntry, IdWriter};
use super::manifest::{FORMAT, IDS_NAME, IndexEntry, Manifest, ROWS_NAME, SUMS_NAME, identity};
use super::spool::Spool;
use super::unfinished::{self, Merged};
use super::written::{Failing, FileEntry, FileWriter};
use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::place::{MARK, Part, Place};
use crate::schema::{Schema, VectorField};
use crate::seal::{seal, unseal};
use crate::version::{IdEntry, SegmentEntry};
use arrow_array::RecordBatch;
use bathyal_index::build::options::MOST_CALIBRATION_QUERIES;
use bathyal_index::build::planned_memory;
use bathyal_index::format::manifest::{MAX_VECTORS, Manifest as IndexManifest};
use bathyal_index::{
    BuildOptions, DEFAULT_SEED, FamilyOptions, IndexError, StoreAs, StoredBefore, build_in, families,
};
use bathyal_kernels::{Element, Metric};
use bathyal_store::{Draft, DraftExt, GenerationExt, KeepDrafts, Replace, StoreError};
use bathyal_tier::process::give_back_memory;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Segments of fewer rows are flat: codes of ten thousand vectors are compared in a fraction of a millisecond, and building
/// anything else takes longer than all that it would save until the segment is merged into a larger one.
pub(crate) const FLAT_BELOW_ROWS: usize = 10_000;
/// A flat index has codes from so many bytes of vectors on, which are compared in some 0.1 ms; a page or two of a device are read
/// in that time.
const CODED_BYTES: usize = 1 << 20;
/// Vectors that codes are trained on at least.
const CODED_ROWS: usize = 1000;
/// Dimensions up to which these codes are along principal axes, which rule out more and take the cube of the dimensions to find: a
/// second at some 1000, which a segment that is soon merged does not earn.
const AXES_DIM: usize = 512;
/// Vectors that are held in memory before they go to the disk: those of a segment that is flat, as a rule.
const HELD_BYTES: u64 = 64 << 20;
/// The same as a part of what a writer may take: the rest is for building.
const HELD_SHARE: u64 = 8;
/// Bytes of a segment from which on the allocator is made to give back what was freed: it looks at all that the process holds, which is
/// too long for a small one.
const GIVEN_BACK_BYTES: u64 = 4 << 20;
/// Rows of a page of a column, and bytes: what is read for a single row.
const PAGE_ROWS: usize = 1024;
const PAGE_BYTES: usize = 64 << 10;
/// Values that are looked at before the size of a page is: few, so that pages of long texts are not much larger.
const CHECKED_ROWS: usize = 128;
/// Rows of a row group at most, and bytes, which are in memory until it is written.
const GROUP_ROWS: usize = 128 << 10;
const GROUP_BYTES: usize = 16 << 20;

/// How a segment is written.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    /// Memory that writing may take, in bytes; `None` is no limit.
    pub(crate) memory_bytes: Option<u64>,
    /// Bytes of vectors that are held in memory before they go to the disk; no more than an eighth of `memory_bytes`.
    pub(crate) held_bytes: u64,
    /// Threads of builds; 0 is all cores.
    pub(crate) threads: usize,
    /// Segments of fewer rows have indexes of the family `flat`, whatever the schema says.
    pub(crate) flat_below_rows: usize,
    /// Queries of calibrations at most.
    pub(crate) calibration_queries: usize,
    /// Seed of everything random.
    pub(crate) seed: u64,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions {
            memory_bytes: None,
            held_bytes: HELD_BYTES,
            threads: 0,
            flat_below_rows: FLAT_BELOW_ROWS,
            calibration_queries: MOST_CALIBRATION_QUERIES,
            seed: DEFAULT_SEED,
        }
    }
}

impl WriteOptions {
    /// The least `memory_bytes` in which every segment can be written, if need be on one thread and without codes: what the family
    /// `flat` says, and what vectors are held in.
    ///
    /// # Errors
    /// [`CollectionError::Index`], which does not happen.
    pub(crate) fn least_memory_bytes() -> Result<u64, CollectionError> {
        let told =
            BuildOptions { threads: 1, ..BuildOptions::of(families::options("flat", &BTreeMap::new())?) };
        let row = VectorFile::from_rows(Element::F32, 1, vec![0; 4])?;
        Ok((planned_memory(&row, &told) * HELD_SHARE).div_ceil(HELD_SHARE - 1))
    }
}

/// What a writer has begun; what of it is not to stay goes with this value.
#[derive(Debug)]
pub(super) struct Begun {
    place: Place,
    draft: Option<Box<dyn Draft>>,
    /// Generations that are published, or may be, in the order in which they are removed.
    published: Vec<String>,
    /// Whether another writer can go on with it.
    pub(super) resumable: bool,
    /// The segments that its rows come from, where it is a merge.
    pub(super) merged: Vec<String>,
    /// For each field, the scale of the largest segment, which new rows take up; empty in a merge.
    beside: Vec<Option<StoredBefore>>,
}

impl Begun {
    pub(super) fn of(place: Place, draft: Box<dyn Draft>) -> Begun {
        Begun {
            place,
            draft: Some(draft),
            published: Vec::new(),
            resumable: false,
            merged: Vec::new(),
            beside: Vec::new(),
        }
    }

    /// Leaves it to another writer.
    fn leave(mut self) -> Result<(), CollectionError> {
        self.published.clear();
        Ok(self.draft.take().map_or(Ok(()), Draft::leave)?)
    }

    /// How the vectors of a field were stored before, or those of the segment that these will lie beside.
    fn stored_before(&self, field: usize) -> Result<StoredBefore, CollectionError> {
        if self.merged.is_empty() {
            return Ok(self.beside.get(field).copied().flatten().unwrap_or(StoredBefore::NEVER));
        }
        let (mut errors, mut rows) = (Vec::new(), 0);
        let (mut scale, mut most) = (None, 0);
        for segment in &self.merged {
            let manifest = index_of(&self.place, segment, field)?;
            rows += manifest.vectors;
            let before = manifest.stored_before().map_err(CollectionError::Internal)?;
            let before = before.unwrap_or(StoredBefore::NEVER);
            errors.push((before.component_error, manifest.vectors));
            if before.scale.is_some() && manifest.vectors > most {
                (scale, most) = (before.scale, manifest.vectors);
            }
        }
        // That of the row in the middle: a mean would be that of the longest rows.
        errors.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut passed = 0;
        let middle = errors.iter().find(|(_, vectors)| {
            passed += vectors;
            passed > rows / 2
        });
        let component_error = middle.map_or(0.0, |(error, _)| *error);
        Ok(StoredBefore { scale, component_error })
    }

    fn draft(&self) -> Result<&dyn Draft, CollectionError> {
        self.draft
            .as_deref()
            .ok_or_else(|| CollectionError::Internal("the segment is published already".into()))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // What cannot be removed is found by its name, which no version has.
        for name in self.published.drain(..) {
            let _ = self.place.store().delete(&name);
        }
    }
}

/// The rows of a segment once they are written, before its indexes are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Written {
    rows: u32,
    /// The smallest id, and the largest.
    bounds: (IdEntry, IdEntry),
    pub(super) ids: FileEntry,
    fence: FenceEntry,
    pub(super) parquet: FileEntry,
    pub(super) sums: FileEntry,
}

/// Writes one segment. Dropped before it is finished, it removes what it has begun.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    schema: Arc<Schema>,
    collection: String,
    name: String,
    options: WriteOptions,
    ids: IdWriter,
    columns: ArrowWriter<FileWriter>,
    vectors: Vec<Spool>,
    spilled: bool,
    rows: u32,
    first: Option<Id>,
    /// The last id, alone.
    last: Option<Ids>,
    begun: Begun,
    merged: Option<Merged>,
}

impl SegmentWriter {
    /// Begins the segment `name` of the collection with the id `collection`.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn begin(
        place: &Place,
        schema: Arc<Schema>,
        collection: &str,
        name: String,
        options: &WriteOptions,
    ) -> Result<SegmentWriter, CollectionError> {
        let draft = place.store().begin(&Part::Segment(name.clone(), None).name(), Replace::Never)?;
        let identity = identity(collection, &name);
        let ids = IdWriter::begin(&*draft, IDS_NAME, schema.id_kind, identity)?;
        let file = FileWriter::begin(&*draft, ROWS_NAME, identity)?;
        let columns = ArrowWriter::try_new(file, schema.with_ids(), Some(properties()?))
            .map_err(|source| CollectionError::Parquet { path: draft.address().join(ROWS_NAME), source })?;
        Ok(SegmentWriter {
            collection: collection.into(),
            name,
            options: options.clone(),
            ids,
            columns,
            vectors: (0..schema.vectors.len()).map(Spool::new).collect(),
            spilled: false,
            rows: 0,
            first: None,
            last: None,
            begun: Begun::of(place.clone(), draft),
            merged: None,
            schema,
        })
    }

    /// Says what it is merged from: with that, another one can go on with it once its rows are written, unless they are so few that
    /// their vectors are held in memory.
    pub(crate) fn merging(self, merged: Merged) -> SegmentWriter {
        SegmentWriter { merged: Some(merged), ..self }
    }

    /// Says what [`stored_beside`] told of the segment that it will be merged with.
    pub(crate) fn beside(mut self, beside: Vec<Option<StoredBefore>>) -> SegmentWriter {
        self.begun.beside = beside;
        self
    }

    /// Takes the next rows: their `ids`, which rise and are above those before; of every field their `vectors`, one after the
    /// other, little-endian; the columns of the schema.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for rows that do not fit, of which none is taken; [`CollectionError::Store`] and others, after
    /// which the writer is of no use.
    pub(crate) fn push(
        &mut self,
        ids: &Ids,
        vectors: &[&[u8]],
        columns: &RecordBatch,
    ) -> Result<(), CollectionError> {
        self.check(ids, vectors, columns)?;
        let count = ids.len();
        if count == 0 {
            return Ok(());
        }
        for (at, row) in (0..count).zip(self.rows..) {
            self.ids.push(row, key(ids, at))?;
        }
        let arrays = std::iter::once(ids.to_array()).chain(columns.columns().iter().cloned());
        let batch = RecordBatch::try_new(self.schema.with_ids(), arrays.collect())?;
        let written = self.columns.write(&batch);
        written.map_err(|source| failed(&self.columns.inner().failing(), &self.begun, source))?;
        for (spool, rows) in self.vectors.iter_mut().zip(vectors) {
            spool.push(rows)?;
        }
        let WriteOptions { memory_bytes, held_bytes, .. } = self.options;
        let most = memory_bytes.map_or(held_bytes, |given| held_bytes.min(given / HELD_SHARE));
        if !self.spilled && self.held_bytes() > most {
            let draft = self.begun.draft()?;
            self.vectors.iter_mut().try_for_each(|spool| spool.spill(draft))?;
            self.spilled = true;
        }
        self.first.get_or_insert_with(|| ids.get(0));
        // A copy: a slice would keep all of them.
        self.last = Some(Ids::of(ids.kind(), &[ids.get(count - 1)])?);
        self.rows += count as u32;
        Ok(())
    }

    fn held_bytes(&self) -> u64 {
        self.vectors.iter().map(Spool::held_bytes).sum()
    }

    fn check(&self, ids: &Ids, vectors: &[&[u8]], columns: &RecordBatch) -> Result<(), CollectionError> {
        let refuse = |reason: String| Err(CollectionError::Parameter(format!("rows of a segment: {reason}")));
        if ids.kind() != self.schema.id_kind || vectors.len() != self.schema.vectors.len() {
            return refuse("the ids or the fields of vectors are not those of the schema".into());
        }
        if columns.num_rows() != ids.len() || columns.schema() != self.schema.metadata() {
            return refuse(format!("the columns do not fit {} ids and the schema", ids.len()));
        }
        for (rows, field) in vectors.iter().zip(&self.schema.vectors) {
            if Some(rows.len()) != ids.len().checked_mul(field.row_bytes()) {
                return refuse(format!("{:?}: {} bytes for {} vectors", field.name, rows.len(), ids.len()));
            }
        }
        if u64::from(self.rows) + ids.len() as u64 >= MAX_VECTORS {
            return refuse(format!("a segment has fewer than {MAX_VECTORS} rows"));
        }
        let follows = self.last.as_ref().is_none_or(|last| ids.is_empty() || last.compare(0, ids, 0).is_lt());
        if !follows || (1..ids.len()).any(|at| !ids.compare(at - 1, ids, at).is_lt()) {
            return refuse("their ids do not rise".into());
        }
        Ok(())
    }

    /// Builds the indexes and publishes the segment, which has at least one row. Returns what a version says of it.
    ///
    /// # Errors
    /// [`CollectionError`]; what of it is there then is removed, as far as that works, unless it was cancelled where another one can go
    /// on.
    pub(crate) fn finish(self, progress: &dyn Progress) -> Result<SegmentEntry, CollectionError> {
        let SegmentWriter { schema, collection, name, options, ids, columns, mut vectors, rows, .. } = self;
        let (mut begun, first, last) = (self.begun, self.first, self.last.map(|last| last.get(0)));
        let (Some(first), Some(last)) = (first, last) else {
            return Err(CollectionError::Parameter("a segment has at least one row".into()));
        };
        let (ids, fence) = ids.finish()?;
        let failing = columns.inner().failing();
        let file = columns.into_inner().map_err(|source| failed(&failing, &begun, source))?;
        let (parquet, sums) = file.finish()?;
        begun.draft()?.put(SUMS_NAME, &sums)?;
        let (bytes, crc32c) = (sums.len() as u64, crc32c::crc32c(&sums));
        let sums = FileEntry { name: SUMS_NAME.into(), bytes, crc32c };
        let bounds = (first.into(), last.into());
        let written = Written { rows, bounds, ids, fence, parquet, sums };
        let merged = self.merged.as_ref();
        begun.merged = merged.map_or_else(Vec::new, |merged| merged.left_out.keys().cloned().collect());
        if let Some(merged) = self.merged.filter(|_| self.spilled) {
            let draft = begun.draft()?;
            let files = vectors.iter_mut().map(|spool| spool.settle(draft)).collect::<Result<_, _>>()?;
            unfinished::note(draft, (&collection, &name), (&written, files), &merged, options.threads)?;
            begun.resumable = true;
        }
        indexes(begun, (&schema, collection, name), (written, vectors), &options, progress)
    }
}

/// Builds the indexes of a segment whose rows are `written` and its vectors in `fields`, and publishes it.
///
/// # Errors
/// As [`SegmentWriter::finish`].
pub(super) fn indexes(
    mut begun: Begun,
    (schema, collection, name): (&Schema, String, String),
    (written, fields): (Written, Vec<Spool>),
    options: &WriteOptions,
    progress: &dyn Progress,
) -> Result<SegmentEntry, CollectionError> {
    // What was held of the columns is given up before indexes are built, and what building held, after.
    let much = fields.iter().map(Spool::bytes).sum::<u64>() + written.parquet.bytes >= GIVEN_BACK_BYTES;
    let give_back = || {
        if much {
            give_back_memory()
        }
    };
    give_back();
    let finished = finished(&mut begun, (schema, collection, name), (written, fields), options, progress);
    give_back();
    match finished {
        Err(CollectionError::Cancelled) if begun.resumable => {
            begun.leave()?;
            Err(CollectionError::Cancelled)
        }
        finished => finished,
    }
}

fn finished(
    begun: &mut Begun,
    (schema, collection, name): (&Schema, String, String),
    (written, fields): (Written, Vec<Spool>),
    options: &WriteOptions,
    progress: &dyn Progress,
) -> Result<SegmentEntry, CollectionError> {
    let indexes = build_all(begun, &name, schema, fields, options, progress)?;
    let Written { rows, bounds, ids, fence, parquet, sums } = written;
    let manifest = Manifest {
        bathyal_segment: FORMAT,
        collection,
        segment: name.clone(),
        rows,
        id: schema.id_kind,
        columns: schema.columns.clone(),
        ids,
        fence,
        parquet,
        sums,
        vectors: indexes,
    };
    let text = seal(&manifest)?;
    let (manifest_crc32c, _) = unseal(&text).map_err(CollectionError::Internal)?;
    publish(begun, Part::Segment(name.clone(), None).name(), &text, progress)?;
    let files = manifest.files().iter().map(|file| file.bytes).sum::<u64>();
    let bytes = files + text.len() as u64 + manifest.vectors.iter().map(|index| index.bytes).sum::<u64>();
    let (ids, hasty) = (bounds, false);
    Ok(SegmentEntry { name, rows, bytes, ids, manifest_crc32c, deleted: 0, deleted_crc32c: 0, hasty })
}

/// Builds the index of each field, unless that is there already.
fn build_all(
    begun: &mut Begun,
    name: &str,
    schema: &Schema,
    fields: Vec<Spool>,
    options: &WriteOptions,
    progress: &dyn Progress,
) -> Result<Vec<IndexEntry>, CollectionError> {
    let mut indexes = Vec::with_capacity(fields.len());
    let mut held = fields.iter().map(Spool::held_bytes).sum::<u64>();
    for (field, spool) in fields.into_iter().enumerate() {
        let (own, generation) = (spool.held_bytes(), Part::Segment(name.into(), Some(field)).name());
        // Of a segment that another writer has begun.
        if begun.resumable && begun.place.store().list()?.contains(&generation) {
            begun.published.push(generation.clone());
        } else {
            let data = spool.finish(begun.draft()?, &schema.vectors[field])?;
            let memory_bytes = options.memory_bytes.map(|given| given.saturating_sub(held));
            let options = WriteOptions { memory_bytes, ..options.clone() };
            let own = (&schema.vectors[field], field);
            build(begun, &generation, own, &data, &options, progress)?;
        }
        indexes.push(entry_of(begun, &generation, &schema.vectors[field])?);
        held -= own;
        Spool::remove(begun.draft()?, field)?;
    }
    Ok(indexes)
}

/// The manifest of the index of a field of a segment.
fn index_of(place: &Place, segment: &str, field: usize) -> Result<IndexManifest, CollectionError> {
    let built = place.store().open(&Part::Segment(segment.into(), Some(field)).name())?;
    Ok(IndexManifest::load(&*built)?)
}

/// What is told of each field of new rows that will be merged with those of a segment: the scale of its bytes. Only fields that are
/// stored as bytes have one. A segment that a merge has removed meanwhile says nothing: the scale of the new rows is then rounded to
/// that of the others once more than it must.
pub(crate) fn stored_beside(
    place: &Place,
    schema: &Schema,
    segment: Option<&str>,
) -> Vec<Option<StoredBefore>> {
    let of_bytes =
        |field: &VectorField| field.store_as == Some(StoreAs::I8) && field.metric != Metric::Cosine;
    let of = |(number, field): (usize, &VectorField)| {
        let manifest = index_of(place, segment.filter(|_| of_bytes(field))?, number).ok()?;
        let before = manifest.stored_before().ok()??;
        Some(StoredBefore { component_error: 0.0, ..before })
    };
    schema.vectors.iter().enumerate().map(of).collect()
}

/// What a segment says of an index that is published.
fn entry_of(begun: &Begun, generation: &str, field: &VectorField) -> Result<IndexEntry, CollectionError> {
    let built = begun.place.store().open(generation)?;
    let manifest = IndexManifest::load(&*built)?;
    let bytes = manifest.index_bytes() + built.len_of(MARK).unwrap_or(0);
    Ok(IndexEntry {
        name: field.name.clone(),
        family: manifest.family.clone(),
        identity: manifest.identity.unwrap_or_default(),
        bytes,
    })
}

/// How columns are written.
fn properties() -> Result<WriterProperties, CollectionError> {
    let level = ZstdLevel::try_new(1).map_err(|error| CollectionError::Internal(error.to_string()))?;
    Ok(WriterProperties::builder()
        .set_created_by(format!("bathyal {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(PAGE_BYTES)
        .set_write_batch_size(CHECKED_ROWS)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .set_sorting_columns(Some(vec![SortingColumn {
            column_idx: 0,
            descending: false,
            nulls_first: false,
        }]))
        .build())
}

/// Why columns could not be written: what their file failed with, or what their writer did.
fn failed(file: &Failing, begun: &Begun, source: ParquetError) -> CollectionError {
    let address = || begun.draft.as_ref().map(|draft| draft.address().join(ROWS_NAME)).unwrap_or_default();
    file.take().map_or_else(|| CollectionError::Parquet { path: address(), source }, CollectionError::from)
}

/// The family of an index of so many rows.
fn family(field: &VectorField, rows: usize, flat_below: usize) -> Result<FamilyOptions, CollectionError> {
    if rows >= flat_below {
        return field.family_options();
    }
    let large = rows >= CODED_ROWS && rows.saturating_mul(field.row_bytes()) >= CODED_BYTES;
    let mut given = BTreeMap::new();
    // Bits are compared as fast as codes of them.
    if large && field.element != Element::B1 {
        let kind = if field.dim <= AXES_DIM { "axes" } else { "rabitq1" };
        given.insert("code_kind".to_string(), Value::from(kind));
    }
    Ok(families::options("flat", &given)?)
}

/// Builds the index of a field.
fn build(
    begun: &mut Begun,
    generation: &str,
    (field, number): (&VectorField, usize),
    data: &VectorFile,
    options: &WriteOptions,
    progress: &dyn Progress,
) -> Result<(), CollectionError> {
    let small = data.count() < options.flat_below_rows;
    // The few are not worth a loss.
    let store_as = field.store_as.filter(|_| !small);
    let mut told = BuildOptions {
        metric: field.metric,
        threads: options.threads,
        seed: options.seed,
        memory_bytes: options.memory_bytes,
        calibration_queries: options.calibration_queries,
        store_as,
        stored_before: store_as.map(|_| begun.stored_before(number)).transpose()?,
        ..BuildOptions::of(family(field, data.count(), options.flat_below_rows)?)
    };
    // What can be written only in more memory would never be: rows would stay in the log, and further ones be refused.
    if let Some(given) = options.memory_bytes
        && planned_memory(data, &told) > given
    {
        told.family = families::options("flat", &BTreeMap::new())?;
        if planned_memory(data, &told) > given {
            told.threads = 1;
        }
    }
    let store = begun.place.store();
    // Of one that another writer can go on with, what is built so far stays, too.
    let built = match begun.resumable {
        true => build_in(data, &KeepDrafts::new(store), generation, &told, progress),
        false => build_in(data, store, generation, &told, progress),
    };
    if begun.resumable && !matches!(built, Ok(_) | Err(IndexError::Cancelled)) {
        drop(store.abandoned(generation, Replace::Never));
    }
    match built {
        // It is another one's.
        Err(error @ (IndexError::Exists { .. } | IndexError::Store(StoreError::Exists { .. }))) => {
            Err(error.into())
        }
        // One that fails may be there all the same.
        built => {
            begun.published.push(generation.into());
            built.map(drop).map_err(CollectionError::from)
        }
    }
}

/// Publishes what lies in the draft, as `rows`, under this manifest.
fn publish(
    begun: &mut Begun,
    rows: String,
    manifest: &[u8],
    progress: &dyn Progress,
) -> Result<(), CollectionError> {
    let names = [IDS_NAME, ROWS_NAME, SUMS_NAME, MARK];
    let draft = begun.draft()?;
    draft.put(MARK, manifest)?;
    progress.stage("writing rows", 1);
    draft.upload(&names, "", &|_, _| !progress.cancelled())?;
    if progress.cancelled() {
        return Err(CollectionError::Cancelled);
    }
    if let Some(draft) = begun.draft.take() {
        // One that fails may have happened, and be gone with the power.
        begun.published.insert(0, rows);
        draft.publish(&names, "")?;
    }
    begun.published.clear();
    Ok(())
}
