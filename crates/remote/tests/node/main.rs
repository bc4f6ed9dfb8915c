//! A node and its peers, over real connections on the loopback.

mod conformance;
mod faults;
mod hostile;
mod place;
mod rdma;
mod spread;
mod stores;
