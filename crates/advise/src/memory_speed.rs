//! The time of reading memory, by the size of what is read: caches hold all of a pilot, and a part of a whole
//! index.

use crate::available_memory::available_memory;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Bytes of the largest set that is measured: several times the last-level cache of most processors.
const MOST_BYTES: usize = 256 << 20;
/// Bytes of the smallest set, which the cache of a core holds.
const LEAST_BYTES: usize = 1 << 20;
/// Factor between two sizes.
const STEP: usize = 4;
/// The largest share of the available memory that the measurement takes.
const MEMORY_SHARE: u64 = 8;
/// Bytes of a read: a vector of some hundred floats, or a block of codes.
const BLOCK_BYTES: usize = 2048;
const BLOCK_WORDS: usize = BLOCK_BYTES / size_of::<u64>();
/// Blocks between a prefetch and its use.
const PREFETCH_DISTANCE: usize = 2;
/// The time of measuring one size.
const SIZE_TIME: Duration = Duration::from_millis(8);
/// Reads between two looks at the clock.
const READS_A_LOOK: usize = 256;
/// An odd factor with which consecutive reads are far from each other.
const SCATTER: usize = 0x9e37_79b9_7f4a_7c15;

/// Nanoseconds of a byte by the bytes of the set from which random blocks are read, on one thread.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MemorySpeed {
    /// In ascending order of size.
    points: Vec<SpeedPoint>,
}

/// A measured size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SpeedPoint {
    set_bytes: f64,
    byte_ns: f64,
}

impl MemorySpeed {
    /// Returns the speed of this machine, which is measured in some 100 ms at first use.
    pub(crate) fn of_this_machine() -> &'static MemorySpeed {
        static MEASURED: OnceLock<MemorySpeed> = OnceLock::new();
        MEASURED.get_or_init(|| {
            let share = available_memory().map_or(MOST_BYTES as u64, |bytes| bytes / MEMORY_SHARE);
            let most = usize::try_from(share).unwrap_or(MOST_BYTES).clamp(LEAST_BYTES, MOST_BYTES);
            let words: Vec<u64> = (0..most as u64 / 8).collect();
            let sizes = std::iter::successors(Some(LEAST_BYTES), |size| Some(size * STEP));
            let points = sizes.take_while(|size| *size <= most).map(|size| SpeedPoint {
                set_bytes: size as f64,
                byte_ns: measured_byte_ns(&words[..size / 8]),
            });
            MemorySpeed::of(points.collect())
        })
    }

    /// A larger set is not faster: noise may say so.
    fn of(mut points: Vec<SpeedPoint>) -> MemorySpeed {
        let mut most = 0.0_f64;
        for point in &mut points {
            most = most.max(point.byte_ns);
            point.byte_ns = most;
        }
        MemorySpeed { points }
    }

    /// Returns the nanoseconds of a byte in a set of so many bytes: interpolated between the measured sizes,
    /// and that of the nearest one beyond them.
    pub(crate) fn byte_ns(&self, set_bytes: f64) -> f64 {
        let above = self.points.iter().position(|point| point.set_bytes > set_bytes);
        match above {
            Some(0) => self.points[0].byte_ns,
            None => self.points.last().map_or(0.0, |last| last.byte_ns),
            Some(at) => {
                let (low, high) = (self.points[at - 1], self.points[at]);
                let share = (set_bytes / low.set_bytes).ln() / (high.set_bytes / low.set_bytes).ln();
                low.byte_ns + share * (high.byte_ns - low.byte_ns)
            }
        }
    }
}

/// Measures random reads of blocks of `words`.
fn measured_byte_ns(words: &[u64]) -> f64 {
    let blocks = words.len() / BLOCK_WORDS;
    let block = |read: usize| &words[read.wrapping_mul(SCATTER) % blocks * BLOCK_WORDS..][..BLOCK_WORDS];
    let (mut read, mut sum) = (0_usize, 0_u64);
    let mut read_some = |count: usize| {
        for _ in 0..count {
            bathyal_tier::prefetch(block(read + PREFETCH_DISTANCE).as_ptr().cast(), BLOCK_BYTES);
            sum = block(read).iter().fold(sum, |sum, word| sum.wrapping_add(*word));
            read += 1;
        }
        black_box(sum);
    };
    // A set that fits in a cache is in it after one pass; of others, some of it is.
    read_some(blocks);
    let (started, mut looks) = (Instant::now(), Vec::new());
    while started.elapsed() < SIZE_TIME {
        let look = Instant::now();
        read_some(READS_A_LOOK);
        looks.push(look.elapsed());
    }
    // On a busy machine, some looks include the time of other programs.
    looks.sort_unstable();
    looks.get(looks.len() / 2).map_or(0.0, |median| median.as_nanos() as f64)
        / (READS_A_LOOK * BLOCK_BYTES) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_sets_are_no_faster_and_the_ends_are_kept() {
        let point = |set_bytes, byte_ns| SpeedPoint { set_bytes, byte_ns };
        let speed = MemorySpeed::of(vec![point(1e6, 0.02), point(4e6, 0.01), point(16e6, 0.06)]);
        assert_eq!((speed.byte_ns(1.0), speed.byte_ns(4e6), speed.byte_ns(1e12)), (0.02, 0.02, 0.06));
        assert!((speed.byte_ns(8e6) - 0.04).abs() < 1e-12);
        assert_eq!(MemorySpeed::of(Vec::new()).byte_ns(1e6), 0.0);
    }

    #[test]
    fn memory_of_this_machine_has_a_speed() {
        let speed = MemorySpeed::of_this_machine();
        let (near, far) = (speed.byte_ns(1e6), speed.byte_ns(1e9));
        assert!(near > 0.0 && far >= near && far < 100.0, "{speed:?}");
    }
}
