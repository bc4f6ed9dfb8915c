//! Collections in a real server that speaks the language of Amazon S3: random programs, writers that race and are killed,
//! answers that are lost, copies there and back.
//!
//! The server is that of the tests of object stores (`crates/object/tests/all/server`, which says where its program is looked for).
//! Without it these tests say that they are skipped, and pass, unless `BATHYAL_REQUIRE_SERVER` is set.

mod batches;
mod copies;
mod listed;
mod lost;
mod programs;
mod writers;

// What both have in common is more than either uses.
#[allow(dead_code)]
#[path = "../../../../object/tests/all/server/proxy.rs"]
mod proxy;
#[allow(dead_code)]
#[path = "../../../../object/tests/all/server/seaweed.rs"]
mod seaweed;
#[allow(dead_code)]
#[path = "../../../../object/tests/all/server/service.rs"]
mod service;
