//! What a family keeps in memory of an open index, and its search.

use crate::calibrate::solve::Solved;
use crate::cost::Machine;
use crate::cost::demand::Demand;
use crate::error::IndexError;
use crate::family::rows::Rows;
use crate::format::positions::Positions;
use crate::query::SearchParams;
use crate::query::changes::Placed;
use crate::query::under_way::Query;
use bathyal_gpu::CardCounters;
use bathyal_tier::Cx;
use bathyal_tier::layer::cache::CacheCounters;
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

/// The future of a search. One allocation a query, beside reads and thousands of distances.
pub(crate) type Searching<'a> = Pin<Box<dyn Future<Output = Result<(), IndexError>> + 'a>>;

/// How much of an index a query looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Groups or posting lists that were scanned.
    pub(crate) scanned: usize,
    /// Those of the index.
    pub(crate) of: usize,
}

/// What is on its way from a store that is elsewhere while searches run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Arrival {
    /// Bytes that are in memory.
    pub here: u64,
    /// Bytes that will be.
    pub all: u64,
    /// Why no more of them come, if that is so: searches go on reading what they need.
    pub failed: Option<String>,
}

/// Memory of one running query, reused from query to query.
pub(crate) trait Scratch {
    /// The query, with what was found and what it has cost.
    fn query(&self) -> &Query;

    /// The same.
    fn query_mut(&mut self) -> &mut Query;
}

/// An index that is changed where it lies: in memory that several machines reach, each of which may change it at any time.
pub(crate) trait InPlace {
    /// Inserts vectors, which get the ids of the range that is returned.
    fn insert(&self, vectors: &VectorFile) -> Result<Range<u32>, IndexError>;

    /// Deletes the vectors of these ids; how many were there.
    fn delete(&self, ids: &[u32]) -> Result<u64, IndexError>;

    /// Looks how many vectors there are; whether that is not what was known before.
    fn refresh(&self) -> Result<bool, IndexError>;

    /// Vectors that are there, and the id that the next one gets, as far as is known here.
    fn counts(&self) -> (u64, u32);

    /// Vectors that there may be, whatever others have changed.
    fn most(&self) -> u64;
}

/// How a graphics card searches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CardUse {
    /// Candidates that it keeps of a query at most.
    pub(crate) list: u32,
    /// Records that it has expanded at a time at most, of a family that does.
    pub(crate) width: Option<u32>,
    /// Queries under way at most.
    pub(crate) slots: u32,
    /// Bytes of its memory that are taken.
    pub(crate) resident_bytes: u64,
    /// What it has done so far.
    pub(crate) counters: CardCounters,
}

/// For as long as this is there nobody changes an index that is changed where it lies.
pub(crate) trait Paused {}

/// What stays in memory of an open index.
pub(crate) trait Searcher: Send + Sync + 'static {
    /// Memory of one running query.
    type Scratch: Scratch + Default + Send + 'static;

    /// Answers one query; what was found stays in `scratch`.
    fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut Self::Scratch,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// The effort for a recall@k that is cheapest on this machine, by the calibration and by what each measured effort
    /// asks for; `None` where nothing was measured.
    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved>;

    /// The same of queries that begin before all is there that is kept in memory; `None` if it is there, or makes no difference.
    fn early_effort(&self, _k: usize, _recall: f32, _machine: &Machine<'_>) -> Option<Solved> {
        None
    }

    /// The same for an overall ratio@k; `None` also of a family that does not measure it.
    fn effort_for_ratio(&self, _k: usize, _ratio: f32, _machine: &Machine<'_>) -> Option<Solved> {
        None
    }

    /// What a query of this effort asks for, about.
    fn demand(&self, params: &SearchParams, machine: &Machine<'_>) -> Demand;

    /// What a query of this effort asks for, about, that passes over all vectors but `matches` of them
    /// ([`Query::within`]); `None` where a search does not know which are which before it has read them.
    fn among(&self, _params: &SearchParams, _matches: u32, _machine: &Machine<'_>) -> Option<Demand> {
        None
    }

    /// All places of codes and the ids of the vectors there; `None` where that is not in memory.
    fn places(&self) -> Option<Box<dyn Iterator<Item = (u32, u32)> + '_>> {
        None
    }

    /// The ids by place from a file of its own, where there is one; `go_on` fails where the caller waits no longer.
    fn read_places(
        &self,
        _go_on: &dyn Fn() -> Result<(), IndexError>,
    ) -> Result<Option<Vec<u32>>, IndexError> {
        Ok(None)
    }

    /// What says where the vector of each id lies, where there is a file of it.
    fn positions(&self) -> Option<&Positions> {
        None
    }

    /// Up to `wanted` vectors from all over the index, as f32 (each `dim` values), without a read.
    fn samples(&self, wanted: usize, out: &mut Vec<f32>);

    /// Where its vectors lie.
    fn rows(&self) -> Box<dyn Rows + '_>;

    /// How much has come of what is kept in memory, where searches do not wait for it.
    fn arrival(&self) -> Option<Arrival> {
        None
    }

    /// What searches have kept of what they read, of a family that does ([`Stored::keeps`](super::Stored::keeps)).
    fn kept(&self) -> Option<CacheCounters> {
        None
    }

    /// The way to change it where it lies; `None` where it is not.
    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }

    /// How a graphics card searches it; `None` where the processor searches alone.
    fn card(&self) -> Option<CardUse> {
        None
    }

    /// How much of the index the last search looked at; `None` of a family that walks.
    fn scanned(&self, scratch: &Self::Scratch) -> Option<Scanned>;

    /// The buckets that vectors (as they are stored, one after the other) go into when they are inserted: whoever looks at a
    /// bucket looks at these, too. `None` of a family whose indexes do not change.
    fn place(&self, _rows: &[u8]) -> Option<Vec<Placed>> {
        None
    }
}

