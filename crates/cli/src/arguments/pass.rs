//! Arguments of commands that search an index many times, and pass over all of it.

use bathyal_console::typed::parse_threads;
use bathyal_console::{Failure, byte_size};
use bathyal_index::OpenOptions;
use clap::Args;

use super::stripe::PartsArguments;

/// How `bathyal audit` and `bathyal calibrate` open and search an index.
#[derive(Debug, Args)]
pub struct PassArguments {
    /// Threads; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// Memory that the open index and its searches may take, for example 1GB
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub memory: Option<u64>,
    /// Where the parts of a striped index are, and how a store is reached
    #[command(flatten)]
    pub parts: PartsArguments,
}

impl PassArguments {
    /// Returns the options to open the index with. Its whole content is waited for.
    ///
    /// # Errors
    /// [`Failure`] for options of the store that cannot be read.
    pub fn options(&self) -> Result<OpenOptions, Failure> {
        Ok(OpenOptions {
            stripe: self.parts.stripe.clone(),
            store: self.parts.store.options()?,
            memory_bytes: self.memory,
            wait: true,
            ..OpenOptions::default()
        })
    }
}
