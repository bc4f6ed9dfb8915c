//! The compared indexes, built once into the work folder and reused from there.

use std::path::PathBuf;

use bathyal_console::{Console, Failure};
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::families::graph::GraphEntry;
use bathyal_index::families::spann::SpannEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, FamilyOptions, GraphLayoutChoice, GraphOptions, PostingLayout,
    SpannOptions, convert_layout,
};

use crate::second_tier::arguments::{GraphLayoutName, ListLayoutName, TrialArguments};
use crate::workload::Workload;

/// Description of a cluster index.
const GROUPS: &str = "groups with resident codes";

/// Kind of an index, with the options in which the figures' indexes differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum IndexShape {
    /// A Vamana graph.
    Graph { layout: GraphLayoutName, max_degree: u32 },
    /// Posting lists of full vectors.
    Lists { layout: ListLayoutName, replicas: u32, centroid_share: f32 },
    /// Groups of near vectors, with their codes in memory.
    Codes,
}

impl IndexShape {
    /// Returns the name in the work folder, without the prefix.
    fn file_name(self) -> String {
        match self {
            IndexShape::Graph { layout, max_degree } => format!("r{max_degree}-{}", layout.name()),
            IndexShape::Lists { layout, replicas, .. } => format!("x{replicas}-{}", layout.name()),
            IndexShape::Codes => "codes".to_owned(),
        }
    }

    /// Returns the options of its build.
    fn build_options(self, arguments: &TrialArguments) -> BuildOptions {
        let family = match self {
            IndexShape::Graph { layout, max_degree } => {
                let layout = match layout {
                    GraphLayoutName::Padded => GraphLayoutChoice::Padded,
                    GraphLayoutName::Csr => GraphLayoutChoice::Csr,
                };
                GraphOptions { layout, max_degree, ..GraphOptions::default() }.into()
            }
            IndexShape::Lists { layout, replicas, centroid_share } => {
                let layout = match layout {
                    ListLayoutName::Coupled => PostingLayout::Coupled,
                    ListLayoutName::Decoupled => PostingLayout::Decoupled,
                    ListLayoutName::Grouped => PostingLayout::Grouped,
                };
                let replicas = Some(replicas);
                SpannOptions { layout, replicas, centroid_share, ..SpannOptions::default() }.into()
            }
            IndexShape::Codes => FamilyOptions::from(ClusterOptions::default()),
        };
        BuildOptions { metric: arguments.metric, ..BuildOptions::of(family) }
    }

    /// Describes the shape in the words of [`describe`].
    fn description(self) -> String {
        match self {
            IndexShape::Graph { layout, max_degree } => {
                format!("a {} graph of degree {max_degree}", layout.name())
            }
            IndexShape::Lists { layout, replicas, centroid_share } => {
                format!("{} lists, {replicas} replicas, centroid share {centroid_share},", layout.name())
            }
            IndexShape::Codes => GROUPS.to_owned(),
        }
    }
}

/// Describes the index that a manifest belongs to.
fn describe(manifest: &Manifest) -> String {
    if let Ok(graph) = GraphEntry::read(manifest) {
        return format!("a {} graph of degree {}", graph.layout, graph.max_degree);
    }
    match SpannEntry::read(manifest) {
        Ok(lists) => format!(
            "{} lists, {} replicas, centroid share {},",
            lists.layout, lists.replicas, lists.centroid_share
        ),
        Err(_) => GROUPS.to_owned(),
    }
}

/// An index on disk.
pub(crate) struct Subject {
    pub(crate) path: PathBuf,
    pub(crate) shape: IndexShape,
    pub(crate) manifest: Manifest,
}

impl Subject {
    /// Returns the bytes of the codes that guide a search; 0 for posting lists.
    pub(crate) fn code_bytes(&self) -> u32 {
        let graph = GraphEntry::read(&self.manifest).map(|graph| graph.codes.code_bytes);
        graph
            .or_else(|_| ClusterEntry::read(&self.manifest).map(|groups| groups.codes.code_bytes))
            .unwrap_or(0)
    }

    /// Finds the index of a shape in the work folder, converts it from an existing layout, or builds it.
    pub(crate) fn find_or_build(
        shape: IndexShape,
        arguments: &TrialArguments,
        work: &Workload,
        console: &Console,
    ) -> Result<Subject, Failure> {
        let index_path =
            |shape: IndexShape| arguments.work.join(format!("{}{}", arguments.prefix, shape.file_name()));
        let path = index_path(shape);
        if !path.exists() {
            match shape {
                IndexShape::Graph { layout: GraphLayoutName::Csr, max_degree }
                    if index_path(IndexShape::Graph { layout: GraphLayoutName::Padded, max_degree })
                        .exists() =>
                {
                    // Convert, because a build on several threads would not make the same graph again.
                    let padded =
                        index_path(IndexShape::Graph { layout: GraphLayoutName::Padded, max_degree });
                    convert_layout(&padded, &path, GraphLayoutChoice::Csr, 0, &console.progress())?;
                }
                _ => {
                    let options = shape.build_options(arguments);
                    bathyal_index::build(&work.base, &path, &options, &console.progress())?;
                }
            }
        }
        let manifest = Manifest::read(&path)?;
        let subject = Subject { path, shape, manifest };
        subject.check(arguments, work)?;
        Ok(subject)
    }

    /// Refuses an existing index of another kind or over other vectors.
    fn check(&self, arguments: &TrialArguments, work: &Workload) -> Result<(), Failure> {
        let (base, manifest) = (&work.base, &self.manifest);
        let over = |vectors: u64, dim: u64, element: &str, metric: &str| {
            format!("over {vectors} vectors of {dim} {element} ({metric})")
        };
        let needed = format!(
            "{} {}",
            self.shape.description(),
            over(base.count() as u64, base.dim() as u64, base.element().name(), arguments.metric.name())
        );
        let found = format!(
            "{} {}",
            describe(manifest),
            over(manifest.vectors, u64::from(manifest.dim), &manifest.element, &manifest.metric)
        );
        if found == needed {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{}: holds {found}, but this run needs {needed}; name another work folder",
            self.path.display(),
        )))
    }
}
