//! Codecs with floats at the ends of their range, as in damaged files and unusual data.

use super::super::*;
use super::{KINDS, gaussian, sufficient_bytes};
use crate::kmeans::random::Random;

/// The largest and the smallest floats, and floats whose squares, products or inverses overflow or vanish.
const EXTREMES: [f32; 10] =
    [f32::MAX, f32::MIN, 1e38, 1e30, 1e20, f32::MIN_POSITIVE, 1e-45, 3e-39, 3e-37, 1e-20];

/// Returns the bits of all estimates that a query can get from a codec, with one instruction set. NaNs are
/// one value.
fn all_estimates(isa: Isa, codec: &Codec, query: &[f32]) -> Option<Vec<u32>> {
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
        let scalar = all_estimates(Isa::Scalar, codec, &vec![value; dim]).unwrap();
        for isa in Isa::ALL {
            let found = all_estimates(isa, codec, &vec![value; dim]);
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
fn codecs_with_extreme_floats_give_the_same_estimates_with_every_isa() {
    let rows = gaussian(40, 9, 1);
    for kind in KINDS {
        let good =
            Codec::train(kind, sufficient_bytes(kind, 8, 9), Metric::L2, &rows, 9, 1, 1).unwrap().to_bytes();
        let mut tried = 0;
        for (i, value) in EXTREMES.into_iter().enumerate() {
            // Floats begin at any offset after the header. Every value at every offset would take minutes.
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
fn codecs_of_extreme_values_can_be_read_again_or_are_refused() {
    for scale in [f32::MAX / 5.0, 1e30, 1e17, 1e-19, 1e-30, 1e-42] {
        for (n, dim) in [(2, 1), (60, 9), (300, 40)] {
            let rows: Vec<f32> = gaussian(n, dim, 1).iter().map(|v| v.clamp(-5.0, 5.0) * scale).collect();
            for kind in KINDS {
                let trained =
                    Codec::train(kind, sufficient_bytes(kind, 8, dim), Metric::L2, &rows, dim, 1, 1);
                if scale > 1e20 && trained == Err(QuantizeError::TooLarge) {
                    continue;
                }
                let codec = trained.unwrap();
                assert_eq!(Codec::from_bytes(&codec.to_bytes()).as_ref(), Ok(&codec), "{kind} {scale} {dim}");
                let codes = super::encoded(&codec, &rows);
                codec.decode(&codes, &mut vec![0.0; dim]);
                let _ = all_estimates(Isa::best(), &codec, &rows[..dim]);
            }
        }
    }
}
