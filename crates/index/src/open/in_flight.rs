//! How many queries a thread interleaves when the caller does not say: enough to hide the tier's latency, and beyond
//! that no more than the second-level cache holds.

use crate::cost::graph::in_flight_to_hide;
use bathyal_tier::TierProfile;
use std::sync::OnceLock;

/// Queries interleaved where reads come from a device behind a queue.
const DEVICE_IN_FLIGHT: usize = 16;
/// Queries interleaved at least where reads are loads: enough to hide misses of the cache.
const MEMORY_IN_FLIGHT: usize = 4;
/// Queries interleaved at most: more reads than an engine's depth cannot be in flight.
const MOST_IN_FLIGHT: usize = 64;
/// Nanoseconds that a query computes between two reads, at least: a beam of four vectors of some 100 dimensions, with
/// their links' codes, takes 3 to 6 microseconds.
const HOP_NS: u64 = 3_000;
/// Second-level cache of a core where the system does not say, in bytes: that of most servers.
const USUAL_CACHE_BYTES: u64 = 1 << 20;

/// Queries to interleave on a tier of this profile, each of which holds `query_bytes` while it runs.
pub(super) fn suited(profile: &TierProfile, query_bytes: u64) -> usize {
    if !profile.addressable {
        return DEVICE_IN_FLIGHT;
    }
    choose(profile.latency_ns, query_bytes, cache_bytes())
}

/// What hides the latency is not given up; twice that is worth having, because hops differ in length, but not worth
/// driving the queries out of the cache.
fn choose(latency_ns: u64, query_bytes: u64, cache_bytes: u64) -> usize {
    let hiding = in_flight_to_hide(latency_ns, HOP_NS);
    let fitting = usize::try_from(cache_bytes / query_bytes.max(1)).unwrap_or(usize::MAX);
    hiding.saturating_mul(2).min(fitting).max(hiding).clamp(MEMORY_IN_FLIGHT, MOST_IN_FLIGHT)
}

/// Bytes of the second-level cache of a core.
fn cache_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let read = |cache: u32, what: &str| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{cache}/{what}"))
        };
        let second = (0..8).find(|cache| read(*cache, "level").is_ok_and(|level| level.trim() == "2"));
        let size = second.and_then(|cache| read(cache, "size").ok());
        size.and_then(|size| parse_size(&size)).unwrap_or(USUAL_CACHE_BYTES)
    })
}

/// Bytes of a size as the kernel writes it: "1024K", "2M".
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_asks_for_queries_and_the_cache_limits_what_is_spare() {
        let cache = 1 << 20;
        for (latency_ns, query_bytes, expected) in [
            (0, 150_000, MEMORY_IN_FLIGHT),
            (300, 150_000, MEMORY_IN_FLIGHT),
            // Five hide it, six fit, ten would be the double.
            (12_000, 150_000, 6),
            (12_000, 10_000, 10),
            (12_000, 1 << 20, 5),
            (75_000, 150_000, 26),
            (10_000_000, 1, MOST_IN_FLIGHT),
            (u64::MAX, 0, MOST_IN_FLIGHT),
        ] {
            assert_eq!(choose(latency_ns, query_bytes, cache), expected, "{latency_ns} {query_bytes}");
        }
    }

    #[test]
    fn sizes_of_caches_are_read() {
        assert_eq!(parse_size("1024K\n"), Some(1 << 20));
        assert_eq!(parse_size("2M"), Some(2 << 20));
        assert_eq!((parse_size("512"), parse_size(""), parse_size("xK")), (Some(512), None, None));
        assert!(cache_bytes() >= 1 << 10);
    }
}
