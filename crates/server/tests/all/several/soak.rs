//! Longer runs: servers that are killed, paused, stopped and filled up while clients write and read, and how
//! late others see a row (`make check-takeover`, `make check-soak`).

use super::history::{Event, History};
use super::processes::{Data, Process, all_ids, create, insist};
use super::{EXPIRED, Remote};
use crate::harness::{Answer, row};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Variables with the number of rounds, and with the minutes of a run. Without one, nothing of this file
/// runs.
const ROUNDS: &str = "BATHYAL_TAKEOVER_ROUNDS";
const MINUTES: &str = "BATHYAL_SOAK_MINUTES";
/// Rows of the measurement.
const MEASURED: u64 = 60;
/// Rows that clients write and read: few, so that they meet.
const ROWS: u64 = 48;
/// The share of writes that delete.
const DELETES: f64 = 0.2;
/// The age that the rows of a server may have: `--refresh`.
const AGE: Duration = Duration::from_secs(1);
/// The longest wait of a write, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// Connections of clients that send a byte now and then.
const SLOW_CLIENTS: usize = 8;

/// The end of a run.
enum Limit {
    Rounds(u32),
    Time(Duration),
}

/// Returns the end of a run; `None` if this is not a longer run.
fn limit() -> Option<Limit> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u32>().unwrap());
    let minutes = number(MINUTES).map(|minutes| Limit::Time(Duration::from_secs(60) * minutes));
    minutes.or_else(|| number(ROUNDS).map(Limit::Rounds))
}

/// Returns true if short measurements are wanted.
fn measures() -> bool {
    std::env::var(ROUNDS).is_ok()
}

/// Clients that write and read the same rows at all servers.
struct Clients<'a> {
    remotes: &'a [Remote],
    began: Instant,
    /// The next value; every write has its own.
    next: &'a AtomicU64,
    written: AtomicU64,
    ended: AtomicBool,
}

