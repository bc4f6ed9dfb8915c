//! Writes a segment: its rows in the order of their ids, then the index of each vector field, then the
//! manifest, which makes it a segment.

use super::block::key;
use super::file_writer::{FileEntry, FileWriter, WriteFailure};
use super::id_writer::{FenceEntry, IdWriter};
use super::manifest::{FORMAT, IDS_NAME, IndexEntry, Manifest, ROWS_NAME, SUMS_NAME, identity};
use super::spool::Spool;
use super::unfinished::{self, MergeSources};
use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::location::{CollectionLocation, MARK, Part};
use crate::schema::{Schema, VectorField};
use crate::seal::{seal, unseal};
use crate::version::{IdEntry, SegmentEntry};
use arrow_array::RecordBatch;
use bathyal_index::build::options::MOST_CALIBRATION_QUERIES;
use bathyal_index::build::planned_memory;
use bathyal_index::cost::merging::FLAT_BELOW_ROWS;
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

/// A flat index gets codes if its vectors take at least this many bytes. Comparing fewer takes about 0.1 ms,
/// in which a device reads only a page or two.
const CODED_BYTES: usize = 1 << 20;
/// The fewest vectors on which codes are trained.
const CODED_ROWS: usize = 1000;
/// Up to this dimension, these codes are along principal axes. Such codes rule out more vectors, but
/// computing the axes takes the cube of the dimension: one second at about 1000, too long for a segment that
/// is soon merged.
const AXES_DIM: usize = 512;
/// Bytes of vectors that a writer buffers in memory before it spills them to the disk. Flat segments usually
/// take less.
const BUFFER_BYTES: u64 = 64 << 20;
/// A writer with a memory limit buffers at most the limit divided by this; the rest is for building indexes.
const BUFFER_SHARE: u64 = 8;
/// From this size of a segment on, freed memory is given back to the system explicitly. The allocator then
/// walks all memory of the process, which takes too long for a small segment.
const GIVE_BACK_BYTES: u64 = 4 << 20;
/// Rows of a page of a column: the unit of a read of a single row.
const PAGE_ROWS: usize = 1024;
/// Bytes of a page of a column.
const PAGE_BYTES: usize = 64 << 10;
/// Values between checks of the page size; few, so that pages of long texts do not become much larger.
const PAGE_CHECK_ROWS: usize = 128;
/// The most rows of a row group.
const GROUP_ROWS: usize = 128 << 10;
/// The most bytes of a row group, which is in memory until it is written.
const GROUP_BYTES: usize = 16 << 20;

/// How to write a segment.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    /// Bytes of memory that writing may take; `None` means no limit.
    pub(crate) memory_bytes: Option<u64>,
    /// Bytes of vectors to buffer in memory; at most an eighth of `memory_bytes`.
    pub(crate) held_bytes: u64,
    /// Threads of builds; 0 means one per core.
    pub(crate) threads: usize,
    /// Segments of fewer rows have `flat` indexes, whatever the schema says.
    pub(crate) flat_below_rows: usize,
    /// The most queries of a calibration.
    pub(crate) calibration_queries: usize,
    /// Seed of everything random.
    pub(crate) seed: u64,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions {
            memory_bytes: None,
            held_bytes: BUFFER_BYTES,
            threads: 0,
            flat_below_rows: FLAT_BELOW_ROWS,
            calibration_queries: MOST_CALIBRATION_QUERIES,
            seed: DEFAULT_SEED,
        }
    }
}

impl WriteOptions {
    /// Returns the least `memory_bytes` with which every segment can be written, if necessary with one thread
    /// and without codes: the need of the family `flat`, plus the buffered vectors.
    ///
    /// # Errors
    /// [`CollectionError::Index`], which does not happen.
    pub(crate) fn least_memory_bytes() -> Result<u64, CollectionError> {
        let build_options =
            BuildOptions { threads: 1, ..BuildOptions::of(families::options("flat", &BTreeMap::new())?) };
        let row = VectorFile::from_rows(Element::F32, 1, vec![0; 4])?;
        Ok((planned_memory(&row, &build_options) * BUFFER_SHARE).div_ceil(BUFFER_SHARE - 1))
    }
}

