//! Builds an index of a file of vectors, searches it at recall 0.95, and measures the recall.
//!
//!     cargo run --release -p bathyal --example quick_start -- base.fbin my.index

use bathyal::groundtruth::{exact_neighbors, recall};
use bathyal::{BuildOptions, Control, Error, Index, Metric, OpenOptions, SearchOptions, Silent, VectorFile};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, index] = arguments.as_slice() else {
        return Err("give a file of vectors and a path for the index: quick_start base.fbin my.index".into());
    };
    println!("recall@10: {:.4}", run(Path::new(data), Path::new(index))?);
    Ok(())
}

/// Builds an index of `data` at `target`, searches it for the first hundred vectors of `data`, and returns
/// recall@10.
fn run(data: &Path, target: &Path) -> Result<f64, Error> {
    let data = VectorFile::open(data)?;
    // `BuildOptions`, and the options of each family in `bathyal::families`, document every default.
    let options = BuildOptions { memory_bytes: Some(1 << 30), ..BuildOptions::default() };
    let report = bathyal::build(&data, target, &options, &Silent)?;
    println!(
        "{} vectors in {:.1} s, {:.2} times the data",
        report.vectors, report.build_seconds, report.amplification
    );

    let index =
        Index::open(target, &OpenOptions { memory_bytes: Some(256 << 20), ..OpenOptions::default() })?;
    let rows = data.rows(0..data.count().min(100)).unwrap_or_default().to_vec();
    let queries = VectorFile::from_rows(data.element(), data.dim(), rows)?;
    let found = index.search(&queries, &SearchOptions::default(), Control::default())?;
    println!("{:.1} reads a query", found.totals.reads as f64 / queries.count() as f64);

    let truth = exact_neighbors(&data, &queries, Metric::L2, found.k, None, &Silent);
    let truth = truth.map_err(|error| Error::Parameter(error.to_string()))?;
    recall(&truth, &found.ids, found.k, queries.count()).map_err(|error| Error::Parameter(error.to_string()))
}

#[test]
fn recall_is_at_least_0_9() {
    let folder = tempfile::tempdir().unwrap();
    let (data, index) = (folder.path().join("base.fbin"), folder.path().join("my.index"));
    let values = (0..2000 * 24_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32);
    let header = [2000_u32, 24].into_iter().flat_map(u32::to_le_bytes);
    std::fs::write(&data, header.chain(values.flat_map(f32::to_le_bytes)).collect::<Vec<u8>>()).unwrap();
    assert!(run(&data, &index).unwrap() >= 0.9);
}
