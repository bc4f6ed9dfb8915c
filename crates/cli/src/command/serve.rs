//! `bathyal serve`.

use bathyal_console::{Console, Failure, Kind};
use bathyal_index::{AuditOptions, OpenOptions};
use bathyal_server::{Server, ServerError, ServerOptions, TlsFiles, default_keys_file, install_log};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

use super::memory_node::is_address;
use crate::arguments::{LogForm, ServeArguments};

/// Interval at which Ctrl-C is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Serialize)]
struct ServeOutput {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
    keys: String,
}

pub(super) fn run(arguments: &ServeArguments, console: &Console) -> Result<(), Failure> {
    let Some(data) = &arguments.data else {
        return Err(Failure::usage("the folder to serve is missing: bathyal serve DATA"));
    };
    check_effects(arguments, data)?;
    let keys = match &arguments.keys {
        Some(keys) => keys.clone(),
        None => default_keys_file().map_err(failure)?,
    };
    install_log(&arguments.log_level, arguments.log == LogForm::Json).map_err(failure)?;
    let files = arguments.tls_certificate.clone().zip(arguments.tls_key.clone());
    let options = ServerOptions {
        store: arguments.store.options()?,
        index: OpenOptions { memory_bytes: arguments.memory, ..OpenOptions::default() },
        write_memory_bytes: arguments.write_memory,
        listen: arguments.listen,
        metrics: arguments.metrics,
        tls: files.map(|(certificate, key)| TlsFiles { certificate, key }),
        insecure: arguments.insecure,
        limits: arguments.limits.limits(),
        open: arguments.open as usize,
        refresh: Duration::from_millis(arguments.refresh),
        advertise: arguments.others.advertise.clone(),
        lease: Duration::from_secs(arguments.others.lease),
        peer_certificates: arguments.others.peer_ca.clone(),
        slow: arguments.slow.map(Duration::from_millis),
        audit: arguments.audit.map(|share| AuditOptions { share, ..AuditOptions::default() }),
        ..ServerOptions::new(data, &keys)
    };
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let server = Server::start(options).map_err(failure)?;
    if server.made_keys() {
        console.note(&format!("serve: a new key is in {}", keys.display()));
    }
    let metrics = server.metrics_address();
    console.note(&format!(
        "serve: {} at {scheme}://{}, keys in {}",
        data.display(),
        server.address(),
        keys.display()
    ));
    console.note(&format!("serve: console at {scheme}://{}/console/", server.address()));
    if let Some(metrics) = metrics {
        console.note(&format!("serve: counters at http://{metrics}/metrics"));
    }
    let answer = ServeOutput {
        address: server.address().to_string(),
        metrics: metrics.map(|address| address.to_string()),
        keys: keys.display().to_string(),
    };
    while !console.interrupt().requested() {
        std::thread::sleep(POLL_INTERVAL);
    }
    server.stop();
    console.answer(&answer, "serve: stopped; all acknowledged writes are on disk")
}

/// Refuses options that would have no effect.
fn check_effects(arguments: &ServeArguments, data: &Path) -> Result<(), Failure> {
    let refuse = |reason: &str| Err(Failure::usage(format!("{reason}; leave it out")));
    if !arguments.store.options()?.is_empty() && !is_address(data) {
        return refuse("--store-option applies to addresses, and DATA is a folder");
    }
    if arguments.insecure && arguments.tls_certificate.is_some() {
        return refuse("--insecure is for plain HTTP, and --tls-certificate encrypts");
    }
    if arguments.slow.is_some() && matches!(&*arguments.log_level, "off" | "error") {
        return Err(Failure::usage(format!(
            "--slow logs warnings, which --log-level {} leaves out; choose warn or more",
            arguments.log_level
        )));
    }
    Ok(())
}

fn failure(error: ServerError) -> Failure {
    match error {
        ServerError::Option(reason) => Failure::usage(reason),
        ServerError::Data(error) => error.into(),
        ServerError::File { ref source, .. } | ServerError::System { ref source, .. } => {
            Failure::system(source, error.to_string())
        }
        ServerError::Content { .. } => Failure::of(Kind::InvalidData, error.to_string()),
    }
}
