//! The side of a node's peers: addresses, the control connection, the queue over TCP, and the node's memory as a store.

mod draft;
mod fabric;
mod nodes;
mod object;
mod options;
mod patient;
mod queue;
mod rdma_queue;
mod reaching;
mod session;
mod sockets;
mod source;
mod spread_draft;
mod spread_object;
mod spread_store;
mod store;
mod tier;
mod transfer;

pub use options::{DEFAULT_PORT, RemoteOptions, RemoteUrl, Transport};
pub use spread_store::SpreadStore;
pub use store::NodeStore;
