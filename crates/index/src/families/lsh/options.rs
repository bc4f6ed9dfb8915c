//! The options of the build of an LSH index.

use crate::build::codes::CodeChoice;
use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc, some_from_text, typed};
use crate::error::IndexError;
use crate::format::tables::BLOCK_BYTES;
use bathyal_kernels::lsh::MOST_HASHES;
use bathyal_kernels::quantize::CodeKind;
use serde::Deserialize;

/// Tables (L). Each costs a read per query and 4 bytes per vector. With 16, a query reads less of a disk than
/// a graph does, and finds nine of ten neighbours if it reads enough blocks.
pub const DEFAULT_TABLES: u32 = 16;
/// Values of a compound hash (m). With 16, buckets of the widths around those of neighbours contain tens to
/// thousands of vectors, for 10^5 as for 10^8 vectors; recall at equal reads hardly differs from 12 to 32.
pub const DEFAULT_HASHES: u32 = 16;
/// Bytes of a block: the least that a disk moves (section 5.1).
pub const DEFAULT_BLOCK_BYTES: u32 = 512;
/// Most tables: reading more of them takes longer than a scan of all vectors.
pub(super) const MOST_TABLES: u32 = 4096;

/// Options of the build of an LSH index.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LshOptions {
    /// Hash tables: L in E2LSH.
    pub tables: u32,
    /// Values of a compound hash: m in E2LSH.
    pub hashes: u32,
    /// Bytes of a block of a table: a power of two from 128 to 4,096.
    pub block_bytes: u32,
    /// Bytes of memory per vector for its code; `None` picks a size that suits the dimension.
    pub code_bytes: Option<u32>,
    /// The kind of code; `None` picks the best by measurement (`docs/codes.md`).
    #[serde(deserialize_with = "some_from_text")]
    pub code_kind: Option<CodeKind>,
}

impl Default for LshOptions {
    fn default() -> Self {
        LshOptions {
            tables: DEFAULT_TABLES,
            hashes: DEFAULT_HASHES,
            block_bytes: DEFAULT_BLOCK_BYTES,
            code_bytes: None,
            code_kind: None,
        }
    }
}

/// The help texts of the options.
pub(crate) const DOCS: &[OptionDoc] = &[
    OptionDoc {
        name: "tables",
        value: "L",
        help: "hash tables (L in E2LSH): more tables find more; each costs a read per query and 4 bytes per \
               vector [default: 16]",
    },
    OptionDoc {
        name: "hashes",
        value: "M",
        help: "values in a compound hash (m in E2LSH), up to 32: more values make smaller buckets \
               [default: 16]",
    },
    OptionDoc {
        name: "block_bytes",
        value: "BYTES",
        help: "bytes of a block of a table, a power of two from 128 to 4096 [default: 512]",
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
        help: "kind of code: pq, pq4, axes, or rabitq1 to rabitq8 [default: the best for the data and the \
               code size]",
    },
];

pub(crate) fn parse(given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    typed::<LshOptions>(given).map(FamilyOptions::from)
}

impl LshOptions {
    /// Refuses options out of range.
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        let within = |name: &str, given: u32, most: u32| match given {
            given if (1..=most).contains(&given) => Ok(()),
            _ => Err(IndexError::Parameter(format!("{name} is {given}; it must be between 1 and {most}"))),
        };
        within("tables", self.tables, MOST_TABLES)?;
        within("hashes", self.hashes, MOST_HASHES as u32)?;
        if !BLOCK_BYTES.contains(&self.block_bytes) || !self.block_bytes.is_power_of_two() {
            let given = self.block_bytes;
            let what = format!("block_bytes is {given}; it must be a power of two from 128 to 4096");
            return Err(IndexError::Parameter(what));
        }
        self.codes().check()
    }

    /// Returns the chosen codes.
    pub(crate) fn codes(&self) -> CodeChoice {
        CodeChoice { bytes: self.code_bytes, kind: self.code_kind }
    }
}
