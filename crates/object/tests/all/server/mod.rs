//! Indexes in a real server that speaks the language of Amazon S3, with faults on the way to it.
//!
//! The server is SeaweedFS, started on free ports of the loopback with a folder of its own and ended with the tests, however
//! these end. Its program is the one that `BATHYAL_WEED` names, or `.venv/bin/weed` below the workspace (`make install` puts it
//! there), or `weed` on the `PATH`. Without it these tests say that they are skipped, and pass, unless
//! `BATHYAL_REQUIRE_SERVER` is set: then they fail.
//!
//! Any other server (versitygw, a bucket of a provider) takes its place where `BATHYAL_S3_ENDPOINT` names one, together with
//! `BATHYAL_S3_BUCKET`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, if it is not `us-east-1`, `AWS_REGION`. The bucket has
//! to be there; what the tests write lies below `bathyal-tests/` and is left there. The endpoint begins with `http://`: the proxy
//! on the way to it reads what is sent.

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
