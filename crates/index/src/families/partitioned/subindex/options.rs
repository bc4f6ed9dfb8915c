//! The options of a build of partitions.

use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc, from_text, typed};
use crate::error::IndexError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The default number of vectors of a partition on average: that of 500 partitions of a million vectors
/// (d-HNSW, section 3.1).
pub const DEFAULT_PARTITION_VECTORS: u32 = 2000;
/// The default number of partitions that may contain one vector. With 2, vectors at a border are found from
/// both sides: a fifth fewer bytes are read for the same recall, from an index that is 1.6 times as large
/// (docs/decisions/partitioned.md).
pub const DEFAULT_REPLICAS: u32 = 1;
/// The default number of links of a vector in the upper layers of an HNSW; in the bottom layer twice as many
/// (M in HNSW, section 4.1).
pub const DEFAULT_LINKS: u32 = 16;
/// The default candidate list for building an HNSW (efConstruction in HNSW). A sub-index is small, and a
/// longer list improves nothing.
pub const DEFAULT_CONSTRUCTION_LIST: u32 = 100;
/// The default capacity of an overflow, as a fraction of the vectors of its two partitions: an eighth.
const OVERFLOW_SHARE: u32 = 8;
/// The possible growth: inserted vectors as a multiple of those of the build.
const GROWTH: std::ops::RangeInclusive<f32> = 0.0..=100.0;
/// The possible numbers of vectors and deletions in an overflow.
const OVERFLOW_VECTORS: std::ops::RangeInclusive<u32> = 0..=1_000_000;
/// The number of partitions of a search that gives only a candidate list.
pub const DEFAULT_PROBES: u32 = 4;
/// The most partitions that may contain one vector.
pub(in super::super) const MOST_REPLICAS: u32 = 8;
/// The possible numbers of vectors of a partition on average. A sub-index is fetched in one read.
const PARTITION_VECTORS: std::ops::RangeInclusive<u32> = 8..=1_000_000;
/// The possible numbers of links.
const LINKS: std::ops::RangeInclusive<u32> = 4..=128;
/// The possible lengths of the candidate list.
const CONSTRUCTION_LIST: std::ops::RangeInclusive<u32> = 8..=4096;

/// The source of the pivots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pivots {
    /// A uniform sample (d-HNSW, section 3.1). Partitions in dense regions are large.
    Sampled,
    /// A uniform sample, after which large partitions are divided until none is much larger than the average.
    #[default]
    Balanced,
}

impl Pivots {
    /// Returns the name of the option's value.
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
        found.ok_or_else(|| format!("unknown pivots '{text}': must be sampled or balanced"))
    }
}

/// The options of a build of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PartitionedOptions {
    /// Vectors of a partition on average, each vector counted once.
    pub partition_vectors: u32,
    /// The source of the pivots.
    #[serde(deserialize_with = "from_text")]
    pub pivots: Pivots,
    /// The most partitions that contain one vector: 1 to 8.
    pub replicas: u32,
    /// Links of a vector in the upper layers, half of those in the bottom layer (M in HNSW).
    pub links: u32,
    /// The candidate list for building an HNSW (efConstruction in HNSW).
    pub construction_list: u32,
    /// Room for inserts in place, as a multiple of the vectors of the build; 0 for none.
    pub growth: f32,
    /// Vectors and deletions that two partitions take together before the two are rewritten; 0 stands for an
    /// eighth of their vectors.
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

