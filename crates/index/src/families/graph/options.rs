//! The options of a graph build.

use super::layout::{CSR, PADDED, PAGE_LOCAL};
use crate::build::codes::CodeChoice;
use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc, from_text, some_from_text, typed};
use crate::error::IndexError;
use crate::format::pages::MAX_DEGREE;
use crate::proximity::options::{DEFAULT_ALPHA, GrowthOptions, check_alpha};
use bathyal_kernels::quantize::CodeKind;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// Most links of a vector (R): the value of the DiskANN papers, and of the comparisons of Bathyal with
/// DiskANN.
pub const DEFAULT_MAX_DEGREE: u32 = 64;
/// Length of the candidate list of a build (L): the value of the DiskANN papers. A longer list takes more
/// time and builds a better graph.
pub const DEFAULT_SEARCH_LIST: u32 = 100;
/// Longest candidate list of a build.
const MAX_SEARCH_LIST: u32 = 1 << 16;

/// The layout of a graph's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GraphLayoutChoice {
    /// One record for each vector, with its links. Nearly every record that is read is on the path of the
    /// search, so this layout is fast from memory.
    #[default]
    Padded,
    /// Near vectors share a page and its links, so a search takes a third to a half of the reads.
    PageLocal,
    /// The records of `padded` without padding, with near ones beside each other and links in few bits: for
    /// memory that serves small reads (second-tier-memory, section 5).
    Csr,
}

impl GraphLayoutChoice {
    /// Returns the name in manifests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            GraphLayoutChoice::Padded => PADDED,
            GraphLayoutChoice::PageLocal => PAGE_LOCAL,
            GraphLayoutChoice::Csr => CSR,
        }
    }
}

impl fmt::Display for GraphLayoutChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for GraphLayoutChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            PADDED => Ok(GraphLayoutChoice::Padded),
            PAGE_LOCAL => Ok(GraphLayoutChoice::PageLocal),
            CSR => Ok(GraphLayoutChoice::Csr),
            _ => Err(format!("unknown layout {text:?}; a graph can have {PADDED}, {PAGE_LOCAL} or {CSR}")),
        }
    }
}

/// The options of a graph build.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphOptions {
    /// The layout of the file that searches read.
    #[serde(deserialize_with = "from_text")]
    pub layout: GraphLayoutChoice,
    /// Most links of a vector: R in DiskANN.
    pub max_degree: u32,
    /// Length of the candidate list of the build: L in DiskANN.
    pub search_list: u32,
    /// Factor by which robust pruning scales distances between neighbours: alpha in DiskANN, at least 1. A
    /// larger value keeps more and longer links.
    pub alpha: f32,
    /// Bytes of each vector's code; `None` chooses a size that suits the dimension.
    pub code_bytes: Option<u32>,
    /// The kind of code; `None` chooses the best one by the measurements in `docs/codes.md`.
    #[serde(deserialize_with = "some_from_text")]
    pub code_kind: Option<CodeKind>,
}

impl Default for GraphOptions {
    fn default() -> Self {
        GraphOptions {
            layout: GraphLayoutChoice::default(),
            max_degree: DEFAULT_MAX_DEGREE,
            search_list: DEFAULT_SEARCH_LIST,
            alpha: DEFAULT_ALPHA,
            code_bytes: None,
            code_kind: None,
        }
    }
}

/// Help texts of the options.
pub(crate) const DOCS: &[OptionDoc] = &[
    OptionDoc {
        name: "layout",
        value: "LAYOUT",
        help: "layout of the file that searches read: padded, page_local (a third to a half of the \
               reads) or csr (the smallest, for memory) [default: padded]",
    },
    OptionDoc {
        name: "max_degree",
        value: "R",
        help: "most neighbours of a vector (R in DiskANN) [default: 64]",
    },
    OptionDoc {
        name: "search_list",
        value: "L",
        help: "candidates during the build (L in DiskANN): more build a better graph, more slowly \
               [default: 100]",
    },
    OptionDoc {
        name: "alpha",
        value: "ALPHA",
        help: "how much longer a detour must be before an edge is pruned (alpha in DiskANN), at least 1 \
               [default: 1.2]",
    },
    OptionDoc {
        name: "code_bytes",
        value: "BYTES",
        help: "bytes of memory per vector during searches, for its code [default: chosen by dim and code \
               kind]",
    },
    OptionDoc {
        name: "code_kind",
        value: "KIND",
        help: "kind of code: pq, pq4, axes, or rabitq1 to rabitq8 [default: the best for the data and \
               the code size]",
    },
];

pub(crate) fn parse(given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    typed::<GraphOptions>(given).map(FamilyOptions::from)
}

impl GraphOptions {
    /// Checks that the options can make a graph.
    ///
    /// # Errors
    /// [`IndexError::Parameter`].
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        let refuse = |what: String| Err(IndexError::Parameter(what));
        if self.max_degree == 0 || self.max_degree > MAX_DEGREE {
            return refuse(format!(
                "max_degree is {}; it must be between 1 and {MAX_DEGREE}",
                self.max_degree
            ));
        }
        if self.search_list == 0 || self.search_list > MAX_SEARCH_LIST {
            return refuse(format!(
                "search_list is {}; it must be between 1 and {MAX_SEARCH_LIST}",
                self.search_list
            ));
        }
        check_alpha(self.alpha)?;
        self.codes().check()
    }

    /// Returns the requested codes.
    pub(crate) fn codes(&self) -> CodeChoice {
        CodeChoice { bytes: self.code_bytes, kind: self.code_kind }
    }

    /// Returns the parameters with which the graph grows.
    pub(super) fn growth(&self) -> GrowthOptions {
        GrowthOptions { max_degree: self.max_degree, search_list: self.search_list, alpha: self.alpha }
    }
}
