//! Conversion between all formats and elements.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bathyal_kernels::{Element, from_f32};
use bathyal_vectors::progress::{Progress, Silent};
use bathyal_vectors::{ConversionSummary, IdFile, VectorError, VectorFile, VectorWriter, convert, write_ids};
use half::f16;
use proptest::prelude::*;

/// Every format with each element that it can hold.
const FORMATS: [(&str, Element); 11] = [
    ("fbin", Element::F32),
    ("f16bin", Element::F16),
    ("u8bin", Element::U8),
    ("i8bin", Element::I8),
    ("fvecs", Element::F32),
    ("bvecs", Element::U8),
    ("npy", Element::F32),
    ("npy", Element::F16),
    ("npy", Element::U8),
    ("npy", Element::I8),
    ("bf16bin", Element::Bf16),
];

fn encode(element: Element, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; element.row_bytes(values.len())];
    from_f32(element, values, &mut bytes);
    bytes
}

fn write(path: &Path, element: Element, dim: usize, values: &[f32]) {
    let mut writer = VectorWriter::create(path, element, dim).unwrap();
    writer.push_rows(&encode(element, values)).unwrap();
    writer.finish().unwrap();
}

fn rows_of(path: &Path) -> Vec<u8> {
    let file = VectorFile::open(path).unwrap();
    (0..file.count()).flat_map(|row| file.row(row)).copied().collect()
}

/// Returns the paths in `folder`, to check that no partial output is left.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn bits_become_numbers_and_only_zeros_and_ones_become_bits() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let values: Vec<f32> = (0..3 * 24).map(|i| (i * i % 7 % 2) as f32).collect();
    write(&path("a.fbin"), Element::F32, 24, &values);
    let made = convert(path("a.fbin"), path("a.b1bin"), None, None, &Silent).unwrap();
    assert_eq!((made.count, made.dim, made.element), (3, 24, Some(Element::B1)));
    assert_eq!(rows_of(&path("a.b1bin")).len(), 9);
    // The first component is the highest bit, as with numpy.packbits.
    let first = values[..8].iter().fold(0, |byte, value| byte << 1 | *value as u8);
    assert_eq!(rows_of(&path("a.b1bin"))[0], first);
    convert(path("a.b1bin"), path("b.fbin"), None, Some(1..3), &Silent).unwrap();
    assert_eq!(rows_of(&path("b.fbin")), encode(Element::F32, &values[24..]));
    write(&path("c.fbin"), Element::F32, 8, &[0.0, 1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0]);
    let refused = convert(path("c.fbin"), path("c.b1bin"), None, None, &Silent).unwrap_err();
    assert!(matches!(refused, VectorError::NotRepresentable { dimension: 3, .. }), "{refused}");
    assert!(refused.to_string().contains("threshold"), "{refused}");
    write(&path("d.fbin"), Element::F32, 9, &[0.0; 9]);
    let refused = convert(path("d.fbin"), path("d.b1bin"), None, None, &Silent).unwrap_err();
    assert!(matches!(refused, VectorError::Header { field: "dim", found: 9, .. }), "{refused}");
    let refused = convert(path("a.b1bin"), path("a.npy"), None, None, &Silent).unwrap_err();
    assert!(refused.to_string().contains("b1bin"), "{refused}");
}

#[test]
fn values_are_the_same_after_conversion_between_any_two_formats() {
    let dir = tempfile::tempdir().unwrap();
    // Small whole numbers, which every element can hold.
    let values: Vec<f32> = (0..13 * 7).map(|i| (i * 31 % 128) as f32).collect();
    for (from, source) in FORMATS {
        let input = dir.path().join(format!("in.{from}"));
        write(&input, source, 7, &values);
        for (to, target) in FORMATS {
            let output = dir.path().join(format!("out.{to}"));
            let done = convert(&input, &output, Some(target), None, &Silent).unwrap();
            assert_eq!(done, ConversionSummary { count: 13, dim: 7, element: Some(target) });
            assert_eq!(rows_of(&output), encode(target, &values), "{from} {source} to {to} {target}");
            convert(&input, &output, Some(target), Some(3..5), &Silent).unwrap();
            assert_eq!(rows_of(&output), encode(target, &values[21..35]));
        }
    }
}

