//! Emulation of a distant store: a first byte with a lognormal delay, a limit of requests a second, and one
//! link shared by all responses. Results that were measured with it are always marked as emulated.

use bathyal_store::StoreError;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Mutex;
#[cfg(feature = "client")]
use std::sync::PoisonError;
use std::time::{Duration, Instant};
#[cfg(feature = "client")]
use tokio::time::sleep_until;

/// The longest time that a request is queued for the request limit; beyond it, the emulated store asks for
/// fewer requests.
const MAX_QUEUE_TIME: Duration = Duration::from_millis(100);
/// The resolution of timers; shorter waits are skipped.
const TICK: Duration = Duration::from_millis(1);

/// The delays and limits of an emulated store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shaping {
    /// The median time to the first byte, in milliseconds.
    pub first_byte_ms: f64,
    /// The standard deviation of the logarithm of that time; at 0.4, one request in a hundred takes two and a
    /// half times the median.
    pub spread: f64,
    /// The most requests a second; 0 means no limit.
    pub requests_per_s: f64,
    /// The bytes a second of the link; 0 means no limit.
    pub bytes_per_s: f64,
}

impl Shaping {
    /// The store of cloud-native-vector-search, section 5.1: 31 ms, 20,000 GET/s, 5 Gbit/s.
    pub const PAPER: Shaping =
        Shaping { first_byte_ms: 31.0, spread: 0.4, requests_per_s: 20_000.0, bytes_per_s: 625e6 };
    /// Amazon S3 in one region: 5,500 GET/s a prefix, a machine with 10 Gbit/s.
    pub const S3: Shaping =
        Shaping { first_byte_ms: 15.0, spread: 0.6, requests_per_s: 5_500.0, bytes_per_s: 1.25e9 };
    /// Amazon S3 Express One Zone, in the same zone.
    pub const S3_EXPRESS: Shaping =
        Shaping { first_byte_ms: 4.0, spread: 0.3, requests_per_s: 100_000.0, bytes_per_s: 1.25e9 };
    /// A store in the same rack.
    pub const RACK: Shaping =
        Shaping { first_byte_ms: 1.0, spread: 0.3, requests_per_s: 50_000.0, bytes_per_s: 1.25e9 };

    /// Returns the settings called `name`: `paper`, `s3`, `s3-express` or `rack`.
    ///
    /// # Errors
    /// [`StoreError::Address`] for another name.
    pub fn named(name: &str) -> Result<Shaping, StoreError> {
        match name {
            "paper" => Ok(Shaping::PAPER),
            "s3" => Ok(Shaping::S3),
            "s3-express" => Ok(Shaping::S3_EXPRESS),
            "rack" => Ok(Shaping::RACK),
            other => Err(StoreError::Address(format!(
                "'{other}' is no store that can be emulated; choose one of paper, s3, s3-express, rack"
            ))),
        }
    }
}

/// Delays requests and responses. All requests that share a store and a link share one shaper.
#[derive(Debug)]
pub struct Shaper {
    shaping: Shaping,
    state: Mutex<ShaperState>,
}

#[derive(Debug)]
struct ShaperState {
    random: SmallRng,
    /// The earliest start of the next request.
    next_request: Option<Instant>,
    /// The end of the last transfer over the link.
    link_free: Option<Instant>,
}

/// The error of an emulated store that asks for fewer requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowDown;

impl Shaper {
    /// Makes a shaper that draws its delays from `seed`.
    pub fn new(shaping: Shaping, seed: u64) -> Shaper {
        let random = SmallRng::seed_from_u64(seed);
        Shaper { shaping, state: Mutex::new(ShaperState { random, next_request: None, link_free: None }) }
    }

    /// Returns its delays and limits.
    pub fn shaping(&self) -> Shaping {
        self.shaping
    }

    /// Waits until the first byte of a response would arrive.
    ///
    /// # Errors
    /// [`SlowDown`] if requests come faster than the store accepts them.
    #[cfg(feature = "client")]
    pub async fn first_byte(&self) -> Result<(), SlowDown> {
        let now = Instant::now();
        let at = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let mut at = now;
            if self.shaping.requests_per_s > 0.0 {
                at = state.next_request.map_or(now, |next| next.max(now));
                if at > now + MAX_QUEUE_TIME {
                    return Err(SlowDown);
                }
                state.next_request = Some(at + Duration::from_secs_f64(1.0 / self.shaping.requests_per_s));
            }
            let late = self.shaping.first_byte_ms * (self.shaping.spread * normal(&mut state.random)).exp();
            at + Duration::from_secs_f64(late / 1e3)
        };
        if at > now + TICK / 2 {
            sleep_until(at.into()).await;
        }
        Ok(())
    }

    /// Waits until `bytes` more bytes would have crossed the link.
    #[cfg(feature = "client")]
    pub async fn transfer(&self, bytes: u64) {
        if self.shaping.bytes_per_s <= 0.0 {
            return;
        }
        let now = Instant::now();
        let end = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let free = state.link_free.map_or(now, |free| free.max(now));
            let end = free + Duration::from_secs_f64(bytes as f64 / self.shaping.bytes_per_s);
            state.link_free = Some(end);
            end
        };
        if end > now + TICK {
            sleep_until(end.into()).await;
        }
    }
}

/// Draws a number from the standard normal distribution (Box and Muller).
fn normal(random: &mut SmallRng) -> f64 {
    let (radius, angle): (f64, f64) = (random.random_range(f64::MIN_POSITIVE..1.0), random.random());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn draws_are_normal_and_repeat_with_the_seed() {
        let draw = |seed| {
            let mut random = SmallRng::seed_from_u64(seed);
            (0..10_000).map(|_| normal(&mut random)).collect::<Vec<_>>()
        };
        let mut drawn = draw(1);
        assert_eq!(drawn, draw(1));
        drawn.sort_by(f64::total_cmp);
        for (share, expected) in [(0.01, -2.326), (0.5, 0.0), (0.99, 2.326)] {
            let found = drawn[(10_000.0 * share) as usize];
            assert!((found - expected).abs() < 0.1, "{share}: {found}");
        }
    }

    #[test]
    fn requests_beyond_the_limit_are_refused() {
        let shaping = Shaping { first_byte_ms: 0.0, spread: 0.0, requests_per_s: 1000.0, bytes_per_s: 0.0 };
        let shaper = Shaper::new(shaping, 0);
        let refused = run(async {
            let all = futures_util::future::join_all((0..500).map(|_| shaper.first_byte())).await;
            all.iter().filter(|answer| answer.is_err()).count()
        });
        // The requests of a tenth of a second are queued, and the clock advances a little while all are made.
        assert!((300..=400).contains(&refused), "{refused}");
    }

    #[test]
    fn responses_share_the_link() {
        let shaping = Shaping { first_byte_ms: 0.0, spread: 0.0, requests_per_s: 0.0, bytes_per_s: 1e6 };
        let shaper = Shaper::new(shaping, 0);
        let began = std::time::Instant::now();
        run(async {
            futures_util::future::join_all((0..10).map(|_| shaper.transfer(5_000))).await;
        });
        assert!(began.elapsed() >= Duration::from_millis(50));
    }
}
