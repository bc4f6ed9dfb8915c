//! Longer runs: random kills and pauses, and how late others see a row (`make check-takeover`).

use super::Remote;
use super::processes::{Data, Process, all_ids, check_rows, create, insist, while_writing};
use crate::harness::row;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Variable with the number of kills and pauses. Without it, nothing of this file runs.
const ROUNDS: &str = "BATHYAL_TAKEOVER_ROUNDS";
/// Rows of the measurement.
const MEASURED: u64 = 60;

/// Returns the number of kills and pauses; `None` if this is not a longer run.
fn rounds() -> Option<u32> {
    std::env::var(ROUNDS).ok().map(|text| text.parse().unwrap())
}

/// Kills, pauses and stops random servers of a bucket or a folder while rows are added at all of them.
fn soak(data: &Data, rounds: u32, can_pause: bool, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut servers = vec![data.start(), data.start(), data.start()];
    create(&servers[0].remote);
    let (next, mut acknowledged) = (AtomicU64::new(0), Vec::new());
    for round in 0..rounds {
        let victim = random.random_range(0..servers.len());
        let action = random.random_range(0..if can_pause { 3 } else { 2 });
        let remotes: Vec<Remote> = servers.iter().map(|server| server.remote.clone()).collect();
        acknowledged.extend(while_writing(&remotes, &next, |writers| {
            writers.wait_for(random.random_range(1..20));
            let server = match action {
                0 => {
                    servers.remove(victim).kill();
                    data.start()
                }
                1 => {
                    servers.remove(victim).stop();
                    data.start()
                }
                _ => {
                    let server = servers.remove(victim);
                    server.pause();
                    std::thread::sleep(Duration::from_millis(random.random_range(0..4000)));
                    server.resume();
                    server
                }
            };
            servers.insert(victim, server);
            writers.wait_for(5);
        }));
        println!("round {round}: action {action} on server {victim}, {} rows", acknowledged.len());
    }
    std::thread::sleep(Duration::from_millis(1100));
    servers.iter().for_each(|server| check_rows(&server.remote, &acknowledged));
    servers.into_iter().for_each(Process::stop);
    check_rows(&data.start().remote, &acknowledged);
}

#[test]
fn random_kills_and_pauses_lose_no_row_of_a_bucket() {
    let Some(rounds) = rounds() else { return };
    let Some(data) = Data::bucket("soak") else { return };
    soak(&data, rounds, true, u64::from(rounds));
}

/// A paused server keeps the locks of a folder, so that nobody replaces it.
#[test]
fn random_kills_lose_no_row_of_a_folder() {
    let Some(rounds) = rounds() else { return };
    soak(&Data::folder(), rounds, false, u64::from(rounds));
}

/// Prints how long after the acknowledgement a row is seen at another server.
fn measure(data: &Data, name: &str) {
    let (first, second) = (data.start(), data.start());
    create(&first.remote);
    let mut delays: Vec<Duration> = Vec::new();
    for id in 0..MEASURED {
        insist(
            std::slice::from_ref(&first.remote),
            "/v1/collections/words/add",
            &json!({ "rows": [row(id)] }),
            &format!("row-{id}"),
        );
        let began = Instant::now();
        while !all_ids(&second.remote).contains(&id) {
            std::thread::sleep(Duration::from_millis(1));
        }
        delays.push(began.elapsed());
        // Not in step with the looks of the other server.
        std::thread::sleep(Duration::from_millis(id * 37 % 500));
    }
    delays.sort_unstable();
    let ms = |at: usize| delays[at.min(delays.len() - 1)].as_secs_f64() * 1e3;
    let (median, most) = (ms(delays.len() / 2), ms(delays.len()));
    println!("{name}: seen by another server after {median:.0} ms (median), {most:.0} ms (most)");
}

#[test]
fn delay_until_others_see_a_row() {
    if rounds().is_none() {
        return;
    }
    measure(&Data::folder(), "folder");
    if let Some(data) = Data::bucket("delay") {
        measure(&data, "bucket");
    }
}

/// Prints how long writes wait after the server that writes was killed.
#[test]
fn time_until_a_killed_writer_is_replaced() {
    if rounds().is_none() {
        return;
    }
    let bucket = Data::bucket("replaced");
    for (name, data) in [("folder", Some(Data::folder())), ("bucket", bucket)] {
        let Some(data) = data else { continue };
        let (first, second) = (data.start(), data.start());
        create(&first.remote);
        let remote = std::slice::from_ref(&second.remote);
        let path = "/v1/collections/words/add";
        insist(remote, path, &json!({ "rows": [row(0)] }), "before");
        first.kill();
        let began = Instant::now();
        insist(remote, path, &json!({ "rows": [row(1)] }), "after");
        let lease = super::processes::LEASE.as_secs_f64();
        println!("{name}: replaced after {:.2} s, with a lease of {lease} s", began.elapsed().as_secs_f64());
    }
}
