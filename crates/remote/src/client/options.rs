//! Addresses of indexes in the memory of nodes, and options for reaching a node.

use crate::identity::{Credentials, client_file, is_peer_key, keys_folder};
use bathyal_store::StoreError;
use bathyal_store::stripe::MOST_PARTS;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix of addresses.
const SCHEME: &str = "remote://";
/// Port of a node if the address has none.
pub const DEFAULT_PORT: u16 = 7730;
/// Option keys whose values may differ from node to node.
const SECRETS: [&str; 3] = ["keys", "token", "peer_key"];
/// Environment variable with the path of the file with a node's credentials.
const KEYS_VARIABLE: &str = "BATHYAL_NODE_KEYS";
/// RDMA operations in one doorbell. With 16, the cost of a doorbell is a small part of each operation.
/// Completions are reported for a whole doorbell, so a larger value would delay the first.
const DEFAULT_DOORBELL: u32 = 16;
/// Maximum number of operations in one doorbell, greater than the depth of any queue.
const MAX_DOORBELL: u32 = 1024;
/// Time after which a silent node counts as lost.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Address of an index: `remote://HOST:PORT/NAME`, or over several nodes
/// `remote://HOST1:PORT1,HOST2:PORT2/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// Host and port of each node, in the order of the parts.
    pub hosts: Vec<String>,
    /// Name of the index.
    pub name: String,
}

impl RemoteUrl {
    /// Returns true if the path has the form of such an address.
    pub fn is_url(path: &Path) -> bool {
        path.to_str().is_some_and(|text| text.starts_with(SCHEME))
    }

    /// Parses an address.
    ///
    /// # Errors
    /// [`StoreError::Address`] for an invalid address.
    pub fn parse(path: &Path) -> Result<RemoteUrl, StoreError> {
        let refuse =
            |what: &str| StoreError::Address(format!("{}: {what}: {SCHEME}HOST:PORT/NAME", path.display()));
        let rest = path.to_str().and_then(|text| text.strip_prefix(SCHEME));
        let rest = rest.ok_or_else(|| refuse("is not an address of a memory node"))?;
        let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.contains('@') {
            // The message does not quote the address, which may contain a secret.
            return Err(StoreError::Address(format!(
                "{SCHEME}: an address must have no credentials in it; name the node's file of keys with the \
                 store option keys=FILE"
            )));
        }
        let hosts = hosts.split(',').map(host_and_port).collect::<Result<Vec<_>, _>>().map_err(refuse)?;
        let name = name.trim_end_matches('/');
        if name.is_empty() {
            return Err(refuse("names a node, not an index in it"));
        }
        if name.starts_with('.') || name.contains(['/', '\0']) || name.contains(char::is_control) {
            return Err(refuse("a node has no folders; the name of an index begins with no dot"));
        }
        if (1..hosts.len()).any(|later| hosts[..later].contains(&hosts[later])) {
            return Err(refuse("names a node twice; each part of an index needs a node of its own"));
        }
        if hosts.len() > MOST_PARTS {
            return Err(refuse("names more than 64 nodes"));
        }
        Ok(RemoteUrl { hosts, name: name.to_owned() })
    }

    /// Returns the address without the index: the node, or the nodes.
    pub fn node_address(&self) -> PathBuf {
        PathBuf::from(format!("{SCHEME}{}", self.hosts.join(",")))
    }

    /// Returns one address for each node, with the name of the index.
    pub(crate) fn each(&self) -> impl Iterator<Item = RemoteUrl> {
        self.hosts.iter().map(|host| RemoteUrl { hosts: vec![host.clone()], name: self.name.clone() })
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.node_address().display(), self.name)
    }
}

