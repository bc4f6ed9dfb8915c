//! A way to the server on which things go wrong as planned. Requests and answers pass whole, one at a time a connection.

use socket2::SockRef;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// This is answered, and the server is not asked.
    Says(u16, &'static str),
    /// The connection is reset, and the server is not asked.
    Reset,
    /// The server does it, and its answer is lost.
    LosesAnswer,
    /// The connection is reset in the middle of the answer's body.
    ResetInBody,
    /// The connection ends before the body does.
    EndsEarly,
    /// The body has one byte more than it should.
    Longer,
    /// The body has one byte less than it should, and says so.
    Shorter,
    /// The answer is about a range one byte further on.
    OtherRange,
    /// The answer comes so much later.
    Late(Duration),
    /// No answer, until [`Proxy::release`] ends the connection. The server is not asked.
    Held,
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

    /// The number of the part that it brings.
    pub fn part(&self) -> Option<u32> {
        let (_, query) = self.target.split_once('?')?;
        let number = query.split('&').find_map(|pair| pair.strip_prefix("partNumber="))?;
        (self.method == "PUT").then(|| number.parse().unwrap())
    }
}

type When = Box<dyn Fn(&Request) -> bool + Send>;

struct Plan {
    when: When,
    troubles: VecDeque<Trouble>,
    /// Whether the last of them stays.
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

/// Listens until the process ends.
pub struct Proxy {
    pub endpoint: String,
    shared: Arc<Shared>,
}

impl Proxy {
    /// To the server at `endpoint`, without TLS.
    pub fn new(endpoint: &str) -> Proxy {
        let server = endpoint.strip_prefix("http://").expect("a proxy reads what is sent").to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { server, state: Mutex::default(), changed: Condvar::new() });
        let of_all = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = of_all.clone();
                // A connection that ends is what is wanted of most of them.
                std::thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        Proxy { endpoint, shared }
    }

    /// One of `troubles` for each of the next requests that `when` is true of, in turn.
    pub fn plan(&self, when: impl Fn(&Request) -> bool + Send + 'static, troubles: &[Trouble]) {
        self.add(when, troubles, false);
    }

    /// `trouble` for every request that `when` is true of.
    pub fn always(&self, when: impl Fn(&Request) -> bool + Send + 'static, trouble: Trouble) {
        self.add(when, &[trouble], true);
    }

    fn add(&self, when: impl Fn(&Request) -> bool + Send + 'static, troubles: &[Trouble], forever: bool) {
        let plan = Plan { when: Box::new(when), troubles: troubles.iter().copied().collect(), forever };
        self.shared.state.lock().unwrap().plans.push(plan);
    }

    /// Nothing goes wrong any more. Returns how much of what was planned did not happen.
    pub fn release(&self) -> usize {
        let mut state = self.shared.state.lock().unwrap();
        state.released = true;
        self.shared.changed.notify_all();
        let plans = std::mem::take(&mut state.plans);
        plans.iter().filter(|plan| !plan.forever).map(|plan| plan.troubles.len()).sum()
    }

    /// The requests so far, of which nobody is told again.
    pub fn seen(&self) -> Vec<Request> {
        std::mem::take(&mut self.shared.state.lock().unwrap().seen)
    }

    /// Waits until `n` requests came that `when` is true of.
    pub fn wait_for(&self, n: usize, when: impl Fn(&Request) -> bool) {
        let limit = Duration::from_secs(60);
        let state = self.shared.state.lock().unwrap();
        let few = |state: &mut State| state.seen.iter().filter(|request| when(request)).count() < n;
        let (state, waited) = self.shared.changed.wait_timeout_while(state, limit, few).unwrap();
        assert!(!waited.timed_out(), "{:?}", state.seen);
    }
}

/// The first line, the other lines, and where the body begins.
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

