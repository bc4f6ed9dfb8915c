use super::super::*;
use super::gaussian;
use crate::topk::Neighbor;

/// A group with residuals whose variance falls along the dimensions, a centroid far from zero and a query
/// near it.
struct Group {
    dim: usize,
    vectors: Vec<f32>,
    centroid: Vec<f32>,
    query: Vec<f32>,
    residuals: Vec<f32>,
}

impl Group {
    fn new(n: usize, dim: usize, seed: u64) -> Group {
        let spread = |d: usize| 3.0 / (1.0 + d as f32 / 6.0);
        let mut residuals = gaussian(n, dim, seed);
        residuals.iter_mut().enumerate().for_each(|(i, v)| *v = *v * spread(i % dim) + 0.02);
        let centroid: Vec<f32> =
            gaussian(1, dim, seed + 1).iter().enumerate().map(|(d, v)| 2.0 * v * spread(d)).collect();
        let query =
            gaussian(1, dim, seed + 2).iter().enumerate().map(|(d, v)| centroid[d] + v * spread(d)).collect();
        let vectors = residuals.iter().enumerate().map(|(i, v)| v + centroid[i % dim]).collect();
        Group { dim, vectors, centroid, query, residuals }
    }

    fn codec(&self, kind: CodeKind, bytes: usize, metric: Metric) -> Codec {
        let sample: Vec<f32> = Group::new(2000, self.dim, 77).residuals;
        Codec::train(kind, bytes, metric, &sample, self.dim, 1, 2).unwrap()
    }

    fn blocks(&self, codec: &Codec) -> Vec<u8> {
        let n = self.vectors.len() / self.dim;
        let mut blocks = vec![7; n.div_ceil(SCAN_BLOCK) * codec.block_bytes()];
        codec.encode_group(&self.vectors, &self.centroid, &mut blocks, &mut EncodeScratch::default());
        blocks
    }

    fn distance(&self, metric: Metric, x: &[f32]) -> f32 {
        let pairs = || x.iter().zip(&self.query);
        match metric {
            Metric::L2 => pairs().map(|(a, b)| (a - b) * (a - b)).sum(),
            Metric::InnerProduct => -pairs().map(|(a, b)| a * b).sum::<f32>(),
            Metric::Cosine => 1.0 - pairs().map(|(a, b)| a * b).sum::<f32>(),
        }
    }
}

fn scan(
    isa: Isa,
    codec: &Codec,
    group: &Group,
    blocks: &[u8],
    count: usize,
    threshold: f32,
) -> Option<Vec<Neighbor>> {
    let mut query = CodeQuery::with_isa(isa)?;
    query.prepare_groups(codec, &group.query);
    let mut hits = Vec::new();
    let centre = group.distance(codec.metric(), &group.centroid);
    query.scan_group(codec, blocks, count, centre, threshold, 1000, &mut hits);
    Some(hits)
}

#[test]
fn group_estimates_are_unbiased_and_have_the_predicted_error() {
    for dim in [5, 9, 31, 100, 130] {
        for bytes in [8, 11, 16, 24, 32, 47, 48, 64] {
            for metric in Metric::ALL {
                let group = Group::new(300, dim, dim as u64);
                let codec = group.codec(CodeKind::Axes, bytes, metric);
                let blocks = group.blocks(&codec);
                let hits = scan(Isa::best(), &codec, &group, &blocks, 300, f32::INFINITY).unwrap();
                assert_eq!(hits.len(), 300);
                let to_centre: f32 =
                    group.query.iter().zip(&group.centroid).map(|(q, c)| (q - c) * (q - c)).sum::<f32>();
                let scale = match metric {
                    Metric::L2 => 2.0 * to_centre.sqrt(),
                    _ => group.query.iter().map(|q| q * q).sum::<f32>().sqrt(),
                };
                let (mut sum, mut square, mut predicted) = (0.0f64, 0.0f64, 0.0f64);
                for (i, hit) in hits.iter().enumerate() {
                    assert_eq!(hit.id, 1000 + i as u32);
                    let residual = &group.residuals[i * dim..(i + 1) * dim];
                    let length = residual.iter().map(|v| v * v).sum::<f32>().sqrt();
                    let exact = group.distance(metric, &group.vectors[i * dim..(i + 1) * dim]);
                    let error = f64::from(hit.distance - exact);
                    sum += error;
                    square += error * error;
                    predicted += f64::from(codec.group_error() * scale * length).powi(2);
                }
                let (mean, deviation) = (sum / 300.0, (square / 300.0).sqrt());
                let predicted = (predicted / 300.0).sqrt();
                // The rounding of factors and tables is visible if a few dimensions have eight bits each.
                let rounding = f64::from(scale * scale + to_centre) * 3e-3;
                let case = format!("{metric} {dim} {bytes}: {mean} {deviation} {predicted} {rounding}");
                assert!(mean.abs() < 0.3 * deviation + rounding, "{case}");
                assert!(
                    deviation < 2.0 * predicted + rounding && predicted < 3.0 * deviation + rounding,
                    "{case}"
                );
            }
        }
    }
}

