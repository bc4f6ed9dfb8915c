//! The disks that an index is striped over, and the folders of its parts.

use std::path::PathBuf;

use bathyal_console::byte_size;
use bathyal_index::StripeOptions;
use clap::Args;

use super::StoreArguments;

/// The disks on which a command stores the parts of an index.
#[derive(Clone, Debug, Args)]
pub struct StripeArguments {
    /// Stripe the file that searches read over these folders, each on its own disk; the folders must exist
    /// [default: one file in the index's folder]
    #[arg(long, value_name = "FOLDER,FOLDER,...", value_delimiter = ',')]
    pub stripe: Vec<PathBuf>,
    /// Bytes on one disk before the next disk follows: a multiple of 4KiB [default: 256KiB]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse, requires = "stripe")]
    pub stripe_unit: Option<u64>,
}

impl StripeArguments {
    /// Returns the options of the library; `None` for one disk.
    pub fn options(&self) -> Option<StripeOptions> {
        let stripe = StripeOptions::over(&self.stripe);
        let stripe_bytes = match self.stripe_unit {
            // The library refuses a unit that is too long.
            Some(unit) => u32::try_from(unit).unwrap_or(u32::MAX),
            None => stripe.stripe_bytes,
        };
        (!self.stripe.is_empty()).then_some(StripeOptions { stripe_bytes, ..stripe })
    }
}

/// The folders of the parts of an index that is read.
#[derive(Clone, Debug, Args)]
pub struct PartsArguments {
    /// Folders to which the parts of a striped index were moved, in any order
    #[arg(long, value_name = "FOLDER,FOLDER,...", value_delimiter = ',')]
    pub stripe: Vec<PathBuf>,
    /// How the store of the index is reached
    #[command(flatten)]
    pub store: StoreArguments,
}
