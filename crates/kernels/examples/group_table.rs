//! Measures residual codes of groups: the speed of scans and of encoding, and the recall that rounded tables
//! cost. The table of `docs/codes.md`.
//!
//! `BATHYAL_DATA=dir cargo run --release -p bathyal-kernels --example group_table -- ARGUMENTS`
//!
//! ARGUMENTS are `SET [ROWS] [QUERIES] [KIND] [SIZES]`. The program reads `dir/SET/base.{u8bin,fbin}` and
//! `query.*` (u32 n, u32 dim, rows) and clusters the first ROWS rows into groups of 200 on average. Every
//! query scans every group.

use bathyal_kernels::kmeans::{KMeansOptions, assign, kmeans};
use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec, EncodeScratch, GroupScan, SCAN_BLOCK};
use bathyal_kernels::{Metric, Neighbor};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SEED: u64 = 1;
/// Residuals that the codec is trained on.
const SAMPLE: usize = 30_000;
/// Mean number of vectors in a group.
const GROUP: usize = 200;
/// True neighbours of each query.
const TRUE: usize = 10;
/// Length of the ranking by codes in which the true neighbours are counted.
const RANKED: usize = 30;
/// Bytes of blocks that stay in L2 while they are scanned repeatedly.
const CACHED: usize = 256 * 1024;

/// Vectors in the order of their groups, minus the mean of all.
struct GroupedSet {
    dim: usize,
    vectors: Vec<f32>,
    centroids: Vec<f32>,
    /// First vector of each group, and the number of vectors.
    starts: Vec<usize>,
    queries: Vec<f32>,
    truth: Vec<Vec<u32>>,
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

fn squared(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    for (x, y) in a.chunks(16).zip(b.chunks(16)) {
        for ((s, u), v) in sums.iter_mut().zip(x).zip(y) {
            *s += (u - v) * (u - v);
        }
    }
    sums.iter().sum()
}

fn nearest(all: &mut [Neighbor], count: usize) -> Vec<u32> {
    let count = count.min(all.len());
    all.select_nth_unstable(count - 1);
    all[..count].iter().map(|n| n.id).collect()
}

impl GroupedSet {
    fn new(dim: usize, mut base: Vec<f32>, mut queries: Vec<f32>) -> Result<GroupedSet, Box<dyn Error>> {
        let n = base.len() / dim;
        let mut mean = vec![0.0f64; dim];
        base.iter().enumerate().for_each(|(i, v)| mean[i % dim] += f64::from(*v) / n as f64);
        for values in [&mut base, &mut queries] {
            values.iter_mut().enumerate().for_each(|(i, v)| *v -= mean[i % dim] as f32);
        }
        let options = KMeansOptions { threads: 2, iterations: 5, ..KMeansOptions::new(n / GROUP, SEED) };
        let centroids = kmeans(&base, dim, &options)?.centroids;
        let mut labels = vec![0; n];
        assign(&base, dim, &centroids, 2, &mut labels, &mut []);
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by_key(|&i| labels[i]);
        let mut starts = vec![0; centroids.len() / dim + 1];
        labels.iter().for_each(|&label| starts[label as usize + 1] += 1);
        (1..starts.len()).for_each(|g| starts[g] += starts[g - 1]);
        let vectors: Vec<f32> = order.iter().flat_map(|&i| &base[i * dim..(i + 1) * dim]).copied().collect();
        let truth = queries
            .chunks_exact(dim)
            .map(|query| {
                let row = |(id, x)| Neighbor { distance: squared(query, x), id: id as u32 };
                nearest(&mut vectors.chunks_exact(dim).enumerate().map(row).collect::<Vec<_>>(), TRUE)
            })
            .collect();
        Ok(GroupedSet { dim, vectors, centroids, starts, queries, truth })
    }

    fn residuals(&self) -> Vec<f32> {
        let mut residuals = self.vectors.clone();
        for (range, centroid) in self.starts.windows(2).zip(self.centroids.chunks_exact(self.dim)) {
            let group = &mut residuals[range[0] * self.dim..range[1] * self.dim];
            group.iter_mut().enumerate().for_each(|(i, v)| *v -= centroid[i % self.dim]);
        }
        residuals
    }