/// The documentation of the options for users.
pub(in super::super) const DOCS: &[OptionDoc] = &[
    OptionDoc {
        name: "partition_vectors",
        value: "VECTORS",
        help: "average vectors per partition, which is read whole, 8 to 1,000,000 [default: 2000]",
    },
    OptionDoc {
        name: "pivots",
        value: "PIVOTS",
        help: "the choice of the vectors that represent partitions: sampled (uniformly) or balanced (large \
               partitions are divided) [default: balanced]",
    },
    OptionDoc {
        name: "replicas",
        value: "PARTITIONS",
        help: "most partitions (or posting lists) that contain one vector, 1 to 8 [default: 1]",
    },
    OptionDoc {
        name: "links",
        value: "LINKS",
        help: "links of a vector in the upper layers of an HNSW, half of those in the bottom layer (M), 4 to \
               128 [default: 16]",
    },
    OptionDoc {
        name: "construction_list",
        value: "CANDIDATES",
        help: "candidates while an HNSW is built (efConstruction), 8 to 4096 [default: 100]",
    },
    OptionDoc {
        name: "growth",
        value: "TIMES",
        help: "room for later inserts in the memory of a node, as a multiple of the vectors of the build, 0 \
               to 100; the index then takes (1 + TIMES) times its size, and a quarter more [default: 0, no \
               inserts]",
    },
    OptionDoc {
        name: "overflow_vectors",
        value: "VECTORS",
        help: "most vectors inserted into two neighbouring partitions before their graphs are built anew; \
               they are read with either partition; requires growth [default: an eighth of the two]",
    },
];

pub(in super::super) fn parse(given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    typed::<PartitionedOptions>(given).map(FamilyOptions::from)
}

impl PartitionedOptions {
    /// Checks the ranges of the options.
    pub(in super::super) fn check(&self) -> Result<(), IndexError> {
        let require_within = |name: &str, given: u32, range: std::ops::RangeInclusive<u32>, why: &str| {
            if range.contains(&given) {
                return Ok(());
            }
            let (least, most) = (range.start(), range.end());
            Err(IndexError::Parameter(format!(
                "{name} is {given}; it must be between {least} and {most}: {why}"
            )))
        };
        require_within(
            "partition_vectors",
            self.partition_vectors,
            PARTITION_VECTORS,
            "a partition has its own graph and is fetched in one read",
        )?;
        require_within(
            "replicas",
            self.replicas,
            1..=MOST_REPLICAS,
            "1 puts each vector into one partition",
        )?;
        require_within("links", self.links, LINKS, "16 suits most vectors")?;
        require_within(
            "construction_list",
            self.construction_list,
            CONSTRUCTION_LIST,
            "100 suits most vectors",
        )?;
        require_within(
            "overflow_vectors",
            self.overflow_vectors,
            OVERFLOW_VECTORS,
            "it is read with each partition",
        )?;
        let refuse = |reason: String| Err(IndexError::Parameter(reason));
        if !GROWTH.contains(&self.growth) {
            let (least, most) = (GROWTH.start(), GROWTH.end());
            return refuse(format!("growth is {}; it must be between {least} and {most}", self.growth));
        }
        if self.growth == 0.0 && self.overflow_vectors > 0 {
            return refuse(
                "overflow_vectors requires growth: only an index with growth takes inserts".into(),
            );
        }
        if self.growth > 0.0 && self.replicas > 1 {
            return refuse(format!(
                "growth requires replicas 1, not {}: an inserted vector is in one partition",
                self.replicas
            ));
        }
        Ok(())
    }

    /// Returns the number of vectors and deletions that an overflow holds, if the index takes inserts.
    pub(in super::super) fn overflow(&self) -> Option<u32> {
        let usual = 2 * self.partition_vectors / OVERFLOW_SHARE;
        let given = if self.overflow_vectors > 0 { self.overflow_vectors } else { usual };
        (self.growth > 0.0).then_some(given.max(1))
    }

    /// Returns the most vectors of a partition after inserts. Further vectors go to the next partition.
    pub(in super::super) fn most_grown(&self, most_built: u32) -> u32 {
        let average = f64::from(self.partition_vectors) * (1.0 + f64::from(self.growth));
        let most = (2.0 * average).min(self.most_vectors() as f64).max(f64::from(most_built));
        most as u32 + self.overflow().unwrap_or(0)
    }

    /// Returns the most vectors of a partition in a build, copies included. It bounds the length of a read
    /// for any data.
    pub(in super::super) fn most_vectors(&self) -> usize {
        /// Allows for copies at borders, and for dense regions with sampled pivots. Further vectors go to the
        /// next partition.
        const MOST: usize = 4;
        MOST * self.partition_vectors as usize
    }
}
