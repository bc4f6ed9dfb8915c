//! A graph that is grown with all its vectors in memory, and the layouts that it is written in.

use super::adjacency::Adjacency;
use super::calibrate;
use super::grow::Growth;
use super::local::Placed;
use super::options::{GraphLayoutChoice, GraphOptions};
use super::pack;
use super::places::Places;
use super::section::GraphEntry;
use super::work::{GraphFiles, Grown, Work};
use super::write;
use crate::build::Stages;
use crate::calibrate::Calibration;
use crate::error::IndexError;
use crate::form::source::Source;
use crate::format::csr::{CsrLayout, LINE_BYTES};
use crate::format::identity::Identity;
use crate::format::local::LocalLayout;
use crate::format::manifest::CodesEntry;
use crate::format::pages::PageLayout;
use crate::partition::encoding::Encoding;
use crate::partition::space::Space;

/// A graph over all vectors but those held out.
pub(super) struct Whole<'a> {
    growth: Growth<'a>,
    layout: Layout,
    held_out: Vec<u32>,
    /// The vectors that are in the graph.
    order: Vec<u32>,
}

impl<'a> Whole<'a> {
    pub(super) fn grow(
        work: &Work<'a>,
        space: &'a Space,
        stages: &mut Stages,
    ) -> Result<Whole<'a>, IndexError> {
        let (own, seed, threads, progress) = (work.own, work.options.seed, work.threads, work.progress);
        let entry = space.medoid(&[], threads, progress)?;
        let held_out = calibrate::hold_out(work.data, entry, work.options);
        let graph = Adjacency::new(space.count(), own.max_degree)?;
        let growth = Growth { space, graph, entry, options: own, seed, threads, progress };
        let order = match &work.options.card {
            Some(card) => growth.passes_on_card(card, &held_out)?,
            None => growth.passes(&held_out)?,
        };
        growth.finish(&order)?;
        stages.end("grow graph");
        let layout = Layout::new(work, space)?;
        stages.end("place vectors");
        Ok(Whole { growth, layout, held_out, order })
    }
}

impl Grown for Whole<'_> {
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
        let sample = by_id.sample(write::training_rows(count))?;
        write::write_codes(&by_place, work.own.codes(), sample)
    }

    fn section(&self, work: &Work<'_>, files: GraphFiles, codes: CodesEntry) -> GraphEntry {
        self.layout.section(files, codes, self.growth.entry, work.own)
    }

    fn complete(&mut self, work: &Work<'_>) -> Result<(), IndexError> {
        let own = work.own;
        self.growth.insert("inserting held-out vectors", &self.held_out, own.alpha, own.search_list)?;
        self.order.extend(&self.held_out);
        self.growth.finish(&self.order)
    }

    fn links(&self) -> u64 {
        let graph = &self.growth.graph;
        (0..graph.count() as u32).map(|id| graph.degree(id) as u64).sum()
    }
}

/// The layout of the graph's file, with all that it takes to write it.
pub(super) enum Layout {
    Padded(PageLayout),
    Local(Placed),
    Csr(CsrLayout, Places),
}

impl Layout {
    /// The layout without places of its own.
    pub(super) fn padded(data: &Source<'_>, own: &GraphOptions) -> Result<PageLayout, IndexError> {
        PageLayout::choose(data.element(), data.dim() as u32, own.max_degree).map_err(IndexError::Parameter)
    }

    fn new(work: &Work<'_>, space: &Space) -> Result<Layout, IndexError> {
        let (data, own, progress) = (work.data, work.own, work.progress);
        let (seed, threads) = (work.options.seed, work.threads);
        match own.layout {
            GraphLayoutChoice::Padded => Layout::padded(data, own).map(Layout::Padded),
            GraphLayoutChoice::PageLocal => {
                Placed::new(space, local_layout(data, own)?, seed, threads, progress).map(Layout::Local)
            }
            GraphLayoutChoice::Csr => {
                let (dim, count) = (data.dim() as u32, data.count());
                let layout = CsrLayout::new(data.element(), dim, count as u32, own.max_degree, LINE_BYTES);
                let layout = layout.map_err(IndexError::Parameter)?;
                let places = Places::new(space, count, 1, seed, threads, progress)?;
                Ok(Layout::Csr(layout, places))
            }
        }
    }

    fn write(&self, work: &Work<'_>, growth: &Growth<'_>) -> Result<GraphFiles, IndexError> {
        let (directory, space, graph, progress) =
            (work.directory, growth.space, &growth.graph, work.progress);
        match self {
            Layout::Padded(layout) => {
                let file = write::write_graph(work, layout, |id, vector, links| {
                    vector.copy_from_slice(space.row(id));
                    links.extend(graph.neighbors(id));
                    Ok(())
                })?;
                Ok((file, None))
            }
            Layout::Local(placed) => {
                let links = placed.links(graph, growth.entry, growth.threads, progress)?;
                Ok((placed.write(directory, space, &links, progress)?, None))
            }
            Layout::Csr(layout, places) => {
                let (file, offsets) = pack::write_packed(directory, layout, places, space, graph, progress)?;
                Ok((file, Some(offsets)))
            }
        }
    }

    /// Sets what the checksums begin with.
    fn identify(&mut self, identity: Identity) {
        match self {
            Layout::Padded(layout) => *layout = layout.identified(identity),
            Layout::Local(placed) => placed.layout = placed.layout.identified(identity),
            Layout::Csr(layout, _) => *layout = layout.identified(identity),
        }
    }

    /// The ids by place, where these differ.
    fn order(&self) -> Option<&[u32]> {
        match self {
            Layout::Padded(_) => None,
            Layout::Local(placed) => Some(&placed.order.ids),
            Layout::Csr(_, places) => Some(&places.ids),
        }
    }

    /// The places of vectors that no link leads to, but that may be pivots or share a page with others: rising.
    fn hidden(&self, held_out: &[u32]) -> Vec<u32> {
        let mut places = match self {
            Layout::Padded(_) => held_out.to_vec(),
            Layout::Local(placed) => held_out.iter().map(|id| placed.place_of(*id)).collect(),
            Layout::Csr(_, places) => held_out.iter().map(|id| places.place_of(*id)).collect(),
        };
        places.sort_unstable();
        places
    }

    pub(super) fn section(
        &self,
        files: GraphFiles,
        codes: CodesEntry,
        entry: u32,
        own: &GraphOptions,
    ) -> GraphEntry {
        let (page_bytes, page_vectors, entry_point) = match self {
            Layout::Padded(layout) => (layout.page_bytes() as u32, 0, entry),
            Layout::Local(placed) => {
                let layout = &placed.layout;
                (layout.page_bytes() as u32, layout.records() as u32, placed.place_of(entry))
            }
            Layout::Csr(_, places) => (LINE_BYTES, 0, places.place_of(entry)),
        };
        let (file, offsets) = files;
        GraphEntry {
            file,
            offsets,
            layout: own.layout.name().into(),
            page_bytes,
            page_vectors,
            max_degree: own.max_degree,
            search_list: own.search_list,
            alpha: own.alpha,
            entry_point,
            codes,
            calibration: Calibration::default(),
        }
    }
}

pub(super) fn local_layout(data: &Source<'_>, own: &GraphOptions) -> Result<LocalLayout, IndexError> {
    LocalLayout::choose(data.element(), data.dim() as u32, data.count() as u32, own.max_degree)
        .map_err(IndexError::Parameter)
}
