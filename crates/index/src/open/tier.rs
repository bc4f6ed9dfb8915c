//! Where the pages of an index are read from, and how that is opened.

use super::{OpenOptions, Progress};
use crate::cost::device::LINE_BYTES;
use crate::error::IndexError;
use crate::family::{MemorySplit, Place, Stored};
use crate::format::loading::load;
use crate::format::manifest::{FileEntry, MANIFEST_NAME, Manifest};
use bathyal_store::{Backing, Generation, Object, StoreError};
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::backend::mapped::{LoadEvent, MappedOptions, MappedTier, Source};
use bathyal_tier::layer::cache::{CacheOptions, CacheTier};
use bathyal_tier::layer::stripe::StripeTier;
use bathyal_tier::{Tier, TierError, TierProfile};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Where pages of vectors and links are read from. As text: `file`, `dram`, `gpu`, `mapped` or `mapped:PLACE`, where the
/// place is `node=N` or a path (see [`MappedOptions`]).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TierChoice {
    /// The files, past the page cache.
    #[default]
    File,
    /// Memory: all pages are loaded when the index is opened.
    Dram,
    /// Addressable memory of any kind (CXL, NVM, huge pages): all pages are loaded there when the index is opened,
    /// unless they lie there already, and read in place. Counts towards a memory budget only where it is anonymous
    /// memory of the process.
    Mapped(MappedOptions),
    /// The memory of the graphics card that searches ([`OpenOptions::card`]), beside the codes: vectors and links are copied there when
    /// the index is opened, and compared there. Of families and layouts that a card can search.
    Card,
}

impl TierChoice {
    /// Where that is, as far as memory is concerned.
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

/// The memory of a graphics card as efforts are chosen by: nothing is read from it.
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
    }
}

/// Refuses the memory of a card where none was named, or where reads of it are to be something else.
pub(super) fn check_card(options: &OpenOptions) -> Result<(), IndexError> {
    if options.tier != TierChoice::Card {
        return Ok(());
    }
    let what = match (&options.card, &options.wrap) {
        (None, _) => {
            "the tier gpu is the memory of the graphics card that searches: say which one by --device gpu (device), or take another tier"
        }
        (_, Some(_)) => {
            "nothing is read from the tier gpu, so that no device can be emulated there: leave --delay (delay) out, or take another tier"
        }
        _ => return Ok(()),
    };
    Err(IndexError::Parameter(what.into()))
}

/// What the pages are read from.
pub(super) struct Pages {
    pub(super) tier: Arc<dyn Tier>,
    /// The pages themselves, where they were loaded into this process's DRAM.
    pub(super) loaded: Option<LoadedPages>,
    pub(super) cache: Option<CacheTier>,
    /// The parts of a striped index, where they are read.
    pub(super) parts: Option<OpenParts>,
}

impl Pages {
    /// On a tier that is open already, for a further copy of what is kept besides.
    pub(super) fn of(tier: Arc<dyn Tier>) -> Pages {
        Pages { tier, loaded: None, cache: None, parts: None }
    }
}

/// The parts of a striped file.
pub(super) struct OpenParts {
    /// Where each is.
    pub(super) paths: Vec<PathBuf>,
    /// What counts their reads.
    pub(super) tier: Arc<StripeTier>,
}

/// Pages in memory, whatever wraps the tier that reads them.
pub(super) enum LoadedPages {
    Dram(Arc<DramTier>),
    Mapped(Arc<MappedTier>),
}

impl LoadedPages {
    /// The bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            LoadedPages::Dram(tier) => tier.bytes(),
            LoadedPages::Mapped(tier) => tier.bytes(),
        }
    }
}

/// Whether codes of the index come while searches run: where a store that is elsewhere would have to be waited for.
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
    // The memory of another machine, whose requests nobody counts, is as near as a disk of this one.
    Ok(directory.traffic().is_some() && matches!(object.backing()?, Backing::Elsewhere))
}

/// Whether the pages come from memory of another machine: which moves a vector sooner than a page, as no disk does.
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

/// Opens what the pages, and codes that are not in memory, are read from.
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
        // An error if another build has replaced the index meanwhile, and taken its parts away.
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
            return Err(IndexError::Internal("codes without a file".into()));
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

/// Loads the pages into mapped memory, or finds them there.
fn load_mapped(
    options: &MappedOptions,
    object: &dyn Object,
    entry: &FileEntry,
    progress: &dyn Progress,
) -> Result<MappedTier, IndexError> {
    let go_on = |event| {
        match event {
            LoadEvent::Begin("loading", total) => progress.stage("loading the pages", total),
            LoadEvent::Begin("verifying", total) => progress.stage("verifying the pages", total),
            LoadEvent::Begin(_, total) => progress.stage("another process loads", total),
            LoadEvent::Done(done) => progress.advance(done),
        }
        !progress.cancelled()
    };
    let source = Source { path: object.address(), len: entry.bytes, crc32c: entry.crc32c };
    let fill = |offset: u64, bytes: &mut [u8]| {
        object.read_at(offset, bytes).map_err(|error| match error {
            StoreError::Io { operation, path, source } => TierError::io(operation, path, source),
            other => TierError::io("read", object.address(), std::io::Error::other(other)),
        })
    };
    MappedTier::load_from(options, &source, &fill, &go_on).map_err(|error| match error {
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
    fn choices_are_read_and_written_alike() {
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
