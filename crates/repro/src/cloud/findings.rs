//! The paper's answers A1 to A3, held against what was measured here.

use serde::Serialize;

use super::caching::Cached;
use super::curves::{self, Counter, Values, at, bottom, counters, crossing, ratio, speeds, top};
use super::effort::BEAM;
use super::plan::{CONCURRENCIES, ENDS};
use super::points::Point;
use super::sets::Set;
use super::subjects::{DENSE, FEWER_REPLICAS, FINE_SHARE, GRAPH, REPLICAS, SHARE, SPANN, Subject};

/// Dimensions that differ by no more than this share count as the same.
const SAME_DIM: f64 = 0.25;
/// The size of the cache, in parts of the index, that policies and parameters are compared at.
const PART: u64 = 4;

/// One thing that the paper says, and what was found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    /// A1, A2 or A3.
    pub answer: &'static str,
    /// What the paper says.
    pub claim: &'static str,
    /// What was measured; speeds that differ by less than a twentieth count as the same.
    pub here: String,
    /// `None` where that cannot be said of what was measured.
    pub holds: Option<bool>,
}

fn claim(answer: &'static str, claim: &'static str, (here, holds): (String, Option<bool>)) -> Claim {
    Claim { answer, claim, here, holds }
}

/// What ratios of speeds are called, and how far from 1 they are before one is said to be faster.
const SPEED: &str = "queries/s";
const NOISE: f64 = 0.05;
const NOT_MEASURED: &str = "not measured";

/// A ratio, in words, and whether it is on the side of 1 that was said; a ratio of speeds by more than they vary.
fn against(what: &str, ratio: Option<f64>, above: bool) -> (String, Option<bool>) {
    let margin = if what.starts_with(SPEED) { NOISE } else { 0.0 };
    match ratio {
        Some(ratio) => {
            let held = if above { ratio > 1.0 + margin } else { ratio < 1.0 - margin };
            (format!("{what}: {ratio:.2} times"), Some(held))
        }
        None => (NOT_MEASURED.into(), None),
    }
}

