//! Builds a cluster index in stages: parts, pages, codes, calibration. A killed build continues after the
//! last finished stage.

use super::centroids::{Centroids, GROUPS_PER_RUN};
use super::options::ClusterOptions;
use super::plan::ClusterPlan;
use super::section::{
    CENTROIDS_NAME, CODEC_NAME, CODES_NAME, ClusterEntry, NAME, PLACES_NAME, ROWS_NAME, STRIPED, VECTORS_NAME,
};
use super::sizes::{self, choose_layout};
use super::{calibrate, encode, place};
use crate::allocate::try_zeros;
use crate::build::journal::require;
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, FamilyOptions, Job};
use crate::build::plan::FamilyPlan;
use crate::build::{StageTimes, least_manifest};
use crate::calibrate::Calibration;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::appender::{Appender, ReadBack, Written, read_back};
use crate::format::groups::GroupLayout;
use crate::format::identity::Identity;
use crate::format::manifest::{CodesEntry, FileEntry, Manifest};
use crate::format::places::Places;
use crate::partition;
use crate::partition::intake::Intake;
use crate::partition::journal::MEANS_NAME;
use crate::partition::pieces::{Ordered, Piece, pieces};
use crate::partition::staged::{self, BuildShape, Lengths, Placing, Staged};
use crate::query::codes::plain_metric;
use bathyal_kernels::quantize::{Codec, SCAN_BLOCK};
use serde::{Deserialize, Serialize};

/// Input of all stages of a build.
pub(crate) type Work<'a> = partition::Work<'a, GroupLayout, ClusterOptions>;

impl From<ClusterOptions> for FamilyOptions {
    fn from(options: ClusterOptions) -> FamilyOptions {
        FamilyOptions::new(options)
    }
}

impl Builder for ClusterOptions {
    fn family(&self) -> &'static str {
        NAME
    }

    fn striped(&self) -> &'static [&'static str] {
        STRIPED
    }

    fn check(&self) -> Result<(), IndexError> {
        ClusterOptions::check(self)
    }

    fn calibrates(&self) -> bool {
        true
    }

    fn planned_memory(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> u64 {
        choose_layout(data, self).map_or(0, |layout| ClusterPlan::new(data, self, options, &layout).planned)
    }

    fn plan(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<FamilyPlan, IndexError> {
        sizes::plan(data, self, options)
    }

    fn with_default_code_bytes(&self, bytes: u32) -> Option<FamilyOptions> {
        self.codes().may_be_short().then(|| ClusterOptions { code_bytes: Some(bytes), ..*self }.into())
    }

    fn leaner(&self, dim: usize) -> Vec<(&'static str, FamilyOptions)> {
        let group_vectors = self.group_vectors.saturating_mul(2);
        vec![
            ("lower code_bytes", ClusterOptions { code_bytes: self.codes().halved(dim), ..*self }.into()),
            ("raise group_vectors", ClusterOptions { group_vectors, ..*self }.into()),
        ]
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        staged::build(job, self)
    }
}

/// The finished steps after the vectors are placed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Steps {
    /// The file of the codec, once it is trained.
    pub(crate) trained: Option<FileEntry>,
    pub(crate) codes: Written,
    /// The file of the places of the groups that have codes.
    pub(crate) places: Written,
}

pub(crate) type Journal = partition::journal::Journal<Steps>;

impl Staged for ClusterOptions {
    type Layout = GroupLayout;
    type Steps = Steps;

    const STEPS_VERSION: u32 = 6;

