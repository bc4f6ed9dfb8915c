//! A graph of more vectors than fit in memory (DiskANN, section 3): each vector goes to the two parts that
//! are nearest to it, each part's graph is grown in memory, and the links of a vector in both parts are
//! merged.

use super::calibrate;
use super::connect::connect;
use super::merge::{ListWriter, MergedVectors, PieceFiles, late_name, lists_name, merge};
use super::options::GraphOptions;
use super::section::GraphEntry;
use super::slots::Slots;
use super::whole::PlacedLayout;
use super::work::{GraphFiles, GrownGraph, Work};
use super::write;
use crate::allocate::try_with_capacity;
use crate::build::StageTimes;
use crate::build::journal::{self, holds, require};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::identity::Identity;
use crate::format::manifest::CodesEntry;
use crate::format::pages::PageLayout;
use crate::partition::encoding::{Encoding, FloatRows};
use crate::partition::intake::Intake;
use crate::partition::pieces::{
    Piece, SpilledPart, check_parts, pieces, read, remove_spilled, spill_files_exist,
};
use crate::partition::plain_codes::write_codes;
use crate::partition::spread::{Copies, SampledPoints};
use crate::partition::{READ_BYTES, sample_rows};
use crate::proximity::adjacency::Adjacency;
use crate::proximity::grow::Growth;
use crate::proximity::options::GrowthOptions;
use bathyal_store::Draft;
use bathyal_vectors::RowReader;
use bathyal_vectors::progress::Progress;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that each vector of a part takes in addition to its components and its links: its id, and a hash of
/// its list.
pub(super) const BYTES_PER_ROW: u64 = 4 + 8;

/// Vectors between two checks for cancellation.
const CHECK_EVERY: u32 = 16_384;

/// Returns the maximum degree within a part: two thirds of `max_degree`, as in DiskANN. The lists of both
/// parts share some links, so together they fill `max_degree`.
pub(super) fn degree(max_degree: u32) -> u32 {
    (2 * max_degree).div_ceil(3)
}

/// The finished steps of a build, so that a killed build continues.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct GraphJournal {
    /// Text that identifies the data, the options and the version. A build with another fingerprint starts
    /// from the beginning.
    fingerprint: String,
    /// Seconds spent so far.
    pub(super) seconds: f64,
    /// The largest squared length of a vector, as the bits of an f32; only for the inner product.
    longest: Option<u32>,
    /// The parts; empty until all vectors have been distributed to them.
    parts: Vec<SpilledPart>,
    /// Files of the finished pieces, in order.
    grown: Vec<PieceFiles>,
}

/// Size of the data of a build and of its parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataShape {
    pub(super) vectors: usize,
    /// Bytes of a vector.
    pub(super) row_bytes: usize,
    /// Most vectors of a part, at least 1.
    pub(super) rows: usize,
}

impl GraphJournal {
    pub(super) fn new(fingerprint: &str) -> GraphJournal {
        GraphJournal { fingerprint: fingerprint.into(), ..GraphJournal::default() }
    }

    /// Reads the journal in `directory`. `None` if it belongs to a build with another fingerprint or another
    /// `shape`, or if a file that it names is missing.
    pub(super) fn read(directory: &dyn Draft, fingerprint: &str, shape: DataShape) -> Option<GraphJournal> {
        let journal = GraphJournal::parse(&journal::read(directory)?, shape).ok()?;
        let pieces = pieces(&journal.parts, shape.rows);
        let spilled = spill_files_exist(directory, &journal.parts, &pieces[journal.grown.len()..]);
        let has_lists = journal.grown.iter().enumerate().all(|(number, files)| {
            holds(directory, &lists_name(number), &files.lists)
                && holds(directory, &late_name(number), &files.late)
        });
        (has_lists && spilled && journal.fingerprint == fingerprint).then_some(journal)
    }

