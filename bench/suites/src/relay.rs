//! An object store as slow as one that is far away, for programs that cannot be told to emulate one: relays HTTP to a real
//! server, lets answers to reads wait as [`Shaper`] says, and counts them. All systems that are compared go through one relay.

use bathyal_object::{Shaper, Shaping};
use clap::Args;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A head longer than this is none.
const LONGEST_HEAD: usize = 64 << 10;
/// Bytes that are relayed at once.
const PIECE_BYTES: u64 = 64 << 10;
/// Where the counts are asked for, which then begin anew.
const COUNTS: &str = "/-/counts";
const SLOW_DOWN: &str =
    "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Emulated</Message></Error>";

#[derive(Debug, Args)]
pub struct RelayArguments {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:9100")]
    listen: SocketAddr,
    /// The real server
    #[arg(long, default_value = "127.0.0.1:8333")]
    upstream: SocketAddr,
    /// What it is made to look like: paper, s3, s3-express, rack
    #[arg(long, default_value = "paper")]
    store: String,
    /// Seed of the delays
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    refused: AtomicU64,
    writes: AtomicU64,
}

struct Relay {
    shaper: Shaper,
    upstream: SocketAddr,
    counts: Counts,
}

pub fn run(arguments: &RelayArguments) -> Result<bool, Box<dyn Error>> {
    let shaper = Shaper::new(Shaping::named(&arguments.store)?, arguments.seed);
    let relay = Arc::new(Relay { shaper, upstream: arguments.upstream, counts: Counts::default() });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (listen, store) = (arguments.listen, &arguments.store);
    runtime.block_on(async move {
        let listener = TcpListener::bind(listen).await?;
        println!("emulating {store} on http://{listen}; counts are at http://{listen}{COUNTS}");
        loop {
            let (client, _) = listener.accept().await?;
            let relay = relay.clone();
            tokio::spawn(async move {
                // A connection that breaks is its client's to notice.
                let _ = relay.serve(client).await;
            });
        }
    })
}

/// The first lines of a request or an answer.
struct Head {
    text: String,
}

impl Head {
    /// Reads one; `None` where the connection ends before it.
    async fn read(from: &mut BufReader<TcpStream>) -> io::Result<Option<Head>> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            if from.read_until(b'\n', &mut bytes).await? == 0 || bytes.len() > LONGEST_HEAD {
                return if bytes.is_empty() { Ok(None) } else { Err(broken("a head that has no end")) };
            }
        }
        let text = String::from_utf8(bytes).map_err(|_| broken("a head that is no text"))?;
        Ok(Some(Head { text }))
    }

    fn word(&self, place: usize) -> &str {
        self.text.split_whitespace().nth(place).unwrap_or_default()
    }

    fn value(&self, name: &str) -> Option<&str> {
        let lines = self.text.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn length(&self) -> u64 {
        self.value("content-length").and_then(|value| value.parse().ok()).unwrap_or(0)
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
                self.tell(&mut client).await?;
                continue;
            }
            let reads = matches!(request.word(0), "GET" | "HEAD");
            if reads && self.shaper.first_byte().await.is_err() {
                self.counts.refused.fetch_add(1, Relaxed);
                answer(&mut client, "503 Slow Down", "application/xml", SLOW_DOWN).await?;
                continue;
            }
            server.write_all(request.text.as_bytes()).await?;
            copy(&mut client, &mut server, request.length()).await?;
            if !self.relay_answer(&request, &mut server, &mut client, reads).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Relays one answer; `false` if the server ends the connection after it.
    async fn relay_answer(
        &self,
        request: &Head,
        server: &mut BufReader<TcpStream>,
        client: &mut BufReader<TcpStream>,
        reads: bool,
    ) -> io::Result<bool> {
        let Some(head) = Head::read(server).await? else { return Err(broken("no answer")) };
        let bodiless = request.word(0) == "HEAD" || matches!(head.word(1), "204" | "304");
        let length = if bodiless { 0 } else { head.length() };
        if reads {
            self.counts.reads.fetch_add(1, Relaxed);
            self.counts.read_bytes.fetch_add(length, Relaxed);
            self.shaper.transfer(length).await;
        } else {
            self.counts.writes.fetch_add(1, Relaxed);
        }
        client.write_all(head.text.as_bytes()).await?;
        match !bodiless && head.is_chunked() {
            true => copy_chunks(server, client).await?,
            false => copy(server, client, length).await?,
        }
        client.flush().await?;
        Ok(!head.value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")))
    }

    async fn tell(&self, client: &mut BufReader<TcpStream>) -> io::Result<()> {
        let taken = |count: &AtomicU64| count.swap(0, Relaxed);
        let Counts { reads, read_bytes, refused, writes } = &self.counts;
        let counts = serde_json::json!({
            "reads": taken(reads), "read_bytes": taken(read_bytes), "refused": taken(refused), "writes": taken(writes),
        });
        answer(client, "200 OK", "application/json", &counts.to_string()).await
    }
}

async fn answer(client: &mut BufReader<TcpStream>, status: &str, kind: &str, body: &str) -> io::Result<()> {
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

/// Relays a body in chunks, up to the empty one and what follows it.
async fn copy_chunks(from: &mut BufReader<TcpStream>, to: &mut BufReader<TcpStream>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        from.read_line(&mut line).await?;
        to.write_all(line.as_bytes()).await?;
        let digits = line.trim().split(';').next().unwrap_or_default();
        let length = u64::from_str_radix(digits, 16).map_err(|_| broken("a chunk without a length"))?;
        // Each chunk ends a line.
        copy(from, to, length + if length > 0 { 2 } else { 0 }).await?;
        if length > 0 {
            continue;
        }
        let mut trailer = String::new();
        while trailer != "\r\n" {
            trailer.clear();
            if from.read_line(&mut trailer).await? == 0 {
                return Err(broken("chunks that have no end"));
            }
            to.write_all(trailer.as_bytes()).await?;
        }
        return to.flush().await;
    }
}
