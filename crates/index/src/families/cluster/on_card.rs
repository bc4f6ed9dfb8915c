//! Scans of groups whose codes are in the memory of a graphics card. The processor finds the groups, reads
//! the vectors of the best candidates in one round, and compares them exactly. These codes are not in the
//! memory of the machine.
//!
//! The card computes the same estimates as the processor, bit for bit, and so finds the same best candidates.

use super::centroids::Centroids;
use super::search::{Cluster, ClusterScratch};
use super::section::ClusterEntry;
use crate::error::IndexError;
use crate::format::groups::{GroupLayout, NO_ID};
use crate::format::identity::Identity;
use crate::format::manifest::Manifest;
use crate::format::walk::read_through;
use crate::query::{Phase, SearchParams};
use bathyal_gpu::scans::{Group, MOST_CANDIDATES, MOST_SCANNED, ScanShape, ScanUpload, Slot, Tables};
use bathyal_gpu::{Card, VectorUpload, Vectors, slots};
use bathyal_kernels::Neighbor;
use bathyal_kernels::quantize::Codec;
use bathyal_store::Generation;
use bathyal_tier::Cx;
use bathyal_vectors::progress::Progress;

/// Returns the shape of scans before the codec is loaded, with upper bounds: the planes of codes take no more
/// bytes than the codes.
fn planned_shape(entry: &ClusterEntry, layout: &GroupLayout) -> ScanShape {
    ScanShape {
        code_bytes: entry.codes.code_bytes,
        factor_bytes: 0,
        plane_bytes: entry.codes.code_bytes,
        groups: entry.groups,
        group_blocks: layout.group_blocks() as u32,
        group_vectors: layout.group_vectors() as u32,
        list: MOST_CANDIDATES,
        scanned: MOST_SCANNED.min(entry.groups),
        slots: 1,
    }
}

/// Returns the most bytes of a card's memory that running queries take.
pub(super) fn slots_bytes(entry: &ClusterEntry, layout: &GroupLayout, card: &dyn Card) -> u64 {
    let bytes = planned_shape(entry, layout).slot_bytes();
    u64::from(slots(card.profile(), bytes)) * bytes
}

/// Copies the first `code_bytes` bytes of the codes of an index to `card`, group by group, and checks them.
pub(super) fn upload_codes<'a>(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &ClusterEntry,
    (layout, codec): (&GroupLayout, &Codec),
    (identity, centroids): (Identity, &Centroids),
    (card, code_bytes): (&'a dyn Card, u64),
    progress: &dyn Progress,
) -> Result<ScanUpload<'a>, IndexError> {
    let Some(codes) = codec.plane_codes() else {
        return Err(IndexError::Internal("codes without planes were to be copied to a graphics card".into()));
    };
    let shape = ScanShape {
        factor_bytes: codes.factor_bytes as u32,
        plane_bytes: codes.bytes.len() as u32,
        groups: (code_bytes / entry.group_codes().max(1)) as u32,
        ..planned_shape(entry, layout)
    };
    let shape = ScanShape { slots: slots(card.profile(), shape.slot_bytes()), ..shape };
    let object = manifest.open_file(directory, &entry.codes.file)?;
    let damaged = |place: String, reason| IndexError::damaged(object.address(), place, reason);
    let (mut upload, mut outcome) = (ScanUpload::begin(card, shape)?, Ok(()));
    progress.stage("copying codes to the graphics card", code_bytes);
    let group_bytes = entry.group_codes() as usize;
    let crc = read_through(object.as_ref(), code_bytes, group_bytes, progress, |group, codes| {
        if outcome.is_ok() {
            outcome = centroids
                .check_codes(identity, group as u32, codes)
                .map_err(|reason| damaged(format!("the codes of group {group}"), reason))
                .and_then(|()| Ok(upload.append(codes)?));
        }
    })?;
    outcome?;
    if code_bytes == entry.codes.file.bytes && crc != entry.codes.file.crc32c {
        let reason = format!("its checksum is {crc:08x}; the manifest has {:08x}", entry.codes.file.crc32c);
        return Err(damaged("its content".into(), reason));
    }
    Ok(upload)
}

