//! The default number of queries that a thread interleaves: enough to hide the tier's latency. Beyond that,
//! queries over memory are limited by the second-level cache, in which their prefetched bytes wait.

use super::Index;
use crate::cost::Machine;
use crate::cost::demand::Demand;
use crate::family::Knob;
use crate::query::{FAR_LATENCY_NS, SearchMode, SearchParams, beam_width_on};
use std::sync::OnceLock;

/// Queries interleaved on a device that nobody has measured.
const UNMEASURED_IN_FLIGHT: usize = 16;
/// The fewest queries interleaved: queries differ, and in memory their loads hide each other's cache misses.
const LEAST_IN_FLIGHT: usize = 4;
/// The most queries interleaved: an engine has no more reads in flight than its depth.
const MOST_IN_FLIGHT: usize = 64;
/// Queries interleaved with a graphics card: while it answers some, the reads of others are in flight.
const ON_CARD_IN_FLIGHT: usize = 256;
/// The most queries interleaved on a remote tier.
const MOST_FAR_IN_FLIGHT: usize = 512;
/// Second-level cache of a core in bytes, if the system does not report it: that of most servers.
const USUAL_CACHE_BYTES: u64 = 1 << 20;

impl Index {
    /// Returns the default number of queries that a thread interleaves, with a candidate list of
    /// `search_list` and defaults for all else: as many as hide the tier's latency behind each other's
    /// rounds, within the cache (second-tier-memory, section 5). The default of a search for a recall depends
    /// on its whole effort.
    pub fn default_in_flight(&self, search_list: u32) -> usize {
        let effort = self.stored.family().effort_of(search_list);
        let params = SearchParams {
            k: 1,
            search_list: effort.search_list,
            probes: effort.probes,
            prune: effort.prune,
            beam_width: beam_width_on(self.loaded.profile()) as usize,
            multi_probe: 0,
            mode: SearchMode::Batched,
            timed: false,
            early: None,
        };
        self.suited_in_flight(&params)
    }

    /// Returns the default engine mode: batched, except for a graph on a remote tier, which is pipelined
    /// since a hop waits for the slowest of its reads. Over an emulated store of 31 ms (24,000 vectors of 384
    /// dimensions, beam width 16) a lone query takes 127 ms instead of 205 ms at the same recall, with 2%
    /// more reads.
    pub fn default_mode(&self) -> SearchMode {
        let hops = self.stored.family().knobs().contains(&Knob::BeamWidth);
        if hops && self.loaded.opened().card().is_none() && self.loaded.is_far() {
            SearchMode::Pipelined
        } else {
            SearchMode::Batched
        }
    }

    /// Returns the default number of queries that a thread interleaves in a search with these parameters.
    pub(super) fn suited_in_flight(&self, params: &SearchParams) -> usize {
        let (family, machine) = (self.stored.family(), self.loaded.machine());
        if let Some(together) = family.together().filter(|_| !machine.profile.addressable) {
            return together;
        }
        if let Some(card) = self.searcher().card() {
            // The requests that arrive while the card is busy are its next launch.
            return ON_CARD_IN_FLIGHT.min(card.slots as usize);
        }
        let demand = self.searcher().estimate(params, &machine).demand;
        suited(&machine, &demand, family.query_bytes(family.planned_list(params)))
    }
}

/// Returns the number of queries to interleave if each has this `demand` and holds `query_bytes` while it
/// runs.
fn suited(machine: &Machine<'_>, demand: &Demand, query_bytes: u64) -> usize {
    let profile = machine.profile;
    if profile.latency_ns == 0 && !profile.addressable {
        return UNMEASURED_IN_FLIGHT;
    }
    if profile.latency_ns >= FAR_LATENCY_NS {
        // Requests beyond the device's depth wait in its queue, and their queries with them.
        let reads_per_round = (demand.reads / demand.rounds.max(1.0)).max(1.0);
        let fitting = (f64::from(profile.depth) / reads_per_round) as usize;
        let hiding = demand.in_flight_to_hide(&machine.device());
        return hiding.min(fitting).clamp(LEAST_IN_FLIGHT, MOST_FAR_IN_FLIGHT);
    }
    // Bytes that are read in place are prefetched into the cache, which the queries share; other bytes wait
    // in buffers.
    let cache = if profile.addressable { cache_bytes() } else { u64::MAX };
    choose(demand.in_flight_to_hide(&machine.device()), query_bytes, cache)
}

/// Returns twice the number that hides the latency, because hops differ in length, if so many queries fit in
/// the cache. It returns no fewer than `hiding`, even if these do not fit.
fn choose(hiding: usize, query_bytes: u64, cache_bytes: u64) -> usize {
    let fitting = usize::try_from(cache_bytes / query_bytes.max(1)).unwrap_or(usize::MAX);
    hiding.saturating_mul(2).min(fitting).max(hiding).clamp(LEAST_IN_FLIGHT, MOST_IN_FLIGHT)
}

/// Returns the bytes of the second-level cache of a core.
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

/// Parses a size as the kernel writes it ("1024K", "2M"), and returns it in bytes.
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
    use crate::cost::demand::tests::device;
    use crate::cost::processor::Processor;
    use bathyal_tier::TierProfile;

    #[test]
    fn latency_determines_the_queries_and_the_cache_limits_additional_ones() {
        let cache = 1 << 20;
        for (hiding, query_bytes, expected) in [
            (1, 150_000, LEAST_IN_FLIGHT),
            (2, 150_000, LEAST_IN_FLIGHT),
            // Five hide the latency, six fit in the cache, ten are twice five.
            (5, 150_000, 6),
            (5, 10_000, 10),
            (5, 1 << 20, 5),
            (26, 150_000, 26),
            (4000, 1, MOST_IN_FLIGHT),
            (usize::MAX, 0, MOST_IN_FLIGHT),
        ] {
            assert_eq!(choose(hiding, query_bytes, cache), expected, "{hiding} {query_bytes}");
        }
    }

    #[test]
    fn the_number_depends_on_the_profile_and_not_on_addressability() {
        // Rounds of 3 us.
        let demand = Demand { rounds: 20.0, reads: 80.0, moved_bytes: 20_480.0, compute_ns: 60_000.0 };
        let suited = |profile: &TierProfile| {
            suited(&Machine { profile, processor: &Processor::REFERENCE }, &demand, 150_000)
        };
        let queue =
            |latency_ns, iops| TierProfile { addressable: false, ..device(latency_ns, 0.0, 512, iops) };
        assert_eq!(suited(&queue(0, 0.0)), UNMEASURED_IN_FLIGHT);
        let (near, far) = (suited(&queue(3_000, 1e9)), suited(&queue(75_000, 1e9)));
        assert!(near == LEAST_IN_FLIGHT && far > 24, "{near} {far}");
        assert!(suited(&queue(75_000, 100_000.0)) < far, "a slow device is busy with fewer");
        assert_eq!(suited(&device(0, 0.0, 64, 0.0)), LEAST_IN_FLIGHT);
    }

    #[test]
    fn sizes_of_caches_are_parsed() {
        assert_eq!(parse_size("1024K\n"), Some(1 << 20));
        assert_eq!(parse_size("2M"), Some(2 << 20));
        assert_eq!((parse_size("512"), parse_size(""), parse_size("xK")), (Some(512), None, None));
        assert!(cache_bytes() >= 1 << 10);
    }
}