    fn centroid_distances(&self, query: &[f32]) -> Vec<f32> {
        self.centroids.chunks_exact(self.dim).map(|c| squared(query, c)).collect()
    }
}

/// Encodes all groups. Returns their blocks, one group after the other, and the offset of each group's
/// blocks. Appends the encoding time of each group, in microseconds a vector.
fn encode(set: &GroupedSet, codec: &Codec, us_a_vector: &mut Vec<f64>) -> (Vec<u8>, Vec<usize>) {
    let mut at = vec![0];
    for range in set.starts.windows(2) {
        at.push(at[at.len() - 1] + (range[1] - range[0]).div_ceil(SCAN_BLOCK) * codec.block_bytes());
    }
    let (mut blocks, mut scratch) = (vec![0; at[at.len() - 1]], EncodeScratch::default());
    for (g, range) in set.starts.windows(2).enumerate() {
        let vectors = &set.vectors[range[0] * set.dim..range[1] * set.dim];
        let centroid = &set.centroids[g * set.dim..(g + 1) * set.dim];
        let start = Instant::now();
        codec.encode_group(vectors, centroid, &mut blocks[at[g]..at[g + 1]], &mut scratch);
        us_a_vector.push(start.elapsed().as_secs_f64() * 1e6 / (range[1] - range[0]).max(1) as f64);
    }
    (blocks, at)
}

/// Returns the recall of unrounded estimates, from reconstructed vectors: the share of the true 10 among the
/// best 10, and among the best 30.
fn exact_recall(set: &GroupedSet, codec: &Codec, residuals: &[f32]) -> (f64, f64) {
    let dim = set.dim;
    let mut codes = vec![0; residuals.len() / dim * codec.code_bytes()];
    codec.encode(residuals, &mut codes, &mut EncodeScratch::default());
    let mut decoded = vec![0.0; residuals.len()];
    for (code, out) in codes.chunks_exact(codec.code_bytes()).zip(decoded.chunks_exact_mut(dim)) {
        codec.decode(code, out);
    }
    let norms: Vec<f32> = residuals.chunks_exact(dim).map(|r| r.iter().map(|v| v * v).sum()).collect();
    let mut rankings = Vec::new();
    for query in set.queries.chunks_exact(dim) {
        let mut all = Vec::new();
        for (g, centre) in set.centroid_distances(query).into_iter().enumerate() {
            let centroid = &set.centroids[g * dim..(g + 1) * dim];
            let offset: Vec<f32> = query.iter().zip(centroid).map(|(q, c)| q - c).collect();
            for i in set.starts[g]..set.starts[g + 1] {
                let dot: f32 = offset.iter().zip(&decoded[i * dim..]).map(|(a, r)| a * r).sum();
                all.push(Neighbor { distance: centre + norms[i] - 2.0 * dot, id: i as u32 });
            }
        }
        rankings.push(all);
    }
    recalls(set, rankings)
}

fn recalls(set: &GroupedSet, rankings: Vec<Vec<Neighbor>>) -> (f64, f64) {
    let (mut first, mut more) = (0, 0);
    for (mut all, truth) in rankings.into_iter().zip(&set.truth) {
        let found = |ids: Vec<u32>| truth.iter().filter(|id| ids.contains(id)).count();
        first += found(nearest(&mut all, TRUE));
        more += found(nearest(&mut all, RANKED));
    }
    let total = (set.truth.len() * TRUE) as f64;
    (first as f64 / total, more as f64 / total)
}

/// A prepared query and the encoded groups that it scans.
struct GroupScanner<'a> {
    set: &'a GroupedSet,
    codec: &'a Codec,
    query: &'a CodeQuery,
    blocks: &'a [u8],
    /// Offset of each group's blocks, and the end.
    offsets: &'a [usize],
    centroid_distances: Vec<f32>,
}

impl GroupScanner<'_> {
    /// Scans the first `groups` groups. Returns the nanoseconds a code.
    fn scan(&self, threshold: f32, groups: usize, hits: &mut Vec<Neighbor>) -> f64 {
        let (starts, offsets) = (&self.set.starts, self.offsets);
        hits.clear();
        let start = Instant::now();
        for g in 0..groups {
            let (first, count) = (starts[g], starts[g + 1] - starts[g]);
            let group = GroupScan {
                blocks: &self.blocks[offsets[g]..offsets[g + 1]],
                count,
                centroid_distance: self.centroid_distances[g],
                threshold,
                first: first as u32,
                next: offsets.get(g + 2).map_or(&[], |&end| &self.blocks[offsets[g + 1]..end]),
            };
            self.query.scan_group_before(self.codec, &group, hits);
        }
        start.elapsed().as_secs_f64() * 1e9 / starts[groups] as f64
    }
}

/// Sums of the squared errors of estimates: measured, and predicted by the codec.
#[derive(Default)]
struct SquaredErrors {
    measured: f64,
    predicted: f64,
}

