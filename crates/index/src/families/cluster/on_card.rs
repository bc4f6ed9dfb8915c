//! Groups of codes that lie in the memory of a graphics card, which scans them: this processor finds the groups, reads the vectors of the
//! best codes in one round, and compares them exactly. No code is in its own memory.
//!
//! The card's estimates are a processor's, bit for bit, and so are the best of them.

use super::centroids::Centroids;
use super::search::{Cluster, Scratch};
use super::section::ClusterEntry;
use crate::error::IndexError;
use crate::family::CardChoice;
use crate::format::groups::GroupLayout;
use crate::format::identity::Identity;
use crate::format::manifest::Manifest;
use crate::format::walk::read_through;
use bathyal_gpu::MOST_UNDER_WAY;
use bathyal_gpu::scans::{Group, MOST_CANDIDATES, MOST_SCANNED, Scans, Shape, Slot, Tables, Upload};
use bathyal_kernels::Neighbor;
use bathyal_kernels::quantize::Codec;
use bathyal_store::Generation;
use bathyal_tier::Cx;
use bathyal_vectors::progress::Progress;

/// Copies the codes of an index to `card`, piece by piece, and looks whether they are sound.
pub(super) fn scans(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &ClusterEntry,
    (layout, codec): (&GroupLayout, &Codec),
    (identity, centroids): (Identity, &Centroids),
    CardChoice { card, mini_batch }: CardChoice<'_>,
    progress: &dyn Progress,
) -> Result<Scans, IndexError> {
    let Some(codes) = codec.plane_codes() else {
        return Err(IndexError::Internal("codes without planes on a graphics card".into()));
    };
    let shape = Shape {
        code_bytes: entry.codes.code_bytes,
        factor_bytes: codes.factor_bytes as u32,
        plane_bytes: codes.bytes.len() as u32,
        groups: entry.groups,
        group_blocks: layout.group_blocks() as u32,
        group_vectors: layout.group_vectors() as u32,
        list: MOST_CANDIDATES,
        scanned: MOST_SCANNED.min(entry.groups),
        slots: MOST_UNDER_WAY,
    };
    let object = manifest.open_file(directory, &entry.codes.file)?;
    let damaged = |place: String, reason| IndexError::damaged(object.address(), place, reason);
    let (mut upload, mut outcome) = (Upload::begin(card, shape)?.mini_batches(mini_batch), Ok(()));
    progress.stage("copying codes to the graphics card", entry.codes.file.bytes);
    let group_bytes = entry.group_codes() as usize;
    let crc =
        read_through(object.as_ref(), entry.codes.file.bytes, group_bytes, progress, |group, codes| {
            if outcome.is_ok() {
                outcome = centroids
                    .check_codes(identity, group as u32, codes)
                    .map_err(|reason| damaged(format!("the codes of group {group}"), reason))
                    .and_then(|()| Ok(upload.append(codes)?));
            }
        })?;
    outcome?;
    if crc != entry.codes.file.crc32c {
        let reason = format!("checksum {crc:08x}, the manifest says {:08x}", entry.codes.file.crc32c);
        return Err(damaged("its content".into(), reason));
    }
    Ok(upload.finish()?)
}

/// A place for a query, which it holds until it ends: a mini-batch waits for those that are under way.
pub(super) async fn place(scans: &Scans, cx: &Cx) -> Slot {
    loop {
        match scans.slot(cx.task_waker()) {
            Some(slot) => return slot,
            None => cx.parked().await,
        }
    }
}

impl Scratch {
    /// Has the card scan the groups that were found; the best codes are the candidates.
    pub(super) async fn scan_on_card(
        &mut self,
        cluster: &Cluster,
        slot: &mut Slot,
        cx: &Cx,
        wanted: usize,
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
        let held = |group: u32| cluster.centroids.count(group) as u32;
        let groups = self.navigation.groups.iter();
        let groups =
            groups.map(|group| Group { number: group.id, held: held(group.id), distance: group.distance });
        slot.ask(&tables, groups, wanted as u32, cx.task_waker())?;
        self.query.stats.code_distances +=
            self.navigation.groups.iter().map(|group| held(group.id)).sum::<u32>();
        loop {
            let hits = &mut self.hits;
            hits.clear();
            match slot.answer(|distance, place| hits.push(Neighbor { distance, id: place })) {
                Some(answered) => return Ok(answered?),
                None => cx.parked().await,
            }
        }
    }
}
