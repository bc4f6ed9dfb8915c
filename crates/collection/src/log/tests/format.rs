use super::*;
use crate::log::record::{LogEnd, LogFormat, SECTOR_BYTES};
use proptest::prelude::*;
use std::path::Path;

/// Creates a log, and returns it with the end of each record. The labels are consecutive. `batches` are the
/// numbers of records that are appended at once.
fn log(format: &LogFormat, first: u64, batches: &[u64]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends, mut next) = (Vec::new(), Vec::new(), first);
    for count in batches {
        let mut batch = batch(next..next + count);
        let at = bytes.len();
        bytes.extend(batch.encode_at(format, at as u64, next, at as u64).concat());
        let mut single = at + if at == 0 { SECTOR_BYTES } else { 0 };
        for label in next..next + count {
            single += self::batch([label]).bytes();
            ends.push(single);
        }
        next += count;
    }
    assert_eq!(ends.last(), Some(&bytes.len()));
    (bytes, ends)
}

type ReadResult = Result<(Vec<u64>, LogEnd), CollectionError>;

fn read(format: &LogFormat, end: LogEnd, bytes: &[u8], through: u64) -> ReadResult {
    let mut found = Vec::new();
    let mut on_record = |sequence, change: Change| {
        assert_eq!(label_of(&change), sequence);
        found.push(sequence);
        Ok(())
    };
    let schema = schema(IdKind::Number);
    let bytes = Arc::new(bytes.to_vec());
    let end = format.read(Path::new("rows.log"), &schema, end, &bytes, through, &mut on_record)?;
    Ok((found, end))
}

fn format() -> LogFormat {
    LogFormat::new("this", 7)
}

/// Seven records in four batches; the last batch has one record.
fn seven_records() -> (Vec<u8>, Vec<usize>) {
    log(&format(), 7, &[1, 3, 2, 1])
}

#[test]
fn a_log_is_read_at_once_or_record_by_record() {
    let (format, (bytes, ends)) = (format(), seven_records());
    let whole = LogEnd { at: bytes.len() as u64, next: 14, sealed: false };
    assert_eq!(read(&format, format.empty_end(), &bytes, 0).unwrap(), ((7..14).collect(), whole));
    assert_eq!(read(&format, format.empty_end(), &bytes, 11).unwrap(), (vec![12, 13], whole));
    let mut end = format.empty_end();
    for (i, until) in ends.iter().enumerate() {
        let (found, now) = read(&format, end, &bytes[end.at as usize..*until], 0).unwrap();
        assert_eq!((found, now.at), (vec![7 + i as u64], *until as u64));
        end = now;
    }
    assert_eq!(read(&format, format.empty_end(), &[], 0).unwrap(), (vec![], format.empty_end()));
}

#[test]
fn string_ids_columns_and_aligned_vectors_are_read_back() {
    let (format, schema) = (LogFormat::new("text", 1), schema(IdKind::Text));
    // Empty ids are never written.
    let mut batch = Batch::new();
    batch.push(&Change::Delete(Ids::Texts(vec!["b", ""].into()))).unwrap();
    let bytes = Arc::new(batch.encode_at(&format, 0, 1, 0).concat());
    let read = format.read(Path::new("x"), &schema, format.empty_end(), &bytes, 0, &mut |_, _| Ok(()));
    assert!(matches!(read, Err(CollectionError::Damaged { .. })), "{read:?}");

    let ids = Ids::Texts(vec!["b", "a", "\u{e9}"].into());
    // For some of these, the vectors of one field or of both are written separately.
    let changes = [1, 6_000, 7, 15_000, 2].map(|rows| put(Ids::Texts(vec!["x"; rows].into()), rows as u64));
    let [few, one, some, both, last] = changes;
    let changes = [put(ids.clone(), 9), few, one, Change::Delete(ids), some, both, last];
    let mut batch = Batch::new();
    changes.iter().for_each(|change| batch.push(change).unwrap());
    let bytes = Arc::new(batch.encode_at(&format, 0, 1, 0).concat());
    let mut found = Vec::new();
    let mut on_record = |_, change: Change| {
        if let Change::Put(rows) = &change {
            for field in rows.vectors() {
                let at = field.row(0).as_ptr() as usize - bytes.as_ptr() as usize;
                assert_eq!(at % 64, 0, "within the log, at a multiple of 64");
            }
        }
        found.push(formatted(&change));
        Ok(())
    };
    format.read(Path::new("x"), &schema, format.empty_end(), &bytes, 0, &mut on_record).unwrap();
    assert_eq!(found, changes.each_ref().map(formatted));
}

