//! A real server with the protocol of Amazon S3: that of the tests of object stores
//! (`crates/object/tests/all/server`, which documents where its program is searched). Without the program,
//! tests print that they are skipped, and pass, unless `BATHYAL_REQUIRE_SERVER` is set.

// The shared files contain more than these tests use.
#[allow(dead_code)]
#[path = "../../../../object/tests/all/server/seaweed.rs"]
mod seaweed;
#[allow(dead_code)]
#[path = "../../../../object/tests/all/server/service.rs"]
pub mod service;
