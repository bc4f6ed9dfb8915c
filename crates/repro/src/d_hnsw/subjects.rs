//! The indexes that are compared, built once into the folder of their set and found there again.

use std::path::PathBuf;

use bathyal_console::{Console, Failure};
use bathyal_index::families::partitioned::Pivots;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, FamilyOptions, GraphLayoutChoice, GraphOptions, PartitionedOptions,
};

use super::arguments::DhnswArguments;
use crate::sets::Set;

/// An index, as far as the report tells indexes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Sub-indexes that are read whole.
    Partitioned { pivots: Pivots, replicas: u32 },
    /// Groups with all codes in memory: one round.
    Cluster,
    /// A record a vector, laid out for small reads, codes in memory.
    Graph,
}

/// What the paper builds: pivots of a uniform sample, a vector in one sub-index.
pub(super) const PAPER: Subject = Subject::Partitioned { pivots: Pivots::Sampled, replicas: 1 };
/// The same with sub-indexes of about one size.
const BALANCED: Subject = Subject::Partitioned { pivots: Pivots::Balanced, replicas: 1 };
/// And with vectors at a border in both.
const REPLICATED: Subject = Subject::Partitioned { pivots: Pivots::Balanced, replicas: 2 };
/// All that are compared.
pub(super) const ALL: [Subject; 5] = [PAPER, BALANCED, REPLICATED, Subject::Cluster, Subject::Graph];

impl Subject {
    /// Its name in tables and in the work folder.
    pub(super) fn name(self) -> String {
        match self {
            Subject::Partitioned { pivots, replicas } => format!("partitioned-{pivots}-x{replicas}"),
            Subject::Cluster => "cluster".to_owned(),
            Subject::Graph => "graph".to_owned(),
        }
    }

    /// Whether queries of a batch share what they read.
    pub(super) fn shares(self) -> bool {
        matches!(self, Subject::Partitioned { .. })
    }

    fn folder(self, partition_vectors: u32) -> String {
        match self {
            Subject::Partitioned { .. } => format!("{}-p{partition_vectors}", self.name()),
            _ => self.name(),
        }
    }

    fn options(self, arguments: &DhnswArguments) -> BuildOptions {
        let partition_vectors = arguments.subindex_vectors();
        let family: FamilyOptions = match self {
            Subject::Partitioned { pivots, replicas } => {
                PartitionedOptions { partition_vectors, pivots, replicas, ..PartitionedOptions::default() }
                    .into()
            }
            Subject::Cluster => ClusterOptions::default().into(),
            Subject::Graph => {
                GraphOptions { layout: GraphLayoutChoice::Csr, ..GraphOptions::default() }.into()
            }
        };
        BuildOptions { metric: arguments.metric, ..BuildOptions::of(family) }
    }

    /// Finds or builds it over `set`; its folder and what its manifest says.
    pub(super) fn find_or_build(
        self,
        set: &Set,
        arguments: &DhnswArguments,
        console: &Console,
    ) -> Result<(PathBuf, Manifest), Failure> {
        let path = set.folder.join(self.folder(arguments.subindex_vectors()));
        let options = self.options(arguments);
        if !path.exists() {
            bathyal_index::build(&set.base, &path, &options, &console.progress())?;
        }
        let manifest = Manifest::read(&path)?;
        let there = |family: &str, vectors: u64, dim: usize, element: &str, metric: &str| {
            format!("family {family} over {vectors} vectors of {dim} {element} ({metric})")
        };
        let (base, is) = (&set.base, &manifest);
        let found = there(&is.family, is.vectors, is.dim as usize, &is.element, &is.metric);
        let (element, metric) = (base.element().name(), arguments.metric.name());
        let wanted = there(options.family.family(), base.count() as u64, base.dim(), element, metric);
        if found == wanted {
            return Ok((path, manifest));
        }
        Err(Failure::new(format!(
            "{}: is of {found}, but {wanted} is wanted; name another work folder",
            path.display()
        )))
    }
}
