//! Searches an index in an object store for a long time, through a relay that delays reads and makes some
//! fail, and compares every answer with that of the same index in a folder. Memory and open files must not
//! grow.

use bathyal_console::{Interrupt, StageProgress};
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::{
    BuildOptions, ClusterOptions, CopyOptions, Effort, FAR_BEAM_WIDTH, FamilyOptions, GraphOptions, Index,
    OpenOptions, SearchMode, SearchOptions, SpannOptions, StoreOptions, build, copy,
};
use bathyal_kernels::Metric;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Queries between two measurements of memory and open files.
const QUERIES_PER_ROUND: usize = 5_000;
/// Rounds until connections, buffers and the memory that the allocator retains are stable.
const SETTLING_ROUNDS: usize = 3;
/// Bytes by which memory may grow after that, since connections and their buffers come and go.
const GROWTH_BYTES: u64 = 24 << 20;
/// Number by which open files may grow, since the number of connections differs between rounds.
const GROWTH_FILES: u64 = 64;

#[derive(Debug, clap::Args)]
pub(crate) struct SoakArguments {
    /// Vectors (.fbin, .u8bin)
    #[arg(long)]
    base: PathBuf,
    /// Queries for these vectors
    #[arg(long)]
    queries: PathBuf,
    /// Folder in a bucket for the indexes, which are not deleted: s3://BUCKET/FOLDER
    #[arg(long)]
    address: String,
    /// Server of the store; credentials come from the environment
    #[arg(long, default_value = "127.0.0.1:8333")]
    upstream: SocketAddr,
    /// Families: cluster, graph, spann, lsh
    #[arg(long, value_delimiter = ',', default_value = "cluster,graph,spann,lsh")]
    families: Vec<String>,
    /// Queries of each family
    #[arg(long, default_value_t = 100_000)]
    count: usize,
    /// Store to emulate: paper, s3, s3-express, rack
    #[arg(long, default_value = "rack")]
    store: String,
    /// One of this many reads fails
    #[arg(long, default_value_t = 200)]
    faults: u32,
    /// Further option of the store, such as `cache_memory=64MB`
    #[arg(long = "store-option", value_name = "KEY=VALUE")]
    options: Vec<String>,
}

/// A relay in its own process, which is killed on drop.
struct Relay {
    process: Child,
    endpoint: String,
}

impl Relay {
    fn start(arguments: &SoakArguments) -> Result<Relay, Box<dyn Error>> {
        // The port was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let mut process = Command::new(std::env::current_exe()?)
            .args(["relay", "--listen", &listen, "--store", &arguments.store])
            .args(["--upstream", &arguments.upstream.to_string(), "--faults", &arguments.faults.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("the relay has no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            return Err("the relay did not start".into());
        }
        Ok(Relay { process, endpoint: format!("http://{listen}") })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn family(name: &str) -> Result<FamilyOptions, String> {
    Ok(match name {
        "cluster" => ClusterOptions::default().into(),
        "graph" => GraphOptions::default().into(),
        "spann" => SpannOptions::default().into(),
        "lsh" => LshOptions::default().into(),
        other => {
            return Err(format!(
                "--families: '{other}' is not a family; expected cluster, graph, spann or lsh"
            ));
        }
    })
}

/// Returns search options that find most neighbours in every family.
fn effort(name: &str) -> SearchOptions {
    let search_list = if name == "lsh" { 400 } else { 60 };
    SearchOptions {
        k: 10,
        effort: Effort::SearchList(search_list),
        beam_width: (name == "graph").then_some(FAR_BEAM_WIDTH),
        // Batched answers do not depend on the order in which reads complete.
        mode: matches!(name, "graph" | "spann").then_some(SearchMode::Batched),
        ..SearchOptions::default()
    }
}

pub(crate) fn run(arguments: &SoakArguments) -> Result<bool, Box<dyn Error>> {
    let base = VectorFile::open(&arguments.base)?;
    let queries = VectorFile::open(&arguments.queries)?;
    let relay = Relay::start(arguments)?;
    let server = format!("http://{}", arguments.upstream);
    let folder = tempfile::tempdir()?;
    println!("| family | queries | wrong | queries/s | retries | memory, MB | open files |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let mut passed = true;
    for name in &arguments.families {
        let local = folder.path().join(name);
        let options = BuildOptions { metric: Metric::L2, ..BuildOptions::of(family(name)?) };
        build(&base, &local, &options, &StageProgress::new(true, Interrupt::listen()))?;
        let address = format!("{}/soak-{name}", arguments.address.trim_end_matches('/'));
        let to = StoreOptions::new([("endpoint", server.as_str())])?;
        let copying = CopyOptions { to, overwrite: true, ..CopyOptions::default() };
        copy(&local, &address, &copying, &StageProgress::new(true, Interrupt::listen()))?;
        passed &= soak(arguments, name, &local, &address, &relay, &queries)?;
    }
    Ok(passed)
}

/// Searches one index with all queries.
fn soak(
    arguments: &SoakArguments,
    name: &str,
    local: &Path,
    address: &str,
    relay: &Relay,
    queries: &VectorFile,
) -> Result<bool, Box<dyn Error>> {
    let options = effort(name);
    let local_index = Index::open(local, &OpenOptions::default())?;
    let expected = local_index.search(queries, &options, Control::default())?;
    drop(local_index);
    let mut store = arguments.options.clone();
    store.push(format!("endpoint={}", relay.endpoint));
    let opening = OpenOptions { store: StoreOptions::parse(&store)?, ..OpenOptions::default() };
    let index = Index::open(address, &opening)?;
    let (mut done, mut wrong, mut rounds) = (0, 0, 0);
    let (mut settled, mut passed) = (None, true);
    while done < arguments.count {
        let (began, before) = (Instant::now(), index.requests().map_or(0, |requests| requests.retries));
        let mut searched = 0;
        while searched < QUERIES_PER_ROUND.min(arguments.count - done) {
            let found = index.search(queries, &options, Control::default())?;
            let pairs = found.ids.chunks(found.k).zip(expected.ids.chunks(expected.k));
            wrong += pairs.filter(|(found, expected)| found != expected).count();
            searched += queries.count();
        }
        done += searched;
        rounds += 1;
        let (memory, files) = (resident_bytes()?, std::fs::read_dir("/proc/self/fd")?.count() as u64);
        let retries = index.requests().map_or(0, |requests| requests.retries) - before;
        let speed = searched as f64 / began.elapsed().as_secs_f64();
        println!(
            "| {name} | {done} | {wrong} | {speed:.0} | {retries} | {:.1} | {files} |",
            memory as f64 / 1e6
        );
        if rounds == SETTLING_ROUNDS {
            settled = Some((memory, files));
        }
        if let Some((settled_memory, settled_files)) = settled
            && (memory > settled_memory + GROWTH_BYTES || files > settled_files + GROWTH_FILES)
        {
            eprintln!("{name}: memory or open files have grown");
            passed = false;
        }
    }
    Ok(passed && wrong == 0)
}

/// Returns the resident memory of this process in bytes.
fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    Ok(line.split_whitespace().next().ok_or("no number in VmRSS")?.parse::<u64>()? << 10)
}
