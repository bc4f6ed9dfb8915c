//! The client side: addresses, control connections, queues over TCP and RDMA, and the memory of nodes as a
//! store.

mod cancellable;
mod draft;
mod fabric;
mod node_table;
mod object;
mod operations;
mod options;
mod rdma_queue;
mod reconnector;
mod session;
mod sockets;
mod source;
mod spread_draft;
mod spread_object;
mod spread_store;
mod store;
mod tcp_queue;
mod tier;
mod transfer;

pub use options::{DEFAULT_PORT, RemoteOptions, RemoteUrl, Transport};
pub use spread_store::SpreadStore;
pub use store::NodeStore;
