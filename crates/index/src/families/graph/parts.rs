//! A graph of more vectors than fit in memory, as DiskANN merges it: each vector is sent to the two parts that are nearest to
//! it, each part is grown in memory, and what links a vector has in either of its parts it has in the whole.

use super::adjacency::Adjacency;
use super::calibrate;
use super::connect::connect;
use super::grow::Growth;
use super::merge::{self, ListWriter, Which, late_name, lists_name, merge};
use super::options::GraphOptions;
use super::section::GraphEntry;
use super::slots::Slots;
use super::whole::Layout;
use super::work::{GraphFiles, Grown, Work};
use super::write;
use crate::allocate::try_with_capacity;
use crate::build::Stages;
use crate::build::journal::{self, holds, require};
use crate::error::IndexError;
use crate::form::source::Source;
use crate::format::identity::Identity;
use crate::format::manifest::CodesEntry;
use crate::format::pages::PageLayout;
use crate::partition::encoding::{Encoding, FloatRows};
use crate::partition::intake::Intake;
use crate::partition::pieces::{Part, Piece, check_parts, pieces, read, remove_spilled, spill_files_exist};
use crate::partition::spread::{Copies, Sample};
use crate::partition::{READ_BYTES, sample_rows};
use bathyal_store::Draft;
use bathyal_vectors::RowReader;
use bathyal_vectors::progress::Progress;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of each vector of a part besides itself and its links: its id, and a hash of its list.
pub(super) const BYTES_A_ROW: u64 = 4 + 8;

/// Vectors between two looks at cancellation.
const CHECK_EVERY: u32 = 16_384;

/// Links of a vector in one part: with those of the other part there are as many as it may have, of which some are the same
/// (DiskANN grows its parts with two thirds too).
pub(super) fn degree(max_degree: u32) -> u32 {
    (2 * max_degree).div_ceil(3)
}

/// What is finished, so that a killed build continues.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Journal {
    /// What was built from and how; a build that differs in it begins anew.
    fingerprint: String,
    /// Seconds worked.
    pub(super) seconds: f64,
    /// Bits of the longest squared length, under the inner product.
    longest: Option<u32>,
    /// The parts, once all vectors have been sent to theirs.
    parts: Vec<Part>,
    /// What was written of the pieces that are grown.
    grown: Vec<merge::Grown>,
}

impl Journal {
    pub(super) fn new(fingerprint: &str) -> Journal {
        Journal { fingerprint: fingerprint.into(), ..Journal::default() }
    }

    /// The journal in `directory`, if it is of a build with this fingerprint of `vectors` vectors, each of `row_bytes`, `rows` of
    /// them in a part at most, and the files that it names are there.
    pub(super) fn read(
        directory: &dyn Draft,
        fingerprint: &str,
        (vectors, row_bytes, rows): (usize, usize, usize),
    ) -> Option<Journal> {
        let journal = Journal::parse(&journal::read(directory)?, (vectors, row_bytes, rows)).ok()?;
        let pieces = pieces(&journal.parts, rows);
        let spilled = spill_files_exist(directory, &journal.parts, &pieces[journal.grown.len()..]);
        let held = journal.grown.iter().enumerate().all(|(number, grown)| {
            holds(directory, &lists_name(number), &grown.lists)
                && holds(directory, &late_name(number), &grown.late)
        });
        (held && spilled && journal.fingerprint == fingerprint).then_some(journal)
    }

    /// Reads what a build has written.
    ///
    /// # Errors
    /// A sentence when it is damaged or of another build.
    pub(super) fn parse(
        bytes: &[u8],
        (vectors, row_bytes, rows): (usize, usize, usize),
    ) -> Result<Journal, String> {
        let journal: Journal = journal::parse(bytes)?;
        require(journal.seconds >= 0.0, "it took less than no time")?;
        // A vector lies in two parts, but where there is one part only.
        let copies = if journal.parts.len() == 1 { 1 } else { 2 };
        let (parts, grown) = (&journal.parts, &journal.grown);
        let pieces = check_parts(parts, grown.len(), copies * vectors, row_bytes as u64, rows)?;
        let mut lists = grown.iter().zip(&pieces);
        let long = lists.all(|(grown, piece)| grown.lists.bytes >= 8 * piece.rows as u64);
        require(long, "the lists of a part are too short")?;
        Ok(journal)
    }
}

