//! Sends requests to an HTTP server over a number of connections, each one request at a time, and measures
//! how fast it answers. The same client measures all compared servers.

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes for the head of an answer and a small body, before more are allocated.
const ANSWER_BYTES: usize = 16 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct LoadArguments {
    /// Address of the server, such as 127.0.0.1:7700
    #[arg(long)]
    address: SocketAddr,
    /// Requests, one JSON object a line: `path` and `body` of a POST with JSON
    #[arg(long)]
    requests: PathBuf,
    /// Header of every request, such as "Authorization: Bearer KEY"
    #[arg(long = "header")]
    headers: Vec<String>,
    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    connections: Vec<usize>,
    /// Seconds of a measurement
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measurements of each number of connections, of which the median counts
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Send every request once over one connection instead, and write the bodies of the answers, one a line
    #[arg(long)]
    answers: Option<PathBuf>,
}

/// A request of the file.
#[derive(Deserialize)]
struct GivenRequest {
    path: String,
    body: String,
}

/// The speed with a number of connections.
#[derive(Serialize)]
struct Speed {
    connections: usize,
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Runs the measurement, and prints its numbers as a line of JSON.
pub(crate) fn run(arguments: &LoadArguments) -> Result<bool, Box<dyn Error>> {
    let headers: String = arguments.headers.iter().map(|header| format!("{header}\r\n")).collect();
    let requests = BufReader::new(std::fs::File::open(&arguments.requests)?)
        .lines()
        .map(|line| {
            let GivenRequest { path, body } = serde_json::from_str(&line?)?;
            let length = body.len();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Type: application/json\r\n\
                 Content-Length: {length}\r\n\r\n",
                arguments.address
            );
            Ok((head + &body).into_bytes())
        })
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    if requests.is_empty() {
        return Err(format!("{}: there are no requests", arguments.requests.display()).into());
    }
    if let Some(path) = &arguments.answers {
        let (mut connection, mut file) = (Connection::to(arguments.address)?, std::fs::File::create(path)?);
        for request in &requests {
            file.write_all(&connection.exchange(request)?)?;
            file.write_all(b"\n")?;
        }
        return Ok(true);
    }
    for connections in &arguments.connections {
        let mut speeds = (0..arguments.repeats.max(1))
            .map(|_| measure(arguments, *connections, &requests))
            .collect::<Result<Vec<_>, _>>()?;
        speeds.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        println!("{}", serde_json::to_string(&speeds[speeds.len() / 2])?);
    }
    Ok(true)
}

/// Keeps `connections` busy for the time of a measurement.
fn measure(arguments: &LoadArguments, connections: usize, requests: &[Vec<u8>]) -> Result<Speed, String> {
    let next = AtomicUsize::new(0);
    let opened = (0..connections)
        .map(|_| Connection::to(arguments.address))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    let began = Instant::now();
    let ask = |mut connection: Connection| {
        let mut times = Vec::new();
        while began.elapsed().as_secs_f64() < arguments.seconds {
            let asked = Instant::now();
            let request = next.fetch_add(1, Ordering::Relaxed) % requests.len();
            connection.exchange(&requests[request]).map_err(|error| error.to_string())?;
            times.push(asked.elapsed());
        }
        Ok::<_, String>(times)
    };
    let mut times = std::thread::scope(|scope| {
        let ask = &ask;
        let threads: Vec<_> =
            opened.into_iter().map(|connection| scope.spawn(move || ask(connection))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))?);
        }
        Ok::<_, String>(all)
    })?;
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_unstable();
    let us =
        |share: f64| times[((times.len() as f64 * share) as usize).min(times.len() - 1)].as_secs_f64() * 1e6;
    Ok(Speed { connections, per_second, p50_us: us(0.5), p99_us: us(0.99) })
}

/// A connection that stays open.
struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    fn to(address: SocketAddr) -> Result<Connection, std::io::Error> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, answer: vec![0; ANSWER_BYTES] })
    }

    /// Sends a request, and returns the body of its answer, which has to be a success and name its length.
    fn exchange(&mut self, request: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
        self.stream.write_all(request)?;
        let mut filled = 0;
        loop {
            if filled == self.answer.len() {
                self.answer.resize(2 * filled, 0);
            }
            let read = self.stream.read(&mut self.answer[filled..])?;
            if read == 0 {
                return Err("the server has closed the connection".into());
            }
            filled += read;
            let Some((begin, length)) = body_of(&self.answer[..filled])? else { continue };
            if filled >= begin + length {
                return Ok(self.answer[begin..begin + length].to_vec());
            }
        }
    }
}

/// Returns where the body of an answer begins, and its length; `None` before the end of the head.
fn body_of(answer: &[u8]) -> Result<Option<(usize, usize)>, Box<dyn Error>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end])?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(answer).into());
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    let length = length.ok_or_else(|| format!("the answer does not name its length: {head}"))??;
    Ok(Some((end + 4, length)))
}
