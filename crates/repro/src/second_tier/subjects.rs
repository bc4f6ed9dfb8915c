//! The indexes that the figures compare: built once into the work folder, and found there again.

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

/// What a cluster index is called.
const GROUPS: &str = "groups with resident codes";

/// What an index is, as far as figures tell indexes apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A Vamana graph.
    Graph { layout: GraphLayoutName, max_degree: u32 },
    /// Posting lists of full vectors.
    Lists { layout: ListLayoutName, replicas: u32, centroid_share: f32 },
    /// Groups of near vectors with their codes in memory.
    Codes,
}

impl Shape {
    /// Its name in the work folder, without the prefix.
    fn file_name(self) -> String {
        match self {
            Shape::Graph { layout, max_degree } => format!("r{max_degree}-{}", layout.name()),
            Shape::Lists { layout, replicas, .. } => format!("x{replicas}-{}", layout.name()),
            Shape::Codes => "codes".to_owned(),
        }
    }

    /// How it is built.
    fn build_options(self, arguments: &TrialArguments) -> BuildOptions {
        let family = match self {
            Shape::Graph { layout, max_degree } => {
                let layout = match layout {
                    GraphLayoutName::Padded => GraphLayoutChoice::Padded,
                    GraphLayoutName::Csr => GraphLayoutChoice::Csr,
                };
                GraphOptions { layout, max_degree, ..GraphOptions::default() }.into()
            }
            Shape::Lists { layout, replicas, centroid_share } => {
                let layout = match layout {
                    ListLayoutName::Coupled => PostingLayout::Coupled,
                    ListLayoutName::Decoupled => PostingLayout::Decoupled,
                    ListLayoutName::Grouped => PostingLayout::Grouped,
                };
                let replicas = Some(replicas);
                SpannOptions { layout, replicas, centroid_share, ..SpannOptions::default() }.into()
            }
            Shape::Codes => FamilyOptions::from(ClusterOptions::default()),
        };
        BuildOptions { metric: arguments.metric, ..BuildOptions::of(family) }
    }

    /// What it is, in the words of [`described`].
    fn wanted(self) -> String {
        match self {
            Shape::Graph { layout, max_degree } => {
                format!("a {} graph of degree {max_degree}", layout.name())
            }
            Shape::Lists { layout, replicas, centroid_share } => {
                format!("{} lists, {replicas} replicas, centroid share {centroid_share},", layout.name())
            }
            Shape::Codes => GROUPS.to_owned(),
        }
    }
}

/// What lies where an index was found.
fn described(manifest: &Manifest) -> String {
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
    pub(crate) shape: Shape,
    pub(crate) manifest: Manifest,
}

impl Subject {
    /// Bytes of the codes by which a search finds its way; 0 of posting lists.
    pub(crate) fn code_bytes(&self) -> u32 {
        let graph = GraphEntry::read(&self.manifest).map(|graph| graph.codes.code_bytes);
        graph
            .or_else(|_| ClusterEntry::read(&self.manifest).map(|groups| groups.codes.code_bytes))
            .unwrap_or(0)
    }

    /// Finds the index of a shape in the work folder, converts it from what is there, or builds it.
    pub(crate) fn find_or_build(
        shape: Shape,
        arguments: &TrialArguments,
        work: &Workload,
        console: &Console,
    ) -> Result<Subject, Failure> {
        let named = |shape: Shape| arguments.work.join(format!("{}{}", arguments.prefix, shape.file_name()));
        let path = named(shape);
        if !path.exists() {
            match shape {
                Shape::Graph { layout: GraphLayoutName::Csr, max_degree }
                    if named(Shape::Graph { layout: GraphLayoutName::Padded, max_degree }).exists() =>
                {
                    // The same graph, which a build on several threads would not make again.
                    let padded = named(Shape::Graph { layout: GraphLayoutName::Padded, max_degree });
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

    /// Refuses an index that lies where one of another kind or of other vectors is expected.
    fn check(&self, arguments: &TrialArguments, work: &Workload) -> Result<(), Failure> {
        let (base, manifest) = (&work.base, &self.manifest);
        let over = |vectors: u64, dim: u64, element: &str, metric: &str| {
            format!("over {vectors} vectors of {dim} {element} ({metric})")
        };
        let wanted = format!(
            "{} {}",
            self.shape.wanted(),
            over(base.count() as u64, base.dim() as u64, base.element().name(), arguments.metric.name())
        );
        let found = format!(
            "{} {}",
            described(manifest),
            over(manifest.vectors, u64::from(manifest.dim), &manifest.element, &manifest.metric)
        );
        if found == wanted {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{}: is {found}, but {wanted} is wanted; name another work folder",
            self.path.display(),
        )))
    }
}
