//! Building a cluster index: order, groups, centroids, pages, codes, calibration.

use super::centroids::{Centroids, GROUPS_A_RUN, codes_metric};
use super::{calibrate, encode};
use crate::build::{Stages, code_bytes, least_manifest};
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::directory::BuildDirectory;
use crate::format::groups::GroupLayout;
use crate::format::manifest::{ClusterEntry, CodesEntry, FileEntry, Structure};
use crate::order::Placement;
use crate::progress::Progress;
use crate::vamana::space::Space;
use crate::vamana::{BuildOptions, BuildReport};
use crate::vectors::VectorFile;
use std::path::Path;

/// The vectors in the order of their groups.
pub(crate) const VECTORS_NAME: &str = "vectors.bin";
/// The centroids of groups and runs.
pub(crate) const CENTROIDS_NAME: &str = "centroids.bin";
/// The codes of all groups.
pub(crate) const CODES_NAME: &str = "codes.bin";
/// The trained codec.
pub(crate) const CODEC_NAME: &str = "codec.bin";
/// Pages written at once.
const PAGES_AT_ONCE: usize = 1024;

/// Vectors on their way into an index, with the order that they take there.
pub(crate) struct Placed<'a> {
    pub(crate) space: &'a Space,
    pub(crate) layout: GroupLayout,
    /// The vectors' ids by place.
    pub(crate) order: &'a [u32],
}

impl Placed<'_> {
    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.order.len().div_ceil(self.layout.group_vectors())
    }

    /// The ids of a group.
    pub(crate) fn group(&self, group: usize) -> &[u32] {
        let first = group * self.layout.group_vectors();
        &self.order[first..self.order.len().min(first + self.layout.group_vectors())]
    }

    /// The means of all groups, `groups x dim`.
    fn means(&self, threads: usize) -> Vec<f32> {
        let dim = self.space.dim();
        let mut means = vec![0.0_f32; self.groups() * dim];
        let part = self.groups().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            for (number, means) in means.chunks_mut(part * dim).enumerate() {
                scope.spawn(move || {
                    let mut row = vec![0.0; dim];
                    for (i, mean) in means.chunks_exact_mut(dim).enumerate() {
                        let ids = self.group(number * part + i);
                        for id in ids {
                            self.space.row_f32(*id, &mut row);
                            mean.iter_mut().zip(&row).for_each(|(m, v)| *m += v);
                        }
                        mean.iter_mut().for_each(|m| *m /= ids.len() as f32);
                    }
                });
            }
        });
        means
    }

    /// The centroids of groups and runs.
    fn centroids(&self, options: &BuildOptions) -> Centroids {
        let (dim, groups) = (self.space.dim(), self.groups());
        let means = self.means(options.thread_count());
        let mut mean = vec![0.0_f64; dim];
        for (group, row) in means.chunks_exact(dim).enumerate() {
            let share = self.group(group).len() as f64 / self.order.len() as f64;
            mean.iter_mut().zip(row).for_each(|(m, v)| *m += share * f64::from(*v));
        }
        let mean = mean.iter().map(|m| *m as f32).collect();
        let first_groups = (0..groups as u32).step_by(GROUPS_A_RUN).collect();
        let counts = (0..groups).map(|group| self.group(group).len() as u32).collect();
        Centroids::new(codes_metric(options.metric), mean, &means, first_groups, counts)
    }

    /// Writes the pages of all groups.
    fn write_pages(&self, directory: &Path, progress: &dyn Progress) -> Result<FileEntry, IndexError> {
        let layout = &self.layout;
        let pages = self.groups() * layout.group_pages();
        progress.stage("writing vectors", pages as u64);
        let mut file = Appender::create(directory, VECTORS_NAME)?;
        let mut buffer = vec![0_u8; PAGES_AT_ONCE.min(pages) * layout.page_bytes()];
        for first in (0..pages).step_by(PAGES_AT_ONCE) {
            if progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
            let last = pages.min(first + PAGES_AT_ONCE);
            let buffer = &mut buffer[..(last - first) * layout.page_bytes()];
            for (page, bytes) in (first..last).zip(buffer.chunks_exact_mut(layout.page_bytes())) {
                let start = self.order.len().min(page * layout.page_vectors());
                let ids = &self.order[start..self.order.len().min(start + layout.page_vectors())];
                layout.encode(bytes, page as u32, ids, ids.iter().map(|id| self.space.row(*id)));
            }
            file.append(buffer)?;
            progress.advance(last as u64);
        }
        file.finish()
    }
}

