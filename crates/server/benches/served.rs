//! Queries a second of a collection and of an index: one batch in this process, threads with one query each
//! in this process, and connections with one query each through a server. `make bench-server`.
//!
//! Client and server share the processors, so that a served query pays for both.

use bathyal_collection::{
    Collection, CollectionOptions, CompactOptions, IdKind, Ids, Rows, Schema, SearchRequest, VectorField,
};
use bathyal_index::{BuildOptions, Index, OpenOptions, SearchOptions, build};
use bathyal_kernels::{Metric, to_f32};
use bathyal_server::{Keys, Server, ServerOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Repeats, of which the median counts.
const REPEATS: usize = 3;
/// Seconds of a measurement.
const SECONDS: f64 = 2.0;
/// Numbers of connections and threads.
const CALLERS: [usize; 4] = [1, 16, 64, 256];

/// The speed of one way to ask.
#[derive(Clone, Copy)]
struct Speed {
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [base, queries, metric, most] = &arguments[..] else {
        println!("served: nothing measured: give BASE QUERIES METRIC ROWS, as `make bench-server` does");
        return Ok(());
    };
    let (base, queries) = (VectorFile::open(base)?, VectorFile::open(queries)?);
    let (metric, rows): (Metric, usize) = (metric.parse()?, most.parse::<usize>()?.min(base.count()));
    let first = base.rows(0..rows).ok_or("the rows of the file are not dense")?.to_vec();
    let base = VectorFile::from_rows(base.element(), base.dim(), first)?;
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    fill(&data, &base, metric)?;
    println!("{rows} vectors of {} {} ({metric}), k 10, recall 0.95, from files", base.dim(), base.element());
    println!(
        "| target | asked by | queries/s | of one batch | p50 us | p99 us |\n|---|---|---:|---:|---:|---:|"
    );
    {
        let collection = Collection::open(data.join("rows"), &CollectionOptions::default())?;
        let request = SearchRequest::default();
        local("collection", &queries, |queries| {
            collection.search(queries, &request, Control::default()).map(|_| ()).map_err(Into::into)
        })?;
        served("collection", "collections/rows", &queries, folder.path())?;
    }
    let index = Index::open(data.join("index"), &OpenOptions::default())?;
    local("index", &queries, |queries| {
        index.search(queries, &SearchOptions::default(), Control::default()).map(|_| ()).map_err(Into::into)
    })?;
    served("index", "indexes/index", &queries, folder.path())
}

/// Writes the vectors as a compacted collection and as an index.
fn fill(data: &Path, base: &VectorFile, metric: Metric) -> Result<(), Box<dyn Error>> {
    let build_options = BuildOptions { metric, ..BuildOptions::default() };
    build(base, &data.join("index"), &build_options, &Silent)?;
    let schema = Schema {
        id_kind: IdKind::Number,
        vectors: vec![VectorField::new("v", base.dim(), base.element(), metric)],
        columns: Vec::new(),
    };
    let collection = Collection::create(data.join("rows"), schema.clone(), &CollectionOptions::default())?;
    let ids = Ids::Numbers((0..base.count() as u64).collect::<Vec<_>>().into());
    collection.add(Rows::new(&schema, ids, vec![base.clone()], None)?)?;
    collection.compact(&CompactOptions { full: true }, &Silent)?;
    Ok(())
}

fn print(target: &str, by: &str, speed: Speed, batch: f64) {
    let Speed { per_second, p50, p99 } = speed;
    let share = per_second / batch;
    let (p50, p99) = (p50.as_micros(), p99.as_micros());
    println!("| {target} | {by} | {per_second:.0} | {share:.2} | {p50} | {p99} |");
}

type Asked<'a> = &'a (dyn Fn(&VectorFile) -> Result<(), Box<dyn Error + Send + Sync>> + Sync);

/// Measures one batch, and threads with one query each.
fn local(
    target: &str,
    queries: &VectorFile,
    ask: impl Fn(&VectorFile) -> Result<(), Box<dyn Error + Send + Sync>> + Sync,
) -> Result<(), Box<dyn Error>> {
    let ask: Asked<'_> = &ask;
    let batch = median(|| {
        let began = Instant::now();
        ask(queries).map_err(|error| error.to_string())?;
        let per_second = queries.count() as f64 / began.elapsed().as_secs_f64();
        Ok(Speed { per_second, p50: began.elapsed(), p99: began.elapsed() })
    })?;
    BATCH.store(batch.per_second as usize, Ordering::Relaxed);
    print(target, "one batch", batch, batch.per_second);
    let single: Vec<VectorFile> = (0..queries.count())
        .map(|query| VectorFile::from_rows(queries.element(), queries.dim(), queries.row(query).to_vec()))
        .collect::<Result<_, _>>()?;
    for threads in CALLERS {
        let speed = median(|| {
            callers(
                threads,
                || Ok(()),
                |(), query| ask(&single[query % single.len()]).map_err(|error| error.to_string()),
            )
        })?;
        print(target, &format!("{threads} threads"), speed, batch.per_second);
    }
    Ok(())
}

/// The speed of one batch of the target that is being measured, in queries a second.
static BATCH: AtomicUsize = AtomicUsize::new(1);

/// Measures connections with one query each.
fn served(target: &str, path: &str, queries: &VectorFile, folder: &Path) -> Result<(), Box<dyn Error>> {
    let keys = folder.join("keys.toml");
    let listen = "127.0.0.1:0".parse()?;
    let server = Server::start(ServerOptions { listen, ..ServerOptions::new(folder.join("data"), &keys) })?;
    let secret = Keys::read(&keys)?.keys[0].secret.clone();
    let mut vector = vec![0.0; queries.dim()];
    let requests: Vec<Vec<u8>> = (0..queries.count())
        .map(|query| {
            to_f32(queries.element(), queries.row(query), &mut vector);
            let body = format!("{{\"vector\":{vector:?},\"k\":10,\"recall\":0.95}}");
            let length = body.len();
            let head = format!(
                "POST /v1/{path}/search HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            (head + &body).into_bytes()
        })
        .collect();
    let address = server.address();
    let batch = BATCH.load(Ordering::Relaxed) as f64;
    for connections in CALLERS {
        let speed = median(|| {
            callers(
                connections,
                || connect(address),
                |stream, query| exchange(stream, &requests[query % requests.len()]),
            )
        })?;
        print(target, &format!("{connections} connections"), speed, batch);
    }
    Ok(())
}

fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Sends a request and reads its answer.
fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<(), String> {
    stream.write_all(request).map_err(|error| error.to_string())?;
    let mut answer = vec![0; 16 << 10];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut answer[filled..]).map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("the server has closed the connection".into());
        }
        filled += read;
        let text = String::from_utf8_lossy(&answer[..filled]);
        let Some(body) = text.find("\r\n\r\n") else { continue };
        if !text.starts_with("HTTP/1.1 200") {
            return Err(text.into_owned());
        }
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.parse().ok()).ok_or("no length")?;
        if filled == answer.len() {
            answer.resize(2 * filled, 0);
        }
        if filled >= body + 4 + length {
            return Ok(());
        }
    }
}