#[test]
fn every_isa_gives_the_same_hits_in_groups() {
    let bits = |hits: Vec<Neighbor>| -> Vec<(u32, u32)> {
        hits.iter().map(|hit| (hit.distance.to_bits(), hit.id)).collect()
    };
    for (dim, bytes) in [(3, 8), (9, 9), (17, 16), (64, 21), (100, 34), (100, 120), (300, 131)] {
        for kind in [CodeKind::Axes, CodeKind::RaBitQ { bits: 1 }, CodeKind::RaBitQ { bits: 5 }] {
            let group = Group::new(100, dim, 3);
            let bytes = if kind == CodeKind::Axes { bytes } else { dim + 16 };
            for metric in [Metric::L2, Metric::InnerProduct] {
                let codec = group.codec(kind, bytes, metric);
                let blocks = group.blocks(&codec);
                let all = scan(Isa::Scalar, &codec, &group, &blocks, 100, f32::INFINITY).unwrap();
                let mut sorted: Vec<f32> = all.iter().map(|hit| hit.distance).collect();
                sorted.sort_by(f32::total_cmp);
                for isa in Isa::ALL {
                    for (count, threshold) in [
                        (100, f32::INFINITY),
                        (100, sorted[9]),
                        (71, sorted[60]),
                        (1, f32::INFINITY),
                        (0, 0.0),
                    ] {
                        let Some(hits) = scan(isa, &codec, &group, &blocks, count, threshold) else {
                            continue;
                        };
                        let kept = all.iter().take(count).filter(|hit| hit.distance < threshold);
                        let wanted = bits(kept.copied().collect());
                        assert_eq!(bits(hits), wanted, "{kind} {isa} {dim} {bytes} {count}");
                    }
                }
            }
        }
    }
}

#[test]
fn padding_lanes_are_zero_and_scans_of_garbage_give_no_nan() {
    let group = Group::new(33, 20, 3);
    let codec = group.codec(CodeKind::Axes, 17, Metric::L2);
    let mut blocks = group.blocks(&codec);
    // The last block holds one code, so at most 17 of its 32 x 17 bytes are not zero.
    let last = &blocks[codec.block_bytes()..];
    assert!(last.iter().filter(|&&byte| byte != 0).count() <= 17);
    let garbage = gaussian(1, blocks.len(), 5);
    blocks.iter_mut().zip(garbage).for_each(|(byte, v)| *byte = (v * 200.0) as i32 as u8);
    for isa in Isa::ALL {
        let hits = scan(isa, &codec, &group, &blocks, 33, f32::INFINITY);
        assert!(hits.is_none_or(|hits| hits.iter().all(|hit| !hit.distance.is_nan())));
    }
}

#[test]
fn product_codes_have_no_groups() {
    let codec = Codec::train(CodeKind::Pq, 2, Metric::L2, &[0.0; 8], 2, 1, 1).unwrap();
    assert!(!codec.has_groups());
    assert_eq!(codec.group_error(), f32::INFINITY);
    let codec = Codec::train(CodeKind::Axes, 8, Metric::L2, &[0.0; 8], 2, 1, 1).unwrap();
    assert!(codec.has_groups());
    assert_eq!(codec.block_bytes(), 32 * codec.code_bytes());
}

