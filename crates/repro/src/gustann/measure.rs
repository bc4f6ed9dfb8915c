//! Counts what searches read, and computes the bytes that a card is sent and stores for them.

use std::path::Path;

use bathyal_console::{Console, Failure};
use bathyal_gpu::graph::Codes;
use bathyal_gpu::{hops, scans};
use bathyal_index::cost::card::CardDemand;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{DEFAULT_BEAM_WIDTH, Effort, Index, OpenOptions, SearchOptions, SearchResult, inspect};
use bathyal_kernels::quantize::{Codec, PlaneCodes};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::recall;
use bathyal_vectors::progress::{Progress, Silent};

use super::arguments::GustannArguments;
use super::latency::LoadRow;
use super::model::Machine;
use super::rows::{GustannRecord, SearchRow};
use super::subjects::{ALL, CLUSTER, GustannSubject};
use super::walk::StartPoints;
use crate::records::Records;
use crate::sets::DataSet;

/// Requested recalls.
pub(super) const RECALLS: [f32; 3] = [0.90, 0.95, 0.99];
/// Bytes of a page.
const PAGE_BYTES: f64 = 4096.0;
/// Bytes of a sector of the card's memory, the least that it reads.
const SECTOR_BYTES: f64 = 32.0;
/// Integer operations per byte of a code in `hop.cu`: two half bytes are spread and multiplied with the low
/// bytes of a query, and in the second number also with the high bytes.
const HOP_OPERATIONS: (f64, f64) = (14.0, 22.0);
/// Integer operations per byte of a code in `scan.cu`: two table look-ups and two weighted entries.
const SCAN_OPERATIONS: f64 = 12.0;
/// Most disks in a prediction.
pub(super) const MOST_DISKS: u32 = 6;

/// Arguments and environment of all measurements.
pub(super) struct GustannExperiment<'a> {
    pub(super) arguments: &'a GustannArguments,
    pub(super) console: &'a Console,
    pub(super) control: Control<'a>,
}

/// An index, with the numbers that determine the work of a card.
pub(super) struct CardIndex {
    subject: GustannSubject,
    codes: PlaneCodes,
    /// Mean and largest number of links of a vector in a graph.
    degree: (f64, u32),
    /// Number of groups, and mean number of vectors in each.
    groups: (u32, f64),
}

