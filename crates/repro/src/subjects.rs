//! The indexes that the figures compare: built once into the work folder, and found there again.

use std::path::PathBuf;

use bathyal_console::{Console, Failure};
use bathyal_index::format::manifest::{Manifest, Structure};
use bathyal_index::{BuildOptions, FamilyChoice, LayoutChoice, convert_layout};

use crate::arguments::{GraphLayoutName, ListLayoutName, TrialArguments};
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
        let least = BuildOptions { metric: arguments.metric, ..BuildOptions::default() };
        match self {
            Shape::Graph { layout, max_degree } => BuildOptions {
                family: FamilyChoice::Graph,
                layout: match layout {
                    GraphLayoutName::Padded => Some(LayoutChoice::Padded),
                    GraphLayoutName::Csr => Some(LayoutChoice::Csr),
                },
                max_degree,
                ..least
            },
            Shape::Lists { layout, replicas, centroid_share } => BuildOptions {
                family: FamilyChoice::Spann,
                layout: match layout {
                    ListLayoutName::Coupled => Some(LayoutChoice::Coupled),
                    ListLayoutName::Decoupled => Some(LayoutChoice::Decoupled),
                    ListLayoutName::Grouped => Some(LayoutChoice::Grouped),
                },
                replicas: Some(replicas),
                centroid_share,
                ..least
            },
            Shape::Codes => BuildOptions { family: FamilyChoice::Cluster, ..least },
        }
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
    match &manifest.structure {
        Structure::Graph(graph) => format!("a {} graph of degree {}", graph.layout, graph.max_degree),
        Structure::Spann(lists) => format!(
            "{} lists, {} replicas, centroid share {},",
            lists.layout, lists.replicas, lists.centroid_share
        ),
        Structure::Cluster(_) => GROUPS.to_owned(),
    }
}

/// An index on disk.
pub(crate) struct Subject {
    pub(crate) path: PathBuf,
    pub(crate) shape: Shape,
    pub(crate) manifest: Manifest,
}

impl Subject {
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
                    convert_layout(&padded, &path, LayoutChoice::Csr, 0, &console.progress())?;
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
