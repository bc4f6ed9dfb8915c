//! What says over which nodes an index lies.

use bathyal_store::stripe::Table;
use bathyal_store::{Generation, GenerationExt, StoreError};
use std::path::Path;

/// The object of an index over several nodes, and of each of its parts, that says where the parts lie.
pub(super) const NODES_NAME: &str = "nodes.json";
/// What to do about a part that is not what it should be.
pub(super) const ADVICE: &str = "copy the index there again, or build it again";

/// The address of an index over several nodes, as it was typed when it was written.
pub(super) fn address_of(table: &Table) -> String {
    let nodes: Vec<String> = table.folders().map(|node| node.display().to_string()).collect();
    let hosts = nodes.iter().map(|node| node.split_once("://").map_or(node.as_str(), |(_, host)| host));
    format!("remote://{}/{}", hosts.collect::<Vec<_>>().join(","), table.name())
}

/// What a generation at `path` says of its nodes.
///
/// # Errors
/// [`StoreError::Irregular`] if that is damaged; [`StoreError::Missing`].
pub(super) fn table_in(generation: &dyn Generation, path: &Path) -> Result<Table, StoreError> {
    Table::parse(&generation.read(NODES_NAME)?).map_err(|what| StoreError::Irregular {
        path: path.join(NODES_NAME),
        reason: format!("is damaged: {what}; {ADVICE}"),
    })
}
