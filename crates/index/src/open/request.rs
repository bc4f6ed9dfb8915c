//! The request of a search: the options as callers name them, and the checks that need no index. The command,
//! the Python package and the Rust API make the same request, so that the same mistake is refused with the
//! same sentence.

use crate::calibrate::choice::CalibrationChoice;
use crate::error::IndexError;
use crate::query::SearchMode;

/// Neighbours of a query, as in the tables of the papers.
pub const DEFAULT_K: usize = 10;
/// The recall of a search without a given effort: what most people call good.
pub const DEFAULT_RECALL: f32 = 0.95;
/// The ratio of a promise without a given one: the paper's theorem is about it, and few vectors are enough
/// for a promise (e2lsh-on-storage, section 2.3).
pub const DEFAULT_WITHIN: f32 = 4.0;
/// The largest beam width: an SSD serves no more reads at once.
pub const MAX_BEAM_WIDTH: u32 = 128;
/// The most additional buckets of a hash table. An index that needs more needs more tables.
pub const MAX_MULTI_PROBE: u32 = 64;
/// The longest candidate list.
pub const MAX_SEARCH_LIST: u32 = 1 << 20;

/// The effort of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effort {
    /// The effort for this recall@k, above 0 and at most 1, by the index's calibration.
    Recall(f32),
    /// The effort for this overall ratio@k, at least 1
    /// ([`OverallRatio`](bathyal_vectors::groundtruth::OverallRatio)), by the index's calibration. Only for
    /// hash tables, under a metric that is a distance.
    Ratio(f32),
    /// The effort that is promised, for any data, to find a vector at most `within` times as far away as the
    /// nearest, with this probability or more. Every vector that the search looks at is compared. Notes of
    /// the result say for which distances of the nearest vector the promise holds. Only for hash tables,
    /// under a metric that is a distance.
    Probability {
        /// Above 0 and below 1.
        probability: f32,
        /// Above 1.
        within: f32,
    },
    /// A candidate list of this length (L in DiskANN), up to [`MAX_SEARCH_LIST`].
    SearchList(u32),
}

impl Default for Effort {
    fn default() -> Effort {
        Effort::Recall(DEFAULT_RECALL)
    }
}

impl Effort {
    /// Returns the effort if its number is in range.
    ///
    /// # Errors
    /// [`IndexError::Parameter`].
    pub fn checked(self) -> Result<Effort, IndexError> {
        let reason = match self {
            Effort::Recall(recall) if !(recall > 0.0 && recall <= 1.0) => {
                format!("recall is {recall}; it must be above 0 and at most 1")
            }
            Effort::Ratio(ratio) if !(ratio >= 1.0 && ratio.is_finite()) => format!(
                "ratio is {ratio}; it must be at least 1, for example 1.05: the vectors found are then 5% \
                 farther away than the nearest, on average"
            ),
            Effort::Probability { probability, .. } if !(probability > 0.0 && probability < 1.0) => {
                format!("probability is {probability}; it must be above 0 and below 1, for example 0.9")
            }
            Effort::Probability { within, .. } if !(within > 1.0 && within.is_finite()) => format!(
                "within is {within}; it must be above 1, for example 4: the vector found is then at most 4 \
                 times as far away as the nearest"
            ),
            Effort::SearchList(0) => "search_list is 0; it must be at least k".into(),
            Effort::SearchList(list) if list > MAX_SEARCH_LIST => {
                format!("search_list is {list}; it must be at most {MAX_SEARCH_LIST}")
            }
            effort => return Ok(effort),
        };
        Err(IndexError::Parameter(reason))
    }
}

/// The efforts that a caller gave by name. They exclude each other.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NamedEfforts {
    /// [`Effort::Recall`].
    pub recall: Option<f32>,
    /// [`Effort::SearchList`].
    pub search_list: Option<u32>,
    /// [`Effort::Ratio`].
    pub ratio: Option<f32>,
    /// The probability of [`Effort::Probability`].
    pub probability: Option<f32>,
    /// The ratio of [`Effort::Probability`], which `probability` has to accompany; `None` is
    /// [`DEFAULT_WITHIN`].
    pub within: Option<f32>,
}

impl NamedEfforts {
    /// Returns the effort that was given, or the default if none was.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] if more than one was given, if its number is out of range, or if `within`
    /// was given without a probability.
    pub fn effort(self) -> Result<Effort, IndexError> {
        let NamedEfforts { recall, search_list, ratio, probability, within } = self;
        let promised = Effort::Probability {
            probability: probability.unwrap_or_default(),
            within: within.unwrap_or(DEFAULT_WITHIN),
        };
        let named = [
            recall.map(|recall| (format!("recall is {recall}"), Effort::Recall(recall))),
            search_list.map(|list| (format!("search_list is {list}"), Effort::SearchList(list))),
            ratio.map(|ratio| (format!("ratio is {ratio}"), Effort::Ratio(ratio))),
            probability.map(|probability| (format!("probability is {probability}"), promised)),
        ];
        let given: Vec<&(String, Effort)> = named.iter().flatten().collect();
        if let (Some(within), None) = (within, probability) {
            let reason = format!("within is {within}, but there is no probability; give both");
            return Err(IndexError::Parameter(reason));
        }
        match given[..] {
            [] => Ok(Effort::default()),
            [(_, effort)] => effort.checked(),
            _ => {
                let given: Vec<&str> = given.iter().map(|(named, _)| named.as_str()).collect();
                Err(IndexError::Parameter(format!("{}; give one of them", given.join(" and "))))
            }
        }
    }
}

