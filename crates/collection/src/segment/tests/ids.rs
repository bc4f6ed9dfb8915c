//! Ids to rows and back.

use super::super::block::key;
use super::super::fence::Fence;
use super::super::file_writer::FileEntry;
use super::super::id_map::IdMap;
use super::super::id_writer::IdWriter;
use super::super::manifest::{IDS_NAME, Manifest, identity};
use super::*;
use crate::ids::MAX_ID_BYTES;
use bathyal_store::{Draft, Replace, Store};
use proptest::prelude::*;

/// Writes the ids of a segment. Returns the draft that contains them.
fn written(ids: &Ids) -> (Box<dyn Draft>, Manifest) {
    let draft = MemoryStore::new("memory").begin("x", Replace::Never).unwrap();
    let mut writer = IdWriter::begin(&*draft, IDS_NAME, ids.kind(), identity(COLLECTION, "s-1-aa")).unwrap();
    (0..ids.len()).for_each(|at| writer.push(at as u32, key(ids, at)).unwrap());
    let (file, fence) = writer.finish().unwrap();
    let none = FileEntry { name: String::new(), bytes: 0, crc32c: 0 };
    let manifest = Manifest {
        bathyal_segment: 1,
        collection: COLLECTION.into(),
        segment: "s-1-aa".into(),
        rows: ids.len() as u32,
        id: ids.kind(),
        columns: Vec::new(),
        ids: file,
        fence,
        parquet: none.clone(),
        sums: none,
        vectors: Vec::new(),
    };
    (draft, manifest)
}

fn map_of(ids: &Ids) -> IdMap {
    let (draft, manifest) = written(ids);
    IdMap::open(&*draft, &manifest, false).unwrap()
}

/// Checks all lookups of existing ids, and of `others`, which do not exist.
fn check(ids: &Ids, others: &Ids) {
    let map = map_of(ids);
    let every: Vec<Option<u32>> = (0..ids.len() as u32).map(Some).collect();
    assert_eq!(map.find(ids).unwrap(), every);
    assert_eq!(map.find(others).unwrap(), vec![None; others.len()]);
    assert_eq!(map.ids(0..ids.len() as u32).unwrap(), *ids);
    map.check(0, ids, None).unwrap();
    let backwards: Vec<u32> = (0..ids.len() as u32).rev().flat_map(|row| [row, row / 2]).collect();
    assert_eq!(map.ids_of(&backwards).unwrap(), ids.take(&backwards).unwrap());
    for at in 0..others.len() {
        let below = (0..ids.len()).filter(|row| ids.compare(*row, others, at).is_lt()).count();
        assert_eq!(map.lower_bound(key(others, at)).unwrap(), below as u32);
    }
}

#[test]
fn a_hundred_thousand_ids_are_found() {
    for kind in [IdKind::Number, IdKind::Text] {
        let ids = ids_of(kind, 0..100_000);
        let map = map_of(&ids);
        assert_eq!(map.find(&ids).unwrap(), (0..100_000).map(Some).collect::<Vec<_>>());
        let mixed =
            Ids::concat(kind, &[ids.slice(99_999, 1), ids.slice(0, 1), ids.slice(99_999, 1)]).unwrap();
        assert_eq!(map.find(&mixed).unwrap(), [Some(99_999), Some(0), Some(99_999)]);
        assert_eq!(map.ids(49_000..51_001).unwrap(), ids.slice(49_000, 2001));
        assert!(map.ids(7..7).unwrap().is_empty() && map.find(&Ids::none(kind)).unwrap().is_empty());
        assert!(map.held_bytes() < 10_000, "{kind:?}: {} bytes", map.held_bytes());
        let (_, manifest) = written(&ids);
        // Numbers take 8 bytes; texts take their suffix and two bytes.
        let most = if kind == IdKind::Number { 8.2 } else { 7.2 };
        assert!((manifest.ids.bytes as f64) < most * 1e5, "{kind:?}: {} bytes", manifest.ids.bytes);
    }
    let between: Vec<u64> = (0..100_000).map(|row| 4 + 7 * row).chain([0, 2, u64::MAX]).collect();
    let map = map_of(&ids_of(IdKind::Number, 0..100_000));
    assert_eq!(map.find(&Ids::Numbers(between.into())).unwrap(), vec![None; 100_003]);
}

