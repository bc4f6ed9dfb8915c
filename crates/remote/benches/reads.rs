//! Measures reads from a memory node on this machine: reads per second, processor time of the client and of
//! the node, and the latency of a single read. The transports are TCP over the loopback, shared memory, and
//! RDMA where there is a device.
//!
//! Run `cargo bench -p bathyal-remote --bench reads`. `BATHYAL_BENCH_SECONDS` sets the time of each
//! measurement.

use bathyal_remote::{Identity, Node, NodeOptions, NodeStore, RemoteOptions, RemoteUrl};
use bathyal_store::{DraftExt, Generation, Replace, Store};
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::{Completion, Read, Tier, thread_ns};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: u64 = 256 << 20;
const REPEATS: usize = 5;

/// Returns the processor time of the whole process so far, in nanoseconds.
fn process_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every supported Unix, and `time` has room for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Result of one measurement.
struct Measured {
    reads_per_s: f64,
    /// Processor time for each read, in nanoseconds: of the client's thread, and of the node's threads.
    reader_ns: f64,
    node_ns: f64,
}

/// Measures with `depth` reads of `len` bytes at random offsets in flight.
fn measure(tier: &dyn Tier, depth: u32, len: u32, time: Duration) -> Measured {
    let mut queue = tier.open(depth).unwrap();
    let mut buffers = vec![0_u8; depth as usize * len as usize];
    let start = buffers.as_mut_ptr();
    let (mut state, mut reads) = (7_u64, 0_u64);
    let mut free: Vec<u64> = (0..u64::from(depth)).collect();
    let mut done: Vec<Completion> = Vec::new();
    let (began, reader, all) = (Instant::now(), thread_ns(), process_ns());
    while began.elapsed() < time || queue.in_flight() > 0 {
        if began.elapsed() < time {
            let batch: Vec<Read> = free
                .drain(..)
                .map(|id| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let offset = (state >> 20) % (BYTES / u64::from(len)) * u64::from(len);
                    Read {
                        id,
                        offset,
                        len,
                        buffer: start.wrapping_add((id * u64::from(len)) as usize),
                        round: 0,
                    }
                })
                .collect();
            // SAFETY: each read has its own part of the buffers, which nothing else touches until the queue
            // is dropped.
            assert_eq!(unsafe { queue.submit(&batch) }.unwrap(), batch.len());
        }
        queue.reap(&mut done, Some(Duration::from_secs(1))).unwrap();
        for Completion { id, result } in done.drain(..) {
            assert_eq!(result, Ok(len));
            reads += 1;
            free.push(id);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let (reader, all) = (thread_ns() - reader, process_ns() - all);
    let per_read = |ns: u64| ns as f64 / reads as f64;
    Measured {
        reads_per_s: reads as f64 / seconds,
        reader_ns: per_read(reader),
        node_ns: per_read(all - reader),
    }
}

fn main() {
    let seconds =
        std::env::var("BATHYAL_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let time = Duration::from_secs_f64(seconds);
    let scratch = tempfile::tempdir().unwrap();
    let options = NodeOptions { listen: SocketAddr::from(([127, 0, 0, 1], 0)), capacity_bytes: 2 * BYTES };
    let node = Node::start(&options, Identity::new().unwrap()).unwrap();
    let store = |transport: &str| -> NodeStore {
        let url = RemoteUrl::parse(Path::new(&format!("remote://{}/x", node.address()))).unwrap();
        let credentials = node.credentials();
        let options = [
            ("token", credentials.token.as_str()),
            ("peer_key", credentials.peer_key.as_str()),
            ("transport", transport),
            ("scratch", scratch.path().to_str().unwrap()),
        ];
        NodeStore::new(&url, RemoteOptions::new(options).unwrap(), "mark").unwrap()
    };
    let draft = store("tcp").begin("x", Replace::Never).unwrap();
    draft.put("data", &vec![1; BYTES as usize]).unwrap();
    draft.put("mark", b"").unwrap();
    draft.publish(&["data", "mark"], "").unwrap();
    println!(
        "| transport | bytes | in flight | reads/s | reader, ns | node, ns | reads/s and core of the slower \
         side |"
    );
    println!("|---|---|---|---|---|---|---|");
    for transport in ["tcp", "shm", "verbs"] {
        let generation: Arc<dyn Generation> = store(transport).open("x").unwrap();
        let object = match generation.get("data") {
            Ok(object) => object,
            Err(why) => {
                println!("| {transport} | not measured: {why} |");
                continue;
            }
        };
        let tier = object.tier(FileOptions::default()).unwrap();
        for (len, depth) in [(512, 1), (512, 16), (512, 128), (4096, 128), (1 << 20, 4)] {
            let all: Vec<Measured> = (0..REPEATS).map(|_| measure(tier.as_ref(), depth, len, time)).collect();
            let median_of = |f: fn(&Measured) -> f64| median(all.iter().map(f).collect());
            let (rate, reader, node) =
                (median_of(|m| m.reads_per_s), median_of(|m| m.reader_ns), median_of(|m| m.node_ns));
            let core = 1e9 / reader.max(node);
            println!("| {transport} | {len} | {depth} | {rate:.0} | {reader:.0} | {node:.0} | {core:.0} |");
        }
    }
}
