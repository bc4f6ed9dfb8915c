//! Memory of other machines: a node that serves it and is passive from then on, and the tier and store that reach it.
//!
//! The design is that of d-HNSW (section 3.2) and of second-tier-memory's RDMA tier: all work is done by those who search, who
//! read and change bytes of a region by its key, and numbers of 8 bytes as one step. Three transports have one contract: RDMA
//! by verbs; TCP, where one thread of the node does what a network card would; and memory that is shared within a machine.
//!
//! A node is known by its key and knows its peers by a token; both are said on a control connection, which is TLS. Data
//! connections are not encrypted, as those of RDMA are not: they belong on a network whose machines are trusted.
//!
//! An index that one node has not the memory for lies over several ([`SpreadStore`]), in parts as striped over disks.

mod client;
mod control;
mod identity;
mod node;
mod verbs;
pub mod wire;

pub use client::{DEFAULT_PORT, NodeStore, RemoteOptions, RemoteUrl, SpreadStore, Transport};
pub use identity::{Credentials, Identity, LEAST_TOKEN_CHARS, client_file, keys_folder};
pub use node::{Node, NodeOptions, NodeStatus};
