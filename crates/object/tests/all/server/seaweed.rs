//! SeaweedFS on the loopback, for as long as the tests run.

use crate::server::service::Service;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server answers within this time, on a slow machine too.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// A port that was free may be taken before the server has it.
const TRIES: usize = 3;
/// The port of the administration, which expects that of its other protocol so much higher.
const HIGHER: u16 = 10_000;
const BUCKET: &str = "bathyal";

/// Runs the server until nobody holds the other end of its input, and takes away its folder, and the sockets that it has
/// elsewhere whatever it is told. The end of a process closes that end, so that no server outlives the tests, not even those
/// that were killed. Nobody wants what it holds, so it is not asked to end well.
const WATCH: &str = r#"
folder=$1; shift
"$@" >"$folder/log" 2>&1 </dev/null &
server=$!
cat >/dev/null
kill -KILL $server
wait $server
rm -rf "$folder"
for argument; do
    case $argument in
    -*.port*=*) rm -f /tmp/seaweedfs-*-"${argument##*=}".sock ;;
    esac
done
"#;

/// The program, or where it was looked for.
pub fn program() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("BATHYAL_WEED").map(PathBuf::from) {
        let missing = format!("no SeaweedFS where BATHYAL_WEED names it: {}", named.display());
        return if named.is_file() { Ok(named) } else { Err(missing) };
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = workspace.join(".venv/bin/weed");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("weed"));
    std::iter::once(installed).chain(on_path).find(|program| program.is_file()).ok_or_else(|| {
        "no SeaweedFS: run `make install`, or name its program in BATHYAL_WEED; it is neither .venv/bin/weed nor `weed` on the \
         PATH"
            .into()
    })
}

/// A server that ends when this is dropped, or with the process.
#[derive(Debug)]
pub struct Running {
    watch: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

/// Starts the server, and waits until it answers.
pub fn start(program: &Path) -> (Service, Running) {
    for _ in 0..TRIES {
        if let Some(started) = try_start(program) {
            return started;
        }
    }
    panic!("{} did not answer on any of {TRIES} ports", program.display());
}

fn try_start(program: &Path) -> Option<(Service, Running)> {
    let ports = free_ports();
    let service = Service {
        endpoint: format!("http://127.0.0.1:{}", ports[0]),
        bucket: BUCKET.into(),
        region: "us-east-1".into(),
        access_key: "TESTERSKEYID".into(),
        // Told apart from everything else that is printed.
        secret: "TellNobody/Secret+5f1c7a".into(),
        folder: "tests".into(),
    };
    let folder = tempfile::tempdir_in(roomy_folder()).unwrap().keep();
    let log = folder.join("log");
    let watch = Command::new("sh")
        .args(["-c", WATCH, "sh"])
        .arg(&folder)
        .arg(program)
        .args(arguments(&folder, &ports))
        .env("AWS_ACCESS_KEY_ID", &service.access_key)
        .env("AWS_SECRET_ACCESS_KEY", &service.secret)
        .env("TMPDIR", &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // The keyboard's interrupt is for the tests; the watch ends the server after them.
        .process_group(0)
        .spawn()
        .unwrap();
    let mut running = Running { watch };
    let began = Instant::now();
    while began.elapsed() < STARTS_WITHIN {
        if service.has_bucket() {
            return Some((service, running));
        }
        if running.watch.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("{}", std::fs::read_to_string(log).unwrap_or_default());
    None
}

/// Where a server takes what is written: of a disk that is full but for a hundredth it waits for room.
fn roomy_folder() -> PathBuf {
    let has_room = |folder: &PathBuf| {
        let Ok(name) = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()) else { return false };
        let mut about = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: a name that ends in a zero, and room for the answer.
        if unsafe { libc::statvfs(name.as_ptr(), about.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: zeroed bytes are a valid `statvfs`, and the call has filled them.
        let about = unsafe { about.assume_init() };
        about.f_bavail > about.f_blocks / 50
    };
    let usual = std::env::temp_dir();
    [usual.clone(), "/dev/shm".into()].into_iter().find(has_room).unwrap_or(usual)
}

fn arguments(folder: &Path, ports: &[u16]) -> Vec<String> {
    let named = [
        "s3.port",
        "s3.port.grpc",
        "master.port",
        "master.port.grpc",
        "filer.port",
        "filer.port.grpc",
        "volume.port",
        "volume.port.grpc",
        "webdav.port",
        "admin.port",
        "admin.port.grpc",
    ];
    assert_eq!(named.len(), ports.len());
    let ports = named.iter().zip(ports).map(|(name, port)| format!("-{name}={port}"));
    let folder = folder.display();
    let others = [
        "-ip=127.0.0.1".into(),
        "-ip.bind=127.0.0.1".into(),
        format!("-dir={folder}/data"),
        format!("-bucket={BUCKET}"),
        format!("-s3.localSocket={folder}/s3.sock"),
        format!("-filer.localSocket={folder}/filer.sock"),
        "-s3.port.iceberg=0".into(),
        "-s3.port.lance=0".into(),
        "-webdav=false".into(),
        "-admin.ui=false".into(),
        "-master.telemetry=false".into(),
        "-volume.preStopSeconds=0".into(),
    ];
    std::fs::create_dir(format!("{folder}/data")).unwrap();
    std::iter::once("mini".to_string()).chain(others).chain(ports).collect()
}

/// Ports that nobody has at this moment; the last one as far above the one before as it is expected.
fn free_ports() -> Vec<u16> {
    let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let (mut held, mut pair) = (Vec::new(), None);
    while held.len() < 9 {
        held.push(bind(0).unwrap());
    }
    let mut passed_over = Vec::new();
    while pair.is_none() {
        let low = bind(0).unwrap();
        match port(&low).checked_add(HIGHER).and_then(bind) {
            Some(high) => pair = Some([low, high]),
            None => passed_over.push(low),
        }
    }
    held.extend(pair.into_iter().flatten());
    held.iter().map(port).collect()
}

/// Whether somebody speaks HTTP there; asked before anything is signed, since refused connections are retried for seconds.
pub fn answers(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut status = [0; 12];
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").is_ok()
        && stream.read_exact(&mut status).is_ok()
        && status.starts_with(b"HTTP/1.1")
}
