//! The contract of a family's loaded part: the data of an open index that stay in memory, and its search.

use super::capabilities::{Arrival, CardUse, OpenCapabilities, SharedPasses};
use super::in_place::InPlace;
use crate::calibrate::solve::Solved;
use crate::cost::Machine;
use crate::cost::demand::Demand;
use crate::cost::layout::LayoutEstimate;
use crate::cost::work::Estimate;
use crate::error::IndexError;
use crate::family::rows::StoredRows;
use crate::format::positions::Positions;
use crate::query::SearchParams;
use crate::query::changes::Placed;
use crate::query::under_way::Query;
use bathyal_tier::Cx;
use bathyal_tier::layer::cache::CacheCounters;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The future of a search. It is one allocation per query, next to reads and thousands of distances.
pub(crate) type Searching<'a> = Pin<Box<dyn Future<Output = Result<(), IndexError>> + 'a>>;

/// The part of an index that a query scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Groups or posting lists that the query scanned.
    pub(crate) scanned: usize,
    /// Groups or posting lists of the index.
    pub(crate) of: usize,
}

/// Memory of one running query, reused from query to query.
pub(crate) trait Scratch {
    /// Returns the query, with its results and counters.
    fn query(&self) -> &Query;

    /// As [`Scratch::query`], to change it.
    fn query_mut(&mut self) -> &mut Query;
}

/// Implements [`Scratch`] for a type with a field `query`.
macro_rules! impl_scratch {
    ($scratch:ty) => {
        impl $crate::family::Scratch for $scratch {
            fn query(&self) -> &$crate::query::under_way::Query {
                &self.query
            }

            fn query_mut(&mut self) -> &mut $crate::query::under_way::Query {
                &mut self.query
            }
        }
    };
}
pub(crate) use impl_scratch;

/// The search of a family: one `async fn` per query.
pub(crate) trait Searcher: Opened + 'static {
    /// Memory of one running query.
    type Scratch: Scratch + Default + Send + 'static;

    /// Answers one query. The results stay in `scratch`.
    fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut Self::Scratch,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Returns the part of the index that the last search scanned; `None` for a family that walks a graph.
    fn scanned(&self, scratch: &Self::Scratch) -> Option<Scanned>;
}

/// A [`Searcher`] without its type: the required part of the contract.
pub(crate) trait Opened: Send + Sync {
    /// Returns the cheapest effort on this machine that reaches a recall@k, by the calibration and the demand
    /// of each measured effort; `None` without a calibration.
    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved>;

