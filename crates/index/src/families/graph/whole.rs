//! A graph that is grown with all its vectors in memory, and the layouts in which it is written.

use super::calibrate;
use super::local::LocalPlacement;
use super::options::{GraphLayoutChoice, GraphOptions};
use super::pack;
use super::places::Places;
use super::section::GraphEntry;
use super::work::{GraphFiles, GrownGraph, Work};
use super::write;
use crate::build::StageTimes;
use crate::calibrate::Calibration;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::csr::{CsrLayout, LINE_BYTES};
use crate::format::identity::Identity;
use crate::format::local::LocalLayout;
use crate::format::manifest::CodesEntry;
use crate::format::pages::PageLayout;
use crate::partition::encoding::Encoding;
use crate::partition::plain_codes::{training_rows, write_codes};
use crate::partition::space::Space;
use crate::proximity::adjacency::Adjacency;
use crate::proximity::grow::Growth;

/// A graph with all its vectors in memory. It lacks the held-out vectors until [`GrownGraph::complete`].
pub(super) struct WholeGraph<'a> {
    growth: Growth<'a>,
    layout: PlacedLayout,
    held_out: Vec<u32>,
    /// The vectors in the graph, in the order of insertion.
    order: Vec<u32>,
}

impl<'a> WholeGraph<'a> {
    pub(super) fn grow(
        work: &Work<'a>,
        space: &'a Space,
        stages: &mut StageTimes,
    ) -> Result<WholeGraph<'a>, IndexError> {
        let (graph_options, seed) = (work.own, work.options.seed);
        let (threads, progress) = (work.threads, work.progress);
        let entry = space.medoid(&[], threads, progress)?;
        let held_out = calibrate::hold_out(work.data, entry, work.options)?;
        let graph = Adjacency::new(space.count(), graph_options.max_degree)?;
        let growth = Growth { space, graph, entry, options: graph_options.growth(), seed, threads, progress };
        let order = match &work.options.card {
            Some(card) => growth.passes_on_card(card, &held_out)?,
            None => growth.passes(&held_out)?,
        };
        growth.finish(&order)?;
        stages.end("grow graph");
        let layout = PlacedLayout::new(work, space)?;
        stages.end("place vectors");
        Ok(WholeGraph { growth, layout, held_out, order })
    }
}

impl GrownGraph for WholeGraph<'_> {
    fn held_out(&self) -> &[u32] {
        &self.held_out
    }

    fn hidden(&self) -> Vec<u32> {
        self.layout.hidden(&self.held_out)
    }

    fn identify(&mut self, work: &Work<'_>) -> Result<Identity, IndexError> {
        let identity = work.identity.and(&format!("links {:016x}", self.growth.graph.hash()));
        self.layout.identify(identity);
        Ok(identity)
    }

    fn write(&self, work: &Work<'_>) -> Result<GraphFiles, IndexError> {
        self.layout.write(work, &self.growth)
    }

    fn write_codes(&self, work: &Work<'_>) -> Result<CodesEntry, IndexError> {
        let space = self.growth.space;
        let (count, dim, row_bytes) = (space.count(), space.dim(), space.row_bytes());
        let [by_id, by_place] = [None, self.layout.order()].map(|order| {
            let reader = move |_| {
                move |place, out: &mut [f32]| {
                    space.row_f32(order.map_or(place as u32, |order| order[place]), out);
                    Ok(())
                }
            };
            Encoding { work, count, dim, row_bytes, reader }
        });
        let sample = by_id.sample(training_rows(count))?;
        write_codes(&by_place, work.own.codes(), sample)
    }

    fn section(&self, work: &Work<'_>, files: GraphFiles, codes: CodesEntry) -> GraphEntry {
        self.layout.section(files, codes, self.growth.entry, work.own)
    }

    fn complete(&mut self, work: &Work<'_>) -> Result<(), IndexError> {
        let (alpha, search_list) = (work.own.alpha, work.own.search_list);
        self.growth.insert("inserting held-out vectors", &self.held_out, alpha, search_list)?;
        self.order.extend(&self.held_out);
        self.growth.finish(&self.order)
    }

    fn links(&self) -> u64 {
        let graph = &self.growth.graph;
        (0..graph.count() as u32).map(|id| graph.degree(id) as u64).sum()
    }
}

/// The layout of the graph's file, with the places of the vectors.
pub(super) enum PlacedLayout {
    Padded(PageLayout),
    Local(LocalPlacement),
    Csr(CsrLayout, Places),
}

impl PlacedLayout {
    /// Returns the padded layout, in which places are ids.
    pub(super) fn padded(
        data: &SourceVectors<'_>,
        graph_options: &GraphOptions,
    ) -> Result<PageLayout, IndexError> {
        PageLayout::choose(data.element(), data.dim() as u32, graph_options.max_degree)
            .map_err(IndexError::Parameter)
    }

