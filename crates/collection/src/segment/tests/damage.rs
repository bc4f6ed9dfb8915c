//! Segments with damaged or exchanged bytes.

use super::super::manifest::{IDS_NAME, ROWS_NAME, SUMS_NAME};
use super::*;
use crate::location::{MARK, Part};
use bathyal_store::{DraftExt, GenerationExt, Replace};
use bathyal_tier::Control;
use proptest::prelude::*;

const FILES: [&str; 4] = [IDS_NAME, ROWS_NAME, SUMS_NAME, MARK];

/// Names of objects with their bytes.
type Files = Vec<(String, Vec<u8>)>;

/// Results of all kinds of reads of a segment.
#[derive(Debug, PartialEq)]
struct ReadResults {
    found: Vec<Option<u32>>,
    ids: Ids,
    columns: RecordBatch,
    scanned: Vec<RecordBatch>,
    bound: u32,
}

const COUNT: u32 = 2500;

fn read_everything(segment: &Segment, kind: IdKind) -> Result<ReadResults, CollectionError> {
    let asked = ids_of(kind, [0, 5, 1200, 3000, 2499]);
    let mut scanned = Vec::new();
    segment.scan(&[0, 1], true, &mut |_, batch| {
        scanned.push(batch);
        Ok(())
    })?;
    Ok(ReadResults {
        found: segment.find(&asked)?,
        ids: segment.ids(0..COUNT)?,
        columns: segment.columns_of(&[2499, 0, 1200], &[1, 0])?,
        scanned,
        bound: segment.lower_bound(&id_of(kind, 1700))?,
    })
}

/// Writes a segment. Returns its location and its files by name.
fn written(kind: IdKind, name: &str, count: u32) -> (CollectionLocation, Arc<Schema>, SegmentEntry, Files) {
    let (place, schema) = (in_memory(), schema(kind, &[2, 2], &["string", "list<int64>"]));
    let entry = write(&place, &schema, name, count, &one_thread()).unwrap();
    let generation = place.store().open(&Part::Segment(name.into(), None).name()).unwrap();
    let files = FILES.iter().map(|file| (file.to_string(), generation.read(file).unwrap())).collect();
    (place, schema, entry, files)
}

/// Publishes files as the rows of a segment.
fn replace(place: &CollectionLocation, name: &str, files: &Files) {
    let draft = place.store().begin(&Part::Segment(name.into(), None).name(), Replace::Generation).unwrap();
    files.iter().for_each(|(name, bytes)| draft.put(name, bytes).unwrap());
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    draft.publish(&names, "").unwrap();
}

#[test]
fn parts_of_other_segments_are_refused() {
    for kind in [IdKind::Number, IdKind::Text] {
        let (place, schema, entry, files) = written(kind, "s-1-aa", COUNT);
        // The same rows under another segment name, at the same location.
        let other = write(&place, &schema, "s-2-bb", COUNT, &one_thread()).unwrap();
        let generation = place.store().open("s-2-bb-rows").unwrap();
        let good = read_everything(&open(&place, &schema, &entry), kind).unwrap();
        assert_eq!(good, read_everything(&open(&place, &schema, &other), kind).unwrap());
        for (at, name) in FILES.iter().enumerate() {
            let mut mixed = files.clone();
            mixed[at].1 = generation.read(name).unwrap();
            if mixed == files {
                assert_eq!(*name, ROWS_NAME, "equal rows give equal Parquet files, which hold no identity");
                continue;
            }
            replace(&place, "s-1-aa", &mixed);
            let segment = open(&place, &schema, &entry);
            let error = read_everything(&segment, kind).unwrap_err();
            assert!(matches!(error, CollectionError::Damaged { .. }), "{name}: {error}");
            assert!(!segment.verify(&Silent).unwrap().is_empty(), "{name}");
        }
        replace(&place, "s-1-aa", &files);
        assert_eq!(read_everything(&open(&place, &schema, &entry), kind).unwrap(), good);
        // The version of one segment refuses the manifest of the other.
        let swapped = SegmentEntry { name: other.name.clone(), ..entry.clone() };
        assert!(matches!(
            read_everything(&open(&place, &schema, &swapped), kind),
            Err(CollectionError::Damaged { .. })
        ));
    }
}