/// Returns a host with its port, the default one if there is none, or why the host is invalid.
fn host_and_port(host: &str) -> Result<String, &'static str> {
    if host.is_empty() {
        return Err("names no host");
    }
    let (before, port) = host.rsplit_once(':').unwrap_or((host, ""));
    // A bare IPv6 address contains colons that do not begin a port.
    let has_port = !before.ends_with(':') && (!before.contains(':') || before.ends_with(']'));
    match (has_port && host.contains(':'), port.parse::<u16>()) {
        (true, Ok(1..)) => Ok(host.to_owned()),
        (true, _) => Err("the port must be a number from 1 to 65535"),
        (false, _) if host.contains(':') && !host.starts_with('[') => Ok(format!("[{host}]:{DEFAULT_PORT}")),
        (false, _) => Ok(format!("{host}:{DEFAULT_PORT}")),
    }
}

/// Transport of a node's bytes to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transport {
    /// Shared memory if this user runs the node on this machine; otherwise RDMA if the devices of both
    /// machines reach each other; otherwise TCP.
    #[default]
    Auto,
    /// TCP.
    Tcp,
    /// Mapped memory of a node on this machine.
    Shared,
    /// RDMA, with the verbs of `libibverbs`.
    Verbs,
}

/// Options for reaching a node. [`RemoteOptions::new`], and [`RemoteOptions::each`] for several nodes, take
/// these keys:
///
/// | key | value |
/// |---|---|
/// | `keys` | the node's file `client.json`; default: `BATHYAL_NODE_KEYS`, or that of this user's own node |
/// | `token` | the node's token, instead of the one in the file |
/// | `peer_key` | the node's key, `sha256:` and 64 digits, instead of the one in the file |
/// | `transport` | `auto` (default), `tcp`, `shm` or `verbs` |
/// | `doorbell` | with `verbs`: operations in one doorbell, 1 to 1024; default 16 |
/// | `timeout` | seconds after which a silent node counts as lost, 0.001 to 3600; default 10 |
/// | `wait` | seconds that a query waits for a lost node to hold its index again, 0 to 3600; default 0 |
/// | `scratch` | the local folder of an index while it is built, before it is pushed |
#[derive(Clone, PartialEq)]
pub struct RemoteOptions {
    pub(crate) credentials: Credentials,
    pub(crate) transport: Transport,
    pub(crate) doorbell: u32,
    pub(crate) timeout: Duration,
    pub(crate) wait: Duration,
    pub(crate) scratch: Option<PathBuf>,
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RemoteOptions({:?}, {:?})", self.credentials, self.transport)
    }
}

impl RemoteOptions {
    /// Parses options from pairs of a key and a value.
    ///
    /// # Errors
    /// [`StoreError::Address`] for an unknown key, an invalid value, or missing credentials.
    pub fn new<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Result<RemoteOptions, StoreError> {
        RemoteOptions::of_one(pairs, |_, value| Ok(value))
    }

    /// Parses the options of each of `nodes` nodes. `keys`, `token`, `peer_key` and `BATHYAL_NODE_KEYS` have
    /// one value for all nodes, or one for each node in their order, separated by commas.
    ///
    /// # Errors
    /// As [`RemoteOptions::new`], and for another number of values.
    pub fn each(pairs: &[(&str, &str)], nodes: usize) -> Result<Vec<RemoteOptions>, StoreError> {
        let options_of = |node| {
            RemoteOptions::of_one(pairs.iter().copied(), |key, value| value_of(node, nodes, key, value))
        };
        (0..nodes).map(options_of).collect()
    }

