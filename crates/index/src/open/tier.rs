//! The tier from which the pages of an index are read, and how it is opened.

use super::OpenOptions;
use crate::cost::device::LINE_BYTES;
use crate::error::IndexError;
use crate::family::{MemorySplit, Place, Stored};
use crate::format::loading::load;
use crate::format::manifest::{FileEntry, MANIFEST_NAME, Manifest};
use bathyal_store::{Backing, Generation, Object, StoreError};
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::backend::mapped::{LoadEvent, LoadSource, MappedOptions, MappedTier};
use bathyal_tier::layer::cache::{CacheOptions, CacheTier};
use bathyal_tier::layer::stripe::StripeTier;
use bathyal_tier::{Tier, TierError, TierProfile};
use bathyal_vectors::progress::Progress;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The tier from which pages of vectors and links are read. As text: `file`, `dram`, `gpu`, `mapped` or
/// `mapped:PLACE`; the place is `node=N` or a path (see [`MappedOptions`]).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TierChoice {
    /// The files, past the page cache.
    #[default]
    File,
    /// Memory: all pages are loaded when the index is opened.
    Dram,
    /// Addressable memory of any kind (CXL, NVM, huge pages): all pages are loaded into it when the index is
    /// opened, unless they are there already, and are read in place. It counts towards a memory budget only
    /// if it is anonymous memory of the process.
    Mapped(MappedOptions),
    /// The memory of the graphics card that searches ([`OpenOptions::card`]), beside the codes: vectors and
    /// links are copied there when the index is opened, and compared there. For families and layouts that a
    /// card can search.
    Card,
}

impl TierChoice {
    /// Returns the place of the pages, by which memory is counted.
    pub(super) fn place(&self) -> Place {
        match self {
            TierChoice::File => Place::File,
            TierChoice::Dram => Place::Dram,
            TierChoice::Mapped(options) if options.is_dram() => Place::Dram,
            TierChoice::Mapped(_) | TierChoice::Card => Place::Elsewhere,
        }
    }
}

impl FromStr for TierChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<TierChoice, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("file", "") => Ok(TierChoice::File),
            ("dram", "") => Ok(TierChoice::Dram),
            ("gpu", "") => Ok(TierChoice::Card),
            ("mapped", place) => place.parse().map(TierChoice::Mapped),
            _ => Err(format!(
                "unknown tier '{text}': it is one of file, dram, gpu, mapped, mapped:node=N, mapped:PATH"
            )),
        }
    }
}

impl fmt::Display for TierChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TierChoice::File => write!(formatter, "file"),
            TierChoice::Dram => write!(formatter, "dram"),
            TierChoice::Card => write!(formatter, "gpu"),
            TierChoice::Mapped(options) if *options == MappedOptions::default() => {
                write!(formatter, "mapped")
            }
            TierChoice::Mapped(options) => write!(formatter, "mapped:{options}"),
        }
    }
}

/// Returns the profile of a graphics card's memory, by which efforts are chosen. No reads are issued to it.
pub(super) fn card_profile() -> TierProfile {
    TierProfile {
        kind: "gpu".into(),
        method: "compared where it is".into(),
        granularity: 4,
        alignment: 1,
        addressable: true,
        latency_ns: 0,
        iops: 0.0,
        bandwidth_bytes_per_s: 0.0,
        depth: 1,
        issue_ns: 0,
        rates: Vec::new(),
    }
}

/// Refuses the tier `gpu` without a card, and with a wrapper of the tier, since no reads are issued to it.
pub(super) fn check_card(options: &OpenOptions) -> Result<(), IndexError> {
    if options.tier != TierChoice::Card {
        return Ok(());
    }
    let what = match (&options.card, &options.wrap) {
        (None, _) => {
            "the tier gpu is the memory of the graphics card that searches: name a card with --device gpu \
             (device), or choose another tier"
        }
        (_, Some(_)) => {
            "nothing is read from the tier gpu, so no device can be emulated there: leave --delay (delay) \
             out, or choose another tier"
        }
        _ => return Ok(()),
    };
    Err(IndexError::Parameter(what.into()))
}

/// The open tier of the pages.
pub(super) struct Pages {
    pub(super) tier: Arc<dyn Tier>,
    /// The pages themselves, if they were loaded into memory.
    pub(super) loaded: Option<LoadedPages>,
    pub(super) cache: Option<CacheTier>,
    /// The parts of a striped index, if they are read.
    pub(super) parts: Option<OpenParts>,
}

impl Pages {
    /// Wraps a tier that is open already, for a further copy of the part of the index that is in memory.
    pub(super) fn of(tier: Arc<dyn Tier>) -> Pages {
        Pages { tier, loaded: None, cache: None, parts: None }
    }
}

/// The parts of a striped file.
pub(super) struct OpenParts {
    /// The path of each part.
    pub(super) paths: Vec<PathBuf>,
    /// The tier that counts their reads.
    pub(super) tier: Arc<StripeTier>,
}

/// Pages in memory, without the layers around their tier.
pub(super) enum LoadedPages {
    Dram(Arc<DramTier>),
    Mapped(Arc<MappedTier>),
}

impl LoadedPages {
    /// Returns the bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            LoadedPages::Dram(tier) => tier.bytes(),
            LoadedPages::Mapped(tier) => tier.bytes(),
        }
    }
}