impl SquaredErrors {
    /// Adds the errors of every 16th vector for the query `values`.
    fn add(&mut self, scanner: &GroupScanner<'_>, values: &[f32], residuals: &[f32], hits: &[Neighbor]) {
        let GroupScanner { set, codec, centroid_distances, .. } = scanner;
        for hit in hits.iter().filter(|hit| hit.id % 16 == 0) {
            let range = hit.id as usize * set.dim..(hit.id as usize + 1) * set.dim;
            let exact = squared(values, &set.vectors[range.clone()]);
            let group = set.starts.partition_point(|&s| s <= hit.id as usize) - 1;
            let length = residuals[range].iter().map(|v| v * v).sum::<f32>();
            self.measured += f64::from(hit.distance - exact).powi(2);
            let predicted = codec.group_error().powi(2) * 4.0 * centroid_distances[group] * length;
            self.predicted += f64::from(predicted);
        }
    }
}

fn line(set: &GroupedSet, kind: CodeKind, bytes: usize, residuals: &[f32]) -> Result<String, Box<dyn Error>> {
    let (dim, n) = (set.dim, residuals.len() / set.dim);
    let step = n.div_ceil(SAMPLE);
    let sample: Vec<f32> = residuals.chunks_exact(dim).step_by(step).flatten().copied().collect();
    let codec = Codec::train(kind, bytes, Metric::L2, &sample, dim, SEED, 2)?;
    let mut encoding = Vec::new();
    let (blocks, offsets) = encode(set, &codec, &mut encoding);
    let exact = exact_recall(set, &codec, residuals);
    let mut query = CodeQuery::new();
    // Microseconds a query and nanoseconds a code. The lower quartile is printed, because the machine may be
    // shared.
    let [mut prepare, mut quiet, mut cached, mut full] = [const { Vec::new() }; 4];
    let (mut rankings, mut hits) = (Vec::new(), Vec::new());
    let mut errors = SquaredErrors::default();
    for values in set.queries.chunks_exact(dim) {
        let start = Instant::now();
        query.prepare_groups(&codec, values);
        prepare.push(start.elapsed().as_secs_f64() * 1e6);
        let scanner = GroupScanner {
            set,
            codec: &codec,
            query: &query,
            blocks: &blocks,
            offsets: &offsets,
            centroid_distances: set.centroid_distances(values),
        };
        let all = scanner.centroid_distances.len();
        // A first scan, not measured, allocates memory for the hits and brings the caches to the state after
        // a scan.
        scanner.scan(f32::INFINITY, all, &mut hits);
        full.push(scanner.scan(f32::INFINITY, all, &mut hits));
        errors.add(&scanner, values, residuals, &hits);
        let mut kept = hits.clone();
        let worst = nearest(&mut kept, 100).len();
        let threshold = kept[..worst].iter().map(|h| h.distance).fold(0.0, f32::max);
        rankings.push(std::mem::take(&mut hits));
        scanner.scan(threshold, all, &mut hits);
        quiet.push(scanner.scan(threshold, all, &mut hits));
        let groups = offsets.partition_point(|&a| a <= CACHED).saturating_sub(1).max(1);
        scanner.scan(threshold, groups, &mut hits);
        cached.extend((0..8).map(|_| scanner.scan(threshold, groups, &mut hits)));
    }
    let found = recalls(set, rankings);
    let quartile = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 4]
    };
    Ok(format!(
        "| {kind} | {} | {:.4} | {:.4} | {:.4} | {:.4} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} \
         | {:.3} |",
        codec.code_bytes(),
        found.0,
        exact.0,
        found.1,
        exact.1,
        quartile(cached),
        quartile(quiet),
        quartile(full),
        quartile(prepare),
        quartile(encoding),
        (errors.measured / errors.predicted).sqrt(),
        codec.group_error(),
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize, default: &str| arguments.get(i).cloned().unwrap_or_else(|| default.to_string());
    let name = argument(0, "sift-a");
    let folder = PathBuf::from(std::env::var("BATHYAL_DATA").map_err(|_| "set BATHYAL_DATA")?).join(&name);
    let (dim, base) = read(&folder, "base", argument(1, "100000").parse()?)?;
    let (_, queries) = read(&folder, "query", argument(2, "100").parse()?)?;
    let set = GroupedSet::new(dim, base, queries)?;
    println!(
        "{name}: {} rows of {dim} in {} groups, {} queries\n",
        set.vectors.len() / dim,
        set.starts.len() - 1,
        set.truth.len()
    );
    println!(
        "| code | bytes | 10@10 | unrounded | 10@30 | unrounded | ns/code cached | ns/code all \
         | ns/code all kept | prepare us | encode us | error / predicted | predicted |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let residuals = set.residuals();
    for size in argument(4, "16,24,32,48").split(',') {
        println!("{}", line(&set, argument(3, "axes").parse()?, size.parse()?, &residuals)?);
    }
    Ok(())
}