    /// Parses and checks the bytes of a journal.
    ///
    /// # Errors
    /// A sentence if the journal is damaged or does not fit `shape`.
    pub(super) fn parse(bytes: &[u8], shape: DataShape) -> Result<GraphJournal, String> {
        let DataShape { vectors, row_bytes, rows } = shape;
        let journal: GraphJournal = journal::parse(bytes)?;
        require(journal.seconds >= 0.0, "its number of seconds is negative")?;
        // A vector is in two parts, unless there is only one part.
        let copies = if journal.parts.len() == 1 { 1 } else { 2 };
        let (parts, grown) = (&journal.parts, &journal.grown);
        let pieces = check_parts(parts, grown.len(), copies * vectors, row_bytes as u64, rows)?;
        let mut lists = grown.iter().zip(&pieces);
        let long_enough = lists.all(|(files, piece)| files.lists.bytes >= 8 * piece.rows as u64);
        require(long_enough, "the lists of a part are too short")?;
        Ok(journal)
    }
}

/// The graph that results from merging the parts' graphs.
pub(super) struct MergedGraph<'a> {
    layout: PageLayout,
    intake: Intake,
    entry: u32,
    held_out: Vec<u32>,
    files: Vec<PieceFiles>,
    slots: Slots,
    links: u64,
    graph_options: &'a GraphOptions,
}

impl<'a> MergedGraph<'a> {
    /// Distributes the vectors to parts, grows the pieces that the journal does not list, and merges them
    /// without the held-out vectors.
    pub(super) fn grow(
        work: &Work<'a>,
        journal: &mut GraphJournal,
        stages: &mut StageTimes,
    ) -> Result<MergedGraph<'a>, IndexError> {
        announce(work, journal);
        let mut intake = Intake { longest: journal.longest.map(f32::from_bits), ..work.intake() };
        if journal.parts.is_empty() {
            journal.parts = work.divide(&mut intake, Copies::Two)?;
            journal.longest = intake.longest.map(f32::to_bits);
            journal.write(work, stages)?;
            stages.end("spread");
        }
        let entry = SampledPoints::read(work, &intake)?.medoid();
        let held_out = calibrate::hold_out(work.data, entry, work.options)?;
        let pieces = pieces(&journal.parts, work.rows);
        let remaining = &pieces[journal.grown.len()..];
        work.progress.stage("growing parts", remaining.iter().map(|piece| piece.rows as u64).sum());
        let mut rows_before = 0;
        for piece in remaining {
            let number = journal.grown.len();
            let files = grow_piece(work, &intake, (&journal.parts, *piece), &held_out, number, rows_before)?;
            journal.grown.push(files);
            journal.write(work, stages)?;
            remove_spilled(work, &journal.parts, *piece);
            rows_before += piece.rows as u64;
            stages.end("grow parts");
        }
        let files = journal.grown.clone();
        let slots = merge_and_connect(work, &files, MergedVectors::WithoutHeldOut, entry, &held_out)?;
        stages.end("merge parts");
        let layout = PlacedLayout::padded(work.data, work.own)?;
        Ok(MergedGraph { layout, intake, entry, held_out, files, slots, links: 0, graph_options: work.own })
    }
}

impl GraphJournal {
    /// Replaces the journal in the draft. The files that it names must be synced.
    fn write(&mut self, work: &Work<'_>, stages: &StageTimes) -> Result<(), IndexError> {
        self.seconds = stages.seconds_so_far();
        journal::write(work.directory, self)
    }
}

/// Merges the pieces, and makes all vectors reachable but those in `absent` (rising).
fn merge_and_connect(
    work: &Work<'_>,
    files: &[PieceFiles],
    vectors: MergedVectors,
    entry: u32,
    absent: &[u32],
) -> Result<Slots, IndexError> {
    let width = work.own.max_degree as usize;
    let mut slots = merge(work, files, (degree(work.own.max_degree) as usize, width), vectors)?;
    connect(work, &mut slots, entry, absent)?;
    Ok(slots)
}

