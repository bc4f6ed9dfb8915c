//! Object stores from outside: in memory, and on a real server.

mod cache;
mod memory;
mod names;
mod server;
