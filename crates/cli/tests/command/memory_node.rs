//! `bathyal memory-node`, and other commands on indexes in its memory.

use crate::harness::{Outcome, bathyal, command, copy, names, write_vectors};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A node that runs in a folder, with its keys in the subfolder `keys`.
struct Running {
    child: Child,
    address: String,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Running {
    fn new(folder: &Path, arguments: &str, messages: usize) -> Running {
        let line = format!("memory-node --listen 127.0.0.1:0 --keys keys --json {arguments}");
        let mut command = command(folder, &line.split_whitespace().collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().expect("a message").unwrap();
        let address = first.split("remote://").nth(1).and_then(|rest| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("{first}")).to_owned();
        for _ in 1..messages {
            lines.next().expect("a message").unwrap();
        }
        Running { child, address, lines }
    }

    /// Stops the node as Ctrl-C does; returns its last output.
    fn stop(mut self) -> Value {
        let began = Instant::now();
        // SAFETY: sends a signal to a child of this process that nobody has waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) }, 0);
        let rest: Vec<String> = self.lines.by_ref().map(Result::unwrap).collect();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let mut stdout = String::new();
        std::io::Read::read_to_string(&mut self.child.stdout.take().unwrap(), &mut stdout).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{rest:?}");
        serde_json::from_str(&stdout).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory of the process besides the capacity of the node: the program, as tests build it, and connections.
const OWN_BYTES: u64 = 80 << 20;

/// Returns the peak memory of a process.
fn peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

const KEYS: &str = "--store-option keys=keys/client.json --store-option scratch=scratch";

#[test]
fn indexes_in_the_memory_of_a_node_are_searched_like_others() {
    let folder = copy();
    let folder = folder.path();
    let node = Running::new(folder, "--capacity 64MiB --load idx --load graph.idx", 3);
    let url = format!("remote://{}", node.address);
    let search = "queries.fbin -k 5 --search-list 40 --groundtruth gt.ibin --json";
    // From memory, of this machine or another, searches of clusters read single vectors.
    for (index, tier) in [("idx", "dram"), ("graph.idx", "file")] {
        let here = bathyal(folder, &format!("search {index} {search} --tier {tier}")).json();
        for transport in ["tcp", "shm", "auto"] {
            let there = format!("search {url}/{index} {search} {KEYS}");
            let there = bathyal(folder, &format!("{there} --store-option transport={transport}")).json();
            for key in ["recall", "hops", "code_distances"] {
                assert_eq!(there[key], here[key], "{index} {transport} {key}");
            }
        }
        assert_eq!(bathyal(folder, &format!("verify {url}/{index} {KEYS} --json")).json()["sound"], true);
    }
    bathyal(folder, &format!("copy {url}/idx back --json --from-store-option keys=keys/client.json")).json();
    bathyal(folder, &format!("build base.fbin {url}/built --metric l2 {KEYS} --json")).json();
    let listed = bathyal(folder, &format!("list {url} {KEYS} --json")).json();
    let names: Vec<&str> =
        listed["found"].as_array().unwrap().iter().flat_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["built", "graph.idx", "idx"]);
    bathyal(folder, &format!("build base.fbin {url}/built --metric l2 {KEYS}")).fails(1, &["already exists"]);
    let removed = bathyal(folder, &format!("remove {url}/built {KEYS} --yes --json")).json();
    assert_eq!((&removed["kind"], &removed["vectors"]), (&"index".into(), &400.into()));
    bathyal(folder, &format!("remove {url}/built {KEYS} --yes")).fails(1, &["there is no such"]);
    bathyal(folder, &format!("search {url}/none queries.fbin {KEYS}")).fails(1, &["none", "no such index"]);
    bathyal(folder, &format!("prune {url}/idx {KEYS}")).fails(1, &["frees replaced indexes by itself"]);
    let calibrate = format!("calibrate {url}/idx queries.fbin {KEYS}");
    bathyal(folder, &calibrate).fails(1, &["keeps no calibrations", "copy it to the node"]);
    bathyal(folder, &format!("warm {url}/idx {KEYS}")).fails(1, &["no cache to fill"]);
    let cached = format!("search {url}/idx queries.fbin {KEYS} --store-option cache_memory=8MB");
    bathyal(folder, &cached).fails(1, &["cache", "object stores"]);
    let peak = peak_bytes(node.child.id());
    assert!(peak < (64 << 20) + OWN_BYTES, "{peak} bytes");
    let status = node.stop();
    assert_eq!(status["indexes"], serde_json::json!(["graph.idx", "idx"]));
    assert!(status["operations"].as_u64().unwrap() > 100 && status["used_bytes"].as_u64().unwrap() > 0);
    bathyal(folder, &format!("search {url}/idx queries.fbin {KEYS}"))
        .fails(1, &["does not answer", "running there"]);
}

/// Options of the store are those of the addresses among several indexes.
#[test]
fn indexes_here_and_in_the_memory_of_a_node_are_searched_together() {
    let folder = copy();
    let folder = folder.path();
    let node = Running::new(folder, "--capacity 64MiB --load graph.idx", 2);
    let url = format!("remote://{}/graph.idx", node.address);
    let search = "-k 5 --search-list 40 --output";
    bathyal(folder, &format!("search idx queries.fbin --also graph.idx {search} here.ivecs")).good();
    for (first, second, found) in [("idx", &*url, "there.ivecs"), (&*url, "idx", "other.ivecs")] {
        let line = format!("search {first} queries.fbin --also {second} {search} {found} {KEYS}");
        bathyal(folder, &line).good();
    }
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert_eq!(read("here.ivecs"), read("there.ivecs"));
    let line = format!("bench {url} queries.fbin --also idx --recall 0.9 --repeats 1 --json -q {KEYS}");
    let measured: Value = serde_json::from_str(&bathyal(folder, &line).stdout).unwrap();
    assert_eq!(measured["points"].as_array().map(Vec::len), Some(2), "{measured}");
    // Without an address there is no store.
    bathyal(folder, &format!("search idx queries.fbin --also graph.idx {KEYS}"))
        .fails(1, &["idx: is a folder of this machine, which takes no store options"]);
}

#[test]
fn an_index_over_two_nodes_is_named_by_one_address() {
    let folder = copy();
    let folder = folder.path();
    // Both nodes belong to one user and have the same keys.
    let nodes = [0, 1].map(|_| Running::new(folder, "--capacity 64MiB", 1));
    let url = format!("remote://{},{}/idx", nodes[0].address, nodes[1].address);
    let printed = bathyal(folder, &format!("copy idx {url} {KEYS} --json")).json();
    assert!(printed["index_bytes"].as_u64().unwrap() > 0, "{printed}");
    let search = "queries.fbin -k 5 --search-list 40 --groundtruth gt.ibin --json";
    let here = bathyal(folder, &format!("search idx {search} --tier dram")).json();
    let keys = "--store-option keys=keys/client.json,keys/client.json";
    let there = bathyal(folder, &format!("search {url} {search} {keys}")).json();
    for key in ["recall", "hops", "code_distances"] {
        assert_eq!(there[key], here[key], "{key}");
    }
    let parts = there["parts"].as_array().unwrap();
    assert!(parts.len() == 2 && parts[1]["path"].as_str().unwrap().contains(&nodes[1].address), "{parts:?}");
    let described = bathyal(folder, &format!("inspect {url} {KEYS} --json")).json();
    assert!(described["parts"].as_array().unwrap().len() >= 2, "{described}");
    assert_eq!(bathyal(folder, &format!("verify {url} {KEYS} --json")).json()["sound"], true);
    bathyal(folder, &format!("copy {url} back --json --from-store-option keys=keys/client.json")).json();
    bathyal(folder, &format!("build base.fbin {url} --metric l2 {KEYS}")).fails(1, &["already exists"]);
    bathyal(folder, &format!("build base.fbin {url} --metric l2 --overwrite {KEYS} --json")).json();
    let layout = format!("convert-layout graph.idx {url}2 --layout csr {KEYS}");
    bathyal(folder, &layout).fails(1, &["bathyal copy", &nodes[1].address]);
    let one = format!("remote://{}/idx", nodes[0].address);
    bathyal(folder, &format!("search {one} queries.fbin {KEYS}")).fails(1, &["name all of them", &url]);
    let three = "--store-option keys=a,b,c";
    bathyal(folder, &format!("search {url} queries.fbin {three}")).fails(1, &["3 values for 2 nodes"]);
    bathyal(folder, &format!("copy idx {url}2 {KEYS} --json")).json();
    bathyal(folder, &format!("remove {one}2 {KEYS} --yes")).fails(1, &["name all of them"]);
    let removed = bathyal(folder, &format!("remove {url}2 {KEYS} --yes --json")).json();
    assert_eq!(removed["kind"], "index", "{removed}");
    // No part is left on any node.
    bathyal(folder, &format!("remove {url}2 {KEYS} --yes")).fails(1, &["there is no such"]);
    let [first, second] = nodes;
    let gone = second.address.clone();
    second.stop();
    bathyal(folder, &format!("search {url} queries.fbin {KEYS}")).fails(1, &["does not answer", &gone]);
    first.stop();
}

#[test]
fn failures_of_a_node_have_a_kind() {
    let folder = copy();
    let folder = folder.path();
    let node = Running::new(folder, "--capacity 64MiB", 1);
    let address = node.address.clone();
    let kind = |more: &str| {
        let ran = bathyal(folder, &format!("inspect remote://{address}/none {KEYS} {more} --json"));
        assert_eq!(ran.code, Some(1), "{ran:?}");
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        report["error"]["kind"].clone()
    };
    assert_eq!(kind(""), "not_found");
    assert_eq!(kind("--store-option token=0123456789abcdef0123456789abcdef"), "permission");
    assert_eq!(kind("--store-option doorbell=4"), "invalid_argument");
    drop(node);
    assert_eq!(kind("--store-option wait=0"), "store");
}

#[test]
fn a_node_refuses_invalid_options() {
    let folder = copy();
    let folder = folder.path();
    let run = |arguments: &str| bathyal(folder, &format!("memory-node --keys keys {arguments}"));
    run("").fails(2, &["--capacity"]);
    run("--capacity 1GB --listen nowhere").fails(2, &["--listen"]);
    run("--capacity 1GB --listen 203.0.113.1:1").fails(1, &["203.0.113.1:1"]);
    run("--capacity 8KiB --listen 127.0.0.1:0 --load idx").fails(1, &["--capacity", "left of 8192"]);
    run("--capacity 1GB --listen 127.0.0.1:0 --load absent").fails(1, &["absent"]);
    let node = Running::new(folder, "--capacity 64MiB", 1);
    run(&format!("--capacity 1GB --listen {}", node.address)).fails(1, &["cannot listen", &node.address]);
    let search =
        |more: &str| bathyal(folder, &format!("search remote://{}/idx queries.fbin {more}", node.address));
    search("--store-option keys=absent.json").fails(1, &["absent.json", "memory-node"]);
    search("--store-option transport=pigeon").fails(1, &["transport", "auto, tcp, shm, verbs"]);
    search("--store-option doorbell=4").fails(1, &["doorbell", "transport=verbs"]);
    search("--store-option keys=keys/client.json --store-option token=0123456789abcdef0123456789abcdef")
        .fails(1, &["refuses the token"]);
    search("--stripe a,b").fails(1, &["stripe"]);
    std::fs::write(folder.join("keys/node.json"), "{}").unwrap();
    run("--capacity 1GB --listen 127.0.0.1:0").fails(1, &["node.json", "no identity"]);
    drop(node);
    assert!(names(folder).contains(&"keys".to_owned()));
}

/// The text output of a node.
#[test]
fn the_text_output_has_the_bytes_sent_and_received() {
    let folder = tempfile::tempdir().unwrap();
    let line = "memory-node --capacity 1MiB --listen 127.0.0.1:0 --keys keys";
    let mut child = command(folder.path(), &line.split_whitespace().collect::<Vec<_>>())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("sha256:") && first.contains("keys/client.json"), "{first}");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    let ran = Outcome::of(child.wait_with_output().unwrap());
    assert!(ran.good().contains("stopped after 0 operations"));
}

/// After a process is killed during its inserts, no other process waits for it, and every vector is there
/// whole or not at all.
#[test]
fn an_index_can_be_changed_after_its_writers_were_killed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, count, seed) in [("base.fbin", 1500, 1), ("more.fbin", 3000, 2), ("few.fbin", 40, 3)] {
        write_vectors(folder, name, count, 16, seed);
    }
    let node = Running::new(folder, "--capacity 256MiB", 1);
    let url = format!("remote://{}/index", node.address);
    let own = "--family partitioned --partition-vectors 40 --overflow-vectors 8 --growth 20";
    bathyal(folder, &format!("build base.fbin {url} --metric l2 {own} {KEYS} --json")).json();
    let mut first_ids = Vec::new();
    for (round, transport) in (1_u64..).zip(["tcp", "shm", "tcp", "shm", "tcp", "shm"]) {
        let line = format!("insert {url} more.fbin {KEYS} --store-option transport={transport}");
        let mut command = command(folder, &line.split_whitespace().collect::<Vec<_>>());
        let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(17 * round));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let inserted = bathyal(folder, &format!("insert {url} few.fbin {KEYS} --json")).json();
        assert_eq!(inserted["inserted"], 40);
        first_ids.push(inserted["first_id"].as_u64().unwrap() as u32);
        let report = bathyal(folder, &format!("verify {url} {KEYS} --json")).json();
        assert_eq!(report["sound"], true, "{report}");
    }
    // Vectors that were inserted six times are found six times.
    let search = "few.fbin -k 6 --search-list 100 --probes 1000 --output found.ibin --json";
    bathyal(folder, &format!("search {url} {search} {KEYS}")).json();
    let found = std::fs::read(folder.join("found.ibin")).unwrap();
    let ids: Vec<u32> =
        found[8..8 + 40 * 24].chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().unwrap())).collect();
    for (row, ids) in ids.chunks_exact(6).enumerate() {
        let mut ids: Vec<u32> = ids.iter().map(|id| id - row as u32).collect();
        ids.sort_unstable();
        assert_eq!(ids, first_ids, "row {row}");
    }
    let more = bathyal(folder, &format!("delete {url} --ids {} {KEYS} --json", first_ids[0])).json();
    assert_eq!(more["deleted"], 1);
    bathyal(folder, &format!("delete {url} --ids 4000000000 {KEYS}"))
        .fails(1, &["there is no vector 4000000000"]);
    // A copy has all vectors, and it verifies.
    let copied = format!("copy {url} saved --from-store-option keys=keys/client.json --json");
    bathyal(folder, &copied).json();
    let report = bathyal(folder, "verify saved --json").json();
    assert_eq!(report["sound"], true);
    bathyal(folder, "insert saved few.fbin").fails(1, &["memory of a node", "bathyal copy"]);
}

