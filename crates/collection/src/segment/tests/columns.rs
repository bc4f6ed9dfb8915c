//! Reading columns of rows.

use super::*;
use arrow_array::Array;
use std::str::FromStr;

/// Every type that a column can have.
const KINDS: [&str; 18] = [
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
    "list<int64>",
    "list<bool>",
    "list<timestamp>",
];

#[test]
fn values_of_every_type_are_read_back_with_nulls_in_any_order() {
    let schema = schema(IdKind::Number, &[2], &KINDS);
    let segment = segment(&schema, 5000);
    let all = columns_of(&schema, &(0..5000).collect::<Vec<_>>());
    assert!((0..KINDS.len()).all(|at| all.column(at).null_count() > 0));
    let every: Vec<usize> = (0..KINDS.len()).collect();
    for rows in [vec![0], vec![4999, 17, 17, 0, 3000], (0..5000).rev().collect(), Vec::new()] {
        let found = segment.columns_of(&rows, &every).unwrap();
        assert_eq!(found, columns_of(&schema, &rows));
        let some = [14, 0, 14, 5];
        let found = segment.columns_of(&rows, &some).unwrap();
        assert_eq!(found, columns_of(&schema, &rows).project(&some).unwrap());
        assert_eq!(segment.columns_of(&rows, &[]).unwrap().num_rows(), rows.len());
    }
    for (rows, columns) in [(vec![5000], vec![0]), (vec![0], vec![18])] {
        assert!(matches!(segment.columns_of(&rows, &columns).unwrap_err(), CollectionError::Parameter(_)));
    }
    assert!(crate::schema::ColumnKind::from_str("list<list<bool>>").is_err(), "there are no other types");
    assert_eq!(segment.verify(&Silent).unwrap(), Vec::<String>::new());
}

/// Returns all batches of a scan, joined.
fn scanned(segment: &Segment, columns: &[usize], with_ids: bool) -> (Vec<u32>, RecordBatch) {
    let (mut firsts, mut batches) = (Vec::new(), Vec::new());
    let mut on_batch = |first, batch: RecordBatch| {
        firsts.push(first);
        batches.push(batch);
        Ok(())
    };
    segment.scan(columns, with_ids, &mut on_batch).unwrap();
    (firsts, arrow_select::concat::concat_batches(&batches[0].schema(), &batches).unwrap())
}

#[test]
fn a_scan_returns_all_rows_in_order() {
    for kind in [IdKind::Number, IdKind::Text] {
        let schema = schema(kind, &[1], &["int32", "list<string>", "float64"]);
        let segment = segment(&schema, 20_000);
        let rows: Vec<u32> = (0..20_000).collect();
        let (firsts, found) = scanned(&segment, &[2, 1], true);
        assert_eq!(firsts, [0, 8192, 16_384]);
        assert_eq!(found.schema().field(0).name(), "id");
        assert_eq!(Ids::from_array(kind, found.column(0)).unwrap(), ids_of(kind, 0..20_000));
        assert_eq!(found.project(&[1, 2]).unwrap(), columns_of(&schema, &rows).project(&[2, 1]).unwrap());
        let (firsts, found) = scanned(&segment, &[], true);
        assert_eq!((firsts.len(), found.num_columns()), (3, 1));
        let (firsts, found) = scanned(&segment, &[0], false);
        assert_eq!((firsts.len(), found), (3, columns_of(&schema, &rows).project(&[0]).unwrap()));
        let mut told = 0;
        let ended = segment.scan(&[], false, &mut |first, batch| {
            assert_eq!((first, batch.num_columns()), (told, 0));
            told += batch.num_rows() as u32;
            if told > 9000 { Err(CollectionError::Cancelled) } else { Ok(()) }
        });
        assert!(matches!(ended, Err(CollectionError::Cancelled)) && told == 16_384);
    }
}

#[test]
fn a_segment_without_columns_has_rows() {
    let schema = schema(IdKind::Text, &[2, 5], &[]);
    let segment = segment(&schema, 1);
    assert_eq!(segment.columns_of(&[0, 0], &[]).unwrap().num_rows(), 2);
    let (firsts, found) = scanned(&segment, &[], true);
    assert_eq!((firsts, found.num_rows(), found.num_columns()), (vec![0], 1, 1));
    assert_eq!(segment.verify(&Silent).unwrap(), Vec::<String>::new());
}