/// A graph in parts, merged.
pub(super) struct Parts<'a> {
    layout: PageLayout,
    intake: Intake,
    entry: u32,
    held_out: Vec<u32>,
    grown: Vec<merge::Grown>,
    slots: Slots,
    links: u64,
    /// Of the build that this is part of.
    own: &'a GraphOptions,
}

impl<'a> Parts<'a> {
    /// Divides the vectors, grows what is not grown yet, and merges all but what the vectors held out add.
    pub(super) fn grow(
        work: &Work<'a>,
        journal: &mut Journal,
        stages: &mut Stages,
    ) -> Result<Parts<'a>, IndexError> {
        announce(work, journal);
        let mut intake = Intake { longest: journal.longest.map(f32::from_bits), ..work.intake() };
        if journal.parts.is_empty() {
            journal.parts = work.divide(&mut intake, Copies::Two)?;
            journal.longest = intake.longest.map(f32::to_bits);
            journal.write(work, stages)?;
            stages.end("spread");
        }
        let entry = Sample::read(work, &intake)?.medoid();
        let held_out = calibrate::hold_out(work.data, entry, work.options);
        let pieces = pieces(&journal.parts, work.rows);
        let left = &pieces[journal.grown.len()..];
        work.progress.stage("growing parts", left.iter().map(|piece| piece.rows as u64).sum());
        let mut before = 0;
        for piece in left {
            let grown =
                grow_piece(work, &intake, (&journal.parts, *piece), &held_out, journal.grown.len(), before)?;
            journal.grown.push(grown);
            journal.write(work, stages)?;
            remove_spilled(work, &journal.parts, *piece);
            before += piece.rows as u64;
            stages.end("grow parts");
        }
        let grown = journal.grown.clone();
        let slots = merged(work, &grown, Which::Early, entry, &held_out)?;
        stages.end("merge parts");
        let layout = Layout::padded(work.data, work.own)?;
        Ok(Parts { layout, intake, entry, held_out, grown, slots, links: 0, own: work.own })
    }
}

impl Journal {
    /// Replaces the journal. What it names was synced before.
    fn write(&mut self, work: &Work<'_>, stages: &Stages) -> Result<(), IndexError> {
        self.seconds = stages.seconds_so_far();
        journal::write(work.directory, self)
    }
}

/// Merges all that is grown, and connects all but the vectors `absent`.
fn merged(
    work: &Work<'_>,
    grown: &[merge::Grown],
    which: Which,
    entry: u32,
    absent: &[u32],
) -> Result<Slots, IndexError> {
    let width = work.own.max_degree as usize;
    let mut slots = merge(work, grown, (degree(work.own.max_degree) as usize, width), which)?;
    connect(work, &mut slots, entry, absent)?;
    Ok(slots)
}

/// Tells the receiver of progress what is to come: seconds on one machine, so their proportions say how long the rest takes on
/// another.
fn announce(work: &Work<'_>, journal: &Journal) {
    let pieces = pieces(&journal.parts, work.rows);
    let all: usize = pieces.iter().map(|piece| piece.rows).sum();
    let grown: usize = pieces[..journal.grown.len()].iter().map(|piece| piece.rows).sum();
    let left = if all == 0 { 1.0 } else { 1.0 - grown as f64 / all as f64 };
    work.progress.plan(&stages(work.data, journal.parts.is_empty(), left));
}

