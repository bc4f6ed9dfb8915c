//! A proxy in front of the server that injects planned faults. It passes complete requests and responses, one
//! at a time per connection.

use socket2::SockRef;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A fault of one request.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The proxy responds with this status and error code, without forwarding the request.
    Respond(u16, &'static str),
    /// The connection is reset without forwarding the request.
    Reset,
    /// The server handles the request, and its response is lost.
    LoseResponse,
    /// The connection is reset in the middle of the response's body.
    ResetInBody,
    /// The connection ends before the body does.
    EndEarly,
    /// The body has one byte more than it should.
    Longer,
    /// The body has one byte less than it should, and the header says so.
    Shorter,
    /// The response is for a range that begins and ends one byte later.
    OtherRange,
    /// The response is delayed by this time.
    Delay(Duration),
    /// There is no response until [`Proxy::release`] ends the connection. The request is not forwarded.
    NoResponse,
}

/// The head of a request.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// Path and query.
    pub target: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.target.contains(part)
    }

    /// Returns the number of the part that it uploads.
    pub fn part(&self) -> Option<u32> {
        let (_, query) = self.target.split_once('?')?;
        let number = query.split('&').find_map(|pair| pair.strip_prefix("partNumber="))?;
        (self.method == "PUT").then(|| number.parse().unwrap())
    }
}

type When = Box<dyn Fn(&Request) -> bool + Send>;

struct Plan {
    when: When,
    faults: VecDeque<Fault>,
    /// True if the fault is repeated for every matching request.
    forever: bool,
}

#[derive(Default)]
struct State {
    plans: Vec<Plan>,
    seen: Vec<Request>,
    released: bool,
}

struct Shared {
    server: String,
    state: Mutex<State>,
    changed: Condvar,
}

/// A proxy that listens until the process ends.
pub struct Proxy {
    pub endpoint: String,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy to the server at `endpoint`, without TLS.
    pub fn new(endpoint: &str) -> Proxy {
        let server =
            endpoint.strip_prefix("http://").expect("a proxy can read only unencrypted requests").to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { server, state: Mutex::default(), changed: Condvar::new() });
        let shared_by_all = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared_by_all.clone();
                // Errors of connections are ignored: most of them are planned.
                std::thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        Proxy { endpoint, shared }
    }

    /// Injects one of `faults`, in turn, into each of the next requests for which `when` is true.
    pub fn plan(&self, when: impl Fn(&Request) -> bool + Send + 'static, faults: &[Fault]) {
        self.add(when, faults, false);
    }

    /// Injects `fault` into every request for which `when` is true.
    pub fn always(&self, when: impl Fn(&Request) -> bool + Send + 'static, fault: Fault) {
        self.add(when, &[fault], true);
    }

    fn add(&self, when: impl Fn(&Request) -> bool + Send + 'static, faults: &[Fault], forever: bool) {
        let plan = Plan { when: Box::new(when), faults: faults.iter().copied().collect(), forever };
        self.shared.state.lock().unwrap().plans.push(plan);
    }

    /// Ends all faults. Returns the number of planned faults that were not reached.
    pub fn release(&self) -> usize {
        let mut state = self.shared.state.lock().unwrap();
        state.released = true;
        self.shared.changed.notify_all();
        let plans = std::mem::take(&mut state.plans);
        plans.iter().filter(|plan| !plan.forever).map(|plan| plan.faults.len()).sum()
    }

    /// Returns the requests since the last call.
    pub fn seen(&self) -> Vec<Request> {
        std::mem::take(&mut self.shared.state.lock().unwrap().seen)
    }

    /// Waits until `n` requests for which `when` is true have been received.
    pub fn wait_for(&self, n: usize, when: impl Fn(&Request) -> bool) {
        let limit = Duration::from_secs(60);
        let state = self.shared.state.lock().unwrap();
        let few = |state: &mut State| state.seen.iter().filter(|request| when(request)).count() < n;
        let (state, waited) = self.shared.changed.wait_timeout_while(state, limit, few).unwrap();
        assert!(!waited.timed_out(), "{:?}", state.seen);
    }
}

