//! Reading files of vectors and ids: every format, and every kind of invalid file.

use std::path::PathBuf;
use std::sync::Arc;

use bathyal_kernels::{Element, Metric, MetricName};
use bathyal_vectors::{
    FileFormat, IdFile, LargestValue, MAX_DIM, VectorError, VectorFile, VectorWriter, write_ids,
};
use tempfile::TempDir;

/// Creates a folder with one file of the given bytes.
fn file(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn open(name: &str, bytes: &[u8]) -> Result<VectorFile, VectorError> {
    let (_dir, path) = file(name, bytes);
    VectorFile::open(path)
}

fn open_ids(name: &str, bytes: &[u8]) -> Result<IdFile, VectorError> {
    let (_dir, path) = file(name, bytes);
    IdFile::open(path)
}

/// Returns the bytes of a `.?bin` file: two u32, then `body`.
fn bin(count: u32, dim: u32, body: &[u8]) -> Vec<u8> {
    [&count.to_le_bytes()[..], &dim.to_le_bytes(), body].concat()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn npy(version: u8, text: &str, body: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY".to_vec();
    out.extend([version, 0]);
    match version {
        1 => out.extend((text.len() as u16).to_le_bytes()),
        _ => out.extend((text.len() as u32).to_le_bytes()),
    }
    out.extend(text.as_bytes());
    out.extend(body);
    out
}

const NPY_2X3_U8: &str = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }";

/// Asserts that the error is of the given kind and returns its message.
macro_rules! refused {
    ($result:expr, $kind:pat) => {
        match $result {
            Err(e @ $kind) => {
                let message = e.to_string();
                assert!(!message.contains("  "), "{message}");
                message
            }
            other => panic!("expected {}, got {other:?}", stringify!($kind)),
        }
    };
}

#[test]
fn every_bin_extension_is_read() {
    for (name, element) in [
        ("a.fbin", Element::F32),
        ("a.f16bin", Element::F16),
        ("a.u8bin", Element::U8),
        ("a.I8BIN", Element::I8),
        ("a.bf16bin", Element::Bf16),
        ("a.b1bin", Element::B1),
    ] {
        let row_bytes = element.row_bytes(24);
        let body: Vec<u8> = (0..2 * row_bytes as u8).collect();
        let found = open(name, &bin(2, 24, &body)).unwrap();
        assert_eq!((found.count(), found.dim(), found.element()), (2, 24, element));
        assert_eq!(found.data_bytes(), body.len() as u64);
        assert_eq!((found.row_bytes(), found.stride()), (row_bytes, row_bytes));
        assert_eq!(found.row(1), &body[row_bytes..]);
        assert_eq!(found.rows(0..2), Some(&body[..]));
        assert_eq!(found.rows(2..2), Some(&[][..]));
        assert_eq!(found.rows(1..3), None);
    }
}

#[test]
fn bytes_are_read_as_bits() {
    let bytes = open("a.u8bin", &bin(2, 3, &[1, 2, 3, 0xff, 0, 0x80])).unwrap();
    let bits = bytes.as_bits().unwrap();
    assert_eq!((bits.count(), bits.dim(), bits.element(), bits.row_bytes()), (2, 24, Element::B1, 3));
    assert_eq!((bits.row(1), bits.as_bits().unwrap().dim()), (&[0xff, 0, 0x80][..], 24));
    assert_eq!((bytes.dim(), bytes.element()), (3, Element::U8));
    assert!(open("a.i8bin", &bin(1, 3, &[1, 2, 3])).unwrap().as_bits().is_none());
    assert!(open("a.u8bin", &bin(1, 8193, &[0; 8193])).unwrap().as_bits().is_none(), "too many bits");
    let (bits, metric) = bytes.clone().for_metric(MetricName::Hamming).unwrap();
    assert_eq!((bits.element(), metric), (Element::B1, Metric::L2));
    let (same, metric) = bytes.for_metric(MetricName::Metric(Metric::Cosine)).unwrap();
    assert_eq!((same.element(), metric), (Element::U8, Metric::Cosine));
    let floats = open("a.fbin", &bin(1, 1, &[0; 4])).unwrap();
    let message = refused!(floats.for_metric(MetricName::Hamming), VectorError::Argument { .. });
    assert!(message.contains("holds f32") && message.contains("packbits"), "{message}");
    // Strides stay the same: rows of `.bvecs` begin with their length in bytes.
    let row = [&3_u32.to_le_bytes()[..], &[4, 5, 6]].concat();
    let bits = open("a.bvecs", &row).unwrap().as_bits().unwrap();
    assert_eq!((bits.dim(), bits.stride(), bits.row(0)), (24, 7, &[4, 5, 6][..]));
    bits.check_finite().unwrap();
    let message = refused!(open("a.b1bin", &bin(1, 9, &[0; 2])), VectorError::Header { field: "dim", .. });
    assert!(message.contains("a multiple of 8"), "{message}");
    let short = open("a.b1bin", &bin(2, 24, &[0; 48])).unwrap_err().to_string();
    assert!(short.contains("fits 8-bit"), "{short}");
}

#[test]
fn vecs_rows_are_read_without_their_prefixes() {
    let row = |dim: u32, values: [u8; 3]| [&dim.to_le_bytes()[..], &values].concat();
    let bytes = [row(3, [1, 2, 3]), row(3, [4, 5, 6])].concat();
    let found = open("a.bvecs", &bytes).unwrap();
    assert_eq!((found.count(), found.dim(), found.element()), (2, 3, Element::U8));
    assert_eq!((found.row_bytes(), found.stride()), (3, 7));
    assert_eq!((found.row(0), found.row(1)), (&[1, 2, 3][..], &[4, 5, 6][..]));
    assert_eq!(found.rows(0..2), None);
    assert_eq!(found.strided(0..2).unwrap().len(), 3 + 7);
    assert_eq!(found.strided(1..2).unwrap(), &[4, 5, 6]);

    let damaged = [row(3, [1, 2, 3]), row(4, [4, 5, 6])].concat();
    let message =
        refused!(open("a.bvecs", &damaged), VectorError::RowLength { row: 1, found: 4, expected: 3, .. });
    assert!(message.contains("a.bvecs"), "{message}");
    refused!(open("a.bvecs", &bytes[..13]), VectorError::Truncated { found: 13, expected: 14, .. });
    refused!(open("a.fvecs", &bytes[..3]), VectorError::ShortHeader { found: 3, expected: 4, .. });
    refused!(open("a.fvecs", &[0; 8]), VectorError::Header { field: "dim", found: 0, .. });
    refused!(open("a.fvecs", &[255; 8]), VectorError::Header { field: "dim", .. });
}

#[test]
fn a_wrong_length_between_checked_rows_is_found_by_the_full_check() {
    let mut bytes: Vec<u8> = (0..2000).flat_map(|_| [2, 0, 0, 0, 7, 7]).collect();
    bytes[6 * 1001] = 3;
    let found = VectorFile::from_file_bytes(FileFormat::Vecs(Element::U8), bytes).unwrap();
    refused!(found.check_finite(), VectorError::RowLength { row: 1001, found: 3, expected: 2, .. });
}

#[test]
fn npy_files_of_every_version_element_and_spelling_are_read() {
    for version in [1, 2, 3] {
        let found = open("a.npy", &npy(version, NPY_2X3_U8, &[1, 2, 3, 4, 5, 6])).unwrap();
        assert_eq!((found.count(), found.dim(), found.element()), (2, 3, Element::U8));
        assert_eq!(found.row(1), &[4, 5, 6]);
    }
    for (descr, element) in
        [("<f4", Element::F32), ("<f2", Element::F16), ("|u1", Element::U8), ("|i1", Element::I8)]
    {
        let text = format!("{{\"shape\":(1L,2),\"fortran_order\":False,\"descr\":\"{descr}\"}}\n");
        let found = open("a.npy", &npy(1, &text, &vec![0; element.row_bytes(2)])).unwrap();
        assert_eq!((found.count(), found.dim(), found.element()), (1, 2, element));
    }
}

#[test]
fn npy_of_other_kinds_is_refused_with_the_reason() {
    let edited = |from: &str, to: &str| npy(1, &NPY_2X3_U8.replace(from, to), &[0; 6]);
    for (bytes, reason) in [
        (edited("False", "True"), "Fortran"),
        (edited("|u1", "<f8"), "'<f8'"),
        (edited("|u1", ">f4"), "big-endian"),
        (edited("'|u1'", "[('x', '<f4'), ('y', '<f4')]"), "('x', '<f4')"),
        (edited("(2, 3)", "(6,)"), "1 dimensions"),
        (edited("(2, 3)", "()"), "0 dimensions"),
        (edited("(2, 3)", "(1, 2, 3)"), "3 dimensions"),
        (edited("(2, 3)", "(2, -3)"), "dictionary"),
        (edited("(2, 3)", "(2, 3"), "dictionary"),
        (edited("(2, 3)", "(99999999999999999999999, 3)"), "dictionary"),
        (edited("'shape'", "'form'"), "dictionary"),
        (edited("}", ""), "dictionary"),
        (npy(4, NPY_2X3_U8, &[0; 6]), "4.0"),
        (npy(2, &" ".repeat(10_001), &[0; 6]), "10001"),
        (b"PK\x03\x04 a zip file".to_vec(), "mark"),
    ] {
        let message = refused!(open("a.npy", &bytes), VectorError::Npy { .. });
        assert!(message.contains(reason), "{message} should say {reason}");
    }
    let whole = npy(1, NPY_2X3_U8, &[0; 6]);
    for cut in 6..whole.len() - 6 {
        refused!(open("a.npy", &whole[..cut]), VectorError::ShortHeader { .. });
    }
    refused!(open("a.npy", &whole[..whole.len() - 1]), VectorError::Truncated { .. });
    let zero = npy(1, &NPY_2X3_U8.replace("(2,", "(0,"), &[]);
    refused!(open("a.npy", &zero), VectorError::Empty { .. });
    let large = npy(1, &NPY_2X3_U8.replace("(2,", "(18446744073709551615,"), &[0; 6]);
    refused!(open("a.npy", &large), VectorError::Header { field: "count", .. });
}

#[test]
fn invalid_headers_are_refused() {
    refused!(open("a.fbin", &[]), VectorError::Empty { .. });
    refused!(open("a.fbin", &[1, 0, 0, 0, 2, 0, 0]), VectorError::ShortHeader { found: 7, expected: 8, .. });
    refused!(open("a.fbin", &bin(0, 4, &[])), VectorError::Empty { .. });
    refused!(open("a.fbin", &bin(1, 0, &[])), VectorError::Header { field: "dim", found: 0, .. });
    let too_wide = MAX_DIM as u32 + 1;
    refused!(open("a.fbin", &bin(1, too_wide, &[])), VectorError::Header { field: "dim", .. });
    refused!(open("a.fbin", &bin(u32::MAX, MAX_DIM as u32, &[0; 64])), VectorError::Truncated { .. });
    let whole = bin(2, 3, &[0; 24]);
    let message =
        refused!(open("a.fbin", &whole[..31]), VectorError::Truncated { found: 31, expected: 32, .. });
    assert!(message.contains("copy it again"), "{message}");
    refused!(
        open("a.fbin", &[&whole[..], &[0]].concat()),
        VectorError::OverLong { found: 33, expected: 32, .. }
    );
}

#[test]
fn a_length_that_fits_another_element_is_pointed_out() {
    let message = refused!(open("a.fbin", &bin(2, 3, &[0; 6])), VectorError::Truncated { .. });
    assert!(message.contains(".u8bin"), "{message}");
    let message = refused!(open("a.i8bin", &bin(2, 3, &[0; 24])), VectorError::OverLong { .. });
    assert!(message.contains(".fbin"), "{message}");
    let message = refused!(open("a.u8bin", &bin(2, 3, &[0; 12])), VectorError::OverLong { .. });
    assert!(message.contains(".f16bin"), "{message}");
}

#[test]
fn paths_that_are_not_vector_files_are_refused() {
    let message = refused!(VectorFile::open("/no/such/file.fbin"), VectorError::Io { .. });
    assert!(message.contains("/no/such/file.fbin"), "{message}");
    for (name, advice) in
        [("a.txt", "rename"), ("a.ibin", "ground truth"), ("a.hdf5", "Python"), ("a", "rename")]
    {
        let message = refused!(open(name, &[0; 64]), VectorError::UnknownExtension { .. });
        assert!(message.contains(advice), "{message}");
    }
    refused!(open_ids("a.fbin", &[0; 64]), VectorError::UnknownExtension { .. });
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder.fbin");
    std::fs::create_dir(&folder).unwrap();
    refused!(VectorFile::open(&folder), VectorError::NotAFile { .. });
}

#[test]
fn values_that_are_not_finite_are_named() {
    for (bad, row, dimension) in [(f32::NAN, 0, 1), (f32::INFINITY, 3, 0), (f32::NEG_INFINITY, 4, 2)] {
        let mut values = vec![0.5f32; 15];
        values[row * 3 + dimension] = bad;
        let found = open("a.fbin", &bin(5, 3, &f32s(&values))).unwrap();
        match found.check_finite() {
            Err(VectorError::NotFinite { row: r, dimension: d, value, .. }) => {
                assert_eq!((r as usize, d, value.to_bits()), (row, dimension, bad.to_bits()));
            }
            other => panic!("{other:?}"),
        }
        let halves: Vec<u8> = values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect();
        let found = VectorFile::from_rows(Element::F16, 3, halves).unwrap();
        match found.check_finite() {
            Err(VectorError::NotFinite { row: r, dimension: d, value, .. }) => {
                assert_eq!((r as usize, d, value.is_nan()), (row, dimension, bad.is_nan()));
            }
            other => panic!("{other:?}"),
        }
    }
    open("a.fbin", &bin(1, 3, &f32s(&[f32::MAX, f32::MIN, -0.0]))).unwrap().check_finite().unwrap();
    open("a.u8bin", &bin(1, 3, &[255; 3])).unwrap().check_finite().unwrap();
}

#[test]
fn the_first_of_several_bad_rows_is_named_with_any_number_of_threads() {
    let dim = 64;
    let mut values = vec![1.0f32; 100_000 * dim];
    for row in [99_999, 70_000, 40_003, 40_004] {
        values[row * dim + 5] = f32::NAN;
    }
    let found = VectorFile::from_rows(Element::F32, dim, f32s(&values)).unwrap();
    refused!(found.check_finite(), VectorError::NotFinite { row: 40_003, dimension: 5, .. });
}

#[test]
fn the_content_hash_depends_on_the_vectors_and_not_on_the_format() {
    let content = |vectors: VectorFile| vectors.check_content(2, &|| false).unwrap().unwrap().hash;
    let dim = 50;
    // Two blocks, so that their order counts.
    let values: Vec<f32> = (0..30_000 * dim).map(|i| (i % 977) as f32).collect();
    let expected = content(VectorFile::from_rows(Element::F32, dim, f32s(&values)).unwrap());
    let rows = values.chunks_exact(dim).map(|row| [&(dim as i32).to_le_bytes()[..], &f32s(row)].concat());
    assert_eq!(expected, content(open("a.fvecs", &rows.collect::<Vec<_>>().concat()).unwrap()));
    assert_eq!(expected, content(open("a.fbin", &bin(30_000, dim as u32, &f32s(&values))).unwrap()));
    assert_ne!(expected, content(VectorFile::from_rows(Element::F32, 2 * dim, f32s(&values)).unwrap()));
    assert_ne!(expected, content(VectorFile::from_rows(Element::I8, 4 * dim, f32s(&values)).unwrap()));
    let mut others = values.clone();
    others[29_999 * dim] += 1.0;
    assert_ne!(expected, content(VectorFile::from_rows(Element::F32, dim, f32s(&others)).unwrap()));
    others[29_999 * dim] = -5e30;
    let found = VectorFile::from_rows(Element::F32, dim, f32s(&others)).unwrap().check_content(2, &|| false);
    assert_eq!(found.unwrap().unwrap().largest, Some(LargestValue { row: 29_999, value: 5e30 }));
    others[29_999 * dim] = f32::NAN;
    let found = VectorFile::from_rows(Element::F32, dim, f32s(&others)).unwrap().check_content(2, &|| false);
    refused!(found.unwrap(), VectorError::NotFinite { row: 29_999, dimension: 0, .. });
    let found = VectorFile::from_rows(Element::F32, dim, f32s(&values)).unwrap();
    assert!(found.check_content(2, &|| true).is_none(), "cancelled");
}

#[test]
fn a_truncated_file_is_noticed_before_it_is_read() {
    let (_dir, path) = file("a.fbin", &bin(2, 3, &[0; 24]));
    let found = VectorFile::open(&path).unwrap();
    found.check_length().unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(9).unwrap();
    refused!(found.check_length(), VectorError::Changed { found: 9, expected: 32, .. });
    refused!(found.check_finite(), VectorError::Changed { .. });
}

#[test]
fn rows_in_memory_must_be_whole() {
    let found = VectorFile::from_rows(Element::I8, 2, vec![1, 2, 3, 4]).unwrap();
    assert_eq!((found.count(), found.row(1)), (2, &[3, 4][..]));
    refused!(
        VectorFile::from_rows(Element::F32, 2, vec![0; 12]),
        VectorError::PartialRow { found: 12, row_bytes: 8, .. }
    );
    refused!(VectorFile::from_rows(Element::F32, 2, vec![]), VectorError::Empty { .. });
    refused!(VectorFile::from_rows(Element::F32, 0, vec![0; 12]), VectorError::Header { .. });
}

#[test]
fn lent_rows_are_not_copied_and_are_released() {
    let lent = Arc::new(vec![1_u8, 2, 3, 4, 5, 6]);
    let found = VectorFile::from_lent(Element::U8, 3, lent.clone()).unwrap();
    assert_eq!((found.count(), found.dim(), found.row(1)), (2, 3, &[4_u8, 5, 6][..]));
    assert_eq!(found.row(0).as_ptr(), lent.as_ptr());
    drop((found.clone(), found));
    assert_eq!(Arc::strong_count(&lent), 1);
    refused!(VectorFile::from_lent(Element::U8, 4, lent.clone()), VectorError::PartialRow { .. });
    let called = VectorFile::from_lent_as("queries", Element::U8, 4, lent).err().map(|e| e.to_string());
    assert!(called.is_some_and(|message| message.starts_with("queries: ")));
}

#[test]
fn ids_are_read_with_and_without_distances() {
    let ids: Vec<u8> = [5u32, 6, 7, 8].iter().flat_map(|v| v.to_le_bytes()).collect();
    let found = open_ids("gt.ibin", &bin(2, 2, &ids)).unwrap();
    assert_eq!((found.queries(), found.k(), found.ids(1), found.distances(1)), (2, 2, &[7, 8][..], None));
    let with = [&ids[..], &f32s(&[0.0, 1.0, 2.0, 3.0])].concat();
    let found = open_ids("gt.ibin", &bin(2, 2, &with)).unwrap();
    assert_eq!((found.ids(0), found.distances(1)), (&[5, 6][..], Some(&[2.0, 3.0][..])));
    assert_eq!((found.ids(2), found.ids(usize::MAX), found.distances(2)), (&[][..], &[][..], None));
    found.check_ids(9).unwrap();
    refused!(found.check_ids(8), VectorError::IdOutside { query: 1, id: 8, count: 8, .. });

    let rows: Vec<u8> = [2u32, 5, 6, 2, 7, 8].iter().flat_map(|v| v.to_le_bytes()).collect();
    let found = open_ids("gt.ivecs", &rows).unwrap();
    assert_eq!((found.queries(), found.k(), found.all_ids()), (2, 2, &[5, 6, 7, 8][..]));
    refused!(open_ids("gt.ivecs", &rows[..20]), VectorError::Truncated { .. });
}

#[test]
fn invalid_id_files_are_refused() {
    refused!(open_ids("gt.ibin", &[]), VectorError::Empty { .. });
    refused!(open_ids("gt.ibin", &[0; 4]), VectorError::ShortHeader { .. });
    refused!(open_ids("gt.ibin", &bin(0, 2, &[])), VectorError::Empty { .. });
    refused!(open_ids("gt.ibin", &bin(2, 0, &[])), VectorError::Header { field: "k", found: 0, .. });
    refused!(open_ids("gt.ibin", &bin(2, u32::MAX, &[])), VectorError::Header { field: "k", .. });
    refused!(open_ids("gt.ibin", &bin(u32::MAX, 65_536, &[])), VectorError::Truncated { .. });
    refused!(open_ids("gt.ibin", &bin(1, 2, &[0; 4])), VectorError::Truncated { expected: 16, .. });
    refused!(open_ids("gt.ibin", &bin(1, 2, &[0; 12])), VectorError::Truncated { expected: 24, .. });
    refused!(open_ids("gt.ibin", &bin(1, 2, &[0; 20])), VectorError::OverLong { expected: 24, .. });
    refused!(open_ids("gt.ivecs", &[]), VectorError::Empty { .. });
    refused!(IdFile::from_parts(0, vec![1], None), VectorError::Argument { .. });
    refused!(IdFile::from_parts(2, vec![1, 2], Some(vec![0.0])), VectorError::Argument { .. });
}

/// Every format with each element that it can hold.
const FORMATS: [(&str, Element); 12] = [
    ("a.fbin", Element::F32),
    ("a.f16bin", Element::F16),
    ("a.u8bin", Element::U8),
    ("a.i8bin", Element::I8),
    ("a.fvecs", Element::F32),
    ("a.bvecs", Element::U8),
    ("a.npy", Element::F32),
    ("a.npy", Element::F16),
    ("a.npy", Element::U8),
    ("a.npy", Element::I8),
    ("a.bf16bin", Element::Bf16),
    ("a.b1bin", Element::B1),
];

#[test]
fn written_vectors_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    for (name, element) in FORMATS {
        for (count, dim) in [(1, 1), (3, 5), (700, 17), (3, 24)] {
            let path = dir.path().join(name);
            if element == Element::B1 && dim % 8 != 0 {
                refused!(VectorWriter::create(&path, element, dim), VectorError::Header { field: "dim", .. });
                continue;
            }
            let rows: Vec<u8> = (0..count * element.row_bytes(dim)).map(|i| (i * 7 % 120) as u8).collect();
            let mut writer = VectorWriter::create(&path, element, dim).unwrap();
            let (first, rest) = rows.split_at(element.row_bytes(dim));
            writer.push_rows(first).unwrap();
            writer.push_rows(rest).unwrap();
            assert_eq!(writer.count(), count as u64);
            assert_eq!(writer.finish().unwrap(), path);
            let found = VectorFile::open(&path).unwrap();
            assert_eq!((found.count(), found.dim(), found.element()), (count, dim, element));
            let back: Vec<u8> = (0..count).flat_map(|row| found.row(row)).copied().collect();
            assert_eq!(back, rows, "{name}");
        }
    }
}