/// The stages where the share `left` of the vectors is to be grown, in seconds on one machine.
pub(super) fn stages(data: &Source<'_>, anew: bool, left: f64) -> Vec<(&'static str, f64)> {
    let values = data.count() as f64 * data.dim() as f64 / 128e6;
    let spreading = anew.then_some(("spreading", values));
    let rest = [
        ("growing parts", 180.0 * values * left),
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

/// Progress of one part within all.
struct Within<'a> {
    all: &'a dyn Progress,
    before: u64,
    rows: u64,
    /// Hundredths of the part that are done when the present stage begins, hundredths that it takes, and its steps.
    from: AtomicU64,
    share: AtomicU64,
    steps: AtomicU64,
}

impl<'a> Within<'a> {
    fn new(all: &'a dyn Progress, before: u64, rows: u64) -> Within<'a> {
        let [from, share, steps] = [0, 0, 1].map(AtomicU64::new);
        Within { all, before, rows, from, share, steps }
    }
}

impl Progress for Within<'_> {
    fn stage(&self, name: &str, total: u64) {
        let (from, share) = match name {
            "ordering vectors" => (0, 3),
            "first pass" => (3, 24),
            "second pass" => (27, 68),
            "trimming" => (95, 3),
            _ => (98, 2),
        };
        self.from.store(from, Ordering::Relaxed);
        self.share.store(share, Ordering::Relaxed);
        self.steps.store(total.max(1), Ordering::Relaxed);
    }

    fn advance(&self, done: u64) {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let hundredths =
            load(&self.from) as f64 + (load(&self.share) * done) as f64 / load(&self.steps) as f64;
        self.all.advance(self.before + (self.rows as f64 * hundredths / 100.0) as u64);
    }

    fn cancelled(&self) -> bool {
        self.all.cancelled()
    }
}

/// Grows the graph of a piece and writes its lists.
fn grow_piece(
    work: &Work<'_>,
    intake: &Intake,
    (parts, piece): (&[Part], Piece),
    held_out: &[u32],
    number: usize,
    before: u64,
) -> Result<merge::Grown, IndexError> {
    let (space, ids) = read(work, intake, parts[piece.part], piece)?;
    let own = GraphOptions { max_degree: degree(work.own.max_degree), ..*work.own };
    let rows = 0..space.count() as u32;
    let held: Vec<u32> =
        rows.clone().filter(|row| held_out.binary_search(&ids[*row as usize]).is_ok()).collect();
    let within = Within::new(work.progress, before, piece.rows as u64);
    let (seed, threads, progress) = (work.options.seed, work.threads, &within);
    let entry = space.medoid(&held, threads, progress)?;
    let graph = Adjacency::new(space.count(), own.max_degree)?;
    let growth = Growth { space: &space, graph, entry, options: &own, seed, threads, progress };
    let mut order = growth.passes(&held)?;
    growth.finish(&order)?;
    let global = |row: u32| growth.graph.neighbors(row).map(|link| ids[link as usize]);
    let mut lists = ListWriter::create(work, &lists_name(number))?;
    for row in rows.clone() {
        look(work, row)?;
        lists.push(ids[row as usize], global(row))?;
    }
    let lists = lists.finish()?;
    if held.is_empty() {
        return Ok(merge::Grown { lists, ..merge::Grown::default() });
    }
    let hash = |row: u32| {
        let mut hash = Xxh3::new();
        growth.graph.neighbors(row).for_each(|link| hash.update(&link.to_le_bytes()));
        hash.digest()
    };
    let mut hashes = try_with_capacity("hashes of the lists of a part", rows.len())?;
    for row in rows.clone() {
        look(work, row)?;
        hashes.push(hash(row));
    }
    growth.insert("inserting held-out vectors", &held, own.alpha, own.search_list)?;
    order.extend(&held);
    growth.finish(&order)?;
    let mut late = ListWriter::create(work, &late_name(number))?;
    for row in rows {
        look(work, row)?;
        if hash(row) != hashes[row as usize] {
            late.push(ids[row as usize], global(row))?;
        }
    }
    Ok(merge::Grown { lists, late: late.finish()? })
}

/// An error, now and then, once the build should stop.
fn look(work: &Work<'_>, row: u32) -> Result<(), IndexError> {
    if row.is_multiple_of(CHECK_EVERY) { work.check_cancelled() } else { Ok(()) }
}

impl Grown for Parts<'_> {
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
        write::write_codes(&encoding, work.own.codes(), sample)
    }

    fn section(&self, _work: &Work<'_>, files: GraphFiles, codes: CodesEntry) -> GraphEntry {
        Layout::Padded(self.layout).section(files, codes, self.entry, self.own)
    }

    fn complete(&mut self, work: &Work<'_>) -> Result<(), IndexError> {
        self.slots = merged(work, &self.grown, Which::Late, self.entry, &[])?;
        Ok(())
    }

    fn links(&self) -> u64 {
        self.links
    }
}