/// A [`Searcher`] of whatever family.
pub(crate) trait Opened: Send + Sync {
    /// [`Searcher::effort`].
    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved>;

    /// [`Searcher::early_effort`].
    fn early_effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved>;

    /// [`Searcher::effort_for_ratio`].
    fn effort_for_ratio(&self, k: usize, ratio: f32, machine: &Machine<'_>) -> Option<Solved>;

    /// [`Searcher::demand`].
    fn demand(&self, params: &SearchParams, machine: &Machine<'_>) -> Demand;

    /// [`Searcher::among`].
    fn among(&self, params: &SearchParams, matches: u32, machine: &Machine<'_>) -> Option<Demand>;

    /// [`Searcher::places`].
    fn places(&self) -> Option<Box<dyn Iterator<Item = (u32, u32)> + '_>>;

    /// [`Searcher::read_places`].
    fn read_places(&self, go_on: &dyn Fn() -> Result<(), IndexError>)
    -> Result<Option<Vec<u32>>, IndexError>;

    /// [`Searcher::positions`].
    fn positions(&self) -> Option<&Positions>;

    /// [`Searcher::samples`].
    fn samples(&self, wanted: usize, out: &mut Vec<f32>);

    /// [`Searcher::rows`].
    fn rows(&self) -> Box<dyn Rows + '_>;

    /// [`Searcher::arrival`].
    fn arrival(&self) -> Option<Arrival>;

    /// [`Searcher::kept`].
    fn kept(&self) -> Option<CacheCounters>;

    /// [`Searcher::place`].
    fn place(&self, rows: &[u8]) -> Option<Vec<Placed>>;

    /// [`Searcher::in_place`].
    fn in_place(&self) -> Option<&dyn InPlace>;

    /// [`Searcher::card`].
    fn card(&self) -> Option<CardUse>;

    /// Memory for one running query.
    fn query_state(self: Arc<Self>) -> Box<dyn QueryState>;
}

/// Memory of one running query of whatever family, with the index that it searches.
pub(crate) trait QueryState: Scratch + Send {
    /// Answers one query; what was found stays here.
    fn search<'a>(&'a mut self, cx: Cx, query: &'a [u8], params: SearchParams) -> Searching<'a>;

    /// How much of the index the last search looked at.
    fn scanned(&self) -> Option<Scanned>;
}

impl<S: Searcher> Opened for S {
    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        Searcher::effort(self, k, recall, machine)
    }

    fn early_effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        Searcher::early_effort(self, k, recall, machine)
    }

    fn effort_for_ratio(&self, k: usize, ratio: f32, machine: &Machine<'_>) -> Option<Solved> {
        Searcher::effort_for_ratio(self, k, ratio, machine)
    }

    fn demand(&self, params: &SearchParams, machine: &Machine<'_>) -> Demand {
        Searcher::demand(self, params, machine)
    }

    fn among(&self, params: &SearchParams, matches: u32, machine: &Machine<'_>) -> Option<Demand> {
        Searcher::among(self, params, matches, machine)
    }

    fn places(&self) -> Option<Box<dyn Iterator<Item = (u32, u32)> + '_>> {
        Searcher::places(self)
    }

    fn read_places(
        &self,
        go_on: &dyn Fn() -> Result<(), IndexError>,
    ) -> Result<Option<Vec<u32>>, IndexError> {
        Searcher::read_places(self, go_on)
    }

    fn positions(&self) -> Option<&Positions> {
        Searcher::positions(self)
    }

    fn samples(&self, wanted: usize, out: &mut Vec<f32>) {
        Searcher::samples(self, wanted, out)
    }

    fn rows(&self) -> Box<dyn Rows + '_> {
        Searcher::rows(self)
    }

    fn arrival(&self) -> Option<Arrival> {
        Searcher::arrival(self)
    }

    fn kept(&self) -> Option<CacheCounters> {
        Searcher::kept(self)
    }

    fn place(&self, rows: &[u8]) -> Option<Vec<Placed>> {
        Searcher::place(self, rows)
    }

    fn in_place(&self) -> Option<&dyn InPlace> {
        Searcher::in_place(self)
    }

    fn card(&self) -> Option<CardUse> {
        Searcher::card(self)
    }

    fn query_state(self: Arc<Self>) -> Box<dyn QueryState> {
        Box::new(Bound { scratch: S::Scratch::default(), index: self })
    }
}

/// A scratch and its index.
struct Bound<S: Searcher> {
    index: Arc<S>,
    scratch: S::Scratch,
}

impl<S: Searcher> Scratch for Bound<S> {
    fn query(&self) -> &Query {
        self.scratch.query()
    }

    fn query_mut(&mut self) -> &mut Query {
        self.scratch.query_mut()
    }
}

impl<S: Searcher> QueryState for Bound<S> {
    fn search<'a>(&'a mut self, cx: Cx, query: &'a [u8], params: SearchParams) -> Searching<'a> {
        Box::pin(self.index.search(cx, query, params, &mut self.scratch))
    }

    fn scanned(&self) -> Option<Scanned> {
        self.index.scanned(&self.scratch)
    }
}
