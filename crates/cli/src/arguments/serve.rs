//! `bathyal serve`.

use super::store::StoreArguments;
use bathyal_console::byte_size;
use bathyal_server::RequestLimits;
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// A line of text
    Text,
    /// An object of JSON
    Json,
}

/// `bathyal serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal serve ./data
  curl -s -H \"Authorization: Bearer $KEY\" localhost:7700/v1/collections
  bathyal serve s3://bucket/prefix --listen 0.0.0.0:7700 \\
      --tls-certificate server.pem --tls-key server.key --metrics 127.0.0.1:7701

The first start makes a file of keys and prints where it is. Every request needs a key, except /health/live, \
/health/ready and /v1/openapi.json, which describes all operations. The server reads keys and certificates \
again when their files change.

Every option can also be given by the environment variable BATHYAL_SERVE_ and its name in capitals \
(BATHYAL_SERVE_LISTEN), and in the file of --config by its name (listen = \"127.0.0.1:7700\"). The command \
line comes first, then the environment, then the file.")]
pub struct ServeArguments {
    /// Folder (made at need), bucket or folder of a bucket whose collections and indexes are served
    #[arg(value_name = "DATA", env = "BATHYAL_SERVE_DATA", hide_env_values = true)]
    pub data: Option<PathBuf>,
    /// TOML file with options
    #[arg(long, value_name = "FILE", env = "BATHYAL_SERVE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Address and port to listen at
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:7700",
        env = "BATHYAL_SERVE_LISTEN",
        hide_env_values = true
    )]
    pub listen: SocketAddr,
    /// Address and port for counters for Prometheus, at /metrics; beyond this machine they need a key
    #[arg(long, value_name = "ADDRESS:PORT", env = "BATHYAL_SERVE_METRICS", hide_env_values = true)]
    pub metrics: Option<SocketAddr>,
    /// File of keys, which is made if it does not exist [default: ~/.config/bathyal/keys.toml]
    #[arg(long, value_name = "FILE", env = "BATHYAL_SERVE_KEYS", hide_env_values = true)]
    pub keys: Option<PathBuf>,
    /// Certificate in PEM, followed by those of its issuers
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        env = "BATHYAL_SERVE_TLS_CERTIFICATE",
        hide_env_values = true
    )]
    pub tls_certificate: Option<PathBuf>,
    /// Private key of the certificate in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_certificate",
        env = "BATHYAL_SERVE_TLS_KEY",
        hide_env_values = true
    )]
    pub tls_key: Option<PathBuf>,
    /// Serve plain HTTP at an address that other machines reach, since something in front encrypts
    #[arg(long, env = "BATHYAL_SERVE_INSECURE", hide_env_values = true)]
    pub insecure: bool,
    /// Most memory for each open index or collection
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = byte_size::parse,
        env = "BATHYAL_SERVE_MEMORY",
        hide_env_values = true
    )]
    pub memory: Option<u64>,
    /// Memory for new rows of each collection [default: 128MiB]
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = byte_size::parse,
        env = "BATHYAL_SERVE_WRITE_MEMORY",
        hide_env_values = true
    )]
    pub write_memory: Option<u64>,
    /// Most collections and indexes that are open at once
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "BATHYAL_SERVE_OPEN",
        hide_env_values = true
    )]
    pub open: u32,
    /// Limits of requests
    #[command(flatten)]
    pub limits: LimitArguments,
    /// How old the rows of an answer may be if another process writes to the collection, in milliseconds
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 1000,
        env = "BATHYAL_SERVE_REFRESH",
        hide_env_values = true
    )]
    pub refresh: u64,
    /// How servers of the same DATA find each other
    #[command(flatten)]
    pub others: OthersArguments,
    /// Log searches that take longer, in milliseconds, with how they were answered
    #[arg(long, value_name = "MS", env = "BATHYAL_SERVE_SLOW", hide_env_values = true)]
    pub slow: Option<u64>,
    /// Share of the searches that are answered exactly, too, in the background, above 0 and at most 1; the
    /// recall that is found is in the counters and in the console
    #[arg(long, value_name = "SHARE", env = "BATHYAL_SERVE_AUDIT", hide_env_values = true)]
    pub audit: Option<f64>,
    /// Form of the log on stderr
    #[arg(
        long,
        value_name = "FORM",
        default_value = "text",
        env = "BATHYAL_SERVE_LOG",
        hide_env_values = true
    )]
    pub log: LogForm,
    /// Least level that is logged: error, warn, info (a line for each request), debug, trace or off
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "warn",
        env = "BATHYAL_SERVE_LOG_LEVEL",
        hide_env_values = true
    )]
    pub log_level: String,
    /// How the store of DATA is reached
    #[command(flatten)]
    pub store: StoreArguments,
}

/// How servers of the same data find each other.
#[derive(Debug, Args)]
pub struct OthersArguments {
    /// Address under which other servers of the same DATA reach this one [default: that of --listen]
    #[arg(long, value_name = "URL", env = "BATHYAL_SERVE_ADVERTISE", hide_env_values = true)]
    pub advertise: Option<String>,
    /// Seconds for which the server that writes to a bucket does so after each sign of life; one that is
    /// silent for a quarter longer is replaced
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=3600),
        env = "BATHYAL_SERVE_LEASE",
        hide_env_values = true
    )]
    pub lease: u64,
    /// Certificates in PEM by which those of other servers are checked [default: those of the system]
    #[arg(long, value_name = "FILE", env = "BATHYAL_SERVE_PEER_CA", hide_env_values = true)]
    pub peer_ca: Option<PathBuf>,
}

/// Limits of requests.
#[derive(Debug, Args)]
pub struct LimitArguments {
    /// Largest body of a request
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64MiB",
        value_parser = byte_size::parse,
        env = "BATHYAL_SERVE_MAX_BODY",
        hide_env_values = true
    )]
    pub max_body: u64,
    /// Memory for the bodies of all requests at once; others are refused with 429 meanwhile
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "512MiB",
        value_parser = byte_size::parse,
        env = "BATHYAL_SERVE_REQUEST_MEMORY",
        hide_env_values = true
    )]
    pub request_memory: u64,
    /// Most connections at once; others wait
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "BATHYAL_SERVE_MAX_CONNECTIONS",
        hide_env_values = true
    )]
    pub max_connections: u32,
    /// Most requests that wait for a thread; others are refused with 429
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "BATHYAL_SERVE_MAX_WAITING",
        hide_env_values = true
    )]
    pub max_waiting: u32,
    /// Most seconds of a request; its work is cancelled then
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        env = "BATHYAL_SERVE_TIMEOUT",
        hide_env_values = true
    )]
    pub timeout: u64,
    /// Most seconds without progress of a client that sends a request
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 75,
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        env = "BATHYAL_SERVE_IDLE",
        hide_env_values = true
    )]
    pub idle: u64,
}

impl LimitArguments {
    /// Returns the limits as the server takes them.
    pub fn limits(&self) -> RequestLimits {
        RequestLimits {
            body_bytes: self.max_body,
            memory_bytes: self.request_memory,
            connections: self.max_connections as usize,
            waiting: self.max_waiting as usize,
            time: Duration::from_secs(self.timeout),
            idle: Duration::from_secs(self.idle),
        }
    }
}