#[test]
fn the_output_element_follows_the_format_or_the_input() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, floats, array) =
        (dir.path().join("a.u8bin"), dir.path().join("a.fbin"), dir.path().join("a.npy"));
    write(&bytes, Element::U8, 2, &[1.0, 2.0, 3.0, 255.0]);
    assert_eq!(convert(&bytes, &floats, None, None, &Silent).unwrap().element, Some(Element::F32));
    assert_eq!(convert(&bytes, &array, None, None, &Silent).unwrap().element, Some(Element::U8));
    let refusal = convert(&bytes, &floats, Some(Element::I8), None, &Silent);
    assert!(matches!(refusal, Err(VectorError::WrongElement { .. })), "{refusal:?}");
    // Input and output are the same path: the mapping keeps the old file alive while the new one is written.
    convert(&floats, &floats, None, Some(1..2), &Silent).unwrap();
    assert_eq!(rows_of(&floats), encode(Element::F32, &[3.0, 255.0]));
}

#[test]
fn values_that_do_not_fit_are_named_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.fbin");
    for (bad, to) in [
        (0.5, "u8bin"),
        (-1.0, "u8bin"),
        (256.0, "bvecs"),
        (128.0, "i8bin"),
        (-129.0, "i8bin"),
        (65520.0, "f16bin"),
        (f32::MIN, "f16bin"),
    ] {
        write(&input, Element::F32, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, bad]);
        match convert(&input, dir.path().join(format!("out.{to}")), None, None, &Silent) {
            Err(e @ VectorError::NotRepresentable { row: 2, dimension: 1, value, .. }) => {
                assert_eq!(value, bad);
                assert!(e.to_string().contains("row 2, dimension 1"), "{e}");
            }
            other => panic!("{bad} to {to}: {other:?}"),
        }
        assert_eq!(names(dir.path()), std::slice::from_ref(&input));
    }
    for bad in [f32::NAN, f32::INFINITY] {
        write(&input, Element::F32, 2, &[1.0, bad]);
        let refusal = convert(&input, dir.path().join("out.f16bin"), None, None, &Silent);
        assert!(matches!(refusal, Err(VectorError::NotFinite { row: 0, dimension: 1, .. })), "{refusal:?}");
    }
}

#[test]
fn ranges_have_to_lie_within_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.u8bin"), dir.path().join("out.u8bin"));
    write(&input, Element::U8, 1, &[1.0, 2.0, 3.0]);
    #[expect(clippy::reversed_empty_ranges)]
    for range in [0..0, 2..1, 0..4, 3..4, u64::MAX - 1..u64::MAX] {
        let refusal = convert(&input, &output, None, Some(range), &Silent);
        assert!(matches!(refusal, Err(VectorError::Range { count: 3, .. })), "{refusal:?}");
    }
}

#[test]
fn a_row_of_another_length_is_found_while_converting() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.bvecs"), dir.path().join("out.u8bin"));
    let mut bytes: Vec<u8> = (0..2000).flat_map(|_| [2, 0, 0, 0, 7, 7]).collect();
    bytes[6 * 1001] = 3;
    std::fs::write(&input, bytes).unwrap();
    let refusal = convert(&input, &output, None, None, &Silent);
    assert!(matches!(refusal, Err(VectorError::RowLength { row: 1001, .. })), "{refusal:?}");
    assert_eq!(names(dir.path()), [input]);
}

#[test]
fn ids_convert_between_their_formats_only() {
    let dir = tempfile::tempdir().unwrap();
    let (ibin, ivecs) = (dir.path().join("gt.ibin"), dir.path().join("gt.ivecs"));
    let ids = IdFile::from_parts(2, vec![1, 2, 3, 4], Some(vec![0.0, 1.0, 2.0, 3.0])).unwrap();
    write_ids(&ibin, &ids).unwrap();
    let done = convert(&ibin, &ivecs, None, Some(1..2), &Silent).unwrap();
    assert_eq!(done, ConversionSummary { count: 1, dim: 2, element: None });
    assert_eq!(IdFile::open(&ivecs).unwrap().all_ids(), [3, 4]);
    convert(&ivecs, &ibin, None, None, &Silent).unwrap();
    assert_eq!(IdFile::open(&ibin).unwrap().all_distances(), None);
    let refusal = convert(&ibin, dir.path().join("a.fbin"), None, None, &Silent);
    assert!(matches!(refusal, Err(VectorError::UnknownExtension { .. })), "{refusal:?}");
    let refusal = convert(&ibin, &ivecs, Some(Element::U8), None, &Silent);
    assert!(matches!(refusal, Err(VectorError::Argument { .. })), "{refusal:?}");
}

