//! Disks that an index is striped over, and where its parts are.

use std::path::PathBuf;

use bathyal_console::byte_size;
use bathyal_index::StripeOptions;
use clap::Args;

use super::StoreArguments;

/// The disks that a command puts the parts of an index onto.
#[derive(Clone, Debug, Args)]
pub struct StripeArguments {
    /// Stripe what searches read over these folders, each on a disk of its own; they have to be there [default: one file in
    /// the index's folder]
    #[arg(long, value_name = "FOLDER,FOLDER,...", value_delimiter = ',')]
    pub stripe: Vec<PathBuf>,
    /// Bytes that lie on one disk before the next has its turn: a multiple of 4KiB [default: 256KiB]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse, requires = "stripe")]
    pub stripe_unit: Option<u64>,
}

impl StripeArguments {
    /// As the library is told; `None` for one disk.
    pub fn options(&self) -> Option<StripeOptions> {
        let stripe = StripeOptions::over(&self.stripe);
        let stripe_bytes = match self.stripe_unit {
            // What is too long is refused there with the others.
            Some(unit) => u32::try_from(unit).unwrap_or(u32::MAX),
            None => stripe.stripe_bytes,
        };
        (!self.stripe.is_empty()).then_some(StripeOptions { stripe_bytes, ..stripe })
    }
}

/// Where the parts of an index are that is read.
#[derive(Clone, Debug, Args)]
pub struct PartsArguments {
    /// Folders in which the parts of a striped index are, where they were moved, in any order
    #[arg(long, value_name = "FOLDER,FOLDER,...", value_delimiter = ',')]
    pub stripe: Vec<PathBuf>,
    /// How the store that it is in is reached
    #[command(flatten)]
    pub store: StoreArguments,
}
