//! Scans of groups of codes of random vectors, on a card and on the processor.

use super::stored::Stored;
use bathyal_gpu::scans::{Group, ScanShape, ScanUpload, Tables};
use bathyal_gpu::{Card, GpuError};
use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec, EncodeScratch, SCAN_BLOCK};
use bathyal_kernels::{Element, Metric, Neighbor};
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::{Control, Cx, Engine, EngineOptions};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

const GROUPS: usize = 25;
const QUERIES: usize = 6;
/// Slots of the card: fewer than running queries.
const SLOTS: u32 = 3;

/// Groups of codes, and queries.
pub struct Groups {
    codec: Codec,
    codes: Vec<u8>,
    held: Vec<usize>,
    centroids: Vec<Vec<f32>>,
    queries: Vec<Vec<f32>>,
    /// Number of places of each group.
    places: usize,
    list: usize,
}

/// Result of a query on a card.
struct ScanResult {
    /// Number of the query.
    query: usize,
    /// Number of codes that were found.
    found: u32,
    /// The best codes by place, or the nearest vectors by id.
    hits: Vec<Neighbor>,
}

impl Groups {
    /// Creates codes of at most `bytes` bytes of random vectors of `dim` dimensions, up to `places` in a
    /// group.
    pub fn new(kind: &str, bytes: usize, dim: usize, places: usize, list: usize, metric: Metric) -> Groups {
        let mut random = SmallRng::seed_from_u64(11);
        // Components are small whole numbers, so that many vectors and distances are equal.
        let mut row = || (0..dim).map(|_| random.random_range(0..3) as f32 - 1.0).collect::<Vec<f32>>();
        let centroids: Vec<Vec<f32>> = (0..GROUPS).map(|_| row()).collect();
        let queries = (0..QUERIES).map(|_| row()).collect();
        let sample: Vec<f32> = (0..600).flat_map(|_| row()).collect();
        let kind: CodeKind = kind.parse().unwrap();
        let codec = Codec::train(kind, bytes, metric, &sample, dim, 1, 1).unwrap();
        // One group has a single vector, one is full, and others are between.
        let held: Vec<usize> = (0..GROUPS).map(|g| (g * 37 % places + 1).min(places)).collect();
        let blocks = places.div_ceil(SCAN_BLOCK) * codec.block_bytes();
        let mut codes = vec![0; GROUPS * blocks];
        for ((codes, held), centroid) in codes.chunks_exact_mut(blocks).zip(&held).zip(&centroids) {
            let mut rows: Vec<f32> = (0..*held).flat_map(|_| row()).collect();
            // Equal vectors differ only in their places.
            if *held > 1 {
                rows.copy_within(0..dim, dim);
            }
            let used = held.div_ceil(SCAN_BLOCK) * codec.block_bytes();
            codec.encode_group(&rows, centroid, &mut codes[..used], &mut EncodeScratch::default());
        }
        Groups { codec, codes, held, centroids, queries, places, list }
    }

    /// Returns the shape of scans.
    pub fn shape(&self, slots: u32) -> ScanShape {
        let codes = self.codec.plane_codes().unwrap();
        ScanShape {
            code_bytes: codes.code_bytes as u32,
            factor_bytes: codes.factor_bytes as u32,
            plane_bytes: codes.bytes.len() as u32,
            groups: GROUPS as u32,
            group_blocks: self.places.div_ceil(SCAN_BLOCK) as u32,
            group_vectors: self.places as u32,
            list: self.list as u32,
            scanned: GROUPS as u32,
            slots,
        }
    }

    /// Returns the groups that query number `query` scans, in random order.
    fn scanned(&self, query: usize) -> Vec<Group> {
        let mut numbers: Vec<u32> = (0..GROUPS as u32).filter(|g| *g as usize % QUERIES != query).collect();
        numbers.shuffle(&mut SmallRng::seed_from_u64(query as u64));
        let distance = |group: u32| {
            let both = self.queries[query].iter().zip(&self.centroids[group as usize]);
            match self.codec.metric() {
                Metric::L2 => both.map(|(q, c)| (q - c) * (q - c)).sum::<f32>(),
                _ => -both.map(|(q, c)| q * c).sum::<f32>(),
            }
        };
        let group = |number: u32| Group {
            number,
            held: self.held[number as usize] as u32,
            distance: distance(number),
        };
        numbers.into_iter().map(group).collect()
    }

