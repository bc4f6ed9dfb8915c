//! Walks from page to page of random vectors, on a card and on this processor.

use bathyal_gpu::Card;
use bathyal_gpu::graph::{Codes, Upload, write_query};
use bathyal_gpu::hops::Shape;
use bathyal_gpu::pages::{Hop, PageResponse, Pages, Parts, Slot};
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
/// Where walks begin, beside the nearest pivots.
const ENTRY: u32 = 77;
const STARTS: usize = 9;
/// Slots of the card.
const SLOTS: u32 = 4;

/// Pages, and what is asked of them.
pub struct Paged {
    codec: Codec,
    codes: Vec<u8>,
    records: u32,
    /// Of each page.
    links: Vec<Vec<u32>>,
    queries: Vec<Vec<f32>>,
    list: usize,
    width: usize,
    /// Links and ends of pages of a launch.
    room: usize,
}

/// The beams of a walk, and how many codes were scored.
type Beams = Vec<Vec<u32>>;

impl Paged {
    /// Of codes of `bytes` bytes at most of vectors of `dim` dimensions, `records` a page with up to `degree` links, of which a launch takes
    /// `room`.
    pub fn new(
        (kind, bytes, dim): (&str, usize, usize),
        (records, degree, room): (u32, usize, usize),
        (list, width): (usize, usize),
    ) -> Paged {
        let mut random = SmallRng::seed_from_u64(5);
        // Small whole numbers, so that many vectors are the same and as far away as others.
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
        Paged { codec, codes, records, links, queries, list, width, room }
    }

    /// What the card is told of codes.
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

    /// What it is told of queries.
    pub fn shape(&self, slots: u32) -> Shape {
        Shape { list: self.list as u32, width: self.width as u32, ids: self.room as u32, slots }
    }

    fn scores(&self, query: &CodeQuery, places: &[u32]) -> Vec<f32> {
        let mut scores = vec![0.0; places.len()];
        query.score(&self.codec, &self.codes, places, &mut scores);
        scores
    }

    /// Few pages of a hop at first, and more later, as searches do.
    fn width(&self, beams: usize) -> usize {
        if beams < 2 { self.width.div_ceil(2) } else { self.width }
    }

    /// The nearest pivots, and how much farther than a candidate a link may be: some more than what tells these apart.
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

    /// The beams of a walk, as a processor makes them.
    fn expected(&self, query: &CodeQuery) -> Beams {
        let (mut list, mut looked, mut opened) =
            (CandidateList::new(self.list), HashSet::new(), HashSet::new());
        let look = |near: &[u32], looked: &mut HashSet<u32>, list: &mut CandidateList| {
            for place in near {
                let page = place / self.records;
                if looked.insert(page) {
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
        look(&near, &mut looked, &mut list);
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
                look(&near, &mut looked, &mut list);
            }
        }
    }

    async fn answer(&self, cx: &Cx, slot: &mut Slot, answer: &mut PageResponse) -> Result<(), String> {
        slot.wait_for_response(cx, answer).await.map_err(|error| error.to_string())
    }

    async fn walk(&self, cx: Cx, mut slot: Slot, query: &CodeQuery) -> Result<Beams, String> {
        let numbers = query.plane_numbers();
        let head = [numbers.offset, numbers.bias, numbers.norm_factor, numbers.gain_factor];
        let high = if self.codec.plane_codes().is_some_and(|codes| codes.fine) { numbers.high } else { &[] };
        let asks = (self.list as u32, STARTS as u32, self.width(0) as u32);
        slot.begin(asks, ENTRY, |bytes| write_query(head, numbers.low, high, bytes), cx.task_waker());
        let (mut answer, mut beams, mut own) = (PageResponse::default(), Vec::new(), Vec::new());
        self.answer(&cx, &mut slot, &mut answer).await?;
        let (starts, slack) = self.starts(query);
        if answer.starts != starts {
            return Err(format!("begins at {:?} instead of {starts:?}", answer.starts));
        }
        loop {
            let pages = answer.pages.clone();
            beams.push(pages.clone());
            // A kernel that is wrong may go round in circles.
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
                let part = parts.next(&mut own);
                let width = if part.is_last { self.width(beams.len()) as u32 } else { 0 };
                let (links, continues) = (&links[part.links], part.continues);
                slot.submit(&Hop { links, ends: &own, continues, slack, width }, cx.task_waker());
                self.answer(&cx, &mut slot, &mut answer).await?;
                if answer.scored == 0 && !links.is_empty() {
                    return Err("links that nobody has scored".into());
                }
                if part.is_last {
                    break;
                }
            }
        }
    }

    /// Whether all walks on `card` are those of this processor; if not, in what.
    pub fn check(&self, card: &dyn Card) -> Result<(), String> {
        let said = |error: bathyal_gpu::GpuError| error.to_string();
        let mut upload = Upload::begin(card, self.codes(), VECTORS.into()).map_err(said)?;
        upload.append(&self.codes).map_err(said)?;
        let codes = upload.finish().map_err(said)?;
        let pages = Pages::start(card, codes, self.shape(SLOTS), self.records, None).map_err(said)?;
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
