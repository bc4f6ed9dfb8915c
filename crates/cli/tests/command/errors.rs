//! `--json` for commands that fail: one object on stdout, with a kind that scripts may rely on.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;

use bathyal_console::Kind;
use bathyal_index::format::manifest::Manifest;
use serde_json::Value;

use crate::harness::{Outcome, bathyal, copy, shared, write_vectors};

/// Checks that stdout holds one JSON object with this kind and exit code, and stderr the same message;
/// returns the object.
#[track_caller]
fn check_error(ran: &Outcome, kind: Kind, code: i32) -> Value {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let object: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let error = &object["error"];
    assert_eq!((&error["kind"], &error["exit_code"]), (&kind.name().into(), &code.into()), "{ran:?}");
    let message = error["message"].as_str().unwrap();
    assert!(!message.contains('\n') && !message.contains("\u{1b}"), "{message}");
    let words = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(message), "'{message}' is not what stderr says: {words}");
    ran.mentions(&[]);
    object
}

#[track_caller]
fn fails(folder: &Path, line: &str, kind: Kind, code: i32) -> Value {
    check_error(&bathyal(folder, &format!("{line} --json")), kind, code)
}

#[test]
fn invalid_command_lines_have_a_kind() {
    let cases = [
        "search idx queries.fbin -k 0",
        "search idx",
        "polish idx",
        "build base.fbin other --metric manhattan",
        "build base.fbin other --metric l2 --max-degree 16",
        "search idx queries.fbin --nprobe 3",
        "search idx queries.fbin --quiet --verbose",
        "--quiet search idx queries.fbin -v",
        "man polish",
    ];
    for line in cases {
        fails(shared(), line, Kind::InvalidArgument, 2);
    }
    let ran = bathyal(shared(), "--json");
    assert_eq!(ran.code, Some(2));
    let object: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(object["error"]["message"].as_str().unwrap().contains("no command"), "{object}");
    fails(shared(), "search idx queries.fbin -k 10 --search-list 5", Kind::InvalidArgument, 1);
    // --help and --version are not errors.
    assert!(bathyal(shared(), "search --help --json").good().contains("Usage"));
    assert!(bathyal(shared(), "--version --json").good().starts_with("bathyal "));
    // Without --json, or with it as an operand after `--`, stdout stays empty.
    bathyal(shared(), "search idx queries.fbin -k 0").fails(2, &["invalid value '0'"]);
    bathyal(shared(), "search -- idx queries.fbin --json").fails(2, &["unexpected argument"]);
}

#[test]
fn bad_files_and_places_have_a_kind() {
    let folder = copy();
    let here = folder.path();
    std::fs::write(here.join("cut.fbin"), [9, 0, 0, 0, 4, 0, 0, 0, 1]).unwrap();
    fails(here, "build cut.fbin other --metric l2", Kind::InvalidData, 1);
    fails(here, "build base.txt other --metric l2", Kind::InvalidArgument, 1);
    fails(here, "build none.fbin other --metric l2", Kind::NotFound, 1);
    fails(here, "search idx none.fbin", Kind::NotFound, 1);
    fails(here, "search none queries.fbin", Kind::NotFound, 1);
    fails(here, "build base.fbin idx --metric l2", Kind::Exists, 1);
    std::fs::create_dir(here.join("empty")).unwrap();
    fails(here, "search empty queries.fbin", Kind::NotAnIndex, 3);
    fails(here, "inspect base.fbin", Kind::NotAnIndex, 3);
    fails(here, "search idx queries.fbin --memory 1kB", Kind::Memory, 1);
    fails(here, "build base.fbin other --metric l2 --memory 1MB", Kind::Memory, 1);
    fails(here, "search idx queries.fbin --device gpu:100", Kind::Device, 1);
    fails(here, "groundtruth base.fbin queries.fbin x.ibin --device gpu:100", Kind::Device, 1);
    write_vectors(here, "long.fbin", 3, 13, 1);
    fails(here, "search idx long.fbin", Kind::InvalidArgument, 1);
}

#[test]
fn indexes_that_cannot_be_read_have_a_kind() {
    let folder = copy();
    let here = folder.path();
    let vectors = here.join("idx/vectors.bin");
    let mut content = std::fs::read(&vectors).unwrap();
    content[100] ^= 1;
    std::fs::write(&vectors, content).unwrap();
    // The report is printed together with the error.
    let report = fails(here, "verify idx", Kind::Damaged, 3);
    assert_eq!(report["sound"], false);
    assert!(report["fault_count"].as_u64().unwrap() > 0, "{report}");
    let manifest = here.join("graph.idx/manifest.json");
    let right = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, &right[..right.len() / 2]).unwrap();
    fails(here, "search graph.idx queries.fbin", Kind::Damaged, 3);
    let mut later = Manifest::parse(&right, here).unwrap();
    later.format_version = 99;
    std::fs::write(&manifest, later.to_bytes().unwrap()).unwrap();
    fails(here, "search graph.idx queries.fbin", Kind::LaterVersion, 1);
}

#[cfg(target_os = "linux")]
#[test]
fn failed_system_calls_have_a_kind() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", 1000, 16, 1);
    let ran = crate::bad_index::with_little_room(folder.path(), 20, "convert base.fbin made.fvecs --json");
    check_error(&ran, Kind::NoSpace, 1);
    // Not even the superuser can create files there.
    fails(folder.path(), "convert base.fbin /sys/made.fvecs", Kind::Permission, 1);
}

/// Starts a server that denies every request until the process ends; returns its address.
fn denying_server() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut request = BufReader::new(&stream).lines().map_while(Result::ok);
            request.by_ref().find(String::is_empty);
            let body = "<Error><Code>AccessDenied</Code><Message>Not you.</Message></Error>";
            let head = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Type: application/xml";
            let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            // The client may have closed the connection.
            let _ = (&stream).write_all(answer.as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn denied_requests_to_a_store_have_a_kind() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", 100, 4, 1);
    let endpoint = denying_server();
    let options = ["region=us-east-1", "access_key_id=key", "secret_access_key=hidden", "scratch=scratch"];
    let options = options.iter().map(|option| format!(" --store-option {option}")).collect::<String>();
    for command in [
        "inspect s3://bucket/x",
        "build base.fbin s3://bucket/x --metric l2",
        "collection inspect s3://bucket/c",
    ] {
        let line = format!("{command} --store-option endpoint={endpoint}{options}");
        let printed = fails(folder.path(), &line, Kind::Permission, 1);
        let message = printed["error"]["message"].as_str().unwrap();
        for part in ["s3://bucket/", "access is denied", "403 AccessDenied: Not you.", "credentials"] {
            assert!(message.contains(part), "{command}: {part} is not in {message}");
        }
        // Denied requests are not tried again.
        assert!(!message.contains("tries") && !message.contains("hidden"), "{message}");
    }
}

#[test]
fn the_page_on_errors_has_every_kind() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = std::fs::read_to_string(page).unwrap();
    for kind in Kind::ALL {
        assert!(page.contains(&format!("| `{kind}` |")), "{kind}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `error.")).count();
    assert_eq!(rows, Kind::ALL.len());
}
