//! An open pilot, at a place like that of the index: pilots of memory nodes are in a node of this process,
//! and those of buckets in an object store in its memory. What they count is what an index there counts.

use crate::place::{AdviceTier, PlaceKind};
use bathyal_index::{
    CopyOptions, Index, IndexError, OpenOptions, SearchResult, StoreOptions, TierChoice, copy,
};
use bathyal_tier::backend::mapped::{MappedOptions, MappedPlace};
use bathyal_vectors::progress::{CancelOnly, Progress};
use std::path::{Path, PathBuf};

/// An open pilot.
pub(crate) struct OpenPilot {
    /// The index that is searched for its counters.
    pub(crate) index: Index,
    /// The same in memory, for the processor time of a search whose reads are counted separately.
    pub(crate) in_memory: Option<Index>,
    /// Where `index` is. Dropped after it.
    _place: PilotPlace,
}

/// A place that ends with its pilot.
enum PilotPlace {
    Folder,
    #[cfg(feature = "remote")]
    Node(#[allow(dead_code, reason = "runs until it is dropped")] bathyal_remote::Node),
    Bucket(PathBuf),
    File(PathBuf),
}

impl Drop for PilotPlace {
    fn drop(&mut self) {
        match self {
            // The memory, or the file, ends with this process or with the folder of pilots at the latest.
            PilotPlace::Bucket(address) => drop(bathyal_index::remove(address, &StoreOptions::default())),
            PilotPlace::File(path) => drop(std::fs::remove_file(path)),
            _ => {}
        }
    }
}

impl OpenPilot {
    /// Opens the pilot in the folder `path` for searches like those of an index on `tier`.
    ///
    /// # Errors
    /// Those of opening and copying the pilot; [`IndexError::Cancelled`].
    pub(crate) fn open(
        path: &Path,
        tier: &AdviceTier,
        progress: &dyn Progress,
    ) -> Result<OpenPilot, IndexError> {
        let profile = || Some(tier.profile.clone());
        let usual = OpenOptions { tier: tier.choice.clone(), profile: profile(), ..OpenOptions::default() };
        let at =
            |path: &Path, options: &OpenOptions| Index::open_attended(path, options, &CancelOnly(progress));
        let in_memory = || {
            at(path, &OpenOptions { tier: TierChoice::Dram, profile: profile(), ..OpenOptions::default() })
        };
        let (index, in_memory, place) = match tier.kind {
            PlaceKind::Memory => {
                (at(path, &OpenOptions { profile: None, ..usual })?, None, PilotPlace::Folder)
            }
            PlaceKind::Files => (at(path, &usual)?, None, PilotPlace::Folder),
            PlaceKind::Mapped if tier.choice == TierChoice::Mapped(MappedOptions::default()) => {
                (at(path, &usual)?, None, PilotPlace::Folder)
            }
            PlaceKind::Mapped => {
                // The place itself may hold an index, so that the pilot is mapped beside its own folder.
                let file = path.with_extension("mapped");
                let place = PilotPlace::File(file.clone());
                let choice = TierChoice::Mapped(MappedOptions::at(MappedPlace::Path(file)));
                (at(path, &OpenOptions { tier: choice, ..usual })?, None, place)
            }
            PlaceKind::Node => {
                let (index, place) = on_node(path, usual, progress)?;
                (index, Some(in_memory()?), place)
            }
            PlaceKind::Bucket(_) => {
                let (index, place) = in_bucket(path, usual, progress)?;
                (index, Some(in_memory()?), place)
            }
        };
        Ok(OpenPilot { index, in_memory, _place: place })
    }
}

/// Copies a pilot into an object store in memory, and opens it there.
fn in_bucket(
    path: &Path,
    options: OpenOptions,
    progress: &dyn Progress,
) -> Result<(Index, PilotPlace), IndexError> {
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let address = PathBuf::from(format!("memory://{folder}/pilot"));
    // A request that is sent twice because the machine is busy would count twice.
    let store = StoreOptions::new([("hedge", "off")])?;
    let place = PilotPlace::Bucket(address.clone());
    let copied = CopyOptions { to: store.clone(), overwrite: true, ..CopyOptions::default() };
    copy(path, &address, &copied, &CancelOnly(progress))?;
    let options = OpenOptions { store, wait: true, ..options };
    Ok((Index::open_attended(&address, &options, &CancelOnly(progress))?, place))
}

/// Copies a pilot into the memory of a node of this process, and opens it there.
#[cfg(feature = "remote")]
fn on_node(
    path: &Path,
    options: OpenOptions,
    progress: &dyn Progress,
) -> Result<(Index, PilotPlace), IndexError> {
    use bathyal_remote::{Identity, Node, NodeOptions};
    let failed = |error: std::io::Error| {
        IndexError::Parameter(format!("a memory node for pilots cannot run on this machine: {error}"))
    };
    let listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    let options_of_node = NodeOptions { listen, capacity_bytes: u64::MAX };
    let node = Node::start(&options_of_node, Identity::new().map_err(failed)?).map_err(failed)?;
    let address = PathBuf::from(format!("remote://{}/pilot", node.address()));
    // By shared memory, reads would be loads, which they are on another machine only if they are here, too.
    let transport = if tier_is_shared(&options) { "shm" } else { "tcp" };
    let credentials = node.credentials();
    let store = StoreOptions::new([
        ("token", credentials.token.as_str()),
        ("peer_key", credentials.peer_key.as_str()),
        ("transport", transport),
    ])?;
    let copied = CopyOptions { to: store.clone(), overwrite: false, ..CopyOptions::default() };
    copy(path, &address, &copied, &CancelOnly(progress))?;
    let index = Index::open_attended(&address, &OpenOptions { store, ..options }, &CancelOnly(progress))?;
    Ok((index, PilotPlace::Node(node)))
}

/// Returns true if the measured node is on this machine and shares its memory.
#[cfg(feature = "remote")]
fn tier_is_shared(options: &OpenOptions) -> bool {
    options.profile.as_ref().is_some_and(|profile| profile.addressable)
}

/// Refuses: this build has no memory nodes.
#[cfg(not(feature = "remote"))]
fn on_node(_: &Path, _: OpenOptions, _: &dyn Progress) -> Result<(Index, PilotPlace), IndexError> {
    Err(IndexError::Parameter("this build of Bathyal has no memory nodes, so none can be predicted".into()))
}

/// Returns the reads of a search: requests, of an index in an object store, where near reads share one.
pub(crate) fn counted_reads(found: &SearchResult) -> u64 {
    found.requests.as_ref().map_or(found.totals.reads, |requests| requests.requests)
}

/// Returns the bytes of these reads.
pub(crate) fn counted_bytes(found: &SearchResult) -> u64 {
    found.requests.as_ref().map_or(found.totals.bytes, |requests| requests.received_bytes)
}
