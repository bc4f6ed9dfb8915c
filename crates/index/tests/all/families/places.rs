//! The tiers that indexes are searched on.

use bathyal_index::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_index::open::WrapTier;
use bathyal_index::{
    CopyOptions, Index, IndexError, OpenOptions, TierChoice, convert_stripes_in, copy, find,
};
use bathyal_object::StoreOptions;
use bathyal_remote::{Credentials, Identity, Node, NodeOptions, RemoteOptions, RemoteUrl, SpreadStore};
use bathyal_store::Replace;
use bathyal_tier::Tier;
use bathyal_tier::backend::file::Method;
use bathyal_tier::backend::sim::{FaultRates, LatencyDistribution, SimHandle, SimOptions, SimTier};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A tier, and the options that open an index on it.
pub struct Place {
    pub name: &'static str,
    /// True if the tier is addressable, so that reading a single vector costs no more than its bytes.
    pub memory: bool,
    /// True if reads have the lengths of those of files.
    pub reads_like_files: bool,
    /// True for the memory of another machine, from which cluster indexes read single vectors.
    pub node: bool,
    /// True if indexes are striped there.
    pub in_parts: bool,
    options: fn() -> OpenOptions,
    /// Copies the index at a path to the tier, if necessary, and returns where it is.
    locate: fn(&Path) -> PathBuf,
}

const fn local(name: &'static str, memory: bool, options: fn() -> OpenOptions) -> Place {
    Place {
        name,
        memory,
        reads_like_files: !memory,
        node: false,
        in_parts: false,
        options,
        locate: Path::to_path_buf,
    }
}

const fn node(name: &'static str, locate: fn(&Path) -> PathBuf, options: fn() -> OpenOptions) -> Place {
    Place { reads_like_files: false, node: true, locate, ..local(name, false, options) }
}

pub static PLACES: [Place; 5] = [
    // io_uring, where the system has it.
    local("file", false, OpenOptions::default),
    local("positioned", false, positioned),
    local("sim", false, slow),
    local("dram", true, || on(TierChoice::Dram)),
    local("mapped", true, || on("mapped".parse().unwrap())),
];

/// Returns files and one other tier, which depends on `number`. It is for tests whose answers depend on the
/// vectors and not on the tier.
pub fn some(number: usize) -> [&'static Place; 2] {
    [&PLACES[0], &PLACES[1 + number % (PLACES.len() - 1)]]
}

/// Variants of [`PLACES`] for the tests of answers.
pub static VARIANTS: [Place; 7] = [
    local("page cache", false, page_cache),
    local("ssd", false, || delayed(TierChoice::File, DelayProfile::ssd())),
    local("cxl", true, || delayed(TierChoice::Dram, DelayProfile::cxl())),
    Place {
        reads_like_files: false,
        locate: in_object_store,
        ..local("object", false, OpenOptions::default)
    },
    node("remote, TCP", in_a_node, || one_node_options("tcp")),
    node("remote, shared", in_a_node, || one_node_options("shm")),
    Place { in_parts: true, ..node("three nodes", in_three_nodes, all_nodes_options) },
];

impl Place {
    pub fn open(&self, path: &Path) -> Index {
        self.open_with(path, |options| options)
    }

    pub fn open_with(&self, path: &Path, change: impl FnOnce(OpenOptions) -> OpenOptions) -> Index {
        open(&(self.locate)(path), change((self.options)()))
    }

    /// Returns where the index at `path` is on this tier, and the options that open it there.
    pub fn locate(&self, path: &Path) -> (PathBuf, OpenOptions) {
        ((self.locate)(path), (self.options)())
    }

    pub fn try_open_with(
        &self,
        path: &Path,
        change: impl FnOnce(OpenOptions) -> OpenOptions,
    ) -> Result<Index, IndexError> {
        Index::open((self.locate)(path), &change((self.options)()))
    }
}

pub fn open(path: &Path, options: OpenOptions) -> Index {
    Index::open(path, &options).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn on(tier: TierChoice) -> OpenOptions {
    OpenOptions { tier, ..OpenOptions::default() }
}

fn positioned() -> OpenOptions {
    OpenOptions { method: Method::Positioned, ..OpenOptions::default() }
}

fn page_cache() -> OpenOptions {
    OpenOptions { page_cache: true, ..OpenOptions::default() }
}

fn delayed(tier: TierChoice, profile: DelayProfile) -> OpenOptions {
    let wrap: WrapTier =
        Arc::new(move |tier| Ok(Arc::new(DelayTier::new(tier, profile.clone())) as Arc<dyn Tier>));
    OpenOptions { tier, wrap: Some(wrap), ..OpenOptions::default() }
}

/// Copies the index at `path` to an object store in memory.
fn in_object_store(path: &Path) -> PathBuf {
    let address = PathBuf::from(format!("memory://families{}", path.display()));
    let scratch = tempfile::tempdir().unwrap();
    let to = StoreOptions::new([("scratch", scratch.path().to_str().unwrap())]).unwrap();
    copy(path, &address, &CopyOptions { to, overwrite: true, ..CopyOptions::default() }, &Silent).unwrap();
    address
}

/// Returns three memory nodes. The first one has room for a copy of every index of these tests.
fn nodes() -> &'static [Node; 3] {
    static NODES: OnceLock<[Node; 3]> = OnceLock::new();
    NODES.get_or_init(|| {
        [(); 3].map(|()| {
            let listen = ([127, 0, 0, 1], 0).into();
            Node::start(&NodeOptions { listen, capacity_bytes: 1 << 30 }, Identity::new().unwrap()).unwrap()
        })
    })
}

