//! Collections of all format versions: they open, have the expected content, and can be written to.
//!
//! `BATHYAL_WRITE_COLLECTIONS=FOLDER` writes those of the present version. The folder of an old version
//! cannot be made again, since the program that wrote it is gone.

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use bathyal_collection::{
    Collection, CollectionOptions, Column, CompactOptions, Filter, Id, IdKind, Ids, Projection, Rows, Schema,
    SearchRequest, VectorField,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// All format versions so far.
const VERSIONS: [u32; 1] = [1];
/// The collections of each version.
const SHAPES: [&str; 3] = ["bits", "numbers", "strings"];
/// Segments with fewer rows are flat.
const FLAT_BELOW: usize = 100;

/// The content of a collection: for each id, the number of the row and the time when it was written; these
/// determine all values.
type Content = BTreeMap<Id, (u64, u64)>;

fn field(name: &str, dim: usize, element: Element, metric: Metric) -> VectorField {
    VectorField::new(name, dim, element, metric)
}

fn schema(shape: &str) -> Schema {
    let column = |name: &str, kind: &str| Column { name: name.into(), kind: kind.parse().unwrap() };
    let (id_kind, vectors, columns) = match shape {
        "numbers" => (
            IdKind::Number,
            vec![field("v", 8, Element::F32, Metric::L2)],
            vec![column("year", "int64"), column("lang", "string")],
        ),
        "strings" => (
            IdKind::Text,
            vec![
                field("image", 16, Element::U8, Metric::L2),
                field("text", 6, Element::F32, Metric::InnerProduct),
            ],
            vec![
                column("year", "int64"),
                column("lang", "string"),
                column("tags", "list<string>"),
                column("rating", "float64"),
                column("seen", "timestamp"),
                column("flag", "bool"),
            ],
        ),
        _ => (IdKind::Text, vec![field("v", 64, Element::B1, Metric::L2)], Vec::new()),
    };
    Schema { id_kind, vectors, columns }
}

fn options() -> CollectionOptions {
    CollectionOptions {
        background: false,
        compact: false,
        threads: 1,
        flat_below_rows: FLAT_BELOW,
        ..CollectionOptions::default()
    }
}

fn id(shape: &str, number: u64) -> Id {
    if shape == "numbers" { Id::Number(number * number) } else { Id::Text(format!("{shape}/\u{e9}{number}")) }
}

/// Returns the vector of a row in a field.
fn vector(field: &VectorField, (number, time): (u64, u64)) -> Vec<u8> {
    let value = |at: usize| (number * (2 * at as u64 + 3) + 7 * time) % 97;
    match field.element {
        Element::F32 => (0..field.dim).flat_map(|at| (value(at) as f32 + 0.5).to_le_bytes()).collect(),
        _ => (0..field.row_bytes()).map(|at| value(at) as u8).collect(),
    }
}

/// Returns the columns of rows.
fn columns(schema: &Schema, rows: &[(u64, u64)]) -> RecordBatch {
    let every = |rows: &[(u64, u64)], each: u64| -> Vec<Option<u64>> {
        rows.iter().map(|(number, time)| (number % each > 0).then_some(number + 1000 * time)).collect()
    };
    let array = |column: &Column| -> ArrayRef {
        match column.name.as_str() {
            "year" => {
                Arc::new(every(rows, 5).into_iter().map(|n| n.map(|n| n as i64)).collect::<Int64Array>())
            }
            "lang" => {
                let lang = |n: u64| ["de", "en", "fr"][n as usize % 3];
                Arc::new(every(rows, 4).into_iter().map(|n| n.map(lang)).collect::<StringArray>())
            }
            "rating" => {
                let all = every(rows, 6).into_iter().map(|n| n.map(|n| n as f64 / 8.0));
                Arc::new(all.collect::<Float64Array>())
            }
            "seen" => {
                let all = every(rows, 3).into_iter().map(|n| n.map(|n| (n << 30) as i64));
                Arc::new(all.collect::<TimestampMicrosecondArray>())
            }
            "flag" => {
                Arc::new(every(rows, 2).into_iter().map(|n| n.map(|n| n % 3 == 1)).collect::<BooleanArray>())
            }
            _ => {
                let mut lists = ListBuilder::new(StringBuilder::new());
                for (number, time) in rows {
                    match number % 4 {
                        0 => lists.append_null(),
                        count => lists.append_value((1..count).map(|at| Some(format!("t{}", at + time)))),
                    }
                }
                Arc::new(lists.finish())
            }
        }
    };
    let arrays: Vec<ArrayRef> = schema.columns.iter().map(array).collect();
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema.metadata(), arrays, &options).unwrap()
}

fn put(
    collection: &Collection,
    shape: &str,
    numbers: impl Iterator<Item = u64>,
    time: u64,
    content: &mut Content,
) {
    let (schema, rows) = (schema(shape), numbers.map(|number| (number, time)).collect::<Vec<_>>());
    let ids: Vec<Id> = rows.iter().map(|(number, _)| id(shape, *number)).collect();
    let field_vectors = |field: &VectorField| {
        let bytes = rows.iter().flat_map(|row| vector(field, *row)).collect();
        VectorFile::from_rows(field.element, field.dim, bytes).unwrap()
    };
    let vectors = schema.vectors.iter().map(field_vectors).collect();
    let given = columns(&schema, &rows);
    let ids_of = Ids::from_ids(schema.id_kind, &ids).unwrap();
    collection.upsert(Rows::new(&schema, ids_of, vectors, Some(&given)).unwrap()).unwrap();
    content.extend(ids.into_iter().zip(rows));
}

