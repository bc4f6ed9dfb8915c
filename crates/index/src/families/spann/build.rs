//! The build of posting lists: leaves and their means, a graph over the means, the lists of each vector, and
//! the contents of each list.

use super::assign;
use super::members::{ADMITTED_NAME, MEMBERS_NAME, Memberships};
use super::options::SpannOptions;
use super::place::{self, HEADER_BYTES, Leaves, rows_name};
use super::plan::SpannPlan;
use super::section::{CENTROIDS_NAME, CODEC_NAME, CODES_NAME, LINKS_NAME, NAME, STRIPED, SpannEntry};
use super::steps::{AdmittedFiles, FREQUENCIES_NAME, Journal, Steps};
use super::work::{ListShape, Work};
use super::{coded_measure, coded_write};
use super::{graph, measure, sizes, write};
use crate::build::journal::require;
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, FamilyOptions, Job};
use crate::build::plan::FamilyPlan;
use crate::build::{StageTimes, least_manifest};
use crate::calibrate::Calibration;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::appender::{Appender, Written, read_back};
use crate::format::identity::Identity;
use crate::format::manifest::Manifest;
use crate::partition::encoding::Encoding;
use crate::partition::intake::Intake;
use crate::partition::pieces::{Ordered, Piece};
use crate::partition::plain_codes::{training_rows, write_codes};
use crate::partition::space::Space;
use crate::partition::staged::{self, BuildShape, Lengths, Placing, Staged};

impl From<SpannOptions> for FamilyOptions {
    fn from(options: SpannOptions) -> FamilyOptions {
        FamilyOptions::new(options)
    }
}

