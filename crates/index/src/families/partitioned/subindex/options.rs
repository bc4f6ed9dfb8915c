//! What the build of partitions is told.

use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc, from_text, typed};
use crate::error::IndexError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Vectors of a partition on average: what 500 partitions of a million have (d-HNSW, section 3.1).
pub const DEFAULT_PARTITION_VECTORS: u32 = 2000;
/// Partitions that a vector may be in. With 2 those at a border are found from both sides: a fifth fewer bytes are read for
/// the same recall, of an index that is 1.6 times as large (docs/decisions/partitioned.md).
pub const DEFAULT_REPLICAS: u32 = 1;
/// Links of a vector in the upper layers of an HNSW; in the bottom layer twice as many (M in HNSW, section 4.1).
pub const DEFAULT_LINKS: u32 = 16;
/// Candidates while an HNSW is grown (efConstruction in HNSW): a sub-index is small, so that more find nothing more.
pub const DEFAULT_CONSTRUCTION_LIST: u32 = 100;
/// The part of two partitions that their overflow has room for, unless it is told: an eighth of their vectors.
const OVERFLOW_SHARE: u32 = 8;
/// Vectors that may come to an index, as a multiple of those that it is built with.
const GROWTH: std::ops::RangeInclusive<f32> = 0.0..=100.0;
/// Vectors and deletions that an overflow has room for at most.
const OVERFLOW_VECTORS: std::ops::RangeInclusive<u32> = 0..=1_000_000;
/// Partitions that a search of a named candidate list looks at.
pub const DEFAULT_PROBES: u32 = 4;
/// Most partitions that a vector is in.
pub(in super::super) const MOST_REPLICAS: u32 = 8;
/// Fewest vectors of a partition on average, and most: a sub-index is read at once.
const PARTITION_VECTORS: std::ops::RangeInclusive<u32> = 8..=1_000_000;
/// Links that make a graph, and as many as a list of the bottom layer has room for.
const LINKS: std::ops::RangeInclusive<u32> = 4..=128;
/// Candidates that make sense.
const CONSTRUCTION_LIST: std::ops::RangeInclusive<u32> = 8..=4096;

/// Where the vectors that stand for partitions come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pivots {
    /// A uniform sample (d-HNSW, section 3.1): partitions are as large as their neighbourhoods are dense.
    Sampled,
    /// The same, but partitions that came out large are divided until none is much larger than the average.
    #[default]
    Balanced,
}

impl Pivots {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Pivots::Sampled => "sampled",
            Pivots::Balanced => "balanced",
        }
    }
}

impl fmt::Display for Pivots {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Pivots {
    type Err = String;

    fn from_str(text: &str) -> Result<Pivots, String> {
        let found = [Pivots::Sampled, Pivots::Balanced].into_iter().find(|pivots| pivots.name() == text);
        found.ok_or_else(|| format!("unknown pivots '{text}': it is one of sampled, balanced"))
    }
}

/// How to build partitions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PartitionedOptions {
    /// Vectors of a partition on average, each vector counted once.
    pub partition_vectors: u32,
    /// Where the vectors that stand for partitions come from.
    #[serde(deserialize_with = "from_text")]
    pub pivots: Pivots,
    /// Most partitions that a vector is in: 1 to 8.
    pub replicas: u32,
    /// Links of a vector in upper layers, half of those in the bottom layer (M in HNSW).
    pub links: u32,
    /// Candidates while an HNSW is grown (efConstruction in HNSW).
    pub construction_list: u32,
    /// Vectors that may be inserted where the index lies, as a multiple of those that it is built with; 0 for none.
    pub growth: f32,
    /// Vectors that two partitions take together before they are made anew; 0 is an eighth of what they hold.
    pub overflow_vectors: u32,
}

impl Default for PartitionedOptions {
    fn default() -> Self {
        PartitionedOptions {
            partition_vectors: DEFAULT_PARTITION_VECTORS,
            pivots: Pivots::default(),
            replicas: DEFAULT_REPLICAS,
            links: DEFAULT_LINKS,
            construction_list: DEFAULT_CONSTRUCTION_LIST,
            growth: 0.0,
            overflow_vectors: 0,
        }
    }
}

