//! The side of a node's peers: addresses, the control connection, the queue over TCP, and the node's memory as a store.

mod draft;
mod fabric;
mod object;
mod options;
mod patient;
mod queue;
mod rdma_queue;
mod reaching;
mod session;
mod source;
mod store;
mod tier;
mod transfer;

pub use options::{DEFAULT_PORT, RemoteOptions, RemoteUrl, Transport};
pub use store::NodeStore;
