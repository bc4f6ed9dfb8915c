//! `bathyal get`.

use std::path::PathBuf;

use bathyal_console::byte_size;
use clap::Args;

use super::stripe::PartsArguments;

/// `bathyal get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Vectors are as they were given, with two exceptions: under cosine, f32 vectors are scaled to length 1, and \
with --store-as they have the precision of the smaller element. An id without a vector, or of a deleted \
vector, is an error.

Examples:
  bathyal get my.index 17 4 2023
  bathyal get my.index --ids found.ibin --output found.fbin")]
pub struct GetArguments {
    /// The index
    pub index: PathBuf,
    /// Ids of the vectors
    #[arg(value_name = "ID", required_unless_present = "file")]
    pub ids: Vec<u32>,
    /// File of ids, row after row, which follow those on the command line: .ibin .ivecs
    #[arg(id = "file", long = "ids", value_name = "IDS")]
    pub file: Option<PathBuf>,
    /// Write the vectors to this file, in the format of its extension: .fbin .f16bin .u8bin .i8bin .fvecs
    /// .bvecs .npy [default: print them]
    #[arg(long, value_name = "VECTORS")]
    pub output: Option<PathBuf>,
    /// Memory that the index may take, for example 2GB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub memory: Option<u64>,
    /// Where the parts of a striped index are, and how a store is reached
    #[command(flatten)]
    pub parts: PartsArguments,
}
