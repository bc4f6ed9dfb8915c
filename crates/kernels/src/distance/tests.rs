use super::*;
use half::{bf16, f16};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Allowed error, relative to the sum of the magnitudes of the terms: some fifty roundings of 2^-24.
const TOLERANCE: f64 = 3e-6;
const LONGEST: usize = 1100;

fn random_bytes(element: Element, dim: usize, random: &mut SmallRng) -> Vec<u8> {
    match element {
        Element::F32 => (0..dim).flat_map(|_| random.random_range(-1.0_f32..1.0).to_le_bytes()).collect(),
        Element::F16 => {
            (0..dim).flat_map(|_| f16::from_f32(random.random_range(-1.0_f32..1.0)).to_le_bytes()).collect()
        }
        Element::Bf16 => {
            (0..dim).flat_map(|_| bf16::from_f32(random.random_range(-1.0_f32..1.0)).to_le_bytes()).collect()
        }
        Element::U8 | Element::I8 => (0..dim).map(|_| random.random()).collect(),
        Element::B1 => {
            let mut bytes: Vec<u8> = (0..dim.div_ceil(8)).map(|_| random.random()).collect();
            clear_padding(&mut bytes, dim);
            bytes
        }
    }
}

/// Clears the bits after the last component.
fn clear_padding(bytes: &mut [u8], dim: usize) {
    if let Some(last) = bytes.last_mut().filter(|_| !dim.is_multiple_of(8)) {
        *last &= 0xff << (8 - dim % 8);
    }
}

/// Returns the first `dim` components of a longer vector.
fn start_of(element: Element, bytes: &[u8], dim: usize) -> Vec<u8> {
    let mut start = bytes[..element.row_bytes(dim)].to_vec();
    if element == Element::B1 {
        clear_padding(&mut start, dim);
    }
    start
}

fn as_f64(element: Element, bytes: &[u8]) -> Vec<f64> {
    match element {
        Element::F32 => {
            bytes.chunks_exact(4).map(|x| f64::from(f32::from_le_bytes([x[0], x[1], x[2], x[3]]))).collect()
        }
        Element::F16 => bytes.chunks_exact(2).map(|x| f16::from_le_bytes([x[0], x[1]]).to_f64()).collect(),
        Element::U8 => bytes.iter().map(|&x| f64::from(x)).collect(),
        Element::I8 => bytes.iter().map(|&x| f64::from(x as i8)).collect(),
        Element::Bf16 => bytes.chunks_exact(2).map(|x| bf16::from_le_bytes([x[0], x[1]]).to_f64()).collect(),
        Element::B1 => {
            bytes.iter().flat_map(|&x| (0..8).rev().map(move |bit| f64::from(x >> bit & 1))).collect()
        }
    }
}

/// Returns the distance in 64 bits, and the magnitude that its error is relative to.
fn reference(metric: Metric, a: &[f64], b: &[f64]) -> (f64, f64) {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    match metric {
        Metric::L2 => {
            let sum = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum();
            (sum, sum)
        }
        Metric::InnerProduct => (-product(a, b), a.iter().zip(b).map(|(x, y)| (x * y).abs()).sum()),
        Metric::Cosine => {
            let lengths = (product(a, a) * product(b, b)).sqrt();
            if lengths == 0.0 {
                return (1.0, 1.0);
            }
            (1.0 - product(a, b) / lengths, 1.0)
        }
    }
}

fn check(distance: f32, expected: (f64, f64), what: impl Fn() -> String) {
    let error = (f64::from(distance) - expected.0).abs();
    assert!(error <= TOLERANCE * expected.1 + 1e-30, "{}: {distance}, not {}", what(), expected.0);
}

fn available() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

