//! Every tier that an index is searched on.

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
use bathyal_tier::backend::sim::{FaultRates, Latency, SimHandle, SimOptions, SimTier};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A tier and how an index is opened on it.
pub struct Place {
    pub name: &'static str,
    /// Whether vectors can be read alone there for the price of nothing else.
    pub memory: bool,
    /// Whether reads are cut as those of files are.
    pub cut_as_files: bool,
    /// Whether that is the memory of another machine, from which clusters read vectors alone.
    pub node: bool,
    /// Whether indexes lie in parts there.
    pub in_parts: bool,
    options: fn() -> OpenOptions,
    /// Where an index lies that was built at a path.
    of: fn(&Path) -> PathBuf,
}

const fn here(name: &'static str, memory: bool, options: fn() -> OpenOptions) -> Place {
    Place {
        name,
        memory,
        cut_as_files: !memory,
        node: false,
        in_parts: false,
        options,
        of: Path::to_path_buf,
    }
}

const fn node(name: &'static str, of: fn(&Path) -> PathBuf, options: fn() -> OpenOptions) -> Place {
    Place { cut_as_files: false, node: true, of, ..here(name, false, options) }
}

pub static PLACES: [Place; 5] = [
    // io_uring, where the system has it.
    here("file", false, OpenOptions::default),
    here("positioned", false, positioned),
    here("sim", false, slow),
    here("dram", true, || on(TierChoice::Dram)),
    here("mapped", true, || on("mapped".parse().unwrap())),
];

/// Files, and another tier, a different one from number to number: for what varies with the vectors and not with the tier.
pub fn some(number: usize) -> [&'static Place; 2] {
    [&PLACES[0], &PLACES[1 + number % (PLACES.len() - 1)]]
}

/// Variants of these, which only the tests of answers go through.
pub static VARIANTS: [Place; 7] = [
    here("page cache", false, page_cache),
    here("ssd", false, || delayed(TierChoice::File, DelayProfile::ssd())),
    here("cxl", true, || delayed(TierChoice::Dram, DelayProfile::cxl())),
    Place { cut_as_files: false, of: in_object_store, ..here("object", false, OpenOptions::default) },
    node("remote, TCP", in_a_node, || of_the_node("tcp")),
    node("remote, shared", in_a_node, || of_the_node("shm")),
    Place { in_parts: true, ..node("three nodes", in_three_nodes, of_all_nodes) },
];

impl Place {
    pub fn open(&self, path: &Path) -> Index {
        self.open_with(path, |options| options)
    }

    pub fn open_with(&self, path: &Path, change: impl FnOnce(OpenOptions) -> OpenOptions) -> Index {
        open(&(self.of)(path), change((self.options)()))
    }