/// Reports the coming stages to the receiver of progress. Their seconds were measured on one machine; on
/// another one, their proportions estimate the remaining time.
fn announce(work: &Work<'_>, journal: &GraphJournal) {
    let pieces = pieces(&journal.parts, work.rows);
    let all: usize = pieces.iter().map(|piece| piece.rows).sum();
    let grown: usize = pieces[..journal.grown.len()].iter().map(|piece| piece.rows).sum();
    let remaining = if all == 0 { 1.0 } else { 1.0 - grown as f64 / all as f64 };
    work.progress.plan(&stages(work.data, journal.parts.is_empty(), remaining));
}

/// Returns the stages that remain, with their seconds on one machine. `remaining` is the share of the vectors
/// whose parts are not grown yet; `from_start` is true if the vectors are not distributed yet.
pub(super) fn stages(data: &SourceVectors<'_>, from_start: bool, remaining: f64) -> Vec<(&'static str, f64)> {
    let values = data.count() as f64 * data.dim() as f64 / 128e6;
    let spreading = from_start.then_some(("spreading", values));
    let rest = [
        ("growing parts", 180.0 * values * remaining),
        ("merging", 1.5 * values),
        ("connecting", 1.0 * values),
        ("writing graph", 1.0 * values),
        ("training codes", 1.0),
        ("encoding", 2.0 * values),
        ("exact neighbours", 0.7 * values),
        ("calibrating", 6.0 + values),
        ("merging", 1.5 * values),
        ("connecting", 1.0 * values),
        ("writing graph", 1.0 * values),
    ];
    spreading.into_iter().chain(rest).collect()
}

/// Reports the progress of one piece as a share of the progress of all pieces.
struct PieceProgress<'a> {
    all: &'a dyn Progress,
    /// Vectors of the pieces before this one.
    rows_before: u64,
    /// Vectors of this piece.
    rows: u64,
    /// Hundredths of the piece that are done when the current stage begins.
    begin: AtomicU64,
    /// Hundredths of the piece that the current stage takes.
    share: AtomicU64,
    /// Steps of the current stage.
    steps: AtomicU64,
}

impl<'a> PieceProgress<'a> {
    fn new(all: &'a dyn Progress, rows_before: u64, rows: u64) -> PieceProgress<'a> {
        let [begin, share, steps] = [0, 0, 1].map(AtomicU64::new);
        PieceProgress { all, rows_before, rows, begin, share, steps }
    }
}

impl Progress for PieceProgress<'_> {
    fn stage(&self, name: &str, total: u64) {
        let (begin, share) = match name {
            "ordering vectors" => (0, 3),
            "first pass" => (3, 24),
            "second pass" => (27, 68),
            "trimming" => (95, 3),
            _ => (98, 2),
        };
        self.begin.store(begin, Ordering::Relaxed);
        self.share.store(share, Ordering::Relaxed);
        self.steps.store(total.max(1), Ordering::Relaxed);
    }

    fn advance(&self, done: u64) {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let hundredths =
            load(&self.begin) as f64 + (load(&self.share) * done) as f64 / load(&self.steps) as f64;
        self.all.advance(self.rows_before + (self.rows as f64 * hundredths / 100.0) as u64);
    }

    fn cancelled(&self) -> bool {
        self.all.cancelled()
    }
}