#[test]
fn every_length_and_alignment_agrees_with_64_bits() {
    let mut random = SmallRng::seed_from_u64(1);
    for element in Element::ALL {
        let a = random_bytes(element, LONGEST + 16, &mut random);
        let b = random_bytes(element, LONGEST + 16, &mut random);
        for dim in 1..=LONGEST {
            // Unaligned starts, also for floats.
            let (mut left, mut right) = (vec![0; dim % 7], vec![0; dim % 13]);
            left.extend_from_slice(&start_of(element, &a, dim));
            right.extend_from_slice(&start_of(element, &b, dim));
            let (left, right) = (&left[dim % 7..], &right[dim % 13..]);
            let (x, y) = (as_f64(element, left), as_f64(element, right));
            for metric in Metric::ALL {
                let expected = reference(metric, &x, &y);
                for isa in available() {
                    let Some(distance) = Distance::with_isa(isa, element, metric, dim) else {
                        continue;
                    };
                    check(distance.between(left, right), expected, || format!("{distance:?}"));
                }
            }
        }
    }
}

/// Returns the distances from f32 queries to rows of smaller elements, with every available ISA.
fn of_floats(metric: Metric, dim: usize) -> impl Iterator<Item = Distance> {
    let smaller = [Element::F16, Element::U8, Element::I8, Element::Bf16, Element::B1];
    let distances = move |isa| {
        smaller.into_iter().filter_map(move |rows| Distance::of_floats_with_isa(isa, rows, metric, dim))
    };
    available().flat_map(distances)
}

#[test]
fn floats_against_smaller_components_agree_with_64_bits() {
    let mut random = SmallRng::seed_from_u64(5);
    let query_components = random_bytes(Element::F32, LONGEST + 16, &mut random);
    let row_components = Element::ALL.map(|element| random_bytes(element, LONGEST + 16, &mut random));
    for dim in 1..=LONGEST {
        let mut query = vec![0; dim % 7];
        query.extend_from_slice(&query_components[..dim * 4]);
        let query = &query[dim % 7..];
        for metric in Metric::ALL {
            for distance in of_floats(metric, dim) {
                let mut row = vec![0; dim % 13];
                row.extend_from_slice(&start_of(
                    distance.element(),
                    &row_components[distance.element() as usize],
                    dim,
                ));
                let row = &row[dim % 13..];
                let (x, y) = (as_f64(Element::F32, query), as_f64(distance.element(), row));
                check(distance.between(query, row), reference(metric, &x, &y), || format!("{distance:?}"));
            }
        }
    }
    for metric in Metric::ALL {
        let same = Distance::of_floats(Element::F32, metric, 100);
        let (a, b) = (&query_components[..400], &query_components[40..440]);
        assert_eq!(same.between(a, b), Distance::new(Element::F32, metric, 100).between(a, b));
        for dim in [MAX_SIMD_DIM, MAX_SIMD_DIM + 1] {
            // Sequential f32 sums over so many 16-bit floats exceed the tolerance, so those elements are left
            // out.
            for distance in of_floats(metric, dim).filter(|distance| !distance.element().is_float()) {
                let query = vec![0; distance.query_bytes()];
                let row = start_of(distance.element(), &vec![1; distance.row_bytes()], dim);
                let expected = reference(metric, &vec![0.0; dim], &as_f64(distance.element(), &row));
                check(distance.between(&query, &row), expected, || format!("{distance:?}"));
            }
        }
    }
}

