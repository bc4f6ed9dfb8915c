//! The indexes that are compared.

use std::path::PathBuf;

use bathyal_console::{Console, Failure};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{BuildOptions, ClusterOptions, FamilyOptions, GraphLayoutChoice, GraphOptions};

use super::arguments::GustannArguments;
use crate::sets::Set;

/// An index, and how it is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// As the paper walks: one record at a time.
    GraphAlone,
    /// Four records at a time, as Bathyal does.
    Graph,
    /// Near vectors share pages, all of which are compared; what a card is sent is not reckoned.
    PageLocal,
    /// Groups, whose codes lie on the card.
    Cluster,
}

/// All of them.
pub(super) const ALL: [Subject; 4] =
    [Subject::GraphAlone, Subject::Graph, Subject::PageLocal, Subject::Cluster];

impl Subject {
    pub(super) fn name(self) -> &'static str {
        match self {
            Subject::GraphAlone => "graph-beam-1",
            Subject::Graph => "graph",
            Subject::PageLocal => "graph-page-local",
            Subject::Cluster => "cluster",
        }
    }

    pub(super) fn is_graph(self) -> bool {
        self != Subject::Cluster
    }

    /// Records that are read at a time, where that is said.
    pub(super) fn beam_width(self) -> Option<u32> {
        (self == Subject::GraphAlone).then_some(1)
    }

    fn folder(self) -> &'static str {
        match self {
            Subject::GraphAlone | Subject::Graph => "graph-padded",
            Subject::PageLocal => "graph-page-local",
            Subject::Cluster => "cluster",
        }
    }

    fn family(self) -> FamilyOptions {
        let graph = |layout| GraphOptions { layout, ..GraphOptions::default() }.into();
        match self {
            Subject::GraphAlone | Subject::Graph => graph(GraphLayoutChoice::Padded),
            Subject::PageLocal => graph(GraphLayoutChoice::PageLocal),
            Subject::Cluster => ClusterOptions::default().into(),
        }
    }

    /// Finds or builds it over `set`; its folder and what its manifest says.
    pub(super) fn find_or_build(
        self,
        set: &Set,
        arguments: &GustannArguments,
        console: &Console,
    ) -> Result<(PathBuf, Manifest), Failure> {
        let path = set.folder.join(self.folder());
        let options = BuildOptions { metric: arguments.metric, ..BuildOptions::of(self.family()) };
        if !path.exists() {
            bathyal_index::build(&set.base, &path, &options, &console.progress())?;
        }
        let manifest = Manifest::read(&path)?;
        let wanted = (set.base.count() as u64, set.base.dim(), arguments.metric.name());
        let found = (manifest.vectors, manifest.dim as usize, manifest.metric.as_str());
        if found == wanted {
            return Ok((path, manifest));
        }
        Err(Failure::new(format!(
            "{}: is of {} vectors of {} dimensions ({}), but {} of {} ({}) are wanted; name another work folder",
            path.display(),
            found.0,
            found.1,
            found.2,
            wanted.0,
            wanted.1,
            wanted.2
        )))
    }
}