    /// Parses the options of one node. `choose` selects its value from the values of a key.
    fn of_one<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
        choose: impl for<'v> Fn(&str, &'v str) -> Result<&'v str, StoreError>,
    ) -> Result<RemoteOptions, StoreError> {
        let (mut keys, mut token, mut peer_key) = (None, None, None);
        let (mut transport, mut scratch) = (Transport::Auto, None);
        let mut doorbell = None;
        let (mut timeout, mut wait) = (DEFAULT_TIMEOUT, Duration::ZERO);
        for (key, value) in pairs {
            let refuse = |what: &str| Err(StoreError::Address(format!("store option {key}: {what}")));
            let value = if SECRETS.contains(&key) { choose(key, value)? } else { value };
            match key {
                "keys" => keys = Some(PathBuf::from(value)),
                "token" => token = Some(value.to_owned()),
                "peer_key" if is_peer_key(value) => peer_key = Some(value.to_ascii_lowercase()),
                "peer_key" => {
                    return refuse("must be sha256: and 64 hexadecimal digits, as the node prints it");
                }
                "transport" => {
                    transport = match value {
                        "auto" => Transport::Auto,
                        "tcp" => Transport::Tcp,
                        "shm" => Transport::Shared,
                        "verbs" => Transport::Verbs,
                        _ => return refuse("must be one of auto, tcp, shm, verbs"),
                    }
                }
                "doorbell" => match value.parse() {
                    Ok(count @ 1..=MAX_DOORBELL) => doorbell = Some(count),
                    _ => return refuse("must be a number of operations from 1 to 1024"),
                },
                "timeout" => match value.parse() {
                    Ok(seconds @ 0.001..=3600.0) => timeout = Duration::from_secs_f64(seconds),
                    _ => return refuse("must be a number of seconds from 0.001 to 3600"),
                },
                "wait" => match value.parse() {
                    Ok(seconds @ 0.0..=3600.0) => wait = Duration::from_secs_f64(seconds),
                    _ => return refuse("must be a number of seconds from 0 to 3600"),
                },
                "scratch" => scratch = Some(PathBuf::from(value)),
                _ => {
                    return refuse(
                        "is not an option of a memory node; the options are keys, token, peer_key, \
                         transport, doorbell, timeout, wait and scratch",
                    );
                }
            }
        }
        if doorbell.is_some() && transport != Transport::Verbs {
            let what = "store option doorbell: requires transport=verbs; add that, or leave doorbell out";
            return Err(StoreError::Address(what.into()));
        }
        let doorbell = doorbell.unwrap_or(DEFAULT_DOORBELL);
        let credentials = match (token, peer_key) {
            (Some(token), Some(peer_key)) => Credentials { token, peer_key },
            (token, peer_key) => {
                let found = read_credentials(keys, choose)?;
                Credentials {
                    token: token.unwrap_or(found.token),
                    peer_key: peer_key.unwrap_or(found.peer_key),
                }
            }
        };
        Ok(RemoteOptions { credentials, transport, doorbell, timeout, wait, scratch })
    }
}

/// Returns the value of a key for node number `node` of `nodes`.
fn value_of<'v>(node: usize, nodes: usize, key: &str, value: &'v str) -> Result<&'v str, StoreError> {
    let values: Vec<&str> = value.split(',').collect();
    match values.len() {
        1 => Ok(value),
        given if given == nodes => Ok(values[node]),
        given => Err(StoreError::Address(format!(
            "{key}: has {given} values for {nodes} nodes; give one for all of them, or one for each in their \
             order, with commas between them"
        ))),
    }
}

