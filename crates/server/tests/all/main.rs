//! Tests of a server, with a client that speaks HTTP to it.

mod access;
mod collections;
mod console;
mod harness;
mod indexes;
mod insight;
mod limits;
mod rows;
mod search;
mod server;
mod several;
mod snapshots;
mod stopping;
mod tls;
