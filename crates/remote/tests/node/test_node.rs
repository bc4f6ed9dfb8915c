//! A memory node for one test.

use bathyal_remote::{
    Credentials, Identity, Node, NodeOptions, NodeStore, RemoteOptions, RemoteUrl, SpreadStore,
};
use bathyal_store::{DraftExt, Generation, GenerationExt, Replace, Store};
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// The object that every generation has.
pub const MARK: &str = "manifest.json";
/// The object that [`TestNode::put`] writes.
pub const DATA: &str = "data";

/// A running node, and a folder for drafts.
pub struct TestNode {
    pub server: Node,
    pub folder: tempfile::TempDir,
}

impl TestNode {
    pub fn new(capacity_bytes: u64) -> TestNode {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let node = Node::start(&NodeOptions { listen, capacity_bytes }, Identity::new().unwrap()).unwrap();
        TestNode { server: node, folder: tempfile::tempdir().unwrap() }
    }

    /// Returns the node's store for a client with these credentials and options.
    pub fn store_as(&self, credentials: &Credentials, options: &[(&str, &str)]) -> NodeStore {
        store(self.server.address(), credentials, options, self.folder.path())
    }

    pub fn store(&self, options: &[(&str, &str)]) -> NodeStore {
        self.store_as(self.server.credentials(), options)
    }

    /// Publishes the generation `name` with `bytes` as the object [`DATA`].
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let store = self.store(&[]);
        let draft = store.begin(name, Replace::Generation).unwrap();
        draft.put(DATA, bytes).unwrap();
        draft.put(MARK, b"{}").unwrap();
        draft.publish(&[DATA, MARK], "").unwrap();
    }
}

pub fn store(
    node: SocketAddr,
    credentials: &Credentials,
    options: &[(&str, &str)],
    scratch: &Path,
) -> NodeStore {
    let url = RemoteUrl::parse(Path::new(&format!("remote://{node}/any"))).unwrap();
    let credentials = [
        ("token", credentials.token.as_str()),
        ("peer_key", credentials.peer_key.as_str()),
        ("scratch", scratch.to_str().unwrap()),
    ];
    let options = RemoteOptions::new(credentials.into_iter().chain(options.iter().copied())).unwrap();
    NodeStore::new(&url, options, MARK).unwrap()
}

/// Returns the memory of `nodes` as one store, with [`DATA`] striped in units of 4,096 bytes. Drafts are in
/// the first node's folder.
pub fn spread(nodes: &[&TestNode], options: &[(&str, &str)]) -> SpreadStore {
    let hosts: Vec<String> = nodes.iter().map(|node| node.server.address().to_string()).collect();
    let secrets = |secret: fn(&Credentials) -> &String| {
        nodes.iter().map(|node| secret(node.server.credentials()).as_str()).collect::<Vec<_>>().join(",")
    };
    let url = RemoteUrl::parse(Path::new(&format!("remote://{}/any", hosts.join(",")))).unwrap();
    let (tokens, keys) =
        (secrets(|credentials| &credentials.token), secrets(|credentials| &credentials.peer_key));
    let scratch = nodes[0].folder.path().to_str().unwrap();
    let mut pairs = vec![("token", tokens.as_str()), ("peer_key", keys.as_str()), ("scratch", scratch)];
    pairs.extend(options);
    let options = RemoteOptions::each(&pairs, nodes.len()).unwrap();
    SpreadStore::new(&url, &options, MARK).unwrap().striped(&[DATA], 4096).unwrap()
}

/// Returns the object [`DATA`] of a generation as a tier.
pub fn tier(generation: &dyn Generation) -> Arc<dyn Tier> {
    generation.get(DATA).unwrap().tier(FileOptions::default()).unwrap()
}

/// Returns the bytes of the object [`DATA`] of a generation.
pub fn bytes(generation: &dyn Generation) -> Vec<u8> {
    generation.read(DATA).unwrap()
}
