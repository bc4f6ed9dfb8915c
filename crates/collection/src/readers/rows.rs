//! Files of rows: all imported rows fit the schema.

use crate::exchange::{GuessOptions, ImportMode, ImportOptions, export, import, schema_of_file};
use crate::{Collection, CollectionLocation, CollectionOptions, Column, Ids, Rows, Schema, VectorField};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use bathyal_kernels::{Element, Metric};
use bathyal_store::memory::MemoryStore;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::sync::Arc;

pub(super) fn schema() -> Schema {
    let column = |name: &str, kind: &str| kind.parse().ok().map(|kind| Column { name: name.into(), kind });
    let columns = [column("year", "int64"), column("lang", "string"), column("tags", "list<string>")];
    Schema {
        id_kind: crate::IdKind::Text,
        vectors: vec![VectorField::new("v", 2, Element::F32, Metric::L2)],
        columns: columns.into_iter().flatten().collect(),
    }
}

fn collection() -> Collection {
    let place = CollectionLocation::in_store(Arc::new(MemoryStore::new("rows")));
    let options = CollectionOptions { background: false, threads: 1, ..CollectionOptions::default() };
    Collection::create_in(place, schema(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a file of three rows, as an export writes it.
fn exported(name: &str) -> Vec<Vec<u8>> {
    let write = || {
        let (collection, folder) = (collection(), tempfile::tempdir()?);
        let path = folder.path().join(name);
        let years: ArrayRef = Arc::new(Int64Array::from(vec![Some(2020), None, Some(-1)]));
        let langs: ArrayRef = Arc::new(StringArray::from(vec![Some("de"), Some(""), None]));
        let columns = RecordBatch::try_from_iter([("year", years), ("lang", langs)])?;
        let bytes = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let vectors = VectorFile::from_rows(Element::F32, 2, bytes)?;
        let ids = Ids::Texts(vec!["a", "b", "c"].into());
        collection.add(Rows::new(&schema(), ids, vec![vectors], Some(&columns))?)?;
        export(&collection, &path, &Default::default(), Default::default(), &Silent)?;
        Ok::<_, Box<dyn std::error::Error>>(vec![std::fs::read(&path)?])
    };
    write().unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn lines() -> Vec<Vec<u8>> {
    let more = concat!(
        "{\"id\": \"x\", \"vector\": [1, -2.5e3], \"year\": 12, \"tags\": [\"a\", null]}\n",
        "\n{\"id\": \"y\", \"v\": [0.1, 2], \"lang\": null}"
    );
    let mut all = exported("seed.jsonl");
    all.push(more.as_bytes().to_vec());
    all
}

pub(super) fn arrow() -> Vec<Vec<u8>> {
    [exported("seed.arrow"), exported("seed.arrows")].concat()
}

pub(super) fn parquet() -> Vec<Vec<u8>> {
    exported("seed.parquet")
}

pub(super) fn file(name: &str, bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder for {name}: {error}"));
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    if let Err(error) =
        schema_of_file(&path, &GuessOptions { metric: Metric::L2, id_column: None, columns: None })
    {
        assert!(!error.to_string().is_empty());
    }
    let collection = collection();
    let result = import(
        &collection,
        &path,
        &ImportOptions { how: ImportMode::Upsert, ..ImportOptions::default() },
        &Silent,
    );
    let rows = collection.count(None, Control::default()).unwrap_or_else(|error| panic!("{error}"));
    match result {
        Ok(result) => assert!(rows <= result.rows, "{rows} rows of {}", result.rows),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let mut scan = collection
        .scan(None, &Default::default(), None, Control::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let mut seen = 0;
    while let Some(some) = scan.next(100, Default::default()).unwrap_or_else(|error| panic!("{error}")) {
        seen += some.ids.len() as u64;
        assert_eq!(some.columns.schema(), schema().metadata());
    }
    assert_eq!(seen, rows);
}
