//! A node of a test's own.

use bathyal_remote::{
    Credentials, Identity, Node, NodeOptions, NodeStore, RemoteOptions, RemoteUrl, SpreadStore,
};
use bathyal_store::{DraftExt, Generation, GenerationExt, Replace, Store};
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

pub const MARK: &str = "manifest.json";
/// The object of [`Place::put`].
pub const DATA: &str = "data";

/// A running node, and a folder for drafts.
pub struct Place {
    pub node: Node,
    pub folder: tempfile::TempDir,
}

impl Place {
    pub fn new(capacity_bytes: u64) -> Place {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let node = Node::start(&NodeOptions { listen, capacity_bytes }, Identity::new().unwrap()).unwrap();
        Place { node, folder: tempfile::tempdir().unwrap() }
    }

    /// The node's store as a peer with these credentials and options sees it.
    pub fn store_as(&self, credentials: &Credentials, options: &[(&str, &str)]) -> NodeStore {
        store(self.node.address(), credentials, options, self.folder.path())
    }

    pub fn store(&self, options: &[(&str, &str)]) -> NodeStore {
        self.store_as(self.node.credentials(), options)
    }

    /// Makes `name` a generation of one object.
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
    let said = [
        ("token", credentials.token.as_str()),
        ("peer_key", credentials.peer_key.as_str()),
        ("scratch", scratch.to_str().unwrap()),
    ];
    let options = RemoteOptions::new(said.into_iter().chain(options.iter().copied())).unwrap();
    NodeStore::new(&url, options, MARK).unwrap()
}

/// The memory of these nodes as one store, where [`DATA`] lies in units of 4,096 bytes; drafts lie in the first one's folder.
pub fn spread(places: &[&Place], options: &[(&str, &str)]) -> SpreadStore {
    let hosts: Vec<String> = places.iter().map(|place| place.node.address().to_string()).collect();
    let credentials = |of: fn(&Credentials) -> &String| {
        places.iter().map(|place| of(place.node.credentials()).as_str()).collect::<Vec<_>>().join(",")
    };
    let url = RemoteUrl::parse(Path::new(&format!("remote://{}/any", hosts.join(",")))).unwrap();
    let (tokens, keys) = (credentials(|own| &own.token), credentials(|own| &own.peer_key));
    let scratch = places[0].folder.path().to_str().unwrap();
    let mut said = vec![("token", tokens.as_str()), ("peer_key", keys.as_str()), ("scratch", scratch)];
    said.extend(options);
    let options = RemoteOptions::each(&said, places.len()).unwrap();
    SpreadStore::new(&url, &options, MARK).unwrap().striped(&[DATA], 4096).unwrap()
}

/// The object of a generation of [`Place::put`] as a tier.
pub fn tier(generation: &dyn Generation) -> Arc<dyn Tier> {
    generation.get(DATA).unwrap().tier(FileOptions::default()).unwrap()
}

pub fn bytes(generation: &dyn Generation) -> Vec<u8> {
    generation.read(DATA).unwrap()
}
