//! Options of a cache: memory, disk, folder, and the eviction policy.

#[cfg(feature = "client")]
use bathyal_store::StoreError;
use serde::Serialize;
use std::path::PathBuf;

/// The default memory of a cache in bytes: little beside an index, and more than one search reads.
const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;
/// The default disk space in bytes if a folder is given: most disks have this much to spare.
const DEFAULT_DISK_BYTES: u64 = 10_000_000_000;
/// The least memory in bytes; with less, a cache would hold only a few blocks.
const MIN_MEMORY_BYTES: u64 = 4 << 20;
/// The least disk space in bytes; with less, a disk would hold only a few blocks.
const MIN_DISK_BYTES: u64 = 4 << 20;

/// The eviction policy, in memory and on disk alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CachePolicy {
    /// S3-FIFO (Yang et al., SOSP 2023): a small queue for new blocks (a tenth of the bytes), a main queue
    /// for blocks that are read again, and the hashes of blocks that left the small queue. Blocks that are
    /// read once are evicted soon, however many they are.
    #[default]
    S3Fifo,
    /// Segmented least recently used, as in the paper cloud-native-vector-search: new blocks are on
    /// probation. A block that is read again moves to the protected segment (four fifths of the bytes), and
    /// from its end back to probation. The end of the probationary segment is evicted first.
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
            _ => Err("must be s3-fifo, slru or lru".into()),
        }
    }
}

/// The options of a cache. All stores with equal options share one cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheOptions {
    /// Bytes of memory, including all entries that find blocks, in memory and on disk.
    pub memory_bytes: u64,
    /// Bytes of disk; 0 for no disk.
    pub disk_bytes: u64,
    /// The folder of the disk's files; `None` means `bathyal/blocks` in the user's cache folder.
    pub folder: Option<PathBuf>,
    /// The eviction policy.
    pub policy: CachePolicy,
}

/// The contents and limits of a cache at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheStatus {
    /// Bytes of memory in use.
    pub memory_bytes: u64,
    /// The most bytes of memory that it may use.
    pub most_memory_bytes: u64,
    /// Bytes of the blocks on disk.
    pub disk_bytes: u64,
    /// The most bytes of disk that it uses; less than the option allows if the memory to find more blocks is
    /// missing.
    pub most_disk_bytes: u64,
    /// Blocks that were found damaged on disk.
    pub damaged_blocks: u64,
    /// Blocks that were not written to disk because the disk could not keep up.
    pub skipped_blocks: u64,
    /// The reason why a requested disk is not used.
    pub trouble: Option<String>,
}

/// The cache options that were given so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CacheSettings {
    memory_bytes: Option<u64>,
    disk_bytes: Option<u64>,
    folder: Option<PathBuf>,
    policy: Option<CachePolicy>,
}

impl CacheSettings {
    /// Sets the option `key`. Returns false if it is not an option of caches.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "cache_memory" => self.memory_bytes = Some(size(value, MIN_MEMORY_BYTES, false)?),
            "cache_disk" => self.disk_bytes = Some(size(value, MIN_DISK_BYTES, true)?),
            "cache" if value.is_empty() => return Err("must be a folder".into()),
            "cache" => self.folder = Some(PathBuf::from(value)),
            "cache_policy" => self.policy = Some(CachePolicy::named(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns true if no option was given.
    pub(crate) fn is_empty(&self) -> bool {
        *self == CacheSettings::default()
    }

    /// Returns the options of the cache; `None` if no cache was requested.
    pub(crate) fn options(&self) -> Option<CacheOptions> {
        let CacheSettings { memory_bytes, disk_bytes, folder, policy } = self;
        if memory_bytes.is_none() && disk_bytes.is_none() && folder.is_none() {
            return None;
        }
        let default_disk_bytes = if folder.is_some() { DEFAULT_DISK_BYTES } else { 0 };
        Some(CacheOptions {
            memory_bytes: memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES),
            disk_bytes: disk_bytes.unwrap_or(default_disk_bytes),
            folder: folder.clone(),
            policy: policy.unwrap_or_default(),
        })
    }
}

impl CacheOptions {
    /// Returns the folder of the disk's files.
    #[cfg(feature = "client")]
    pub(crate) fn disk_folder(&self) -> Result<PathBuf, StoreError> {
        match &self.folder {
            Some(folder) => Ok(folder.clone()),
            None => Ok(bathyal_store::default_cache_folder("cache=FOLDER")?.join("blocks")),
        }
    }
}

/// Parses a size of at least `min_bytes` bytes, such as `2GB`, `512MiB` or a number of bytes; `0` only if
/// `allow_zero` is true.
fn size(text: &str, min_bytes: u64, allow_zero: bool) -> Result<u64, String> {
    let invalid = || {
        let zero = if allow_zero { "0 or " } else { "" };
        format!(
            "must be {zero}a size of at least {} MiB, for example 2GB, 512MiB or a number of bytes",
            min_bytes >> 20
        )
    };
    if allow_zero && text.trim() == "0" {
        return Ok(0);
    }
    let bytes = bathyal_store::size::parse(text).map_err(|_| invalid())?;
    if (min_bytes..u64::MAX).contains(&bytes) { Ok(bytes) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_missing_options_have_defaults() {
        for (text, bytes) in
            [("0", 0), ("1.5 GB", 1_500_000_000), ("512MiB", 512 << 20), ("5000000", 5_000_000)]
        {
            assert_eq!(size(text, 4 << 20, true), Ok(bytes), "{text}");
        }
        for text in ["", "many", "1MB", "-1GB", "1e9", "99999999TiB", "1.2.3GB"] {
            assert!(size(text, 4 << 20, true).is_err(), "{text}");
        }
        assert!(size("0", 4 << 20, false).is_err());
        let mut settings = CacheSettings::default();
        assert_eq!((settings.set("region", "x"), settings.options()), (Ok(false), None));
        assert_eq!(settings.set("cache_policy", "slru"), Ok(true));
        assert_eq!(settings.options(), None, "a policy alone requests no cache");
        assert_eq!(settings.set("cache", "/somewhere"), Ok(true));
        let options = settings.options().unwrap();
        assert_eq!((options.memory_bytes, options.disk_bytes), (DEFAULT_MEMORY_BYTES, DEFAULT_DISK_BYTES));
        assert_eq!(options.policy, CachePolicy::SegmentedLru);
        assert!(settings.set("cache_policy", "newest").is_err());
    }
}
