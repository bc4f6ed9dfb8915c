//! HTTP in front of the collections and indexes of a folder or a bucket.
//!
//! A request is authenticated before its body is read (`access`), its body takes memory that was reserved for
//! it (`body`), and work on rows and vectors runs on threads of its own (`work`). Searches of a collection
//! that arrive together are answered as one batch (`batches`).

mod access;
mod answer;
mod batches;
mod body;
mod body_memory;
mod cancel;
mod collection_search;
mod counters;
mod entries;
mod failure;
mod forward;
mod gate;
mod keys;
mod lease;
mod listen;
mod log;
mod metrics;
mod names;
mod observe;
mod options;
mod peers;
mod places;
mod projection;
mod replay;
mod routes;
mod s3_vectors;
mod server;
mod snapshots;
mod state;
mod tls;
mod work;

pub use failure::ServerError;
pub use keys::{Key, Keys, Right, default_keys_file};
pub use log::install_log;
pub use options::{RequestLimits, ServerOptions, TlsFiles};
pub use routes::openapi;
pub use server::Server;
