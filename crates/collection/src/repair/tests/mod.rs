//! Tests of repairs: each file of a collection is damaged.

mod files;
mod logs;
mod unnamed;

use super::{RepairOptions, RepairReport};
use crate::collection::Collection;
use crate::error::CollectionError;
use crate::ids::{Id, IdKind, Ids};
use crate::location::CollectionLocation;
use crate::options::CollectionOptions;
use crate::rows::Rows;
use crate::schema::{Column, Schema, VectorField};
use crate::snapshot::Projection;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, Int64Array, RecordBatch, StringArray};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Content of a row: each vector as bytes, and the values of its columns.
type Row = (Vec<Vec<u8>>, Option<i64>, Option<String>);
type Content = BTreeMap<Id, Row>;

fn schema(kind: IdKind, columns: bool) -> Schema {
    let mut large = VectorField::new("large", 16, Element::U8, Metric::L2);
    large.family = "graph".into();
    let fields = vec![VectorField::new("small", 6, Element::F32, Metric::L2), large];
    let column = |name: &str, kind: &str| Column { name: name.into(), kind: kind.parse().unwrap() };
    let columns = if columns { vec![column("year", "int64"), column("name", "string")] } else { Vec::new() };
    Schema { id_kind: kind, vectors: fields, columns }
}

fn options() -> CollectionOptions {
    CollectionOptions {
        background: false,
        compact: false,
        threads: 1,
        // One of two segments is large enough for clusters.
        flat_below_rows: 600,
        ..CollectionOptions::default()
    }
}

fn id(kind: IdKind, number: u64) -> Id {
    if kind == IdKind::Number { Id::Number(3 * number) } else { Id::Text(format!("row/{number:06}/of many")) }
}

/// Returns row `number` in its version `time`.
fn row(schema: &Schema, number: u64, time: u64) -> Row {
    let seed = number.wrapping_mul(2_654_435_761).wrapping_add(time * 97);
    let small: Vec<u8> =
        (0..6).flat_map(|at| ((seed >> (3 * at) & 1023) as f32 + time as f32).to_le_bytes()).collect();
    let large: Vec<u8> = (0..16).map(|at| (seed >> (2 * at)) as u8).collect();
    let (year, name) = (!number.is_multiple_of(5), !number.is_multiple_of(7));
    let columns = !schema.columns.is_empty();
    let year = (year && columns).then_some((number + 10_000 * time) as i64);
    let name = (name && columns).then(|| format!("the name of {number}, {time} {}", "x".repeat(60)));
    (vec![small, large], year, name)
}

/// A collection, with its expected content.
struct TestCollection {
    folder: tempfile::TempDir,
    schema: Schema,
    expected: Content,
}

impl TestCollection {
    fn path(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    fn put(&mut self, collection: &Collection, numbers: impl Iterator<Item = u64>, time: u64) {
        let rows: Vec<(Id, Row)> =
            numbers.map(|at| (id(self.schema.id_kind, at), row(&self.schema, at, time))).collect();
        let ids: Vec<Id> = rows.iter().map(|(id, _)| id.clone()).collect();
        let field = |at: usize| -> VectorFile {
            let bytes = rows.iter().flat_map(|(_, row)| row.0[at].clone()).collect();
            let field = &self.schema.vectors[at];
            VectorFile::from_rows(field.element, field.dim, bytes).unwrap()
        };
        let years: Int64Array = rows.iter().map(|(_, row)| row.1).collect();
        let names: StringArray = rows.iter().map(|(_, row)| row.2.clone()).collect();
        let columns = [("year", Arc::new(years) as _), ("name", Arc::new(names) as _)];
        let columns = RecordBatch::try_from_iter(columns).unwrap();
        let columns = Some(&columns).filter(|_| !self.schema.columns.is_empty());
        let ids = Ids::from_ids(self.schema.id_kind, &ids).unwrap();
        let all_rows = Rows::new(&self.schema, ids, vec![field(0), field(1)], columns).unwrap();
        collection.upsert(all_rows).unwrap();
        self.expected.extend(rows);
    }

    fn delete(&mut self, collection: &Collection, numbers: impl Iterator<Item = u64>) {
        let ids: Vec<Id> = numbers.map(|at| id(self.schema.id_kind, at)).collect();
        collection.delete(Ids::from_ids(self.schema.id_kind, &ids).unwrap()).unwrap();
        ids.iter().for_each(|id| {
            self.expected.remove(id);
        });
    }

    /// Creates two segments, with later deletes and replacements, and three batches in the log.
    fn new(kind: IdKind, columns: bool) -> TestCollection {
        let (folder, schema) = (tempfile::tempdir().unwrap(), schema(kind, columns));
        let mut test_collection = TestCollection { folder, schema: schema.clone(), expected: Content::new() };
        let collection = Collection::create(test_collection.path(), schema, &options()).unwrap();
        test_collection.put(&collection, 0..900, 0);
        collection.flush().unwrap();
        test_collection.put(&collection, (850..1200).filter(|at| at % 2 == 0), 1);
        test_collection.delete(&collection, 100..130);
        collection.flush().unwrap();
        test_collection.put(&collection, (0..1300).step_by(90), 2);
        test_collection.delete(&collection, 500..510);
        test_collection.put(&collection, 2000..2020, 3);
        test_collection
    }

    /// Returns every file that a test may damage.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for generation in std::fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path()) {
            files.extend(std::fs::read_dir(generation).unwrap().map(|entry| entry.unwrap().path()));
        }
        files.retain(|file| std::fs::metadata(file).unwrap().len() > 0);
        files.sort();
        files
    }

    /// Repairs it into `to`.
    fn repair(&self, to: &Path, what: &RepairOptions) -> Result<RepairReport, CollectionError> {
        let to = (to, &Default::default());
        Collection::repair(self.path(), &options(), to, what, &Silent)
    }
}

/// Reads the content of a collection.
fn content(path: &Path, schema: &Schema) -> Content {
    let collection = Collection::open(path, &options()).unwrap();
    assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new());
    let names = schema.vectors.iter().map(|field| field.name.clone()).collect();
    let mut scan = collection
        .scan(None, &Projection { columns: None, vectors: names }, None, Control::default())
        .unwrap();
    let mut content = Content::new();
    while let Some(batch) = scan.next(1000, Default::default()).unwrap() {
        for at in 0..batch.ids.len() {
            let vector = |(field, all): (&VectorField, &bathyal_index::StoredVectors)| {
                all.bytes[at * field.row_bytes()..][..field.row_bytes()].to_vec()
            };
            let vectors = schema.vectors.iter().zip(&batch.vectors).map(vector).collect();
            let (mut year, mut name) = (None, None);
            if !schema.columns.is_empty() {
                let years = batch.columns.column(0).as_primitive::<Int64Type>();
                let names = batch.columns.column(1).as_string::<i32>();
                year = years.is_valid(at).then(|| years.value(at));
                name = names.is_valid(at).then(|| names.value(at).to_string());
            }
            content.insert(batch.ids.get(at), (vectors, year, name));
        }
    }
    content
}

/// Returns the location of a folder.
fn at(path: &Path) -> CollectionLocation {
    CollectionLocation::at(path, &Default::default()).unwrap()
}
