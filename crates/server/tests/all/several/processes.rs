//! Servers in processes of their own, which are killed and paused while they write.

use super::{LONG, Remote, SHORT, keys_in, record};
use crate::harness::{Answer, row, schema};
use crate::server::service::{Place, service};
use bathyal_object::{Claims, ObjectUrl};
use bathyal_server::{Server, ServerOptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Environment variable of a started process: what it serves.
const PART: &str = "BATHYAL_SEVERAL_PART";
/// The lease of the tests: long enough for a test machine that is busy, and short enough to wait for its end.
pub(super) const LEASE: Duration = Duration::from_millis(1500);
/// The longest wait for anything, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A part, not a test: a server that runs until its input ends.
#[test]
fn part_server() {
    let Ok(given) = std::env::var(PART) else { return };
    let given: Value = serde_json::from_str(&given).unwrap();
    let text = |name: &str| given[name].as_str().unwrap().to_owned();
    let options = ServerOptions::new(text("data"), text("keys"));
    let options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        lease: Duration::from_millis(given["lease_ms"].as_u64().unwrap()),
        ..options
    };
    let server = Server::start(options).unwrap();
    println!("\nlistens {}", server.address());
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    server.stop();
    println!("\nstopped");
}

/// Data that processes serve, in a folder or in a bucket.
pub(super) struct Data {
    pub(super) address: String,
    place: Option<Place>,
    /// Unmounted before its folder is removed.
    disk: Option<SmallDisk>,
    folder: tempfile::TempDir,
}

/// A disk of its own, of so few bytes that a test can fill it. It is in memory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a disk at a new folder; `None` if this process may not.
    fn mount(folder: PathBuf) -> Option<SmallDisk> {
        std::fs::create_dir(&folder).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=32m", "tmpfs"]).arg(&folder).status();
        mount.is_ok_and(|status| status.success()).then_some(SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

impl Data {
    pub(super) fn folder() -> Data {
        let folder = tempfile::tempdir().unwrap();
        let address = folder.path().join("data").to_str().unwrap().to_owned();
        Data { address, place: None, folder, disk: None }
    }

    /// Returns a folder on a small disk of its own, if this process may mount one, and otherwise any folder.
    pub(super) fn on_own_disk() -> Data {
        let data = Data::folder();
        let Some(disk) = SmallDisk::mount(data.folder.path().join("disk")) else {
            println!("no disk can be mounted, so that none is filled");
            return data;
        };
        let address = disk.0.join("data").to_str().unwrap().to_owned();
        Data { address, disk: Some(disk), ..data }
    }

    pub(super) fn is_bucket(&self) -> bool {
        self.place.is_some()
    }

    pub(super) fn has_own_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Fills the disk for some time.
    pub(super) fn fill_disk(&self, time: Duration) {
        let disk = self.disk.as_ref().expect("a disk of its own");
        let path = disk.0.join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut block = &[0_u8; 1 << 20][..];
        // Down to the last bytes.
        while !block.is_empty() {
            if file.write_all(block).is_err() {
                block = &block[..block.len() / 2];
            }
        }
        std::thread::sleep(time);
        std::fs::remove_file(path).unwrap();
    }

    /// Returns a folder of a bucket; `None` if there is no server of buckets.
    pub(super) fn bucket(test: &str) -> Option<Data> {
        let service = service()?;
        let place = service.place(test);
        let folder = tempfile::tempdir().unwrap();
        Some(Data { address: place.address("data"), place: Some(place), folder, disk: None })
    }

    fn keys(&self) -> PathBuf {
        let path: &Path = self.folder.path();
        keys_in(path)
    }

    pub(super) fn start(&self) -> Process {
        self.start_with(LEASE)
    }

    fn start_with(&self, lease: Duration) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "several::processes::part_server", "--nocapture"]);
        let lease_ms = lease.as_millis() as u64;
        let given = json!({ "data": self.address, "keys": self.keys(), "lease_ms": lease_ms });
        command.env(PART, given.to_string());
        if let Some(Place { service, .. }) = &self.place {
            command.env("AWS_ENDPOINT", &service.endpoint).env("AWS_REGION", &service.region);
            command.env("AWS_ACCESS_KEY_ID", &service.access_key);
            command.env("AWS_SECRET_ACCESS_KEY", &service.secret);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.unwrap().strip_prefix("listens ")?.to_owned()));
        let address = address.expect("the server has ended by itself");
        // Nobody reads further lines; the pipe must not fill.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Process { child, remote: Remote::new(&address) }
    }
}

