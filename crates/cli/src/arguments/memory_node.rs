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
  bathyal copy my.index remote://10.0.0.7:7730/my.index --store-option keys=client.json
  bathyal search remote://10.0.0.7:7730/my.index queries.fbin --store-option keys=client.json

The node writes the file client.json, with its token and the key that it is known by: copy it to the machines that search, and
name it there as keys=FILE or in BATHYAL_NODE_KEYS; on this machine it is found by itself. The token and all that is said about
indexes are encrypted, the bytes of indexes are not: they belong on a network whose machines are trusted.

http://HOST:PORT/health says that the node is there. https://HOST:PORT/metrics has numbers for Prometheus, for those who send the
token (Authorization: Bearer TOKEN). Ctrl-C stops the node; what it holds is gone then.")]
pub struct MemoryNodeArguments {
    /// Memory for indexes at most, for example 64GB; more is refused
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub capacity: u64,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7730")]
    pub listen: SocketAddr,
    /// An index to begin with: a folder or an address in an object store (may be repeated)
    #[arg(long = "load", value_name = "INDEX")]
    pub load: Vec<PathBuf>,
    /// The folder with the node's keys, made anew where there are none [default: ~/.config/bathyal/memory-node]
    #[arg(long, value_name = "FOLDER")]
    pub keys: Option<PathBuf>,
    /// How the stores of --load are reached
    #[command(flatten)]
    pub store: StoreArguments,
}
