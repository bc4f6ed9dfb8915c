//! Addressable memory: an index is copied there once and then read in place (second-tier-memory, sections 4 and 5).
//!
//! A [`Place`] is anonymous memory on huge pages, a NUMA node (CXL memory is a node without processors), a file on a
//! DAX file system or tmpfs, or a DAX device. Anonymous memory and nodes belong to the process; files and devices
//! are shared: a header says what lies there, so a second process or run finds it loaded. `docs/mapped-memory.md`
//! tells how such memory is set up.
//!
//! Reads are prefetches of every cache line, completed when other queries have been stepped. Nothing is copied.
//! Memory that goes away under a reader (a file truncated, a poisoned page) is [`TierError::Lost`], not a crash.

mod file;
mod header;
mod load;
mod lost;
mod medium;
mod numa;
mod place;
mod region;
mod shared;

pub use file::MappedFile;
pub use load::{Fill, GoOn, LoadEvent, Source};
pub use place::{MappedOptions, Place};

use super::in_place::InPlaceQueue;
use super::writable::{Words, WritableTier};
use crate::contract::{Queue, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use crate::memory::{CACHE_LINE, chain};
use header::Identity;
use numa::Node;
use region::{Mapping, Region};
use std::sync::Arc;
use std::time::Duration;

/// Time for measuring the latency of a memory when it is opened.
const TIMING: Duration = Duration::from_millis(1);
/// Less memory than this lies in the caches.
const TIMED_BYTES: usize = 4 << 20;

/// A tier whose bytes lie in mapped memory. Clones share it; it is unmapped with the last queue.
#[derive(Debug, Clone)]
pub struct MappedTier {
    region: Arc<Region>,
    profile: TierProfile,
}

impl MappedTier {
    /// Loads `source` to the place that `options` name, or finds it there. Blocks as long as another process is
    /// loading to the same place; `go_on` hears about everything and may end it.
    ///
    /// # Errors
    /// [`TierError::Checksum`] if the source is not what it should be; [`TierError::Parameter`] for a place that is
    /// not there, too small, in use or not writable; [`TierError::Cancelled`].
    pub fn load(
        options: &MappedOptions,
        source: &Source<'_>,
        go_on: GoOn<'_>,
    ) -> Result<MappedTier, TierError> {
        MappedTier::load_from(options, source, &load::from_file(source)?, go_on)
    }

    /// The same of bytes that `fill` knows, whatever is under the path of `source`.
    ///
    /// # Errors
    /// As [`MappedTier::load`], and those of `fill`.
    pub fn load_from(
        options: &MappedOptions,
        source: &Source<'_>,
        fill: Fill<'_>,
        go_on: GoOn<'_>,
    ) -> Result<MappedTier, TierError> {
        let identity = Identity { len: source.len, crc32c: source.crc32c };
        let (region, found) = match &options.place {
            Place::Anonymous => private(identity.len, None, fill, go_on)?,
            Place::Node(number) => {
                let node = numa::find(*number, identity.len)?;
                private(identity.len, Some(&node), fill, go_on)?
            }
            Place::Path(path) => {
                let region = shared::attach_or_load(path, options, identity, fill, go_on)?;
                return MappedTier::over(region).timed();
            }
        };
        if found != identity.crc32c {
            return Err(TierError::Checksum { found, expected: identity.crc32c });
        }
        MappedTier::over(region).timed()
    }

    /// With the latency of its memory in the profile, by which searches choose how many queries to interleave. What
    /// fits into a cache has none to speak of.
    fn timed(mut self) -> Result<MappedTier, TierError> {
        if self.bytes().len() >= TIMED_BYTES {
            self.profile.latency_ns = chain(self.bytes(), TIMING).round() as u64;
            self.check()?;
        }
        Ok(self)
    }

    /// About `len` bytes of any content at the place: of this process's memory, of a file that is gone with this tier
    /// where the place is a folder, else what lies there already, for reading alone. For measuring it.
    pub(crate) fn any(options: &MappedOptions, len: u64, go_on: GoOn<'_>) -> Result<MappedTier, TierError> {
        let region = match &options.place {
            Place::Anonymous => private(len, None, &load::noise, go_on)?.0,
            Place::Node(number) => private(len, Some(&numa::find(*number, len)?), &load::noise, go_on)?.0,
            Place::Path(path) if path.is_dir() => shared::scratch(path, len, go_on)?,
            Place::Path(path) => shared::look(path, len)?,
        };
        Ok(MappedTier::over(region))
    }

    fn over(region: Region) -> MappedTier {
        let profile = TierProfile {
            kind: "mapped".into(),
            method: format!("{}, prefetched loads", region.name),
            granularity: CACHE_LINE as u32,
            alignment: 1,
            addressable: true,
            latency_ns: 0,
            iops: 0.0,
            bandwidth_bytes_per_s: 0.0,
            depth: 64,
            issue_ns: 0,
        };
        MappedTier { region: Arc::new(region), profile }
    }

    /// `len` bytes of zeros that may be changed, in memory of this process or on a NUMA node; reads are copies.
    ///
    /// # Errors
    /// [`TierError::Parameter`] for a path, whose length is that of the file ([`MappedFile::map`]), and where memory is short.
    pub fn writable_zeros(options: &MappedOptions, len: usize) -> Result<WritableTier, TierError> {
        let node = match &options.place {
            Place::Anonymous => None,
            Place::Node(number) => Some(numa::find(*number, len as u64)?),
            Place::Path(path) => {
                let what = format!(
                    "{}: zeros are had of the process's memory and of NUMA nodes; a file or device is mapped as it is, by \
                     MappedFile",
                    path.display()
                );
                return Err(TierError::Parameter(what));
            }
        };
        let (mapping, pages) = Mapping::anonymous(len, node.as_ref())?;
        let Some(start) = std::ptr::NonNull::new(mapping.start().cast()) else {
            return Err(TierError::Parameter("no memory was mapped".into()));
        };
        let name = node
            .map_or_else(|| "anonymous memory".to_owned(), |node| format!("NUMA node {}", node.describe()));
        // SAFETY: whole pages of zeros that begin on a page and stay until the mapping, which goes along, is dropped; no
        // other reference to them exists.
        let words = unsafe { Words::over(start, len, Box::new(mapping)) };
        Ok(WritableTier::new(words, "mapped", format!("{name}, {pages}, copied")))
    }

    /// All bytes, in place.
    pub fn bytes(&self) -> &[u8] {
        self.region.bytes()
    }

    /// Fails with [`TierError::Lost`] once bytes of the region were found missing.
    pub fn check(&self) -> Result<(), TierError> {
        self.region.check(true)
    }
}

/// Memory of this process, filled, and the checksum of what it was filled with.
fn private(
    len: u64,
    node: Option<&Node>,
    fill: Fill<'_>,
    go_on: GoOn<'_>,
) -> Result<(Region, u32), TierError> {
    let Ok(len) = usize::try_from(len) else {
        return Err(TierError::Parameter("the index is longer than the address space".into()));
    };
    let (mapping, pages) = Mapping::anonymous(len, node)?;
    let found = load::fill(&mapping, 0, len, fill, go_on)?;
    let name = match node {
        None => format!("anonymous memory, {pages}"),
        Some(node) => {
            let confirmed = numa::confirm(mapping.start(), len, node)?;
            let doubt = if confirmed { "" } else { ", not confirmed by the system" };
            format!("NUMA node {}{doubt}, {pages}", node.describe())
        }
    };
    mapping.seal();
    Ok((Region { mapping, skip: 0, len, backing: None, name }, found))
}

impl Tier for MappedTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.region.len as u64
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(Box::new(InPlaceQueue::new(self.region.clone(), depth)))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}