/// A receiver that cancels after the first report of rows.
#[derive(Default)]
struct CancelAfterFirst {
    stages: AtomicU64,
    done: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress for CancelAfterFirst {
    fn stage(&self, _name: &str, total: u64) {
        self.stages.fetch_add(total, Ordering::Relaxed);
    }

    fn advance(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

#[test]
fn cancelling_stops_after_the_current_block_and_leaves_no_output() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.u8bin"), dir.path().join("out.fbin"));
    write(&input, Element::U8, 100, &vec![1.0; 100 * 40_000]);
    let progress = CancelAfterFirst::default();
    let refusal = convert(&input, &output, None, None, &progress);
    assert!(matches!(refusal, Err(VectorError::Cancelled)), "{refusal:?}");
    assert_eq!(progress.stages.into_inner(), 40_000);
    assert!(progress.done.into_inner() < 20_000);
    assert_eq!(names(dir.path()), [input]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn f16_rounds_to_the_nearest(values in prop::collection::vec(-65_000.0f32..65_000.0, 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let (input, output) = (dir.path().join("in.npy"), dir.path().join("out.f16bin"));
        write(&input, Element::F32, values.len(), &values);
        convert(&input, &output, None, None, &Silent).unwrap();
        for (bytes, value) in rows_of(&output).chunks(2).zip(&values) {
            let half = f16::from_le_bytes([bytes[0], bytes[1]]);
            let (below, above) = (f16::from_bits(half.to_bits() - u16::from(half.to_bits() & 0x7fff != 0)),
                f16::from_bits(half.to_bits() + 1));
            let error = (half.to_f32() - value).abs();
            prop_assert!(error <= (below.to_f32() - value).abs() && error <= (above.to_f32() - value).abs());
        }
    }

    #[test]
    fn bytes_of_any_shape_round_trip_through_a_second_format(
        dim in 1usize..70, count in 1usize..30, seed in any::<u8>(), via in 0usize..10
    ) {
        let dir = tempfile::tempdir().unwrap();
        let values: Vec<f32> =
            (0..count * dim).map(|i| (i.wrapping_mul(37) as u8 ^ seed) as f32 % 128.0).collect();
        let (input, back) = (dir.path().join("in.u8bin"), dir.path().join("back.u8bin"));
        let (extension, element) = FORMATS[via];
        let between = dir.path().join(format!("between.{extension}"));
        write(&input, Element::U8, dim, &values);
        convert(&input, &between, Some(element), None, &Silent).unwrap();
        convert(&between, &back, None, None, &Silent).unwrap();
        prop_assert_eq!(std::fs::read(&input).unwrap(), std::fs::read(&back).unwrap());
    }
}

#[test]
fn missing_ids_stay_missing_and_negative_ids_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let ivecs = |ids: &[i32]| {
        let words = [ids.len() as i32].into_iter().chain(ids.iter().copied());
        words.flat_map(i32::to_le_bytes).collect::<Vec<u8>>()
    };
    std::fs::write(at("truth.ivecs"), ivecs(&[7, -1, i32::MAX])).unwrap();
    convert(at("truth.ivecs"), at("truth.ibin"), None, None, &Silent).unwrap();
    let read = IdFile::open(at("truth.ibin")).unwrap();
    assert_eq!(read.all_ids(), [7, bathyal_vectors::NO_ID, i32::MAX as u32]);
    assert!(read.check_ids(8).is_err() && read.check_ids(1 << 31).is_ok(), "a missing id names no vector");
    convert(at("truth.ibin"), at("again.ivecs"), None, None, &Silent).unwrap();
    assert_eq!(std::fs::read(at("again.ivecs")).unwrap(), ivecs(&[7, -1, i32::MAX]));

    std::fs::write(at("below.ivecs"), [ivecs(&[1, 2]), ivecs(&[3, -2])].concat()).unwrap();
    let error = convert(at("below.ivecs"), at("x.ibin"), None, None, &Silent).unwrap_err();
    assert!(error.to_string().contains("query 1 has the id -2"), "{error}");
    let large = IdFile::from_parts(1, vec![1 << 31], None).unwrap();
    write_ids(at("large.ibin"), &large).unwrap();
    let error = convert(at("large.ibin"), at("x.ivecs"), None, None, &Silent).unwrap_err();
    assert!(error.to_string().contains("use .ibin"), "{error}");
    assert!(!at("x.ivecs").exists());
}
