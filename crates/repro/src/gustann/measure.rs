//! Counting what searches read, and reckoning what a card is sent and keeps for them.

use std::path::Path;

use bathyal_console::{Console, Failure};
use bathyal_gpu::graph::Codes;
use bathyal_gpu::{hops, scans};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{DEFAULT_BEAM_WIDTH, Effort, Index, OpenOptions, SearchOptions, SearchResult, inspect};
use bathyal_kernels::quantize::{Codec, PlaneCodes};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::recall;
use bathyal_vectors::progress::{Progress, Silent};

use super::arguments::GustannArguments;
use super::latency::Loaded;
use super::model::Asks;
use super::rows::{Record, Row};
use super::subjects::{ALL, Subject};
use super::walk::Beginnings;
use crate::records::Records;
use crate::sets::Set;

/// Recalls that indexes are asked for.
pub(super) const RECALLS: [f32; 3] = [0.90, 0.95, 0.99];
/// Bytes of a page.
const PAGE_BYTES: f64 = 4096.0;
/// Bytes of a line of the card's memory: the least that it reads.
const SECTOR_BYTES: f64 = 32.0;
/// Whole-number operations for a byte of a code in `hop.cu`: two halves are spread and multiplied with the low bytes of a query, and with
/// the high ones.
const HOP_OPERATIONS: (f64, f64) = (14.0, 22.0);
/// The same in `scan.cu`: two tables are asked, two entries weighed.
const SCAN_OPERATIONS: f64 = 12.0;
/// Most disks of a prediction.
const MOST_DISKS: u32 = 6;

/// Where everything is counted.
pub(super) struct Lab<'a> {
    pub(super) arguments: &'a GustannArguments,
    pub(super) console: &'a Console,
    pub(super) control: Control<'a>,
}

/// An index, and what is known of it.
pub(super) struct Known {
    subject: Subject,
    codes: PlaneCodes,
    /// Of a graph: links of a vector in the mean, and at most.
    degree: (f64, u32),
    /// Of groups: how many there are, and vectors of each in the mean.
    groups: (u32, f64),
}

impl Lab<'_> {
    /// All of a set.
    pub(super) fn measure(&self, set: &Set, records: &mut Records) -> Result<(), Failure> {
        let mut rows = Vec::new();
        for subject in ALL {
            let found = self.search(set, subject, &RECALLS)?;
            found.iter().try_for_each(|row| records.write(&Record::Row(row)))?;
            rows.extend(found);
        }
        self.loads(&rows).iter().try_for_each(|loaded| records.write(&Record::Loaded(loaded)))?;
        self.begin(set, &rows)?.iter().try_for_each(|began| records.write(&Record::Begun(began)))?;
        self.ask_others(set)?.iter().try_for_each(|queried| records.write(&Record::Queried(queried)))?;
        self.copy(set)?.iter().try_for_each(|copied| records.write(&Record::Copied(copied)))
    }

    /// What figure 17 shows: rows that a card answers, of the least recall.
    fn loads(&self, rows: &[Row]) -> Vec<Loaded> {
        let machine = self.arguments.machine(self.arguments.ssds);
        let rows = rows.iter().filter(|row| row.asked == RECALLS[0] && row.on_card);
        let of = |row: &Row| {
            let (set, index) = (row.set.clone(), row.index);
            let loads = machine.loads(&row.asks, row.rounds);
            loads.into_iter().map(move |load| Loaded { set: set.clone(), index, load })
        };
        rows.flat_map(of).collect()
    }

    /// An index, built where it is not there, asked for some recalls.
    pub(super) fn search(&self, set: &Set, subject: Subject, recalls: &[f32]) -> Result<Vec<Row>, Failure> {
        let (path, manifest) = subject.find_or_build(set, self.arguments, self.console)?;
        let known = Known::of(subject, &path, &manifest)?;
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
            let found = index.search(&set.asked.queries, &options, self.control)?;
            rows.push(self.row(set, &known, *asked, &found)?);
            progress.advance(rows.len() as u64);
        }
        Ok(rows)
    }

    fn row(&self, set: &Set, known: &Known, asked: f32, found: &SearchResult) -> Result<Row, Failure> {
        let queries = set.asked.queries.count();
        let each = |total: u64| total as f64 / queries.max(1) as f64;
        let totals = &found.totals;
        let (pages, rounds) = (each(totals.reads), each(totals.hops));
        let vector_bytes = set.base.row_bytes() as f64;
        let compared = each(totals.full_distances) * vector_bytes;
        let slot = known.slot(found);
        let effort = Counted { pages, rounds, list: found.search_list, probes: found.probes };
        let (sent, record) = known.sent(&effort, vector_bytes);
        let pivots =
            if known.subject.is_graph() { Beginnings::usual(set.base.count()).pivots.len() } else { 0 };
        let scored = known.scored(pages, pivots, each(totals.code_distances));
        let asks = known.asks(pages, compared, sent, scored);
        // Who is sent whole records or pages compares the vectors himself.
        let sending = |bytes: f64| Asks { sent_bytes: bytes, vector_bytes: 0.0, ..asks };
        let machine = self.arguments.machine(self.arguments.ssds);
        let (record_bytes, page_bytes) = (sent.max(record), pages * PAGE_BYTES);
        Ok(Row {
            set: set.name.clone(),
            vectors: set.base.count(),
            dim: set.base.dim(),
            element: set.base.element().name(),
            index: known.subject.name(),
            on_card: known.fits_card(found),
            k: self.arguments.k,
            asked,
            recall: recall(&set.asked.exact, &found.ids, found.k, queries)?,
            search_list: found.search_list,
            probes: found.probes,
            pages,
            rounds,
            code_distances: each(totals.code_distances),
            sent_bytes: sent,
            record_bytes,
            page_bytes,
            slot_bytes: slot,
            code_bytes: known.codes.code_bytes as u32,
            asks,
            prediction: machine.predict(&asks),
            by_disks: (1..=MOST_DISKS).map(|disks| self.arguments.machine(disks).predict(&asks)).collect(),
            sending_records: machine.predict(&sending(record_bytes)),
            sending_pages: machine.predict(&sending(page_bytes)),
        })
    }
}