/// Grows the graph of piece `number`, and writes its lists.
fn grow_piece(
    work: &Work<'_>,
    intake: &Intake,
    (parts, piece): (&[SpilledPart], Piece),
    held_out: &[u32],
    number: usize,
    rows_before: u64,
) -> Result<PieceFiles, IndexError> {
    let (space, ids) = read(work, intake, parts[piece.part], piece)?;
    let options = GrowthOptions { max_degree: degree(work.own.max_degree), ..work.own.growth() };
    let rows = 0..space.count() as u32;
    let late_rows: Vec<u32> =
        rows.clone().filter(|row| held_out.binary_search(&ids[*row as usize]).is_ok()).collect();
    let progress = PieceProgress::new(work.progress, rows_before, piece.rows as u64);
    let (seed, threads, progress) = (work.options.seed, work.threads, &progress);
    let entry = space.medoid(&late_rows, threads, progress)?;
    let graph = Adjacency::new(space.count(), options.max_degree)?;
    let growth = Growth { space: &space, graph, entry, options, seed, threads, progress };
    let mut order = growth.passes(&late_rows)?;
    growth.finish(&order)?;
    let neighbor_ids = |row: u32| growth.graph.neighbors(row).map(|link| ids[link as usize]);
    let mut lists = ListWriter::create(work, &lists_name(number))?;
    for row in rows.clone() {
        check_cancelled(work, row)?;
        lists.push(ids[row as usize], neighbor_ids(row))?;
    }
    let lists = lists.finish()?;
    if late_rows.is_empty() {
        return Ok(PieceFiles { lists, ..PieceFiles::default() });
    }
    let hash = |row: u32| {
        let mut hash = Xxh3::new();
        growth.graph.neighbors(row).for_each(|link| hash.update(&link.to_le_bytes()));
        hash.digest()
    };
    let mut hashes = try_with_capacity("hashes of the lists of a part", rows.len())?;
    for row in rows.clone() {
        check_cancelled(work, row)?;
        hashes.push(hash(row));
    }
    growth.insert("inserting held-out vectors", &late_rows, options.alpha, options.search_list)?;
    order.extend(&late_rows);
    growth.finish(&order)?;
    let mut late = ListWriter::create(work, &late_name(number))?;
    for row in rows {
        check_cancelled(work, row)?;
        if hash(row) != hashes[row as usize] {
            late.push(ids[row as usize], neighbor_ids(row))?;
        }
    }
    Ok(PieceFiles { lists, late: late.finish()? })
}

/// Returns an error if the build is cancelled. Checks only at every [`CHECK_EVERY`]-th row.
fn check_cancelled(work: &Work<'_>, row: u32) -> Result<(), IndexError> {
    if row.is_multiple_of(CHECK_EVERY) { work.check_cancelled() } else { Ok(()) }
}

impl GrownGraph for MergedGraph<'_> {
    fn held_out(&self) -> &[u32] {
        &self.held_out
    }

    fn hidden(&self) -> Vec<u32> {
        self.held_out.clone()
    }

    fn identify(&mut self, work: &Work<'_>) -> Result<Identity, IndexError> {
        let (hash, links) = self.slots.hash(work)?;
        let identity = work.identity.and(&format!("links {hash:016x}"));
        self.layout = self.layout.identified(identity);
        self.links = links;
        Ok(identity)
    }

    fn write(&self, work: &Work<'_>) -> Result<GraphFiles, IndexError> {
        let (mut slots, mut rows) = (self.slots.reader(), RowReader::new(work.data.given(), READ_BYTES));
        let file = write::write_graph(work, &self.layout, |id, vector, links| {
            self.intake.take(rows.row(id as usize)?, vector);
            slots.next(links)
        })?;
        Ok((file, None))
    }

    fn write_codes(&self, work: &Work<'_>) -> Result<CodesEntry, IndexError> {
        let (data, intake) = (work.data, &self.intake);
        let reader = |ahead| {
            let mut rows = FloatRows::new(data, intake, ahead);
            move |id, out: &mut [f32]| rows.read(id, out)
        };
        let (count, dim, row_bytes) = (data.count(), data.dim(), data.given_row_bytes());
        let encoding = Encoding { work, count, dim, row_bytes, reader };
        let sample = encoding.sample(sample_rows(count, dim))?;
        write_codes(&encoding, work.own.codes(), sample)
    }

    fn section(&self, _work: &Work<'_>, files: GraphFiles, codes: CodesEntry) -> GraphEntry {
        PlacedLayout::Padded(self.layout).section(files, codes, self.entry, self.graph_options)
    }

    fn complete(&mut self, work: &Work<'_>) -> Result<(), IndexError> {
        self.slots = merge_and_connect(work, &self.files, MergedVectors::All, self.entry, &[])?;
        Ok(())
    }

    fn links(&self) -> u64 {
        self.links
    }
}