#[test]
fn indexes_of_other_segments_and_fields_are_refused() {
    let (place, schema) = (in_memory(), schema(IdKind::Number, &[2, 2], &[]));
    let entry = write(&place, &schema, "s-1-aa", 50, &one_thread()).unwrap();
    write(&place, &schema, "s-2-bb", 49, &one_thread()).unwrap();
    let copy = |from: &str, to: &str| {
        let from = place.store().open(from).unwrap();
        let names = from.list().unwrap();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let draft = place.store().begin(to, Replace::Generation).unwrap();
        names.iter().for_each(|name| draft.put(name, &from.read(name).unwrap()).unwrap());
        draft.publish(&names, "").unwrap();
    };
    assert!(open(&place, &schema, &entry).index(0).is_ok());
    copy("s-2-bb-v0", "s-1-aa-v0");
    let segment = open(&place, &schema, &entry);
    assert!(segment.index(1).is_ok());
    for error in [segment.index(0).map(drop), segment.vectors_of(0, &[1], Control::default()).map(drop)] {
        assert!(matches!(error, Err(CollectionError::Damaged { .. })), "{error:?}");
    }
    assert_eq!(segment.verify(&Silent).unwrap().len(), 1);
    assert!(matches!(segment.index(2).map(drop), Err(CollectionError::Parameter(_))));
    place.store().delete("s-1-aa-v1").unwrap();
    let segment = open(&place, &schema, &entry);
    assert_eq!(segment.verify(&Silent).unwrap().len(), 2);
    let missing = segment.index(1).map(drop).unwrap_err();
    assert!(
        matches!(missing, CollectionError::Store(bathyal_store::StoreError::Missing { .. })),
        "{missing}"
    );
}

#[test]
fn reordered_blocks_and_pieces_are_refused() {
    let (place, schema, entry, files) = written(IdKind::Number, "s-1-aa", 20_000);
    for (at, unit) in [(0, 4096), (1, 16 << 10)] {
        let mut moved = files.clone();
        let (name, bytes) = &mut moved[at];
        assert!(bytes.len() > 2 * unit, "{name} has {} bytes", bytes.len());
        let (first, second) = bytes.split_at_mut(unit);
        first.swap_with_slice(&mut second[..unit]);
        replace(&place, "s-1-aa", &moved);
        let error = read_everything(&open(&place, &schema, &entry), IdKind::Number).unwrap_err();
        assert!(matches!(error, CollectionError::Damaged { .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Changes one bit of a file, or truncates or extends it: reads return an error, or the same results as
    /// before.
    #[test]
    fn damage_gives_an_error_and_never_another_result(
        text in any::<bool>(),
        file in 0usize..4,
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
        how in 0u8..4,
    ) {
        use std::sync::OnceLock;
        type WrittenRows = (CollectionLocation, Arc<Schema>, SegmentEntry, Files, ReadResults);
        static WRITTEN: [OnceLock<WrittenRows>; 2] = [const { OnceLock::new() }; 2];
        let kind = if text { IdKind::Text } else { IdKind::Number };
        let (_, schema, entry, files, good) = WRITTEN[usize::from(text)].get_or_init(|| {
            let (place, schema, entry, files) = written(kind, "s-1-aa", COUNT);
            let good = read_everything(&open(&place, &schema, &entry), kind).unwrap();
            (place, schema, entry, files, good)
        });
        let mut damaged = files.clone();
        let bytes = &mut damaged[file].1;
        let place_of = at.index(bytes.len());
        match how {
            0 => bytes.truncate(place_of),
            1 => bytes.extend_from_within(..place_of.clamp(1, 5000)),
            // Zeros, as after a loss of power.
            2 => bytes[place_of..].fill(0),
            _ => bytes[place_of] ^= 1 << bit,
        }
        let same = damaged == *files;
        let place = in_memory();
        replace(&place, "s-1-aa", &damaged);
        let segment = open(&place, schema, entry);
        match read_everything(&segment, kind) {
            Ok(answers) => prop_assert_eq!(&answers, good),
            Err(error) => prop_assert!(matches!(error, CollectionError::Damaged { .. }), "{}", error),
        }
        let faults = segment.verify(&Silent).unwrap();
        // The indexes are missing, too.
        prop_assert!(faults.len() > if same { 1 } else { 2 }, "{:?}", faults);
    }
}