    /// Estimates the demand of a query of this effort, and the processor's work in it.
    fn estimate(&self, params: &SearchParams, machine: &Machine<'_>) -> Estimate;

    /// Appends up to `wanted` vectors from all over the index to `out`, as f32 (each `dim` values), without a
    /// read.
    fn samples(&self, wanted: usize, out: &mut Vec<f32>);

    /// Returns the positions of the vectors on the tier.
    fn rows(&self) -> Box<dyn StoredRows + '_>;

    /// Returns the optional capabilities of this index.
    fn capabilities(&self) -> OpenCapabilities<'_>;

    /// Returns memory for one running query. Every family returns [`query_state`].
    fn query_state(self: Arc<Self>) -> Box<dyn QueryState>;
}

/// The capabilities as calls. Each returns nothing for a family without the capability.
impl dyn Opened + '_ {
    /// Returns the effort of queries that start before the data in memory have arrived from a distant store;
    /// `None` once they have arrived.
    pub(crate) fn early_effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        self.capabilities().arrival?.early_effort(k, recall, machine)
    }

    /// Returns the progress of data that arrive while searches run.
    pub(crate) fn arrival(&self) -> Option<Arrival> {
        self.capabilities().arrival?.arrival()
    }

    /// Returns the cheapest effort that reaches an overall ratio@k.
    pub(crate) fn effort_for_ratio(&self, k: usize, ratio: f32, machine: &Machine<'_>) -> Option<Solved> {
        self.capabilities().ratio?.effort_for_ratio(k, ratio, machine)
    }

    /// Returns the passes of searches with these parameters, if queries of a batch share their reads.
    pub(crate) fn passes(&self, params: &SearchParams) -> Option<&dyn SharedPasses> {
        self.capabilities().passes.filter(|passes| passes.compares_all(params))
    }

    /// Estimates the demand of a query that skips all vectors except `matches` of them ([`Query::within`]).
    pub(crate) fn among(&self, params: &SearchParams, matches: u32, machine: &Machine<'_>) -> Option<Demand> {
        self.capabilities().filter?.among(params, matches, machine)
    }

    /// Returns all places of codes with the ids of their vectors, if they are in memory.
    pub(crate) fn places(&self) -> Option<Box<dyn Iterator<Item = (u32, u32)> + '_>> {
        self.capabilities().single_vectors?.places()
    }

    /// Reads the ids by place from their own file, if there is one. Ends with the error of `go_on`.
    pub(crate) fn read_places(
        &self,
        go_on: &dyn Fn() -> Result<(), IndexError>,
    ) -> Result<Option<Vec<u32>>, IndexError> {
        self.capabilities().single_vectors.map_or(Ok(None), |capability| capability.read_places(go_on))
    }

    /// Returns the table of the place of each id, if there is one.
    pub(crate) fn positions(&self) -> Option<&Positions> {
        self.capabilities().single_vectors?.positions()
    }

    /// Returns the counters of the family's own read cache.
    pub(crate) fn kept(&self) -> Option<CacheCounters> {
        self.capabilities().read_cache?.kept()
    }

    /// Returns the buckets of inserted vectors, which are given as they are stored, one after the other.
    pub(crate) fn place(&self, rows: &[u8]) -> Option<Vec<Placed>> {
        Some(self.capabilities().inserts?.place(rows))
    }

    /// Returns the operations that change the index in place.
    pub(crate) fn in_place(&self) -> Option<&dyn InPlace> {
        self.capabilities().in_place
    }

    /// Returns the estimates of a query in the layout of the index, and in the one to which it can be
    /// converted.
    pub(crate) fn layouts(
        &self,
        params: &SearchParams,
        machine: &Machine<'_>,
    ) -> Option<[LayoutEstimate; 2]> {
        self.capabilities().layouts?.layouts(params, machine)
    }

    /// Returns how a graphics card searches the index; `None` if the processor searches alone.
    pub(crate) fn card(&self) -> Option<CardUse> {
        self.capabilities().card?.card()
    }
}

/// Memory of one running query of any family, with the index that it searches.
pub(crate) trait QueryState: Scratch + Send {
    /// Answers one query. The results stay here.
    fn search<'a>(&'a mut self, cx: Cx, query: &'a [u8], params: SearchParams) -> Searching<'a>;

    /// Returns the part of the index that the last search scanned.
    fn scanned(&self) -> Option<Scanned>;
}

/// Returns memory for one running query of `index`.
pub(crate) fn query_state<S: Searcher>(index: Arc<S>) -> Box<dyn QueryState> {
    Box::new(SearcherState { scratch: S::Scratch::default(), index })
}

/// A searcher with the memory of one query.
struct SearcherState<S: Searcher> {
    index: Arc<S>,
    scratch: S::Scratch,
}

impl<S: Searcher> Scratch for SearcherState<S> {
    fn query(&self) -> &Query {
        self.scratch.query()
    }

    fn query_mut(&mut self) -> &mut Query {
        self.scratch.query_mut()
    }
}

impl<S: Searcher> QueryState for SearcherState<S> {
    fn search<'a>(&'a mut self, cx: Cx, query: &'a [u8], params: SearchParams) -> Searching<'a> {
        Box::pin(self.index.search(cx, query, params, &mut self.scratch))
    }

    fn scanned(&self) -> Option<Scanned> {
        self.index.scanned(&self.scratch)
    }
}
