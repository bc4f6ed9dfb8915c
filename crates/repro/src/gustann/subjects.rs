//! The compared indexes.

use std::path::PathBuf;

use bathyal_console::{Console, Failure};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{BuildOptions, ClusterOptions, FamilyOptions, GraphLayoutChoice, GraphOptions};

use super::arguments::GustannArguments;
use crate::sets::DataSet;

/// The name of groups.
pub(super) const CLUSTER: &str = "cluster";

/// An index and how it is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GustannSubject {
    /// A graph searched one record at a time, as in the paper.
    GraphAlone,
    /// A graph searched four records at a time, Bathyal's default.
    Graph,
    /// A graph whose near vectors share pages; searches compare all of a page. Bytes for a card are not
    /// modelled.
    PageLocal,
    /// Groups, whose codes are on the card.
    Cluster,
}

/// All compared indexes.
pub(super) const ALL: [GustannSubject; 4] =
    [GustannSubject::GraphAlone, GustannSubject::Graph, GustannSubject::PageLocal, GustannSubject::Cluster];

impl GustannSubject {
    pub(super) fn name(self) -> &'static str {
        match self {
            GustannSubject::GraphAlone => "graph-beam-1",
            GustannSubject::Graph => "graph",
            GustannSubject::PageLocal => "graph-page-local",
            GustannSubject::Cluster => CLUSTER,
        }
    }

    pub(super) fn is_graph(self) -> bool {
        self != GustannSubject::Cluster
    }

    /// Returns the records read at a time, or `None` for the default.
    pub(super) fn beam_width(self) -> Option<u32> {
        (self == GustannSubject::GraphAlone).then_some(1)
    }

    fn folder(self) -> &'static str {
        match self {
            GustannSubject::GraphAlone | GustannSubject::Graph => "graph-padded",
            GustannSubject::PageLocal => "graph-page-local",
            GustannSubject::Cluster => CLUSTER,
        }
    }

    fn family(self) -> FamilyOptions {
        let graph = |layout| GraphOptions { layout, ..GraphOptions::default() }.into();
        match self {
            GustannSubject::GraphAlone | GustannSubject::Graph => graph(GraphLayoutChoice::Padded),
            GustannSubject::PageLocal => graph(GraphLayoutChoice::PageLocal),
            GustannSubject::Cluster => ClusterOptions::default().into(),
        }
    }

    /// Finds the index over `set` in the work folder, or builds it; returns its folder and its manifest.
    pub(super) fn find_or_build(
        self,
        set: &DataSet,
        arguments: &GustannArguments,
        console: &Console,
    ) -> Result<(PathBuf, Manifest), Failure> {
        let path = set.folder.join(self.folder());
        let options = BuildOptions { metric: arguments.metric, ..BuildOptions::of(self.family()) };
        if !path.exists() {
            bathyal_index::build(&set.base, &path, &options, &console.progress())?;
        }
        let manifest = Manifest::read(&path)?;
        let needed = (set.base.count() as u64, set.base.dim(), arguments.metric.name());
        let found = (manifest.vectors, manifest.dim as usize, manifest.metric.as_str());
        if found == needed {
            return Ok((path, manifest));
        }
        Err(Failure::new(format!(
            "{}: holds an index of {} vectors of {} dimensions ({}), but this run needs {} of {} ({}); name \
             another work folder",
            path.display(),
            found.0,
            found.1,
            found.2,
            needed.0,
            needed.1,
            needed.2
        )))
    }
}
