//! Collections on a real server with the protocol of Amazon S3: random programs, writers that race and are
//! killed, lost responses, copies in both directions.
//!
//! The server is that of the tests of object stores (`crates/object/tests/all/server`, which documents where
//! its program is searched). Without the program, these tests print that they are skipped, and pass, unless
//! `BATHYAL_REQUIRE_SERVER` is set.

mod batches;
mod copies;
mod listed;
mod lost;
mod programs;
mod writers;

// The shared files contain more than either test program uses.
#[allow(dead_code)]
#[path = "../../../../object/tests/all/server/proxy.rs"]
mod proxy;
#[allow(dead_code)]
#[path = "../../../../object/tests/all/server/seaweed.rs"]
mod seaweed;
#[allow(dead_code)]
#[path = "../../../../object/tests/all/server/service.rs"]
mod service;
