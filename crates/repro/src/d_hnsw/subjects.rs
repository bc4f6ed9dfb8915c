//! The compared indexes, built once into the folder of their set and reused from there.

use std::path::PathBuf;

use bathyal_console::{Console, Failure};
use bathyal_index::families::partitioned::Pivots;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, FamilyOptions, GraphLayoutChoice, GraphOptions, PartitionedOptions,
};

use super::arguments::DhnswArguments;
use crate::sets::DataSet;

/// A compared index, with the options in which the report's indexes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DhnswSubject {
    /// Sub-indexes, which are read whole.
    Partitioned { pivots: Pivots, replicas: u32 },
    /// Groups with all codes in memory: one round.
    Cluster,
    /// One record per vector, laid out for small reads; codes in memory.
    Graph,
}

/// The paper's index: pivots from a uniform sample, each vector in one sub-index.
pub(super) const PAPER: DhnswSubject = DhnswSubject::Partitioned { pivots: Pivots::Sampled, replicas: 1 };
/// As in the paper, but with sub-indexes of about the same size.
const BALANCED: DhnswSubject = DhnswSubject::Partitioned { pivots: Pivots::Balanced, replicas: 1 };
/// As before, with vectors near a border in both sub-indexes.
const REPLICATED: DhnswSubject = DhnswSubject::Partitioned { pivots: Pivots::Balanced, replicas: 2 };
/// All compared indexes.
pub(super) const ALL: [DhnswSubject; 5] =
    [PAPER, BALANCED, REPLICATED, DhnswSubject::Cluster, DhnswSubject::Graph];

impl DhnswSubject {
    /// Returns the name in tables.
    pub(super) fn name(self) -> String {
        match self {
            DhnswSubject::Partitioned { pivots, replicas } => format!("partitioned-{pivots}-x{replicas}"),
            DhnswSubject::Cluster => "cluster".to_owned(),
            DhnswSubject::Graph => "graph".to_owned(),
        }
    }

    /// Returns true if queries of a batch share their reads.
    pub(super) fn shares(self) -> bool {
        matches!(self, DhnswSubject::Partitioned { .. })
    }

    fn folder(self, partition_vectors: u32) -> String {
        match self {
            DhnswSubject::Partitioned { .. } => format!("{}-p{partition_vectors}", self.name()),
            _ => self.name(),
        }
    }

    fn options(self, arguments: &DhnswArguments) -> BuildOptions {
        let partition_vectors = arguments.subindex_vectors();
        let family: FamilyOptions = match self {
            DhnswSubject::Partitioned { pivots, replicas } => {
                PartitionedOptions { partition_vectors, pivots, replicas, ..PartitionedOptions::default() }
                    .into()
            }
            DhnswSubject::Cluster => ClusterOptions::default().into(),
            DhnswSubject::Graph => {
                GraphOptions { layout: GraphLayoutChoice::Csr, ..GraphOptions::default() }.into()
            }
        };
        BuildOptions { metric: arguments.metric, ..BuildOptions::of(family) }
    }

    /// Finds the index over `set` in the work folder, or builds it; returns its folder and its manifest.
    pub(super) fn find_or_build(
        self,
        set: &DataSet,
        arguments: &DhnswArguments,
        console: &Console,
    ) -> Result<(PathBuf, Manifest), Failure> {
        let path = set.folder.join(self.folder(arguments.subindex_vectors()));
        let options = self.options(arguments);
        if !path.exists() {
            bathyal_index::build(&set.base, &path, &options, &console.progress())?;
        }
        let manifest = Manifest::read(&path)?;
        let describe = |family: &str, vectors: u64, dim: usize, element: &str, metric: &str| {
            format!("family {family} over {vectors} vectors of {dim} {element} ({metric})")
        };
        let base = &set.base;
        let found = describe(
            &manifest.family,
            manifest.vectors,
            manifest.dim as usize,
            &manifest.element,
            &manifest.metric,
        );
        let (element, metric) = (base.element().name(), arguments.metric.name());
        let needed = describe(options.family.family(), base.count() as u64, base.dim(), element, metric);
        if found == needed {
            return Ok((path, manifest));
        }
        Err(Failure::new(format!(
            "{}: holds an index of {found}, but this run needs {needed}; name another work folder",
            path.display()
        )))
    }
}