/// A process with a server.
pub(super) struct Process {
    child: Child,
    pub(super) remote: Remote,
}

impl Process {
    pub(super) fn signal(&self, signal: i32) {
        // SAFETY: sends a signal to a child of this process that nobody has waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the server as a service manager does.
    pub(super) fn stop(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    pub(super) fn pause(&self) {
        self.signal(libc::SIGSTOP);
    }

    pub(super) fn resume(&self) {
        self.signal(libc::SIGCONT);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a change with one key until it is done, whichever server does it.
pub(super) fn insist(remotes: &[Remote], path: &str, body: &Value, key: &str) {
    let until = Instant::now() + PATIENCE;
    for (number, remote) in remotes.iter().cycle().enumerate() {
        match remote.send(path, body, Some(key)) {
            Some(Answer { status: 200 | 201, .. }) => return,
            // An attempt without an answer has done it.
            Some(Answer { status: 409, .. }) if number > 0 => return,
            Some(Answer { status: 429 | 503, .. }) | None => {}
            Some(refused) => panic!("{}: {}", refused.status, refused.json),
        }
        assert!(Instant::now() < until, "{path} is not done");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn create(remote: &Remote) {
    let body = json!({ "name": "words", "schema": schema() });
    insist(std::slice::from_ref(remote), "/v1/collections", &body, "create");
}

/// Returns the ids of all rows.
pub(super) fn all_ids(remote: &Remote) -> Vec<u64> {
    let (mut ids, mut after) = (Vec::new(), Value::Null);
    loop {
        let body = json!({ "limit": 500, "after": after, "columns": [] });
        let page = remote.send("/v1/collections/words/scan", &body, None).expect("an answer").ok();
        ids.extend(page["rows"].as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()));
        after = page["next"].clone();
        if after.is_null() {
            return ids;
        }
    }
}

/// Writers that add rows at all servers, until they are told to end.
pub(super) struct Writers<'a> {
    remotes: &'a [Remote],
    next: &'a AtomicU64,
    pub(super) acknowledged: AtomicU64,
    ended: AtomicBool,
}

impl<'a> Writers<'a> {
    pub(super) fn new(remotes: &'a [Remote], next: &'a AtomicU64) -> Writers<'a> {
        Writers { remotes, next, acknowledged: AtomicU64::new(0), ended: AtomicBool::new(false) }
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Waits until this many rows more are acknowledged.
    pub(super) fn wait_for(&self, more: u64) {
        let (wanted, until) = (self.acknowledged.load(Ordering::Acquire) + more, Instant::now() + PATIENCE);
        while self.acknowledged.load(Ordering::Acquire) < wanted {
            assert!(Instant::now() < until, "the writers make no progress");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Adds rows, each first at the server `first` and then at the others. Returns the ids.
    pub(super) fn write(&self, first: usize) -> Vec<u64> {
        let mut remotes = self.remotes.to_vec();
        remotes.rotate_left(first);
        let mut written = Vec::new();
        while !self.ended.load(Ordering::Acquire) {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let body = json!({ "rows": [row(id)] });
            insist(&remotes, "/v1/collections/words/add", &body, &format!("row-{id}"));
            written.push(id);
            self.acknowledged.fetch_add(1, Ordering::AcqRel);
        }
        written
    }
}

/// Runs `act` while one writer a server adds rows. Returns their ids.
pub(super) fn while_writing(
    remotes: &[Remote],
    next: &AtomicU64,
    act: impl FnOnce(&Writers<'_>),
) -> Vec<u64> {
    let writers = Writers::new(remotes, next);
    std::thread::scope(|scope| {
        let writers = &writers;
        let running: Vec<_> =
            (0..remotes.len()).map(|first| scope.spawn(move || writers.write(first))).collect();
        act(writers);
        writers.end();
        running.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    })
}

/// Asserts that the acknowledged rows are there, and none twice.
pub(super) fn check_rows(remote: &Remote, acknowledged: &[u64]) {
    let found = all_ids(remote);
    let ids: BTreeSet<u64> = found.iter().copied().collect();
    assert_eq!(ids.len(), found.len(), "a row is there twice");
    let lost: Vec<u64> = acknowledged.iter().copied().filter(|id| !ids.contains(id)).collect();
    assert!(lost.is_empty(), "{lost:?} were acknowledged and are lost");
}

/// Kills the server that writes, while rows are added at all three.
fn kill_the_writer(data: &Data) {
    let mut servers = vec![data.start(), data.start(), data.start()];
    create(&servers[0].remote);
    let next = AtomicU64::new(0);
    let remotes: Vec<Remote> = servers.iter().map(|server| server.remote.clone()).collect();
    let first = servers.remove(0);
    let acknowledged = while_writing(&remotes, &next, |writers| {
        writers.wait_for(30);
        first.kill();
        writers.wait_for(30);
    });
    // Of the two that are left, one writes and the other sees its rows.
    std::thread::sleep(Duration::from_millis(1100));
    servers.iter().for_each(|server| check_rows(&server.remote, &acknowledged));
    servers.into_iter().for_each(Process::stop);
    let again = data.start();
    check_rows(&again.remote, &acknowledged);
}

#[test]
fn the_server_that_writes_to_a_bucket_is_killed() {
    let Some(data) = Data::bucket("killed") else { return };
    kill_the_writer(&data);
}

#[test]
fn the_server_that_writes_to_a_folder_is_killed() {
    kill_the_writer(&Data::folder());
}

/// A server that believes that it holds the lease, and is overtaken, writes nothing more. It finds out by the
/// log, and then forwards changes, and reads what the other one writes.
#[test]
fn a_server_that_was_overtaken_forwards_and_reads_what_the_other_writes() {
    let Some(data) = Data::bucket("overtaken") else { return };
    let first = data.start_with(LONG);
    create(&first.remote);
    let add = |process: &Process, id: u64| {
        let body = json!({ "rows": [row(id)] });
        process.remote.send("/v1/collections/words/add", &body, None).expect("an answer")
    };
    add(&first, 1).ok();
    // Another one takes the next number, as if the first had not renewed its lease, and gives it up at once.
    let place = data.place.as_ref().unwrap();
    let url = ObjectUrl::parse(&Path::new(&data.address).join(".bathyal/lease")).unwrap();
    let claims = Claims::new(&url, &place.options(&place.service.endpoint, &[])).unwrap();
    let released = String::from_utf8(record("http://127.0.0.1:1", SHORT)).unwrap();
    let released = released.replace("\"renewal\"", "\"released\":true,\"renewal\"");
    assert!(claims.create(2, released.as_bytes()).unwrap());
    let second = data.start_with(LONG);
    add(&second, 2).ok();
    assert_eq!(claims.numbers().unwrap(), [3]);
    assert!(add(&first, 3).refused(503, "busy").contains("taken over"));
    add(&first, 4).ok();
    let until = Instant::now() + PATIENCE;
    for process in [&first, &second] {
        while all_ids(&process.remote) != [1, 2, 4] {
            assert!(Instant::now() < until, "a row is not seen");
        }
    }
    add(&second, 5).ok();
    while all_ids(&first.remote) != [1, 2, 4, 5] {
        assert!(Instant::now() < until, "the first server does not see the row");
    }
}

/// Pauses the server that writes to a bucket for longer than its lease. Afterwards it writes no more by
/// itself.
#[test]
fn the_server_that_writes_to_a_bucket_is_paused_and_wakes_up() {
    let Some(data) = Data::bucket("paused") else { return };
    let servers = [data.start(), data.start(), data.start()];
    let remotes: Vec<Remote> = servers.iter().map(|server| server.remote.clone()).collect();
    create(&remotes[0]);
    let next = AtomicU64::new(0);
    let mut acknowledged = while_writing(&remotes, &next, |writers| writers.wait_for(20));
    servers[0].pause();
    // Requests that wait for the paused server when it wakes up. They are without keys, and nobody repeats
    // them: what they get is the truth.
    let waiting: Vec<_> = (1_000_000..1_000_004_u64)
        .map(|id| {
            let remote = remotes[0].clone();
            std::thread::spawn(move || {
                let answer = remote.send("/v1/collections/words/add", &json!({ "rows": [row(id)] }), None);
                answer.filter(|answer| answer.status == 200).map(|_| id)
            })
        })
        .collect();
    acknowledged.extend(while_writing(&remotes[1..], &next, |writers| writers.wait_for(20)));
    servers[0].resume();
    acknowledged.extend(waiting.into_iter().filter_map(|request| request.join().unwrap()));
    acknowledged.extend(while_writing(&remotes, &next, |writers| writers.wait_for(20)));
    std::thread::sleep(Duration::from_millis(1100));
    remotes.iter().for_each(|remote| check_rows(remote, &acknowledged));
    let [first, second, third] = servers;
    first.stop();
    second.stop();
    check_rows(&third.remote, &acknowledged);
}
