//! What a cache is told: how much memory, how much disk, where, and what it gives up first.

#[cfg(feature = "client")]
use bathyal_store::StoreError;
use serde::Serialize;
use std::path::PathBuf;

/// Bytes of memory where a cache is wanted and nothing is said: little beside an index, and more than one search reads.
const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;
/// Bytes of disk where a folder is named and nothing else is said: most disks have so much to spare.
const DEFAULT_DISK_BYTES: u64 = 10_000_000_000;
/// With less a cache would hold a few blocks.
const LEAST_MEMORY_BYTES: u64 = 4 << 20;
/// With less a disk would hold a few blocks.
const LEAST_DISK_BYTES: u64 = 4 << 20;

/// Which blocks are given up first, in memory and on disk alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CachePolicy {
    /// S3-FIFO (Yang et al., SOSP 2023): a small queue for what is new (a tenth of the bytes), a main queue for what is read
    /// again, the hashes of what left the small one. What is read once goes soon, however much of it there is.
    #[default]
    S3Fifo,
    /// Segmented least recently used, as the paper cloud-native-vector-search has it: what is new is on probation; what is
    /// read again is moved to the protected segment (four fifths of the bytes), and from its end back to probation. The end of
    /// probation goes first.
    SegmentedLru,
    /// Least recently used.
    Lru,
}

impl CachePolicy {
    fn named(name: &str) -> Result<CachePolicy, String> {
        match name {
            "s3-fifo" => Ok(CachePolicy::S3Fifo),
            "slru" => Ok(CachePolicy::SegmentedLru),
            "lru" => Ok(CachePolicy::Lru),
            _ => Err("is s3-fifo, slru or lru".into()),
        }
    }
}

/// What the blocks of a store are kept in. All who say the same share one cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheOptions {
    /// Bytes of memory, with everything that the cache needs to find its blocks, in memory and on disk.
    pub memory_bytes: u64,
    /// Bytes of disk; 0 for none.
    pub disk_bytes: u64,
    /// The folder of the disk's files; `None` is `bathyal/blocks` in the user's cache folder.
    pub folder: Option<PathBuf>,
    /// What is given up first.
    pub policy: CachePolicy,
}

/// What a cache holds at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheStatus {
    /// Bytes of memory that it takes.
    pub memory_bytes: u64,
    /// Bytes of memory that it may take.
    pub most_memory_bytes: u64,
    /// Bytes of the blocks on disk.
    pub disk_bytes: u64,
    /// Bytes of disk that it takes at most; less than it may where the memory to find more blocks is missing.
    pub most_disk_bytes: u64,
    /// Blocks that were found damaged on disk.
    pub damaged_blocks: u64,
    /// Blocks that were not written to disk because it could not keep up.
    pub skipped_blocks: u64,
    /// Why the disk is not used.
    pub trouble: Option<String>,
}

/// What was said so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    memory_bytes: Option<u64>,
    disk_bytes: Option<u64>,
    folder: Option<PathBuf>,
    policy: Option<CachePolicy>,
}

impl Wanted {
    /// Takes an option `key`; whether it is one of a cache.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "cache_memory" => self.memory_bytes = Some(size(value, LEAST_MEMORY_BYTES, false)?),
            "cache_disk" => self.disk_bytes = Some(size(value, LEAST_DISK_BYTES, true)?),
            "cache" if value.is_empty() => return Err("is a folder".into()),
            "cache" => self.folder = Some(PathBuf::from(value)),
            "cache_policy" => self.policy = Some(CachePolicy::named(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The cache that this describes; `None` if none is wanted.
    pub(crate) fn options(&self) -> Option<CacheOptions> {
        let Wanted { memory_bytes, disk_bytes, folder, policy } = self;
        if memory_bytes.is_none() && disk_bytes.is_none() && folder.is_none() {
            return None;
        }
        let usual = if folder.is_some() { DEFAULT_DISK_BYTES } else { 0 };
        Some(CacheOptions {
            memory_bytes: memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES),
            disk_bytes: disk_bytes.unwrap_or(usual),
            folder: folder.clone(),
            policy: policy.unwrap_or_default(),
        })
    }
}

impl CacheOptions {
    /// The folder of the disk's files.
    #[cfg(feature = "client")]
    pub(crate) fn place(&self) -> Result<PathBuf, StoreError> {
        match &self.folder {
            Some(folder) => Ok(folder.clone()),
            None => Ok(bathyal_store::usual_folder("cache=FOLDER")?.join("blocks")),
        }
    }
}

/// Bytes as people write them: `2GB`, `512MiB`, a number; `0` for none, if `none` may be.
fn size(text: &str, least: u64, none: bool) -> Result<u64, String> {
    let wrong = || {
        let zero = if none { "0 or " } else { "" };
        format!(
            "is {zero}a size of {} MiB at least, for example 2GB, 512MiB or a number of bytes",
            least >> 20
        )
    };
    if none && text.trim() == "0" {
        return Ok(0);
    }
    let bytes = bathyal_store::size::parse(text).map_err(|_| wrong())?;
    if (least..u64::MAX).contains(&bytes) { Ok(bytes) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_what_is_not_said_is_usual() {
        for (text, bytes) in
            [("0", 0), ("1.5 GB", 1_500_000_000), ("512MiB", 512 << 20), ("5000000", 5_000_000)]
        {
            assert_eq!(size(text, 4 << 20, true), Ok(bytes), "{text}");
        }
        for text in ["", "many", "1MB", "-1GB", "1e9", "99999999TiB", "1.2.3GB"] {
            assert!(size(text, 4 << 20, true).is_err(), "{text}");
        }
        assert!(size("0", 4 << 20, false).is_err());
        let mut wanted = Wanted::default();
        assert_eq!((wanted.set("region", "x"), wanted.options()), (Ok(false), None));
        assert_eq!(wanted.set("cache_policy", "slru"), Ok(true));
        assert_eq!(wanted.options(), None, "how, but not that");
        assert_eq!(wanted.set("cache", "/somewhere"), Ok(true));
        let options = wanted.options().unwrap();
        assert_eq!((options.memory_bytes, options.disk_bytes), (DEFAULT_MEMORY_BYTES, DEFAULT_DISK_BYTES));
        assert_eq!(options.policy, CachePolicy::SegmentedLru);
        assert!(wanted.set("cache_policy", "newest").is_err());
    }
}
