//! Memory of other machines: a passive node that serves it, and the tiers and stores that access it.
//!
//! The design follows d-HNSW (section 3.2) and the RDMA tier of second-tier-memory: the clients that search
//! do all the work. They read and write bytes of a region by its key, and change 8-byte numbers atomically.
//! Three transports implement one contract: RDMA verbs; TCP, where one thread of the node takes the role of
//! the network card; and memory shared within a machine.
//!
//! Clients identify a node by its public key, and the node authenticates clients by a token. Both are
//! exchanged on a control connection, which uses TLS. Data connections are not encrypted, like those of RDMA:
//! use them on a network of trusted machines only.
//!
//! An index that does not fit one node is striped over several nodes ([`SpreadStore`]), as a local index is
//! over several disks.
mod client;
mod control;
mod identity;
mod node;
mod verbs;
pub mod wire;

pub use client::{DEFAULT_PORT, NodeStore, RemoteOptions, RemoteUrl, SpreadStore, Transport};
pub use identity::{Credentials, Identity, MIN_TOKEN_CHARS, client_file, keys_folder};
pub use node::{Node, NodeOptions, NodeStatus};
