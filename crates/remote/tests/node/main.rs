//! Tests of a node and its clients, over real connections on the loopback.

mod conformance;
mod faults;
mod hostile;
mod rdma;
mod spread;
mod stores;
mod test_node;