#[test]
fn extreme_ids_are_found() {
    check(&Ids::Numbers(vec![0].into()), &Ids::Numbers(vec![1, u64::MAX].into()));
    check(&Ids::Numbers(vec![0, u64::MAX].into()), &Ids::Numbers(vec![1, u64::MAX - 1].into()));
    check(&Ids::Texts(vec!["a"].into()), &Ids::Texts(vec!["A", "aa", "b", "\u{10ffff}"].into()));
    // One is a prefix of the other, over many blocks.
    let long: Vec<String> = (1..=MAX_ID_BYTES).map(|len| "x".repeat(len)).collect();
    let others: Vec<String> = (1..MAX_ID_BYTES).step_by(37).map(|len| "x".repeat(len) + "w").collect();
    check(&Ids::Texts(long.into()), &Ids::Texts(others.into()));
    // They differ in the middle of a character.
    let letters: Vec<String> =
        (0..5000u32).filter_map(|at| char::from_u32(0x4e00 + at)).map(String::from).collect();
    check(&Ids::Texts(letters.into()), &Ids::Texts(vec!["z", "\u{4dff}", "\u{9fff}"].into()));
    let wide: Vec<String> =
        (0..20u8).map(|at| char::from(b'a' + at).to_string().repeat(MAX_ID_BYTES)).collect();
    check(&Ids::Texts(wide.into()), &Ids::Texts(vec!["a", "b", "zz"].into()));
}

#[test]
fn a_segment_finds_its_ids_and_no_others() {
    fn shared<T: Send + Sync>(_: &T) {}
    for kind in [IdKind::Number, IdKind::Text] {
        let segment = segment(&schema(kind, &[3], &[]), 1500);
        shared(&segment);
        let asked = ids_of(kind, [1499, 2000, 0, 700, 700, 99_999]);
        assert_eq!(segment.find(&asked).unwrap(), [Some(1499), None, Some(0), Some(700), Some(700), None]);
        assert_eq!(segment.ids_of(&[7, 7, 1499, 0]).unwrap(), ids_of(kind, [7, 7, 1499, 0]));
        assert_eq!(segment.ids(3..900).unwrap(), ids_of(kind, 3..900));
        assert!(segment.find(&Ids::none(kind)).unwrap().is_empty());
        for (id, row) in [(id_of(kind, 0), 0), (id_of(kind, 1499), 1499), (id_of(kind, 1500), 1500)] {
            assert_eq!(segment.lower_bound(&id).unwrap(), row);
        }
        let (low, other) = match kind {
            IdKind::Number => (Id::Number(0), Id::Text("x".into())),
            IdKind::Text => (Id::Text("a".into()), Id::Number(1)),
        };
        assert_eq!(segment.lower_bound(&low).unwrap(), 0);
        let wrong = |error: CollectionError| matches!(error, CollectionError::Parameter(_));
        assert!(wrong(segment.lower_bound(&other).unwrap_err()));
        assert!(wrong(
            segment
                .find(
                    &Ids::from_ids(
                        if kind == IdKind::Text { IdKind::Number } else { IdKind::Text },
                        &[other]
                    )
                    .unwrap()
                )
                .unwrap_err()
        ));
        assert!(wrong(segment.ids_of(&[1500]).unwrap_err()));
        assert!(wrong(segment.ids(0..1501).unwrap_err()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_texts_are_found(texts in prop::collection::btree_set("[a-c\u{e9}]{1,40}|x{1000,1024}", 1..400)) {
        let (odd, even): (Vec<_>, Vec<_>) = texts.into_iter().enumerate().partition(|(at, _)| at % 2 == 1);
        let texts = |some: Vec<(usize, String)>| {
            Ids::Texts(some.into_iter().map(|(_, text)| Some(text)).collect())
        };
        // Byte order, which is also the order of the set.
        check(&texts(even), &texts(odd));
    }

    #[test]
    fn any_numbers_are_found(numbers in prop::collection::btree_set(any::<u64>(), 1..2000)) {
        let (odd, even): (Vec<_>, Vec<_>) = numbers.into_iter().enumerate().partition(|(at, _)| at % 2 == 1);
        let numbers = |some: Vec<(usize, u64)>| {
            Ids::Numbers(some.into_iter().map(|(_, number)| number).collect::<Vec<_>>().into())
        };
        check(&numbers(even), &numbers(odd));
    }

    #[test]
    fn any_fence_is_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        blocks in 0u32..20,
        rows in 0u32..3000,
    ) {
        let segment_identity = identity(COLLECTION, "s-1-aa");
        let crc32c = segment_identity.checksum(&bytes);
        let entry = super::super::id_writer::FenceEntry { blocks, bytes: bytes.len() as u64, crc32c };
        for kind in [IdKind::Number, IdKind::Text] {
            let Ok(fence) = Fence::read(kind, segment_identity, &entry, rows, &bytes) else { continue };
            for row in [0, rows / 2, rows - 1] {
                let block = fence.block_of_row(row);
                prop_assert!(fence.first_row(block, rows) <= row && row < fence.first_row(block + 1, rows));
            }
        }
    }
}