fn delete(collection: &Collection, shape: &str, numbers: impl Iterator<Item = u64>, content: &mut Content) {
    let ids: Vec<Id> = numbers.map(|number| id(shape, number)).collect();
    collection.delete(Ids::from_ids(schema(shape).id_kind, &ids).unwrap()).unwrap();
    ids.iter().for_each(|id| {
        content.remove(id);
    });
}

/// Writes the content of each collection: segments with deleted and replaced rows, the larger ones with
/// groups, and a log.
fn write(collection: &Collection, shape: &str, flushed: bool) -> Content {
    let mut content = Content::new();
    let flush = || {
        if flushed {
            collection.flush().unwrap()
        }
    };
    if shape != "bits" {
        put(collection, shape, 0..160, 0, &mut content);
        flush();
        put(collection, shape, (150..200).step_by(2), 1, &mut content);
        delete(collection, shape, (10..60).step_by(7), &mut content);
        flush();
    }
    put(collection, shape, 195..215, 2, &mut content);
    delete(collection, shape, [3, 160, 196].into_iter(), &mut content);
    put(collection, shape, [4, 300].into_iter(), 3, &mut content);
    content
}

/// Compares the whole content of a collection.
fn check(collection: &Collection, shape: &str, content: &Content) {
    let schema = schema(shape);
    assert_eq!(collection.schema(), schema, "{shape}");
    let names = schema.vectors.iter().map(|field| field.name.clone()).collect();
    let mut scan = collection
        .scan(None, &Projection { columns: None, vectors: names }, None, Control::default())
        .unwrap();
    let mut expected = content.iter();
    while let Some(some) = scan.next(64, Default::default()).unwrap() {
        let rows: Vec<(&Id, &(u64, u64))> = expected.by_ref().take(some.ids.len()).collect();
        let numbers: Vec<(u64, u64)> = rows.iter().map(|(_, row)| **row).collect();
        for (at, (id, _)) in rows.iter().enumerate() {
            assert_eq!(some.ids.get(at), **id, "{shape}");
        }
        for (field, found) in schema.vectors.iter().zip(&some.vectors) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|row| vector(field, *row)).collect();
            assert_eq!(found.bytes, bytes, "{shape}: {}", field.name);
        }
        let meant = columns(&schema, &numbers);
        for (at, column) in meant.columns().iter().enumerate() {
            assert_eq!(some.columns.column(at).to_data(), column.to_data(), "{shape}, column {at}");
        }
    }
    assert!(expected.next().is_none(), "{shape}: rows are missing");
    for (number, field) in schema.vectors.iter().enumerate() {
        // Each row is found by its own vector.
        let (wanted, row) = content.iter().nth(number * 7 % content.len()).unwrap();
        let query = VectorFile::from_rows(field.element, field.dim, vector(field, *row)).unwrap();
        let request =
            SearchRequest { field: Some(field.name.clone()), k: content.len(), ..SearchRequest::default() };
        let found = collection.search(&query, &request, Default::default()).unwrap();
        let found: Vec<Id> = (0..found.k).map(|at| found.ids.get(at)).collect();
        assert!(found.contains(wanted) && found.len() == content.len(), "{shape}: {}", field.name);
    }
    if !schema.columns.is_empty() {
        let filter = Filter::parse("year >= 1000 and lang in ('de', 'en')").unwrap();
        let year = |(number, time): &(u64, u64)| number + 1000 * time;
        let matches = |row: &&(u64, u64)| {
            !row.0.is_multiple_of(5) && !row.0.is_multiple_of(4) && year(row) >= 1000 && year(row) % 3 < 2
        };
        let count = content.values().filter(matches).count() as u64;
        assert!(
            count > 5 && collection.count(Some(&filter), Control::default()).unwrap() == count,
            "{shape}: {count}"
        );
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to)
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/collections")
}

#[test]
fn collections_of_every_version_are_read_and_written_to() {
    for version in VERSIONS {
        let folder = testdata().join(format!("version_{version}"));
        let mut found: Vec<String> = folder
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(found, SHAPES);
        for shape in SHAPES {
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join(shape);
            copy(&folder.join(shape), &path);
            // The same writes are now done to a new collection.
            let other = Collection::create(scratch.path().join("other"), schema(shape), &options()).unwrap();
            let mut content = write(&other, shape, false);
            let collection = Collection::open(&path, &options()).unwrap();
            let description = collection.describe();
            assert_eq!(description.segments.len(), if shape == "bits" { 0 } else { 2 }, "{shape}");
            assert!(description.rows_in_memory > 15, "{shape}");
            if let [large, small] = &description.segments[..] {
                assert!(large.rows as usize >= FLAT_BELOW && (small.rows as usize) < FLAT_BELOW);
                assert!(large.deleted > 0);
            }
            assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new());
            check(&collection, shape, &content);
            put(&collection, shape, [7, 400].into_iter(), 5, &mut content);
            delete(&collection, shape, [8, 201].into_iter(), &mut content);
            collection.flush().unwrap();
            check(&collection, shape, &content);
            collection.compact(&CompactOptions { full: true }, &Silent).unwrap();
            check(&collection, shape, &content);
            drop(collection);
            let collection = Collection::open(&path, &options()).unwrap();
            assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new());
            check(&collection, shape, &content);
        }
    }
}

#[test]
fn collections_of_the_present_version_are_written() {
    let scratch = tempfile::tempdir().unwrap();
    let wanted = std::env::var_os("BATHYAL_WRITE_COLLECTIONS").map(PathBuf::from);
    let folder = wanted.unwrap_or_else(|| scratch.path().to_path_buf());
    for shape in SHAPES {
        let collection = Collection::create(folder.join(shape), schema(shape), &options()).unwrap();
        let content = write(&collection, shape, true);
        check(&collection, shape, &content);
    }
}
