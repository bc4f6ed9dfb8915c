//! Tests that tables keep their promise, on data that are as bad as the promise allows, and that these tests
//! detect wrong tables.

use super::promise::{Promises, RATIO, Tables, USEFUL_RATIO};
use super::runs::{Fences, RunScratch, TableKey};
use crate::format::tables::TableLayout;
use bathyal_kernels::lsh::{Buckets, CompoundHashes, Ends, HashScratch};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const DIM: usize = 8;
const TABLES: usize = 16;
const BLOCK_BYTES: u32 = 128;
/// Blocks that a bucket fills only in part.
const EDGES: usize = 2;
/// Distance of the far vectors from the query, in units of the spread of all vectors: they are one per cent.
const FAR: f32 = 10.0;

/// A query at the origin, one vector at `radius` from it, one per cent far away, and all others just beyond
/// `ratio` times the radius.
struct Data {
    points: Vec<f32>,
    /// The place of the near vector.
    near: usize,
    radius: f64,
    ratio: f64,
}

fn direction(random: &mut StdRng) -> Vec<f32> {
    let values: Vec<f32> = (0..DIM).map(|_| (0..12).map(|_| random.random::<f32>() - 0.5).sum()).collect();
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    values.iter().map(|value| value / length).collect()
}

impl Data {
    fn new(count: usize, radius: f64, ratio: f64, random: &mut StdRng) -> Data {
        let beyond = (radius * ratio * 1.02) as f32;
        let near = random.random_range(0..count);
        let points = (0..count).flat_map(|id| {
            let distance = match id {
                _ if id == near => radius as f32,
                _ if id % 100 == 1 => FAR,
                _ => beyond,
            };
            direction(random).into_iter().map(move |value| value * distance)
        });
        Data { points: points.collect(), near, radius, ratio }
    }

    fn count(&self) -> usize {
        self.points.len() / DIM
    }

