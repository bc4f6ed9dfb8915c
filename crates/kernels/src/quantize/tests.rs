use super::*;
use crate::kmeans::random::Random;

pub(super) fn gaussian(n: usize, dim: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n * dim).map(|_| random.normal() as f32).collect()
}

const KINDS: [CodeKind; 11] = [
    CodeKind::Pq,
    CodeKind::Pq4,
    CodeKind::Axes,
    CodeKind::RaBitQ { bits: 1 },
    CodeKind::RaBitQ { bits: 2 },
    CodeKind::RaBitQ { bits: 3 },
    CodeKind::RaBitQ { bits: 4 },
    CodeKind::RaBitQ { bits: 5 },
    CodeKind::RaBitQ { bits: 6 },
    CodeKind::RaBitQ { bits: 7 },
    CodeKind::RaBitQ { bits: 8 },
];

/// Bytes that suffice for the kind: RaBitQ needs whole bits for every dimension, the axes 8 bytes at least.
fn room(kind: CodeKind, bytes: usize, dim: usize) -> usize {
    match kind {
        CodeKind::RaBitQ { .. } => dim + 16,
        CodeKind::Axes => bytes.max(8),
        _ => bytes,
    }
}

fn encoded(codec: &Codec, rows: &[f32]) -> Vec<u8> {
    let mut codes = vec![0; rows.len() / codec.dim() * codec.code_bytes()];
    codec.encode(rows, &mut codes, &mut EncodeScratch::default());
    codes
}

#[test]
fn names_round_trip() {
    for kind in KINDS {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert!("pq5".parse::<CodeKind>().is_err());
}

#[test]
fn codecs_round_trip_through_bytes_and_refuse_every_truncation() {
    let rows = gaussian(300, 10, 1);
    for kind in KINDS {
        let codec = Codec::train(kind, room(kind, 3, 10), Metric::L2, &rows, 10, 1, 1).unwrap();
        let bytes = codec.to_bytes();
        assert_eq!(Codec::from_bytes(&bytes), Ok(codec));
        for len in 0..bytes.len() {
            assert!(Codec::from_bytes(&bytes[..len]).is_err());
        }
        assert!(Codec::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn scores_are_close_to_the_distance_of_the_reconstruction() {
    for (dim, bytes) in [(1, 1), (7, 3), (10, 10), (100, 27)] {
        let rows = gaussian(700, dim, 2);
        let query = gaussian(1, dim, 3);
        for kind in [CodeKind::Pq, CodeKind::Pq4] {
            for metric in [Metric::L2, Metric::InnerProduct] {
                let codec = Codec::train(kind, room(kind, bytes, dim), metric, &rows, dim, 1, 2).unwrap();
                let codes = encoded(&codec, &rows);
                let ids: Vec<u32> = (0..700).rev().collect();
                let (mut out, mut row) = (vec![0.0; 700], vec![0.0; dim]);
                let mut prepared = CodeQuery::new();
                codec.prepare(&query, &mut prepared);
                prepared.score(&codec, &codes, &ids, &mut out);
                for (&id, &score) in ids.iter().zip(&out) {
                    codec.decode(&codes[id as usize * codec.code_bytes()..], &mut row);
                    let pairs = row.iter().zip(&query);
                    let exact: f32 = match metric {
                        Metric::L2 => pairs.map(|(a, b)| (a - b) * (a - b)).sum(),
                        _ => -pairs.map(|(a, b)| a * b).sum::<f32>(),
                    };
                    let allowed = 0.02 * (dim as f32) + 0.05;
                    assert!((exact - score).abs() < allowed, "{kind} {metric} {dim}: {exact} {score}");
                }
            }
        }
    }
}

#[test]
fn every_isa_scores_alike() {
    for (dim, bytes) in [(1, 1), (5, 3), (24, 17), (100, 32), (520, 270)] {
        let rows = gaussian(60, dim, 2);
        let query = gaussian(1, dim, 3);
        for kind in KINDS {
            let codec = Codec::train(kind, room(kind, bytes, dim), Metric::L2, &rows, dim, 1, 2).unwrap();
            let codes = encoded(&codec, &rows);
            for count in [0, 1, 2, 15, 24, 63, 64, 65, 100, 300] {
                let ids: Vec<u32> = (0..count).map(|i| (i * 7 + 59) % 60).collect();
                let run = |isa: Isa| {
                    let mut prepared = CodeQuery::with_isa(isa)?;
                    let mut out = vec![0.0f32; ids.len()];
                    codec.prepare(&query, &mut prepared);
                    prepared.score(&codec, &codes, &ids, &mut out);
                    Some(out)
                };
                let scalar = run(Isa::Scalar).unwrap();
                for isa in Isa::ALL {
                    if let Some(scores) = run(isa) {
                        assert_eq!(scores, scalar, "{kind} {isa} {dim} {bytes} {count}");
                    }
                }
            }
        }
    }
}

#[test]
fn estimates_get_better_with_bits() {
    let dim = 100;
    let rows = gaussian(500, dim, 2);
    let query = gaussian(1, dim, 3);
    for metric in Metric::ALL {
        let mut last = f64::INFINITY;
        for bits in 1..=8 {
            let codec = Codec::train(CodeKind::RaBitQ { bits }, 200, metric, &rows, dim, 1, 1).unwrap();
            let codes = encoded(&codec, &rows);
            let ids: Vec<u32> = (0..500).collect();
            let (mut out, mut prepared) = (vec![0.0; 500], CodeQuery::new());
            codec.prepare(&query, &mut prepared);
            prepared.score(&codec, &codes, &ids, &mut out);
            let errors = rows.chunks_exact(dim).zip(&out).map(|(row, &score)| {
                let dot: f32 = row.iter().zip(&query).map(|(a, b)| a * b).sum();
                let exact = match metric {
                    Metric::L2 => row.iter().zip(&query).map(|(a, b)| (a - b) * (a - b)).sum::<f32>(),
                    Metric::InnerProduct => -dot,
                    Metric::Cosine => 1.0 - dot,
                };
                f64::from(score - exact)
            });
            let mean_square = errors.map(|e| e * e).sum::<f64>() / 500.0;
            assert!(mean_square < last * 0.5, "{metric} {bits} bits: {mean_square} after {last}");
            last = mean_square;
        }
    }
}

#[test]
fn reconstruction_gets_close_with_bits() {
    for dim in [1, 2, 9, 100] {
        let rows = gaussian(200, dim, 5);
        let codec = Codec::train(CodeKind::RaBitQ { bits: 8 }, 400, Metric::L2, &rows, dim, 1, 1).unwrap();
        let codes = encoded(&codec, &rows);
        let mut row = vec![0.0; dim];
        for (code, exact) in codes.chunks_exact(codec.code_bytes()).zip(rows.chunks_exact(dim)) {
            codec.decode(code, &mut row);
            for (a, b) in row.iter().zip(exact) {
                assert!((a - b).abs() < 0.05, "{dim}: {a} {b}");
            }
        }
    }
}
