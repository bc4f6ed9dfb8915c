//! `peer-diskann build`.

use crate::METRIC;
use crate::files::{Element, IndexFiles, peak_rss_bytes, shape};
use anyhow::{Context, Result};
use diskann::graph::config;
use diskann::utils::{ONE, VectorRepr};
use diskann_disk::build::builder::build::DiskIndexBuilder;
use diskann_disk::data_model::AdHoc;
use diskann_disk::disk_index_build_parameter::{DISK_SECTOR_LEN, MemoryBudget, NumPQChunks};
use diskann_disk::storage::DiskIndexWriter;
use diskann_disk::{DiskIndexBuildParameters, QuantizationType};
use diskann_providers::model::IndexConfiguration;
use diskann_providers::storage::FileStorageProvider;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(crate) struct BuildArguments {
    /// Vectors: .fbin, .u8bin or .i8bin
    data: PathBuf,
    /// Folder for the index
    index: PathBuf,
    /// Largest number of neighbours per vector (R)
    #[arg(long, default_value_t = 64)]
    max_degree: usize,
    /// Candidates while building (L)
    #[arg(long, default_value_t = 100)]
    search_list: usize,
    /// Bytes of a code: product quantization with 256 centres per byte
    #[arg(long, default_value_t = 32)]
    code_bytes: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Memory for the graph during the build; the default is enough for one pass
    #[arg(long, value_name = "GiB", default_value_t = 16.0)]
    memory: f64,
    /// Fill each list of neighbours up to its limit, as `diskann-benchmark` does for disk indexes
    #[arg(long, action = clap::ArgAction::Set, default_value_t = true)]
    saturate: bool,
}

#[derive(Serialize)]
struct Report {
    system: &'static str,
    build_seconds: f64,
    peak_rss_bytes: u64,
    index_bytes: u64,
    data_bytes: u64,
    amplification: f64,
    vectors: usize,
    dim: usize,
    element: &'static str,
    max_degree: usize,
    search_list: usize,
    code_bytes: usize,
    threads: usize,
    saturate: bool,
}

pub(crate) fn run(arguments: &BuildArguments) -> Result<()> {
    match Element::of(&arguments.data)? {
        Element::F32 => build::<f32>(arguments),
        Element::U8 => build::<u8>(arguments),
        Element::I8 => build::<i8>(arguments),
    }
}

fn build<T: VectorRepr>(arguments: &BuildArguments) -> Result<()> {
    let started = Instant::now();
    let (vectors, dim) = shape(&arguments.data)?;
    let element = Element::of(&arguments.data)?;
    let slack = config::MaxDegree::default_slack();
    let fill = |b: &mut config::Builder| {
        b.saturate_after_prune(arguments.saturate);
    };
    let graph =
        config::Builder::new_with(arguments.max_degree, slack, arguments.search_list, METRIC.into(), fill)
            .build()?;
    let parameters = DiskIndexBuildParameters::new(
        MemoryBudget::try_from_gb(arguments.memory)?,
        QuantizationType::FP,
        NumPQChunks::new_with(arguments.code_bytes, dim)?,
    );
    let configuration = IndexConfiguration::new(METRIC, dim, vectors, ONE, arguments.threads, graph);
    std::fs::create_dir_all(&arguments.index)?;
    let files = IndexFiles::new(&arguments.index)?;
    let data = arguments.data.to_str().context("the path of the data is not UTF-8")?.to_owned();
    let writer = DiskIndexWriter::new(data, files.prefix.clone(), None, DISK_SECTOR_LEN)?;
    let storage = FileStorageProvider;
    let mut builder = DiskIndexBuilder::<AdHoc<T>, FileStorageProvider>::new(
        &storage,
        parameters,
        configuration.with_pseudo_rng(),
        writer,
    )?;
    builder.build()?;
    let build_seconds = started.elapsed().as_secs_f64();
    let data_bytes = (vectors * dim * element.bytes()) as u64;
    let index_bytes = files.bytes()?;
    let report = Report {
        system: "diskann",
        build_seconds,
        peak_rss_bytes: peak_rss_bytes(),
        index_bytes,
        data_bytes,
        amplification: index_bytes as f64 / data_bytes.max(1) as f64,
        vectors,
        dim,
        element: element.name(),
        max_degree: arguments.max_degree,
        search_list: arguments.search_list,
        code_bytes: arguments.code_bytes,
        threads: arguments.threads,
        saturate: arguments.saturate,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