#[test]
fn batches_of_smaller_components_agree_with_pairs() {
    let mut random = SmallRng::seed_from_u64(6);
    for (dim, metric) in [1, 7, 100, 1025].into_iter().flat_map(|dim| Metric::ALL.map(|metric| (dim, metric)))
    {
        let query = random_bytes(Element::F32, dim, &mut random);
        for distance in of_floats(metric, dim) {
            let rows =
                (0..50).flat_map(|_| random_bytes(distance.element(), dim, &mut random)).collect::<Vec<u8>>();
            let ids: Vec<u32> = (0..30).map(|_| random.random_range(0..50)).collect();
            let (mut by_id, mut in_order) = ([0.0; 30], [0.0; 51]);
            let array = Rows { bytes: &rows, stride: distance.row_bytes() };
            distance.score(&query, array, &ids, &mut by_id);
            distance.score_block(&query, &rows, &mut in_order);
            for (row, found) in rows.chunks(distance.row_bytes()).zip(in_order) {
                assert_eq!(found, distance.between(&query, row), "{distance:?}");
            }
            assert!(ids.iter().zip(by_id).all(|(id, found)| found == in_order[*id as usize]), "{distance:?}");
            assert!(in_order[50].is_nan(), "a row that is not there");
            distance.score_block(&query[1..], &rows, &mut in_order);
            assert!(in_order.iter().all(|found| found.is_nan()), "a query of another length");
            assert!(distance.between(&rows[..distance.row_bytes()], &query).is_nan(), "the wrong way round");
        }
    }
}