impl GustannExperiment<'_> {
    /// Runs all measurements of a set.
    pub(super) fn measure(&self, set: &DataSet, records: &mut Records) -> Result<(), Failure> {
        let mut rows = Vec::new();
        for subject in ALL {
            let found = self.search(set, subject, &RECALLS)?;
            found.iter().try_for_each(|row| records.write(&GustannRecord::Row(row)))?;
            rows.extend(found);
        }
        self.loads(&rows).iter().try_for_each(|load| records.write(&GustannRecord::Loaded(load)))?;
        self.measure_starts(set, &rows)?
            .iter()
            .try_for_each(|start| records.write(&GustannRecord::Begun(start)))?;
        self.measure_other_queries(set)?
            .iter()
            .try_for_each(|row| records.write(&GustannRecord::Queried(row)))?;
        self.measure_copies(set)?.iter().try_for_each(|row| records.write(&GustannRecord::Copied(row)))
    }

    /// Returns the predictions of figure 17, for the rows of the lowest recall that a card answers.
    fn loads(&self, rows: &[SearchRow]) -> Vec<LoadRow> {
        let machine = self.arguments.machine(self.arguments.ssds);
        let rows = rows.iter().filter(|row| row.asked == RECALLS[0] && row.on_card);
        let loads_of_row = |row: &SearchRow| {
            let (set, index) = (row.set.clone(), row.index);
            let system = self.arguments.system_times().on(machine, index == CLUSTER);
            let loads = machine.loads(&row.demand, row.rounds);
            let through_system = system.loads(&row.demand, row.rounds);
            let both = loads.into_iter().zip(through_system);
            both.map(move |(load, through_system)| LoadRow { set: set.clone(), index, load, through_system })
        };
        rows.flat_map(loads_of_row).collect()
    }

    /// Returns `machine` with reads through the system.
    fn through_system(&self, machine: Machine, subject: GustannSubject) -> Machine {
        self.arguments.system_times().on(machine, !subject.is_graph())
    }

    /// Builds the index if it does not exist, and searches it at each of `recalls`.
    pub(super) fn search(
        &self,
        set: &DataSet,
        subject: GustannSubject,
        recalls: &[f32],
    ) -> Result<Vec<SearchRow>, Failure> {
        let (path, manifest) = subject.find_or_build(set, self.arguments, self.console)?;
        let card_index = CardIndex::of(subject, &path, &manifest)?;
        let index = Index::open(&path, &OpenOptions::default())?;
        let progress = self.console.progress();
        progress.stage(&format!("{}: {}", set.name, subject.name()), recalls.len() as u64);
        let mut rows = Vec::new();
        for asked in recalls {
            let options = SearchOptions {
                k: self.arguments.k as usize,
                effort: Effort::Recall(*asked),
                beam_width: subject.beam_width(),
                ..SearchOptions::default()
            };
            let found = index.search(&set.query_set.queries, &options, self.control)?;
            rows.push(self.row(set, &card_index, *asked, &found)?);
            progress.advance(rows.len() as u64);
        }
        Ok(rows)
    }

    /// Computes the row of one search.
    fn row(
        &self,
        set: &DataSet,
        card_index: &CardIndex,
        asked: f32,
        found: &SearchResult,
    ) -> Result<SearchRow, Failure> {
        let queries = set.query_set.queries.count();
        let mean = |total: u64| total as f64 / queries.max(1) as f64;
        let totals = &found.totals;
        let (pages, rounds) = (mean(totals.reads), mean(totals.hops));
        let vector_bytes = set.base.row_bytes() as f64;
        let compared = mean(totals.full_distances) * vector_bytes;
        let slot = card_index.slot(found);
        let effort = WalkCounts { pages, rounds, list: found.search_list, probes: found.probes };
        let (sent, record) = card_index.sent(&effort, vector_bytes);
        let pivots = if card_index.subject.is_graph() {
            StartPoints::library_default(set.base.count()).pivots.len()
        } else {
            0
        };
        let scored = card_index.scored(pages, pivots, mean(totals.code_distances));
        let demand = card_index.demand(pages, compared, sent, scored);
        // A card that receives whole records or pages compares the vectors itself.
        let sending = |bytes: f64| CardDemand { sent_bytes: bytes, vector_bytes: 0.0, ..demand };
        let machine = self.arguments.machine(self.arguments.ssds);
        let (record_bytes, page_bytes) = (sent.max(record), pages * PAGE_BYTES);
        Ok(SearchRow {
            set: set.name.clone(),
            vectors: set.base.count(),
            dim: set.base.dim(),
            element: set.base.element().name(),
            index: card_index.subject.name(),
            on_card: card_index.fits_card(found),
            k: self.arguments.k,
            asked,
            recall: recall(&set.query_set.exact, &found.ids, found.k, queries)?,
            search_list: found.search_list,
            probes: found.probes,
            pages,
            rounds,
            code_distances: mean(totals.code_distances),
            sent_bytes: sent,
            record_bytes,
            page_bytes,
            slot_bytes: slot,
            code_bytes: card_index.codes.code_bytes as u32,
            demand,
            prediction: machine.predict(&demand),
            through_system: self.through_system(machine, card_index.subject).predict(&demand),
            by_disks: (1..=MOST_DISKS).map(|disks| self.arguments.machine(disks).predict(&demand)).collect(),
            sending_records: machine.predict(&sending(record_bytes)),
            sending_pages: machine.predict(&sending(page_bytes)),
        })
    }
}

/// Mean counts per query, and the candidate list and probes of its search.
pub(super) struct WalkCounts {
    pub(super) pages: f64,
    pub(super) rounds: f64,
    pub(super) list: u32,
    pub(super) probes: Option<u32>,
}

impl CardIndex {
    /// Reads the codec and the structure of the index at `path`.
    ///
    /// # Errors
    /// Names the file, if it cannot be read or holds product codes.
    pub(super) fn of(
        subject: GustannSubject,
        path: &Path,
        manifest: &Manifest,
    ) -> Result<CardIndex, Failure> {
        let name = path.join("codec.bin");
        let failure = |what: String| Failure::new(format!("{}: {what}", name.display()));
        let bytes = std::fs::read(&name).map_err(|e| failure(format!("cannot be read: {e}")))?;
        let codec = Codec::from_bytes(&bytes).map_err(|e| failure(e.to_string()))?;
        let codes = codec.plane_codes().ok_or_else(|| {
            failure(format!(
                "holds product codes, which no card scores; builds make them for codes of fewer than 32 \
                 bytes, or for more than {} dimensions",
                Codec::MOST_AXES_DIM
            ))
        })?;
        let structure = &manifest.structure;
        let number = |key: &str| structure[key].as_u64().unwrap_or(0) as u32;
        let degree = match subject.is_graph() {
            true => {
                let facts = serde_json::to_value(inspect(path, &Silent)?).unwrap_or_default();
                (facts["mean_degree"].as_f64().unwrap_or_default(), number("max_degree"))
            }
            false => (0.0, 0),
        };
        let groups = number("groups");
        let group_vectors = manifest.vectors as f64 / f64::from(groups.max(1));
        Ok(CardIndex { subject, codes, degree, groups: (groups, group_vectors) })
    }

