//! Benchmark: time to hash a query, compared with that of the distances which a search then computes.
//!
//! `cargo bench -p bathyal-kernels --bench hashes`
//!
//! It measures 16 tables of 16 hashes: the keys of a query, table by table and all at once; the scores of two
//! blocks of 124 codes for each table, at random among a million; 24 distances to random vectors among
//! 100,000. It prints medians in ns; the measurements take turns.

use bathyal_kernels::lsh::{CompoundHashes, HashScratch};
use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec};
use bathyal_kernels::{Distance, Element, Metric, Rows};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

/// Dimensions, and the bytes of a code in an index of such vectors.
const SHAPES: [(usize, usize); 3] = [(128, 32), (384, 48), (960, 120)];
const TABLES: usize = 16;
const HASHES: usize = 16;
const CODES: usize = 1_000_000;
const ENTRIES: usize = TABLES * 2 * 124;
const VECTORS: usize = 100_000;
const COMPARED: usize = 24;
const SAMPLE: usize = 2000;
const REPEATS: usize = 201;

fn ns(work: impl FnOnce()) -> u64 {
    let began = Instant::now();
    work();
    began.elapsed().as_nanos() as u64
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("dim   keys by table   keys at once   codes scored   vectors compared");
    for (dim, code_bytes) in SHAPES {
        let mut random = StdRng::seed_from_u64(dim as u64);
        let mut floats =
            |count: usize| (0..count).map(|_| random.random::<f32>() - 0.5).collect::<Vec<f32>>();
        let (query, sample, vectors) = (floats(dim), floats(SAMPLE * dim), floats(VECTORS * dim));
        let bytes_of =
            |floats: &[f32]| floats.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let (query_bytes, vectors) = (bytes_of(&query), bytes_of(&vectors));
        let functions = CompoundHashes::draw(&vec![0.0; dim], 0.3 * (dim as f64).sqrt(), TABLES, HASHES, 1);
        let codec = Codec::train(CodeKind::Axes, code_bytes, Metric::L2, &sample, dim, 1, 2)?;
        let codes: Vec<u8> = (0..CODES * codec.code_bytes()).map(|_| random.random()).collect();
        let distance = Distance::new(Element::F32, Metric::L2, dim);
        let (mut prepared, mut scratch) = (CodeQuery::new(), HashScratch::default());
        codec.prepare(&query, &mut prepared);
        let (mut keys, mut scores) = (Vec::new(), vec![0.0; ENTRIES]);
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..REPEATS {
            let mut ids = |count: usize, below: usize| -> Vec<u32> {
                (0..count).map(|_| random.random_range(0..below as u32)).collect()
            };
            let (entries, compared) = (ids(ENTRIES, CODES), ids(COMPARED, VECTORS));
            times[0].push(ns(|| {
                for table in 0..TABLES {
                    functions.keys(table, black_box(&query), &mut scratch, &mut keys);
                    black_box(&keys);
                }
            }));
            times[1].push(ns(|| {
                functions.keys_of(black_box(&query), &mut scratch, &mut keys);
                black_box(&keys);
            }));
            times[2].push(ns(|| prepared.score(&codec, &codes, black_box(&entries), &mut scores)));
            black_box(&scores);
            let rows = Rows { bytes: &vectors, stride: dim * 4 };
            times[3].push(ns(|| distance.score(&query_bytes, rows, black_box(&compared), &mut scores)));
            black_box(&scores);
        }
        let [by_table, at_once, codes, vectors] = times.map(|mut times| {
            times.sort_unstable();
            times[REPEATS / 2]
        });
        println!("{dim:<6}{by_table:>13}{at_once:>15}{codes:>15}{vectors:>19}");
    }
    Ok(())
}
