//! Tests of a server, with a client that speaks HTTP to it.

mod access;
mod collections;
mod harness;
mod indexes;
mod limits;
mod rows;
mod search;
mod stopping;
mod tls;
