//! Emulates a remote object store for programs that cannot emulate one themselves: relays HTTP to a real
//! server, delays the responses to reads by a [`Shaper`], and counts them. All compared systems use the same
//! relay.

use bathyal_object::{Shaper, Shaping};
use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Longest head in bytes.
const LONGEST_HEAD: usize = 64 << 10;
/// Bytes relayed per copy.
const PIECE_BYTES: u64 = 64 << 10;
/// Path of the counts; a request for it also resets them.
const COUNTS: &str = "/-/counts";
const SLOW_DOWN: &str =
    "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Emulated</Message></Error>";

#[derive(Debug, Args)]
pub struct RelayArguments {
    /// Address to listen at
    #[arg(long, default_value = "127.0.0.1:9100")]
    listen: SocketAddr,
    /// The real server
    #[arg(long, default_value = "127.0.0.1:8333")]
    upstream: SocketAddr,
    /// Store to emulate: paper, s3, s3-express, rack
    #[arg(long, default_value = "paper")]
    store: String,
    /// Seed of the delays and of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One of this many reads fails (0: none): 503, 500, a connection that ends before the response or in its
    /// body, or a response that is two seconds late
    #[arg(long, default_value_t = 0)]
    faults: u32,
    /// Folder in which the server keeps its buckets as folders and objects as files (as versitygw does with
    /// `posix`): after the first read of an object the relay reads from there, so that the server is not the
    /// bottleneck
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Delay of a late response.
const LATE: Duration = Duration::from_secs(2);

/// A fault of a read.
#[derive(Debug, Clone, Copy)]
enum Fault {
    SlowDown,
    ServerError,
    Disconnect,
    DisconnectInBody,
    Late,
}

const FAULTS: [Fault; 5] =
    [Fault::SlowDown, Fault::ServerError, Fault::Disconnect, Fault::DisconnectInBody, Fault::Late];

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    refused: AtomicU64,
    writes: AtomicU64,
    faults: AtomicU64,
}

struct Relay {
    shaper: Shaper,
    /// One of this many reads fails; 0 means none.
    faults: u32,
    random: Mutex<SmallRng>,
    upstream: SocketAddr,
    counts: Counts,
    folder: Option<PathBuf>,
    /// Contents of objects that were read before, by path.
    objects: Mutex<HashMap<String, Arc<CachedObject>>>,
}

