//! The options with which a collection is opened.

use bathyal_collection::Filter;
use bathyal_console::byte_size;
use clap::Args;
use serde_json::Value;

use super::store::StoreArguments;

/// The options with which a collection is opened for reading.
#[derive(Clone, Debug, Args)]
pub struct OpenArguments {
    /// Memory that all indexes of the collection may take together, for example 2GB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub memory: Option<u64>,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}

/// Parses a filter, in words or in JSON.
///
/// # Errors
/// A sentence that names the fault and its position.
pub fn parse_filter(text: &str) -> Result<Filter, String> {
    if !text.trim_start().starts_with('{') {
        return Filter::parse(text).map_err(|error| error.to_string());
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("the filter is not valid JSON: {error}"))?;
    Filter::from_json(&value).map_err(|error| error.to_string())
}