    /// Finds the best codes of a query on the processor.
    fn expected(&self, query: usize) -> Vec<Neighbor> {
        let mut prepared = CodeQuery::new();
        prepared.prepare_groups(&self.codec, &self.queries[query]);
        let (blocks, mut hits) = (self.codes.len() / GROUPS, Vec::new());
        for Group { number, held, distance } in self.scanned(query) {
            let codes = &self.codes[number as usize * blocks..][..blocks];
            let first = number * self.places as u32;
            prepared.scan_group(&self.codec, codes, held as usize, distance, f32::INFINITY, first, &mut hits);
        }
        hits.sort_unstable();
        hits.truncate(self.list);
        hits
    }

    /// Runs all queries on `card`. With `stored` vectors there, the results are the nearest of these;
    /// otherwise the best codes.
    fn run(&self, card: &dyn Card, stored: Option<&Stored>) -> Result<Vec<ScanResult>, GpuError> {
        let mut upload = ScanUpload::begin(card, self.shape(SLOTS))?;
        for piece in self.codes.chunks(1000) {
            upload.append(piece)?;
        }
        let scans = &upload.finish(stored.map(|stored| stored.upload(card)).transpose()?, None)?;
        let tier = Arc::new(DramTier::new(vec![0; 4096]));
        let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
        let (mut queries, mut scanned) = (0..QUERIES, Vec::new());
        let next = |cx: &Cx| {
            let (query, cx) = (queries.next()?, cx.clone());
            Some(async move {
                let mut slot = scans.wait_for_slot(&cx).await;
                let mut prepared = CodeQuery::new();
                prepared.prepare_groups(&self.codec, &self.queries[query]);
                let numbers = prepared.scan_numbers(&self.codec).unwrap();
                let tables = Tables {
                    mean_term: numbers.mean_term,
                    norm_unit: numbers.norm_unit,
                    offset: numbers.offset,
                    scale: numbers.scale,
                    tables: numbers.tables,
                    weights: numbers.weights,
                };
                let groups = self.scanned(query).into_iter();
                let vector = stored.map(|stored| (stored.query(query), self.wanted(query) as u32));
                slot.submit(&tables, groups, self.list as u32, vector, cx.task_waker())?;
                let mut hits = Vec::new();
                let push = |distance, id| hits.push(Neighbor { distance, id });
                let found = slot.wait_for_response(&cx, push).await?;
                Ok(ScanResult { query, found, hits })
            })
        };
        engine.run(QUERIES, next, |scan| scanned.push(scan), Control::default()).unwrap();
        assert_eq!(scanned.len(), QUERIES);
        scanned.into_iter().collect()
    }

    /// Returns the number of nearest vectors that a query requests: fewer than a block has threads, or more.
    fn wanted(&self, query: usize) -> usize {
        (60 * query + 1).min(self.list)
    }

    /// Compares all scans on `card` with those of the processor. Returns a description of the first
    /// difference.
    pub fn check(&self, card: &dyn Card) -> Result<(), String> {
        for ScanResult { query, found, hits } in self.run(card, None).map_err(|error| error.to_string())? {
            let expected = self.expected(query);
            let same =
                |a: &Neighbor, b: &Neighbor| a.id == b.id && a.distance.to_bits() == b.distance.to_bits();
            let differ = hits.iter().zip(&expected).position(|(a, b)| !same(a, b));
            let short = (hits.len() != expected.len() || found as usize != hits.len())
                .then_some(hits.len().min(expected.len()));
            if let Some(at) = differ.or(short) {
                return Err(format!(
                    "query {query}, {at}: {:?} instead of {:?}",
                    hits.get(at),
                    expected.get(at)
                ));
            }
        }
        Ok(())
    }

    /// Creates a vector for each place of all groups.
    pub fn stored(&self, form: (Element, bool, Metric), dim: usize) -> Stored {
        Stored::new(form, dim, GROUPS * self.places, QUERIES)
    }

    /// Compares all scans on `card`, which also has the vectors, with those of the processor. Returns a
    /// description of the first difference.
    pub fn check_resident(&self, card: &dyn Card, stored: &Stored) -> Result<(), String> {
        for ScanResult { query, found, hits } in
            self.run(card, Some(stored)).map_err(|error| error.to_string())?
        {
            let codes = self.expected(query);
            let expected = stored.nearest(query, codes.iter().map(|hit| hit.id), self.wanted(query));
            let hits: Vec<(f32, u32)> = hits.iter().map(|hit| (hit.distance, hit.id)).collect();
            if hits != expected || found as usize != codes.len() {
                return Err(format!("query {query}, {found} found: {hits:?} instead of {expected:?}"));
            }
        }
        Ok(())
    }
}
