//! A memory node in this process that holds one index, opened through an emulated network card.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bathyal_console::{Console, Failure};
use bathyal_index::cost::processor::Processor;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{CopyOptions, Index, IndexError, OpenOptions, SearchOptions, StoreOptions, copy};
use bathyal_remote::{Credentials, Identity, Node, NodeOptions};
use bathyal_tier::Tier;
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};

use crate::doorbells::Doorbells;

/// Capacity of a node besides the index, for its manifest and for rounding.
const ROOM_BYTES: u64 = 64 << 20;
/// Accepted relative shortfall of the cached bytes against the requested ones.
const NEAR: f64 = 0.01;
/// Share that the paper keeps (section 4); the family keeps as much without a budget.
const PAPER_SHARE: f64 = 0.1;
/// Memory beyond the least budget that only queries use: the family keeps no cache of less than a megabyte.
const QUERIES_BYTES: u64 = (1 << 20) - 1;
/// Most budgets that each of the two loops of the search tries.
const TRIES: u32 = 16;

/// How much of an index stays in this process's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Residency {
    /// The least budget that opens the index.
    Least,
    /// This share of the bytes that searches read, besides what the index always needs.
    Share(f64),
    /// This many bytes in total, without the memory of searches and their buffers.
    Bytes(u64),
}

/// An open index and the counts of its round trips.
pub(super) struct OpenIndex {
    pub index: Index,
    pub doorbells: Doorbells,
}

impl OpenIndex {
    /// Returns the bytes that the index keeps in this process's memory, without searches and their buffers.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.index.memory_split().fixed()
    }

    /// Returns how many of `queries` concurrent queries the index's budget has memory for.
    pub(super) fn at_once(
        &self,
        queries: usize,
        search_list: u32,
        options: &SearchOptions,
    ) -> Result<usize, Failure> {
        let beyond_one =
            self.index.dram_bytes(1, queries, search_list) - self.index.dram_bytes(1, 1, search_list);
        Ok((beyond_one / self.index.query_bytes(options)?.max(1)) as usize + 1)
    }

    /// Returns the bytes of the cache of what searches read.
    pub(super) fn cache_bytes(&self) -> u64 {
        self.index.memory_split().cache
    }
}

/// A memory node that holds an index; dropping this stops the node.
pub(super) struct ServedIndex {
    node: Node,
    address: PathBuf,
    paged_bytes: u64,
}

impl ServedIndex {
    /// Starts a node and copies the index at `path` into it.
    pub(super) fn copy(path: &Path, manifest: &Manifest, console: &Console) -> Result<ServedIndex, Failure> {
        let refuse = |e| Failure::new(format!("cannot start a memory node in this process: {e}"));
        let capacity_bytes = manifest.index_bytes() + ROOM_BYTES;
        let identity = Identity::new().map_err(refuse)?;
        let node = Node::start(&NodeOptions { listen: ([127, 0, 0, 1], 0).into(), capacity_bytes }, identity)
            .map_err(refuse)?;
        let address = PathBuf::from(format!("remote://{}/index", node.address()));
        let served = ServedIndex { node, address, paged_bytes: manifest.paged_file().bytes };
        let options = CopyOptions { to: served.options()?, overwrite: true, ..CopyOptions::default() };
        copy(path, &served.address, &options, &console.progress())?;
        Ok(served)
    }

    fn options(&self) -> Result<StoreOptions, IndexError> {
        let Credentials { token, peer_key } = self.node.credentials();
        // The transport `shm` copies what a search reads, as from another machine; searches must not read the
        // node's memory in place.
        let options = [("token", token.as_str()), ("peer_key", peer_key.as_str()), ("transport", "shm")];
        Ok(StoreOptions::new(options)?)
    }

    /// Returns the bytes of the file that searches read in ranges.
    pub(super) fn paged_bytes(&self) -> u64 {
        self.paged_bytes
    }

    /// Opens the index behind `device` with doorbells of at most `reads` reads; `None` sends all ready reads
    /// with one doorbell.
    pub(super) fn open(
        &self,
        device: &DelayProfile,
        reads: Option<NonZeroU32>,
        residency: Residency,
    ) -> Result<OpenIndex, Failure> {
        let target_bytes = match residency {
            // The family's own default keeps this share and limits no query's memory.
            Residency::Share(share) if (share - PAPER_SHARE).abs() < 1e-9 => {
                return Ok(self.open_within(device, reads, None)?);
            }
            Residency::Least => 0,
            Residency::Share(share) => (self.paged_bytes as f64 * share) as u64,
            Residency::Bytes(bytes) => bytes,
        };
        let kept = |opened: &OpenIndex| match residency {
            Residency::Bytes(_) => opened.kept_bytes(),
            _ => opened.cache_bytes(),
        };
        let open_at = |budget| self.open_within(device, reads, Some(budget));
        let low = match open_at(1) {
            Err(IndexError::Memory { needed, .. }) => needed,
            Err(error) => return Err(error.into()),
            Ok(opened) => return Ok(opened),
        };
        let start = if matches!(residency, Residency::Share(_)) { low + QUERIES_BYTES } else { low };
        Ok(search_budget(start, target_bytes, kept, open_at)?)
    }

    fn open_within(
        &self,
        device: &DelayProfile,
        reads: Option<NonZeroU32>,
        budget: Option<u64>,
    ) -> Result<OpenIndex, IndexError> {
        let (doorbells, device) = (Doorbells::default(), device.clone());
        let card = move |tier| Arc::new(DelayTier::new(tier, device.clone())) as Arc<dyn Tier>;
        let options = OpenOptions {
            store: self.options()?,
            wait: true,
            memory_bytes: budget,
            processor: Some(Processor::REFERENCE),
            wrap: Some(doorbells.wrap(card, reads)),
            ..OpenOptions::default()
        };
        Ok(OpenIndex { index: Index::open(&self.address, &options)?, doorbells })
    }
}

/// Returns the index opened within the smallest tried budget that keeps almost `target_bytes`, and never
/// more. A budget also covers the buffers of each core, so the function tries budgets upwards from `low`.
fn search_budget(
    mut low: u64,
    target_bytes: u64,
    kept: impl Fn(&OpenIndex) -> u64,
    open_at: impl Fn(u64) -> Result<OpenIndex, IndexError>,
) -> Result<OpenIndex, IndexError> {
    let mut best = open_at(low)?;
    let is_near = |best: &OpenIndex| kept(best) as f64 >= target_bytes as f64 * (1.0 - NEAR);
    let mut step = target_bytes.max(1 << 20);
    for _ in 0..TRIES {
        if is_near(&best) {
            return Ok(best);
        }
        let opened = open_at(low + step)?;
        if kept(&opened) > target_bytes {
            break;
        }
        (best, low, step) = (opened, low + step, 2 * step);
    }
    for _ in 0..TRIES {
        step /= 2;
        if is_near(&best) || step == 0 {
            break;
        }
        let opened = open_at(low + step)?;
        if kept(&opened) <= target_bytes {
            (best, low) = (opened, low + step);
        }
    }
    Ok(best)
}