    pub fn try_open_with(
        &self,
        path: &Path,
        change: impl FnOnce(OpenOptions) -> OpenOptions,
    ) -> Result<Index, IndexError> {
        Index::open((self.of)(path), &change((self.options)()))
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

/// A copy of the index at `path` in an object store that lies in memory.
fn in_object_store(path: &Path) -> PathBuf {
    let address = PathBuf::from(format!("memory://families{}", path.display()));
    let scratch = tempfile::tempdir().unwrap();
    let to = StoreOptions::new([("scratch", scratch.path().to_str().unwrap())]).unwrap();
    copy(path, &address, &CopyOptions { to, overwrite: true, ..CopyOptions::default() }, &Silent).unwrap();
    address
}

/// A node that has room for a copy of every index of these tests, and two more.
fn nodes() -> &'static [Node; 3] {
    static NODES: OnceLock<[Node; 3]> = OnceLock::new();
    NODES.get_or_init(|| {
        [(); 3].map(|()| {
            let listen = ([127, 0, 0, 1], 0).into();
            Node::start(&NodeOptions { listen, capacity_bytes: 1 << 30 }, Identity::new().unwrap()).unwrap()
        })
    })
}

/// What is said to reach these nodes.
fn said(nodes: &[Node]) -> [(&'static str, String); 2] {
    let joined = |of: fn(&Credentials) -> &String| {
        nodes.iter().map(|node| of(node.credentials()).as_str()).collect::<Vec<_>>().join(",")
    };
    [("token", joined(|own| &own.token)), ("peer_key", joined(|own| &own.peer_key))]
}

fn node_options(nodes: &[Node], more: [(&str, &str); 1]) -> StoreOptions {
    let said = said(nodes);
    StoreOptions::new(said.iter().map(|(key, value)| (*key, value.as_str())).chain(more)).unwrap()
}

fn of_the_node(transport: &str) -> OpenOptions {
    let store = node_options(&nodes()[..1], [("transport", transport)]);
    OpenOptions { store, ..OpenOptions::default() }
}

fn of_all_nodes() -> OpenOptions {
    OpenOptions { store: node_options(nodes(), [("transport", "tcp")]), ..OpenOptions::default() }
}

/// The address of a copy of the index at `path` in these nodes.
fn address(nodes: &[Node], path: &Path) -> PathBuf {
    let hosts: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let name = path.display().to_string().replace('/', "-");
    PathBuf::from(format!("remote://{}/{}", hosts.join(","), name.trim_start_matches('-')))
}

/// A copy of the index at `path` in the memory of a node.
fn in_a_node(path: &Path) -> PathBuf {
    let address = address(&nodes()[..1], path);
    let scratch = tempfile::tempdir().unwrap();
    let to = node_options(&nodes()[..1], [("scratch", scratch.path().to_str().unwrap())]);
    copy(path, &address, &CopyOptions { to, overwrite: true, ..CopyOptions::default() }, &Silent).unwrap();
    address
}

/// The same in the memory of three, whose parts change after as few bytes as they may. Each takes the place of the one before:
/// a process has so many regions and no more.
fn in_three_nodes(path: &Path) -> PathBuf {
    let address = address(nodes(), Path::new("index"));
    let (scratch, said, url) =
        (tempfile::tempdir().unwrap(), said(nodes()), RemoteUrl::parse(&address).unwrap());
    let mut said: Vec<(&str, &str)> = said.iter().map(|(key, value)| (*key, value.as_str())).collect();
    said.push(("scratch", scratch.path().to_str().unwrap()));
    let options = RemoteOptions::each(&said, nodes().len()).unwrap();
    let source = find(path, &[], &StoreOptions::default()).unwrap();
    let paged = Manifest::load(source.as_ref()).unwrap().paged_file().name.clone();
    let store = SpreadStore::new(&url, &options, MANIFEST_NAME).unwrap().striped(&[&paged], 4096).unwrap();
    convert_stripes_in(source.as_ref(), &store, &url.name, Replace::Generation, &Silent).unwrap();
    address
}

/// A device that is late, early and out of order, and takes fewer reads than it is given.
fn slow() -> OpenOptions {
    let options = SimOptions {
        latency: Latency::Uniform { low_ns: 1_000, high_ns: 900_000 },
        depth: 5,
        rates: FaultRates { delay: 0.1, reorder: 0.5, refuse: 0.2, ..FaultRates::NONE },
        ..SimOptions::default()
    };
    let wrap: WrapTier =
        Arc::new(move |tier| Ok(Arc::new(SimTier::over(tier, options.clone())) as Arc<dyn Tier>));
    OpenOptions { wrap: Some(wrap), ..OpenOptions::default() }
}

/// `index` on a simulated device, and a handle on that.
pub fn simulated(index: &Index, options: SimOptions) -> (Index, SimHandle) {
    let sim = Arc::new(SimTier::over(index.tier().clone(), options));
    let handle = sim.handle();
    (wrapped(index.path(), sim), handle)
}

/// The index at `path`, its bytes read through `tier`.
pub fn wrapped(path: &Path, tier: Arc<dyn Tier>) -> Index {
    let wrap: WrapTier = Arc::new(move |_| Ok(tier.clone()));
    open(path, OpenOptions { wrap: Some(wrap), ..OpenOptions::default() })
}
