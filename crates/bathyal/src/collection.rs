//! Rows with ids, vectors and metadata that change at any time, and searches with filters.
//!
//! ```
//! use bathyal::collection::{
//!     Collection, CollectionError, CollectionOptions, Filter, Id, IdKind, Ids, Rows, Schema, SearchRequest,
//!     VectorField,
//! };
//! use bathyal::{Control, Element, Metric, VectorFile};
//!
//! # fn main() -> Result<(), CollectionError> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("my.collection");
//! let schema: Schema = serde_json::from_str(
//!     r#"{"id": "string", "vectors": [{"name": "embedding", "dim": 2, "element": "f32", "metric": "l2"}],
//!         "columns": [{"name": "year", "type": "int64"}]}"#,
//! )
//! .expect("a schema");
//! let mut collection = Collection::create(&path, schema.clone(), &CollectionOptions::default())?;
//!
//! // Three rows without metadata (`None`), which `Rows::new` takes as an Arrow RecordBatch.
//! let ids = Ids::from_ids(IdKind::Text, &["a", "b", "c"].map(|id| Id::Text(id.into())))?;
//! let vectors = [0.0_f32, 0.0, 1.0, 1.0, 2.0, 2.0].iter().flat_map(|value| value.to_le_bytes());
//! let vectors = VectorFile::from_rows(Element::F32, 2, vectors.collect())?;
//! let rows = Rows::new(&schema, ids, vec![vectors.clone()], None)?;
//! assert_eq!(collection.add(rows)?.added, 3);
//!
//! // From now on every query finds them, also after a crash.
//! let filter = Filter::parse("id != 'b' and year is null")?;
//! let request = SearchRequest { k: 1, filter: Some(filter), ..SearchRequest::default() };
//! let found = collection.search(&vectors, &request, Control::default())?;
//! let ids = (found.ids.get(0), found.ids.get(2));
//! assert_eq!((found.matches, ids), (2, (Id::Text("a".into()), Id::Text("c".into()))));
//!
//! assert_eq!(collection.delete_matching(&Filter::parse("id > 'a'")?, Control::default())?.deleted, 2);
//! drop(collection);
//! collection = Collection::open(&path, &CollectionOptions::default())?;
//! assert_eq!(collection.count(None, Control::default())?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Contents
//!
//! | task | items |
//! |---|---|
//! | create or open a collection | [`Collection::create`], [`Collection::open`], [`CollectionOptions`] |
//! | define the ids, vectors and columns of rows | [`Schema`], [`VectorField`], [`Column`], [`ColumnKind`] |
//! | write rows | [`Collection::add`], [`Collection::upsert`], [`Rows`] |
//! | change the metadata of rows, or delete rows | [`Collection::update`], [`Collection::delete`] |
//! | search, with a filter, at a recall | [`Collection::search`], [`SearchRequest`], [`Filter`] |
//! | search several collections together | [`search_many`](search_many()) |
//! | read rows by id or in the order of their ids | [`Collection::get`], [`Collection::scan`] |
//! | count rows | [`Collection::count`] |
//! | keep the state of a moment while others write | [`Collection::snapshot`], [`Snapshot`] |
//! | see what other processes have written | [`Collection::refresh`] |
//! | read and write files of rows | [`exchange`] |
//! | remove a collection, or whatever is at a path | [`Collection::remove`], [`remove`] |
//! | maintain a collection | [`Collection::compact`], [`Collection::verify`] |
//! | warm a collection up, count its searches | [`Collection::warm`], [`Collection::stats`] |
//! | describe or copy a collection | [`Collection::describe`], [`Collection::copy_to`] |

pub use bathyal_collection::exchange;
pub use bathyal_collection::{
    BoundFilter, Collection, CollectionError, CollectionLocation, CollectionOptions, CollectionStats, Column,
    ColumnKind, CompactOptions, CompactionReport, CopiedCollection, DEFAULT_WRITE_MEMORY_BYTES, Description,
    Durability, FetchedRows, Filter, FilterError, FoundInMany, FoundRows, ID_COLUMN, Id, IdKind, Ids,
    Judgement, MAX_ID_BYTES, PartPlan, Projection, Removal, RemovedCollection, RemovedKind, Rows, RowsById,
    Scan, Schema, SearchCounts, SearchRequest, SegmentDescription, Snapshot, VectorField, Written,
    is_collection, removable, remove, search_many,
};
