//! `bathyal get`.

use std::path::PathBuf;

use bathyal_console::byte_size;
use clap::Args;

use super::stripe::PartsArguments;

/// `bathyal get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Vectors come as they were given, but for what an index does not keep: under cosine those of f32 have length 1, and with --store-as
they have the digits of the smaller element. An id that no vector has, or whose vector was deleted, is an error.

Examples:
  bathyal get my.index 17 4 2023
  bathyal get my.index --ids found.ibin --output found.fbin")]
pub struct GetArguments {
    /// The index
    pub index: PathBuf,
    /// The ids of the vectors
    #[arg(value_name = "ID", required_unless_present = "file")]
    pub ids: Vec<u32>,
    /// A file of ids: .ibin .ivecs; all of them, row after row, after those that are typed
    #[arg(id = "file", long = "ids", value_name = "IDS")]
    pub file: Option<PathBuf>,
    /// Write the vectors to this file, whose extension says the format: .fbin .f16bin .u8bin .i8bin .fvecs .bvecs .npy
    /// [default: they are printed]
    #[arg(long, value_name = "VECTORS")]
    pub output: Option<PathBuf>,
    /// Memory that the index may take, for example 2GB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub memory: Option<u64>,
    /// Where the parts of a striped index are, and how a store is reached
    #[command(flatten)]
    pub parts: PartsArguments,
}
