//! Measures the recall of each kind of code for the same bytes: the table of `docs/codes.md`.
//!
//! `BATHYAL_DATA=dir cargo run --release -p bathyal-kernels --example code_table -- ARGUMENTS`
//!
//! ARGUMENTS are `SET [ROWS] [QUERIES] [KINDS] [SIZES]`. The program reads `dir/SET/base.{u8bin,fbin}` and
//! `query.*` (u32 n, u32 dim, rows), takes the first ROWS rows and QUERIES queries, finds the true neighbours
//! by brute force and ranks all rows by each code.

use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec, EncodeScratch};
use bathyal_kernels::{Distance, Element, Metric, Rows};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SEED: u64 = 1;
/// Rows that the codecs are trained on.
const SAMPLE: usize = 30_000;
/// True neighbours of each query.
const TRUE: usize = 10;
/// Length of the ranking by codes that a graph search would re-rank.
const RANKED: usize = 100;
/// Ids in one scoring call, as in a step of a graph search.
const BATCH: usize = 64;

struct Set {
    dim: usize,
    base: Vec<f32>,
    queries: Vec<f32>,
}

fn read(folder: &Path, stem: &str, limit: usize) -> Result<(usize, Vec<f32>), Box<dyn Error>> {
    for (extension, width) in [("u8bin", 1), ("fbin", 4)] {
        let path = folder.join(stem).with_extension(extension);
        if !path.exists() {
            continue;
        }
        let bytes = std::fs::read(&path)?;
        let word =
            |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]) as usize;
        let (n, dim) = (word(0).min(limit), word(4));
        let body = &bytes[8..8 + n * dim * width];
        let values = match width {
            1 => body.iter().map(|&b| f32::from(b)).collect(),
            _ => body.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        };
        return Ok((dim, values));
    }
    Err(format!("no {stem}.u8bin or {stem}.fbin in {}", folder.display()).into())
}

fn smallest(distances: &[f32], count: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..distances.len() as u32).collect();
    let by_distance =
        |a: &u32, b: &u32| distances[*a as usize].total_cmp(&distances[*b as usize]).then(a.cmp(b));
    ids.select_nth_unstable_by(count - 1, by_distance);
    ids.truncate(count);
    ids.sort_unstable_by(by_distance);
    ids
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn ground_truth(set: &Set, metric: Metric) -> Vec<Vec<u32>> {
    let distance = Distance::new(Element::F32, metric, set.dim);
    let base = bytes_of(&set.base);
    let ids: Vec<u32> = (0..(set.base.len() / set.dim) as u32).collect();
    let mut out = vec![0.0; ids.len()];
    set.queries
        .chunks_exact(set.dim)
        .map(|query| {
            distance.score(&bytes_of(query), Rows { bytes: &base, stride: set.dim * 4 }, &ids, &mut out);
            smallest(&out, TRUE)
        })
        .collect()
}

struct Line {
    name: String,
    code_bytes: usize,
    recall_10: f64,
    recall_100: f64,
    ns_cached: f64,
    ns_random: f64,
    prepare_us: f64,
    train_s: f64,
    encode_us: f64,
}

fn measure(
    set: &Set,
    truth: &[Vec<u32>],
    kind: CodeKind,
    bytes: usize,
    metric: Metric,
) -> Result<Line, Box<dyn Error>> {
    let (dim, n) = (set.dim, set.base.len() / set.dim);
    let start = Instant::now();
    // The sample takes rows at regular intervals. Files are often sorted (GloVe by frequency), so the first
    // rows are not a random sample.
    let step = n.div_ceil(SAMPLE);
    let sample: Vec<f32> = set.base.chunks_exact(dim).step_by(step).flatten().copied().collect();
    let codec = Codec::train(kind, bytes, metric, &sample, dim, SEED, 2)?;
    let train_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut codes = vec![0; n * codec.code_bytes()];
    codec.encode(&set.base, &mut codes, &mut EncodeScratch::default());
    let encode_us = start.elapsed().as_secs_f64() * 1e6 / n as f64;
    let ids: Vec<u32> = (0..n as u32).collect();
    let (mut prepared, mut out) = (CodeQuery::new(), vec![0.0; n]);
    let (mut first_10, mut first_100) = (0, 0);
    let mut prepare_s = 0.0;
    for (query, truth) in set.queries.chunks_exact(dim).zip(truth) {
        let start = Instant::now();
        codec.prepare(query, &mut prepared);
        prepare_s += start.elapsed().as_secs_f64();
        prepared.score(&codec, &codes, &ids, &mut out);
        let ranked = smallest(&out, RANKED);
        first_10 += ranked[..TRUE].iter().filter(|id| truth.contains(id)).count();
        first_100 += ranked.iter().filter(|id| truth.contains(id)).count();
    }
    let queries = truth.len() as f64;
    Ok(Line {
        name: kind.to_string(),
        code_bytes: codec.code_bytes(),
        recall_10: first_10 as f64 / (queries * TRUE as f64),
        recall_100: first_100 as f64 / (queries * TRUE as f64),
        ns_cached: ns_a_code(&codec, &prepared, &codes, 4096.min(n)),
        ns_random: ns_a_code(&codec, &prepared, &codes, n),
        prepare_us: prepare_s * 1e6 / queries,
        train_s,
        encode_us,
    })
}

/// Returns the nanoseconds that scoring a code takes, in batches of random ids below `range`: the median of
/// 15 runs.
fn ns_a_code(codec: &Codec, prepared: &CodeQuery, codes: &[u8], range: usize) -> f64 {
    let mut state = SEED;
    let ids: Vec<u32> = (0..64 * BATCH)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as usize % range) as u32
        })
        .collect();
    let mut out = [0.0f32; BATCH];
    let mut runs: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            for batch in ids.chunks_exact(BATCH) {
                prepared.score(codec, codes, batch, &mut out);
                std::hint::black_box(&mut out);
            }
            start.elapsed().as_secs_f64() * 1e9 / ids.len() as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize, default: &str| arguments.get(i).cloned().unwrap_or_else(|| default.to_string());
    let name = argument(0, "sift-a");
    let folder = PathBuf::from(std::env::var("BATHYAL_DATA").map_err(|_| "set BATHYAL_DATA")?).join(&name);
    let (dim, base) = read(&folder, "base", argument(1, "200000").parse()?)?;
    let (_, queries) = read(&folder, "query", argument(2, "500").parse()?)?;
    let set = Set { dim, base, queries };
    let kinds = argument(3, "pq,pq4");
    let sizes = argument(4, "16,24,32,48,64");
    let metric = Metric::L2;
    let truth = ground_truth(&set, metric);
    println!("{name}: {} rows of {dim}, {} queries, {metric}\n", set.base.len() / dim, truth.len());
    println!(
        "| code | bytes | recall@10 | recall 10@100 | ns/code cached | ns/code random | prepare us | train s \
         | encode us |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for size in sizes.split(',') {
        for kind in kinds.split(',') {
            // RaBitQ has no codes of fewer bytes than its bits take. Such a line is left out.
            let Ok(l) = measure(&set, &truth, kind.parse()?, size.parse()?, metric) else { continue };
            println!(
                "| {} | {} | {:.4} | {:.4} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} |",
                l.name,
                l.code_bytes,
                l.recall_10,
                l.recall_100,
                l.ns_cached,
                l.ns_random,
                l.prepare_us,
                l.train_s,
                l.encode_us
            );
        }
    }
    Ok(())
}