/// Returns the root mean square error of the estimates of a group.
fn error(codec: &Codec, group: &Group, blocks: &[u8]) -> f64 {
    let n = group.vectors.len() / group.dim;
    let hits = scan(Isa::best(), codec, group, blocks, n, f32::INFINITY).unwrap();
    assert_eq!(hits.len(), n);
    let square = |hit: &Neighbor| {
        let i = (hit.id - 1000) as usize;
        let exact = group.distance(codec.metric(), &group.vectors[i * group.dim..(i + 1) * group.dim]);
        f64::from(hit.distance - exact).powi(2)
    };
    (hits.iter().map(square).sum::<f64>() / n as f64).sqrt()
}

fn shorten(codec: &Codec, shorter: &Codec, group: &Group, blocks: &[u8]) -> Vec<u8> {
    let n = group.vectors.len() / group.dim;
    let mut out = vec![9; n.div_ceil(SCAN_BLOCK) * shorter.block_bytes()];
    let mut scratch = EncodeScratch::default();
    codec.shorten_group(shorter, (blocks, n), &group.centroid, &mut out, &mut scratch);
    out
}

#[test]
fn shortened_codes_are_nearly_as_good_as_codes_trained_for_their_size() {
    for dim in [40, 128, 300] {
        for metric in Metric::ALL {
            let groups: Vec<Group> = (0..8).map(|seed| Group::new(300, dim, 3 * seed + 5)).collect();
            let codec = groups[0].codec(CodeKind::Axes, 36, metric);
            let shorter: Vec<Codec> = [28, 20, 12].iter().map(|n| codec.shortened(*n).unwrap()).collect();
            let mut last = 0.0;
            for shorter in std::iter::once(&codec).chain(&shorter) {
                let native = groups[0].codec(CodeKind::Axes, shorter.code_bytes(), metric);
                assert_eq!(native.code_bytes(), shorter.code_bytes());
                let (mut short, mut trained) = (0.0, 0.0);
                for group in &groups {
                    let mut blocks = group.blocks(&codec);
                    if shorter.code_bytes() < codec.code_bytes() {
                        blocks = shorten(&codec, shorter, group, &blocks);
                    }
                    short += error(shorter, group, &blocks);
                    trained += error(&native, group, &group.blocks(&native));
                }
                let what = format!("{dim} {metric} {}: {short} {trained}", shorter.code_bytes());
                println!("{what}");
                assert!(short <= 1.2 * trained && short > last, "{what}");
                last = short;
            }
        }
    }
}

#[test]
fn shortened_codes_of_one_bit_a_dimension_keep_some_of_the_dimensions() {
    let group = Group::new(200, 256, 3);
    let codec = group.codec(CodeKind::RaBitQ { bits: 1 }, 40, Metric::L2);
    let shorter = codec.shortened(24).unwrap();
    let blocks = group.blocks(&codec);
    let short = shorten(&codec, &shorter, &group, &blocks);
    let (all, fewer) = (error(&codec, &group, &blocks), error(&shorter, &group, &short));
    assert!(fewer > all && fewer < 2.5 * all, "{fewer} {all}");
}

#[test]
fn codecs_are_shortened_to_fewer_bytes_only_and_product_codecs_never() {
    let group = Group::new(50, 64, 1);
    let codec = group.codec(CodeKind::Axes, 24, Metric::L2);
    for bytes in [0, 3, 7, 24, 25, 1000] {
        assert!(codec.shortened(bytes).is_none(), "{bytes}");
    }
    for bytes in 8..24 {
        assert_eq!(codec.shortened(bytes).unwrap().code_bytes(), bytes);
    }
    assert!(group.codec(CodeKind::Pq, 16, Metric::L2).shortened(12).is_none());
}

#[test]
fn shortening_takes_blocks_of_any_bytes() {
    let group = Group::new(64, 64, 1);
    let codec = group.codec(CodeKind::Axes, 24, Metric::L2);
    let shorter = codec.shortened(16).unwrap();
    for byte in [0, 0x7b, 0x7f, 0xff] {
        let blocks = vec![byte; 2 * codec.block_bytes()];
        let out = shorten(&codec, &shorter, &group, &blocks);
        let hits = scan(Isa::best(), &shorter, &group, &out, 64, f32::INFINITY).unwrap();
        assert!(hits.len() <= 64);
    }
}