/// Lets `count` threads ask one after the other, and returns their speed.
fn callers<C>(
    count: usize,
    begin: impl Fn() -> Result<C, String> + Sync,
    ask: impl Fn(&mut C, usize) -> Result<(), String> + Sync,
) -> Result<Speed, String> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let results: Vec<Result<Vec<Duration>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    let (mut caller, mut times) = (begin()?, Vec::new());
                    while began.elapsed().as_secs_f64() < SECONDS {
                        let asked = Instant::now();
                        ask(&mut caller, next.fetch_add(1, Ordering::Relaxed))?;
                        times.push(asked.elapsed());
                    }
                    Ok(times)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("panicked".into()))).collect()
    });
    let mut times = Vec::new();
    for result in results {
        times.extend(result?);
    }
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_unstable();
    let quantile = |share: f64| times[((times.len() as f64 * share) as usize).min(times.len() - 1)];
    Ok(Speed { per_second, p50: quantile(0.5), p99: quantile(0.99) })
}

/// Returns the median of several measurements.
fn median(measure: impl Fn() -> Result<Speed, String>) -> Result<Speed, Box<dyn Error>> {
    let mut speeds = (0..REPEATS).map(|_| measure()).collect::<Result<Vec<_>, _>>()?;
    speeds.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    Ok(speeds[REPEATS / 2])
}
