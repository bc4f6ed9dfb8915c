//! Searches within a set of rows: all codes of the set are scored, and the records of the best are read and
//! compared.
//!
//! No link is followed. A walk through the graph passes through vectors outside the set, so it takes longer
//! the smaller the set is, and it misses vectors off its path. Codes are all in memory. If a set is so large
//! that a walk is cheaper, the index searches for more neighbours, and drops those outside the set
//! (`open/plan_within`).

use super::layout::GraphLayout;
use super::search::{Graph, GraphScratch};
use crate::error::IndexError;
use crate::family::pages::PAGES_AT_ONCE;
use crate::query::within::RowFilter;
use crate::query::{Phase, SearchParams};
use bathyal_tier::Cx;

impl GraphScratch {
    /// Finds the nearest vectors of a set.
    pub(super) async fn search_among(
        &mut self,
        cx: &Cx,
        graph: &Graph,
        query: &[u8],
        params: &SearchParams,
        among: &RowFilter,
    ) -> Result<(), IndexError> {
        self.query.begin(&graph.set, query, params);
        graph.codec.prepare(&self.query.floats, &mut self.code_query);
        self.opened.clear();
        self.on_card = None;
        self.query.clock.spent(Phase::Navigate);
        let (codes, most) = ((&graph.codec, &graph.codes[..]), among.most(params.wanted()));
        self.query.stats.code_distances += self.scoring.rank(&self.code_query, codes, among.places(), most);
        self.query.clock.spent(Phase::Scan);
        let mut stages = among.stages(params.wanted(), params.k, self.scoring.hits.len());
        while let Some(range) = stages.next(&self.query.found) {
            self.list_records(graph, range);
            self.compare_records(cx, graph).await?;
        }
        Ok(())
    }

    /// Fills `self.beam` with the places of the candidates in `range`; in the page-local layout, with their
    /// pages, none of them twice.
    fn list_records(&mut self, graph: &Graph, range: std::ops::Range<usize>) {
        let GraphScratch { beam, scoring, opened, .. } = self;
        let places = scoring.hits[range].iter().map(|hit| hit.id);
        beam.clear();
        match graph.layout.page_local() {
            Some(layout) => {
                beam.extend(places.map(|place| layout.page_of(place)).filter(|page| opened.insert(*page)));
            }
            None => beam.extend(places),
        }
    }

    /// Reads the records or pages in `self.beam`, and compares their vectors.
    async fn compare_records(&mut self, cx: &Cx, graph: &Graph) -> Result<(), IndexError> {
        for first in (0..self.beam.len()).step_by(PAGES_AT_ONCE) {
            let last = self.beam.len().min(first + PAGES_AT_ONCE);
            self.spans.clear();
            self.spans.extend(self.beam[first..last].iter().map(|node| graph.node_span(*node)));
            self.query.count_round(&self.spans, cx.alignment());
            let arrived = cx.read(&self.spans).await.map_err(|source| graph.set.failed(source))?;
            self.query.clock.spent(Phase::Read);
            for at in first..last {
                self.compare_record(graph, self.beam[at], arrived.bytes(at - first))?;
            }
            self.query.clock.spent(Phase::Rerank);
        }
        Ok(())
    }

    /// Compares the vectors of one record or page.
    fn compare_record(&mut self, graph: &Graph, place: u32, bytes: &[u8]) -> Result<(), IndexError> {
        let damaged = |reason: String| graph.set.damaged(format!("record {place}"), reason);
        let (id, vector) = match &graph.layout {
            GraphLayout::Padded(layout) => (place, layout.decode(bytes, place).map_err(damaged)?.vector),
            GraphLayout::Csr(layout) => {
                let record = layout.decode(bytes, place).map_err(damaged)?;
                (record.id, record.vector)
            }
            GraphLayout::Local(layout) => {
                return self.compare_page(graph, layout, place, bytes).map(|_| ());
            }
        };
        graph.set.check_id(id, || format!("record {place}"))?;
        self.query.offer(id, graph.set.exact.between(&self.query.bytes, vector));
        Ok(())
    }
}
