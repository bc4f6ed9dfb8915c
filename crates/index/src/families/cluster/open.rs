//! Opens a cluster index: loads what stays in memory, and computes how many bytes that takes.

use super::centroids::scope::Scope;
use super::centroids::{Centroids, span_bytes};
use super::codes::{ArrivingCodes, Codes};
use super::effort;
use super::inspect;
use super::on_card;
use super::search::{Cluster, ClusterScratch};
use super::section::ClusterEntry;
use super::shorter;
use super::verify;
use crate::calibrate::reach::Reach;
use crate::error::IndexError;
use crate::family::StoredCapabilities;
use crate::family::capabilities::{ArrivingFiles, RowsAlone, SingleVectorReads, StoredForCard};
use crate::family::pages::{Pages, Reading, walk};
use crate::family::rows::{PagesAlone, StoredRows};
use crate::family::{
    Buffers, CodesOnCard, Description, Knob, Loading, MemorySplit, Needs, Opened, Place, Stored,
    VerifyReport, Verifying,
};
use crate::format::groups::GroupLayout;
use crate::format::identity::Identity;
use crate::format::loading::{load, load_codec};
use crate::format::manifest::{FileEntry, Manifest};
use crate::format::places::Places;
use crate::format::positions::{self, Positions};
use crate::query::codes::plain_metric;
use crate::query::set::VectorSet;
use crate::query::{CODES_A_VECTOR, Effort, FRAMES, LARGEST_ALIGNMENT, SearchParams};
use bathyal_gpu::{Card, GpuError};
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::Codec;
use bathyal_store::{CancelScope, Generation, ObjectExt};
use bathyal_tier::TierError;
use bathyal_vectors::progress::{Progress, Silent};
use std::sync::Arc;
use std::thread::Builder;

/// Divisor of a card's free memory that gives the bytes left to its driver, which allocates by megabytes.
const CARD_MARGIN: u64 = 64;

/// A cluster index as its manifest describes it.
pub(super) struct StoredCluster {
    entry: ClusterEntry,
    layout: GroupLayout,
    dim: usize,
}

impl StoredCluster {
    pub(super) fn read(manifest: &Manifest) -> Result<StoredCluster, String> {
        let entry = ClusterEntry::read(manifest)?;
        let layout = entry.layout(manifest)?;
        Ok(StoredCluster { entry, layout, dim: manifest.dim as usize })
    }
}