impl Clients<'_> {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Writes rows until the end, each first at the server `first` and then at the others.
    fn write(&self, first: usize, mut random: StdRng) -> History {
        let mut remotes = self.remotes.to_vec();
        remotes.rotate_left(first);
        let mut history = History::default();
        while !self.has_ended() {
            let (row, number) = (random.random_range(0..ROWS), self.next.fetch_add(1, Ordering::Relaxed));
            let value = (!random.random_bool(DELETES)).then_some(number);
            let asked = self.began.elapsed();
            write_once(&remotes, row, value, number);
            let answered = self.began.elapsed();
            history.writes.push(Event { row, value, asked, answered });
            self.written.fetch_add(1, Ordering::AcqRel);
        }
        history
    }

    /// Reads rows of one server until the end: one, or all.
    fn read(&self, at: usize, mut random: StdRng) -> History {
        let mut history = History::default();
        while !self.has_ended() {
            let reads = match random.random_range(0..4) {
                0 => read_all(&self.remotes[at], self.began),
                _ => Vec::from_iter(read_one(&self.remotes[at], self.began, random.random_range(0..ROWS))),
            };
            history.reads.extend(reads);
            std::thread::sleep(Duration::from_millis(random.random_range(0..20)));
        }
        history
    }

    /// Waits until this many writes more are acknowledged.
    fn wait_for(&self, more: u64) {
        let (wanted, until) = (self.written.load(Ordering::Acquire) + more, Instant::now() + PATIENCE);
        while self.written.load(Ordering::Acquire) < wanted {
            assert!(Instant::now() < until, "the writers make no progress");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Sends a write with a key of its own until it is done, whichever server does it.
fn write_once(remotes: &[Remote], row: u64, value: Option<u64>, number: u64) {
    let (path, body) = match value {
        Some(value) => {
            ("upsert", json!({ "rows": [{ "id": row, "v": [value, 0], "year": value, "lang": "de" }] }))
        }
        None => ("delete", json!({ "ids": [row] })),
    };
    let (path, until) = (format!("/v1/collections/words/{path}"), Instant::now() + PATIENCE);
    for remote in remotes.iter().cycle() {
        match remote.send(&path, &body, Some(&format!("write-{number}"))) {
            Some(Answer { status: 200, .. }) => return,
            // Busy, a full disk, or a server that is gone.
            Some(Answer { status: 429 | 503 | 507, .. }) | None => {}
            Some(refused) => panic!("{}: {}", refused.status, refused.json),
        }
        assert!(Instant::now() < until, "{path} is not done");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads a row; nothing if the server is gone or busy.
fn read_one(remote: &Remote, began: Instant, row: u64) -> Option<Event> {
    let asked = began.elapsed();
    let answer =
        remote.send("/v1/collections/words/get", &json!({ "ids": [row], "columns": ["year"] }), None)?;
    let answered = began.elapsed();
    if matches!(answer.status, 429 | 503 | 507) {
        return None;
    }
    let answer = answer.ok();
    let value = answer["rows"].as_array().unwrap().first().map(|row| row["year"].as_u64().unwrap());
    Some(Event { row, value, asked, answered })
}

/// Reads all rows at once; nothing if the server is gone or busy.
fn read_all(remote: &Remote, began: Instant) -> Vec<Event> {
    let asked = began.elapsed();
    let body = json!({ "limit": 10 * ROWS, "columns": ["year"] });
    let Some(answer) = remote.send("/v1/collections/words/scan", &body, None) else { return Vec::new() };
    let answered = began.elapsed();
    if matches!(answer.status, 429 | 503 | 507) {
        return Vec::new();
    }
    let answer = answer.ok();
    let rows = answer["rows"].as_array().unwrap();
    let found: HashMap<u64, u64> =
        rows.iter().map(|row| (row["id"].as_u64().unwrap(), row["year"].as_u64().unwrap())).collect();
    assert_eq!(found.len(), rows.len(), "a row is there twice: {answer}");
    assert!(found.keys().all(|row| *row < ROWS), "a row was invented: {answer}");
    (0..ROWS).map(|row| Event { row, value: found.get(&row).copied(), asked, answered }).collect()
}

/// Event that happens to the servers, or to their data, in a round.
#[derive(Debug, Clone, Copy)]
enum Action {
    Kill,
    KillTwo,
    Stop,
    Pause,
    FillDisk,
    Flush,
    Compact,
    SlowClients,
}

impl Action {
    /// Returns the actions that are possible with the data.
    fn of(data: &Data) -> Vec<Action> {
        let mut all = vec![Action::Kill, Action::Kill, Action::KillTwo, Action::Stop];
        all.extend([Action::Flush, Action::Compact, Action::SlowClients]);
        // A paused server keeps the locks of a folder, so that nobody replaces it.
        all.extend(data.is_bucket().then_some(Action::Pause));
        all.extend(data.has_own_disk().then_some(Action::FillDisk));
        all
    }

    /// Does it to the server number `victim`.
    fn run(self, data: &Data, servers: &mut [Process], victim: usize, random: &mut StdRng) {
        let other = (victim + 1) % servers.len();
        match self {
            Action::Kill => kill(&mut servers[victim], data),
            Action::KillTwo => [victim, other].into_iter().for_each(|at| kill(&mut servers[at], data)),
            Action::Stop => std::mem::replace(&mut servers[victim], data.start()).stop(),
            Action::Pause => {
                servers[victim].pause();
                std::thread::sleep(Duration::from_millis(random.random_range(0..4000)));
                servers[victim].resume();
            }
            Action::FillDisk => data.fill_disk(Duration::from_millis(random.random_range(100..2000))),
            Action::Flush => {
                drop(servers[victim].remote.send("/v1/collections/words/flush", &json!({}), None))
            }
            Action::Compact => {
                drop(servers[victim].remote.send("/v1/collections/words/compact", &json!({}), None));
            }
            Action::SlowClients => slow_clients(&servers[victim].remote),
        }
    }
}

fn kill(server: &mut Process, data: &Data) {
    server.signal(libc::SIGKILL);
    std::mem::replace(server, data.start()).kill();
}

/// Opens connections that send their request a byte at a time, and leave before its end.
fn slow_clients(remote: &Remote) {
    let connections: Vec<TcpStream> =
        (0..SLOW_CLIENTS).filter_map(|_| TcpStream::connect(&remote.address).ok()).collect();
    for byte in b"POST /v1/collections/words/upsert HTTP/1.1\r\n" {
        for mut connection in &connections {
            let _ = connection.write_all(&[*byte]);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lets clients write and read at three servers, and kills, pauses, stops and fills these meanwhile. Then the
/// history of all clients has to be explained, with what the servers have at the end, and after a restart.
fn soak(data: &Data, limit: &Limit, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut servers = vec![data.start(), data.start(), data.start()];
    create(&servers[0].remote);
    let (began, next) = (Instant::now(), AtomicU64::new(0));
    let (actions, mut history) = (Action::of(data), History::default());
    let goes_on = |round: u32| match limit {
        Limit::Rounds(rounds) => round < *rounds,
        Limit::Time(time) => began.elapsed() < *time,
    };
    let mut round = 0;
    while goes_on(round) {
        let (victim, action) =
            (random.random_range(0..servers.len()), actions[random.random_range(0..actions.len())]);
        let remotes: Vec<Remote> = servers.iter().map(|server| server.remote.clone()).collect();
        let clients = Clients {
            remotes: &remotes,
            began,
            next: &next,
            written: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        };
        history.join(while_busy(&clients, &mut random, |random| {
            clients.wait_for(random.random_range(1..20));
            action.run(data, &mut servers, victim, random);
            clients.wait_for(5);
        }));
        let expired = servers[victim].remote.send_as(EXPIRED, "/v1/collections/words/count", &json!({}));
        assert!(expired.expect("an answer").refused(401, "permission").contains("expired"));
        round += 1;
        let (writes, reads) = (history.writes.len(), history.reads.len());
        println!("round {round}: {action:?} of server {victim}; {writes} writes, {reads} reads");
    }
    std::thread::sleep(AGE + Duration::from_millis(100));
    for server in &servers {
        history.reads.extend(read_last(&server.remote, began));
    }
    servers.into_iter().for_each(Process::stop);
    history.reads.extend(read_last(&data.start().remote, began));
    let contradictions = history.contradictions(AGE);
    assert!(
        contradictions.is_empty(),
        "{} of {} reads contradict the writes, such as\n{}",
        contradictions.len(),
        history.reads.len(),
        contradictions[..contradictions.len().min(10)].join("\n")
    );
}

/// Reads all rows of a server that runs.
fn read_last(remote: &Remote, began: Instant) -> Vec<Event> {
    let until = Instant::now() + PATIENCE;
    loop {
        let reads = read_all(remote, began);
        if !reads.is_empty() {
            return reads;
        }
        assert!(Instant::now() < until, "a server does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `act` while a writer and a reader for each server are busy. Returns their history.
fn while_busy(clients: &Clients<'_>, random: &mut StdRng, act: impl FnOnce(&mut StdRng)) -> History {
    let mut seed = || StdRng::seed_from_u64(random.random());
    let seeds: Vec<(StdRng, StdRng)> = clients.remotes.iter().map(|_| (seed(), seed())).collect();
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (at, (to_write, to_read)) in seeds.into_iter().enumerate() {
            running.push(scope.spawn(move || clients.write(at, to_write)));
            running.push(scope.spawn(move || clients.read(at, to_read)));
        }
        act(random);
        clients.ended.store(true, Ordering::Release);
        let mut history = History::default();
        running.into_iter().for_each(|client| history.join(client.join().unwrap()));
        history
    })
}

#[test]
fn no_row_of_a_bucket_is_lost_or_invented_whatever_happens_to_servers() {
    let Some(limit) = limit() else { return };
    let Some(data) = Data::bucket("soak") else { return };
    soak(&data, &limit, 1);
}

#[test]
fn no_row_of_a_folder_is_lost_or_invented_whatever_happens_to_servers() {
    let Some(limit) = limit() else { return };
    soak(&Data::on_own_disk(), &limit, 2);
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
    if !measures() {
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
    if !measures() {
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
