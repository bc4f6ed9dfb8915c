//! Opening a cluster index: what stays in memory, and what that takes.

use super::centroids::{Centroids, span_bytes};
use super::codes::{Arriving, Codes};
use super::effort;
use super::inspect;
use super::on_card;
use super::scope::Scope;
use super::search::{Cluster, Scratch};
use super::section::ClusterEntry;
use super::shorter;
use super::verify;
use crate::calibrate::reach::Reach;
use crate::error::IndexError;
use crate::family::pages::{PAGES_AT_ONCE, Pages, Reading, walk};
use crate::family::rows::{PagesAlone, Rows};
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
use bathyal_kernels::quantize::Codec;
use bathyal_store::{CancelScope, Generation, ObjectExt};
use bathyal_tier::TierError;
use bathyal_vectors::progress::{Progress, Silent};
use std::sync::Arc;
use std::thread::Builder;

/// One part in so many of a card's free memory is left to its driver, which gives it out by megabytes.
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
    fn knobs(&self) -> &'static [Knob] {
        &[Knob::SearchList, Knob::Probes]
    }

    fn buffers(&self) -> Buffers {
        let pages = self.layout.buffer_bytes();
        let codes =
            (self.entry.group_codes() as usize).next_multiple_of(LARGEST_ALIGNMENT) + LARGEST_ALIGNMENT;
        // A row is no longer than a page, but of bytes in many dimensions.
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

    fn codes_may_arrive(&self) -> bool {
        true
    }

    fn check_card(&self, _manifest: &Manifest) -> Result<(), GpuError> {
        Ok(())
    }

    /// Those of the first groups where not all fit: this machine scans the others.
    fn codes_on_card(&self, card: &dyn Card, whole: bool) -> Option<CodesOnCard> {
        let (all, unit) = (self.entry.codes.file.bytes, self.entry.group_codes());
        let free = card.free_bytes() - card.free_bytes() / CARD_MARGIN;
        let room = free.saturating_sub(on_card::slots_bytes(&self.entry, &self.layout, card));
        let fit = room / unit.max(1) * unit;
        // Where there is no room for any, the card says so.
        let bytes = if whole { all } else { fit.max(unit).min(all) };
        Some(CodesOnCard { bytes, unit, beside: 0 })
    }

    fn places_bytes(&self) -> u64 {
        self.entry.places.as_ref().map_or(0, |places| places.bytes)
    }

    fn codes_file(&self) -> Option<&FileEntry> {
        Some(&self.entry.codes.file)
    }

    fn arriving_files(&self) -> Vec<&FileEntry> {
        std::iter::once(&self.entry.codes.file).chain(&self.entry.rows).collect()
    }

    fn query_bytes(&self, search_list: usize) -> u64 {
        let (groups, runs) = (self.entry.groups as usize, self.entry.runs as usize);
        Scratch::planned_bytes(groups, runs, &self.layout, search_list)
    }

    fn planned_list(&self, params: &SearchParams) -> usize {
        let groups = self.entry.groups as usize;
        let list = |params: &SearchParams| {
            let scope = Scope::of(params);
            // Where groups may hold fewer vectors than are wanted, all groups are put in order.
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
        let resident = Resident {
            code_bytes,
            from: split.codes_on_card,
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
            let taken = (card.card, split.codes_on_card);
            let scans =
                on_card::scans(directory, manifest, &self.entry, (layout, codec), groups, taken, &Silent)?;
            let whole = card.resident;
            let vectors = whole.then(|| on_card::vectors(directory, manifest, &cluster, card.card, &Silent));
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
        let (of_places, of_ids) = (places.as_ref().ok(), positions.as_ref().ok());
        let others = |number: u64, page: &[u8]| {
            let of_places = of_places.and_then(Option::as_ref);
            let differs = of_places.and_then(|places| places.differ(&self.layout, number, page));
            let of_ids = of_ids.and_then(Option::as_ref);
            differs.or_else(|| of_ids.and_then(|ids| misplaced(&self.layout, number, page, ids)))
        };
        let held = walk(verifying, &self.entry.file, &self.layout, self.entry.groups, others, report)?;
        if !report.sound {
            return Ok(());
        }
        match (cluster, places, positions) {
            (Err(damage), ..) | (_, Err(damage), _) | (_, _, Err(damage)) => report.fault(damage.to_string()),
            (Ok(cluster), Ok(_), Ok(_)) => {
                verify::compare_groups(&cluster.centroids, &held, report);
                verify::compare_rows(&cluster.centroids, self.layout.identity(), report);
            }
        }
        Ok(())
    }

    fn rows_alone(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Option<Box<dyn Rows>>, IndexError> {
        let set = VectorSet::of(directory, manifest, &self.entry.file)?;
        let pages = self.entry.groups * self.layout.group_pages() as u32;
        Ok(Some(Box::new(PagesAlone { layout: self.layout, set, pages })))
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

/// The codes that an open index keeps in memory.
#[derive(Clone, Copy)]
struct Resident {
    /// Of a code.
    code_bytes: u32,
    /// What comes before them: what a graphics card has.
    from: u64,
    /// Of the codes of the first groups behind that.
    bytes: u64,
    /// Whether they may come while searches run.
    arriving: bool,
}

/// Loads what a search keeps in memory.
fn load_cluster(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: ClusterEntry,
    resident: Resident,
    progress: &dyn Progress,
) -> Result<Cluster, IndexError> {
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    let set = VectorSet::of(directory, manifest, &entry.file)?;
    let (layout, metric) = (entry.layout(manifest).map_err(wrong)?, set.metric);
    let (codec, bytes) = load_both(directory, manifest, &entry)?;
    if !codec.has_groups() {
        let reason = format!("codes of kind {} cannot be scanned in groups", codec.kind());
        return Err(wrong(reason));
    }
    if codec.metric() != plain_metric(metric) {
        let reason = format!("it is for the metric {}, the index has {metric}", codec.metric());
        return Err(IndexError::damaged(
            directory.address().join(&entry.codes.codec.name),
            "the codec",
            reason,
        ));
    }
    let centroids = Centroids::from_bytes(&bytes, &entry, &layout, metric, manifest.vectors)
        .map_err(|unread| unread.at(directory.address().join(&entry.centroids.name), "the centroids"))?;
    // The codes follow: the peak must not hold the file of centroids beside them.
    drop(bytes);
    let arriving = resident.arriving && resident.bytes == entry.codes.file.bytes;
    if let Some(rows) = entry.rows.as_ref().filter(|_| !arriving) {
        load_rows(directory, manifest, rows, &centroids)?;
    }
    let identity = layout.identity();
    let (mut codec, mut centroids, mut stored) = (codec, centroids, None);
    let codes = if resident.code_bytes < entry.codes.code_bytes {
        let short = shorter::codec(&codec, resident.code_bytes).map_err(wrong)?;
        let (entry, centroids_of, codec_of) = (&entry, &centroids, &codec);
        let source = shorter::Source {
            directory,
            manifest,
            entry,
            identity,
            centroids: centroids_of,
            stored: codec_of,
            shorter: &short,
            progress,
        };
        let codes = source.load(resident.bytes)?;
        centroids.shorten(&codec, &short)?;
        stored = Some(std::mem::replace(&mut codec, short));
        Codes::here(codes)
    } else if arriving {
        Codes::Arriving(Arc::new(Arriving::new(resident.bytes, entry.group_codes())))
    } else if resident.bytes == entry.codes.file.bytes {
        Codes::here(load(directory, manifest, &entry.codes.file)?)
    } else {
        let from = (resident.from / entry.group_codes().max(1)) as u32;
        let codes = load_some_codes(directory, manifest, &entry, (identity, &centroids), resident)?;
        Codes::Here { from, codes }
    };
    // Where these are missing, the vectors say it themselves.
    let found = entry.positions.as_ref();
    let found =
        found.map(|file| Positions::open((directory, manifest), file, layout, centroids.groups()).ok());
    let positions = found.flatten();
    let order = entry.places.as_ref().filter(|_| positions.is_none());
    let order = order.and_then(|places| manifest.open_file(directory, places).ok());
    let centroids = Arc::new(centroids);
    if let Codes::Arriving(codes) = &codes {
        let (codes, centroids) = (codes.clone(), centroids.clone());
        let object = manifest.open_file(directory, &entry.codes.file)?;
        let rows = entry
            .rows
            .as_ref()
            .map(|rows| Ok::<_, IndexError>((manifest.open_file(directory, rows)?, rows.crc32c)));
        let rows = rows.transpose()?;
        let fetch = move || codes.fetch(object.as_ref(), rows, identity, &centroids);
        let started = Builder::new().name("bathyal-arrive".into()).spawn(fetch);
        started.map_err(|source| TierError::System { operation: "start a thread that loads", source })?;
    }
    Ok(Cluster {
        pages: Pages { layout, check: true, reading: Reading::Pages, at_once: PAGES_AT_ONCE },
        set,
        codec,
        stored,
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

/// Loads the codec and the centroids at the same time: from a store that is elsewhere each takes long.
fn load_both(
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

/// A cluster index of which only scans are wanted, with codes of `code_bytes` in memory.
pub(super) fn load_for_scan(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: ClusterEntry,
    code_bytes: u32,
    progress: &dyn Progress,
) -> Result<Cluster, IndexError> {
    let resident = Resident { code_bytes, from: 0, bytes: entry.all_bytes(code_bytes), arriving: false };
    load_cluster(directory, manifest, entry, resident, progress)
}

/// Reads the codes of some groups, and checks them group by group.
fn load_some_codes(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &ClusterEntry,
    (identity, centroids): (Identity, &Centroids),
    Resident { from, bytes: wanted, .. }: Resident,
) -> Result<Vec<u8>, IndexError> {
    let object = manifest.open_file(directory, &entry.codes.file)?;
    let mut codes = object.allocate(wanted, 0)?;
    bathyal_tier::advise_huge_pages(&mut codes);
    codes.resize(wanted as usize, 0);
    object.read_at(from, &mut codes)?;
    let group_bytes = entry.codes.file.bytes as usize / centroids.groups().max(1);
    let first = from as usize / group_bytes.max(1);
    for (group, blocks) in (first..).zip(codes.chunks_exact(group_bytes.max(1))) {
        centroids.check_codes(identity, group as u32, blocks).map_err(|reason| {
            IndexError::damaged(object.address(), format!("the codes of group {group}"), reason)
        })?;
    }
    Ok(codes)
}

/// Loads what a search has to know that reads vectors alone.
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

/// Loads the place of each vector, by id.
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

/// What `positions` say otherwise than page `number` does.
fn misplaced(layout: &GroupLayout, number: u64, page: &[u8], positions: &[u32]) -> Option<String> {
    let first = number * layout.page_vectors() as u64;
    let ids = (0..layout.page_vectors()).map_while(|slot| layout.id(page, slot));
    let (place, id) = (first..)
        .zip(ids)
        .find(|(place, id)| positions.get(*id as usize).is_some_and(|found| u64::from(*found) != *place))?;
    Some(format!("vector {id} lies at place {place}, its position is another"))
}