#[test]
fn reading_few_rows_reads_few_pages() {
    use super::super::manifest::ROWS_NAME;
    use bathyal_store::GenerationExt;
    let schema = schema(IdKind::Number, &[1], &["string", "int64"]);
    let place = in_memory();
    let options = WriteOptions { flat_below_rows: usize::MAX, ..one_thread() };
    let mut writer =
        SegmentWriter::begin(&place, schema.clone(), COLLECTION, "s-1-aa".into(), &options).unwrap();
    let text = |row: u32| {
        (0..40).map(|at| format!("{:08x}", (40 * row + at).wrapping_mul(2_654_435_769))).collect::<String>()
    };
    for first in (0..140_000).step_by(10_000) {
        let rows: Vec<u32> = (first..first + 10_000).collect();
        let texts = arrow_array::StringArray::from_iter_values(rows.iter().map(|row| text(*row)));
        let numbers = values(&DataType::Int64, &rows, 1);
        let batch = RecordBatch::try_new(schema.metadata(), vec![Arc::new(texts), numbers]).unwrap();
        let vectors = vectors_of(&schema.vectors[0], rows.iter().copied());
        writer.push(&ids_of(IdKind::Number, rows), &[&vectors], &batch).unwrap();
    }
    let flat = writer.finish(&Silent).unwrap();
    let segment = open(&place, &schema, &flat);
    let asked = [139_999, 0, 70_000, 131_071, 131_072, 70_000];
    let found = segment.columns_of(&asked, &[1, 0]).unwrap();
    let expected = arrow_array::StringArray::from_iter_values(asked.iter().map(|row| text(*row)));
    assert_eq!(found.column(1).as_ref(), &expected as &dyn Array);
    assert_eq!(found.column(0), &values(&DataType::Int64, &asked, 1));
    let (groups, read) = segment.columns().unwrap().reads(&[0, 70_000, 131_071, 131_072, 139_999], &[1, 2]);
    assert!(groups > 1, "{groups} row groups");
    let bytes = place.store().open("s-1-aa-rows").unwrap().len_of(ROWS_NAME).unwrap();
    assert!(read > 0 && read < bytes / 20, "{read} of {bytes} bytes are read for 5 rows");
}

#[test]
fn long_empty_and_null_texts_are_read_back() {
    let schema = schema(IdKind::Text, &[1], &["string", "string", "list<string>"]);
    let place = in_memory();
    let mut writer =
        SegmentWriter::begin(&place, schema.clone(), COLLECTION, "s-1-aa".into(), &one_thread()).unwrap();
    let rows: Vec<u32> = (0..300).collect();
    let long = |row: u32| match row % 100 {
        7 => "\u{e9}".repeat(3_000_000),
        8 => String::new(),
        at => "x".repeat(10 * at as usize),
    };
    let texts = arrow_array::StringArray::from_iter_values(rows.iter().map(|row| long(*row)));
    let nulls = arrow_array::new_null_array(&DataType::Utf8, rows.len());
    let lists = values(schema.columns[2].kind.data_type(), &rows, 0);
    let batch = RecordBatch::try_new(schema.metadata(), vec![Arc::new(texts), nulls, lists]).unwrap();
    let vectors = vectors_of(&schema.vectors[0], rows.iter().copied());
    writer.push(&ids_of(IdKind::Text, rows.iter().copied()), &[&vectors], &batch).unwrap();
    let entry = writer.finish(&Silent).unwrap();
    let segment = open(&place, &schema, &entry);
    let places = arrow_array::UInt32Array::from(vec![107, 8, 299, 107]);
    let found = segment.columns_of(places.values(), &[0, 1, 2]).unwrap();
    let expected: Vec<ArrayRef> = batch
        .columns()
        .iter()
        .map(|column| arrow_select::take::take(column, &places, None).unwrap())
        .collect();
    assert_eq!(found.columns(), expected);
    assert_eq!(scanned(&segment, &[0, 1, 2], false).1.columns(), batch.columns());
    assert_eq!(segment.verify(&Silent).unwrap(), Vec::<String>::new());
}

#[test]
fn concurrent_readers_open_a_segment_once() {
    let schema = schema(IdKind::Number, &[2], &["int64"]);
    let segment = segment(&schema, 3000);
    std::thread::scope(|scope| {
        for first in 0..8u32 {
            let (segment, schema) = (&segment, &schema);
            scope.spawn(move || {
                let rows: Vec<u32> = (first..3000).step_by(97).collect();
                assert_eq!(segment.ids_of(&rows).unwrap(), ids_of(IdKind::Number, rows.iter().copied()));
                assert_eq!(segment.columns_of(&rows, &[0]).unwrap(), columns_of(schema, &rows));
                assert_eq!(segment.index(0).unwrap().len(), 3000);
            });
        }
    });
    let held = segment.held_bytes();
    assert_eq!(segment.find(&ids_of(IdKind::Number, [2999])).unwrap(), [Some(2999)]);
    assert_eq!(segment.held_bytes(), held, "results are not cached");
}