/// A segment that is being written. Dropping it removes everything that must not stay.
#[derive(Debug)]
pub(super) struct DraftSegment {
    place: CollectionLocation,
    draft: Option<Box<dyn Draft>>,
    /// Generations that are published or may be, in the order of their removal.
    published: Vec<String>,
    /// True if a later writer can continue the segment.
    pub(super) resumable: bool,
    /// The merged segments, if this is a merge.
    pub(super) merged: Vec<String>,
    /// For each field, how the largest segment stores its vectors; new rows use the same scale. Empty in a
    /// merge.
    largest_scales: Vec<Option<StoredBefore>>,
}

impl DraftSegment {
    pub(super) fn new(place: CollectionLocation, draft: Box<dyn Draft>) -> DraftSegment {
        DraftSegment {
            place,
            draft: Some(draft),
            published: Vec::new(),
            resumable: false,
            merged: Vec::new(),
            largest_scales: Vec::new(),
        }
    }

    /// Leaves the segment for a later writer.
    fn keep_for_later(mut self) -> Result<(), CollectionError> {
        self.published.clear();
        Ok(self.draft.take().map_or(Ok(()), Draft::leave)?)
    }

    /// Returns how the vectors of a field were stored before. For new rows: how the largest segment stores
    /// them.
    fn stored_before(&self, field: usize) -> Result<StoredBefore, CollectionError> {
        if self.merged.is_empty() {
            return Ok(self.largest_scales.get(field).copied().flatten().unwrap_or(StoredBefore::NEVER));
        }
        let (mut errors, mut rows) = (Vec::new(), 0);
        let (mut scale, mut most_vectors) = (None, 0);
        for segment in &self.merged {
            let manifest = index_manifest(&self.place, segment, field)?;
            rows += manifest.vectors;
            let before = manifest.stored_before().map_err(CollectionError::Internal)?;
            let before = before.unwrap_or(StoredBefore::NEVER);
            errors.push((before.component_error, manifest.vectors));
            if before.scale.is_some() && manifest.vectors > most_vectors {
                (scale, most_vectors) = (before.scale, manifest.vectors);
            }
        }
        // The median error by rows, since the longest rows dominate a mean.
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

impl Drop for DraftSegment {
    fn drop(&mut self) {
        // A generation that cannot be removed now can be found later: no version names it.
        for name in self.published.drain(..) {
            let _ = self.place.store().delete(&name);
        }
    }
}

/// The files of the rows of a segment, before its indexes are built.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WrittenRows {
    rows: u32,
    /// The smallest and the largest id.
    bounds: (IdEntry, IdEntry),
    pub(super) ids: FileEntry,
    fence: FenceEntry,
    pub(super) parquet: FileEntry,
    pub(super) sums: FileEntry,
}

/// Writes one segment. Dropping it before it is finished removes it.
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
    /// The last id, as a list of one.
    last: Option<Ids>,
    segment_draft: DraftSegment,
    merged: Option<MergeSources>,
}

