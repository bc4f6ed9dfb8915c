//! A memory node in this process with one index in it, which is opened through an emulated network card.

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

/// Room of a node beside the index: its manifest, and what is rounded up.
const ROOM_BYTES: u64 = 64 << 20;
/// A budget that keeps this much less than is wanted is near enough.
const NEAR: f64 = 0.01;
/// The share that is kept in the paper (section 4), and where no budget says how much.
const PAPER_SHARE: f64 = 0.1;
/// Memory beside the least that goes to queries alone, since nothing is kept for less than a megabyte.
const QUERIES_BYTES: u64 = (1 << 20) - 1;
/// Budgets that are tried.
const TRIES: u32 = 16;

/// How much of an index is kept in this process's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Keep {
    /// As little as will do.
    Least,
    /// This share of what searches read, beside what they cannot do without.
    Share(f64),
    /// So many bytes of everything, searches and their buffers aside.
    Bytes(u64),
}

/// An open index whose round trips are counted.
pub(super) struct Opened {
    pub index: Index,
    pub doorbells: Doorbells,
}

impl Opened {
    /// Bytes of it in this process's memory, searches and their buffers aside.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.index.memory_split().fixed()
    }

    /// Of so many queries at once those for which its budget has memory.
    pub(super) fn at_once(
        &self,
        wanted: usize,
        search_list: u32,
        options: &SearchOptions,
    ) -> Result<usize, Failure> {
        let beyond_one =
            self.index.dram_bytes(1, wanted, search_list) - self.index.dram_bytes(1, 1, search_list);
        Ok((beyond_one / self.index.query_bytes(options)?.max(1)) as usize + 1)
    }

    /// Bytes of what searches read that it keeps.
    pub(super) fn cache_bytes(&self) -> u64 {
        self.index.memory_split().cache
    }
}

/// A node with an index; gone with this.
pub(super) struct Served {
    node: Node,
    address: PathBuf,
    paged_bytes: u64,
}

impl Served {
    /// Starts a node and copies the index at `path` there.
    pub(super) fn copy(path: &Path, manifest: &Manifest, console: &Console) -> Result<Served, Failure> {
        let refuse = |e| Failure::new(format!("a memory node in this process: cannot be started: {e}"));
        let capacity_bytes = manifest.index_bytes() + ROOM_BYTES;
        let identity = Identity::new().map_err(refuse)?;
        let node = Node::start(&NodeOptions { listen: ([127, 0, 0, 1], 0).into(), capacity_bytes }, identity)
            .map_err(refuse)?;
        let address = PathBuf::from(format!("remote://{}/index", node.address()));
        let served = Served { node, address, paged_bytes: manifest.paged_file().bytes };
        let options = CopyOptions { to: served.options()?, overwrite: true, ..CopyOptions::default() };
        copy(path, &served.address, &options, &console.progress())?;
        Ok(served)
    }

    fn options(&self) -> Result<StoreOptions, IndexError> {
        let Credentials { token, peer_key } = self.node.credentials();
        // What a search wants is brought here, as from another machine, instead of being read where it lies.
        let said = [("token", token.as_str()), ("peer_key", peer_key.as_str()), ("transport", "shm")];
        Ok(StoreOptions::new(said)?)
    }

    /// Bytes that searches read ranges of.
    pub(super) fn paged_bytes(&self) -> u64 {
        self.paged_bytes
    }

    /// Opens it behind `device` with doorbells of at most `reads` reads; without a number all that is ready is posted.
    pub(super) fn open(
        &self,
        device: &DelayProfile,
        reads: Option<NonZeroU32>,
        keep: Keep,
    ) -> Result<Opened, Failure> {
        let wanted = match keep {
            // What the family keeps where no budget says how much, which leaves queries all the memory that they want.
            Keep::Share(share) if (share - PAPER_SHARE).abs() < 1e-9 => {
                return Ok(self.open_within(device, reads, None)?);
            }
            Keep::Least => 0,
            Keep::Share(share) => (self.paged_bytes as f64 * share) as u64,
            Keep::Bytes(bytes) => bytes,
        };
        let kept = |opened: &Opened| match keep {
            Keep::Bytes(_) => opened.kept_bytes(),
            _ => opened.cache_bytes(),
        };
        let at = |budget| self.open_within(device, reads, Some(budget));
        let low = match at(1) {
            Err(IndexError::Memory { needed, .. }) => needed,
            Err(error) => return Err(error.into()),
            Ok(opened) => return Ok(opened),
        };
        let begin = if matches!(keep, Keep::Share(_)) { low + QUERIES_BYTES } else { low };
        Ok(search_budget(begin, wanted, kept, at)?)
    }

    fn open_within(
        &self,
        device: &DelayProfile,
        reads: Option<NonZeroU32>,
        budget: Option<u64>,
    ) -> Result<Opened, IndexError> {
        let (doorbells, card) = (Doorbells::default(), device.clone());
        let card = move |tier| Arc::new(DelayTier::new(tier, card.clone())) as Arc<dyn Tier>;
        let options = OpenOptions {
            store: self.options()?,
            wait: true,
            memory_bytes: budget,
            processor: Some(Processor::REFERENCE),
            wrap: Some(doorbells.wrap(card, reads)),
            ..OpenOptions::default()
        };
        Ok(Opened { index: Index::open(&self.address, &options)?, doorbells })
    }
}

/// The index opened within the budget from `low` up that keeps `wanted` bytes, or as many below as there are: a budget holds the
/// buffers of each core, too, so that it is found by trying.
fn search_budget(
    mut low: u64,
    wanted: u64,
    kept: impl Fn(&Opened) -> u64,
    at: impl Fn(u64) -> Result<Opened, IndexError>,
) -> Result<Opened, IndexError> {
    let mut best = at(low)?;
    let is_near = |best: &Opened| kept(best) as f64 >= wanted as f64 * (1.0 - NEAR);
    let mut step = wanted.max(1 << 20);
    for _ in 0..TRIES {
        if is_near(&best) {
            return Ok(best);
        }
        let opened = at(low + step)?;
        if kept(&opened) > wanted {
            break;
        }
        (best, low, step) = (opened, low + step, 2 * step);
    }
    for _ in 0..TRIES {
        step /= 2;
        if is_near(&best) || step == 0 {
            break;
        }
        let opened = at(low + step)?;
        if kept(&opened) <= wanted {
            (best, low) = (opened, low + step);
        }
    }
    Ok(best)
}
