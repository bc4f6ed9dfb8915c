//! Benchmark of exact search: pairs a second with tiles of queries, compared with one query at a time, in one
//! run.
//!
//! Run: `cargo bench -p bathyal-vectors --bench groundtruth`. With BATHYAL_DATA set, it measures real data
//! sets, too.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use bathyal_kernels::{Distance, Element, Metric, from_f32};
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const VECTORS: usize = 50_000;
const QUERIES: usize = 512;

fn random(element: Element, count: usize, dim: usize, seed: u64) -> VectorFile {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut rows = vec![0; count * element.row_bytes(dim)];
    if element.is_float() {
        let values: Vec<f32> = (0..count * dim).map(|_| rng.random()).collect();
        from_f32(element, &values, &mut rows);
    } else {
        rng.fill(&mut rows[..]);
    }
    VectorFile::from_rows(element, dim, rows).expect("whole rows")
}

/// Returns the pairs that `work` compares a second, in millions: the median of five runs.
fn rate(pairs: usize, mut work: impl FnMut()) -> f64 {
    let mut seconds: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    pairs as f64 / seconds[2] / 1e6
}

fn main() {
    println!("{VECTORS} vectors, k = 100, one thread; million pairs a second");
    println!(
        "{:>8} {:>8} {:>5} {:>12} {:>14} {:>6}",
        "element", "metric", "dim", "512 queries", "query by query", "ratio"
    );
    for (element, metric, dim) in [
        (Element::U8, Metric::L2, 128),
        (Element::I8, Metric::InnerProduct, 100),
        (Element::F32, Metric::L2, 128),
        (Element::F32, Metric::Cosine, 384),
        (Element::F16, Metric::L2, 768),
        (Element::B1, Metric::L2, 1024),
    ] {
        let (base, queries) = (random(element, VECTORS, dim, 1), random(element, QUERIES, dim, 2));
        let tiled = rate(VECTORS * QUERIES, || {
            black_box(
                exact_neighbors(&base, &queries, metric, 100, NonZeroUsize::new(1), &Silent).expect("valid"),
            );
        });
        let distance = Distance::new(element, metric, dim);
        let mut out = vec![0.0; VECTORS];
        let single = rate(VECTORS, || {
            distance.score_block(queries.row(0), base.rows(0..VECTORS).expect("no gaps"), &mut out);
            black_box(&mut out);
        });
        println!("{element:>8} {metric:>8} {dim:>5} {tiled:>12.0} {single:>14.0} {:>6.1}", tiled / single);
    }
    measure_real_data();
}

fn measure_real_data() {
    let Some(folder) = std::env::var_os("BATHYAL_DATA").map(std::path::PathBuf::from) else { return };
    println!("real data, l2, k = 100, all threads; million pairs a second");
    for (set, extension) in [("sift-a", "u8bin"), ("minilm-debian", "fbin")] {
        let file = |name: &str| folder.join(set).join(format!("{name}.{extension}"));
        let (Ok(base), Ok(queries)) = (VectorFile::open(file("base")), VectorFile::open(file("query")))
        else {
            continue;
        };
        let count = queries.count().min(1000);
        let queries = queries.rows(0..count).expect("no gaps").to_vec();
        let queries = VectorFile::from_rows(base.element(), base.dim(), queries).expect("whole rows");
        let tiled = rate(base.count() * count, || {
            black_box(exact_neighbors(&base, &queries, Metric::L2, 100, None, &Silent).expect("valid"));
        });
        println!("{set:>16} {extension:>6} {tiled:>12.0}");
    }
}