impl SegmentWriter {
    /// Begins the segment `name` of the collection with the identity `collection`.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn begin(
        place: &CollectionLocation,
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
            segment_draft: DraftSegment::new(place.clone(), draft),
            merged: None,
            schema,
        })
    }

    /// Sets the segments that it is merged from. If the writer is then stopped after its rows are written, a
    /// later merge can continue it, unless its vectors are few enough to be in memory.
    pub(crate) fn with_merge_sources(self, merged: MergeSources) -> SegmentWriter {
        SegmentWriter { merged: Some(merged), ..self }
    }

    /// Sets the result of [`largest_segment_scales`].
    pub(crate) fn with_largest_scales(mut self, scales: Vec<Option<StoredBefore>>) -> SegmentWriter {
        self.segment_draft.largest_scales = scales;
        self
    }

    /// Adds the next rows. Their `ids` are ascending and above all earlier ones. `vectors` has, for each
    /// field, the vectors of all rows (`rows x dim`, row-major, little-endian). `columns` are those of the
    /// schema.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for rows that do not fit; then none is added. After
    /// [`CollectionError::Store`] and other errors the writer must not be used any more.
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
        written.map_err(|source| {
            column_error(&self.columns.inner().write_failure(), &self.segment_draft, source)
        })?;
        for (spool, rows) in self.vectors.iter_mut().zip(vectors) {
            spool.push(rows)?;
        }
        let WriteOptions { memory_bytes, held_bytes, .. } = self.options;
        let limit = memory_bytes.map_or(held_bytes, |given| held_bytes.min(given / BUFFER_SHARE));
        if !self.spilled && self.held_bytes() > limit {
            let draft = self.segment_draft.draft()?;
            self.vectors.iter_mut().try_for_each(|spool| spool.spill(draft))?;
            self.spilled = true;
        }
        self.first.get_or_insert_with(|| ids.get(0));
        // A copy, since a slice would keep all ids in memory.
        self.last = Some(Ids::from_ids(ids.kind(), &[ids.get(count - 1)])?);
        self.rows += count as u32;
        Ok(())
    }

    fn held_bytes(&self) -> u64 {
        self.vectors.iter().map(Spool::held_bytes).sum()
    }

    fn check(&self, ids: &Ids, vectors: &[&[u8]], columns: &RecordBatch) -> Result<(), CollectionError> {
        let refuse = |reason: String| Err(CollectionError::Parameter(format!("rows of a segment: {reason}")));
        if ids.kind() != self.schema.id_kind || vectors.len() != self.schema.vectors.len() {
            return refuse("the ids or the vector fields do not fit the schema".into());
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
            return refuse("the ids are not in ascending order".into());
        }
        Ok(())
    }

    /// Builds the indexes and publishes the segment, which has at least one row. Returns its entry for a
    /// version.
    ///
    /// # Errors
    /// [`CollectionError`]. What was written is then removed as far as possible, unless the writer was
    /// cancelled and a later one can continue.
    pub(crate) fn finish(self, progress: &dyn Progress) -> Result<SegmentEntry, CollectionError> {
        let SegmentWriter { schema, collection, name, options, ids, columns, mut vectors, rows, .. } = self;
        let (mut segment_draft, first, last) =
            (self.segment_draft, self.first, self.last.map(|last| last.get(0)));
        let (Some(first), Some(last)) = (first, last) else {
            return Err(CollectionError::Parameter("a segment has at least one row".into()));
        };
        let (ids, fence) = ids.finish()?;
        let write_failure = columns.inner().write_failure();
        let file =
            columns.into_inner().map_err(|source| column_error(&write_failure, &segment_draft, source))?;
        let (parquet, sums) = file.finish()?;
        segment_draft.draft()?.put(SUMS_NAME, &sums)?;
        let (bytes, crc32c) = (sums.len() as u64, crc32c::crc32c(&sums));
        let sums = FileEntry { name: SUMS_NAME.into(), bytes, crc32c };
        let bounds = (first.into(), last.into());
        let written = WrittenRows { rows, bounds, ids, fence, parquet, sums };
        let merged = self.merged.as_ref();
        segment_draft.merged =
            merged.map_or_else(Vec::new, |merged| merged.left_out.keys().cloned().collect());
        if let Some(merged) = self.merged.filter(|_| self.spilled) {
            let draft = segment_draft.draft()?;
            let files = vectors.iter_mut().map(|spool| spool.sync(draft)).collect::<Result<_, _>>()?;
            unfinished::write_note(draft, (&collection, &name), (&written, files), &merged, options.threads)?;
            segment_draft.resumable = true;
        }
        let segment = UnbuiltSegment { schema: &schema, collection, name, written, fields: vectors };
        build_indexes(segment_draft, segment, &options, progress)
    }
}

/// A segment whose rows are written and whose indexes are missing.
pub(super) struct UnbuiltSegment<'a> {
    pub(super) schema: &'a Schema,
    /// The identity of the collection.
    pub(super) collection: String,
    pub(super) name: String,
    pub(super) written: WrittenRows,
    /// The vectors of each field.
    pub(super) fields: Vec<Spool>,
}

/// Builds the indexes of a segment, and publishes it.
///
/// # Errors
/// As [`SegmentWriter::finish`].
pub(super) fn build_indexes(
    mut segment_draft: DraftSegment,
    segment: UnbuiltSegment<'_>,
    options: &WriteOptions,
    progress: &dyn Progress,
) -> Result<SegmentEntry, CollectionError> {
    // The memory of the columns is given back before indexes are built, and the memory of the builds
    // afterwards.
    let vector_bytes = segment.fields.iter().map(Spool::bytes).sum::<u64>();
    let large = vector_bytes + segment.written.parquet.bytes >= GIVE_BACK_BYTES;
    let give_back = || {
        if large {
            give_back_memory()
        }
    };
    give_back();
    let published = build_and_publish(&mut segment_draft, segment, options, progress);
    give_back();
    match published {
        Err(CollectionError::Cancelled) if segment_draft.resumable => {
            segment_draft.keep_for_later()?;
            Err(CollectionError::Cancelled)
        }
        published => published,
    }
}