    fn rows(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<usize, IndexError> {
        Ok(ClusterPlan::new(data, self, options, &choose_layout(data, self)?).rows)
    }

    fn layout(&self, data: &SourceVectors<'_>, identity: Identity) -> Result<GroupLayout, IndexError> {
        Ok(choose_layout(data, self)?.identified(identity))
    }

    fn placing(layout: &GroupLayout) -> Placing {
        let group = layout.group_vectors();
        let units = vec![layout.page_vectors(), group, GROUPS_PER_RUN * group];
        Placing { vectors_name: VECTORS_NAME, units, unit: group }
    }

    fn lengths(shape: &BuildShape<GroupLayout>, pieces: &[Piece]) -> Lengths {
        let layout = &shape.layout;
        let groups = shape.units(layout.group_vectors(), pieces);
        Lengths {
            vectors: groups * layout.group_bytes() as u64,
            order: groups * 4 * layout.group_vectors() as u64,
        }
    }

    fn write(
        work: &Work<'_>,
        ordered: &Ordered,
        vectors: &mut Appender,
        order: &mut Appender,
    ) -> Result<(), IndexError> {
        place::write(work, ordered, vectors, order)
    }

    fn files(steps: &Steps) -> Vec<(&'static str, Written)> {
        let codec = steps.trained.as_ref().map_or(Written::default(), FileEntry::written);
        vec![(CODES_NAME, steps.codes), (PLACES_NAME, steps.places), (CODEC_NAME, codec)]
    }

    fn check_steps(
        steps: &Steps,
        shape: &BuildShape<GroupLayout>,
        pieces: &[Piece],
        all_placed: bool,
    ) -> Result<(), String> {
        let name = steps.trained.as_ref().map(|file| file.name.as_str());
        require(
            name.is_none_or(|name| all_placed && name == CODEC_NAME),
            "the codec was trained before all vectors were placed",
        )?;
        // The codes of a group have a multiple of these bytes: a block has 32 codes of at least a byte.
        let group_unit = (shape.layout.group_blocks() * SCAN_BLOCK) as u64;
        let whole_groups = steps.codes.bytes.is_multiple_of(if pieces.is_empty() { 1 } else { group_unit });
        require(
            steps.codes.bytes == 0 || name.is_some() && whole_groups,
            "the codes have no codec or do not fill groups",
        )?;
        let groups = steps.places.bytes / Places::file_bytes(&shape.layout, 1).max(1);
        let whole = steps.places.bytes == Places::file_bytes(&shape.layout, groups);
        let fit_codes = !Places::are_needed(&shape.layout) || (groups == 0) == (steps.codes.bytes == 0);
        require(whole && fit_codes, "the places do not fit the codes")
    }

    fn rest(
        &self,
        data: &SourceVectors<'_>,
        _layout: &GroupLayout,
        steps: &Steps,
        values: f64,
    ) -> Vec<(&'static str, f64)> {
        let training = steps.trained.is_none().then_some(("training codes", 1.0));
        let vectors = data.count() as f64;
        let code_bytes = self.codes().of_groups(data.dim()).1 as f64;
        let encoded = (steps.codes.bytes as f64 / (vectors * code_bytes)).min(1.0);
        // The codes that the thousand queries of a calibration scan grow with the number of vectors; its
        // other work does not.
        let (encoding, calibrating) = (0.7 * values * (1.0 - encoded), 4.0 + 0.5 * values);
        let rest = [("encoding", encoding), ("exact neighbours", 0.7 * values), ("calibrating", calibrating)];
        training.into_iter().chain(rest).collect()
    }

    fn finish(
        work: &Work<'_>,
        intake: &Intake,
        journal: &mut Journal,
        stages: &mut StageTimes,
    ) -> Result<Manifest, IndexError> {
        let mut section = encode_all(work, intake, journal, stages)?;
        let mut manifest = least_manifest(work.data, work.options, work.identity);
        manifest.set_structure(&section, section.files())?;
        calibrate::calibrate(work, &manifest, &mut section, journal.order)?;
        stages.end("calibrate");
        manifest.set_structure(&section, section.files())?;
        Ok(manifest)
    }

    fn details(manifest: &Manifest) -> Result<Details, IndexError> {
        let codes = ClusterEntry::read(manifest).map_err(IndexError::Internal)?.codes;
        Ok(Details::from([("code_kind", codes.kind.into()), ("code_bytes", codes.code_bytes.into())]))
    }
}

/// Makes centroids and codes from the written pages. Returns the entry of the manifest, without a
/// calibration.
fn encode_all(
    work: &Work<'_>,
    intake: &Intake,
    journal: &mut Journal,
    stages: &mut StageTimes,
) -> Result<ClusterEntry, IndexError> {
    let layout = work.layout;
    let vectors_file = place::finish(work, journal)?;
    let mut centroids = read_centroids(work, journal)?;
    let (codec, codec_file) = train(work, intake, &centroids, journal, stages)?;
    let encoded = encode::write(work, intake, &centroids, &codec, journal, stages)?;
    journal.own.codes = encoded.codes.written();
    journal.own.places = encoded.places.as_ref().map_or(Written::default(), FileEntry::written);
    journal.write(work.directory, stages)?;
    centroids.set_code_checksums(encoded.checksums);
    centroids.encode(&codec)?;
    centroids.set_row_checksums(work.identity);
    let write_file = |name, bytes: &[u8]| {
        let mut file = Appender::create(work.directory, name)?;
        file.append(bytes)?;
        file.finish()
    };
    let centroids_file = write_file(CENTROIDS_NAME, &centroids.to_bytes(work.options.metric))?;
    let rows_file = write_file(ROWS_NAME, centroids.rows().unwrap_or_default())?;
    let positions = place::write_positions(work, journal)?;
    stages.end("codes");
    let codes = CodesEntry {
        file: encoded.codes,
        codec: codec_file,
        kind: codec.kind().to_string(),
        code_bytes: codec.code_bytes() as u32,
    };
    Ok(ClusterEntry {
        file: vectors_file,
        centroids: centroids_file,
        rows: Some(rows_file),
        places: encoded.places,
        positions: Some(positions),
        page_bytes: layout.page_bytes() as u32,
        group_pages: layout.group_pages() as u32,
        groups: centroids.groups() as u32,
        runs: centroids.runs() as u32,
        codes,
        calibration: Calibration::default(),
        lone_curves: Vec::new(),
        shorter: Vec::new(),
        prunes: Vec::new(),
    })
}

/// Trains the codec, or reads the one that an earlier process has trained.
fn train(
    work: &Work<'_>,
    intake: &Intake,
    centroids: &Centroids,
    journal: &mut Journal,
    stages: &StageTimes,
) -> Result<(Codec, FileEntry), IndexError> {
    if let Some(file) = &journal.own.trained {
        let bytes = read_back(work.directory, CODEC_NAME, file.written())?;
        return Ok((Codec::from_bytes(&bytes)?, file.clone()));
    }
    let codec = encode::train(work, intake, centroids)?;
    let mut file = Appender::create(work.directory, CODEC_NAME)?;
    file.append(&codec.to_bytes())?;
    let file = file.finish()?;
    journal.own.trained = Some(file.clone());
    journal.write(work.directory, stages)?;
    Ok((codec, file))
}

/// Reads the means of the groups that were written with the pages, and makes the centroids of groups and
/// runs.
fn read_centroids(work: &Work<'_>, journal: &Journal) -> Result<Centroids, IndexError> {
    let dim = work.data.dim();
    let (counts, first_groups) = place::group_counts(&pieces(&journal.parts, work.rows), &work.layout);
    let mut file = ReadBack::open(work.directory, MEANS_NAME, journal.means)?;
    let mut means = try_zeros("the centroids of all groups", counts.len() * dim)?;
    let mut sum = vec![0.0_f64; dim];
    let mut bytes = vec![0_u8; dim * 4];
    for (row, count) in means.chunks_exact_mut(dim).zip(&counts) {
        file.fill(&mut bytes)?;
        let share = f64::from(*count) / work.data.count() as f64;
        for ((value, sum), bytes) in row.iter_mut().zip(&mut sum).zip(bytes.as_chunks::<4>().0) {
            *value = f32::from_le_bytes(*bytes);
            *sum += share * f64::from(*value);
        }
    }
    let mean = sum.iter().map(|m| *m as f32).collect();
    Ok(Centroids::new(plain_metric(work.options.metric), mean, means, first_groups, counts)?)
}