/// A head and a body, of a length that need not be the body's.
fn write(
    stream: &mut TcpStream,
    first: &str,
    headers: &[(String, String)],
    body: &[u8],
    len: usize,
) -> Result<()> {
    let mut head = format!("{first}\r\n");
    for (name, value) in headers {
        let ours = ["content-length", "transfer-encoding"].iter().any(|own| name.eq_ignore_ascii_case(own));
        if !ours {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str(&format!("Content-Length: {len}\r\n\r\n"));
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()
}

/// Ends the connection so that the other side is told that something is wrong.
fn reset(stream: &TcpStream) -> Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    Err(ErrorKind::ConnectionReset.into())
}

struct Answer {
    first: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// What the head says; more than there is where a body is only spoken of.
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
            match self.trouble(&request) {
                None => {
                    let answer = self.ask(&first, &request, &body)?;
                    write(&mut stream, &answer.first, &answer.headers, &answer.body, answer.len)?;
                }
                Some(Trouble::Held) => {
                    let state = self.state.lock().unwrap();
                    drop(self.changed.wait_while(state, |state| !state.released).unwrap());
                    return reset(&stream);
                }
                Some(Trouble::Reset) => return reset(&stream),
                Some(Trouble::Says(status, code)) => {
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
                    let answer = self.ask(&first, &request, &body)?;
                    tamper(&mut stream, answer, other)?;
                }
            }
        }
    }

    fn trouble(&self, request: &Request) -> Option<Trouble> {
        let mut state = self.state.lock().unwrap();
        state.seen.push(request.clone());
        self.changed.notify_all();
        let plan = state.plans.iter_mut().find(|plan| !plan.troubles.is_empty() && (plan.when)(request))?;
        if plan.forever { plan.troubles.front().copied() } else { plan.troubles.pop_front() }
    }

    fn ask(&self, first: &str, request: &Request, body: &[u8]) -> Result<Answer> {
        let mut server = TcpStream::connect(&self.server)?;
        server.set_nodelay(true)?;
        write(&mut server, first, &request.headers, body, body.len())?;
        let mut reader = BufReader::new(server);
        let (first, headers) = read_head(&mut reader)?;
        let none = request.method == "HEAD" || first.contains(" 204 ") || first.contains(" 304 ");
        let body = if none { Vec::new() } else { read_body(&mut reader, &headers)? };
        let told = header(&headers, "content-length").and_then(|len| len.parse().ok());
        let len = if none { told.unwrap_or(0) } else { body.len() };
        Ok(Answer { first, headers, body, len })
    }
}

fn tamper(stream: &mut TcpStream, mut answer: Answer, trouble: Trouble) -> Result<()> {
    let half = answer.body.len() / 2;
    match trouble {
        Trouble::LosesAnswer => return reset(stream),
        Trouble::ResetInBody | Trouble::EndsEarly => {
            write(stream, &answer.first, &answer.headers, &answer.body[..half], answer.len)?;
            // What was sent is to arrive before the connection ends.
            std::thread::sleep(Duration::from_millis(20));
            return match trouble {
                Trouble::EndsEarly => Err(ErrorKind::UnexpectedEof.into()),
                _ => reset(stream),
            };
        }
        Trouble::Longer => answer.body.push(0xEE),
        Trouble::Shorter => drop(answer.body.pop()),
        Trouble::OtherRange => {
            for (name, value) in &mut answer.headers {
                if name.eq_ignore_ascii_case("content-range") {
                    *value = further_on(value);
                }
            }
        }
        Trouble::Late(time) => std::thread::sleep(time),
        Trouble::Says(..) | Trouble::Reset | Trouble::Held => unreachable!("the server was asked"),
    }
    write(stream, &answer.first, &answer.headers, &answer.body, answer.body.len())
}

/// `bytes 10-19/100` as `bytes 11-20/100`.
fn further_on(range: &str) -> String {
    let (span, len) = range.trim_start_matches("bytes ").split_once('/').unwrap();
    let (from, to) = span.split_once('-').unwrap();
    let [from, to] = [from, to].map(|text| text.parse::<u64>().unwrap() + 1);
    format!("bytes {from}-{to}/{len}")
}
