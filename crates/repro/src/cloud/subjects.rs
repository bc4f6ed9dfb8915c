//! The compared indexes, built once into the folder of their set and reused from there.

use std::path::PathBuf;

use bathyal_console::{Console, Failure};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, FamilyOptions, GraphLayoutChoice, GraphOptions, PostingLayout, SpannOptions,
};
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::CodeKind;

use super::sets::CloudSet;

/// R of the paper's graphs (section 5.1).
pub(super) const DEGREE: u32 = 64;
/// R of the denser graph (figures 17 and 18).
pub(super) const DENSE: u32 = 256;
/// Least length of the candidate list while a graph is built.
const BUILD_LIST: u32 = 100;
/// Lists per vector of the paper's posting lists (table 3), and of the finer ones (figure 14).
pub(super) const SHARE: f32 = 0.16;
pub(super) const FINE_SHARE: f32 = 0.32;
/// Most replicas of a vector, and the smaller numbers that it is compared with (figure 16).
pub(super) const REPLICAS: u32 = 8;
pub(super) const FEWER_REPLICAS: [u32; 2] = [4, 2];

/// A compared index, with the options in which the figures' indexes differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CloudSubject {
    /// As DiskANN: one page per vector and its links, codes in memory.
    Graph { max_degree: u32 },
    /// As SPANN: lists of vectors, centroids in memory.
    Spann { centroid_share: f32, replicas: u32 },
    /// Groups with all codes in memory: one round.
    Cluster,
    /// Lists of codes, then the vectors of the best: two rounds.
    Coded,
}

/// The graph of the paper's figures.
pub(super) const GRAPH: CloudSubject = CloudSubject::Graph { max_degree: DEGREE };
/// The posting lists of the paper's figures.
pub(super) const SPANN: CloudSubject = CloudSubject::Spann { centroid_share: SHARE, replicas: REPLICAS };

impl CloudSubject {
    /// Returns the name in tables and in the work folder.
    pub(super) fn name(self) -> String {
        match self {
            CloudSubject::Graph { max_degree: DEGREE } => "graph".to_owned(),
            CloudSubject::Graph { max_degree } => format!("graph-r{max_degree}"),
            SPANN => "spann".to_owned(),
            CloudSubject::Spann { centroid_share, replicas } => {
                format!("spann-s{centroid_share}-x{replicas}")
            }
            CloudSubject::Cluster => "cluster".to_owned(),
            CloudSubject::Coded => "coded".to_owned(),
        }
    }

    /// Returns the options of its build.
    fn options(self, metric: Metric) -> BuildOptions {
        let family: FamilyOptions = match self {
            CloudSubject::Graph { max_degree } => {
                let (layout, search_list) = (GraphLayoutChoice::Padded, BUILD_LIST.max(max_degree));
                GraphOptions { layout, max_degree, search_list, ..GraphOptions::default() }.into()
            }
            CloudSubject::Spann { centroid_share, replicas } => SpannOptions {
                layout: PostingLayout::Coupled,
                centroid_share,
                replicas: Some(replicas),
                ..SpannOptions::default()
            }
            .into(),
            CloudSubject::Cluster => ClusterOptions::default().into(),
            CloudSubject::Coded => SpannOptions {
                layout: PostingLayout::Coupled,
                code_kind: Some(CodeKind::Axes),
                ..SpannOptions::default()
            }
            .into(),
        };
        BuildOptions { metric, ..BuildOptions::of(family) }
    }

    /// Finds the index over `set` in the work folder, or builds it; returns its folder and its manifest.
    pub(super) fn find_or_build(
        self,
        set: &CloudSet,
        metric: Metric,
        console: &Console,
    ) -> Result<(PathBuf, Manifest), Failure> {
        let path = set.folder.join(self.name());
        let options = self.options(metric);
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
        let (element, family) = (base.element().name(), options.family.family());
        let needed = describe(family, base.count() as u64, base.dim(), element, metric.name());
        if found == needed {
            return Ok((path, manifest));
        }
        Err(Failure::new(format!(
            "{}: holds an index of {found}, but this run needs {needed}; name another work folder",
            path.display()
        )))
    }
}
