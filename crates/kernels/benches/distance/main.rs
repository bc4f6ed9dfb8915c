//! Benchmark: time of a distance, with hot data and over random rows of a large array, compared with SimSIMD
//! in the same run.
//!
//! `cargo bench -p bathyal-kernels --bench distance -- [--quick] [FILTER]`, where FILTER is a part of
//! `u8/l2/128`, or of `f32-i8/l2/128` for f32 queries and rows of bytes, for which the peers have no kernel.
//! With `RUSTFLAGS="--cfg numkong"` it also measures NumKong, the successor of SimSIMD.
//!
//! Peers are called by their C symbols, once for each distance. Every number is the median of several
//! repeats, in which the libraries take turns. `x` is our time over theirs: below 1 ours is faster. `peak` is
//! the share of this core's peak rate of multiply-adds (one for each component), `read` that of its
//! bandwidth.

mod peers;
mod roofline;

use bathyal_kernels::{Distance, Element, Isa, Metric, Rows};
use peers::Peer;
use std::hint::black_box;

const DIMS: [usize; 11] = [32, 64, 96, 100, 128, 256, 384, 768, 960, 1024, 1536];
/// Bytes of the array: more than the last-level cache of any likely machine.
const ARRAY_BYTES: usize = 512 << 20;
/// Ids that are scored in one call, as in a graph search that expands a few vertices.
const BATCH: usize = 64;
/// Random ids for each shape. Their rows do not fit the caches.
const IDS: usize = 1 << 16;
/// Ratio of times above which a difference is more than the noise of a quiet machine.
const NOISE: f64 = 1.05;

struct Options {
    repeats: usize,
    slice_ns: u64,
    filter: String,
}

fn options() -> Options {
    let mut options = Options { repeats: 41, slice_ns: 2_000_000, filter: String::new() };
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => {
                options.repeats = 21;
                options.slice_ns = 1_000_000;
            }
            "--bench" => {}
            _ => options.filter = argument,
        }
    }
    options
}

/// Alignment of the array: that of a huge page, and so of a cache line.
const ALIGNMENT: usize = 2 << 20;

/// Returns bytes that are ordinary numbers as every element type (halves from 1 to 2, floats of some 0.01),
/// and the offset at which the aligned array starts. The array asks for huge pages; without them the
/// benchmark would measure page walks.
fn array() -> (Vec<u8>, usize) {
    let mut bytes = Vec::<u8>::with_capacity(ARRAY_BYTES + ALIGNMENT);
    #[cfg(target_os = "linux")]
    // SAFETY: advice about memory that the vector owns; a refusal changes nothing.
    unsafe {
        let start = bytes.as_mut_ptr().wrapping_add(bytes.as_ptr().align_offset(ALIGNMENT));
        libc::madvise(start.cast(), ARRAY_BYTES, libc::MADV_HUGEPAGE);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while bytes.len() < ARRAY_BYTES + ALIGNMENT {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let halves = (state & 0x03ff_03ff_03ff_03ff) | 0x3c00_3c00_3c00_3c00;
        bytes.extend_from_slice(&halves.to_le_bytes());
    }
    let start = bytes.as_ptr().align_offset(ALIGNMENT);
    (bytes, start)
}

/// Returns the nanoseconds that this thread has run. Time that the scheduler gives to other threads does not
/// count.
#[cfg(unix)]
fn clock_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(not(unix))]
fn clock_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Returns the nanoseconds a distance takes in `work`, which returns the number of distances that it
/// computed.
fn time(slice_ns: u64, work: &mut dyn FnMut() -> usize) -> f64 {
    let start = clock_ns();
    let mut done = 0;
    loop {
        // The clock is a system call, so it is not read after every call of `work`.
        for _ in 0..8 {
            done += work();
        }
        let spent = clock_ns() - start;
        if spent >= slice_ns {
            return spent as f64 / done as f64;
        }
    }
}