/// Bytes that grow with the vectors, at the build's peak.
pub(crate) fn planned_memory(data: &VectorFile, options: &BuildOptions) -> u64 {
    let count = data.count() as u64;
    let dim = data.dim() as u64;
    let groups = count / u64::from(options.group_vectors.max(1)) + 1;
    let codes = count * u64::from(code_bytes(options, data.dim())) * 5 / 4;
    let order = count * 12;
    let sample = encode::sample_bytes(data.count(), data.dim());
    let space = Space::planned_bytes(data, options.metric);
    space + order + groups * dim * 12 + data.data_bytes().max(sample).max(codes)
}

/// Builds a cluster index over `data` at `target`.
pub(crate) fn build(
    data: &VectorFile,
    target: &Path,
    options: &BuildOptions,
    planned: u64,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    let mut stages = Stages::begin();
    let layout = GroupLayout::choose(data.element(), data.dim() as u32, options.group_vectors as usize)
        .map_err(IndexError::Parameter)?;
    let directory = BuildDirectory::create(target, options.overwrite)?;
    let threads = options.thread_count();
    progress.stage("loading vectors", data.count() as u64);
    let space = Space::load(data, options.metric, threads, progress)?;
    data.release();
    stages.end("load");
    let mut order: Vec<u32> = (0..space.count() as u32).collect();
    let (page, group) = (layout.page_vectors(), layout.group_vectors());
    let placement = Placement { units: vec![page, group, GROUPS_A_RUN * group], threads, seed: options.seed };
    progress.stage("grouping", space.count() as u64);
    placement.order(&space, &mut order, progress)?;
    stages.end("group");
    let placed = Placed { space: &space, layout, order: &order };
    let mut centroids = placed.centroids(options);
    let pages = placed.write_pages(directory.path(), progress)?;
    stages.end("write vectors");
    let codec = encode::train(&placed, &centroids, options, threads, progress)?;
    let (codes_file, checksums) =
        encode::write(directory.path(), &placed, &centroids, &codec, threads, progress)?;
    let mut file = Appender::create(directory.path(), CODEC_NAME)?;
    file.append(&codec.to_bytes())?;
    let codec_file = file.finish()?;
    centroids.set_code_checksums(checksums);
    centroids.encode(&codec);
    let mut file = Appender::create(directory.path(), CENTROIDS_NAME)?;
    file.append(&centroids.to_bytes())?;
    let centroids_file = file.finish()?;
    stages.end("codes");

    let codes = CodesEntry {
        file: codes_file,
        codec: codec_file,
        kind: codec.kind().to_string(),
        code_bytes: codec.code_bytes() as u32,
    };
    let entry = ClusterEntry {
        file: pages,
        centroids: centroids_file,
        layout: "resident".into(),
        page_bytes: layout.page_bytes() as u32,
        group_pages: layout.group_pages() as u32,
        groups: placed.groups() as u32,
        runs: placed.groups().div_ceil(GROUPS_A_RUN) as u32,
    };
    let mut manifest = least_manifest(data, options, "cluster", Structure::Cluster(entry), codes);
    let mut places = vec![0_u32; order.len()];
    order.iter().zip(0..).for_each(|(id, place)| places[*id as usize] = place);
    drop(space);
    manifest.calibration =
        calibrate::calibrate(directory.path(), &manifest, data, &places, options, progress)?;
    stages.end("calibrate");
    manifest.build_seconds = stages.seconds_so_far();
    manifest.write(directory.path())?;
    directory.publish()?;
    Ok(BuildReport::new(&manifest, threads, planned, 0.0, stages))
}
