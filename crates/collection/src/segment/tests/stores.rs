//! Segments of all families and elements, in all kinds of stores.

use super::*;
use bathyal_index::{Effort, SearchOptions, StoreAs, StoreOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;

/// Checks the content of a segment, and that searches find rows by their own vectors.
fn check(segment: &Segment, schema: &Schema, count: u32) {
    let asked = [count - 1, 0, count / 2, 0];
    assert_eq!(segment.rows(), count);
    assert_eq!(segment.find(&ids_of(schema.id_kind, asked)).unwrap(), asked.map(Some));
    assert_eq!(segment.ids_of(&asked).unwrap(), ids_of(schema.id_kind, asked));
    let every: Vec<usize> = (0..schema.columns.len()).collect();
    assert_eq!(segment.columns_of(&asked, &every).unwrap(), columns_of(schema, &asked));
    for (at, field) in schema.vectors.iter().enumerate() {
        let found = segment.vectors_of(at, &asked, Control::default()).unwrap();
        assert_eq!((found.element, found.dim), (field.element, field.dim));
        let given = vectors_of(field, asked);
        assert_eq!(found.bytes, given);
        let queries = VectorFile::from_rows(field.element, field.dim, given).unwrap();
        let options =
            SearchOptions { k: 1, effort: Effort::Recall(0.99), threads: 1, ..SearchOptions::default() };
        let result = segment.index(at).unwrap().search(&queries, &options, Control::default()).unwrap();
        assert_eq!(result.ids, asked);
    }
    assert_eq!(segment.verify(&Silent).unwrap(), Vec::<String>::new());
    assert!(segment.held_bytes() > 1000);
}

#[test]
fn a_segment_is_equal_in_memory_in_a_folder_and_in_a_bucket() {
    let schema = schema(IdKind::Text, &[4, 8], &["int64", "list<string>"]);
    let folder = tempfile::tempdir().unwrap();
    let scratch = format!("scratch={}", folder.path().join("scratch").display());
    let store = StoreOptions::parse(&[&*scratch]).unwrap();
    let mut entries = Vec::new();
    for held_bytes in [u64::MAX, 0] {
        let name = format!("places-{held_bytes}");
        let local = folder.path().join(&name);
        std::fs::create_dir(&local).unwrap();
        let places = [
            in_memory(),
            CollectionLocation::at(&local, &StoreOptions::default()).unwrap(),
            CollectionLocation::at(format!("memory://segments/{name}"), &store).unwrap(),
        ];
        for place in places {
            let entry =
                write(&place, &schema, "s-1-aa", 700, &WriteOptions { held_bytes, ..one_thread() }).unwrap();
            let segment = open(&place, &schema, &entry);
            assert!(segment.held_bytes() < 1000, "nothing is read yet");
            check(&segment, &schema, 700);
            let parts = place.store().list().unwrap();
            assert_eq!(parts, ["s-1-aa-rows", "s-1-aa-v0", "s-1-aa-v1"]);
            let objects = place.store().open("s-1-aa-rows").unwrap().list().unwrap();
            assert_eq!(objects, ["ids.bin", "manifest.json", "rows.parquet", "rows.sums"]);
            let bytes = |part: &String| {
                let generation = place.store().open(part).unwrap();
                let objects = generation.list().unwrap();
                objects.iter().map(|name| generation.get(name).unwrap().len()).sum::<u64>()
            };
            assert_eq!(entry.bytes, parts.iter().map(bytes).sum::<u64>());
            // The manifest of an index contains the duration of the build, whose length varies.
            entries.push(SegmentEntry { bytes: 0, manifest_crc32c: 0, ..entry });
        }
    }
    assert!(entries.iter().all(|entry| *entry == entries[0]));
}

#[test]
fn large_segments_are_of_the_family_that_the_schema_names() {
    let mut wanted = (*schema(IdKind::Number, &[8, 8], &[])).clone();
    wanted.vectors[0].family = "graph".into();
    wanted.vectors[1].store_as = Some(StoreAs::F16);
    wanted.check().unwrap();
    let (place, schema) = (in_memory(), Arc::new(wanted));
    let options = WriteOptions { flat_below_rows: 800, ..one_thread() };
    let family = |segment: &Segment, at: usize| {
        let index = segment.index(at).unwrap();
        let manifest = index.manifest();
        (manifest.family.clone(), manifest.stored.is_some())
    };
    let entry = write(&place, &schema, "s-1-aa", 799, &options).unwrap();
    let small = open(&place, &schema, &entry);
    assert_eq!([0, 1].map(|at| family(&small, at)), [("flat".into(), false), ("flat".into(), false)]);
    check(&small, &schema, 799);
    let entry = write(&place, &schema, "s-2-bb", 800, &options).unwrap();
    let large = open(&place, &schema, &entry);
    assert_eq!([0, 1].map(|at| family(&large, at)), [("graph".into(), false), ("cluster".into(), true)]);
    assert_eq!(large.verify(&Silent).unwrap(), Vec::<String>::new());
    assert_eq!(
        large.vectors_of(0, &[799, 5], Control::default()).unwrap().bytes,
        vectors_of(&schema.vectors[0], [799, 5])
    );
}

#[test]
fn large_flat_segments_have_codes() {
    for (dim, count, coded) in [(128, 4000, true), (600, 1200, true), (128, 900, false), (8, 4000, false)] {
        let schema = schema(IdKind::Number, &[dim], &[]);
        let segment = segment(&schema, count);
        check(&segment, &schema, count);
        let index = segment.index(0).unwrap();
        let codes = &index.manifest().structure["codes"];
        assert_eq!(codes.is_object(), coded, "{dim} x {count}: {codes}");
    }
}

#[test]
fn every_element_and_metric_makes_a_segment() {
    let elements = [Element::F32, Element::F16, Element::Bf16, Element::U8, Element::I8, Element::B1];
    for element in elements {
        for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
            if element == Element::B1 && metric != Metric::L2 {
                continue;
            }
            let dim = 2048 / element.row_bytes(8) * 8;
            let wanted = VectorField::new("v", dim, element, metric);
            let schema = Schema { id_kind: IdKind::Number, vectors: vec![wanted], columns: Vec::new() };
            let (place, schema) = (in_memory(), Arc::new(schema));
            let options = one_thread();
            let mut writer =
                SegmentWriter::begin(&place, schema.clone(), COLLECTION, "s-1-aa".into(), &options).unwrap();
            let row_bytes = schema.vectors[0].row_bytes();
            // Small values in any element: for floats only the lowest bit of the exponent is set.
            let rows: Vec<u8> =
                (0..1100 * row_bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 26) as u8).collect();
            let rows: Vec<u8> = match element {
                Element::F32 => rows.chunks(4).flat_map(|of| f32::from(of[0]).to_le_bytes()).collect(),
                Element::F16 => rows.chunks(2).flat_map(|of| [of[0], 0x3c]).collect(),
                Element::Bf16 => rows.chunks(2).flat_map(|of| [of[0], 0x3f]).collect(),
                _ => rows,
            };
            let batch = columns_of(&schema, &(0..1100).collect::<Vec<_>>());
            writer.push(&ids_of(IdKind::Number, 0..1100), &[&rows], &batch).unwrap();
            let entry = writer.finish(&Silent).unwrap();
            let segment = open(&place, &schema, &entry);
            let found = segment.vectors_of(0, &[1099], Control::default()).unwrap();
            if metric != Metric::Cosine || !matches!(element, Element::F32 | Element::F16 | Element::Bf16) {
                assert_eq!(found.bytes, rows[1099 * row_bytes..], "{element} {metric}");
            }
            assert_eq!(segment.verify(&Silent).unwrap(), Vec::<String>::new(), "{element} {metric}");
        }
    }
}

