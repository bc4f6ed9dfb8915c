//! Runs SeaweedFS on the loopback interface while the tests run.

use crate::server::service::Service;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time to start the server, on a slow machine.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// Attempts to start the server: a free port may be taken by another process before the server binds it.
const MAX_ATTEMPTS: usize = 3;
/// The distance between the two ports of the administration server, which the server requires.
const ADMIN_PORT_DISTANCE: u16 = 10_000;
const BUCKET: &str = "bathyal";

/// Runs the server until the other end of its standard input is closed, then removes its folder, and the
/// sockets that it makes elsewhere regardless of its options. The end is closed when the test process ends,
/// so no server outlives the tests, even if they are killed. The server's data are not needed, so it is
/// killed.
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

/// Returns the path of the program, or a message about where it was looked for.
pub fn program() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("BATHYAL_WEED").map(PathBuf::from) {
        let missing = format!("no SeaweedFS at the path in BATHYAL_WEED: {}", named.display());
        return if named.is_file() { Ok(named) } else { Err(missing) };
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = workspace.join(".venv/bin/weed");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("weed"));
    std::iter::once(installed).chain(on_path).find(|program| program.is_file()).ok_or_else(|| {
        "no SeaweedFS at .venv/bin/weed or as `weed` on the PATH: run `make install`, or put the path of its \
         program into BATHYAL_WEED"
            .into()
    })
}

/// A running server, which ends when this is dropped or the process ends.
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

/// Starts the server, and waits until it responds.
pub fn start(program: &Path) -> (Service, Running) {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(started) = try_start(program) {
            return started;
        }
    }
    panic!("{} did not answer on any of {MAX_ATTEMPTS} ports", program.display());
}

fn try_start(program: &Path) -> Option<(Service, Running)> {
    let ports = free_ports();
    let service = Service {
        endpoint: format!("http://127.0.0.1:{}", ports[0]),
        bucket: BUCKET.into(),
        region: "us-east-1".into(),
        access_key: "TESTERSKEYID".into(),
        // Distinct from everything else that is printed.
        secret: "TellNobody/Secret+5f1c7a".into(),
        folder: "tests".into(),
    };
    let folder = tempfile::tempdir_in(folder_with_space()).unwrap().keep();
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
        // Ctrl-C reaches only the tests; the script ends the server after them.
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

/// Returns a temporary folder with enough free space: on a nearly full disk, the server waits for space
/// instead of accepting writes.
fn folder_with_space() -> PathBuf {
    let has_space = |folder: &PathBuf| {
        let Ok(name) = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()) else { return false };
        let mut status = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: the name is a C string, and the result is a struct of the type that the call fills.
        if unsafe { libc::statvfs(name.as_ptr(), status.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: zeroed bytes are a valid `statvfs`, and the call has filled them.
        let status = unsafe { status.assume_init() };
        status.f_bavail > status.f_blocks / 50
    };
    let default = std::env::temp_dir();
    [default.clone(), "/dev/shm".into()].into_iter().find(has_space).unwrap_or(default)
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

/// Returns ports that are free at this moment. The last two have the distance that the administration server
/// requires.
fn free_ports() -> Vec<u16> {
    let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let (mut listeners, mut pair) = (Vec::new(), None);
    while listeners.len() < 9 {
        listeners.push(bind(0).unwrap());
    }
    let mut rejected = Vec::new();
    while pair.is_none() {
        let low = bind(0).unwrap();
        match port(&low).checked_add(ADMIN_PORT_DISTANCE).and_then(bind) {
            Some(high) => pair = Some([low, high]),
            None => rejected.push(low),
        }
    }
    listeners.extend(pair.into_iter().flatten());
    listeners.iter().map(port).collect()
}

/// Returns true if a server at `address` speaks HTTP. Checked before any signed request, since refused
/// connections are retried for seconds.
pub fn responds(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut status = [0; 12];
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").is_ok()
        && stream.read_exact(&mut status).is_ok()
        && status.starts_with(b"HTTP/1.1")
}