/// Options of a search. Options that a family does not support are refused, not ignored.
#[derive(Debug, Clone, Copy)]
pub struct SearchOptions {
    /// Neighbours wanted.
    pub k: usize,
    /// The effort.
    pub effort: Effort,
    /// The calibration for [`Effort::Recall`].
    pub calibration: CalibrationChoice,
    /// Groups that a cluster index scans, or the most posting lists that a query reads. `None` chooses by the
    /// calibration; the number of groups is then an average, and some queries scan more.
    pub probes: Option<u32>,
    /// Posting lists more than `1 + prune` times as far as the nearest are skipped, and none at 0 (SPANN,
    /// section 3.3). `None` chooses by the calibration.
    pub prune: Option<f32>,
    /// Reads of one hop in a graph (W in DiskANN); `None` is
    /// [`DEFAULT_BEAM_WIDTH`](crate::DEFAULT_BEAM_WIDTH), or [`FAR_BEAM_WIDTH`](crate::FAR_BEAM_WIDTH) on a
    /// remote tier.
    pub beam_width: Option<u32>,
    /// Additional buckets that a query reads in each hash table, next to its own (T in multi-probe LSH; Lv et
    /// al., VLDB 2007), up to [`MAX_MULTI_PROBE`]; `None` is 0. The promise does not cover them, and
    /// calibration does not use them: a search for a recall or a ratio reads them in addition to its
    /// calibrated effort.
    pub multi_probe: Option<u32>,
    /// The most threads; 0 means all cores. A memory budget may have space for fewer.
    pub threads: usize,
    /// Batched or pipelined; `None` is [`Index::default_mode`](crate::Index::default_mode).
    pub mode: Option<SearchMode>,
    /// Queries interleaved on each thread; `None` chooses by the tier.
    pub in_flight: Option<usize>,
    /// True to measure the time of all queries by phase
    /// ([`SearchResult::phases`](crate::SearchResult::phases)), which costs a system call between two phases.
    pub timed: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        SearchOptions {
            k: DEFAULT_K,
            effort: Effort::Recall(DEFAULT_RECALL),
            calibration: CalibrationChoice::Usual,
            probes: None,
            prune: None,
            beam_width: None,
            multi_probe: None,
            threads: 0,
            mode: None,
            in_flight: None,
            timed: false,
        }
    }
}

/// A search whose options were checked: each number is in its range. What depends on an index is
/// checked where a search of it begins.
#[derive(Debug, Clone, Copy)]
pub struct SearchRequest {
    options: SearchOptions,
}

impl SearchRequest {
    /// Checks options.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a number out of range.
    pub fn new(options: &SearchOptions) -> Result<SearchRequest, IndexError> {
        options.effort.checked()?;
        let reason = match *options {
            SearchOptions { k: 0, .. } => "k is 0; ask for at least one neighbour".into(),
            SearchOptions {
                probes: Some(probes), effort: Effort::Probability { probability, .. }, ..
            } => {
                format!("probes is {probes} and probability is {probability}; give one of them")
            }
            SearchOptions { probes: Some(0), .. } => "probes is 0; at least one group must be scanned".into(),
            SearchOptions { prune: Some(prune), .. } if !(prune >= 0.0 && prune.is_finite()) => format!(
                "prune is {prune}; it must be 0 or above: lists more than 1 + prune times as far as the \
                 nearest are skipped"
            ),
            SearchOptions { beam_width: Some(width), .. } if !(1..=MAX_BEAM_WIDTH).contains(&width) => {
                format!("beam_width is {width}; it must be between 1 and {MAX_BEAM_WIDTH}")
            }
            SearchOptions { multi_probe: Some(places), .. } if places > MAX_MULTI_PROBE => {
                format!("multi_probe is {places}; it must be at most {MAX_MULTI_PROBE}")
            }
            SearchOptions { in_flight: Some(0), .. } => {
                "in_flight is 0; at least one query must run on each thread".into()
            }
            options => return Ok(SearchRequest { options }),
        };
        Err(IndexError::Parameter(reason))
    }

    /// Returns the checked options.
    pub fn options(&self) -> &SearchOptions {
        &self.options
    }

    /// Returns a request with other options, each of which is in range.
    #[must_use]
    pub(super) fn with(self, options: SearchOptions) -> SearchRequest {
        SearchRequest { options }
    }