fn build_and_publish(
    segment_draft: &mut DraftSegment,
    segment: UnbuiltSegment<'_>,
    options: &WriteOptions,
    progress: &dyn Progress,
) -> Result<SegmentEntry, CollectionError> {
    let UnbuiltSegment { schema, collection, name, written, fields } = segment;
    let indexes = build_all(segment_draft, &name, schema, fields, options, progress)?;
    let WrittenRows { rows, bounds, ids, fence, parquet, sums } = written;
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
    publish(segment_draft, Part::Segment(name.clone(), None).name(), &text, progress)?;
    let files = manifest.files().iter().map(|file| file.bytes).sum::<u64>();
    let bytes = files + text.len() as u64 + manifest.vectors.iter().map(|index| index.bytes).sum::<u64>();
    let (ids, hasty) = (bounds, false);
    Ok(SegmentEntry { name, rows, bytes, ids, manifest_crc32c, deleted: 0, deleted_crc32c: 0, hasty })
}

/// Builds the index of each field, unless it exists already.
fn build_all(
    segment_draft: &mut DraftSegment,
    name: &str,
    schema: &Schema,
    fields: Vec<Spool>,
    options: &WriteOptions,
    progress: &dyn Progress,
) -> Result<Vec<IndexEntry>, CollectionError> {
    let mut indexes = Vec::with_capacity(fields.len());
    let mut buffered_bytes = fields.iter().map(Spool::held_bytes).sum::<u64>();
    for (field, spool) in fields.into_iter().enumerate() {
        let (buffered, generation) = (spool.held_bytes(), Part::Segment(name.into(), Some(field)).name());
        // An earlier writer of this segment has published this index.
        if segment_draft.resumable && segment_draft.place.store().list()?.contains(&generation) {
            segment_draft.published.push(generation.clone());
        } else {
            let data = spool.finish(segment_draft.draft()?, &schema.vectors[field])?;
            let memory_bytes = options.memory_bytes.map(|given| given.saturating_sub(buffered_bytes));
            let options = WriteOptions { memory_bytes, ..options.clone() };
            let buffered = (&schema.vectors[field], field);
            build(segment_draft, &generation, buffered, &data, &options, progress)?;
        }
        indexes.push(index_entry(segment_draft, &generation, &schema.vectors[field])?);
        buffered_bytes -= buffered;
        Spool::remove(segment_draft.draft()?, field)?;
    }
    Ok(indexes)
}

/// Reads the manifest of the index of a field of a segment.
fn index_manifest(
    place: &CollectionLocation,
    segment: &str,
    field: usize,
) -> Result<IndexManifest, CollectionError> {
    let built = place.store().open(&Part::Segment(segment.into(), Some(field)).name())?;
    Ok(IndexManifest::load(&*built)?)
}

/// Returns, for each field, how the largest segment stores its vectors, so that new rows, which are merged
/// with it later, use the same scale. Only fields that are stored as bytes have a scale. `None` also if a
/// merge has removed the segment in the meantime: the new rows then get their own scale, and the merge rounds
/// them once more.
pub(crate) fn largest_segment_scales(
    place: &CollectionLocation,
    schema: &Schema,
    segment: Option<&str>,
) -> Vec<Option<StoredBefore>> {
    let stored_as_bytes =
        |field: &VectorField| field.store_as == Some(StoreAs::I8) && field.metric != Metric::Cosine;
    let field_scale = |(number, field): (usize, &VectorField)| {
        let manifest = index_manifest(place, segment.filter(|_| stored_as_bytes(field))?, number).ok()?;
        let before = manifest.stored_before().ok()??;
        Some(StoredBefore { component_error: 0.0, ..before })
    };
    schema.vectors.iter().enumerate().map(field_scale).collect()
}

/// Returns the manifest entry of a published index.
fn index_entry(
    segment_draft: &DraftSegment,
    generation: &str,
    field: &VectorField,
) -> Result<IndexEntry, CollectionError> {
    let built = segment_draft.place.store().open(generation)?;
    let manifest = IndexManifest::load(&*built)?;
    let bytes = manifest.index_bytes() + built.len_of(MARK).unwrap_or(0);
    Ok(IndexEntry {
        name: field.name.clone(),
        family: manifest.family.clone(),
        identity: manifest.identity.unwrap_or_default(),
        bytes,
    })
}