/// What is measured most: the first and the last of what was asked for that there are speeds of.
pub(super) fn measured_concurrencies(points: &[Point], wanted: &[usize]) -> Vec<usize> {
    let there = |c: usize| points.iter().any(|point| point.loads.iter().any(|load| load.concurrency == c));
    let found: Vec<usize> = wanted.iter().copied().filter(|c| there(*c)).collect();
    if !found.is_empty() {
        return found;
    }
    let mut all: Vec<usize> = points.iter().flat_map(|p| p.loads.iter().map(|l| l.concurrency)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What the answers are computed from.
pub(super) struct Findings<'a> {
    pub points: &'a [Point],
    pub sets: &'a [Set],
    pub cached: &'a [Cached],
}

impl Findings<'_> {
    fn speeds(&self, set: &str, subject: Subject, beam: Option<u32>, concurrency: usize) -> Values {
        speeds(&curves::of(self.points, set, subject, beam), concurrency)
    }

    fn counted(&self, set: &str, subject: Subject, beam: Option<u32>, of: impl Fn(&Point) -> f64) -> Values {
        counters(&curves::of(self.points, set, subject, beam), of)
    }

    /// Graph and posting lists of a set with so many queries at once.
    pub(super) fn both(&self, set: &str, concurrency: usize) -> (Values, Values) {
        (self.speeds(set, GRAPH, Some(BEAM), concurrency), self.speeds(set, SPANN, None, concurrency))
    }

    /// Everything that the paper says and that can be held against what was measured.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let mut all = self.what_for_what();
        all.extend(self.design());
        all.extend(self.caching());
        all
    }

    fn first(&self) -> &str {
        self.sets.first().map_or("", |set| &set.name)
    }

    /// A1.
    fn what_for_what(&self) -> Vec<Claim> {
        let set = self.first();
        let concurrencies = measured_concurrencies(self.points, &CONCURRENCIES);
        let (few, many) =
            (concurrencies.first().copied().unwrap_or(1), concurrencies.last().copied().unwrap_or(1));
        let (graph, spann) = self.both(set, few);
        let alone = crossing(&graph, &spann);
        let ahead = (
            format!("graph ahead with {few} at once: {}", alone.words()),
            alone.recall().map(|recall| recall > 1.0),
        );
        let (graph, spann) = self.both(set, many);
        let high = top(&graph, &spann);
        let at_top = high.and_then(|recall| ratio(&graph, &spann, recall));
        let what = format!("{SPEED}, graph over spann with {many} at once at {:.3}", high.unwrap_or(0.0));
        let crossings: Vec<_> = concurrencies
            .iter()
            .map(|c| {
                let (graph, spann) = self.both(set, *c);
                (*c, crossing(&graph, &spann))
            })
            .collect();
        let recalls: Option<Vec<f64>> = crossings.iter().map(|(_, crossing)| crossing.recall()).collect();
        let falls =
            recalls.map(|recalls| recalls.is_sorted_by(|a, b| a >= b) && recalls.first() > recalls.last());
        let words: Vec<String> =
            crossings.iter().map(|(c, crossing)| format!("{c}: {}", crossing.words())).collect();
        vec![
            claim("A1", "SPANN is faster for one query at a time, at all recalls (figure 7)", ahead),
            claim(
                "A1",
                "DiskANN is faster at high recall and many queries at once (figure 7)",
                against(&what, at_top, true),
            ),
            claim(
                "A1",
                "the more queries at once, the lower the recall from which DiskANN is ahead",
                (words.join("; "), falls),
            ),
            self.shift("fewer dimensions shift the balance to SPANN (figures 10 and 11)", |of, than| {
                of.base.element() == than.base.element() && of.base.dim() < than.base.dim()
            }),
            self.shift("smaller elements shift the balance to SPANN (figure 12)", |of, than| {
                let dims = of.base.dim() as f64 / than.base.dim().max(1) as f64;
                of.base.element().bits() < than.base.element().bits() && (dims - 1.0).abs() <= SAME_DIM
            }),
            claim(
                "A1",
                "larger sets shift the balance to SPANN: rounds of a graph grow (figure 13)",
                self.grows(),
            ),
        ]
    }

    /// Whether the graph's lead is smaller in a set than in another; `pair` says which two are compared.
    fn shift(&self, what: &'static str, pair: impl Fn(&Set, &Set) -> bool) -> Claim {
        let many = measured_concurrencies(self.points, &ENDS).last().copied().unwrap_or(1);
        let pairs = self.sets.iter().flat_map(|of| self.sets.iter().map(move |than| (of, than)));
        let Some((of, than)) = pairs.into_iter().find(|(of, than)| pair(of, than)) else {
            return claim("A1", what, (NOT_MEASURED.into(), None));
        };
        let curves = [of, than].map(|set| self.both(&set.name, many));
        let tops: Option<Vec<f64>> = curves.iter().map(|(graph, spann)| top(graph, spann)).collect();
        let Some(recall) = tops.map(|tops| tops.into_iter().fold(1.0, f64::min)) else {
            return claim("A1", what, (NOT_MEASURED.into(), None));
        };
        let ratios: Option<Vec<f64>> =
            curves.iter().map(|(graph, spann)| ratio(graph, spann, recall)).collect();
        let found = match ratios.as_deref() {
            Some([of_this, of_that]) => (
                format!(
                    "graph over spann with {many} at once at {recall:.3}: {of_this:.2} times in `{}`, {of_that:.2} in `{}`",
                    of.name, than.name
                ),
                Some(of_this < of_that),
            ),
            _ => (NOT_MEASURED.into(), None),
        };
        claim("A1", what, found)
    }

    /// The points of one effort by the number of vectors (figure 13).
    pub(super) fn growth(&self, subject: Subject) -> Vec<&Point> {
        let (set, name) = (self.first(), subject.name());
        let effort = super::effort::Effort::fixed(subject);
        let prefix = format!("{set}-n");
        let mut found: Vec<&Point> = self
            .points
            .iter()
            .filter(|point| point.index == name && point.effort == effort)
            .filter(|point| point.set == set || point.set.starts_with(&prefix))
            .collect();
        found.sort_by_key(|point| point.vectors);
        found
    }

    fn grows(&self) -> (String, Option<bool>) {
        let (graph, spann) = (self.growth(GRAPH), self.growth(SPANN));
        let ends = |points: &[&Point]| Some((points.first()?.rounds, points.last()?.rounds));
        let (Some(graphs), Some(lists), true) = (ends(&graph), ends(&spann), graph.len() > 1) else {
            return (NOT_MEASURED.into(), None);
        };
        let here = format!(
            "{} to {} vectors: rounds of the graph {:.1} to {:.1}, of the lists {:.1} to {:.1}",
            graph[0].vectors,
            graph[graph.len() - 1].vectors,
            graphs.0,
            graphs.1,
            lists.0,
            lists.1
        );
        (here, Some(graphs.1 > graphs.0 && lists.1 <= lists.0 + 0.5))
    }

    /// A2.
    fn design(&self) -> Vec<Claim> {
        let set = self.first();
        let ends = measured_concurrencies(self.points, &ENDS);
        let (few, many) = (ends.first().copied().unwrap_or(1), ends.last().copied().unwrap_or(1));
        let fine = Subject::Spann { centroid_share: FINE_SHARE, replicas: REPLICAS };
        let dense = Subject::Graph { max_degree: DENSE };
        let least = Subject::Spann { centroid_share: SHARE, replicas: FEWER_REPLICAS[1] };
        // One over the other, in speed or by a counter, at the highest recall of both or at the lowest.
        let fast = |(a, wa): (Subject, Option<u32>), (b, wb): (Subject, Option<u32>), c, high: bool| {
            let (a, b) = (self.speeds(set, a, wa, c), self.speeds(set, b, wb, c));
            let recall = if high { top(&a, &b) } else { bottom(&a, &b) };
            recall.and_then(|recall| ratio(&a, &b, recall))
        };
        let counted = |(a, wa): (Subject, Option<u32>), (b, wb), of: Counter| {
            let (a, b) = (self.counted(set, a, wa, of), self.counted(set, b, wb, of));
            top(&a, &b).and_then(|recall| ratio(&a, &b, recall))
        };
        let (of_lists, of_graph) = ((SPANN, None), (GRAPH, Some(BEAM)));
        let named = |what: &str, concurrency: usize| format!("{what} with {concurrency} at once");
        vec![
            claim(
                "A2",
                "twice the centroids read fewer bytes for a recall (figure 15: 1.47 times fewer)",
                against("bytes", counted((fine, None), of_lists, |point| point.bytes), false),
            ),
            claim(
                "A2",
                "twice the centroids are faster at high recall and many queries at once (figure 14: up to 3.14 times)",
                against(&named("queries/s", many), fast((fine, None), of_lists, many, true), true),
            ),
            claim(
                "A2",
                "twice the centroids are slower at low recall and few queries at once (figure 14)",
                against(&named("queries/s", few), fast((fine, None), of_lists, few, false), false),
            ),
            claim(
                "A2",
                "fewer replicas are slower for a recall (figure 16: 1.92 times with 2)",
                against(&named("queries/s", few), fast((least, None), of_lists, few, true), false),
            ),
            claim(
                "A2",
                "a denser graph takes fewer rounds (figure 18)",
                against("rounds", counted((dense, Some(BEAM)), of_graph, |point| point.rounds), false),
            ),
            claim(
                "A2",
                "a denser graph is faster with few and with many queries at once (figure 17: up to 1.85 times)",
                {
                    let both = [few, many].map(|c| fast((dense, Some(BEAM)), of_graph, c, true));
                    match both {
                        [Some(a), Some(b)] => (
                            format!("queries/s with {few} at once {a:.2} times, with {many} {b:.2}"),
                            Some(a > 1.0 + NOISE && b > 1.0 + NOISE),
                        ),
                        _ => (NOT_MEASURED.into(), None),
                    }
                },
            ),
            claim(
                "A2",
                "a wide beam is faster at high recall and few queries at once (figure 19: 1.85 times with 64)",
                against(
                    &named("queries/s, W 64 over 16,", few),
                    fast((GRAPH, Some(64)), of_graph, few, true),
                    true,
                ),
            ),
            claim(
                "A2",
                "a wide beam is slower with many queries at once (figure 19: GET limit)",
                against(
                    &named("queries/s, W 64 over 16,", many),
                    fast((GRAPH, Some(64)), of_graph, many, true),
                    false,
                ),
            ),
        ]
    }

    /// A cache of the size that is compared at.
    fn cache(&self, subject: Subject, beam: Option<u32>) -> Option<&Cached> {
        let name = subject.name();
        self.cached.iter().find(|cached| {
            (cached.index.as_str(), cached.effort.beam_width(), cached.policy, cached.part)
                == (name.as_str(), beam, "slru", PART)
        })
    }

    /// A3.
    fn caching(&self) -> Vec<Claim> {
        let least = Subject::Spann { centroid_share: SHARE, replicas: FEWER_REPLICAS[1] };
        let told = |a: Option<f64>, b: Option<f64>, what: (&str, &str), below: bool| match (a, b) {
            (Some(a), Some(b)) => {
                (format!("{} {a:.2}, {} {b:.2}", what.0, what.1), Some(if below { a < b } else { a > b }))
            }
            _ => (NOT_MEASURED.into(), None),
        };
        let hits = |cached: Option<&Cached>| cached.map(|cached| cached.hit_rate);
        let saved = |cached: Option<&Cached>| cached.map(|c| c.saved_waves / c.waves.max(1e-9));
        let gain = |cached: Option<&Cached>| {
            cached.and_then(|c| c.computed_qps.first().map(|(_, without, with)| with / without.max(1e-9)))
        };
        let graph = self.cache(GRAPH, Some(BEAM));
        let later = graph.and_then(|graph| {
            let later = graph.by_wave.get(1..).filter(|later| !later.is_empty())?;
            Some(later.iter().sum::<f64>() / later.len() as f64)
        });
        let (narrow, wide) = (self.cache(GRAPH, Some(4)), self.cache(GRAPH, Some(64)));
        let lists = self.cache(SPANN, None);
        vec![
            claim(
                "A3",
                "fewer replicas raise the hit rate of lists in a cache of one size (figure 24)",
                told(
                    hits(self.cache(least, None)),
                    hits(lists),
                    ("hit rate with 2 replicas", "with 8"),
                    false,
                ),
            ),
            claim(
                "A3",
                "the first rounds of a graph hit most (figure 23)",
                told(
                    graph.and_then(|g| g.by_wave.first().copied()),
                    later,
                    ("first round", "later ones"),
                    false,
                ),
            ),
            claim(
                "A3",
                "a graph saves fewer rounds than its hit rate says (figure 6)",
                told(saved(graph), hits(graph), ("rounds saved", "hit rate"), true),
            ),
            claim(
                "A3",
                "the wider the beam, the fewer rounds a cache saves (figure 25)",
                told(saved(wide), saved(narrow), ("rounds saved with W 64", "with W 4"), true),
            ),
            claim(
                "A3",
                "lists gain more from a cache than a graph with few queries at once (figure 20)",
                told(gain(lists), gain(graph), ("computed gain of lists", "of the graph"), false),
            ),
        ]
    }

    /// How many times the better of the paper's two another index is, with so many at once, at a recall.
    pub(super) fn over_both(&self, subject: Subject, concurrency: usize, recall: f64) -> Option<f64> {
        let set = self.first();
        let (graph, spann) = self.both(set, concurrency);
        let best = [at(&graph, recall), at(&spann, recall)].into_iter().flatten().reduce(f64::max)?;
        Some(at(&self.speeds(set, subject, None, concurrency), recall)? / best.max(1e-12))
    }
}
