//! What `verify` and `inspect` report, whatever the family.

use serde::Serialize;
use serde_json::Value;

/// Faults that are listed one by one; a ruined file has millions.
const LISTED_FAULTS: usize = 20;
/// Bars of a histogram.
const HISTOGRAM_BARS: usize = 16;

/// What a verification found.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// Whether nothing is wrong.
    pub sound: bool,
    /// Vectors walked, with those that were inserted since the build, without those that were deleted.
    pub vectors: u64,
    /// Links walked.
    pub links: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Vectors, or pages where these link as a whole, that no other one links to (besides the entry point): searches
    /// cannot find them.
    pub unlinked: u64,
    /// Number of faults.
    pub fault_count: u64,
    /// The first faults, in words.
    pub faults: Vec<String>,
    /// The address of its keys in a bucket, where an earlier version has encoded them: see
    /// [`encoded_keys`](crate::encoded_keys). No fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoded_keys: Option<String>,
}

impl VerifyReport {
    /// A report of nothing yet.
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

    /// A fault that is listed before all others, however many these are.
    pub(crate) fn first_fault(&mut self, what: String) {
        self.sound = false;
        self.fault_count += 1;
        self.faults.insert(0, what);
        self.faults.truncate(LISTED_FAULTS);
    }

    pub(crate) fn fault(&mut self, what: String) {
        self.sound = false;
        self.fault_count += 1;
        if self.faults.len() < LISTED_FAULTS {
            self.faults.push(what);
        }
    }
}

/// One bar of a histogram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistogramBar {
    /// Smallest degree, or length of a list, counted here.
    pub from: u32,
    /// Largest one counted here.
    pub to: u32,
    /// Vectors, or lists.
    pub count: u64,
}

/// The bars of `counts`, by the number counted.
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

/// Something that only a family has to say of an index: for programs by name and value, for people as a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Its key in JSON.
    pub name: &'static str,
    /// Its value in JSON.
    pub value: Value,
}

impl Fact {
    pub(crate) fn new(name: &'static str, value: impl Serialize) -> Fact {
        // What cannot be written as JSON (no number is infinite here) would be a defect that a test sees.
        Fact { name, value: serde_json::to_value(value).unwrap_or(Value::Null) }
    }
}

/// What an index is made of, as its family says it.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// What it is, in some words: "padded graph".
    pub kind: String,
    /// With what options it was built, in some words.
    pub built_with: String,
    /// Bytes of one read; of packed records the mean.
    pub read_bytes: usize,
    /// Records in one page; 0 when a record takes several, and where there are no pages.
    pub records_per_page: usize,
    /// Share of the file that searches read which carries nothing.
    pub padding_share: f64,
    /// What only this family has, for programs.
    pub facts: Vec<Fact>,
    /// The same for people: a label of up to 13 characters and what it says.
    pub lines: Vec<(&'static str, String)>,
    /// How many nodes have how many links, or lists how many vectors.
    pub histogram: Vec<HistogramBar>,
    /// What was measured, for people: the ends of each curve.
    pub calibration: Vec<String>,
}
