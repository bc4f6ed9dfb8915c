//! The reports of `verify` and `inspect` for all families.

use serde::Serialize;
use serde_json::Value;

/// Most faults that are listed; a ruined file has millions.
const LISTED_FAULTS: usize = 20;
/// Bars of a histogram.
const HISTOGRAM_BARS: usize = 16;

/// The result of a verification.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// True if there is no fault.
    pub sound: bool,
    /// Vectors checked: with those inserted since the build, without deleted ones.
    pub vectors: u64,
    /// Links checked.
    pub links: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Vectors (or pages, if pages have the links) that no other one links to, except the entry point.
    /// Searches cannot find them.
    pub unlinked: u64,
    /// Number of faults.
    pub fault_count: u64,
    /// The first faults, as sentences.
    pub faults: Vec<String>,
    /// Address of the index's keys in a bucket, if an earlier version has encoded them
    /// ([`encoded_keys`](crate::encoded_keys)). This is not a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoded_keys: Option<String>,
}

impl VerifyReport {
    /// Returns a report without faults.
    pub(crate) fn empty() -> VerifyReport {
        VerifyReport {
            sound: true,
            vectors: 0,
            links: 0,
            bytes: 0,
            unlinked: 0,
            fault_count: 0,
            faults: Vec::new(),
            encoded_keys: None,
        }
    }

    /// Adds a fault at the head of the list.
    pub(crate) fn first_fault(&mut self, what: String) {
        self.sound = false;
        self.fault_count += 1;
        self.faults.insert(0, what);
        self.faults.truncate(LISTED_FAULTS);
    }

    /// Adds a fault.
    pub(crate) fn fault(&mut self, what: String) {
        self.sound = false;
        self.fault_count += 1;
        if self.faults.len() < LISTED_FAULTS {
            self.faults.push(what);
        }
    }
}

/// A bar of a histogram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistogramBar {
    /// Smallest degree, or length of a list, counted here.
    pub from: u32,
    /// Largest one counted here.
    pub to: u32,
    /// Vectors, or lists.
    pub count: u64,
}

/// Returns the bars of `counts`, whose indexes are degrees or lengths.
pub(crate) fn bars(counts: &[u64]) -> Vec<HistogramBar> {
    let width = counts.len().div_ceil(HISTOGRAM_BARS).max(1);
    let bars = counts.chunks(width).enumerate();
    bars.map(|(i, counts)| HistogramBar {
        from: (i * width) as u32,
        to: (i * width + counts.len() - 1) as u32,
        count: counts.iter().sum(),
    })
    .collect()
}

/// A property that only one family has, by name and value, for programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Its key in JSON.
    pub name: &'static str,
    /// Its value in JSON.
    pub value: Value,
}

impl Fact {
    pub(crate) fn new(name: &'static str, value: impl Serialize) -> Fact {
        // No value here fails to convert to JSON (no number is infinite).
        Fact { name, value: serde_json::to_value(value).unwrap_or(Value::Null) }
    }
}

/// Description of an index by its family.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Kind of index, for people: "padded graph".
    pub kind: String,
    /// Options of the build, for people.
    pub built_with: String,
    /// Bytes of one read; the mean for packed records.
    pub read_bytes: usize,
    /// Records in one page; 0 if a record takes several pages, or if there are no pages.
    pub records_per_page: usize,
    /// Share of the searched file that is padding.
    pub padding_share: f64,
    /// Properties of this family alone, for programs.
    pub facts: Vec<Fact>,
    /// Properties of this family alone, for people: a label of up to 13 characters and a text.
    pub lines: Vec<(&'static str, String)>,
    /// Number of nodes by number of links, or of lists by number of vectors.
    pub histogram: Vec<HistogramBar>,
    /// Ends of each calibration curve, for people.
    pub calibration: Vec<String>,
}