impl Stored for StoredCluster {
    fn capabilities(&self) -> StoredCapabilities<'_> {
        StoredCapabilities {
            card: Some(self),
            arrival: Some(self),
            single_vectors: Some(self),
            rows: Some(self),
            ..StoredCapabilities::default()
        }
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::SearchList, Knob::Probes]
    }

    fn buffers(&self) -> Buffers {
        let pages = self.layout.buffer_bytes();
        let codes =
            (self.entry.group_codes() as usize).next_multiple_of(LARGEST_ALIGNMENT) + LARGEST_ALIGNMENT;
        // A row is no longer than a page, except for one-byte elements of many dimensions.
        let row = self.layout.row_bytes(1) as usize + LARGEST_ALIGNMENT;
        Buffers { frames: FRAMES, frame_bytes: pages, frame_bytes_with_codes: pages.max(codes).max(row) }
    }

    fn needs(&self, _manifest: &Manifest, place: Place) -> Needs {
        let entry = &self.entry;
        let divisible = place == Place::File;
        let shorter = entry.shorter.iter().filter(|_| divisible).map(|shorter| shorter.code_bytes);
        let lengths: Vec<u32> = std::iter::once(entry.codes.code_bytes).chain(shorter).collect();
        let split = |code_bytes: &u32| MemorySplit {
            codec: entry.codes.codec_memory(),
            centroids: entry.centroid_memory() + span_bytes(entry.runs as usize, self.dim),
            codes: entry.all_bytes(*code_bytes),
            codes_left_out: entry.codes.file.bytes - entry.all_bytes(*code_bytes),
            ..MemorySplit::default()
        };
        Needs {
            choices: lengths.iter().map(split).collect(),
            codes_by: lengths.last().filter(|_| divisible).map(|length| entry.group_bytes(*length)),
            ids: (entry.groups as usize * self.layout.group_vectors() * size_of::<u32>()) as u64,
            advice: if divisible {
                "allow at least that much"
            } else {
                "allow at least that much, or rebuild with smaller code_bytes"
            },
        }
    }

    fn codes_file(&self) -> Option<&FileEntry> {
        Some(&self.entry.codes.file)
    }

    fn query_bytes(&self, search_list: usize) -> u64 {
        let (groups, runs) = (self.entry.groups as usize, self.entry.runs as usize);
        ClusterScratch::planned_bytes(groups, runs, &self.layout, search_list)
    }

    fn planned_list(&self, params: &SearchParams) -> usize {
        let groups = self.entry.groups as usize;
        let list = |params: &SearchParams| {
            let scope = Scope::from_params(params);
            // If the groups may hold fewer vectors than are wanted, all groups are ordered.
            let short = params.search_list > scope.fewest(groups) * self.layout.group_vectors() / 2;
            params.search_list.max(if short { groups } else { scope.most(groups) })
        };
        list(params).max(list(&params.early()))
    }

    fn query_distances(&self, params: &SearchParams) -> usize {
        let groups = self.entry.groups as usize;
        let scanned = params.probes.min(groups).saturating_mul(self.layout.group_vectors());
        let exact = params.wanted().saturating_mul(CODES_A_VECTOR);
        scanned.saturating_add(groups).saturating_add(exact)
    }

    fn reach(&self) -> &[Reach] {
        &self.entry.calibration.reach
    }

    fn effort_of(&self, search_list: u32) -> Effort {
        let probes = effort::probes_for(search_list, self.entry.groups) as usize;
        Effort { search_list: search_list as usize, probes, prune: 0.0 }
    }

    fn open(&self, loading: &Loading<'_>) -> Result<Arc<dyn Opened>, IndexError> {
        let Loading { directory, manifest, split, profile, .. } = *loading;
        let all = split.codes + split.codes_on_tier + split.codes_on_card;
        let code_bytes = (all / self.entry.all_bytes(1).max(1)) as u32;
        let resident = ResidentCodes {
            code_bytes,
            offset: split.codes_on_card,
            bytes: split.codes,
            arriving: loading.arriving,
        };
        let mut cluster = load_cluster(directory, manifest, self.entry.clone(), resident, &Silent)?;
        if let Some(pages) = loading.pages {
            let Cluster { pages: on_pages, centroids, set, .. } = &mut cluster;
            on_pages.check_loaded(set, pages, centroids.groups(), |group| centroids.count(group))?;
        } else if let Some(places) = self.entry.places.as_ref().filter(|_| split.ids > 0) {
            let places = load_places(directory, manifest, places, &cluster)?;
            cluster.pages.reading = Reading::Checked(places);
        }
        cluster.pages.suit(profile, loading.frames);
        if let Some(card) = loading.card {
            let (layout, codec) = (&cluster.pages.layout, &cluster.codec);
            let groups = (layout.identity(), &*cluster.centroids);
            let destination = (card.card, split.codes_on_card);
            let scans = on_card::upload_codes(
                directory,
                manifest,
                &self.entry,
                (layout, codec),
                groups,
                destination,
                &Silent,
            )?;
            let whole = card.resident;
            let vectors =
                whole.then(|| on_card::upload_vectors(directory, manifest, &cluster, card.card, &Silent));
            cluster.card = Some(scans.finish(vectors.transpose()?, card.mini_batch)?);
        }
        Ok(Arc::new(cluster))
    }

    fn verify(&self, verifying: &Verifying<'_>, report: &mut VerifyReport) -> Result<(), IndexError> {
        let (directory, manifest) = (verifying.directory, verifying.manifest);
        let code_bytes = self.entry.codes.code_bytes;
        let cluster = load_for_scan(directory, manifest, self.entry.clone(), code_bytes, verifying.progress);
        let places = match (&self.entry.places, &cluster) {
            (Some(places), Ok(cluster)) => {
                Some(load_places(directory, manifest, places, cluster)).transpose()
            }
            _ => Ok(None),
        };
        let positions = match &self.entry.positions {
            Some(file) => load_positions(directory, manifest, file, &self.layout).map(Some),
            None => Ok(None),
        };
        let (read_places, read_positions) = (places.as_ref().ok(), positions.as_ref().ok());
        let check_page = |number: u64, page: &[u8]| {
            let places = read_places.and_then(Option::as_ref);
            let fault = places.and_then(|places| places.differ(&self.layout, number, page));
            let positions = read_positions.and_then(Option::as_ref);
            fault.or_else(|| {
                positions.and_then(|positions| find_misplaced(&self.layout, number, page, positions))
            })
        };
        let page_counts =
            walk(verifying, &self.entry.file, &self.layout, self.entry.groups, check_page, report)?;
        if !report.sound {
            return Ok(());
        }
        match (cluster, places, positions) {
            (Err(damage), ..) | (_, Err(damage), _) | (_, _, Err(damage)) => report.fault(damage.to_string()),
            (Ok(cluster), Ok(_), Ok(_)) => {
                verify::compare_groups(&cluster.centroids, &page_counts, report);
                verify::compare_rows(&cluster.centroids, self.layout.identity(), report);
            }
        }
        Ok(())
    }

    fn describe(
        &self,
        _directory: &dyn Generation,
        manifest: &Manifest,
        _progress: &dyn Progress,
    ) -> Result<Description, IndexError> {
        Ok(inspect::describe(manifest, &self.entry, &self.layout))
    }
}