/// A node is measured by the index that it holds, and an index is advised, built there and compared.
#[test]
fn an_index_is_advised_for_the_memory_of_a_node() {
    let folder = copy();
    let folder = folder.path();
    write_vectors(folder, "more.fbin", 3_000, 16, 3);
    write_vectors(folder, "asked.fbin", 60, 16, 4);
    let node = Running::new(folder, "--capacity 256MiB --load idx", 2);
    let url = format!("remote://{}", node.address);
    let keys = format!("{KEYS} --store-option transport=tcp");
    let advise = "advise more.fbin asked.fbin --metric l2 --quick --family cluster --threads 1";
    let line = format!("{advise} --on {url}/idx {keys} --json --output plan.json");
    let advice = bathyal(folder, &line).json();
    let device = &advice["devices"][0];
    assert_eq!((&device["kind"], &device["profile"]["kind"]), (&"node".into(), &"remote".into()));
    assert!(device["profile"]["latency_ns"].as_u64() > Some(0), "{device}");
    bathyal(folder, &format!("build more.fbin {url}/advised --metric l2 --advice plan.json {keys} --json"))
        .json();
    let check = format!("advise {url}/advised asked.fbin --metric l2 --check plan.json {keys} --json");
    let compared = bathyal(folder, &check).json();
    let number = |name: &str| {
        let numbers = compared["numbers"].as_array().unwrap();
        numbers.iter().find(|number| number["name"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    // The whole set is as large as the sample, apart from held-out queries, so that pilots tell its reads.
    for name in ["reads a query", "bytes a query", "index bytes"] {
        assert_eq!(number(name)["within"], true, "{name}: {}", number(name));
    }
    bathyal(folder, &format!("{advise} --on {url}/none {keys}"))
        .fails(1, &["none", "measured by reads of an index there"]);
    bathyal(folder, &format!("{advise} --on dram {keys}")).fails(1, &["store options", "address"]);
    bathyal(folder, &format!("{advise} --on gpu")).fails(1, &["gpu", "graphics card"]);
}