    /// Draws hashes as a build does.
    fn hashes(&self, hashes: usize, seed: u64) -> CompoundHashes {
        let mut centre = [0.0_f64; DIM];
        for point in self.points.chunks_exact(DIM) {
            centre.iter_mut().zip(point).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        let centre: Vec<f32> = centre.iter().map(|sum| (sum / self.count() as f64) as f32).collect();
        let apart =
            self.points.iter().zip(centre.iter().cycle()).map(|(value, centre)| f64::from(value - centre));
        let spread = (apart.map(|value| value * value).sum::<f64>() / self.count() as f64).sqrt();
        CompoundHashes::draw(&centre, spread, TABLES, hashes, seed)
    }

    /// Returns for each number of blocks of a table if a query that reads them looks at the near vector. The
    /// tables are sorted by the keys that `change` makes of the keys.
    fn succeeds<const N: usize>(
        &self,
        functions: &CompoundHashes,
        probes: [usize; N],
        change: &mut dyn FnMut(u128) -> u128,
    ) -> [bool; N] {
        let layout = TableLayout::new(0, BLOCK_BYTES, TABLES as u32, self.count() as u64).unwrap();
        let (mut centred, mut query) = (self.points.clone(), vec![0.0; DIM]);
        functions.subtract_centre(&mut centred);
        functions.subtract_centre(&mut query);
        let (mut keys, mut scratch, mut own) = (Vec::new(), HashScratch::default(), Vec::new());
        let (mut places, mut fences) = (Vec::new(), Vec::new());
        for table in 0..TABLES {
            functions.keys(table, &centred, &mut scratch, &mut keys);
            let mut entries: Vec<(u128, usize)> = keys.iter().map(|key| change(*key)).zip(0..).collect();
            entries.sort_unstable();
            fences.extend(entries.chunks(layout.block_ids()).flat_map(|block| block[0].0.to_le_bytes()));
            places.extend(entries.iter().position(|(_, id)| *id == self.near));
            functions.keys(table, &query, &mut scratch, &mut keys);
            own.push(TableKey { table: table as u32, key: change(keys[0]) });
        }
        let fences = Fences::from_bytes(&fences, &layout).map_err(|_| "unreadable").unwrap();
        let (mut scratch, mut runs) = (RunScratch::default(), Vec::new());
        probes.map(|probes| {
            fences.runs(&own, probes * TABLES, &mut scratch, &mut runs);
            runs.iter().zip(&places).enumerate().any(|(table, (run, place))| {
                let block = (table * fences.blocks() + place / layout.block_ids()) as u32;
                (run.first..run.first + run.count).contains(&block)
            })
        })
    }
}

/// Returns the promise of `hashes` values and `probes` blocks for some data.
fn promised(data: &Data, functions: &CompoundHashes, probes: usize) -> f64 {
    let scored = (probes.saturating_sub(EDGES) * TABLES * 28) as f64;
    let buckets = Buckets::new(functions.cell().into(), functions.hashes(), Ends::Circle);
    tables(data.count(), functions.hashes()).at(&buckets, data.ratio, data.radius, scored).probability
}

fn tables(count: usize, hashes: usize) -> Tables {
    Tables { vectors: count as f64, tables: TABLES as f64, hashes: hashes as f64 }
}

/// Returns true if `successes` of `tried` may have the probability of at least `promised`: if they are at
/// most three standard errors below.
fn may_be(successes: usize, tried: usize, promised: f64) -> bool {
    let error = (promised * (1.0 - promised) / tried as f64).sqrt();
    successes as f64 / tried as f64 >= promised - 3.0 * error
}

/// In data with one vector within R and nearly all at 2.05 R, a promise that assumes hashes of any width is
/// broken for all R that are small beside the far vectors.
#[test]
fn no_promise_is_broken_from_the_smallest_to_the_largest_radius() {
    let (seeds, probes) = (50, [4, 16, 64]);
    for hashes in [16, 32] {
        let mut most = 0.0_f64;
        for radius in (-6..=0).map(|power| 10_f64.powi(power)) {
            let mut counts = [(0, 0.0); 3];
            for seed in 0..seeds {
                let data = Data::new(3000, radius, RATIO, &mut StdRng::seed_from_u64(seed));
                let functions = data.hashes(hashes, seed);
                let succeeded = data.succeeds(&functions, probes, &mut |key| key);
                for ((count, succeeded), probes) in counts.iter_mut().zip(succeeded).zip(probes) {
                    count.0 += usize::from(succeeded);
                    count.1 += promised(&data, &functions, probes) / seeds as f64;
                }
            }
            for ((successes, promised), probes) in counts.into_iter().zip(probes) {
                let told = format!("{hashes} hashes, radius {radius}, {probes}: {successes}, {promised}");
                assert!(may_be(successes, seeds as usize, promised), "{told}");
                assert!(radius > 1e-3 || promised == 0.0, "{told}");
                most = most.max(promised);
            }
        }
        assert!(most > 0.5, "{hashes}: {most}");
    }
}

/// Returns false if there are too few successes at the middle or at an end of the radii of a promise.
/// `functions` makes hashes of those that were drawn, and `change` makes keys of their keys.
fn keeps(functions: impl Fn(CompoundHashes) -> CompoundHashes, mut change: impl FnMut(u128) -> u128) -> bool {
    let (count, hashes, seeds, probes) = (6000, 16, 60_u64, 3);
    // The spread is about that of the far vectors.
    let buckets = |cell: f32| Buckets::new(cell.into(), hashes, Ends::Circle);
    let drawn = Data::new(count, 0.01, USEFUL_RATIO, &mut StdRng::seed_from_u64(0)).hashes(hashes, 0);
    let promises = Promises::new(&tables(count, hashes), &buckets(drawn.cell()), USEFUL_RATIO);
    let radii = promises.radii(0.5, (TABLES * 28) as f64).expect("0.5 is promised");
    [radii.from, (radii.from * radii.to).sqrt(), radii.to].into_iter().all(|radius| {
        let (mut successes, mut sum) = (0, 0.0);
        for seed in 0..seeds {
            let data = Data::new(count, radius, USEFUL_RATIO, &mut StdRng::seed_from_u64(seed));
            let drawn = data.hashes(hashes, seed);
            sum += promised(&data, &drawn, probes);
            let [succeeded] = data.succeeds(&functions(drawn), [probes], &mut change);
            successes += usize::from(succeeded);
        }
        may_be(successes, seeds as usize, sum / seeds as f64)
    })
}

/// Returns hashes with other numbers. `change` is given the position of each number and the number.
fn changed(functions: &CompoundHashes, change: impl Fn(usize, f32) -> f32) -> CompoundHashes {
    let bytes = functions.to_bytes();
    let numbers = bytes.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number));
    let changed: Vec<u8> =
        numbers.enumerate().flat_map(|(at, number)| change(at, number).to_le_bytes()).collect();
    CompoundHashes::from_bytes(&changed, DIM, functions.tables(), functions.hashes()).unwrap()
}

/// Numbers before the offsets in the bytes of hashes: the cell and the centre.
const BEFORE_OFFSETS: usize = 1 + DIM;

#[test]
fn right_tables_keep_their_promise() {
    assert!(keeps(|drawn| drawn, |key| key));
}

#[test]
fn tables_with_random_keys_are_detected() {
    let mut random = StdRng::seed_from_u64(7);
    assert!(!keeps(|drawn| drawn, |_| random.random()));
}

#[test]
fn tables_with_offsets_of_a_wrong_range_are_detected() {
    let squeezed = |drawn: CompoundHashes| {
        let (values, middle) = (drawn.tables() * drawn.hashes(), (1 << (drawn.levels() - 1)) as f32);
        changed(&drawn, |at, number| match at.checked_sub(BEFORE_OFFSETS) {
            // One cell instead of half of all.
            Some(at) if at < values => middle + (number - middle) / middle,
            _ => number,
        })
    };
    assert!(!keeps(squeezed, |key| key));
}

#[test]
fn tables_with_wrong_widths_are_detected() {
    for factor in [1.0 / 16.0, 64.0] {
        let scaled = |drawn: CompoundHashes| {
            let values = drawn.tables() * drawn.hashes();
            changed(&drawn, |at, number| if at >= BEFORE_OFFSETS + values { number * factor } else { number })
        };
        assert!(!keeps(scaled, |key| key), "{factor}");
    }
}