/// Reads the first line and the headers of a message, up to its body.
fn read_head(stream: &mut impl BufRead) -> Result<(String, Vec<(String, String)>)> {
    let mut line = || {
        let mut line = String::new();
        match stream.read_line(&mut line)? {
            0 => Err(Error::from(ErrorKind::UnexpectedEof)),
            _ => Ok(line.trim_end().to_owned()),
        }
    };
    let (first, mut headers) = (line()?, Vec::new());
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(':') else { return Ok((first, headers)) };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

fn read_body(stream: &mut impl BufRead, headers: &[(String, String)]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    if header(headers, "transfer-encoding").is_some_and(|how| how.eq_ignore_ascii_case("chunked")) {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let len = u64::from_str_radix(line.trim(), 16).map_err(Error::other)?;
            stream.take(len).read_to_end(&mut body)?;
            stream.read_line(&mut line)?;
            if len == 0 {
                return Ok(body);
            }
        }
    }
    let len = header(headers, "content-length").map_or(0, |len| len.parse().unwrap());
    body.resize(len, 0);
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// Writes a head and a body; `len` is the length in the head, which may differ from the body's.
fn write(
    stream: &mut TcpStream,
    first: &str,
    headers: &[(String, String)],
    body: &[u8],
    len: usize,
) -> Result<()> {
    let mut head = format!("{first}\r\n");
    for (name, value) in headers {
        let is_replaced = ["content-length", "transfer-encoding"]
            .iter()
            .any(|replaced| name.eq_ignore_ascii_case(replaced));
        if !is_replaced {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str(&format!("Content-Length: {len}\r\n\r\n"));
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()
}

/// Resets the connection, which the client sees as an error.
fn reset(stream: &TcpStream) -> Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    Err(ErrorKind::ConnectionReset.into())
}

struct Response {
    first: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// The length in the head, which exceeds that of `body` for a response without a body, as to HEAD.
    len: usize,
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (first, headers) = read_head(&mut reader)?;
            let body = read_body(&mut reader, &headers)?;
            let mut words = first.split(' ').map(str::to_owned);
            let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let request = Request { method, target, headers };
            match self.fault(&request) {
                None => {
                    let response = self.forward(&first, &request, &body)?;
                    write(&mut stream, &response.first, &response.headers, &response.body, response.len)?;
                }
                Some(Fault::NoResponse) => {
                    let state = self.state.lock().unwrap();
                    drop(self.changed.wait_while(state, |state| !state.released).unwrap());
                    return reset(&stream);
                }
                Some(Fault::Reset) => return reset(&stream),
                Some(Fault::Respond(status, code)) => {
                    let text = format!("<Error><Code>{code}</Code><Message>As planned.</Message></Error>");
                    let body = if request.method == "HEAD" { "" } else { text.as_str() };
                    let headers = [("ETag".to_owned(), "\"planned\"".to_owned())];
                    write(
                        &mut stream,
                        &format!("HTTP/1.1 {status} X"),
                        &headers,
                        body.as_bytes(),
                        body.len(),
                    )?;
                }
                Some(other) => {
                    let response = self.forward(&first, &request, &body)?;
                    tamper(&mut stream, response, other)?;
                }
            }
        }
    }

    fn fault(&self, request: &Request) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        state.seen.push(request.clone());
        self.changed.notify_all();
        let plan = state.plans.iter_mut().find(|plan| !plan.faults.is_empty() && (plan.when)(request))?;
        if plan.forever { plan.faults.front().copied() } else { plan.faults.pop_front() }
    }

    fn forward(&self, first: &str, request: &Request, body: &[u8]) -> Result<Response> {
        let mut server = TcpStream::connect(&self.server)?;
        server.set_nodelay(true)?;
        write(&mut server, first, &request.headers, body, body.len())?;
        let mut reader = BufReader::new(server);
        let (first, headers) = read_head(&mut reader)?;
        let has_no_body = request.method == "HEAD" || first.contains(" 204 ") || first.contains(" 304 ");
        let body = if has_no_body { Vec::new() } else { read_body(&mut reader, &headers)? };
        let stated_len = header(&headers, "content-length").and_then(|len| len.parse().ok());
        let len = if has_no_body { stated_len.unwrap_or(0) } else { body.len() };
        Ok(Response { first, headers, body, len })
    }
}

fn tamper(stream: &mut TcpStream, mut response: Response, fault: Fault) -> Result<()> {
    let half = response.body.len() / 2;
    match fault {
        Fault::LoseResponse => return reset(stream),
        Fault::ResetInBody | Fault::EndEarly => {
            write(stream, &response.first, &response.headers, &response.body[..half], response.len)?;
            // The bytes sent must arrive before the connection ends.
            std::thread::sleep(Duration::from_millis(20));
            return match fault {
                Fault::EndEarly => Err(ErrorKind::UnexpectedEof.into()),
                _ => reset(stream),
            };
        }
        Fault::Longer => response.body.push(0xEE),
        Fault::Shorter => drop(response.body.pop()),
        Fault::OtherRange => {
            for (name, value) in &mut response.headers {
                if name.eq_ignore_ascii_case("content-range") {
                    *value = shift_range(value);
                }
            }
        }
        Fault::Delay(time) => std::thread::sleep(time),
        Fault::Respond(..) | Fault::Reset | Fault::NoResponse => unreachable!("the server was asked"),
    }
    write(stream, &response.first, &response.headers, &response.body, response.body.len())
}

/// Changes `bytes 10-19/100` to `bytes 11-20/100`.
fn shift_range(range: &str) -> String {
    let (span, len) = range.trim_start_matches("bytes ").split_once('/').unwrap();
    let (from, to) = span.split_once('-').unwrap();
    let [from, to] = [from, to].map(|text| text.parse::<u64>().unwrap() + 1);
    format!("bytes {from}-{to}/{len}")
}