#[test]
fn invalid_rows_are_refused_and_the_writer_continues() {
    let (place, schema) = (in_memory(), schema(IdKind::Number, &[2], &["int64"]));
    let mut writer =
        SegmentWriter::begin(&place, schema.clone(), COLLECTION, "s-1-aa".into(), &one_thread()).unwrap();
    push(&mut writer, &schema, &[0, 1, 2], 2).unwrap();
    let rows = |rows: &[u32]| {
        (
            ids_of(IdKind::Number, rows.to_vec()),
            vectors_of(&schema.vectors[0], rows.to_vec()),
            columns_of(&schema, rows),
        )
    };
    let refused =
        |outcome: Result<(), CollectionError>| assert!(matches!(outcome, Err(CollectionError::Parameter(_))));
    for bad in [[2, 3], [4, 4], [5, 4], [0, 9]] {
        let (ids, vectors, columns) = rows(&bad);
        refused(writer.push(&ids, &[&vectors], &columns));
    }
    let (ids, vectors, columns) = rows(&[3, 4]);
    refused(writer.push(&ids, &[&vectors[1..]], &columns));
    refused(writer.push(&ids, &[], &columns));
    refused(writer.push(&ids, &[&vectors], &columns.slice(0, 1)));
    refused(writer.push(&ids_of(IdKind::Text, [3, 4]), &[&vectors], &columns));
    writer.push(&Ids::none(IdKind::Number), &[&[]], &columns.slice(0, 0)).unwrap();
    writer.push(&ids, &[&vectors], &columns).unwrap();
    let entry = writer.finish(&Silent).unwrap();
    check(&open(&place, &schema, &entry), &schema, 5);
}

#[test]
fn opening_respects_the_memory_limit() {
    let (place, schema) = (in_memory(), schema(IdKind::Number, &[2, 2], &[]));
    let entry = write(&place, &schema, "s-1-aa", 50, &one_thread()).unwrap();
    let opened = |memory_bytes| {
        let options = Arc::new(SegmentOptions { memory_bytes, ..SegmentOptions::default() });
        let segment = Segment::new(&place, schema.clone(), entry.clone(), options);
        segment.index(0).map(|index| index.memory_split().budget)
    };
    assert_eq!(opened(Some(64 << 20)).unwrap(), Some(32 << 20));
    assert_eq!(opened(None).unwrap(), None);
    let error = opened(Some(2)).unwrap_err();
    assert!(matches!(error, CollectionError::Index(bathyal_index::IndexError::Memory { .. })), "{error}");
}
