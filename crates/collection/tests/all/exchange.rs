//! Import and export of rows.

use arrow_array::builder::{FixedSizeListBuilder, Float64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray, UInt64Array};
use bathyal_collection::exchange::{
    ExportOptions, GuessOptions, ImportMode, ImportOptions, JsonRows, export, import, read_ids,
    schema_of_file,
};
use bathyal_collection::{
    Collection, CollectionError, CollectionOptions, Column, Durability, Filter, Id, IdKind, Ids, Projection,
    Schema, VectorField,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorWriter;
use bathyal_vectors::progress::{Progress, Silent};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

fn column(name: &str, kind: &str) -> Column {
    Column { name: name.into(), kind: kind.parse().unwrap() }
}

/// Returns a schema with two vector fields and a column of every type.
fn rich() -> Schema {
    let kinds = [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float32",
        "float64",
        "string",
        "date",
        "timestamp",
        "list<string>",
        "list<int16>",
        "list<date>",
        "json",
    ];
    Schema {
        id_kind: IdKind::Text,
        vectors: vec![
            VectorField::new("title", 3, Element::F32, Metric::Cosine),
            VectorField::new("bits", 16, Element::B1, Metric::L2),
        ],
        columns: kinds.iter().map(|kind| column(&format!("c {kind}"), kind)).collect(),
    }
}

/// Returns row `row` as JSON for the schema of [`rich`].
fn line(row: u64) -> String {
    let cosine = [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.6, 0.8, 0.0]][row as usize % 3];
    let bits = [row % 256, 255 - row % 256];
    if row % 5 == 4 {
        return format!(r#"{{"id": "row {row}\n\u00e9", "title": {cosine:?}, "bits": {bits:?}}}"#);
    }
    let some = if row.is_multiple_of(2) { "[]" } else { r#"["a", null, "\u0000 \" é"]"# };
    format!(
        r#"{{"id": "row {row}\n\u00e9", "title": {cosine:?}, "bits": {bits:?}, "c bool": {}, "c int8": -128,
        "c int16": null, "c int32": {row}, "c int64": -9223372036854775808, "c uint8": 255, "c uint16": 65535,
        "c uint32": 4294967295, "c uint64": 18446744073709551615, "c float32": 0.1, "c float64": "NaN",
        "c string": "x{row}", "c date": "2024-02-29", "c timestamp": "1969-12-31T23:59:59.999999",
        "c list<string>": {some}, "c list<int16>": [-1, {}], "c list<date>": ["1900-01-01"], "c json": {}}}"#,
        row.is_multiple_of(3),
        row % 100,
        [r#"{"b": {"c": [1, "é", null]}, "a": 1.5}"#, "[]", "\"text\"", "18446744073709551615"]
            [row as usize % 4]
    )
    .replace('\n', "")
}

fn lines(folder: &Path, rows: u64) -> PathBuf {
    let path = folder.join("rows.jsonl");
    let text: Vec<String> = (0..rows).map(line).collect();
    std::fs::write(&path, text.join("\n") + "\n\n").unwrap();
    path
}

fn create(path: &Path, schema: Schema) -> Collection {
    let options = CollectionOptions { threads: 1, background: false, ..CollectionOptions::default() };
    Collection::create(path, schema, &options).unwrap()
}

/// Returns the whole content of a collection as lines of JSON.
fn all(collection: &Collection) -> Vec<String> {
    let schema = collection.schema();
    let vectors: Vec<String> = schema.vectors.iter().map(|field| field.name.clone()).collect();
    let mut scan = collection
        .scan(None, &Projection { columns: None, vectors: vectors.clone() }, None, Control::default())
        .unwrap();
    let mut lines = Vec::new();
    while let Some(some) = scan.next(100, Control::default()).unwrap() {
        let vectors = vectors.iter().cloned().zip(some.vectors).collect();
        let rows = JsonRows::new(some.ids, &some.columns, vectors).unwrap();
        lines.extend(rows.iter().map(|row| serde_json::to_string(&row).unwrap()));
    }
    lines
}

fn how(how: ImportMode) -> ImportOptions {
    ImportOptions { how, ..ImportOptions::default() }
}

fn guess() -> GuessOptions {
    GuessOptions { metric: Metric::L2, id_column: None, columns: None }
}

#[test]
fn an_export_is_imported_without_a_change() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let first = create(&dir.join("first"), rich());
    let options = ImportOptions { batch_rows: NonZeroUsize::new(7), ..ImportOptions::default() };
    let done = import(&first, &lines(dir, 60), &options, &Silent).unwrap();
    assert_eq!((done.rows, done.written.added, done.batches), (60, 60, 9));
    // Rows in a segment, deleted rows, and rows in memory.
    first.flush().unwrap();
    first.delete(Ids::from_ids(IdKind::Text, &[Id::Text("row 3\né".into())]).unwrap()).unwrap();
    let expected = all(&first);
    assert_eq!(expected.len(), 59);
    assert!(expected[0].contains(r#""c float32":0.1,"c float64":"NaN""#), "{}", expected[0]);
    for name in ["out.parquet", "out.arrow", "out.arrows", "out.feather", "out.jsonl"] {
        let path = dir.join(name);
        let exported = export(&first, &path, &ExportOptions::default(), Control::default(), &Silent).unwrap();
        assert_eq!((exported.rows, exported.ids), (59, None), "{name}");
        let schema = match name {
            "out.jsonl" => rich(),
            _ => schema_of_file(&path, &guess()).unwrap(),
        };
        assert_eq!(schema, rich(), "{name}");
        let second = create(&dir.join(format!("{name} collection")), schema);
        let done = import(&second, &path, &ImportOptions::default(), &Silent).unwrap();
        assert_eq!(done.written.added, 59, "{name}");
        assert_eq!(all(&second), expected, "{name}");
    }
}

#[test]
fn exports_have_the_requested_rows_columns_and_vectors() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let collection = create(&dir.join("c"), rich());
    import(&collection, &lines(dir, 30), &ImportOptions::default(), &Silent).unwrap();
    let options = ExportOptions {
        filter: Some(Filter::parse("\"c int32\" < 10 and \"c bool\"").unwrap()),
        columns: Some(vec!["c int32".into()]),
        vectors: Some(Vec::new()),
        ids: None,
    };
    let path = dir.join("out.jsonl");
    assert_eq!(export(&collection, &path, &options, Control::default(), &Silent).unwrap().rows, 3);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().next(), Some(r#"{"id":"row 0\né","c int32":0}"#));
    let unknown = ExportOptions { columns: Some(vec!["year".into()]), ..ExportOptions::default() };
    let error =
        export(&collection, &dir.join("other.jsonl"), &unknown, Control::default(), &Silent).unwrap_err();
    assert!(error.to_string().contains("there is no column \"year\""), "{error}");
    assert!(!dir.join("other.jsonl").exists());
    for (name, part) in [
        ("out.csv", "the supported endings are .parquet"),
        ("out.fbin", "vectors of one field"),
        ("out", "\"\""),
    ] {
        let error =
            export(&collection, &dir.join(name), &ExportOptions::default(), Control::default(), &Silent)
                .unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn files_of_vectors_come_with_files_of_ids() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    for (kind, ending, element) in [
        (IdKind::Number, "ids.npy", Element::F32),
        (IdKind::Text, "ids.txt", Element::F16),
        (IdKind::Number, "ids.npy", Element::U8),
    ] {
        let schema = Schema {
            id_kind: kind,
            vectors: vec![VectorField::new("v", 4, element, Metric::L2)],
            columns: vec![column("year", "int64")],
        };
        let name = format!("{element}");
        let first = create(&dir.join(format!("{name} first")), schema.clone());
        // Whole numbers, which every element can hold.
        let mut writer = VectorWriter::create(dir.join("base.fbin"), Element::F32, 4).unwrap();
        for row in 0..100_u32 {
            let values = [row, row + 1, 0, 7].map(|value| value as f32);
            writer
                .push_rows(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
                .unwrap();
        }
        writer.finish().unwrap();
        let text: Vec<String> = (0..100_u64).map(|row| (1000 - row).to_string()).collect();
        std::fs::write(dir.join("ids.txt"), text.join("\r\n")).unwrap();
        let options = ImportOptions { ids: Some(dir.join("ids.txt")), ..ImportOptions::default() };
        import(&first, &dir.join("base.fbin"), &options, &Silent).unwrap();
        let extension = match element {
            Element::F32 => "fbin",
            Element::F16 => "f16bin",
            _ => "npy",
        };
        let output = dir.join(format!("out.{extension}"));
        let exported =
            export(&first, &output, &ExportOptions::default(), Control::default(), &Silent).unwrap();
        assert_eq!(exported.ids, Some(dir.join(format!("out.{ending}"))));
        assert_eq!(read_ids(&dir.join(format!("out.{ending}")), kind).unwrap().len(), 100);
        let second = create(&dir.join(format!("{name} second")), schema);
        let options = ImportOptions { ids: exported.ids, ..ImportOptions::default() };
        import(&second, &output, &options, &Silent).unwrap();
        assert_eq!(all(&second), all(&first), "{element}");
        assert!(all(&first)[0].contains("\"v\":["), "{}", all(&first)[0]);
    }
}

#[test]
fn vectors_without_ids_have_numbers_and_other_dimensions_are_refused() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let mut writer = VectorWriter::create(dir.join("base.fbin"), Element::F32, 2).unwrap();
    writer.push_rows(&[0; 8 * 5]).unwrap();
    writer.finish().unwrap();
    let schema = schema_of_file(&dir.join("base.fbin"), &guess()).unwrap();
    let collection = create(&dir.join("c"), schema.clone());
    let from = |first_id| ImportOptions { first_id: Some(first_id), ..ImportOptions::default() };
    import(&collection, &dir.join("base.fbin"), &from(7), &Silent).unwrap();
    assert!(all(&collection)[0].starts_with(r#"{"id":7,"vector":[0.0"#), "{:?}", all(&collection));
    let refused = |collection: &Collection, options: &ImportOptions, part: &str| {
        let error = import(collection, &dir.join("base.fbin"), options, &Silent).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(&collection, &from(11), "are there already");
    refused(&collection, &from(u64::MAX - 1), "more rows than there are ids");
    std::fs::write(dir.join("few.txt"), "1\n2\n").unwrap();
    refused(
        &collection,
        &ImportOptions { ids: Some(dir.join("few.txt")), ..how(ImportMode::Add) },
        "2 ids for the 5 vectors",
    );
    refused(&collection, &how(ImportMode::Update), "holds vectors alone");
    let text = Schema { id_kind: IdKind::Text, ..schema.clone() };
    refused(&create(&dir.join("text"), text), &how(ImportMode::Add), "text file with an id on each line");
    let mut other = schema;
    other.vectors[0].dim = 3;
    refused(&create(&dir.join("other"), other), &how(ImportMode::Add), "2 dimensions, the collection of 3");
    assert_eq!(collection.count(None, Control::default()).unwrap(), 5);
}

fn small(folder: &Path) -> Collection {
    let schema = Schema {
        id_kind: IdKind::Number,
        vectors: vec![VectorField::new("embedding", 2, Element::F32, Metric::L2)],
        columns: vec![column("year", "int64"), column("lang", "string")],
    };
    create(&folder.join("small"), schema)
}

fn write(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("some.jsonl");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_failed_import_reports_how_many_rows_were_written() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let collection = small(dir);
    let good: String = (0..10).map(|id| format!("{{\"id\": {id}, \"vector\": [0, {id}]}}\n")).collect();
    let options = ImportOptions { batch_rows: NonZeroUsize::new(4), ..ImportOptions::default() };
    let cases = [
        ("{\"id\": 99, \"vector\": [0, 1, 2]}", "row 8 has 3 numbers, vectors of the collection have 2"),
        ("{\"id\": 99, \"vector\": [0, \"x\"]}", "line 9: \"vector\": \"x\" is not a component"),
        ("{\"id\": 99}", "is null; every row needs a vector"),
        ("{\"id\": -1, \"vector\": [0, 1]}", "line 9: \"id\": -1 is not a whole number from 0"),
        ("{\"vector\": [0, 1]}", "line 9: \"id\": every row needs an id"),
        (
            "{\"id\": 99, \"vector\": [0, 1], \"yaer\": 1}",
            "line 9: there is no column \"yaer\"; there is year, lang",
        ),
        ("{\"id\": 99, \"vector\": [0, 1], \"year\": 1.5}", "line 9: \"year\": 1.5 is not a whole number"),
        ("{\"id\": 99, \"vector\": [0, 1e39]}", "every component must be finite"),
        ("[1, 2]", "line 9: "),
        ("{\"id\": 99, ", "line 9: "),
    ];
    for (bad, part) in cases {
        let text: Vec<&str> = good.lines().take(8).chain([bad]).chain(good.lines().skip(8)).collect();
        let error = import(&collection, &write(dir, &text.join("\n")), &options, &Silent).unwrap_err();
        let CollectionError::Imported { written, .. } = &error else { panic!("{error}") };
        assert_eq!(*written, 8, "{error}");
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
        assert!(error.to_string().ends_with("the first 8 rows were written"), "{error}");
        assert_eq!(
            collection.count(None, Control::default()).unwrap(),
            8,
            "the batch of the bad row was not written"
        );
        collection.delete_matching(&Filter::parse("id >= 0").unwrap(), Control::default()).unwrap();
    }
    // The same command continues with upsert.
    import(&collection, &write(dir, &good), &how(ImportMode::Upsert), &Silent).unwrap();
    let error = import(&collection, &write(dir, &good), &how(ImportMode::Add), &Silent).unwrap_err();
    assert!(
        error.to_string().contains("10 of the ids are there already")
            && error.to_string().contains("nothing from ")
    );
    let error = import(&collection, &dir.join("none.jsonl"), &how(ImportMode::Add), &Silent).unwrap_err();
    assert!(matches!(error, CollectionError::Vectors(_)), "{error}");
    let error = import(&collection, &dir.join("none.csv"), &how(ImportMode::Add), &Silent).unwrap_err();
    assert!(error.to_string().contains("\"csv\""), "{error}");
    std::fs::write(dir.join("bad.parquet"), "PAR1 this is no such file PAR1").unwrap();
    std::fs::write(dir.join("bad.arrow"), "ARROW1 this is no such file").unwrap();
    std::fs::write(dir.join("empty.arrow"), "").unwrap();
    for name in ["bad.parquet", "bad.arrow", "empty.arrow"] {
        assert!(import(&collection, &dir.join(name), &how(ImportMode::Add), &Silent).is_err(), "{name}");
        assert!(schema_of_file(&dir.join(name), &guess()).is_err(), "{name}");
    }
}

#[test]
fn the_last_row_with_an_id_counts_and_updates_keep_other_columns() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let collection = small(dir);
    let text = "{\"id\": 1, \"embedding\": [1, 1], \"year\": 1}\n{\"id\": 2, \"embedding\": [2, 2]}\n\
                {\"id\": 1, \"embedding\": [3, 3], \"year\": 3}\n";
    let error = import(&collection, &write(dir, text), &how(ImportMode::Add), &Silent).unwrap_err();
    assert!(error.to_string().contains("are there twice"), "{error}");
    let done = import(&collection, &write(dir, text), &how(ImportMode::Upsert), &Silent).unwrap();
    assert_eq!((done.rows, done.written.added, done.written.replaced), (3, 2, 1));
    // Columns that a line lacks are unchanged, even if other lines have them.
    let text = "{\"id\": 1, \"lang\": \"de\"}\n{\"id\": 2, \"year\": 9}\n\
                {\"id\": 2, \"year\": null, \"lang\": \"en\"}\n{\"id\": 5, \"year\": 5}";
    let done = import(&collection, &write(dir, text), &how(ImportMode::Update), &Silent).unwrap();
    assert_eq!((done.written.replaced, done.written.missing, done.batches), (3, 1, 4));
    assert_eq!(
        all(&collection),
        [
            r#"{"id":1,"year":3,"lang":"de","embedding":[3.0,3.0]}"#,
            r#"{"id":2,"year":null,"lang":"en","embedding":[2.0,2.0]}"#
        ]
    );
    let error =
        import(&collection, &write(dir, "{\"id\": 1}"), &how(ImportMode::Update), &Silent).unwrap_err();
    assert!(error.to_string().contains("no columns of metadata"), "{error}");
    let text = "{\"id\": 1, \"embedding\": [1, 1]}";
    let error = import(&collection, &write(dir, text), &how(ImportMode::Update), &Silent).unwrap_err();
    assert!(error.to_string().contains("upsert changes vectors"), "{error}");
}

/// Returns a table with lists of f64 under other names, an id in i32, and other column types than the
/// collection.
fn table() -> RecordBatch {
    let mut fixed = FixedSizeListBuilder::new(Float64Builder::new(), 2);
    let mut free = ListBuilder::new(Float64Builder::new());
    let mut tags = ListBuilder::new(StringBuilder::new());
    for row in 0..50 {
        fixed.values().append_slice(&[f64::from(row), 0.5]);
        fixed.append(true);
        free.values().append_slice(&[f64::from(row), 1.0, 2.0]);
        free.append(true);
        (0..row % 3).for_each(|_| tags.values().append_value("x"));
        tags.append(true);
    }
    let columns: [(&str, ArrayRef); 6] = [
        ("key", Arc::new(Int32Array::from_iter_values((0..50).rev()))),
        ("embedding", Arc::new(fixed.finish())),
        ("other", Arc::new(free.finish())),
        ("tags", Arc::new(tags.finish())),
        ("year", Arc::new(Int32Array::from_iter_values(0..50))),
        ("lang", Arc::new(StringArray::from_iter_values((0..50).map(|row| format!("l{row}"))))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn tables_of_other_programs_are_read_and_their_schema_is_derived() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let table = table();
    let file = std::fs::File::create(dir.join("t.parquet")).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, table.schema(), None).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
    let file = std::fs::File::create(dir.join("t.arrow")).unwrap();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(file, &table.schema()).unwrap();
    // A slice of a larger array.
    writer.write(&table.slice(0, 20)).unwrap();
    writer.write(&table.slice(20, 30)).unwrap();
    writer.finish().unwrap();
    let collection = small(dir);
    let takes = |columns: &[&str]| ImportOptions {
        how: ImportMode::Upsert,
        id_column: Some("key".into()),
        columns: Some(columns.iter().map(|name| (*name).to_string()).collect()),
        ..ImportOptions::default()
    };
    for name in ["t.parquet", "t.arrow"] {
        let path = dir.join(name);
        let error = import(&collection, &path, &how(ImportMode::Add), &Silent).unwrap_err();
        assert!(
            error.to_string().contains("no column \"id\" for the ids; there is key, embedding"),
            "{error}"
        );
        let named = ImportOptions { id_column: Some("key".into()), ..ImportOptions::default() };
        let error = import(&collection, &path, &named, &Silent).unwrap_err();
        assert!(
            error.to_string().contains("the collection has no column \"other\"; it has year, lang. Name"),
            "{error}"
        );
        assert_eq!(import(&collection, &path, &takes(&["year", "lang"]), &Silent).unwrap().rows, 50);
        let found = all(&collection);
        assert_eq!(found.len(), 50);
        assert_eq!(found[0], r#"{"id":0,"year":49,"lang":"l49","embedding":[49.0,0.5]}"#, "{name}");
        // Only years.
        import(&collection, &path, &ImportOptions { how: ImportMode::Update, ..takes(&["year"]) }, &Silent)
            .unwrap();
        let options = GuessOptions { id_column: Some("key".into()), ..guess() };
        let schema = schema_of_file(&path, &options).unwrap();
        assert_eq!(schema.id_kind, IdKind::Number);
        let fields: Vec<_> =
            schema.vectors.iter().map(|field| (field.name.as_str(), field.dim, field.element)).collect();
        assert_eq!(fields, [("embedding", 2, Element::F32), ("other", 3, Element::F32)]);
        let columns: Vec<String> =
            schema.columns.iter().map(|column| format!("{}:{}", column.name, column.kind)).collect();
        assert_eq!(columns, ["tags:list<string>", "year:int32", "lang:string"]);
        let error = schema_of_file(&path, &guess()).unwrap_err();
        assert!(error.to_string().contains("no column \"id\""), "{error}");
    }
}

#[test]
fn rows_of_much_text_are_written_in_small_batches() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let schema = Schema { columns: vec![column("text", "string")], ..small(dir).schema() };
    let options = CollectionOptions {
        write_memory_bytes: 1 << 20,
        background: false,
        threads: 1,
        ..CollectionOptions::default()
    };
    let collection = Collection::create(dir.join("texts"), schema, &options).unwrap();
    // Ten megabytes, with a limit of an eighth of a megabyte for one write.
    let table = RecordBatch::try_from_iter([
        ("id", Arc::new(UInt64Array::from_iter_values(0..1000)) as ArrayRef),
        (
            "embedding",
            Arc::new({
                let mut fixed = FixedSizeListBuilder::new(Float64Builder::new(), 2);
                (0..1000).for_each(|row| {
                    fixed.values().append_slice(&[f64::from(row), 0.0]);
                    fixed.append(true);
                });
                fixed.finish()
            }),
        ),
        ("text", Arc::new(StringArray::from_iter_values((0..1000).map(|row| format!("{row}").repeat(2500))))),
    ])
    .unwrap();
    let file = std::fs::File::create(dir.join("t.arrow")).unwrap();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(file, &table.schema()).unwrap();
    writer.write(&table).unwrap();
    writer.finish().unwrap();
    let done = import(&collection, &dir.join("t.arrow"), &how(ImportMode::Add), &Silent).unwrap();
    assert!(done.rows == 1000 && done.batches > 80, "{done:?}");
    assert_eq!(
        collection.count(Some(&Filter::parse("text like '99%'").unwrap()), Control::default()).unwrap(),
        12
    );
}

#[test]
fn an_import_is_cancelled_between_batches() {
    struct Stop(AtomicU32);
    impl Progress for Stop {
        fn stage(&self, _name: &str, _total: u64) {}
        fn advance(&self, _done: u64) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn cancelled(&self) -> bool {
            self.0.load(Ordering::Relaxed) >= 2
        }
    }
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let collection = create(&dir.join("c"), rich());
    let options = ImportOptions { batch_rows: NonZeroUsize::new(5), ..ImportOptions::default() };
    let error = import(&collection, &lines(dir, 60), &options, &Stop(AtomicU32::new(0))).unwrap_err();
    assert!(
        error.to_string().starts_with("cancelled; of ")
            && error.to_string().ends_with("first 10 rows were written"),
        "{error}"
    );
    assert_eq!(collection.count(None, Control::default()).unwrap(), 10);
    let error = export(
        &collection,
        &dir.join("x.parquet"),
        &ExportOptions::default(),
        Control::default(),
        &Stop(AtomicU32::new(2)),
    )
    .unwrap_err();
    assert!(matches!(error, CollectionError::Cancelled), "{error}");
    assert!(!dir.join("x.parquet").exists());
    let left: Vec<_> =
        dir.read_dir().unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok()).collect();
    assert!(!left.iter().any(|name| name.ends_with(".partial")), "{left:?}");
}

#[test]
fn an_empty_collection_is_exported_as_a_file_without_rows() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let collection = create(&dir.join("c"), rich());
    for name in ["x.parquet", "x.arrow", "x.jsonl"] {
        assert_eq!(
            export(&collection, &dir.join(name), &ExportOptions::default(), Control::default(), &Silent)
                .unwrap()
                .rows,
            0
        );
        assert_eq!(
            import(&collection, &dir.join(name), &how(ImportMode::Add), &Silent).unwrap().rows,
            0,
            "{name}"
        );
    }
}

#[test]
fn files_of_ids_are_read_in_all_formats() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let npy = |name: &str, descr: &str, shape: &str, data: &[u8]| {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let head =
            [b"\x93NUMPY\x01\x00".as_slice(), &(text.len() as u16).to_le_bytes(), text.as_bytes(), data]
                .concat();
        std::fs::write(path(name), head).unwrap();
    };
    npy("a.npy", "<i4", "(2,)", &[1, 0, 0, 0, 2, 1, 0, 0]);
    assert_eq!(read_ids(&path("a.npy"), IdKind::Number).unwrap(), Ids::Numbers(vec![1, 258].into()));
    npy("b.npy", "<u8", "(1,)", &u64::MAX.to_le_bytes());
    assert_eq!(read_ids(&path("b.npy"), IdKind::Number).unwrap(), Ids::Numbers(vec![u64::MAX].into()));
    let refused = |name: &str, kind: IdKind, part: &str| {
        let error = read_ids(&path(name), kind).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    npy("c.npy", "<i8", "(1,)", &[0xff; 8]);
    refused("c.npy", IdKind::Number, "id 0 is negative");
    npy("d.npy", "<f8", "(1,)", &[0; 8]);
    refused("d.npy", IdKind::Number, "has values of type '<f8'");
    npy("e.npy", "<u8", "(1, 1)", &[0; 8]);
    refused("e.npy", IdKind::Number, "one dimension");
    // A header that announces too much must not make the reader allocate memory.
    npy("f.npy", "<u8", "(18446744073709551615,)", &[0; 8]);
    refused("f.npy", IdKind::Number, "");
    refused("a.npy", IdKind::Text, "are strings");
    std::fs::write(path("g.txt"), "a\nb").unwrap();
    assert_eq!(read_ids(&path("g.txt"), IdKind::Text).unwrap(), Ids::Texts(vec!["a", "b"].into()));
    refused("g.txt", IdKind::Number, "line 1 is \"a\"");
    std::fs::write(path("h.txt"), "a\n\nb\n").unwrap();
    refused("h.txt", IdKind::Text, "position 1 has 0 bytes");
}

#[test]
fn damaged_files_give_an_error_or_other_rows() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path();
    let collection = create(&dir.join("c"), rich());
    import(&collection, &lines(dir, 20), &ImportOptions::default(), &Silent).unwrap();
    let options = CollectionOptions {
        durability: Durability::System,
        background: false,
        ..CollectionOptions::default()
    };
    let target = Collection::create(dir.join("target"), rich(), &options).unwrap();
    let mut state = 7_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for name in ["x.parquet", "x.arrow", "x.arrows", "x.jsonl"] {
        let path = dir.join(name);
        export(&collection, &path, &ExportOptions::default(), Control::default(), &Silent).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for round in 0..150 {
            let mut bytes = whole.clone();
            match round % 3 {
                0 => bytes.truncate(next(whole.len())),
                1 => bytes[next(whole.len())] ^= 1 << next(8),
                _ => (0..5).for_each(|_| bytes[next(whole.len())] = next(256) as u8),
            }
            std::fs::write(&path, bytes).unwrap();
            let _ = schema_of_file(&path, &guess());
            let _ = import(&target, &path, &how(ImportMode::Upsert), &Silent);
        }
    }
    assert_eq!(all(&collection).len(), 20);
}