/// Reads the credentials in the file `keys`, in the file that the environment names, or in the default file.
/// `choose` selects the node's path from those in the environment.
fn read_credentials(
    keys: Option<PathBuf>,
    choose: impl for<'v> Fn(&str, &'v str) -> Result<&'v str, StoreError>,
) -> Result<Credentials, StoreError> {
    let variable = std::env::var_os(KEYS_VARIABLE);
    let named = match (keys, variable.as_ref().map(|value| value.to_str().ok_or(value))) {
        (Some(keys), _) => Some(keys),
        (None, Some(Ok(text))) => Some(PathBuf::from(choose(KEYS_VARIABLE, text)?)),
        (None, Some(Err(value))) => Some(PathBuf::from(value)),
        (None, None) => None,
    };
    if let Some(named) = named {
        return Credentials::from_file(&named);
    }
    let default_file = client_file(&keys_folder()?);
    if !default_file.exists() {
        return Err(StoreError::Address(format!(
            "a memory node requires a token, and is identified by its key: copy the file client.json that it \
             wrote (`bathyal memory-node` prints its path), and name it with the store option keys=FILE or \
             in {KEYS_VARIABLE}"
        )));
    }
    Credentials::from_file(&default_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_formatted_alike() {
        for (text, hosts, name) in [
            ("remote://node:7000/my.index", "node:7000", "my.index"),
            ("remote://node/my.index/", "node:7730", "my.index"),
            ("remote://[::1]:80/x", "[::1]:80", "x"),
            ("remote://[::1]/x", "[::1]:7730", "x"),
            ("remote://::1/x", "[::1]:7730", "x"),
            ("remote://one:7000,two,[::1]:80,::2/x,y", "one:7000 two:7730 [::1]:80 [::2]:7730", "x,y"),
        ] {
            let url = RemoteUrl::parse(Path::new(text)).unwrap();
            assert_eq!((url.hosts.join(" ").as_str(), url.name.as_str()), (hosts, name), "{text}");
            assert_eq!(RemoteUrl::parse(Path::new(&url.to_string())).unwrap(), url);
        }
        for (text, why) in [
            ("remote://", "names no host"),
            ("remote://node", "not an index"),
            ("remote://node:0/x", "the port"),
            ("remote://node:70000/x", "the port"),
            ("remote://node:/x", "the port"),
            ("remote://node/a/b", "no folders"),
            ("remote://node/.x", "no dot"),
            ("remote://me:secret@node/x", "no credentials"),
            ("remote://one,/x", "names no host"),
            ("remote://one,two:0/x", "the port"),
            ("remote://one,two", "not an index"),
            ("remote://one,two,one:7730/x", "names a node twice"),
            ("remote://one,me:secret@two/x", "no credentials"),
        ] {
            let refused = RemoteUrl::parse(Path::new(text)).unwrap_err().to_string();
            assert!(refused.contains(why) && !refused.contains("secret"), "{text}: {refused}");
        }
    }

    #[test]
    fn secrets_have_one_value_for_all_nodes_or_one_for_each() {
        let [one, two] = ["ab", "cd"].map(|digits| format!("sha256:{}", digits.repeat(32)));
        let both = format!("{one},{two}");
        let pairs = [("token", "a secret of theirs"), ("peer_key", both.as_str()), ("timeout", "3")];
        let options = RemoteOptions::each(&pairs, 2).unwrap();
        assert_eq!(options.iter().map(|one| &one.credentials.peer_key).collect::<Vec<_>>(), [&one, &two]);
        assert!(options.iter().all(|one| one.credentials.token == "a secret of theirs"));
        for nodes in [1, 3] {
            let refused = RemoteOptions::each(&pairs, nodes).unwrap_err().to_string();
            assert!(refused.contains("peer_key: ") && !refused.contains("secret"), "{refused}");
        }
        // With a single node, a comma is part of the value.
        let pairs = [("token", "a secret, of theirs"), ("peer_key", one.as_str())];
        assert_eq!(RemoteOptions::new(pairs).unwrap().credentials.token, "a secret, of theirs");
    }

    #[test]
    fn invalid_options_are_refused_by_name() {
        let key = format!("sha256:{}", "ab".repeat(32));
        let pairs = [("token", "a secret of theirs"), ("peer_key", key.as_str()), ("transport", "tcp")];
        let options = RemoteOptions::new(pairs).unwrap();
        assert_eq!(options.transport, Transport::Tcp);
        assert!(!format!("{options:?}").contains("secret"));
        for (name, value) in [
            ("transport", "rdma"),
            ("doorbell", "16"),
            ("doorbell", "0"),
            ("doorbell", "1e3"),
            ("timeout", "0"),
            ("timeout", "1e19"),
            ("timeout", "nan"),
            ("wait", "-1"),
            ("peer_key", "sha256:00"),
            ("region", "eu"),
        ] {
            let refused =
                RemoteOptions::new(pairs.into_iter().chain([(name, value)])).unwrap_err().to_string();
            assert!(refused.contains(&format!("store option {name}")), "{refused}");
        }
        let verbs = [("transport", "verbs"), ("doorbell", "64")];
        let options = RemoteOptions::new(pairs.into_iter().take(2).chain(verbs)).unwrap();
        assert_eq!((options.transport, options.doorbell), (Transport::Verbs, 64));
        let refused = RemoteOptions::new([("keys", "/nowhere/client.json")]).unwrap_err().to_string();
        assert!(refused.contains("/nowhere/client.json") && refused.contains("memory-node"), "{refused}");
    }
}