impl StoredForCard for StoredCluster {
    fn check_card(&self, _manifest: &Manifest) -> Result<(), GpuError> {
        Ok(())
    }

    /// If not all codes fit, those of the first groups go to the card, and the processor scans the others.
    fn codes_on_card(&self, card: &dyn Card, whole: bool) -> Option<CodesOnCard> {
        let (all, unit) = (self.entry.codes.file.bytes, self.entry.group_codes());
        let free = card.free_bytes() - card.free_bytes() / CARD_MARGIN;
        let room = free.saturating_sub(on_card::slots_bytes(&self.entry, &self.layout, card));
        let fit = room / unit.max(1) * unit;
        // If not even one group fits, allocating it returns the card's error.
        let bytes = if whole { all } else { fit.max(unit).min(all) };
        Some(CodesOnCard { bytes, unit, beside: 0 })
    }
}

impl ArrivingFiles for StoredCluster {
    fn arriving_files(&self) -> Vec<&FileEntry> {
        std::iter::once(&self.entry.codes.file).chain(&self.entry.rows).collect()
    }
}

impl SingleVectorReads for StoredCluster {
    fn places_bytes(&self) -> u64 {
        self.entry.places.as_ref().map_or(0, |places| places.bytes)
    }
}

impl RowsAlone for StoredCluster {
    fn rows_alone(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Box<dyn StoredRows>, IndexError> {
        let pages = self.entry.groups * self.layout.group_pages() as u32;
        PagesAlone::open(directory, manifest, &self.entry.file, self.layout, pages)
    }
}

/// The codes that an open index keeps in memory.
#[derive(Clone, Copy)]
struct ResidentCodes {
    /// Bytes of a code.
    code_bytes: u32,
    /// Offset of the first of these codes in the file, in bytes. The codes before it are on a graphics card.
    offset: u64,
    /// Bytes of these codes.
    bytes: u64,
    /// True if searches may run before all codes have arrived.
    arriving: bool,
}

/// Loads a cluster index with the codes `resident`.
fn load_cluster(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: ClusterEntry,
    resident: ResidentCodes,
    progress: &dyn Progress,
) -> Result<Cluster, IndexError> {
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    let set = VectorSet::of(directory, manifest, &entry.file)?;
    let (layout, metric) = (entry.layout(manifest).map_err(wrong)?, set.metric);
    let (mut codec, mut centroids) = load_navigation(directory, manifest, &entry, &layout, metric)?;
    let arriving = resident.arriving && resident.bytes == entry.codes.file.bytes;
    if let Some(rows) = entry.rows.as_ref().filter(|_| !arriving) {
        load_rows(directory, manifest, rows, &centroids)?;
    }
    let identity = layout.identity();
    let mut stored_codec = None;
    let codes = if resident.code_bytes < entry.codes.code_bytes {
        let short = shorter::codec(&codec, resident.code_bytes).map_err(wrong)?;
        let shortener = shorter::Shortener {
            directory,
            manifest,
            entry: &entry,
            identity,
            centroids: &centroids,
            stored: &codec,
            shorter: &short,
            progress,
        };
        let codes = shortener.load(resident.bytes)?;
        centroids.shorten(&codec, &short)?;
        stored_codec = Some(std::mem::replace(&mut codec, short));
        Codes::loaded(codes)
    } else if arriving {
        Codes::Arriving(Arc::new(ArrivingCodes::new(resident.bytes, entry.group_codes())))
    } else if resident.bytes == entry.codes.file.bytes {
        Codes::loaded(load(directory, manifest, &entry.codes.file)?)
    } else {
        let first_group = (resident.offset / entry.group_codes().max(1)) as u32;
        let codes = load_some_codes(directory, manifest, &entry, (identity, &centroids), resident)?;
        Codes::Loaded { first_group, codes }
    };
    // Without the file of positions, the places of ids are found by reading all vectors.
    let open_positions = |file| Positions::open((directory, manifest), file, layout, centroids.groups()).ok();
    let positions = entry.positions.as_ref().and_then(open_positions);
    let places = entry.places.as_ref().filter(|_| positions.is_none());
    let order = places.and_then(|places| manifest.open_file(directory, places).ok());
    let centroids = Arc::new(centroids);
    if let Codes::Arriving(codes) = &codes {
        begin_arrival(directory, manifest, &entry, codes.clone(), (identity, centroids.clone()))?;
    }
    Ok(Cluster {
        pages: Pages::new(layout),
        set,
        codec,
        stored_codec,
        codes,
        codes_offset: entry.file.bytes,
        rows_offset: entry.file.bytes + entry.codes.file.bytes,
        centroids,
        entry,
        card: None,
        positions,
        order,
    })
}

/// Refuses a codec that is not for this index.
fn check_codec(
    directory: &dyn Generation,
    entry: &ClusterEntry,
    codec: &Codec,
    metric: Metric,
) -> Result<(), IndexError> {
    if !codec.has_groups() {
        let reason = format!("codes of kind {} cannot be scanned in groups", codec.kind());
        return Err(IndexError::damaged(directory.address(), "the manifest", reason));
    }
    if codec.metric() != plain_metric(metric) {
        let reason = format!("it is for the metric {}; the index has {metric}", codec.metric());
        let path = directory.address().join(&entry.codes.codec.name);
        return Err(IndexError::damaged(path, "the codec", reason));
    }
    Ok(())
}

/// Starts the thread that loads `codes`, and then the rows of the centroids if they have a file of their own.
fn begin_arrival(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &ClusterEntry,
    codes: Arc<ArrivingCodes>,
    (identity, centroids): (Identity, Arc<Centroids>),
) -> Result<(), IndexError> {
    let object = manifest.open_file(directory, &entry.codes.file)?;
    let open_rows = |rows: &FileEntry| -> Result<_, IndexError> {
        Ok((manifest.open_file(directory, rows)?, rows.crc32c))
    };
    let rows = entry.rows.as_ref().map(open_rows).transpose()?;
    let fetch = move || codes.fetch(object.as_ref(), rows, identity, &centroids);
    let spawned = Builder::new().name("bathyal-arrive".into()).spawn(fetch);
    spawned.map_err(|source| TierError::System { operation: "start a thread that loads", source })?;
    Ok(())
}

/// Loads the codec and the centroids, and checks that they belong to the index.
fn load_navigation(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &ClusterEntry,
    layout: &GroupLayout,
    metric: Metric,
) -> Result<(Codec, Centroids), IndexError> {
    let (codec, bytes) = load_codec_and_centroids(directory, manifest, entry)?;
    check_codec(directory, entry, &codec, metric)?;
    let file = entry.centroid_file(layout, metric);
    // The bytes are freed here, before the codes are loaded, so that the file of centroids does not add to
    // the peak of memory.
    let centroids = Centroids::from_bytes(&bytes, &file, layout, metric, manifest.vectors)
        .map_err(|error| error.at(directory.address().join(&entry.centroids.name), "the centroids"))?;
    Ok((codec, centroids))
}

/// Loads the codec and the bytes of the centroids at the same time, because each takes long from an object
/// store.
fn load_codec_and_centroids(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &ClusterEntry,
) -> Result<(Codec, Vec<u8>), IndexError> {
    std::thread::scope(|scope| {
        let cancelling = CancelScope::flag();
        let codec = move || {
            let _cancelling = CancelScope::new(cancelling);
            load_codec(directory, manifest, &entry.codes)
        };
        let codec = Builder::new()
            .spawn_scoped(scope, codec)
            .map_err(|source| TierError::System { operation: "start a thread that loads", source })?;
        let bytes = load(directory, manifest, &entry.centroids);
        let codec = codec.join().map_err(|_| IndexError::Internal("a thread that loads panicked".into()))?;
        Ok((codec?, bytes?))
    })
}

/// Loads the rows of the groups' centroids.
fn load_rows(
    directory: &dyn Generation,
    manifest: &Manifest,
    rows: &FileEntry,
    centroids: &Centroids,
) -> Result<(), IndexError> {
    let bytes = load(directory, manifest, rows)?;
    let wrong = |reason| IndexError::damaged(directory.address().join(&rows.name), "the centroids", reason);
    centroids.take_rows(bytes).map_err(wrong)
}

/// Loads a cluster index for scans only, with all codes in memory, of `code_bytes` bytes each.
pub(super) fn load_for_scan(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: ClusterEntry,
    code_bytes: u32,
    progress: &dyn Progress,
) -> Result<Cluster, IndexError> {
    let resident =
        ResidentCodes { code_bytes, offset: 0, bytes: entry.all_bytes(code_bytes), arriving: false };
    load_cluster(directory, manifest, entry, resident, progress)
}

/// Reads the codes of consecutive groups, and checks them group by group.
fn load_some_codes(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &ClusterEntry,
    (identity, centroids): (Identity, &Centroids),
    ResidentCodes { offset, bytes, .. }: ResidentCodes,
) -> Result<Vec<u8>, IndexError> {
    let object = manifest.open_file(directory, &entry.codes.file)?;
    let mut codes = object.allocate(bytes, 0)?;
    bathyal_tier::advise_huge_pages(&mut codes);
    codes.resize(bytes as usize, 0);
    object.read_at(offset, &mut codes)?;
    let group_bytes = entry.codes.file.bytes as usize / centroids.groups().max(1);
    let first = offset as usize / group_bytes.max(1);
    for (group, blocks) in (first..).zip(codes.chunks_exact(group_bytes.max(1))) {
        centroids.check_codes(identity, group as u32, blocks).map_err(|reason| {
            IndexError::damaged(object.address(), format!("the codes of group {group}"), reason)
        })?;
    }
    Ok(codes)
}

/// Loads the ids and checksums by place, for searches that read vectors alone.
fn load_places(
    directory: &dyn Generation,
    manifest: &Manifest,
    places: &FileEntry,
    cluster: &Cluster,
) -> Result<Places, IndexError> {
    let bytes = load(directory, manifest, places)?;
    let Cluster { pages, centroids, set, .. } = cluster;
    Places::from_bytes(bytes, &pages.layout, set.ids_end.into(), |group| centroids.count(group))
        .map_err(|reason| IndexError::damaged(directory.address().join(&places.name), "the places", reason))
}

/// Loads the place of each id.
fn load_positions(
    directory: &dyn Generation,
    manifest: &Manifest,
    file: &FileEntry,
    layout: &GroupLayout,
) -> Result<Vec<u32>, IndexError> {
    let bytes = load(directory, manifest, file)?;
    positions::decode_all(layout.identity(), &bytes).map_err(|(number, reason)| {
        let address = directory.address().join(&file.name);
        IndexError::damaged(address, format!("block {number}"), reason)
    })
}

/// Returns a fault if `positions` (place by id) differs from page `number`.
fn find_misplaced(layout: &GroupLayout, number: u64, page: &[u8], positions: &[u32]) -> Option<String> {
    let first = number * layout.page_vectors() as u64;
    let ids = (0..layout.page_vectors()).map_while(|slot| layout.id(page, slot));
    let (place, id) = (first..).zip(ids).find(|(place, id)| {
        positions.get(*id as usize).is_some_and(|position| u64::from(*position) != *place)
    })?;
    Some(format!("vector {id} is at place {place}, but the file of positions has another place"))
}
