//! Tests of object stores through the public interface: in memory, and on a real server.

mod cache;
mod memory;
mod names;
mod server;
