//! Tests with a real server that is compatible with Amazon S3, with faults injected between client and
//! server.
//!
//! The server is SeaweedFS. It is started on free ports of the loopback interface with a folder of its own,
//! and ends with the tests, however they end. Its program is given by `BATHYAL_WEED`; otherwise it is
//! `.venv/bin/weed` below the workspace (installed by `make install`), or `weed` on the `PATH`. Without the
//! program, these tests print that they are skipped, and pass, unless `BATHYAL_REQUIRE_SERVER` is set: then
//! they fail.
//!
//! Any other server (versitygw, a bucket of a provider) can be used by setting `BATHYAL_S3_ENDPOINT`,
//! together with `BATHYAL_S3_BUCKET`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, if it is not
//! `us-east-1`, `AWS_REGION`. The bucket must exist; the tests write below `bathyal-tests/` and leave their
//! objects there. The endpoint must begin with `http://`, since the tests' proxy reads the requests.

mod conformance;
mod faults;
mod names;
mod overwritten;
mod proxy;
mod races;
mod seaweed;
mod service;
mod shaped;
mod writes;
