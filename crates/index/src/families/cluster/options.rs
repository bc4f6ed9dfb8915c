//! What the builder of a cluster index is told.

use crate::build::codes::CodeChoice;
use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc, some_from_text, typed};
use crate::error::IndexError;
use bathyal_kernels::quantize::CodeKind;
use serde::Deserialize;

/// Vectors of a group, about: of 31, 93, 186 and 372 on SIFT and GloVe this needs the least time for a recall.
pub const DEFAULT_GROUP_VECTORS: u32 = 96;
/// Most vectors of a group.
const MOST_GROUP_VECTORS: u32 = 1 << 16;

/// How to build a cluster index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterOptions {
    /// Vectors of a group, about.
    pub group_vectors: u32,
    /// Bytes of memory a vector for its code; `None` picks a size that suits the dimension.
    pub code_bytes: Option<u32>,
    /// The kind of code: `axes` or `rabitq1` to `rabitq8`; `None` picks the best by measurement (`docs/codes.md`).
    #[serde(deserialize_with = "some_from_text")]
    pub code_kind: Option<CodeKind>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions { group_vectors: DEFAULT_GROUP_VECTORS, code_bytes: None, code_kind: None }
    }
}

/// The same for people.
pub(crate) const DOCS: &[OptionDoc] = &[
    OptionDoc {
        name: "group_vectors",
        value: "VECTORS",
        help: "vectors per group, approximately [default: 96]",
    },
    OptionDoc {
        name: "code_bytes",
        value: "BYTES",
        help: "bytes of memory per vector during searches, for its code [default: chosen by dim and code kind]",
    },
    OptionDoc {
        name: "code_kind",
        value: "KIND",
        help: "kind of code: axes, or rabitq1 to rabitq8 [default: the best for the data and the code size]",
    },
];

pub(crate) fn parse(given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    typed::<ClusterOptions>(given).map(FamilyOptions::from)
}

impl ClusterOptions {
    /// The codes asked for.
    pub(crate) fn codes(&self) -> CodeChoice {
        CodeChoice { bytes: self.code_bytes, kind: self.code_kind }
    }

    /// Refuses numbers that make no index.
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        if self.group_vectors == 0 || self.group_vectors > MOST_GROUP_VECTORS {
            return Err(IndexError::Parameter(format!(
                "group_vectors is {}; it must be between 1 and {MOST_GROUP_VECTORS}",
                self.group_vectors
            )));
        }
        if let Some(kind) = self.code_kind
            && !matches!(kind, CodeKind::Axes | CodeKind::RaBitQ { .. })
        {
            return Err(IndexError::Parameter(format!(
                "code kind {kind} cannot be scanned in groups; take axes or rabitq1 to rabitq8, or leave the choice open"
            )));
        }
        self.codes().check()
    }
}