    fn new(work: &Work<'_>, space: &Space) -> Result<PlacedLayout, IndexError> {
        let (data, graph_options, progress) = (work.data, work.own, work.progress);
        let (seed, threads) = (work.options.seed, work.threads);
        match graph_options.layout {
            GraphLayoutChoice::Padded => PlacedLayout::padded(data, graph_options).map(PlacedLayout::Padded),
            GraphLayoutChoice::PageLocal => {
                LocalPlacement::new(space, local_layout(data, graph_options)?, seed, threads, progress)
                    .map(PlacedLayout::Local)
            }
            GraphLayoutChoice::Csr => {
                let (dim, count) = (data.dim() as u32, data.count());
                let layout =
                    CsrLayout::new(data.element(), dim, count as u32, graph_options.max_degree, LINE_BYTES);
                let layout = layout.map_err(IndexError::Parameter)?;
                let places = Places::new(space, count, 1, seed, threads, progress)?;
                Ok(PlacedLayout::Csr(layout, places))
            }
        }
    }

    fn write(&self, work: &Work<'_>, growth: &Growth<'_>) -> Result<GraphFiles, IndexError> {
        let (directory, space, graph, progress) =
            (work.directory, growth.space, &growth.graph, work.progress);
        match self {
            PlacedLayout::Padded(layout) => {
                let file = write::write_graph(work, layout, |id, vector, links| {
                    vector.copy_from_slice(space.row(id));
                    links.extend(graph.neighbors(id));
                    Ok(())
                })?;
                Ok((file, None))
            }
            PlacedLayout::Local(placement) => {
                let links = placement.links(graph, growth.entry, growth.threads, progress)?;
                Ok((placement.write(directory, space, &links, progress)?, None))
            }
            PlacedLayout::Csr(layout, places) => {
                let (file, offsets) = pack::write_packed(directory, layout, places, space, graph, progress)?;
                Ok((file, Some(offsets)))
            }
        }
    }

    /// Sets the identity, with which the checksums begin.
    fn identify(&mut self, identity: Identity) {
        match self {
            PlacedLayout::Padded(layout) => *layout = layout.identified(identity),
            PlacedLayout::Local(placement) => placement.layout = placement.layout.identified(identity),
            PlacedLayout::Csr(layout, _) => *layout = layout.identified(identity),
        }
    }

    /// Returns the ids by place; `None` if places are ids.
    fn order(&self) -> Option<&[u32]> {
        match self {
            PlacedLayout::Padded(_) => None,
            PlacedLayout::Local(placement) => Some(&placement.order.ids),
            PlacedLayout::Csr(_, places) => Some(&places.ids),
        }
    }

    /// Returns the places of the held-out vectors, in rising order. No link leads to them, but they may be
    /// pivots, or share a page with other vectors.
    fn hidden(&self, held_out: &[u32]) -> Vec<u32> {
        let mut places = match self {
            PlacedLayout::Padded(_) => held_out.to_vec(),
            PlacedLayout::Local(placement) => held_out.iter().map(|id| placement.place_of(*id)).collect(),
            PlacedLayout::Csr(_, places) => held_out.iter().map(|id| places.place_of(*id)).collect(),
        };
        places.sort_unstable();
        places
    }

    pub(super) fn section(
        &self,
        files: GraphFiles,
        codes: CodesEntry,
        entry: u32,
        graph_options: &GraphOptions,
    ) -> GraphEntry {
        let (page_bytes, page_vectors, entry_point) = match self {
            PlacedLayout::Padded(layout) => (layout.page_bytes() as u32, 0, entry),
            PlacedLayout::Local(placement) => {
                let layout = &placement.layout;
                (layout.page_bytes() as u32, layout.records() as u32, placement.place_of(entry))
            }
            PlacedLayout::Csr(_, places) => (LINE_BYTES, 0, places.place_of(entry)),
        };
        let (file, offsets) = files;
        GraphEntry {
            file,
            offsets,
            layout: graph_options.layout.name().into(),
            page_bytes,
            page_vectors,
            max_degree: graph_options.max_degree,
            search_list: graph_options.search_list,
            alpha: graph_options.alpha,
            entry_point,
            codes,
            calibration: Calibration::default(),
        }
    }
}

pub(super) fn local_layout(
    data: &SourceVectors<'_>,
    graph_options: &GraphOptions,
) -> Result<LocalLayout, IndexError> {
    LocalLayout::choose(data.element(), data.dim() as u32, data.count() as u32, graph_options.max_degree)
        .map_err(IndexError::Parameter)
}
