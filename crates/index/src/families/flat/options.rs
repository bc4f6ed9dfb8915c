//! The options of the build of a flat index.

use crate::build::codes::CodeChoice;
use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc, some_from_text, typed};
use crate::error::IndexError;
use bathyal_kernels::quantize::CodeKind;
use serde::Deserialize;

/// The options of a flat index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlatOptions {
    /// Bytes of memory per vector for a code, which lets searches stop early; `None` without a kind means no
    /// codes.
    pub code_bytes: Option<u32>,
    /// The kind of code: `axes` or `rabitq1` to `rabitq8`; `None` without a size means no codes.
    #[serde(deserialize_with = "some_from_text")]
    pub code_kind: Option<CodeKind>,
}

/// The help texts of the options.
pub(crate) const DOCS: &[OptionDoc] = &[
    OptionDoc {
        name: "code_bytes",
        value: "BYTES",
        help: "bytes of memory per vector during searches, for a code with which searches stop early \
               [default: no codes; with code_kind, chosen by dim and code kind]",
    },
    OptionDoc {
        name: "code_kind",
        value: "KIND",
        help: "kind of code: axes, or rabitq1 to rabitq8 [default: no codes; with code_bytes, the best for \
               the data]",
    },
];

pub(crate) fn parse(given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    typed::<FlatOptions>(given).map(FamilyOptions::from)
}

impl FlatOptions {
    /// Returns the chosen codes, if there are to be any.
    pub(crate) fn codes(&self) -> Option<CodeChoice> {
        let has_codes = self.code_bytes.is_some() || self.code_kind.is_some();
        has_codes.then_some(CodeChoice { bytes: self.code_bytes, kind: self.code_kind })
    }

    /// Refuses kinds of codes that cannot be scanned in blocks.
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        if let Some(kind) = self.code_kind
            && !matches!(kind, CodeKind::Axes | CodeKind::RaBitQ { .. })
        {
            return Err(IndexError::Parameter(format!(
                "code kind {kind} cannot be scanned in blocks; take axes or rabitq1 to rabitq8, or leave the \
                 choice open"
            )));
        }
        self.codes().map_or(Ok(()), CodeChoice::check)
    }
}
