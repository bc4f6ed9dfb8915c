//! Tests of emulation on a real server: it is as slow as requested. Only bounds that a slow machine cannot
//! break are asserted: nothing arrives sooner than it should, and no more of it.

use crate::server::service::{content, publish, service};
use bathyal_object::{BucketStore, Shaper, Shaping};
use bathyal_store::{Replace, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LEN: usize = 2 << 20;

/// Reads `n` small, distant ranges on each of `threads` threads, compares them, and returns the sorted times.
fn read_many(store: &BucketStore, data: &[u8], threads: usize, n: usize) -> Vec<Duration> {
    let times = std::thread::scope(|scope| {
        let read = |thread: usize| {
            let object = store.open("index").unwrap().get("data").unwrap();
            let read_one = |i: usize| {
                let at = ((thread * n + i) * 700_001) % (LEN - 100);
                let (mut out, began) = ([0; 100], Instant::now());
                object.read_at(at as u64, &mut out).unwrap();
                assert_eq!(out, data[at..at + 100]);
                began.elapsed()
            };
            (0..n).map(read_one).collect::<Vec<_>>()
        };
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || read(thread))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut times = times.concat();
    times.sort_unstable();
    times
}

#[test]
fn first_bytes_arrive_no_sooner_than_they_should() {
    let Some(service) = service() else { return };
    let place = service.place("late");
    let data = content(LEN, 6);
    publish(&place.store(), Replace::Never, &data).unwrap();
    let shaping = Shaping { first_byte_ms: 20.0, spread: 0.4, requests_per_s: 0.0, bytes_per_s: 0.0 };
    let mut options = place.options(&service.endpoint, &[("hedge", "off")]);
    options.shaper = Some(Arc::new(Shaper::new(shaping, 3)));
    let times = read_many(&place.store_by(&options), &data, 8, 40);
    let quantile = |share: f64| times[(times.len() as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("p50 {:.1} ms of 20, p95 {:.1} ms of 38.6", quantile(0.5), quantile(0.95));
    assert!(quantile(0.5) >= 20.0 * 0.8, "{}", quantile(0.5));
    assert!(quantile(0.95) >= 20.0 * (0.4 * 1.645_f64).exp() * 0.8, "{}", quantile(0.95));
}

#[test]
fn requests_beyond_the_limit_are_refused_and_retried() {
    let Some(service) = service() else { return };
    let place = service.place("limited");
    let data = content(LEN, 7);
    publish(&place.store(), Replace::Never, &data).unwrap();
    let shaping = Shaping { first_byte_ms: 0.0, spread: 0.0, requests_per_s: 300.0, bytes_per_s: 0.0 };
    let mut options = place.options(&service.endpoint, &[("hedge", "off")]);
    options.shaper = Some(Arc::new(Shaper::new(shaping, 4)));
    let store = place.store_by(&options);
    let generation = store.open("index").unwrap();
    let began = Instant::now();
    // A read of at most 4 MiB is one request, so each thread has one in flight. There are more threads than
    // the emulated store queues requests for.
    let (threads, reads_per_thread) = (64, 8);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (generation, data) = (&generation, &data);
            scope.spawn(move || {
                let object = generation.get("data").unwrap();
                for i in 0..reads_per_thread {
                    let at = ((thread * reads_per_thread + i) * 700_001) % (LEN - 100);
                    let mut out = [0; 100];
                    object.read_at(at as u64, &mut out).unwrap();
                    assert_eq!(out, data[at..at + 100]);
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let answered = (threads * reads_per_thread) as f64;
    let counts = generation.traffic().unwrap().now();
    println!(
        "{:.0} requests/s of 300, {} of {} refused",
        answered / seconds,
        counts.throttled,
        counts.requests
    );
    assert!(answered / seconds <= 300.0 * 1.1, "{answered} in {seconds} s");
    assert!(counts.throttled > 0 && counts.retries >= counts.throttled, "{counts:?}");
}

#[test]
fn the_link_carries_no_more_than_it_should() {
    let Some(service) = service() else { return };
    let place = service.place("link");
    let data = content(LEN, 11);
    publish(&place.store(), Replace::Never, &data).unwrap();
    let shaping = Shaping { first_byte_ms: 0.0, spread: 0.0, requests_per_s: 0.0, bytes_per_s: 10e6 };
    let mut options = place.options(&service.endpoint, &[("hedge", "off")]);
    options.shaper = Some(Arc::new(Shaper::new(shaping, 5)));
    let generation = place.store_by(&options).open("index").unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut out = vec![0; LEN];
                generation.get("data").unwrap().read_at(0, &mut out).unwrap();
                assert!(out == data);
            });
        }
    });
    let rate = 3.0 * LEN as f64 / began.elapsed().as_secs_f64();
    assert!(rate <= 10e6 * 1.1, "{rate} bytes/s");
}
