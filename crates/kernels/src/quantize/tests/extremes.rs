//! Codecs whose floats are at the ends of what a float holds, as damaged files and unusual data have them.

use super::super::*;
use super::{KINDS, gaussian, room};
use crate::kmeans::random::Random;

/// The largest and the least floats, and those whose squares, products or inverses leave their range.
const EXTREMES: [f32; 10] =
    [f32::MAX, f32::MIN, 1e38, 1e30, 1e20, f32::MIN_POSITIVE, 1e-45, 3e-39, 3e-37, 1e-20];

/// Everything that a query can do with a codec, on one instruction set; NaN as one value.
fn answers(isa: Isa, codec: &Codec, query: &[f32]) -> Option<Vec<u32>> {
    let mut prepared = CodeQuery::with_isa(isa)?;
    let mut random = Random::new(3);
    let codes: Vec<u8> = (0..3 * codec.code_bytes()).map(|_| random.next() as u8).collect();
    let (mut out, mut bounds) = ([0.0; 3], [0.0; 3]);
    codec.prepare(query, &mut prepared);
    prepared.score_with_bound(codec, &codes, &[0, 2, 1], &mut out, &mut bounds);
    let mut all = [out, bounds].concat();
    if let Some(interleaved) = codec.interleave(&codes) {
        prepared.prepare_scan(codec);
        prepared.scan(codec, &interleaved, &mut out);
        all.extend(out);
    }
    if codec.has_groups() {
        let blocks: Vec<u8> = (0..codec.block_bytes()).map(|_| random.next() as u8).collect();
        let mut hits = Vec::new();
        prepared.prepare_groups(codec, query);
        prepared.scan_group(codec, &blocks, 31, 1.0, f32::INFINITY, 7, &mut hits);
        assert!(hits.iter().all(|hit| !hit.distance.is_nan() && (7..38).contains(&hit.id)));
        all.extend(hits.iter().map(|hit| hit.distance));
    }
    Some(all.iter().map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }).collect())
}

fn try_codec(codec: &Codec) {
    let dim = codec.dim();
    for value in [0.5, f32::MAX, 1e-20, f32::NAN] {
        let scalar = answers(Isa::Scalar, codec, &vec![value; dim]).unwrap();
        for isa in Isa::ALL {
            let found = answers(isa, codec, &vec![value; dim]);
            assert!(found.is_none_or(|found| found == scalar), "{} {isa} {value}", codec.kind());
        }
        codec.decode(&vec![0xa5; codec.code_bytes()], &mut vec![0.0; dim]);
        let (rows, mut scratch) = (vec![value; 2 * dim], EncodeScratch::default());
        codec.encode(&rows, &mut vec![0; 2 * codec.code_bytes()], &mut scratch);
        if codec.has_groups() {
            let mut blocks = vec![0; codec.block_bytes()];
            codec.encode_group(&rows, &vec![0.25; dim], &mut blocks, &mut scratch);
            let _ = codec.group_error();
        }
    }
}

#[test]
fn codecs_with_extreme_floats_answer_alike_on_every_isa() {
    let rows = gaussian(40, 9, 1);
    for kind in KINDS {
        let good = Codec::train(kind, room(kind, 8, 9), Metric::L2, &rows, 9, 1, 1).unwrap().to_bytes();
        let mut tried = 0;
        for (i, value) in EXTREMES.into_iter().enumerate() {
            // Floats begin anywhere, behind what is counted in bytes; each value at each place would take minutes.
            for first in (20 + i..good.len().min(200)).step_by(11) {
                for count in [1, 9, 1000] {
                    let mut bytes = good.clone();
                    let places = bytes[first..].chunks_exact_mut(4).take(count);
                    places.for_each(|place| place.copy_from_slice(&value.to_le_bytes()));
                    if let Ok(codec) = Codec::from_bytes(&bytes) {
                        tried += 1;
                        try_codec(&codec);
                    }
                }
            }
        }
        assert!(tried > 20, "{kind}: {tried}");
    }
}

#[test]
fn codecs_of_the_largest_and_of_the_least_values_can_be_read_again_or_are_refused() {
    for scale in [f32::MAX / 5.0, 1e30, 1e17, 1e-19, 1e-30, 1e-42] {
        for (n, dim) in [(2, 1), (60, 9), (300, 40)] {
            let rows: Vec<f32> = gaussian(n, dim, 1).iter().map(|v| v.clamp(-5.0, 5.0) * scale).collect();
            for kind in KINDS {
                let trained = Codec::train(kind, room(kind, 8, dim), Metric::L2, &rows, dim, 1, 1);
                if scale > 1e20 && trained == Err(QuantizeError::TooLarge) {
                    continue;
                }
                let codec = trained.unwrap();
                assert_eq!(Codec::from_bytes(&codec.to_bytes()).as_ref(), Ok(&codec), "{kind} {scale} {dim}");
                let codes = super::encoded(&codec, &rows);
                codec.decode(&codes, &mut vec![0.0; dim]);
                let _ = answers(Isa::best(), &codec, &rows[..dim]);
            }
        }
    }
}
