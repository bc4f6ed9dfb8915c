//! Addressable memory: an index is copied there once and then read in place (second-tier-memory, sections 4
//! and 5).
//!
//! A [`MappedPlace`] is anonymous memory on huge pages, a NUMA node (CXL memory is a node without
//! processors), a file on a DAX file system or tmpfs, or a DAX device. Anonymous memory and memory of nodes
//! belong to the process. Files and devices are shared: a header identifies the index there, so that a second
//! process or run finds it loaded. See `docs/mapped-memory.md` for the setup of such memory.
//!
//! A read is a prefetch of every cache line, and completes after other queries have been stepped. Nothing is
//! copied. If memory disappears under a reader (a truncated file, a poisoned page), the read fails with
//! [`TierError::Lost`] instead of crashing the process.

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
pub use load::{Fill, LoadEvent, LoadProgress, LoadSource};
pub use place::{MappedOptions, MappedPlace};

use super::in_place::InPlaceQueue;
use super::writable::{Words, WritableTier};
use crate::contract::{Queue, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use crate::memory::{CACHE_LINE, dependent_load_ns};
use header::ContentIdentity;
use numa::NodeDescription;
use region::{Mapping, Region};
use std::sync::Arc;
use std::time::Duration;

/// Time for measuring the latency of a memory when it is opened.
const TIMING: Duration = Duration::from_millis(1);
/// Minimum of memory whose latency is measured: less than this may be in the caches.
const TIMED_BYTES: usize = 4 << 20;

/// A tier whose bytes are in mapped memory. Clones share it. It is unmapped when the last clone and queue are
/// dropped.
#[derive(Debug, Clone)]
pub struct MappedTier {
    region: Arc<Region>,
    profile: TierProfile,
}

impl MappedTier {
    /// Loads `source` to the place in `options`, or finds it there. Blocks while another process loads to the
    /// same place. `progress` receives all events and may cancel.
    ///
    /// # Errors
    /// [`TierError::Checksum`] if the source has another checksum; [`TierError::Parameter`] for a place that
    /// does not exist or is too small, in use or not writable; [`TierError::Cancelled`].
    pub fn load(
        options: &MappedOptions,
        source: &LoadSource<'_>,
        progress: LoadProgress<'_>,
    ) -> Result<MappedTier, TierError> {
        MappedTier::load_from(options, source, &load::from_file(source)?, progress)
    }

    /// Loads as [`MappedTier::load`] does, but takes the bytes from `fill` instead of the path of `source`.
    ///
    /// # Errors
    /// As [`MappedTier::load`], and those of `fill`.
    pub fn load_from(
        options: &MappedOptions,
        source: &LoadSource<'_>,
        fill: Fill<'_>,
        progress: LoadProgress<'_>,
    ) -> Result<MappedTier, TierError> {
        let identity = ContentIdentity { len: source.len, crc32c: source.crc32c };
        let (region, found) = match &options.place {
            MappedPlace::Anonymous => load_private(identity.len, None, fill, progress)?,
            MappedPlace::Node(number) => {
                let node = numa::find(*number, identity.len)?;
                load_private(identity.len, Some(&node), fill, progress)?
            }
            MappedPlace::Path(path) => {
                let region = shared::attach_or_load(path, options, identity, fill, progress)?;
                return MappedTier::over(region).timed();
            }
        };
        if found != identity.crc32c {
            return Err(TierError::Checksum { found, expected: identity.crc32c });
        }
        MappedTier::over(region).timed()
    }

    /// Measures the latency of the memory and stores it in the profile; searches choose the number of
    /// interleaved queries by it. Memory that fits into a cache is not measured.
    fn timed(mut self) -> Result<MappedTier, TierError> {
        if self.bytes().len() >= TIMED_BYTES {
            self.profile.latency_ns = dependent_load_ns(self.bytes(), TIMING).round() as u64;
            self.check()?;
        }
        Ok(self)
    }

    /// Maps about `len` bytes of any content at the place, to measure it: memory of this process; for a
    /// folder, a temporary file that is gone with this tier; for a file or device, its present bytes, which
    /// are only read.
    pub(crate) fn for_measuring(
        options: &MappedOptions,
        len: u64,
        progress: LoadProgress<'_>,
    ) -> Result<MappedTier, TierError> {
        let region = match &options.place {
            MappedPlace::Anonymous => load_private(len, None, &load::fill_with_noise, progress)?.0,
            MappedPlace::Node(number) => {
                let node = numa::find(*number, len)?;
                load_private(len, Some(&node), &load::fill_with_noise, progress)?.0
            }
            MappedPlace::Path(path) if path.is_dir() => shared::map_temporary(path, len, progress)?,
            MappedPlace::Path(path) => shared::map_existing(path, len)?,
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
            rates: Vec::new(),
        };
        MappedTier { region: Arc::new(region), profile }
    }

    /// Makes a writable tier of `len` zeroed bytes, in memory of this process or on a NUMA node. Its reads
    /// are copies.
    ///
    /// # Errors
    /// [`TierError::Parameter`] for a path, for which there is [`MappedFile::map`], and if memory is short.
    pub fn writable_zeros(options: &MappedOptions, len: usize) -> Result<WritableTier, TierError> {
        let node = match &options.place {
            MappedPlace::Anonymous => None,
            MappedPlace::Node(number) => Some(numa::find(*number, len as u64)?),
            MappedPlace::Path(path) => {
                let what = format!(
                    "{}: zeroed memory is available anonymously and on NUMA nodes only; map a file or device \
                     with MappedFile",
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
        // SAFETY: whole pages of zeros, which stay mapped until `mapping`, which the words own, is dropped.
        // No other reference to them exists.
        let words = unsafe { Words::over(start, len, Box::new(mapping)) };
        Ok(WritableTier::new(words, "mapped", format!("{name}, {pages}, copied")))
    }

    /// Returns all bytes, in place.
    pub fn bytes(&self) -> &[u8] {
        self.region.bytes()
    }

    /// Checks the memory.
    ///
    /// # Errors
    /// [`TierError::Lost`] if bytes of the region are missing.
    pub fn check(&self) -> Result<(), TierError> {
        self.region.check(true)
    }
}

/// Maps and fills memory of this process. Returns it with the checksum of its bytes.
fn load_private(
    len: u64,
    node: Option<&NodeDescription>,
    fill: Fill<'_>,
    progress: LoadProgress<'_>,
) -> Result<(Region, u32), TierError> {
    let Ok(len) = usize::try_from(len) else {
        return Err(TierError::Parameter("the index is longer than the address space".into()));
    };
    let (mapping, pages) = Mapping::anonymous(len, node)?;
    let found = load::fill(&mapping, 0, len, fill, progress)?;
    let name = match node {
        None => format!("anonymous memory, {pages}"),
        Some(node) => {
            let confirmed = numa::confirm(mapping.start(), len, node)?;
            let note = if confirmed { "" } else { ", not confirmed by the system" };
            format!("NUMA node {}{note}, {pages}", node.describe())
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