/// Returns the store options with the credentials of these nodes.
fn credentials(nodes: &[Node]) -> [(&'static str, String); 2] {
    let joined = |field: fn(&Credentials) -> &String| {
        nodes.iter().map(|node| field(node.credentials()).as_str()).collect::<Vec<_>>().join(",")
    };
    [
        ("token", joined(|credentials| &credentials.token)),
        ("peer_key", joined(|credentials| &credentials.peer_key)),
    ]
}

fn node_options(nodes: &[Node], more: [(&str, &str); 1]) -> StoreOptions {
    let credentials = credentials(nodes);
    StoreOptions::new(credentials.iter().map(|(key, value)| (*key, value.as_str())).chain(more)).unwrap()
}

fn one_node_options(transport: &str) -> OpenOptions {
    let store = node_options(&nodes()[..1], [("transport", transport)]);
    OpenOptions { store, ..OpenOptions::default() }
}

fn all_nodes_options() -> OpenOptions {
    OpenOptions { store: node_options(nodes(), [("transport", "tcp")]), ..OpenOptions::default() }
}

/// Returns the address of a copy of the index at `path` on these nodes.
fn address(nodes: &[Node], path: &Path) -> PathBuf {
    let hosts: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let name = path.display().to_string().replace('/', "-");
    PathBuf::from(format!("remote://{}/{}", hosts.join(","), name.trim_start_matches('-')))
}

/// Copies the index at `path` to the memory of a node.
fn in_a_node(path: &Path) -> PathBuf {
    let address = address(&nodes()[..1], path);
    let scratch = tempfile::tempdir().unwrap();
    let to = node_options(&nodes()[..1], [("scratch", scratch.path().to_str().unwrap())]);
    copy(path, &address, &CopyOptions { to, overwrite: true, ..CopyOptions::default() }, &Silent).unwrap();
    address
}

/// Copies the index at `path` to the memory of three nodes, striped in the smallest units. Each copy replaces
/// the one before, because the number of regions of a process is limited.
fn in_three_nodes(path: &Path) -> PathBuf {
    let address = address(nodes(), Path::new("index"));
    let (scratch, credentials) = (tempfile::tempdir().unwrap(), credentials(nodes()));
    let url = RemoteUrl::parse(&address).unwrap();
    let mut options: Vec<(&str, &str)> =
        credentials.iter().map(|(key, value)| (*key, value.as_str())).collect();
    options.push(("scratch", scratch.path().to_str().unwrap()));
    let options = RemoteOptions::each(&options, nodes().len()).unwrap();
    let source = find(path, &[], &StoreOptions::default()).unwrap();
    let paged = Manifest::load(source.as_ref()).unwrap().paged_file().name.clone();
    let store = SpreadStore::new(&url, &options, MANIFEST_NAME).unwrap().striped(&[&paged], 4096).unwrap();
    convert_stripes_in(source.as_ref(), &store, &url.name, Replace::Generation, &Silent).unwrap();
    address
}

/// Returns the options of a device with varying latency, which completes reads out of order and accepts only
/// a part of a submission.
fn slow() -> OpenOptions {
    let options = SimOptions {
        latency: LatencyDistribution::Uniform { low_ns: 1_000, high_ns: 900_000 },
        depth: 5,
        rates: FaultRates { delay: 0.1, reorder: 0.5, refuse: 0.2, ..FaultRates::NONE },
        ..SimOptions::default()
    };
    let wrap: WrapTier =
        Arc::new(move |tier| Ok(Arc::new(SimTier::over(tier, options.clone())) as Arc<dyn Tier>));
    OpenOptions { wrap: Some(wrap), ..OpenOptions::default() }
}

/// Opens `index` on a simulated device. Returns a handle of the device as well.
pub fn simulated(index: &Index, options: SimOptions) -> (Index, SimHandle) {
    let sim = Arc::new(SimTier::over(index.tier().clone(), options));
    let handle = sim.handle();
    (wrapped(index.path(), sim), handle)
}

/// Opens the index at `path` with `tier` in place of its own tier.
pub fn wrapped(path: &Path, tier: Arc<dyn Tier>) -> Index {
    let wrap: WrapTier = Arc::new(move |_| Ok(tier.clone()));
    open(path, OpenOptions { wrap: Some(wrap), ..OpenOptions::default() })
}