impl Builder for SpannOptions {
    fn family(&self) -> &'static str {
        NAME
    }

    fn striped(&self) -> &'static [&'static str] {
        STRIPED
    }

    fn check(&self) -> Result<(), IndexError> {
        SpannOptions::check(self)
    }

    fn calibrates(&self) -> bool {
        true
    }

    fn planned_memory(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> u64 {
        SpannPlan::new(data, self, options).planned
    }

    fn plan(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<FamilyPlan, IndexError> {
        sizes::plan(data, self, options)
    }

    fn with_default_code_bytes(&self, bytes: u32) -> Option<FamilyOptions> {
        (self.code_kind.is_some() && self.codes().may_be_short())
            .then(|| SpannOptions { code_bytes: Some(bytes), ..*self }.into())
    }

    fn leaner(&self, dim: usize) -> Vec<(&'static str, FamilyOptions)> {
        let replicas = Some(self.list_replicas() / 2);
        vec![
            (
                "lower centroid_share",
                SpannOptions { centroid_share: self.centroid_share / 2.0, ..*self }.into(),
            ),
            ("lower replicas", SpannOptions { replicas, ..*self }.into()),
            ("lower code_bytes", SpannOptions { code_bytes: self.codes().halved(dim), ..*self }.into()),
        ]
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        staged::build(job, self)
    }
}

impl Staged for SpannOptions {
    type Layout = ListShape;
    type Steps = Steps;

    const STEPS_VERSION: u32 = 4;

    fn rows(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<usize, IndexError> {
        Ok(SpannPlan::new(data, self, options).rows)
    }

    fn layout(&self, data: &SourceVectors<'_>, _identity: Identity) -> Result<ListShape, IndexError> {
        let shape = ListShape::of(self, data);
        shape.check(data, self)?;
        Ok(shape)
    }

    fn placing(layout: &ListShape) -> Placing {
        let (vectors_name, unit) = (rows_name(layout.element), layout.leaf);
        Placing { vectors_name, units: vec![unit], unit }
    }

    fn lengths(shape: &BuildShape<ListShape>, pieces: &[Piece]) -> Lengths {
        let rows: usize = pieces.iter().map(|piece| piece.rows).sum();
        let header = if pieces.is_empty() { 0 } else { HEADER_BYTES };
        Lengths { vectors: header + (rows * shape.row_bytes) as u64, order: 4 * rows as u64 }
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
        let Some(admitted) = &steps.admitted else { return Vec::new() };
        vec![
            (CENTROIDS_NAME, admitted.centroids.written()),
            (LINKS_NAME, admitted.links.written()),
            (CODES_NAME, admitted.codes.file.written()),
            (CODEC_NAME, admitted.codes.codec.written()),
            (MEMBERS_NAME, admitted.members),
            (ADMITTED_NAME, admitted.slots),
            (FREQUENCIES_NAME, admitted.frequencies),
        ]
    }

    fn check_steps(
        steps: &Steps,
        shape: &BuildShape<ListShape>,
        pieces: &[Piece],
        all_placed: bool,
    ) -> Result<(), String> {
        let Some(admitted) = &steps.admitted else { return Ok(()) };
        require(all_placed, "lists were filled before all vectors were placed")?;
        admitted.check(shape.vectors, shape.units(shape.layout.leaf, pieces))
    }

    fn rest(
        &self,
        _data: &SourceVectors<'_>,
        layout: &ListShape,
        steps: &Steps,
        values: f64,
    ) -> Vec<(&'static str, f64)> {
        let lists = values * 25.0 / layout.leaf as f64;
        let mut plan = Vec::new();
        if steps.admitted.is_none() {
            plan.extend([
                ("first pass", 4.0 * lists),
                ("second pass", 8.0 * lists),
                ("trimming", 1.0 * lists),
                ("assigning", 8.0 * values),
                ("training codes", 2.0),
                ("encoding", 0.1 * lists),
                ("admitting", 1.0 * values),
            ]);
        }
        plan.extend([
            ("placing vectors", 0.5 * values),
            ("writing lists", 1.5 * values),
            ("exact neighbours", 3.0 * values),
            ("calibrating", 4.0),
        ]);
        plan
    }

    fn finish(
        work: &Work<'_>,
        intake: &Intake,
        journal: &mut Journal,
        stages: &mut StageTimes,
    ) -> Result<Manifest, IndexError> {
        let (leaves, centroids) = place::leaves(work, intake, journal)?;
        let (admitted, members) = admit(work, intake, &leaves, centroids, journal, stages)?;
        let coded = coded_write::encode(work, intake, &leaves)?;
        if coded.is_some() {
            stages.end("encode lists");
        }
        let lists = match &coded {
            Some(coded) => coded.write(work, &leaves, &members)?,
            None => write::write(work, intake, &leaves, &members, &frequencies(work, &admitted)?)?,
        };
        stages.end("write lists");
        let mut section = section(work, admitted, &lists, coded.as_ref());
        section.calibration = match &coded {
            Some(coded) => coded_measure::calibrate(work, &section, &leaves, coded, &lists.table)?,
            None => measure::calibrate(work, &section, &leaves, &members)?,
        };
        stages.end("calibrate");
        let mut manifest = least_manifest(work.data, work.options, work.identity);
        manifest.set_structure(&section, section.files())?;
        Ok(manifest)
    }

    fn details(manifest: &Manifest) -> Result<Details, IndexError> {
        let section = SpannEntry::read(manifest).map_err(IndexError::Internal)?;
        let (kind, bytes) = match section.list_codes {
            Some(codes) => (codes.kind, codes.code_bytes),
            None => (section.codes.kind, section.codes.code_bytes),
        };
        Ok(Details::from([("code_kind", kind.into()), ("code_bytes", bytes.into())]))
    }
}

/// Returns the manifest section for the written files.
fn section(
    work: &Work<'_>,
    admitted: AdmittedFiles,
    lists: &write::WrittenFiles,
    coded: Option<&coded_write::CodedVectors>,
) -> SpannEntry {
    let codes = admitted.codes.entry();
    SpannEntry {
        file: lists.postings.clone(),
        checksums: lists.checksums.clone(),
        lists: lists.lists.clone(),
        centroids: admitted.centroids,
        links: admitted.links,
        ids: lists.ids.clone(),
        layout: lists.table.layout().name().into(),
        list_codes: coded.map(|coded| Box::new(coded.entry.clone())),
        list_count: lists.table.lists() as u32,
        copies: lists.table.copies(),
        replicas: work.own.list_replicas(),
        centroid_share: work.own.centroid_share,
        list_limit: work.layout.list_limit as u32,
        longest_bytes: lists.table.longest() as u32,
        max_degree: graph::CENTROID_DEGREE,
        entry_point: admitted.entry_point,
        codes,
        calibration: Calibration::default(),
    }
}

/// Builds the graph over the centroids, writes the files for navigation, and admits the vectors to lists. If
/// the journal has the results of an earlier process, returns those.
fn admit(
    work: &Work<'_>,
    intake: &Intake,
    leaves: &Leaves,
    space: Space,
    journal: &mut Journal,
    stages: &mut StageTimes,
) -> Result<(AdmittedFiles, Memberships), IndexError> {
    let (directory, progress) = (work.directory, work.progress);
    if let Some(found) = &journal.own.admitted {
        let members = Memberships::restore(directory, leaves.count(), found.members, found.slots)?;
        return Ok((found.clone(), members));
    }
    let growth = graph::grow(work, &space)?;
    stages.end("grow graph");
    let assignment = assign::assign(work, intake, leaves, &growth)?;
    stages.end("assign");
    let graph::Files { centroids, links } = graph::write(work, &growth)?;
    let entry_point = growth.entry;
    drop(growth);
    let (count, dim, row_bytes) = (space.count(), space.dim(), space.row_bytes());
    let reader = |_| {
        |centroid, out: &mut [f32]| {
            space.row_f32(centroid as u32, out);
            Ok(())
        }
    };
    let encoding = Encoding { work, count, dim, row_bytes, reader };
    let sample = encoding.sample(training_rows(count))?;
    let codes = write_codes(&encoding, work.own.centroid_codes(), sample)?.into();
    drop(space);
    stages.end("codes");
    progress.stage("admitting", leaves.count() as u64);
    let admitted = assignment.requests.admit(leaves, work.layout.list_limit, |lists| {
        progress.advance(lists);
        work.check_cancelled()
    })?;
    let (members, slots) = admitted.save(directory)?;
    let mut file = Appender::create(directory, FREQUENCIES_NAME)?;
    file.append(&assignment.frequencies.iter().flat_map(|count| count.to_le_bytes()).collect::<Vec<_>>())?;
    let frequencies = file.sync()?;
    let found = AdmittedFiles { centroids, links, codes, entry_point, members, slots, frequencies };
    journal.own.admitted = Some(found.clone());
    journal.write(directory, stages)?;
    stages.end("admit");
    Ok((found, admitted))
}

/// Reads how often each list is read.
fn frequencies(work: &Work<'_>, admitted: &AdmittedFiles) -> Result<Vec<u32>, IndexError> {
    let bytes = read_back(work.directory, FREQUENCIES_NAME, admitted.frequencies)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|count| u32::from_le_bytes(*count)).collect())
}