/// Returns the median time of each contestant. The contestants take turns.
fn medians(options: &Options, contestants: &mut [Box<dyn FnMut() -> usize + '_>]) -> Vec<f64> {
    let mut times = vec![Vec::new(); contestants.len()];
    for _ in 0..options.repeats {
        for (contestant, times) in contestants.iter_mut().zip(&mut times) {
            times.push(time(options.slice_ns, contestant));
        }
    }
    times
        .into_iter()
        .map(|mut times| {
            times.sort_unstable_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect()
}

/// Measures one pair of vectors over and over: only computation and call overhead.
fn hot(options: &Options, distance: &Distance, peers: &[Peer], array: &[u8]) -> Vec<f64> {
    const CALLS: usize = 256;
    let (a, rest) = array.split_at(distance.query_bytes());
    let b = &rest[..distance.row_bytes()];
    let mut contestants: Vec<Box<dyn FnMut() -> usize>> = vec![Box::new(move || {
        for _ in 0..CALLS {
            black_box(distance.between(black_box(a), black_box(b)));
        }
        CALLS
    })];
    for &peer in peers {
        contestants.push(Box::new(move || {
            for _ in 0..CALLS {
                black_box(peer.between(black_box(a), black_box(b), distance.dim()));
            }
            CALLS
        }));
    }
    medians(options, &mut contestants)
}

/// Measures random rows of the whole array.
fn scattered(options: &Options, distance: &Distance, peers: &[Peer], array: &[u8], ids: &[u32]) -> Vec<f64> {
    let stride = distance.row_bytes();
    let query = &array[..distance.query_bytes()];
    let rows = Rows { bytes: array, stride };
    let mut batches = ids.chunks_exact(BATCH).cycle();
    let mut contestants: Vec<Box<dyn FnMut() -> usize>> = vec![Box::new(move || {
        let Some(ids) = batches.next() else { return 1 };
        let mut out = [0.0; BATCH];
        distance.score(query, rows, ids, &mut out);
        black_box(&out);
        BATCH
    })];
    for &peer in peers {
        let mut batches = ids.chunks_exact(BATCH).cycle();
        contestants.push(Box::new(move || {
            let Some(ids) = batches.next() else { return 1 };
            let mut out = [0.0; BATCH];
            for (&id, found) in ids.iter().zip(&mut out) {
                let row = &array[id as usize * stride..][..stride];
                *found = peer.between(query, row, distance.dim());
            }
            black_box(&out);
            BATCH
        }));
    }
    medians(options, &mut contestants)
}

/// A measured kind of vectors.
struct VectorKind {
    name: String,
    /// True if queries are f32 for any rows.
    of_floats: bool,
    /// The element of the rows.
    element: Element,
}

/// Returns the measured kinds of vectors.
fn kinds() -> impl Iterator<Item = VectorKind> {
    let same =
        Element::ALL.map(|element| VectorKind { name: element.to_string(), of_floats: false, element });
    let smaller = [Element::F16, Element::I8].map(|element| {
        let name = format!("f32-{element}");
        VectorKind { name, of_floats: true, element }
    });
    same.into_iter().chain(smaller)
}

fn main() {
    let options = options();
    let (bytes, start) = array();
    let array = &bytes[start..start + ARRAY_BYTES];
    let bandwidth = roofline::read_bandwidth(array);
    let floats = roofline::float_components_a_nanosecond();
    let bytes = roofline::byte_components_a_nanosecond();
    println!(
        "{}: {bandwidth:.1} GB/s read by one thread, {floats:.0} float and {bytes:.0} byte multiply-adds \
         a ns",
        Isa::best()
    );
    let names = peers::NAMES.map(|name| format!(" {name:>9}      x"));
    let head = names.concat();
    println!("{:<16}| hot ns{head}   peak | random ns{head}   GB/s   read", "shape");
    let mut slower = Vec::new();
    for VectorKind { name, of_floats, element } in kinds() {
        for metric in Metric::ALL {
            for dim in DIMS {
                let shape = format!("{name}/{metric}/{dim}");
                // For bits the peers have only the Hamming distance, over whole bytes.
                let no_peer =
                    element == Element::B1 && (metric != Metric::L2 || dim % 8 != 0 || cfg!(numkong));
                if !shape.contains(&options.filter) || no_peer {
                    continue;
                }
                let create = if of_floats { Distance::of_floats } else { Distance::new };
                let distance = create(element, metric, dim);
                let peers = if of_floats { Vec::new() } else { peers::all(element, metric).to_vec() };
                let peak = if element.is_float() || of_floats { floats } else { bytes };
                let hot = hot(&options, &distance, &peers, array);
                let ids = random_ids(ARRAY_BYTES / distance.row_bytes());
                let scattered = scattered(&options, &distance, &peers, array, &ids);
                let rate = distance.row_bytes() as f64 / scattered[0];
                println!(
                    "{shape:<16}| {} {:5.0}% |    {} {rate:6.1} {:5.0}%",
                    row(&hot),
                    100.0 * dim as f64 / hot[0] / peak,
                    row(&scattered),
                    100.0 * rate / bandwidth,
                );
                for (kind, times) in [("hot", &hot), ("random", &scattered)] {
                    for (name, theirs) in peers::NAMES.iter().zip(&times[1..]) {
                        if times[0] > theirs * NOISE {
                            slower.push(format!("{shape} {kind}: {:.2} x {name}", times[0] / theirs));
                        }
                    }
                }
            }
        }
    }
    println!("slower than a peer: {}", slower.len());
    for line in slower {
        println!("  {line}");
    }
}

fn row(times: &[f64]) -> String {
    let theirs: String =
        times[1..].iter().map(|theirs| format!(" {theirs:9.2} {:6.2}", times[0] / theirs)).collect();
    format!("{:6.2}{theirs}", times[0])
}

fn random_ids(rows: usize) -> Vec<u32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..IDS)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 32) % rows as u64) as u32
        })
        .collect()
}