pub fn run(arguments: &RelayArguments) -> Result<bool, Box<dyn Error>> {
    let shaper = Shaper::new(Shaping::named(&arguments.store)?, arguments.seed);
    let relay = Arc::new(Relay {
        shaper,
        faults: arguments.faults,
        random: Mutex::new(SmallRng::seed_from_u64(arguments.seed)),
        upstream: arguments.upstream,
        counts: Counts::default(),
        folder: arguments.folder.clone(),
        objects: Mutex::default(),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (listen, store) = (arguments.listen, &arguments.store);
    runtime.block_on(async move {
        let listener = TcpListener::bind(listen).await?;
        println!("emulating {store} on http://{listen}; counts are at http://{listen}{COUNTS}");
        loop {
            let (client, _) = listener.accept().await?;
            let relay = relay.clone();
            tokio::spawn(async move {
                // A broken connection is an error for its client, not for the relay.
                let _ = relay.serve(client).await;
            });
        }
    })
}

/// The contents and the headers of an object.
struct CachedObject {
    bytes: Vec<u8>,
    etag: String,
    modified: String,
}

/// The head of a request or a response.
struct Head {
    text: String,
}

impl Head {
    /// Reads a head. Returns `None` if the connection ends before it.
    async fn read(from: &mut BufReader<TcpStream>) -> io::Result<Option<Head>> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            if from.read_until(b'\n', &mut bytes).await? == 0 || bytes.len() > LONGEST_HEAD {
                return if bytes.is_empty() {
                    Ok(None)
                } else {
                    Err(broken("a head is too long or incomplete"))
                };
            }
        }
        let text = String::from_utf8(bytes).map_err(|_| broken("a head is not UTF-8"))?;
        Ok(Some(Head { text }))
    }

    fn word(&self, position: usize) -> &str {
        self.text.split_whitespace().nth(position).unwrap_or_default()
    }

    fn value(&self, name: &str) -> Option<&str> {
        let lines = self.text.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn is_read(&self) -> bool {
        matches!(self.word(0), "GET" | "HEAD")
    }

    fn length(&self) -> u64 {
        self.value("content-length").and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// Returns the first and the last requested byte of an object of `length` bytes.
    fn range(&self, length: usize) -> Option<(usize, usize)> {
        let (from, to) = self.value("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let from: usize = from.parse().ok()?;
        let to = if to.is_empty() { usize::MAX } else { to.parse().ok()? };
        (from < length && from <= to).then(|| (from, to.min(length - 1)))
    }

    fn is_chunked(&self) -> bool {
        self.value("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Relay {
    async fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let server = TcpStream::connect(self.upstream).await?;
        server.set_nodelay(true)?;
        let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
        while let Some(request) = Head::read(&mut client).await? {
            if request.word(1) == COUNTS {
                self.send_counts(&mut client).await?;
                continue;
            }
            let is_read = request.is_read();
            if is_read && self.shaper.first_byte().await.is_err() {
                self.counts.refused.fetch_add(1, Relaxed);
                respond(&mut client, "503 Slow Down", "application/xml", SLOW_DOWN).await?;
                continue;
            }
            let fault = if is_read { self.fault() } else { None };
            match fault {
                Some(Fault::SlowDown) => {
                    respond(&mut client, "503 Slow Down", "application/xml", SLOW_DOWN).await?;
                    continue;
                }
                Some(Fault::ServerError) => {
                    respond(&mut client, "500 Internal Server Error", "application/xml", "<Error/>").await?;
                    continue;
                }
                Some(Fault::Disconnect) => return Ok(()),
                Some(Fault::Late) => sleep(LATE).await,
                Some(Fault::DisconnectInBody) | None => {}
            }
            if fault.is_none() && self.respond_from_folder(&request, &mut client).await? {
                continue;
            }
            server.write_all(request.text.as_bytes()).await?;
            copy(&mut client, &mut server, request.length()).await?;
            if !self.relay_response(&request, &mut server, &mut client, fault).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Draws the fault of the next read, if it has one.
    fn fault(&self) -> Option<Fault> {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if self.faults == 0 || !random.random_ratio(1, self.faults) {
            return None;
        }
        self.counts.faults.fetch_add(1, Relaxed);
        FAULTS.get(random.random_range(0..FAULTS.len())).copied()
    }

    /// Relays one response. Returns `false` if the connection ends after it.
    async fn relay_response(
        &self,
        request: &Head,
        server: &mut BufReader<TcpStream>,
        client: &mut BufReader<TcpStream>,
        fault: Option<Fault>,
    ) -> io::Result<bool> {
        let Some(head) = Head::read(server).await? else { return Err(broken("no response")) };
        let bodiless = request.word(0) == "HEAD" || matches!(head.word(1), "204" | "304");
        let length = if bodiless { 0 } else { head.length() };
        if request.is_read() {
            self.counts.reads.fetch_add(1, Relaxed);
            self.counts.read_bytes.fetch_add(length, Relaxed);
            self.shaper.transfer(length).await;
        } else {
            self.counts.writes.fetch_add(1, Relaxed);
        }
        self.cache_object(request, &head);
        client.write_all(head.text.as_bytes()).await?;
        if matches!(fault, Some(Fault::DisconnectInBody)) {
            copy(server, client, length / 2).await?;
            return Ok(false);
        }
        match !bodiless && head.is_chunked() {
            true => copy_chunks(server, client).await?,
            false => copy(server, client, length).await?,
        }
        client.flush().await?;
        Ok(!head.value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")))
    }

    /// Responds to a ranged read of an object that was read before. Returns `false` if the server must
    /// respond.
    async fn respond_from_folder(
        &self,
        request: &Head,
        client: &mut BufReader<TcpStream>,
    ) -> io::Result<bool> {
        let object =
            self.objects.lock().unwrap_or_else(PoisonError::into_inner).get(request.word(1)).cloned();
        let Some(object) = object.filter(|_| request.word(0) == "GET") else { return Ok(false) };
        let matches = request.value("if-match").is_none_or(|etag| etag == object.etag);
        let Some((from, to)) = request.range(object.bytes.len()).filter(|_| matches) else {
            return Ok(false);
        };
        let (part, all) = (&object.bytes[from..=to], object.bytes.len());
        self.counts.reads.fetch_add(1, Relaxed);
        self.counts.read_bytes.fetch_add(part.len() as u64, Relaxed);
        self.shaper.transfer(part.len() as u64).await;
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{to}/{all}\r\n\
             ETag: {}\r\nLast-Modified: {}\r\nContent-Type: application/octet-stream\r\n\
             Accept-Ranges: bytes\r\n\r\n",
            part.len(),
            object.etag,
            object.modified
        );
        client.write_all(head.as_bytes()).await?;
        client.write_all(part).await?;
        client.flush().await?;
        Ok(true)
    }

    /// Caches an object of which the server has just sent a part, if the folder has it.
    fn cache_object(&self, request: &Head, response: &Head) {
        let Some(folder) = self.folder.as_ref().filter(|_| response.word(1) == "206") else { return };
        let path = request.word(1);
        let all =
            response.value("content-range").and_then(|range| range.rsplit_once('/')).map(|(_, all)| all);
        let (Some(etag), Some(modified)) = (response.value("etag"), response.value("last-modified")) else {
            return;
        };
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if objects.contains_key(path) {
            return;
        }
        // The server responds to paths with other characters.
        let plain = |c: char| c.is_ascii_alphanumeric() || "/.-_=".contains(c);
        if !path.chars().all(plain) || path.contains("..") {
            return;
        }
        let Ok(bytes) = std::fs::read(folder.join(path.trim_start_matches('/'))) else { return };
        if all == Some(bytes.len().to_string().as_str()) {
            let (etag, modified) = (etag.to_owned(), modified.to_owned());
            objects.insert(path.to_owned(), Arc::new(CachedObject { bytes, etag, modified }));
        }
    }

    async fn send_counts(&self, client: &mut BufReader<TcpStream>) -> io::Result<()> {
        let take = |count: &AtomicU64| count.swap(0, Relaxed);
        let Counts { reads, read_bytes, refused, writes, faults } = &self.counts;
        let counts = serde_json::json!({
            "reads": take(reads), "read_bytes": take(read_bytes), "refused": take(refused),
            "writes": take(writes), "faults": take(faults),
        });
        respond(client, "200 OK", "application/json", &counts.to_string()).await
    }
}

async fn respond(client: &mut BufReader<TcpStream>, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}");
    client.write_all(text.as_bytes()).await?;
    client.flush().await
}

/// Relays `length` bytes.
async fn copy(from: &mut BufReader<TcpStream>, to: &mut BufReader<TcpStream>, length: u64) -> io::Result<()> {
    let mut piece = vec![0; length.min(PIECE_BYTES) as usize];
    let mut left = length;
    while left > 0 {
        let now = left.min(PIECE_BYTES) as usize;
        from.read_exact(&mut piece[..now]).await?;
        to.write_all(&piece[..now]).await?;
        left -= now as u64;
    }
    to.flush().await
}

/// Relays a chunked body, up to the empty chunk and the trailers after it.
async fn copy_chunks(from: &mut BufReader<TcpStream>, to: &mut BufReader<TcpStream>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        from.read_line(&mut line).await?;
        to.write_all(line.as_bytes()).await?;
        let digits = line.trim().split(';').next().unwrap_or_default();
        let length = u64::from_str_radix(digits, 16).map_err(|_| broken("a chunk has no length"))?;
        // A line end follows each chunk.
        copy(from, to, length + if length > 0 { 2 } else { 0 }).await?;
        if length > 0 {
            continue;
        }
        let mut trailer = String::new();
        while trailer != "\r\n" {
            trailer.clear();
            if from.read_line(&mut trailer).await? == 0 {
                return Err(broken("a chunked body is incomplete"));
            }
            to.write_all(trailer.as_bytes()).await?;
        }
        return to.flush().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves ranges of `object` under any path, and counts the requests.
    async fn server(object: Arc<Vec<u8>>, requests: Arc<AtomicU64>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (object, requests) = (object.clone(), requests.clone());
                tokio::spawn(async move {
                    let mut client = BufReader::new(client);
                    while let Ok(Some(request)) = Head::read(&mut client).await {
                        requests.fetch_add(1, Relaxed);
                        let (from, to) = request.range(object.len()).expect("a range");
                        let head = format!(
                            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n\
                             Content-Range: bytes {from}-{to}/{}\r\n\
                             ETag: \"one\"\r\nLast-Modified: now\r\n\r\n",
                            to - from + 1,
                            object.len()
                        );
                        client.write_all(head.as_bytes()).await.expect("writes");
                        client.write_all(&object[from..=to]).await.expect("writes");
                        client.flush().await.expect("writes");
                    }
                });
            }
        });
        address
    }

    #[test]
    fn responses_from_a_folder_equal_those_of_the_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let object: Arc<Vec<u8>> = Arc::new((0..100_000_u32).map(|i| ((i * 7) >> 3) as u8).collect());
        std::fs::create_dir(folder.path().join("bucket")).expect("a folder");
        std::fs::write(folder.path().join("bucket/object"), &**object).expect("a file");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let requests = Arc::new(AtomicU64::new(0));
            let relay = Arc::new(Relay {
                shaper: Shaper::new(Shaping { first_byte_ms: 0.1, ..Shaping::RACK }, 1),
                faults: 0,
                random: Mutex::new(SmallRng::seed_from_u64(1)),
                upstream: server(object.clone(), requests.clone()).await,
                counts: Counts::default(),
                folder: Some(folder.path().to_path_buf()),
                objects: Mutex::default(),
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let serving = relay.clone();
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    let relay = serving.clone();
                    tokio::spawn(async move { relay.serve(client).await });
                }
            });
            let mut client = BufReader::new(TcpStream::connect(address).await.expect("connects"));
            let mut get = async |path: &str, range: &str, other: &str| {
                let request = format!("GET {path} HTTP/1.1\r\nRange: bytes={range}\r\n{other}\r\n");
                client.write_all(request.as_bytes()).await.expect("writes");
                client.flush().await.expect("writes");
                let head = Head::read(&mut client).await.expect("reads").expect("an answer");
                let mut body = vec![0; head.length() as usize];
                client.read_exact(&mut body).await.expect("reads");
                (head.word(1).to_owned(), head.value("content-range").map(str::to_owned), body)
            };
            for (range, from, to) in
                [("0-9", 0, 9), ("50000-60000", 50_000, 60_000), ("99990-", 99_990, 99_999)]
            {
                let (status, content_range, body) = get("/bucket/object", range, "").await;
                assert_eq!(
                    (status.as_str(), content_range),
                    ("206", Some(format!("bytes {from}-{to}/100000")))
                );
                assert!(body == object[from..=to], "{range}");
            }
            assert_eq!(requests.load(Relaxed), 1, "reads after the first come from the folder");
            // The server responds for another version, a missing object, and a path out of the folder.
            get("/bucket/object", "0-9", "If-Match: \"two\"\r\n").await;
            get("/bucket/other", "0-9", "").await;
            get("/bucket/../bucket/object", "0-9", "").await;
            get("/bucket/../bucket/object", "0-9", "").await;
            assert_eq!(requests.load(Relaxed), 5);
            assert_eq!(relay.counts.reads.load(Relaxed), 7);
        });
    }
}
