//! The readers of codecs and of blocks of codes.

use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec, EncodeScratch};
use bathyal_kernels::{Isa, Metric};
use std::sync::OnceLock;

pub fn codec(bytes: &[u8]) {
    let Ok(codec) = Codec::from_bytes(bytes) else { return };
    assert_eq!(codec.to_bytes(), bytes, "a codec that was read is written as before");
    let code = vec![0xa5; codec.code_bytes()];
    codec.decode(&code, &mut vec![0.0; codec.dim()]);
    for value in [0.5, 1e-20, f32::MAX] {
        let query = vec![value; codec.dim()];
        codec.encode(&query, &mut code.clone(), &mut EncodeScratch::default());
        alike(|mut prepared| {
            let (mut score, mut bound) = ([0.0], [0.0]);
            codec.prepare(&query, &mut prepared);
            prepared.score_with_bound(&codec, &code, &[0], &mut score, &mut bound);
            let mut scanned = [0.0];
            if let Some(codes) = codec.interleave(&code) {
                prepared.prepare_scan(&codec);
                prepared.scan(&codec, &codes, &mut scanned);
            }
            [score, bound, scanned].concat()
        });
        if codec.has_groups() {
            let mut block = vec![0; codec.block_bytes()];
            codec.encode_group(&query, &vec![0.25; codec.dim()], &mut block, &mut EncodeScratch::default());
            scan_blocks(&codec, &query, &vec![0xff; codec.block_bytes()], 31);
        }
    }
}

pub fn codecs() -> Vec<Vec<u8>> {
    let sample: Vec<f32> = (0..64 * 4).map(|i| (i * 37 % 101) as f32).collect();
    [(CodeKind::Pq, 2), (CodeKind::Pq4, 2), (CodeKind::Axes, 8), (CodeKind::RaBitQ { bits: 2 }, 10)]
        .map(|(kind, size)| {
            Codec::train(kind, size, Metric::L2, &sample, 4, 1, 1).expect("trained").to_bytes()
        })
        .to_vec()
}

/// Checks that `answers` returns the same values on every instruction set of this processor. All NaNs count
/// as one value.
fn alike(answers: impl Fn(CodeQuery) -> Vec<f32>) {
    let bits = |values: Vec<f32>| -> Vec<u32> {
        values.into_iter().map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect()
    };
    let mut first = None;
    for query in Isa::ALL.into_iter().filter_map(CodeQuery::with_isa) {
        let found = bits(answers(query));
        assert_eq!(&found, first.get_or_insert_with(|| found.clone()));
    }
}

/// Scans `count` codes of `blocks`, on every instruction set.
fn scan_blocks(codec: &Codec, query: &[f32], blocks: &[u8], count: usize) {
    alike(|mut prepared| {
        prepared.prepare_groups(codec, query);
        let mut hits = Vec::new();
        for threshold in [f32::INFINITY, 10.0] {
            prepared.scan_group(codec, blocks, count, 1.0, threshold, 5, &mut hits);
        }
        assert!(hits.len() <= 2 * count);
        assert!(
            hits.iter().all(|hit| hit.distance < f32::INFINITY && (5..5 + count as u32).contains(&hit.id))
        );
        hits.iter().map(|hit| hit.distance).collect()
    });
}

fn grouped_codecs() -> &'static [Codec] {
    static CODECS: OnceLock<Vec<Codec>> = OnceLock::new();
    CODECS.get_or_init(|| {
        let sample: Vec<f32> = (0..200 * 20).map(|i| (i * 37 % 101) as f32 / 10.0).collect();
        [(CodeKind::Axes, 9), (CodeKind::RaBitQ { bits: 1 }, 20), (CodeKind::RaBitQ { bits: 5 }, 40)]
            .map(|(kind, size)| Codec::train(kind, size, Metric::L2, &sample, 20, 1, 1).expect("trained"))
            .to_vec()
    })
}

/// Reads the number of a codec and the number of codes (1 byte each), and two blocks.
pub fn blocks_of_codes(bytes: &[u8]) {
    let Some(([chosen, count], blocks)) = bytes.split_first_chunk::<2>() else { return };
    let codec = &grouped_codecs()[usize::from(*chosen) % grouped_codecs().len()];
    let mut blocks = blocks.to_vec();
    blocks.resize(2 * codec.block_bytes(), 0);
    scan_blocks(codec, &[0.5; 20], &blocks, usize::from(*count) % 65);
}

pub fn code_blocks() -> Vec<Vec<u8>> {
    let encoded = |(number, codec): (usize, &Codec)| {
        let rows: Vec<f32> = (0..40 * 20).map(|i| (i * 41 % 103) as f32 / 10.0).collect();
        let mut blocks = vec![0; 2 * codec.block_bytes()];
        codec.encode_group(&rows, &[5.0; 20], &mut blocks, &mut EncodeScratch::default());
        [&[number as u8, 40], &blocks[..]].concat()
    };
    grouped_codecs().iter().enumerate().map(encoded).collect()
}
