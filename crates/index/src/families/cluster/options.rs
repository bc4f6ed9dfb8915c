//! The options of a cluster build.

use crate::build::codes::CodeChoice;
use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc, some_from_text, typed};
use crate::error::IndexError;
use bathyal_kernels::quantize::CodeKind;
use serde::Deserialize;

/// Approximate number of vectors of a group. Of 31, 93, 186 and 372 on SIFT and GloVe, this needs the least
/// time for a recall.
pub const DEFAULT_GROUP_VECTORS: u32 = 96;
/// Most vectors of a group.
const MAX_GROUP_VECTORS: u32 = 1 << 16;

/// The options of a cluster build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterOptions {
    /// Approximate number of vectors of a group.
    pub group_vectors: u32,
    /// Bytes of each vector's code; `None` chooses a size that suits the dimension.
    pub code_bytes: Option<u32>,
    /// The kind of code: `axes` or `rabitq1` to `rabitq8`; `None` chooses the best one by the measurements in
    /// `docs/codes.md`.
    #[serde(deserialize_with = "some_from_text")]
    pub code_kind: Option<CodeKind>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions { group_vectors: DEFAULT_GROUP_VECTORS, code_bytes: None, code_kind: None }
    }
}

/// Help texts of the options.
pub(crate) const DOCS: &[OptionDoc] = &[
    OptionDoc {
        name: "group_vectors",
        value: "VECTORS",
        help: "vectors per group, approximately [default: 96]",
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
        help: "kind of code: axes, or rabitq1 to rabitq8 [default: the best for the data and the code size]",
    },
];

pub(crate) fn parse(given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    typed::<ClusterOptions>(given).map(FamilyOptions::from)
}

impl ClusterOptions {
    /// Returns the requested codes.
    pub(crate) fn codes(&self) -> CodeChoice {
        CodeChoice { bytes: self.code_bytes, kind: self.code_kind }
    }

    /// Checks that the options can make an index.
    ///
    /// # Errors
    /// [`IndexError::Parameter`].
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        if self.group_vectors == 0 || self.group_vectors > MAX_GROUP_VECTORS {
            return Err(IndexError::Parameter(format!(
                "group_vectors is {}; it must be between 1 and {MAX_GROUP_VECTORS}",
                self.group_vectors
            )));
        }
        if let Some(kind) = self.code_kind
            && !matches!(kind, CodeKind::Axes | CodeKind::RaBitQ { .. })
        {
            return Err(IndexError::Parameter(format!(
                "codes of kind {kind} cannot be scanned in groups; choose axes or rabitq1 to rabitq8, or \
                leave out code_kind"
            )));
        }
        self.codes().check()
    }
}