/// What a query takes, in the mean, with a list and as many groups.
pub(super) struct Counted {
    pub(super) pages: f64,
    pub(super) rounds: f64,
    pub(super) list: u32,
    pub(super) probes: Option<u32>,
}

impl Known {
    pub(super) fn of(subject: Subject, path: &Path, manifest: &Manifest) -> Result<Known, Failure> {
        let name = path.join("codec.bin");
        let said = |what: String| Failure::new(format!("{}: {what}", name.display()));
        let bytes = std::fs::read(&name).map_err(|e| said(format!("cannot be read: {e}")))?;
        let codec = Codec::from_bytes(&bytes).map_err(|e| said(e.to_string()))?;
        let codes = codec.plane_codes().ok_or_else(|| {
            said(format!(
                "product codes, which no card scores: they come of fewer than 32 bytes a vector, or of more than {} dimensions",
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
        let held = manifest.vectors as f64 / f64::from(groups.max(1));
        Ok(Known { subject, codes, degree, groups: (groups, held) })
    }

    /// Whether a card searches it, with lists as long as that.
    fn fits_card(&self, found: &SearchResult) -> bool {
        match self.subject {
            Subject::PageLocal => false,
            Subject::Graph | Subject::GraphAlone => found.search_list <= hops::MOST_CANDIDATES,
            Subject::Cluster => {
                let scanned = found.probes.unwrap_or(0).min(self.groups.0);
                found.search_list <= scans::MOST_CANDIDATES && scanned <= scans::MOST_SCANNED
            }
        }
    }

    /// What a query asks of a machine.
    fn asks(&self, pages: f64, vector_bytes: f64, sent_bytes: f64, scored: f64) -> Asks {
        let (card_bytes, card_operations) = (scored * self.code_line(), scored * self.operations());
        Asks { pages, vector_bytes, sent_bytes, card_bytes, card_operations }
    }

    /// The same of a walk over a graph that begins by scoring so many pivots.
    pub(super) fn walk_asks(&self, walk: &Counted, pivots: usize, vector_bytes: f64) -> Asks {
        let (sent, _) = self.sent(walk, vector_bytes);
        self.asks(walk.pages, walk.pages * vector_bytes, sent, self.scored(walk.pages, pivots, 0.0))
    }

    /// Codes that a card scores for a query: pivots, and all links, whether they were seen before or not.
    pub(super) fn scored(&self, pages: f64, pivots: usize, by_processor: f64) -> f64 {
        if self.subject.is_graph() { pages * self.degree.0 + pivots as f64 } else { by_processor }
    }

    /// Bytes of the card's memory that a code is read with: of groups they lie side by side.
    fn code_line(&self) -> f64 {
        let bytes = self.codes.code_bytes as f64;
        if self.subject.is_graph() { (bytes / SECTOR_BYTES).ceil() * SECTOR_BYTES } else { bytes }
    }

    fn operations(&self) -> f64 {
        let bytes = self.codes.bytes.len() as f64;
        let hop = if self.codes.fine { HOP_OPERATIONS.1 } else { HOP_OPERATIONS.0 };
        bytes * if self.subject.is_graph() { hop } else { SCAN_OPERATIONS }
    }

    /// Bytes to the card for a query: of what is sent, and of whole records with their vectors.
    fn sent(&self, counted: &Counted, vector_bytes: f64) -> (f64, f64) {
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

    /// Bytes of the card's memory for a query under way.
    fn slot(&self, found: &SearchResult) -> u64 {
        let beam_width = self.subject.beam_width().unwrap_or(DEFAULT_BEAM_WIDTH);
        match self.subject.is_graph() {
            true => self.hops(found.search_list, beam_width).slot_bytes(&self.card_codes()),
            false => self.scans(found.search_list, found.probes.unwrap_or(1)).slot_bytes(),
        }
    }

    fn hops(&self, list: u32, width: u32) -> hops::Shape {
        hops::Shape { list, width, ids: self.degree.1 * width, slots: 1 }
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

    fn scans(&self, list: u32, scanned: u32) -> scans::Shape {
        scans::Shape {
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
