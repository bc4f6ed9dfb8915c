//! `bathyal memory-node`.

use super::store::StoreArguments;
use bathyal_console::byte_size;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `bathyal memory-node`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal memory-node --capacity 64GB --listen 10.0.0.7:7730 --load my.index
  bathyal copy my.index remote://10.0.0.7:7730/my.index \\
      --store-option keys=client.json
  bathyal search remote://10.0.0.7:7730/my.index queries.fbin \\
      --store-option keys=client.json

The node writes the file client.json, which holds its token and the key that identifies it. Copy the file to \
the machines that search, and name it there with --store-option keys=FILE or in BATHYAL_NODE_KEYS; on this \
machine it is found without that. The token and all messages about indexes are encrypted. The bytes of \
indexes are not: use a network whose machines you trust.

http://HOST:PORT/health answers while the node runs. https://HOST:PORT/metrics has numbers for Prometheus; \
it needs the token (Authorization: Bearer TOKEN). Ctrl-C stops the node and discards the indexes in its \
memory.")]
pub struct MemoryNodeArguments {
    /// Most memory for indexes, for example 64GB; an index that needs more is refused
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub capacity: u64,
    /// Address and port to listen at
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7730")]
    pub listen: SocketAddr,
    /// An index to load at the start: a folder or an address in an object store (may be repeated)
    #[arg(long = "load", value_name = "INDEX")]
    pub load: Vec<PathBuf>,
    /// Folder of the node's keys, which are created if it has none [default: ~/.config/bathyal/memory-node]
    #[arg(long, value_name = "FOLDER")]
    pub keys: Option<PathBuf>,
    /// How the stores of --load are reached
    #[command(flatten)]
    pub store: StoreArguments,
}
