//! `bathyal memory-node`.

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{CopyOptions, StoreOptions, copy};
use bathyal_remote::{Identity, Node, NodeOptions, NodeStatus, client_file, keys_folder};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use crate::arguments::MemoryNodeArguments;

/// Interval at which Ctrl-C and the state of the node are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Serialize)]
struct MemoryNodeOutput {
    address: String,
    #[serde(flatten)]
    status: NodeStatus,
}

pub(super) fn run(arguments: &MemoryNodeArguments, console: &Console) -> Result<(), Failure> {
    let MemoryNodeArguments { capacity, listen, load, keys, store } = arguments;
    let options = store.options()?;
    if !options.is_empty() && !load.iter().any(|path| is_address(path)) {
        return Err(Failure::usage(
            "--store-option applies to addresses of --load, and no --load is an address; leave it out",
        ));
    }
    let names = load.iter().map(|path| name_of(path)).collect::<Result<Vec<_>, _>>()?;
    let folder = match keys {
        Some(folder) => folder.clone(),
        None => keys_folder().map_err(|e| Failure::new(e.to_string()))?,
    };
    let failed = |e: std::io::Error| Failure::system(&e, format!("memory node: {e}"));
    let identity = Identity::in_folder(&folder).map_err(failed)?;
    let node =
        Node::start(&NodeOptions { listen: *listen, capacity_bytes: *capacity }, identity).map_err(failed)?;
    console.note(&format!(
        "memory node: {} of memory at remote://{}, identified by {}; copy {} to its clients",
        byte_size::format(*capacity),
        node.address(),
        node.credentials().peer_key,
        client_file(&folder).display(),
    ));
    for (path, name) in load.iter().zip(&names) {
        let target = format!("remote://{}/{name}", local_address(node.address()));
        let to = [
            ("token", node.credentials().token.as_str()),
            ("peer_key", node.credentials().peer_key.as_str()),
        ];
        let to = StoreOptions::new(to)?;
        let from = if is_address(path) { options.clone() } else { StoreOptions::default() };
        let progress = console.progress();
        let copied = copy(path, &target, &CopyOptions { from, to, overwrite: false }, &progress)?;
        drop(progress);
        console.note(&format!(
            "memory node: {} holds {} vectors, {}",
            path.display(),
            copied.vectors,
            byte_size::format(copied.index_bytes)
        ));
    }
    while !console.interrupt().requested() {
        if node.has_failed() {
            return Err(Failure::new("memory node: it cannot accept connections any more; start it again"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let answer = MemoryNodeOutput { address: node.address().to_string(), status: node.status() };
    drop(node);
    let NodeStatus { operations, sent_bytes, received_bytes, .. } = &answer.status;
    let text = format!(
        "memory node: stopped after {operations} operations, {} sent, {} received",
        byte_size::format(*sent_bytes),
        byte_size::format(*received_bytes)
    );
    console.answer(&answer, &text)
}

/// Returns the name of an index on the node: the last name of its path.
fn name_of(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        Failure::usage(format!(
            "--load {}: does not end in a name; give the path of an index",
            path.display()
        ))
    })?;
    Ok(name.to_owned())
}

/// Returns true if a path is the address of an index in a store.
pub(super) fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains("://"))
}

/// Returns the address at which this machine reaches the node that listens at `address`.
fn local_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
