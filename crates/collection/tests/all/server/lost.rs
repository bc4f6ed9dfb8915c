//! Requests with changes that fail once: the server executes one and its response is lost, or the server
//! refuses one.

use crate::model::compare::holds;
use crate::server::batches::{after, batches, case, create, error_text, open, put};
use crate::server::proxy::{Fault, Proxy, Request};
use crate::server::service::{Place, Service, service};
use bathyal_collection::{CollectionError, CompactOptions};
use bathyal_vectors::progress::Silent;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Environment variable: every request fails in turn, instead of one in [`STRIDE`].
const ALL_OPERATIONS: &str = "BATHYAL_ALL_OPERATIONS";
const STRIDE: usize = 59;
/// Programs that run in parallel; they mostly wait for the server.
const AT_ONCE: usize = 4;
/// Batches of a program.
const BATCHES: u64 = 5;
/// The least number of requests of a program.
const LEAST_REQUESTS: usize = 20;

/// Takes over from the previous writer, writes, makes segments and merges them, through `endpoint`. No step
/// may fail.
fn program(service: &Service, place: &Place, endpoint: &str, failing: usize) {
    let worked = |outcome: Result<(), CollectionError>| {
        outcome.unwrap_or_else(|error| panic!("request {failing}: {}", error_text(service, &error)));
    };
    let collection = open(place, endpoint);
    let collection =
        collection.unwrap_or_else(|error| panic!("request {failing}: {}", error_text(service, &error)));
    for number in 1..=BATCHES {
        worked(put(&collection, 0, number));
        if number % 2 == 0 {
            worked(collection.flush());
        }
    }
    worked(collection.compact(&CompactOptions { full: true }, &Silent).map(drop));
}

/// Runs a program in which the request number `failing` (from 0, only changes count) fails. Returns false if
/// it has fewer requests.
fn run(service: &Service, name: &str, trouble: Fault, failing: usize) -> bool {
    let place = service.place(&format!("{name}-{failing}"));
    drop(create(service, &place));
    let proxy = Proxy::new(&service.endpoint);
    let number = Arc::new(AtomicUsize::new(0));
    let changes = move |request: &Request| {
        ["PUT", "POST", "DELETE"].contains(&request.method.as_str())
            && number.fetch_add(1, Ordering::Relaxed) == failing
    };
    proxy.plan(changes, &[trouble]);
    program(service, &place, &proxy.endpoint, failing);
    let happened = proxy.release() == 0;

    let collection = open(&place, &service.endpoint).unwrap();
    assert!(holds(&case(), &collection.snapshot()) == after(&[BATCHES]), "request {failing}");
    put(&collection, 0, BATCHES + 1).unwrap();
    assert_eq!(batches(&holds(&case(), &collection.snapshot()), 0), BATCHES + 1);
    assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new(), "request {failing}");
    happened
}

/// Runs programs in which one request after the other fails, until all have failed.
fn sweep(name: &str, trouble: Fault) {
    let Some(service) = service() else { return };
    let stride = if std::env::var_os(ALL_OPERATIONS).is_some() { 1 } else { STRIDE };
    let (next, asked) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let programs = || {
        while asked.load(Ordering::Relaxed) == usize::MAX {
            let failing = next.fetch_add(stride, Ordering::Relaxed);
            if !run(service, name, trouble, failing) {
                asked.fetch_min(failing, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(programs))));
    let asked = asked.into_inner();
    println!("{name}: up to {asked} requests change something");
    assert!(asked >= LEAST_REQUESTS, "{asked} requests");
}

#[test]
fn a_lost_response_neither_duplicates_nor_loses_a_batch() {
    sweep("lost-answers", Fault::LoseResponse);
}

#[test]
fn a_refused_request_is_repeated() {
    sweep("refused", Fault::Respond(503, "SlowDown"));
}
