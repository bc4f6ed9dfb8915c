//! RDMA verbs: devices, protection domains, memory that a device may access, and reliable connections.
//!
//! `libibverbs` is opened at its first use, so neither a build nor a machine without an RDMA device needs it.
//! These types wrap the library and free what they create. They are independent of nodes and clients.

mod abi;
mod device;
mod domain;
mod library;
mod queue_pair;

pub(crate) use device::{Device, DeviceQuery};
pub(crate) use domain::{Access, Domain, Registration};
pub(crate) use queue_pair::{AckTimeout, Endpoint, FinishedRequest, QueuePair, Work, WorkRequest};