#[test]
fn a_writer_that_does_not_finish_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.fbin");
    std::fs::write(&path, b"before").unwrap();
    let mut writer = VectorWriter::create(&path, Element::F32, 2).unwrap();
    writer.push_rows(&[0; 16]).unwrap();
    refused!(writer.push_rows(&[0; 4]), VectorError::PartialRow { found: 4, row_bytes: 8, .. });
    drop(writer);
    let empty = VectorWriter::create(&path, Element::F32, 2).unwrap();
    refused!(empty.finish(), VectorError::Empty { .. });
    assert_eq!(std::fs::read(&path).unwrap(), b"before");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

    refused!(VectorWriter::create(&path, Element::U8, 2), VectorError::WrongElement { .. });
    refused!(VectorWriter::create(&path, Element::F32, 0), VectorError::Header { .. });
    refused!(VectorWriter::create("/no/such/folder/a.fbin", Element::F32, 2), VectorError::Io { .. });
    refused!(
        VectorWriter::create(dir.path().join("a.csv"), Element::F32, 2),
        VectorError::UnknownExtension { .. }
    );
}

#[test]
fn ids_are_written_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    for distances in [None, Some(vec![0.5f32, 1.5, f32::INFINITY, -2.0, 0.0, 9.0])] {
        let ids = IdFile::from_parts(3, vec![1, 2, 3, 4, 5, u32::MAX], distances.clone()).unwrap();
        for (name, keeps_distances) in [("gt.ibin", true), ("gt.ivecs", false)] {
            let path = dir.path().join(name);
            write_ids(&path, &ids).unwrap();
            let found = IdFile::open(&path).unwrap();
            assert_eq!((found.k(), found.all_ids()), (3, ids.all_ids()));
            assert_eq!(found.all_distances(), distances.as_deref().filter(|_| keeps_distances));
        }
    }
}

#[test]
fn a_file_of_rows_without_a_header_can_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    let opened = |bytes: &[u8], dim| {
        std::fs::write(&path, bytes).unwrap();
        VectorFile::from_rows_file(std::fs::File::open(&path).unwrap(), &path, Element::U8, dim)
    };
    let vectors = opened(b"abcdef", 3).unwrap();
    assert_eq!((vectors.count(), vectors.dim(), vectors.row(1), vectors.path()), (2, 3, &b"def"[..], &*path));
    assert!(vectors.check_length().is_ok());
    assert!(matches!(opened(b"abcde", 3), Err(VectorError::PartialRow { .. })));
    assert!(matches!(opened(b"", 3), Err(VectorError::Empty { .. })));
    assert!(opened(b"abc", 0).is_err());
}
