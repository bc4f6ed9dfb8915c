//! Walks through a graph of random vectors, on a card and on the processor.

use super::stored::Stored;
use bathyal_gpu::graph::{Codes, GraphUpload, Navigation, write_query};
use bathyal_gpu::hops::{GraphSearchParameters, HopShape, Hops, Slot};
use bathyal_gpu::walks::{self, LinkUpload, WalkCounters};
use bathyal_gpu::{Card, GpuError};
use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec, EncodeScratch};
use bathyal_kernels::{CandidateList, Element, Metric, Neighbor};
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::{Control, Cx, Engine, EngineOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;
use std::sync::Arc;

const VECTORS: usize = 500;
const QUERIES: usize = 6;
/// Entry point, at which walks begin in addition to the nearest pivots.
const ENTRY: u32 = 77;
/// Slots of the card: fewer than queries.
const SLOTS: u32 = 4;

/// A graph, and queries.
pub struct Walks {
    codec: Codec,
    codes: Vec<u8>,
    links: Vec<Vec<u32>>,
    queries: Vec<Vec<f32>>,
    list: usize,
    width: usize,
}

impl Walks {
    /// Creates codes of at most `bytes` bytes of random vectors of `dim` dimensions, with up to `degree`
    /// links each.
    pub fn new(kind: &str, bytes: usize, dim: usize, degree: usize, (list, width): (usize, usize)) -> Walks {
        let mut random = SmallRng::seed_from_u64(7);
        // Components are small whole numbers, so that many vectors and distances are equal.
        let mut row = |_| (0..dim).map(|_| random.random_range(0..3) as f32).collect::<Vec<f32>>();
        let mut rows: Vec<Vec<f32>> = (0..VECTORS).map(&mut row).collect();
        let queries = (0..QUERIES).map(&mut row).collect();
        for at in 0..VECTORS / 4 {
            rows[VECTORS - 1 - at] = rows[at].clone();
        }
        let rows: Vec<f32> = rows.concat();
        let kind: CodeKind = kind.parse().unwrap();
        let codec = Codec::train(kind, bytes, Metric::L2, &rows, dim, 1, 1).unwrap();
        let mut codes = vec![0; VECTORS * codec.code_bytes()];
        codec.encode(&rows, &mut codes, &mut EncodeScratch::default());
        let mut list_of = |_| {
            let degree = random.random_range(0..=degree);
            (0..degree).map(|_| random.random_range(0..VECTORS as u32)).collect::<Vec<u32>>()
        };
        let links = (0..VECTORS).map(&mut list_of).collect();
        Walks { codec, codes, links, queries, list, width }
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
            pivots: (0..VECTORS as u32).step_by(3).collect(),
            entry: ENTRY,
        }
    }

    /// Returns the shape of hops.
    pub fn shape(&self, slots: u32) -> HopShape {
        let (list, width) = (self.list as u32, self.width as u32);
        HopShape { list, width, ids: (self.degree().max(9) * self.width) as u32, slots }
    }

    fn degree(&self) -> usize {
        self.links.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Returns the search parameters. A query may begin at more pivots than its list holds, and there may be
    /// more pivots than a block has threads.
    fn parameters(&self) -> GraphSearchParameters {
        GraphSearchParameters {
            list: self.list as u32,
            width: self.width as u32,
            starts: 12,
            step: self.width as u32,
        }
    }

    /// Computes the beams of a walk on the processor.
    fn expected(&self, query: &[f32]) -> Vec<Vec<u32>> {
        let (mut prepared, mut list) = (CodeQuery::new(), CandidateList::new(self.list));
        self.codec.prepare(query, &mut prepared);
        let (mut seen, mut ids, mut beams) = (HashSet::new(), self.starts(&prepared), Vec::new());
        loop {
            ids.retain(|id| seen.insert(*id));
            let mut scores = vec![0.0; ids.len()];
            prepared.score(&self.codec, &self.codes, &ids, &mut scores);
            for (id, distance) in ids.iter().zip(scores) {
                if distance <= list.threshold() {
                    list.insert(Neighbor { distance, id: *id });
                }
            }
            let beam: Vec<u32> =
                (0..self.width).map_while(|_| list.next_unexpanded()).map(|n| n.id).collect();
            ids = beam.iter().flat_map(|id| self.links[*id as usize].iter().copied()).collect();
            beams.push(beam);
            if beams.last().is_some_and(Vec::is_empty) {
                return beams;
            }
        }
    }

    /// Returns the nearest pivots and the entry point.
    fn starts(&self, query: &CodeQuery) -> Vec<u32> {
        let GraphSearchParameters { starts, step, .. } = self.parameters();
        let pivots: Vec<u32> = self.codes().pivots.into_iter().step_by(step as usize).collect();
        let mut scores = vec![0.0; pivots.len()];
        query.score(&self.codec, &self.codes, &pivots, &mut scores);
        let mut all: Vec<Neighbor> =
            pivots.iter().zip(scores).map(|(id, distance)| Neighbor { distance, id: *id }).collect();
        all.sort_unstable();
        all.iter().take(starts as usize).map(|pivot| pivot.id).chain([ENTRY]).collect()
    }

    /// Writes a query in the layout for cards.
    fn write(&self, query: &[f32], out: &mut Vec<u8>) {
        let mut prepared = CodeQuery::new();
        self.codec.prepare(query, &mut prepared);
        let numbers = prepared.plane_numbers();
        let head = [numbers.offset, numbers.bias, numbers.norm_factor, numbers.gain_factor];
        let high = if self.codec.plane_codes().is_some_and(|codes| codes.fine) { numbers.high } else { &[] };
        write_query(head, numbers.low, high, out);
    }

    async fn walk(&self, cx: Cx, mut slot: Slot, query: &[f32]) -> Result<Vec<Vec<u32>>, String> {
        slot.begin(self.parameters(), |bytes| self.write(query, bytes));
        let (mut ids, mut beams, mut next) = (vec![ENTRY], Vec::new(), Vec::new());
        loop {
            slot.submit(&ids, cx.task_waker());
            let response = slot.wait_for_response(&cx, &mut next).await;
            response.map_err(|error| error.to_string())?;
            ids = next.iter().flat_map(|id| self.links[*id as usize].iter().copied()).collect();
            beams.push(next.clone());
            // The walk of a faulty kernel may never end.
            if next.is_empty() || beams.len() > VECTORS {
                return Ok(beams);
            }
        }
    }

    fn navigation(&self, card: &dyn Card) -> Result<Navigation, GpuError> {
        let mut upload = GraphUpload::begin(card, self.codes(), VECTORS as u64)?;
        for piece in self.codes.chunks(1001) {
            upload.append(piece)?;
        }
        upload.finish()
    }

    /// Copies the codes, the links and the `stored` vectors to `card`, and starts the service.
    fn start(&self, card: &dyn Card, stored: &Stored) -> Result<walks::Walks, GpuError> {
        let mut links = LinkUpload::begin(card, self.degree() as u32, VECTORS as u64)?;
        self.links.iter().try_for_each(|some| links.append(some))?;
        let shape = walks::WalkShape { list: self.list as u32, slots: SLOTS };
        walks::Walks::start(card, self.navigation(card)?, links, stored.upload(card)?, (shape, None))
    }

    /// Creates a vector for each place.
    pub fn stored(&self, form: (Element, bool, Metric), dim: usize) -> Stored {
        Stored::new(form, dim, VECTORS, QUERIES)
    }

    /// Compares the results of walks that run entirely on `card` with those of the processor. Returns a
    /// description of the first difference.
    pub fn check_resident(&self, card: &dyn Card, stored: &Stored) -> Result<(), String> {
        let walks = self.start(card, stored).map_err(|error| error.to_string())?;
        let mut engine =
            Engine::new(Arc::new(DramTier::new(vec![0; 4096])), EngineOptions::default()).unwrap();
        let (mut queries, mut all) = (0..QUERIES, Vec::new());
        let wanted = |query: usize| (3 * query + 1).min(self.list);
        let next = |cx: &Cx| {
            let (query, cx) = (queries.next()?, cx.clone());
            let walks = &walks;
            Some(async move {
                let mut slot = walks.wait_for_slot(&cx).await;
                let vector = (stored.query(query), wanted(query) as u32);
                let write = |bytes: &mut Vec<u8>| self.write(&self.queries[query], bytes);
                if let Err(error) = slot.submit(self.parameters(), write, vector, cx.task_waker()) {
                    return (query, Err(error), Vec::new());
                }
                let mut found = Vec::new();
                let counters = slot.wait_for_response(&cx, |distance, id| found.push((distance, id))).await;
                (query, counters, found)
            })
        };
        engine.run(SLOTS as usize, next, |one| all.push(one), Control::default()).unwrap();
        for (query, counts, found) in all {
            let WalkCounters { hops, expanded, .. } = counts.map_err(|error| error.to_string())?;
            let beams = self.expected(&self.queries[query]);
            let places: Vec<u32> = beams.concat();
            if (hops as usize, expanded as usize) != (beams.len() - 1, places.len()) {
                return Err(format!("query {query}: {hops} hops, {expanded} expanded"));
            }
            let expected = stored.nearest(query, places.into_iter(), wanted(query));
            if found != expected {
                return Err(format!("query {query}: {found:?} instead of {expected:?}"));
            }
        }
        Ok(())
    }

    /// Compares all walks by hops on `card` with those of the processor. Returns a description of the first
    /// difference.
    pub fn check(&self, card: &dyn Card) -> Result<(), String> {
        let to_text = |error: GpuError| error.to_string();
        let hops = Hops::start(card, self.navigation(card).map_err(to_text)?, self.shape(SLOTS), None)
            .map_err(to_text)?;
        let tier = Arc::new(DramTier::new(vec![0; 4096]));
        let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
        let (mut queries, mut walked) = (self.queries.iter().enumerate(), Vec::new());
        let next = |cx: &Cx| {
            let (number, query) = queries.next()?;
            let (cx, hops) = (cx.clone(), &hops);
            Some(async move {
                let slot = hops.wait_for_slot(&cx).await;
                (number, self.walk(cx, slot, query).await)
            })
        };
        engine.run(SLOTS as usize, next, |walk| walked.push(walk), Control::default()).unwrap();
        for (number, beams) in walked {
            let (beams, expected) = (beams?, self.expected(&self.queries[number]));
            if let Some(hop) = (0..expected.len()).find(|hop| beams.get(*hop) != expected.get(*hop)) {
                let (found, wanted) = (beams.get(hop), &expected[hop]);
                return Err(format!("query {number}, hop {hop}: {found:?} instead of {wanted:?}"));
            }
        }
        let counted = hops.counters();
        match counted.asked >= counted.launches && counted.launches > 0 {
            true => Ok(()),
            false => Err(format!("{counted:?}")),
        }
    }
}