/// Returns true if the codes are loaded while searches already run: if the index is in a remote store, and
/// the options do not ask to wait.
pub(super) fn arrives(
    directory: &dyn Generation,
    manifest: &Manifest,
    stored: &dyn Stored,
    split: &MemorySplit,
    options: &OpenOptions,
) -> Result<bool, IndexError> {
    let left_out = split.codes_on_tier + split.codes_left_out + split.codes_on_card;
    let whole = left_out == 0 && split.codes > 0;
    if options.wait
        || !whole
        || split.pages > 0
        || options.tier != TierChoice::File
        || !stored.codes_may_arrive()
    {
        return Ok(false);
    }
    let object = manifest.open_file(directory, manifest.paged_file())?;
    // The memory of a node is as near as a local disk. Its requests are not counted, so it has no `traffic`.
    Ok(directory.traffic().is_some() && matches!(object.backing()?, Backing::Elsewhere))
}

/// Returns true if the pages are in the memory of another machine, with reads as small as a cache line:
/// unlike a disk, it transfers a vector faster than a page.
pub(super) fn moves_lines(
    directory: &dyn Generation,
    manifest: &Manifest,
    options: &OpenOptions,
) -> Result<bool, IndexError> {
    if options.tier != TierChoice::File {
        return Ok(false);
    }
    let object = manifest.open_file(directory, manifest.paged_file())?;
    if !matches!(object.backing()?, Backing::Elsewhere | Backing::Parts(_)) {
        return Ok(false);
    }
    let tier = object.tier(FileOptions { method: options.method, direct: !options.page_cache })?;
    Ok(tier.profile().granularity <= LINE_BYTES)
}

/// Opens the tier of the pages, and of codes that are not in memory.
pub(super) fn open_tier(
    directory: &dyn Generation,
    manifest: &Manifest,
    stored: &dyn Stored,
    split: &MemorySplit,
    options: &OpenOptions,
    arriving: bool,
    progress: &dyn Progress,
) -> Result<Pages, IndexError> {
    let entry = manifest.paged_file();
    let object = manifest.open_file(directory, entry)?;
    let files = FileOptions { method: options.method, direct: !options.page_cache };
    let mut parts = None;
    let mut file = |object: &dyn Object| -> Result<Arc<dyn Tier>, IndexError> {
        let Backing::Parts(striped) = object.backing()? else { return Ok(object.tier(files)?) };
        let tier = striped.tier(files);
        // This fails if another build has replaced the index meanwhile and removed its parts.
        directory.get(MANIFEST_NAME)?;
        let tier = tier?;
        let paths = striped.paths().map(Path::to_path_buf).collect();
        parts.get_or_insert(OpenParts { paths, tier: tier.clone() });
        Ok(tier)
    };
    let mut loaded = None;
    let mut tier: Arc<dyn Tier> = if let TierChoice::Mapped(mapped) = &options.tier {
        let tier = Arc::new(load_mapped(mapped, object.as_ref(), entry, progress)?);
        loaded = (split.pages > 0).then(|| LoadedPages::Mapped(tier.clone()));
        tier
    } else if split.pages > 0 {
        let tier = Arc::new(DramTier::new(load(directory, manifest, entry)?));
        loaded = Some(LoadedPages::Dram(tier.clone()));
        tier
    } else if split.codes_on_tier > 0 || arriving {
        let beside =
            if arriving { stored.arriving_files() } else { stored.codes_file().into_iter().collect() };
        if beside.is_empty() {
            return Err(IndexError::Internal("the codes have no file".into()));
        }
        let mut files = vec![file(object.as_ref())?];
        for entry in beside {
            files.push(file(manifest.open_file(directory, entry)?.as_ref())?);
        }
        Arc::new(StripeTier::end_to_end(files)?)
    } else {
        file(object.as_ref())?
    };
    if let Some(wrap) = &options.wrap {
        tier = wrap(tier)?;
    }
    if split.cache == 0 || stored.keeps() || tier.profile().addressable {
        return Ok(Pages { tier, loaded, cache: None, parts });
    }
    let cache = CacheTier::new(tier, CacheOptions { budget_bytes: split.cache, ..CacheOptions::default() })?;
    Ok(Pages { tier: Arc::new(cache.clone()), loaded, cache: Some(cache), parts })
}

/// Loads the pages into mapped memory, unless they are there already.
fn load_mapped(
    options: &MappedOptions,
    object: &dyn Object,
    entry: &FileEntry,
    progress: &dyn Progress,
) -> Result<MappedTier, IndexError> {
    let report = |event| {
        match event {
            LoadEvent::Begin("loading", total) => progress.stage("loading the pages", total),
            LoadEvent::Begin("verifying", total) => progress.stage("verifying the pages", total),
            LoadEvent::Begin(_, total) => progress.stage("another process loads", total),
            LoadEvent::Done(done) => progress.advance(done),
        }
        !progress.cancelled()
    };
    let source = LoadSource { path: object.address(), len: entry.bytes, crc32c: entry.crc32c };
    let fill = |offset: u64, bytes: &mut [u8]| {
        object.read_at(offset, bytes).map_err(|error| match error {
            StoreError::Io { operation, path, source } => TierError::io(operation, path, source),
            other => TierError::io("read", object.address(), std::io::Error::other(other)),
        })
    };
    MappedTier::load_from(options, &source, &fill, &report).map_err(|error| match error {
        TierError::Checksum { found, expected } => {
            let reason = format!("checksum {found:08x}, the manifest says {expected:08x}");
            IndexError::damaged(source.path, "its content", reason)
        }
        TierError::Cancelled => IndexError::Cancelled,
        other => other.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_parsed_from_their_own_text() {
        for text in
            ["file", "dram", "gpu", "mapped", "mapped:node=1", "mapped:/dev/dax0.0", "mapped:x,verify"]
        {
            assert_eq!(text.parse::<TierChoice>().unwrap().to_string(), text);
        }
        for text in ["", "mappped", "file:x", "gpu:1", "mapped:node=x"] {
            assert!(text.parse::<TierChoice>().is_err(), "{text}");
        }
    }
}