#[test]
fn a_truncated_log_has_its_complete_records_whatever_follows() {
    let (format, (bytes, ends)) = (format(), seven_records());
    let (longer, _) = log(&LogFormat::new("this", 1), 1, &[2, 2, 9]);
    for cut in (0..=bytes.len()).step_by(37).chain(ends.iter().copied()) {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let expected: Vec<u64> = (7..7 + whole as u64).collect();
        let (found, end) = read(&format, format.empty_end(), &bytes[..cut], 0).unwrap();
        assert_eq!(found, expected, "{cut}");
        let last = ends[..whole].last().copied();
        // After the header alone, the log ends where the first record begins.
        let begun = if cut >= SECTOR_BYTES { SECTOR_BYTES } else { 0 };
        assert_eq!(end.at as usize, last.unwrap_or(begun), "{cut}");
        let noise: Vec<u8> = (0..3000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        // Tails: zeros that the file system left, earlier content of the disk, and a part of a removed log.
        for tail in [vec![0; 5000], noise, longer[cut.min(longer.len())..].to_vec()] {
            let bytes = [&bytes[..cut], &tail].concat();
            match read(&format, format.empty_end(), &bytes, 0) {
                Ok((found, _)) => {
                    assert!(found.starts_with(&expected), "{cut}");
                    assert!(found.len() <= whole + 1, "{cut}: zeros after the cut may complete one record");
                }
                // Not even the header was written.
                Err(error) => assert!(cut < SECTOR_BYTES, "{cut}: {error}"),
            }
        }
    }
}

#[test]
fn only_unsynced_appends_may_have_holes() {
    let (format, (bytes, ends)) = (format(), seven_records());
    // Records 8, 9 and 10 were appended at once. After a power failure, the first of them is missing.
    let mut torn = bytes[..ends[3]].to_vec();
    torn[ends[0]..ends[1]].fill(0);
    let (found, end) = read(&format, format.empty_end(), &torn, 0).unwrap();
    assert_eq!((found, end.at), (vec![7], ends[0] as u64), "these records were not acknowledged");
    // A later record proves that they were on the disk, so this is damage.
    let mut damaged = bytes.clone();
    damaged[ends[0]..ends[1]].fill(0);
    let error = read(&format, format.empty_end(), &damaged, 0).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("rows.log") && text.contains(&format!("byte {}", ends[0])), "{text}");
}

#[test]
fn damage_of_any_byte_before_the_last_append_is_noticed() {
    let (format, (bytes, ends)) = (format(), seven_records());
    let last = ends[5];
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        match read(&format, format.empty_end(), &damaged, 0) {
            Err(CollectionError::Damaged { .. }) => assert!(at < last, "byte {at}"),
            Err(other) => panic!("byte {at}: {other}"),
            Ok((found, end)) => {
                assert!(at >= last, "byte {at}");
                assert_eq!((found, end.at), ((7..13).collect(), last as u64), "byte {at}");
            }
        }
    }
}

#[test]
fn logs_of_other_collections_and_of_later_formats_are_refused() {
    let (bytes, ends) = seven_records();
    for other in [LogFormat::new("that", 7), LogFormat::new("this", 8)] {
        let error = read(&other, other.empty_end(), &bytes, 0).unwrap_err();
        assert!(matches!(error, CollectionError::Damaged { .. }), "{error}");
    }
    let format = format();
    let mut swapped = bytes.clone();
    swapped[ends[0]..].rotate_left(ends[3] - ends[0]);
    assert!(read(&format, format.empty_end(), &swapped, 0).is_err(), "batches that were swapped");
    let twice = [&bytes[..], &bytes[ends[5]..]].concat();
    assert!(read(&format, format.empty_end(), &twice, 0).is_err(), "a record at a wrong offset");

    let mut later = bytes;
    later[8] = 2;
    let seed = crc32c::crc32c_append(crc32c::crc32c(b"this"), &7_u64.to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &later[..12]);
    later[12..16].copy_from_slice(&crc.to_le_bytes());
    let error = read(&format, format.empty_end(), &later, 0).unwrap_err();
    assert!(matches!(error, CollectionError::LaterVersion { found: 2, .. }), "{error}");
}