/// Returns how columns are written.
fn properties() -> Result<WriterProperties, CollectionError> {
    let level = ZstdLevel::try_new(1).map_err(|error| CollectionError::Internal(error.to_string()))?;
    Ok(WriterProperties::builder()
        .set_created_by(format!("bathyal {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(PAGE_BYTES)
        .set_write_batch_size(PAGE_CHECK_ROWS)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .set_sorting_columns(Some(vec![SortingColumn {
            column_idx: 0,
            descending: false,
            nulls_first: false,
        }]))
        .build())
}

/// Returns the error for a failed write of columns: the error of their file if it has one.
fn column_error(file: &WriteFailure, segment_draft: &DraftSegment, source: ParquetError) -> CollectionError {
    let address =
        || segment_draft.draft.as_ref().map(|draft| draft.address().join(ROWS_NAME)).unwrap_or_default();
    file.take().map_or_else(|| CollectionError::Parquet { path: address(), source }, CollectionError::from)
}

/// Returns the family of an index of `rows` rows.
fn family(field: &VectorField, rows: usize, flat_below: usize) -> Result<FamilyOptions, CollectionError> {
    if rows >= flat_below {
        return field.family_options();
    }
    let large = rows >= CODED_ROWS && rows.saturating_mul(field.row_bytes()) >= CODED_BYTES;
    let mut given = BTreeMap::new();
    // Bits are compared as fast as their codes would be.
    if large && field.element != Element::B1 {
        let kind = if field.dim <= AXES_DIM { "axes" } else { "rabitq1" };
        given.insert("code_kind".to_string(), Value::from(kind));
    }
    Ok(families::options("flat", &given)?)
}

/// Builds the index of a field.
fn build(
    segment_draft: &mut DraftSegment,
    generation: &str,
    (field, number): (&VectorField, usize),
    data: &VectorFile,
    options: &WriteOptions,
    progress: &dyn Progress,
) -> Result<(), CollectionError> {
    let small = data.count() < options.flat_below_rows;
    // Small segments gain little from a lossy form.
    let store_as = field.store_as.filter(|_| !small);
    let mut build_options = BuildOptions {
        metric: field.metric,
        threads: options.threads,
        seed: options.seed,
        memory_bytes: options.memory_bytes,
        calibration_queries: options.calibration_queries,
        store_as,
        stored_before: store_as.map(|_| segment_draft.stored_before(number)).transpose()?,
        ..BuildOptions::of(family(field, data.count(), options.flat_below_rows)?)
    };
    // A segment that does not fit the memory could never be written: its rows would stay in the log, and
    // later writes be refused.
    if let Some(given) = options.memory_bytes
        && planned_memory(data, &build_options) > given
    {
        build_options.family = families::options("flat", &BTreeMap::new())?;
        if planned_memory(data, &build_options) > given {
            build_options.threads = 1;
        }
    }
    let store = segment_draft.place.store();
    // If a later writer can continue the segment, an unfinished index is kept, too.
    let built = match segment_draft.resumable {
        true => build_in(data, &KeepDrafts::new(store), generation, &build_options, progress),
        false => build_in(data, store, generation, &build_options, progress),
    };
    if segment_draft.resumable && !matches!(built, Ok(_) | Err(IndexError::Cancelled)) {
        drop(store.abandoned(generation, Replace::Never));
    }
    match built {
        // It belongs to another writer.
        Err(error @ (IndexError::Exists { .. } | IndexError::Store(StoreError::Exists { .. }))) => {
            Err(error.into())
        }
        // After a failure, the index may exist nevertheless.
        built => {
            segment_draft.published.push(generation.into());
            built.map(drop).map_err(CollectionError::from)
        }
    }
}

/// Publishes the files of the draft as the generation `rows`, with this manifest.
fn publish(
    segment_draft: &mut DraftSegment,
    rows: String,
    manifest: &[u8],
    progress: &dyn Progress,
) -> Result<(), CollectionError> {
    let names = [IDS_NAME, ROWS_NAME, SUMS_NAME, MARK];
    let draft = segment_draft.draft()?;
    draft.put(MARK, manifest)?;
    progress.stage("writing rows", 1);
    draft.upload(&names, "", &|_, _| !progress.cancelled())?;
    if progress.cancelled() {
        return Err(CollectionError::Cancelled);
    }
    if let Some(draft) = segment_draft.draft.take() {
        // After a failure it may be published nevertheless, and a power failure may undo that.
        segment_draft.published.insert(0, rows);
        draft.publish(&names, "")?;
    }
    segment_draft.published.clear();
    Ok(())
}