    /// Returns true if a card can search the index with the list and probes of `found`.
    fn fits_card(&self, found: &SearchResult) -> bool {
        match self.subject {
            GustannSubject::PageLocal => false,
            GustannSubject::Graph | GustannSubject::GraphAlone => found.search_list <= hops::MOST_CANDIDATES,
            GustannSubject::Cluster => {
                let scanned = found.probes.unwrap_or(0).min(self.groups.0);
                found.search_list <= scans::MOST_CANDIDATES && scanned <= scans::MOST_SCANNED
            }
        }
    }

    /// Returns the demand of a query on each resource of a machine.
    fn demand(&self, pages: f64, vector_bytes: f64, sent_bytes: f64, scored: f64) -> CardDemand {
        let (card_bytes, card_operations) = (scored * self.code_line(), scored * self.operations());
        CardDemand { pages, vector_bytes, sent_bytes, card_bytes, card_operations }
    }

    /// Returns the demand of a walk over a graph that first scores `pivots` pivots.
    pub(super) fn walk_demand(&self, walk: &WalkCounts, pivots: usize, vector_bytes: f64) -> CardDemand {
        let (sent, _) = self.sent(walk, vector_bytes);
        self.demand(walk.pages, walk.pages * vector_bytes, sent, self.scored(walk.pages, pivots, 0.0))
    }

    /// Returns the codes that a card scores for a query: of a graph the pivots and all links, including those
    /// of vectors seen before; of groups as many as a processor scores.
    pub(super) fn scored(&self, pages: f64, pivots: usize, by_processor: f64) -> f64 {
        if self.subject.is_graph() { pages * self.degree.0 + pivots as f64 } else { by_processor }
    }

    /// Returns the bytes of the card's memory that it reads for a code: whole sectors for a graph; codes of a
    /// group are adjacent.
    fn code_line(&self) -> f64 {
        let bytes = self.codes.code_bytes as f64;
        if self.subject.is_graph() { (bytes / SECTOR_BYTES).ceil() * SECTOR_BYTES } else { bytes }
    }

    /// Returns the integer operations for a code.
    fn operations(&self) -> f64 {
        let bytes = self.codes.bytes.len() as f64;
        let hop = if self.codes.fine { HOP_OPERATIONS.1 } else { HOP_OPERATIONS.0 };
        bytes * if self.subject.is_graph() { hop } else { SCAN_OPERATIONS }
    }

    /// Returns the bytes sent to the card for a query, without and with the vectors of the records.
    fn sent(&self, counted: &WalkCounts, vector_bytes: f64) -> (f64, f64) {
        if self.subject.is_graph() {
            let links = 4.0 * counted.pages * self.degree.0;
            let query = self.card_codes().query_bytes() as f64;
            let sent = query + counted.rounds * hops::WORK_BYTES as f64 + links;
            return (sent, sent + counted.pages * vector_bytes);
        }
        let groups = counted.probes.map_or(0.0, f64::from).min(f64::from(self.groups.0));
        let query = self.scans(counted.list, groups as u32).query_bytes() as f64;
        let sent = query + scans::WORK_BYTES as f64 + groups * scans::GROUP_BYTES as f64;
        (sent, sent + f64::from(counted.list) * vector_bytes)
    }

    /// Returns the bytes of the card's memory for a query in flight.
    fn slot(&self, found: &SearchResult) -> u64 {
        let beam_width = self.subject.beam_width().unwrap_or(DEFAULT_BEAM_WIDTH);
        match self.subject.is_graph() {
            true => self.hops(found.search_list, beam_width).slot_bytes(&self.card_codes()),
            false => self.scans(found.search_list, found.probes.unwrap_or(1)).slot_bytes(),
        }
    }

    fn hops(&self, list: u32, width: u32) -> hops::HopShape {
        hops::HopShape { list, width, ids: self.degree.1 * width, slots: 1 }
    }

    fn card_codes(&self) -> Codes {
        let planes = self.codes.bytes.iter().filter_map(|(plane, group)| Codes::plane(*plane, *group));
        Codes {
            code_bytes: self.codes.code_bytes as u32,
            factor_bytes: self.codes.factor_bytes as u32,
            planes: planes.collect(),
            groups: self.codes.groups as u32,
            fine: self.codes.fine,
            pivots: Vec::new(),
            entry: 0,
        }
    }

    fn scans(&self, list: u32, scanned: u32) -> scans::ScanShape {
        scans::ScanShape {
            code_bytes: self.codes.code_bytes as u32,
            factor_bytes: self.codes.factor_bytes as u32,
            plane_bytes: self.codes.bytes.len() as u32,
            groups: self.groups.0,
            group_blocks: 1,
            group_vectors: self.groups.1.ceil() as u32,
            list,
            scanned,
            slots: 1,
        }
    }
}