#[test]
fn extremes_are_exact_up_to_the_largest_dimension() {
    for dim in [1, 63, 1000, 65_535, MAX_SIMD_DIM, MAX_SIMD_DIM + 1] {
        for element in [Element::U8, Element::I8] {
            // Unsigned these are 0 and 255, and 127 and 128; signed they are 0, -1, 127 and -128.
            for (left, right) in [(0, 255), (255, 255), (127, 128), (128, 128), (127, 127), (0, 0)] {
                let (a, b) = (vec![left; dim], vec![right; dim]);
                let (x, y) = (as_f64(element, &a), as_f64(element, &b));
                for metric in Metric::ALL {
                    let expected = reference(metric, &x, &y);
                    for isa in available() {
                        let Some(distance) = Distance::with_isa(isa, element, metric, dim) else {
                            continue;
                        };
                        if metric == Metric::Cosine {
                            check(distance.between(&a, &b), expected, || format!("{distance:?}"));
                        } else {
                            // Exact sums, rounded once.
                            assert_eq!(distance.between(&a, &b), expected.0 as f32, "{distance:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn batches_agree_with_pairs() {
    let mut random = SmallRng::seed_from_u64(2);
    for element in Element::ALL {
        for dim in [1, 7, 32, 100, 128, 300, 1025] {
            let row_bytes = element.row_bytes(dim);
            let stride = row_bytes + 3;
            let mut array = vec![0; 97 * stride - 3];
            for row in array.chunks_mut(stride) {
                row[..row_bytes].copy_from_slice(&random_bytes(element, dim, &mut random));
            }
            let query = random_bytes(element, dim, &mut random);
            let ids: Vec<u32> = (0..61).map(|_| random.random_range(0..97)).collect();
            let packed: Vec<u8> = array.chunks(stride).flat_map(|row| row[..row_bytes].to_vec()).collect();
            for metric in Metric::ALL {
                for isa in available() {
                    let distance = Distance::with_isa(isa, element, metric, dim).unwrap();
                    let rows = Rows { bytes: &array, stride };
                    for count in [0, 1, 2, 3, 5, 60, 61] {
                        let mut out = vec![0.0; count];
                        distance.score(&query, rows, &ids[..count], &mut out);
                        for (&id, &found) in ids.iter().zip(&out) {
                            let row = &array[id as usize * stride..][..row_bytes];
                            assert_eq!(found, distance.between(&query, row), "{distance:?}");
                        }
                        distance.score_block(&query, &packed, &mut out);
                        for (row, &found) in packed.chunks(row_bytes).zip(&out) {
                            assert_eq!(found, distance.between(&query, row), "{distance:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn slices_and_ids_that_do_not_fit_give_nan() {
    let distance = Distance::new(Element::U8, Metric::L2, 4);
    let (query, array) = ([1_u8, 2, 3, 4], [0_u8; 11]);
    assert!(distance.between(&query, &array[..3]).is_nan());
    assert!(distance.between(&query[..3], &array[..3]).is_nan());
    let mut out = [0.0; 4];
    let rows = Rows { bytes: &array, stride: 4 };
    distance.score(&query, rows, &[1, 2, 0, u32::MAX], &mut out);
    assert_eq!((out[0], out[2]), (30.0, 30.0));
    assert!(out[1].is_nan() && out[3].is_nan());
    let mut out = [0.0; 3];
    distance.score_block(&query, &array, &mut out);
    assert_eq!((out[0], out[1]), (30.0, 30.0));
    assert!(out[2].is_nan());
    distance.score_block(&query[..3], &array, &mut out);
    assert!(out.iter().all(|found| found.is_nan()));
    distance.score(&query[..3], rows, &[0, 1], &mut out);
    assert!(out.iter().all(|found| found.is_nan()));
    let empty = Distance::new(Element::F32, Metric::Cosine, usize::MAX);
    assert!(empty.between(&query, &query).is_nan());
}

#[test]
fn vectors_of_no_dimensions_have_a_distance() {
    for isa in available() {
        for element in Element::ALL {
            for (metric, expected) in Metric::ALL.into_iter().zip([0.0, 0.0, 1.0]) {
                let distance = Distance::with_isa(isa, element, metric, 0).unwrap();
                assert_eq!(distance.between(&[], &[]), expected);
                let mut out = [7.0; 3];
                let rows = Rows { bytes: &[], stride: 0 };
                distance.score(&[], rows, &[0, 1, 2], &mut out);
                assert_eq!(out, [expected; 3]);
                distance.score_block(&[], &[], &mut out);
                assert_eq!(out, [expected; 3]);
            }
        }
    }
}

#[test]
fn zero_and_extreme_vectors_have_a_cosine() {
    for isa in available() {
        let distance = Distance::with_isa(isa, Element::F32, Metric::Cosine, 3).unwrap();
        let bytes = |x: [f32; 3]| x.map(f32::to_le_bytes).concat();
        let one = bytes([1.0, 0.0, 0.0]);
        assert_eq!(distance.between(&one, &bytes([0.0; 3])), 1.0);
        assert_eq!(distance.between(&bytes([0.0; 3]), &bytes([0.0; 3])), 1.0);
        for scale in [1e-18, 1.0, 1e18] {
            check(distance.between(&bytes([scale; 3]), &bytes([scale; 3])), (0.0, 1.0), || {
                format!("{isa} {scale}")
            });
        }
        assert!(distance.between(&one, &bytes([f32::NAN, 0.0, 0.0])).is_nan());
    }
}

#[test]
fn components_convert_and_normalize() {
    let mut random = SmallRng::seed_from_u64(3);
    for element in Element::ALL {
        for dim in 0..200 {
            let vector = random_bytes(element, dim, &mut random);
            let exact = as_f64(element, &vector);
            let mut floats = vec![0.0; dim];
            to_f32(element, &vector, &mut floats);
            assert!(floats.iter().zip(&exact).all(|(&x, &y)| f64::from(x) == y));
            let mut back = vec![0xff; vector.len()];
            from_f32(element, &floats, &mut back);
            assert_eq!(back, vector, "{element} {dim}");
            assert_eq!(first_non_finite(element, &vector), None);
            let squares: f64 = exact.iter().map(|x| x * x).sum();
            check(squared_norm(element, &vector), (squares, squares), || format!("{element} {dim}"));
        }
    }
    let mut vector = [3.0, 0.0, -4.0];
    assert!(normalize_f32(&mut vector));
    assert_eq!(vector, [0.6, 0.0, -0.8]);
    assert!(!normalize_f32(&mut [0.0, 0.0]));
    assert!(!normalize_f32(&mut [f32::INFINITY, 0.0]));
    let bad = [1.0, f32::NEG_INFINITY, f32::NAN].map(f32::to_le_bytes).concat();
    assert_eq!(first_non_finite(Element::F32, &bad), Some(1));
    let bad = [f16::MAX, f16::NAN].map(f16::to_le_bytes).concat();
    assert_eq!(first_non_finite(Element::F16, &bad), Some(1));
    let bad = [bf16::MAX, bf16::NEG_INFINITY].map(bf16::to_le_bytes).concat();
    assert_eq!(first_non_finite(Element::Bf16, &bad), Some(1));
    assert!(dot(Element::U8, &[1, 2], &[1]).is_nan());
    for position in 0..100 {
        let mut bytes = vec![0; 400];
        bytes[position * 4..][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
        assert_eq!(first_non_finite(Element::F32, &bytes), Some(position));
    }
    // Conversion stops at the end of the shorter slice.
    let mut floats = [7.0; 70];
    to_f32(Element::F16, &f16::ONE.to_le_bytes().repeat(65), &mut floats);
    assert!(floats[..65].iter().all(|&x| x == 1.0) && floats[65..] == [7.0; 5]);
    to_f32(Element::F16, &f16::ZERO.to_le_bytes().repeat(99), &mut floats);
    assert_eq!(floats, [0.0; 70]);
}

/// Whole pages, followed by a page that faults on any access.
#[cfg(unix)]
struct GuardedPages {
    start: *mut u8,
    len: usize,
    page: usize,
}

#[cfg(unix)]
impl GuardedPages {
    fn new(at_least: usize) -> GuardedPages {
        // SAFETY: a fresh anonymous mapping; its last page loses all permissions.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let len = at_least.next_multiple_of(page);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(std::ptr::null_mut(), len + page, protection, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let start = start.cast::<u8>();
            assert_eq!(libc::mprotect(start.add(len).cast(), page, libc::PROT_NONE), 0);
            GuardedPages { start, len, page }
        }
    }

    /// Copies `bytes` so that they end where the guard page begins.
    fn end_with(&mut self, bytes: &[u8]) -> &[u8] {
        // SAFETY: the mapping is `len` bytes long, and at least as long as `bytes`.
        let all = unsafe { std::slice::from_raw_parts_mut(self.start, self.len) };
        let end = &mut all[self.len - bytes.len()..];
        end.copy_from_slice(bytes);
        end
    }
}

#[cfg(unix)]
impl Drop for GuardedPages {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping.
        unsafe { libc::munmap(self.start.cast(), self.len + self.page) };
    }
}

#[test]
#[cfg(unix)]
fn nothing_past_the_end_is_read() {
    let mut random = SmallRng::seed_from_u64(4);
    let (mut left, mut right) = (GuardedPages::new(3 * 300 * 4), GuardedPages::new(300 * 4));
    for element in Element::ALL {
        for dim in 1..=300 {
            let row = random_bytes(element, dim, &mut random);
            let query = right.end_with(&random_bytes(element, dim, &mut random));
            let rows = left.end_with(&[&row[..], &row, &row].concat());
            let last = &rows[2 * row.len()..];
            let mut floats = vec![0.0; dim];
            to_f32(element, last, &mut floats);
            assert_eq!(first_non_finite(element, last), None);
            for metric in Metric::ALL {
                for isa in available() {
                    let distance = Distance::with_isa(isa, element, metric, dim).unwrap();
                    let expected = distance.between(query, &row);
                    assert_eq!(distance.between(query, last), expected);
                    let mut out = [0.0; 3];
                    distance.score_block(query, rows, &mut out);
                    assert_eq!(out, [expected; 3]);
                    let array = Rows { bytes: rows, stride: row.len() };
                    distance.score(query, array, &[2, 0, 2], &mut out);
                    assert_eq!(out, [expected; 3]);
                }
            }
        }
    }
    for dim in 1..=300 {
        let floats = random_bytes(Element::F32, dim, &mut random);
        for distance in Metric::ALL.into_iter().flat_map(|metric| of_floats(metric, dim)) {
            let row = random_bytes(distance.element(), dim, &mut random);
            let (query, last) = (right.end_with(&floats), left.end_with(&row));
            let expected = distance.between(&floats, &row);
            assert_eq!(distance.between(query, last), expected, "{distance:?}");
        }
    }
}
