//! The table of the nodes that hold a striped index.

use bathyal_store::stripe::Table;
use bathyal_store::{Generation, GenerationExt, StoreError};
use std::path::Path;

/// Name of the object with the table, in an index over several nodes and in each of its parts.
pub(super) const NODES_NAME: &str = "nodes.json";
/// Advice for a part that is missing or damaged.
pub(super) const ADVICE: &str = "copy the index there again, or build it again";

/// Returns the address of an index over several nodes, with the hosts as they were given when it was written.
pub(super) fn address_of(table: &Table) -> String {
    let nodes: Vec<String> = table.folders().map(|node| node.display().to_string()).collect();
    let hosts = nodes.iter().map(|node| node.split_once("://").map_or(node.as_str(), |(_, host)| host));
    format!("remote://{}/{}", hosts.collect::<Vec<_>>().join(","), table.name())
}

/// Reads the table of a generation at `path`.
///
/// # Errors
/// [`StoreError::Irregular`] if the table is damaged; [`StoreError::Missing`] if there is none.
pub(super) fn table_in(generation: &dyn Generation, path: &Path) -> Result<Table, StoreError> {
    Table::parse(&generation.read(NODES_NAME)?).map_err(|what| StoreError::Irregular {
        path: path.join(NODES_NAME),
        reason: format!("is damaged: {what}; {ADVICE}"),
    })
}
