//! RDMA verbs: devices, protection domains, memory that a device may reach, and reliable connections.
//!
//! `libibverbs` is opened when it is first wanted, so that neither a build nor a machine without such a device needs it.
//! What is here wraps it and frees what it made; it knows nothing of nodes and their peers.

mod abi;
mod device;
mod domain;
mod library;
mod queue_pair;

pub(crate) use device::{Device, Wanted};
pub(crate) use domain::{Access, Domain, Registration};
pub(crate) use queue_pair::{Endpoint, Finished, Patience, QueuePair, Work, WorkRequest};
