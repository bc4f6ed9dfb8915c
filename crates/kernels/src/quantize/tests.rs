mod extremes;
mod groups;

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

/// Returns a size that is enough for the kind. RaBitQ needs its bits for every dimension, axes at least 8
/// bytes.
fn sufficient_bytes(kind: CodeKind, bytes: usize, dim: usize) -> usize {
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
        let codec = Codec::train(kind, sufficient_bytes(kind, 3, 10), Metric::L2, &rows, 10, 1, 1).unwrap();
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
                let codec =
                    Codec::train(kind, sufficient_bytes(kind, bytes, dim), metric, &rows, dim, 1, 2).unwrap();
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
fn every_isa_gives_the_same_scores() {
    for (dim, bytes) in [(1, 1), (5, 3), (24, 17), (100, 32), (520, 270)] {
        let rows = gaussian(60, dim, 2);
        let query = gaussian(1, dim, 3);
        for kind in KINDS {
            let codec =
                Codec::train(kind, sufficient_bytes(kind, bytes, dim), Metric::L2, &rows, dim, 1, 2).unwrap();
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

#[test]
fn rabitq_is_unbiased_and_its_bound_holds() {
    let (dim, n) = (64, 400);
    let rows = gaussian(n, dim, 2);
    for bits in [1, 2, 4, 8] {
        let (mut inside, mut total, mut sum, mut sum_square) = (0, 0, 0.0f64, 0.0f64);
        // Each seed gives another rotation. The theorem's probability is over rotations.
        for seed in 0..12 {
            let codec =
                Codec::train(CodeKind::RaBitQ { bits }, 200, Metric::L2, &rows, dim, seed, 1).unwrap();
            let codes = encoded(&codec, &rows);
            let query = gaussian(1, dim, 100 + seed);
            let ids: Vec<u32> = (0..n as u32).collect();
            let (mut out, mut bounds, mut prepared) = (vec![0.0; n], vec![0.0; n], CodeQuery::new());
            codec.prepare(&query, &mut prepared);
            prepared.score_with_bound(&codec, &codes, &ids, &mut out, &mut bounds);
            for (row, (score, bound)) in rows.chunks_exact(dim).zip(out.iter().zip(&bounds)) {
                let exact: f32 = row.iter().zip(&query).map(|(a, b)| (a - b) * (a - b)).sum();
                inside += usize::from((score - exact).abs() <= *bound);
                total += 1;
                sum += f64::from(score - exact);
                sum_square += f64::from(score - exact).powi(2);
            }
        }
        let (mean, deviation) = (sum / total as f64, (sum_square / total as f64).sqrt());
        // Errors of codes with the same rotation are correlated, so their mean varies more than that of
        // independent errors.
        assert!(mean.abs() < 0.2 * deviation, "{bits} bits: mean {mean}, deviation {deviation}");
        assert!(inside as f64 >= 0.99 * total as f64, "{bits} bits: {inside} of {total} inside");
    }
}

#[test]
fn scans_agree_with_scores() {
    let n = 77;
    for (dim, bytes) in [(9, 8), (100, 24), (300, 130)] {
        let rows = gaussian(n, dim, 2);
        let query = gaussian(1, dim, 3);
        for kind in
            [CodeKind::Pq4, CodeKind::Axes, CodeKind::RaBitQ { bits: 1 }, CodeKind::RaBitQ { bits: 4 }]
        {
            let codec =
                Codec::train(kind, sufficient_bytes(kind, bytes, dim), Metric::L2, &rows, dim, 1, 2).unwrap();
            let codes = encoded(&codec, &rows);
            let scan_codes = codec.interleave(&codes).unwrap();
            let ids: Vec<u32> = (0..n as u32).collect();
            let mut scores = vec![0.0; n];
            let mut first: Option<Vec<f32>> = None;
            for isa in Isa::ALL {
                let Some(mut prepared) = CodeQuery::with_isa(isa) else { continue };
                let mut scanned = vec![0.0; n];
                codec.prepare(&query, &mut prepared);
                prepared.prepare_scan(&codec);
                prepared.scan(&codec, &scan_codes, &mut scanned);
                prepared.score(&codec, &codes, &ids, &mut scores);
                for (a, b) in scanned.iter().zip(&scores) {
                    assert!((a - b).abs() <= 0.02 * b.abs() + 0.5, "{kind} {isa} {dim}: {a} {b}");
                }
                if kind == CodeKind::Pq4 {
                    assert_eq!(scanned, scores);
                }
                assert_eq!(&scanned, first.get_or_insert_with(|| scanned.clone()), "{kind} {isa}");
            }
        }
    }
    let codec = Codec::train(CodeKind::Pq, 2, Metric::L2, &[0.0; 8], 2, 1, 1).unwrap();
    assert!(codec.interleave(&[0; 8]).is_none());
}

#[test]
fn degenerate_samples_give_finite_codes() {
    let samples: [(Vec<f32>, usize); 5] = [
        (vec![0.0; 64], 8),
        (vec![3.0; 64], 8),
        (vec![1.0], 1),
        ((0..80).map(|i| if i % 8 < 4 { 5.0 } else { i as f32 }).collect(), 8),
        (gaussian(2, 30, 1), 30),
    ];
    for (sample, dim) in samples {
        for kind in KINDS {
            for metric in Metric::ALL {
                let codec =
                    Codec::train(kind, sufficient_bytes(kind, 8, dim), metric, &sample, dim, 1, 2).unwrap();
                let codes = encoded(&codec, &sample);
                let ids: Vec<u32> = (0..(sample.len() / dim) as u32).collect();
                let (mut out, mut prepared) = (vec![f32::NAN; ids.len()], CodeQuery::new());
                codec.prepare(&sample[..dim], &mut prepared);
                prepared.score(&codec, &codes, &ids, &mut out);
                assert!(out.iter().all(|v| v.is_finite()), "{kind} {metric} {dim}: {out:?}");
                let mut row = vec![0.0; dim];
                codec.decode(&codes, &mut row);
                assert!(row.iter().all(|v| v.is_finite()));
            }
        }
    }
}

#[test]
fn reading_garbage_never_panics() {
    let mut random = Random::new(9);
    let rows = gaussian(40, 9, 1);
    for kind in KINDS {
        let good =
            Codec::train(kind, sufficient_bytes(kind, 8, 9), Metric::L2, &rows, 9, 1, 1).unwrap().to_bytes();
        for _ in 0..300 {
            let mut bytes = good.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len().min(80));
                bytes[at] = random.next() as u8;
            }
            let Ok(codec) = Codec::from_bytes(&bytes) else { continue };
            let code: Vec<u8> = (0..codec.code_bytes()).map(|_| random.next() as u8).collect();
            let (mut out, mut prepared) = ([0.0], CodeQuery::new());
            codec.prepare(&vec![1.0; codec.dim()], &mut prepared);
            prepared.score(&codec, &code, &[0], &mut out);
            codec.decode(&code, &mut vec![0.0; codec.dim()]);
        }
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let train = |kind, bytes, sample: &[f32], dim| Codec::train(kind, bytes, Metric::L2, sample, dim, 1, 1);
    assert_eq!(train(CodeKind::Pq, 4, &[1.0], 0), Err(QuantizeError::Dimension(0)));
    assert_eq!(train(CodeKind::Pq, 4, &[], 3), Err(QuantizeError::Sample(KMeansError::Empty)));
    assert!(train(CodeKind::Axes, 7, &[1.0; 64], 8).is_err());
    assert!(train(CodeKind::RaBitQ { bits: 9 }, 99, &[1.0; 64], 8).is_err());
    assert!(train(CodeKind::RaBitQ { bits: 2 }, 7, &[1.0; 64], 64).is_err());
    assert!(train(CodeKind::Pq, 0, &[1.0; 64], 8).is_err());
    assert!(train(CodeKind::Pq, 4, &[1.0, f32::INFINITY], 2).is_err());
}

#[test]
fn the_default_follows_the_table_and_can_be_trained() {
    assert_eq!(Codec::default_for(128, 32), CodeKind::Axes);
    assert_eq!(Codec::default_for(128, 16), CodeKind::Pq);
    assert_eq!(Codec::default_for(4096, 2056), CodeKind::RaBitQ { bits: 4 });
    for (dim, bytes) in [(1, 1), (4, 40), (31, 32), (100, 24), (100, 32), (3000, 40), (2100, 300)] {
        let rows = gaussian(30, dim, 1);
        assert!(Codec::train(Codec::default_for(dim, bytes), bytes, Metric::L2, &rows, dim, 1, 1).is_ok());
    }
}

#[test]
fn approximate_axes_are_found_for_values_of_any_size() {
    // More dimensions than EXACT_DIM, and fewer rows than axes.
    let dim = 530;
    let rows = gaussian(60, dim, 1);
    for scale in [1.0, 1e18, 1e-30, 0.0] {
        let scaled: Vec<f32> = rows.iter().map(|v| v * scale).collect();
        let codec = Codec::train(CodeKind::Axes, 70, Metric::L2, &scaled, dim, 1, 2).unwrap();
        assert_eq!(Codec::from_bytes(&codec.to_bytes()).as_ref(), Ok(&codec), "{scale}");
        let mut row = vec![0.0; dim];
        codec.decode(&encoded(&codec, &scaled[..dim]), &mut row);
        assert!(row.iter().all(|v| v.is_finite()), "{scale}");
    }
}

#[test]
fn a_rotation_of_another_version_is_refused() {
    let rows = gaussian(300, 32, 1);
    for (kind, version) in [(CodeKind::Axes, 2), (CodeKind::RaBitQ { bits: 2 }, 1), (CodeKind::Pq, 1)] {
        let mut bytes = Codec::train(kind, 16, Metric::L2, &rows, 32, 1, 1).unwrap().to_bytes();
        assert_eq!(bytes[4..8], [version, 0, 0, 0], "{kind}");
        assert!(Codec::from_bytes(&bytes).is_ok());
        for other in [0, 3 - version, 3] {
            bytes[4] = other;
            assert!(Codec::from_bytes(&bytes).is_err(), "{kind}: version {other}");
        }
    }
}

#[test]
fn axes_of_huge_and_of_tiny_values_are_found() {
    let rows = gaussian(600, 8, 1);
    for scale in [2f32.powi(58), 2f32.powi(-55), 2f32.powi(-100)] {
        let scaled: Vec<f32> = rows.iter().map(|v| v * scale).collect();
        let codec = Codec::train(CodeKind::Axes, 12, Metric::L2, &scaled, 8, 1, 1).unwrap();
        assert_eq!(Codec::from_bytes(&codec.to_bytes()).as_ref(), Ok(&codec));
        let mut row = vec![0.0; 8];
        codec.decode(&encoded(&codec, &scaled[..8]), &mut row);
        assert!(row.iter().all(|v| v.is_finite()));
    }
}