/// The same for people.
pub(in super::super) const DOCS: &[OptionDoc] = &[
    OptionDoc {
        name: "partition_vectors",
        value: "VECTORS",
        help: "average vectors per partition, which is read whole, 8 to 1,000,000 [default: 2000]",
    },
    OptionDoc {
        name: "pivots",
        value: "PIVOTS",
        help: "the vectors that stand for partitions: sampled (uniformly) or balanced (large partitions are divided) \
               [default: balanced]",
    },
    OptionDoc {
        name: "replicas",
        value: "PARTITIONS",
        help: "most partitions (or posting lists) that a vector is in, 1 to 8 [default: 1]",
    },
    OptionDoc {
        name: "links",
        value: "LINKS",
        help: "links of a vector in the upper layers of an HNSW, half of those in the bottom layer (M), 4 to 128 [default: 16]",
    },
    OptionDoc {
        name: "construction_list",
        value: "CANDIDATES",
        help: "candidates while an HNSW is built (efConstruction), 8 to 4096 [default: 100]",
    },
    OptionDoc {
        name: "growth",
        value: "TIMES",
        help: "room for later inserts in the memory of a node, as a multiple of the vectors of the build, 0 to 100; the index \
               then takes (1 + TIMES) times its size, and a quarter more [default: 0, no inserts]",
    },
    OptionDoc {
        name: "overflow_vectors",
        value: "VECTORS",
        help: "most vectors inserted into two neighbouring partitions before their graphs are built anew; they are read with \
               either partition; requires growth [default: an eighth of the two]",
    },
];

pub(in super::super) fn parse(given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    typed::<PartitionedOptions>(given).map(FamilyOptions::from)
}

impl PartitionedOptions {
    /// Refuses numbers that make no index.
    pub(in super::super) fn check(&self) -> Result<(), IndexError> {
        let within = |name: &str, given: u32, range: std::ops::RangeInclusive<u32>, why: &str| {
            if range.contains(&given) {
                return Ok(());
            }
            let (least, most) = (range.start(), range.end());
            Err(IndexError::Parameter(format!(
                "{name} is {given}; it must be between {least} and {most}: {why}"
            )))
        };
        within(
            "partition_vectors",
            self.partition_vectors,
            PARTITION_VECTORS,
            "a partition has a graph of its own and is read at once",
        )?;
        within("replicas", self.replicas, 1..=MOST_REPLICAS, "1 puts each vector into one partition")?;
        within("links", self.links, LINKS, "16 suits most vectors")?;
        within("construction_list", self.construction_list, CONSTRUCTION_LIST, "100 suits most vectors")?;
        within(
            "overflow_vectors",
            self.overflow_vectors,
            OVERFLOW_VECTORS,
            "it is read with each partition",
        )?;
        let refuse = |what: String| Err(IndexError::Parameter(what));
        if !GROWTH.contains(&self.growth) {
            let (least, most) = (GROWTH.start(), GROWTH.end());
            return refuse(format!("growth is {}; it must be between {least} and {most}", self.growth));
        }
        if self.growth == 0.0 && self.overflow_vectors > 0 {
            return refuse("overflow_vectors is for an index that takes inserts: give growth, too".into());
        }
        if self.growth > 0.0 && self.replicas > 1 {
            return refuse(format!(
                "growth wants replicas 1, which is {}: a vector that is inserted is in one partition",
                self.replicas
            ));
        }
        Ok(())
    }

    /// Vectors and deletions that an overflow has room for, of an index that takes inserts.
    pub(in super::super) fn overflow(&self) -> Option<u32> {
        let usual = 2 * self.partition_vectors / OVERFLOW_SHARE;
        let given = if self.overflow_vectors > 0 { self.overflow_vectors } else { usual };
        (self.growth > 0.0).then_some(given.max(1))
    }

    /// Vectors of a partition at most once some were inserted: beyond, they go to the next one.
    pub(in super::super) fn most_grown(&self, most_built: u32) -> u32 {
        let average = f64::from(self.partition_vectors) * (1.0 + f64::from(self.growth));
        let most = (2.0 * average).min(self.most_vectors() as f64).max(f64::from(most_built));
        most as u32 + self.overflow().unwrap_or(0)
    }

    /// Most vectors that a partition holds, copies included: it is read at once, whatever the data.
    pub(in super::super) fn most_vectors(&self) -> usize {
        /// Copies at borders, and what is dense where pivots were sampled; beyond, vectors go to the next partition.
        const MOST: usize = 4;
        MOST * self.partition_vectors as usize
    }
}
