//! Walks through pages of random vectors, on a card and on the processor.

use bathyal_gpu::graph::{Codes, GraphUpload, write_query};
use bathyal_gpu::hops::HopShape;
use bathyal_gpu::pages::{Hop, PageResponse, PageSearchParameters, Pages, Parts, Slot};
use bathyal_gpu::{Card, GpuError};
use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec, EncodeScratch};
use bathyal_kernels::{CandidateList, Metric, Neighbor};
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::{Control, Cx, Engine, EngineOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;
use std::sync::Arc;

/// The last page is not full.
const VECTORS: u32 = 500;
const QUERIES: usize = 5;
/// Entry point, at which walks begin in addition to the nearest pivots.
const ENTRY: u32 = 77;
/// Number of pivots at which a walk begins.
const STARTS: usize = 9;
/// Slots of the card.
const SLOTS: u32 = 4;

/// Pages of vectors, and queries.
pub struct Paged {
    codec: Codec,
    codes: Vec<u8>,
    /// Number of vectors of a page.
    records: u32,
    /// Links of each page.
    links: Vec<Vec<u32>>,
    queries: Vec<Vec<f32>>,
    list: usize,
    width: usize,
    /// Maximum number of links and ends of pages of a request.
    max_ids: usize,
}

/// The pages that a walk reads in each hop.
type Beams = Vec<Vec<u32>>;

impl Paged {
    /// Creates codes of at most `bytes` bytes of random vectors of `dim` dimensions. A page has `records`
    /// vectors and up to `degree` links, and a request up to `max_ids` links and ends of pages.
    pub fn new(
        (kind, bytes, dim): (&str, usize, usize),
        (records, degree, max_ids): (u32, usize, usize),
        (list, width): (usize, usize),
    ) -> Paged {
        let mut random = SmallRng::seed_from_u64(5);
        // Components are small whole numbers, so that many vectors and distances are equal.
        let mut row = |_| (0..dim).map(|_| random.random_range(0..3) as f32).collect::<Vec<f32>>();
        let mut rows: Vec<Vec<f32>> = (0..VECTORS).map(&mut row).collect();
        let queries = (0..QUERIES as u32).map(&mut row).collect();
        for at in 0..VECTORS as usize / 4 {
            rows[VECTORS as usize - 1 - at] = rows[at].clone();
        }
        let rows: Vec<f32> = rows.concat();
        let kind: CodeKind = kind.parse().unwrap();
        let codec = Codec::train(kind, bytes, Metric::L2, &rows, dim, 1, 1).unwrap();
        let mut codes = vec![0; VECTORS as usize * codec.code_bytes()];
        codec.encode(&rows, &mut codes, &mut EncodeScratch::default());
        let mut links_of = |_| {
            let degree = random.random_range(0..=degree);
            (0..degree).map(|_| random.random_range(0..VECTORS)).collect::<Vec<u32>>()
        };
        let links = (0..VECTORS.div_ceil(records)).map(&mut links_of).collect();
        Paged { codec, codes, records, links, queries, list, width, max_ids }
    }

    /// Returns the layout of the codes.
    pub fn codes(&self) -> Codes {
        let codes = self.codec.plane_codes().unwrap();
        let planes = codes.bytes.iter().map(|(plane, group)| Codes::plane(*plane, *group).unwrap());
        Codes {
            code_bytes: codes.code_bytes as u32,
            factor_bytes: codes.factor_bytes as u32,
            planes: planes.collect(),
            groups: codes.groups as u32,
            fine: codes.fine,
            pivots: (0..VECTORS).step_by(3).collect(),
            entry: ENTRY,
        }
    }

    /// Returns the shape of hops.
    pub fn shape(&self, slots: u32) -> HopShape {
        HopShape { list: self.list as u32, width: self.width as u32, ids: self.max_ids as u32, slots }
    }

    fn scores(&self, query: &CodeQuery, places: &[u32]) -> Vec<f32> {
        let mut scores = vec![0.0; places.len()];
        query.score(&self.codec, &self.codes, places, &mut scores);
        scores
    }

    /// Returns the maximum number of pages of the next hop: fewer at first, as in searches.
    fn width(&self, beams: usize) -> usize {
        if beams < 2 { self.width.div_ceil(2) } else { self.width }
    }

    /// Returns the nearest pivots, and the slack of links, which exceeds the differences of these pivots'
    /// distances.
    fn starts(&self, query: &CodeQuery) -> (Vec<u32>, f32) {
        let pivots = self.codes().pivots;
        let scores = self.scores(query, &pivots);
        let mut all: Vec<Neighbor> = pivots
            .iter()
            .zip(&scores)
            .map(|(id, distance)| Neighbor { distance: *distance, id: *id })
            .collect();
        all.sort_unstable();
        let slack = 1.5 * (all[STARTS].distance - all[0].distance);
        (all.iter().take(STARTS).map(|pivot| pivot.id).collect(), slack)
    }

    /// Computes the beams of a walk on the processor.
    fn expected(&self, query: &CodeQuery) -> Beams {
        let (mut list, mut scored_pages, mut opened) =
            (CandidateList::new(self.list), HashSet::new(), HashSet::new());
        let add_pages = |near: &[u32], scored_pages: &mut HashSet<u32>, list: &mut CandidateList| {
            for place in near {
                let page = place / self.records;
                if scored_pages.insert(page) {
                    let places: Vec<u32> =
                        (page * self.records..((page + 1) * self.records).min(VECTORS)).collect();
                    for (id, distance) in places.iter().zip(self.scores(query, &places)) {
                        list.insert(Neighbor { distance, id: *id });
                    }
                }
            }
        };
        let (mut near, slack) = self.starts(query);
        near.push(ENTRY);
        add_pages(&near, &mut scored_pages, &mut list);
        let mut beams: Beams = Vec::new();
        loop {
            let mut beam = Vec::new();
            while beam.len() < self.width(beams.len())
                && let Some(next) = list.next_unexpanded()
            {
                if opened.insert(next.id / self.records) {
                    beam.push(next.id / self.records);
                }
            }
            beams.push(beam.clone());
            if beam.is_empty() {
                return beams;
            }
            for page in beam {
                let links = &self.links[page as usize];
                let limit = list.threshold() + slack;
                let near = links.iter().zip(self.scores(query, links)).filter(|(_, d)| *d <= limit);
                let near: Vec<u32> = near.map(|(place, _)| *place).collect();
                add_pages(&near, &mut scored_pages, &mut list);
            }
        }
    }

    async fn walk(&self, cx: Cx, mut slot: Slot, query: &CodeQuery) -> Result<Beams, String> {
        let to_text = |error: GpuError| error.to_string();
        let numbers = query.plane_numbers();
        let head = [numbers.offset, numbers.bias, numbers.norm_factor, numbers.gain_factor];
        let high = if self.codec.plane_codes().is_some_and(|codes| codes.fine) { numbers.high } else { &[] };
        let (list, width) = (self.list as u32, self.width(0) as u32);
        let parameters = PageSearchParameters { list, starts: STARTS as u32, width };
        slot.begin(parameters, ENTRY, |bytes| write_query(head, numbers.low, high, bytes), cx.task_waker());
        let (mut response, mut beams, mut part_ends) = (PageResponse::default(), Vec::new(), Vec::new());
        slot.wait_for_response(&cx, &mut response).await.map_err(to_text)?;
        let (starts, slack) = self.starts(query);
        if response.starts != starts {
            return Err(format!("it begins at {:?} instead of {starts:?}", response.starts));
        }
        loop {
            let pages = response.pages.clone();
            beams.push(pages.clone());
            // The walk of a faulty kernel may never end.
            if pages.is_empty() || beams.len() > VECTORS as usize {
                return Ok(beams);
            }
            let links: Vec<u32> = pages.iter().flat_map(|page| self.links[*page as usize].clone()).collect();
            let ends = pages.iter().scan(0, |end, page| {
                *end += self.links[*page as usize].len() as u32;
                Some(*end)
            });
            let ends: Vec<u32> = ends.collect();
            let mut parts = Parts::new(&ends, slot.max_ids());
            loop {
                let part = parts.next(&mut part_ends);
                let width = if part.is_last { self.width(beams.len()) as u32 } else { 0 };
                let (links, continues) = (&links[part.links], part.continues);
                slot.submit(&Hop { links, ends: &part_ends, continues, slack, width }, cx.task_waker());
                slot.wait_for_response(&cx, &mut response).await.map_err(to_text)?;
                if response.scored == 0 && !links.is_empty() {
                    return Err("links were not scored".into());
                }
                if part.is_last {
                    break;
                }
            }
        }
    }

    /// Compares all walks on `card` with those of the processor. Returns a description of the first
    /// difference.
    pub fn check(&self, card: &dyn Card) -> Result<(), String> {
        let to_text = |error: GpuError| error.to_string();
        let mut upload = GraphUpload::begin(card, self.codes(), VECTORS.into()).map_err(to_text)?;
        upload.append(&self.codes).map_err(to_text)?;
        let codes = upload.finish().map_err(to_text)?;
        let pages = Pages::start(card, codes, self.shape(SLOTS), self.records, None).map_err(to_text)?;
        let slot = bathyal_gpu::pages::slot_bytes(pages.shape(), pages.codes());
        if pages.resident_bytes() < u64::from(SLOTS) * slot {
            return Err(format!("{} bytes for {SLOTS} slots", pages.resident_bytes()));
        }
        let tier = Arc::new(DramTier::new(vec![0; 4096]));
        let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
        let prepared: Vec<CodeQuery> = self
            .queries
            .iter()
            .map(|query| {
                let mut prepared = CodeQuery::new();
                self.codec.prepare(query, &mut prepared);
                prepared
            })
            .collect();
        let (mut queries, mut walked) = (prepared.iter().enumerate(), Vec::new());
        let next = |cx: &Cx| {
            let (number, query) = queries.next()?;
            let (cx, pages) = (cx.clone(), &pages);
            Some(async move {
                let slot = pages.wait_for_slot(&cx).await;
                (number, self.walk(cx, slot, query).await)
            })
        };
        engine.run(SLOTS as usize, next, |walk| walked.push(walk), Control::default()).unwrap();
        assert_eq!(walked.len(), QUERIES);
        for (number, beams) in walked {
            let (beams, expected) = (beams?, self.expected(&prepared[number]));
            if let Some(hop) =
                (0..expected.len().max(beams.len())).find(|hop| beams.get(*hop) != expected.get(*hop))
            {
                let (found, wanted) = (beams.get(hop), expected.get(hop));
                return Err(format!("query {number}, hop {hop}: {found:?} instead of {wanted:?}"));
            }
        }
        Ok(())
    }
}