#[test]
fn a_log_ends_at_its_seal() {
    let (format, (mut bytes, _)) = (format(), seven_records());
    let at = bytes.len() as u64;
    bytes.extend(Batch::seal().encode_at(&format, at, 14, at).concat());
    let at = bytes.len() as u64;
    bytes.extend(batch([15]).encode_at(&format, at, 15, at).concat());
    let (found, end) = read(&format, format.empty_end(), &bytes, 0).unwrap();
    assert_eq!((found, end), ((7..14).collect(), LogEnd { at, next: 15, sealed: true }));
}

#[test]
fn rows_of_another_schema_are_refused() {
    let (format, (bytes, _)) = (format(), seven_records());
    let mut other = schema(IdKind::Number);
    other.vectors[0].dim = 100;
    let mut renamed = schema(IdKind::Number);
    renamed.columns[0].name = "other".into();
    for schema in [other, renamed, schema(IdKind::Text)] {
        let read = format.read(
            Path::new("x"),
            &schema,
            format.empty_end(),
            &Arc::new(bytes.clone()),
            0,
            &mut |_, _| Ok(()),
        );
        assert!(matches!(read, Err(CollectionError::Damaged { .. })), "{read:?}");
    }
    let batch = Batch::new();
    assert_eq!((batch.len(), batch.bytes()), (0, 0));
}

proptest! {
    /// Any change to a log yields the first records, or an error that says where the damage is.
    #[test]
    fn changed_logs_yield_valid_records_or_errors(
        batches in prop::collection::vec(1_u64..4, 1..6),
        cut in 0_usize..20_000,
        flips in prop::collection::vec((0_usize..20_000, 1_u8..), 0..4),
        tail in prop::collection::vec(any::<u8>(), 0..2000),
        copied in prop::option::of((0_usize..20, 0_usize..20)),
    ) {
        let format = format();
        let (mut bytes, ends) = log(&format, 7, &batches);
        if let Some((from, to)) = copied {
            let sectors = bytes.len() / SECTOR_BYTES;
            let (from, to) = (from % sectors * SECTOR_BYTES, to % sectors * SECTOR_BYTES);
            bytes.copy_within(from..from + SECTOR_BYTES, to);
        }
        bytes.truncate(cut.max(1));
        let len = bytes.len();
        flips.iter().for_each(|(at, with)| bytes[at % len] ^= with);
        bytes.extend_from_slice(&tail);
        match read(&format, format.empty_end(), &bytes, 0) {
            Ok((found, end)) => {
                let expected: Vec<u64> = (7..7 + found.len() as u64).collect();
                prop_assert_eq!(&found, &expected);
                prop_assert!(found.len() <= ends.len());
                prop_assert!(end.at as usize <= bytes.len());
            }
            Err(CollectionError::Damaged { place, .. }) => {
                prop_assert!(place.starts_with("byte "), "{}", place);
            }
            Err(CollectionError::LaterVersion { .. }) => prop_assert!(false, "the checksum is wrong"),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    /// Random payloads with correct checksums are decoded or refused.
    #[test]
    fn random_payloads_with_valid_checksums_are_decoded_or_refused(
        payload in prop::collection::vec(any::<u8>(), 1..1500),
        at in 0_usize..1500,
        keep in any::<bool>(),
    ) {
        let format = format();
        let mut batch = batch([7]);
        batch.forge(|bytes| {
            let at = if keep { at % bytes.len() } else { 0 };
            let end = bytes.len().min(at + if keep { 8 } else { payload.len() });
            let forged = payload.iter().copied().cycle().take(end - at);
            bytes[at..end].copy_from_slice(&forged.collect::<Vec<_>>());
        });
        let bytes = Arc::new(batch.encode_at(&format, 0, 7, 0).concat());
        let schema = schema(IdKind::Number);
        let read = format.read(Path::new("x"), &schema, format.empty_end(), &bytes, 0, &mut |_, _| Ok(()));
        prop_assert!(matches!(read, Ok(_) | Err(CollectionError::Damaged { .. })), "{:?}", read);
    }
}
