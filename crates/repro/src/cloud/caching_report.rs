//! The part of the report about caches: simulated from the reads of real searches.

use std::fmt::Write as _;

use bathyal_console::{Failure, byte_size};
use bathyal_index::TOLD_ROUNDS;

use super::caching::{CONCURRENCIES, Cached, PARTS, POLICIES};
use super::effort::BEAM;
use super::report::{Report, marks};
use super::subjects::{GRAPH, SPANN};
use crate::document::Document;
use crate::draw::{Axes, Curve};
use crate::numbers::percent;

/// The size that the rounds are shown at, in parts of the index.
const SHOWN_PART: u64 = 4;

impl Report<'_> {
    /// Figures 5, 6 and 20 to 25.
    pub(super) fn caches(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        document.text += "\n## Caches (figures 5, 6 and 20 to 25)\n\n\
                          No cache was built for this: the reads of all queries, one after the other and beginning with nothing, run through exact\n\
                          simulations of a segmented LRU (`slru`, the paper's) and of S3-FIFO, over blocks of 4 KB of a graph and over whole lists.\n\
                          Sizes are parts of the bytes that ranges are read of; lists of fewer replicas are given as many bytes as those of 8. A\n\
                          round is saved when everything of it is in the cache. Queries a second are computed by the equations.\n";
        if self.cached.is_empty() {
            document.text += "\nNothing was traced.\n";
            return Ok(());
        }
        self.hits(&mut document.text);
        self.rounds(&mut document.text);
        document.text += "\nThe paper, GIST1M: SPANN at 0.995 hits 0.68 in 4 GB and 0.17 in 1 GB of its 13 GB; 2 replicas 0.778 and 8 0.467 in 4 GB at 0.97;\n\
             DiskANN 0.49 at 0.7 and 0.35 at 0.99, up to 1.41 times the queries/s; the first rounds hit nearly always. W from 4 to 64 gains 7.58\n\
             times, a cache at W = 4 1.25.\n";
        let axes = Axes { title: "Hit rate by size of the cache", x: "part of the index", y: "hit rate" };
        document.plot("figure-21.svg", &axes, &self.by_size())?;
        let axes = Axes { title: "Hit rate of a graph by round", x: "round", y: "hit rate" };
        document.plot("figure-23.svg", &axes, &self.by_round())
    }

    /// Figures 20, 21, 24 and 25.
    fn hits(&self, text: &mut String) {
        *text += &self.label();
        *text +=
            "| index | effort | recall | cache | of the index | policy | hits | of bytes | rounds | saved |";
        CONCURRENCIES.iter().for_each(|c| _ = write!(text, " computed queries/s, {c} at once | times |"));
        *text += "\n|---|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        for cached in self.cached {
            let _ = write!(
                text,
                "| {} | {} | {:.3} | {} | 1/{} | {} | {} | {} | {:.2} | {:.2} |",
                cached.index,
                cached.effort.words(),
                cached.recall,
                byte_size::format(cached.cache_bytes),
                cached.part,
                cached.policy,
                percent(Some(cached.hit_rate)),
                percent(Some(cached.byte_hit_rate)),
                cached.waves,
                cached.saved_waves,
            );
            for (_, without, with) in &cached.computed_qps {
                let _ = write!(text, " {with:.1} | {:.2} |", with / without.max(1e-9));
            }
            text.push('\n');
        }
    }

    fn shown(&self) -> impl Iterator<Item = &Cached> {
        let name = GRAPH.name();
        let fits = move |cached: &&Cached| {
            cached.index == name && cached.part == SHOWN_PART && cached.policy == POLICIES[0]
        };
        self.cached.iter().filter(fits)
    }

    /// Figure 23.
    fn rounds(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nHit rates of a graph by round, a cache of a quarter, segmented LRU (figure 23); the last column is of all rounds after\n\
             {TOLD_ROUNDS}.\n"
        );
        *text += "| W |";
        (1..=TOLD_ROUNDS).for_each(|round| _ = write!(text, " {round} |"));
        *text += " later |\n|---:|";
        (0..=TOLD_ROUNDS).for_each(|_| *text += "---:|");
        text.push('\n');
        for cached in self.shown() {
            let _ = write!(text, "| {} |", cached.effort.beam_width().unwrap_or(BEAM));
            for round in 0..=TOLD_ROUNDS {
                let _ = write!(text, " {} |", percent(cached.by_wave.get(round).copied()));
            }
            text.push('\n');
        }
    }

    fn by_size(&self) -> Vec<Curve> {
        let mut curves: Vec<Curve> = Vec::new();
        let usual = |cached: &&Cached| {
            let own = cached.effort.beam_width().is_none_or(|beam| beam == BEAM);
            let name = &cached.index;
            own && (cached.policy == POLICIES[0] || *name == GRAPH.name() || *name == SPANN.name())
        };
        for cached in self.cached.iter().filter(usual) {
            let beam = cached.effort.beam_width().map_or(String::new(), |beam| format!(" W {beam}"));
            let name = format!("{}{beam}, {}", cached.index, cached.policy);
            let point = (1.0 / cached.part as f64, cached.hit_rate);
            match curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.points.push(point),
                None => curves.push(marks(name, vec![point])),
            }
        }
        debug_assert!(curves.iter().all(|curve| curve.points.len() == PARTS.len()));
        curves
    }

    fn by_round(&self) -> Vec<Curve> {
        let curve = |cached: &Cached| {
            let points = cached.by_wave.iter().take(TOLD_ROUNDS).enumerate();
            let points = points.map(|(round, rate)| (round as f64 + 1.0, *rate)).collect();
            marks(format!("W {}", cached.effort.beam_width().unwrap_or(BEAM)), points)
        };
        self.shown().map(curve).collect()
    }
}