/// Copies the vectors of an index to `card`, in the order of their places.
pub(super) fn upload_vectors(
    directory: &dyn Generation,
    manifest: &Manifest,
    cluster: &Cluster,
    card: &dyn Card,
    progress: &dyn Progress,
) -> Result<Vectors, IndexError> {
    let Cluster { pages, set, centroids, entry, .. } = cluster;
    let layout = &pages.layout;
    let places = layout.places(centroids.groups()) as u64;
    let mut upload = VectorUpload::begin(card, set.exact.on_card(), places)?;
    let (object, mut outcome) = (manifest.open_file(directory, &entry.file)?, Ok(()));
    progress.stage("copying vectors to the graphics card", entry.file.bytes);
    let mut append_page = |number: u32, page: &[u8]| {
        layout.check(number, page).map_err(|reason| set.damaged(format!("page {number}"), reason))?;
        for (slot, row) in layout.vectors(page).chunks_exact(layout.vector_bytes()).enumerate() {
            let (place, id) = (number * layout.page_vectors() as u32 + slot as u32, layout.id(page, slot));
            let (group, rank) = layout.group_rank(place);
            if (rank < centroids.count(group)) != id.is_some_and(|id| id < set.ids_end) {
                return Err(set.damaged(
                    format!("page {number}"),
                    format!("slot {slot} does not hold a vector where the index has one, or the reverse"),
                ));
            }
            upload.append(row, id.unwrap_or(NO_ID))?;
        }
        Ok(())
    };
    let pages = places / layout.page_vectors() as u64;
    let crc =
        read_through(object.as_ref(), entry.file.bytes, layout.page_bytes(), progress, |number, page| {
            // The file may be padded with zeros after the last page.
            if outcome.is_ok() && number < pages {
                outcome = append_page(number as u32, page);
            }
        })?;
    outcome?;
    if crc != entry.file.crc32c {
        let reason = format!("its checksum is {crc:08x}; the manifest has {:08x}", entry.file.crc32c);
        return Err(set.damaged("its content", reason));
    }
    Ok(upload.finish()?)
}

impl ClusterScratch {
    /// Submits the found groups whose codes are on the card for a scan there.
    pub(super) fn submit_to_card(
        &mut self,
        cluster: &Cluster,
        slot: &mut Slot,
        cx: &Cx,
        params: &SearchParams,
    ) -> Result<(), IndexError> {
        let Some(numbers) = self.code_query.scan_numbers(&cluster.codec) else {
            return Err(IndexError::Internal("a query without tables".into()));
        };
        let tables = Tables {
            mean_term: numbers.mean_term,
            norm_unit: numbers.norm_unit,
            offset: numbers.offset,
            scale: numbers.scale,
            tables: numbers.tables,
            weights: numbers.weights,
        };
        let count = |group: u32| cluster.centroids.count(group) as u32;
        let on_card = cluster.groups_on_card();
        let groups = self.navigation.groups.iter().filter(|group| group.id < on_card);
        let submitted = groups.clone().map(|group| Group {
            number: group.id,
            held: count(group.id),
            distance: group.distance,
        });
        self.on_card = groups.clone().map(|group| count(group.id)).sum();
        self.query.stats.code_distances += self.on_card;
        if groups.count() == 0 {
            return Ok(());
        }
        let vector = slot.computes_exact_distances().then_some((&self.query.bytes[..], params.k as u32));
        Ok(slot.submit(&tables, submitted, params.wanted() as u32, vector, cx.task_waker())?)
    }

    /// Waits for the response of the card, and adds its best candidates to `self.hits`. A card with all codes
    /// and vectors returns the nearest vectors instead; then the query is answered, and this returns true.
    pub(super) async fn wait_for_card(
        &mut self,
        slot: &mut Slot,
        cx: &Cx,
        params: &SearchParams,
    ) -> Result<bool, IndexError> {
        if self.on_card == 0 {
            return Ok(false);
        }
        let (hits_before, hits) = (self.hits.len(), &mut self.hits);
        let push = |distance, number| hits.push(Neighbor { distance, id: number });
        let found = slot.wait_for_response(cx, push).await?;
        self.query.clock.spent(Phase::Scan);
        if !slot.computes_exact_distances() {
            return Ok(false);
        }
        // If estimates overflow, the card returns too few vectors. Then the query reads vectors as without a
        // card.
        let answered = found >= self.on_card.min(params.wanted() as u32);
        self.query.stats.full_distances += if answered { found } else { 0 };
        for hit in self.hits.drain(hits_before..).filter(|_| answered) {
            self.query.found.push(hit.id, hit.distance);
        }
        Ok(answered)
    }
}