    /// Returns the same request for `k` neighbours, and for one if `k` is 0.
    #[must_use]
    pub fn for_neighbors(self, k: usize) -> SearchRequest {
        SearchRequest { options: SearchOptions { k: k.max(1), ..self.options } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T: std::fmt::Debug>(outcome: Result<T, IndexError>) -> String {
        match outcome {
            Err(IndexError::Parameter(reason)) => reason,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn one_effort_may_be_named() {
        let none = NamedEfforts::default();
        assert_eq!(none.effort().unwrap(), Effort::Recall(0.95));
        for (named, expected) in [
            (NamedEfforts { recall: Some(0.9), ..none }, Effort::Recall(0.9)),
            (NamedEfforts { search_list: Some(50), ..none }, Effort::SearchList(50)),
            (NamedEfforts { ratio: Some(1.1), ..none }, Effort::Ratio(1.1)),
            (
                NamedEfforts { probability: Some(0.5), ..none },
                Effort::Probability { probability: 0.5, within: 4.0 },
            ),
            (
                NamedEfforts { probability: Some(0.9), within: Some(2.0), ..none },
                Effort::Probability { probability: 0.9, within: 2.0 },
            ),
        ] {
            assert_eq!(named.effort().unwrap(), expected);
        }
    }

    /// The same sentences are expected of the command (`crates/cli/tests/command/contradictions.rs`) and of
    /// Python (`python/tests/test_contradictions.py`).
    #[test]
    fn efforts_that_exclude_each_other_are_refused() {
        for (recall, search_list, ratio, sentence) in [
            (Some(0.9), Some(50), None, "recall is 0.9 and search_list is 50; give one of them"),
            (Some(0.9), None, Some(1.1), "recall is 0.9 and ratio is 1.1; give one of them"),
            (None, Some(50), Some(1.1), "search_list is 50 and ratio is 1.1; give one of them"),
            (
                Some(0.9),
                Some(50),
                Some(1.1),
                "recall is 0.9 and search_list is 50 and ratio is 1.1; give one of them",
            ),
        ] {
            let named = NamedEfforts { recall, search_list, ratio, ..NamedEfforts::default() };
            assert_eq!(refusal(named.effort()), sentence);
        }
        let named = NamedEfforts { ratio: Some(1.1), probability: Some(0.5), ..NamedEfforts::default() };
        assert_eq!(refusal(named.effort()), "ratio is 1.1 and probability is 0.5; give one of them");
        let named = NamedEfforts { within: Some(2.0), ..NamedEfforts::default() };
        assert_eq!(refusal(named.effort()), "within is 2, but there is no probability; give both");
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let usual = SearchOptions::default();
        let with = |effort| SearchOptions { effort, ..SearchOptions::default() };
        for (options, sentence) in [
            (SearchOptions { k: 0, ..usual }, "k is 0; ask for at least one neighbour"),
            (with(Effort::Recall(0.0)), "recall is 0; it must be above 0 and at most 1"),
            (with(Effort::Recall(1.5)), "recall is 1.5; it must be above 0 and at most 1"),
            (with(Effort::Recall(f32::NAN)), "recall is NaN; it must be above 0 and at most 1"),
            (
                with(Effort::Ratio(0.5)),
                "ratio is 0.5; it must be at least 1, for example 1.05: the vectors found are then 5% \
                 farther away than the nearest, on average",
            ),
            (
                with(Effort::Probability { probability: 1.0, within: 4.0 }),
                "probability is 1; it must be above 0 and below 1, for example 0.9",
            ),
            (
                with(Effort::Probability { probability: 0.5, within: 1.0 }),
                "within is 1; it must be above 1, for example 4: the vector found is then at most 4 times as \
                 far away as the nearest",
            ),
            (
                SearchOptions {
                    probes: Some(3),
                    ..with(Effort::Probability { probability: 0.5, within: 4.0 })
                },
                "probes is 3 and probability is 0.5; give one of them",
            ),
            (with(Effort::SearchList(0)), "search_list is 0; it must be at least k"),
            (with(Effort::SearchList(1 << 21)), "search_list is 2097152; it must be at most 1048576"),
            (SearchOptions { probes: Some(0), ..usual }, "probes is 0; at least one group must be scanned"),
            (
                SearchOptions { prune: Some(-0.5), ..usual },
                "prune is -0.5; it must be 0 or above: lists more than 1 + prune times as far as the nearest \
                 are skipped",
            ),
            (SearchOptions { beam_width: Some(0), ..usual }, "beam_width is 0; it must be between 1 and 128"),
            (
                SearchOptions { beam_width: Some(129), ..usual },
                "beam_width is 129; it must be between 1 and 128",
            ),
            (SearchOptions { multi_probe: Some(65), ..usual }, "multi_probe is 65; it must be at most 64"),
            (
                SearchOptions { in_flight: Some(0), ..usual },
                "in_flight is 0; at least one query must run on each thread",
            ),
        ] {
            assert_eq!(refusal(SearchRequest::new(&options)), sentence);
        }
        let request = SearchRequest::new(&usual).unwrap();
        assert_eq!((request.options().k, request.for_neighbors(0).options().k), (10, 1));
    }
}
