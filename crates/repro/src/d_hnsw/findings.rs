//! What follows from the rows, in sentences that are computed from them.

use serde::Serialize;

use super::measure::RECALLS;
use super::rows::{Asked, Row};
use super::scheme::Scheme;
use super::subjects::{ALL, BALANCED, PAPER, Subject};

/// One thing that was found of a set.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub set: String,
    pub what: String,
    /// The number, where it is one.
    pub value: Option<f64>,
    /// As the report has it.
    pub here: String,
    /// What the paper has, where that can be said beside it.
    pub paper: Option<&'static str>,
}

/// What findings are computed from: all of one set.
pub(super) struct Findings<'a> {
    pub set: &'a str,
    pub rows: Vec<&'a Row>,
    pub asked: Vec<&'a Asked>,
}

fn over(a: f64, b: f64) -> f64 {
    a / b.max(1e-12)
}

impl<'a> Findings<'a> {
    /// Those of a set.
    pub(super) fn of(set: &'a str, rows: &'a [Row], asked: &'a [Asked]) -> Findings<'a> {
        let rows = rows.iter().filter(|row| row.of.set == set).collect();
        Findings { set, rows, asked: asked.iter().filter(|asked| asked.of.set == set).collect() }
    }

    /// The rows of figure 6: a scheme with `k` neighbours, by the list of candidates.
    pub(super) fn curve(&self, scheme: Scheme, k: u32) -> Vec<&'a Row> {
        let fits = |row: &&&Row| row.varied == "recall" && row.scheme == scheme.name() && row.k == k;
        self.rows.iter().filter(fits).copied().collect()
    }

    /// The row of the largest list of candidates.
    pub(super) fn last(&self, scheme: Scheme, k: u32) -> Option<&'a Row> {
        self.curve(scheme, k).last().copied()
    }

    /// The neighbours that there are curves of.
    pub(super) fn neighbours(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.rows.iter().map(|row| row.k).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// An index asked for a recall.
    pub(super) fn index(&self, subject: Subject, recall: f32) -> Option<&'a Asked> {
        let name = subject.name();
        self.asked.iter().find(|asked| asked.of.index == name && asked.asked == recall).copied()
    }

    /// Everything that can be said.
    pub(super) fn all(&self) -> Vec<Finding> {
        let mut all = Vec::new();
        for k in self.neighbours() {
            all.extend(self.schemes(k));
        }
        all.extend(self.loads());
        for recall in RECALLS {
            all.extend(self.designs(recall));
        }
        all
    }

    fn number(&self, what: String, value: f64, paper: Option<&'static str>) -> Finding {
        let here = if value >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") };
        Finding { set: self.set.to_owned(), what, value: Some(value), here: format!("{here} times"), paper }
    }

    /// Ratios of time at the largest list.
    fn schemes(&self, k: u32) -> Vec<Finding> {
        let time = |scheme: Scheme| self.last(scheme, k).map(|row| row.cost.wall_us);
        let ratio = |a: Scheme, b: Scheme| Some(over(time(a)?, time(b)?));
        let said = |what: &str| format!("{what}, time a query, top-{k}");
        let (naive, without) = match k {
            1 => (Some("some 110 times by table 1 (SIFT1M)"), Some("1.12 times (SIFT1M)")),
            10 => (
                Some("up to 117 times (SIFT1M), 121 (GIST1M)"),
                Some("up to 1.12 times (SIFT1M), 1.30 (GIST1M)"),
            ),
            _ => (None, None),
        };
        let pairs = [
            ("naive over d-HNSW", ratio(Scheme::Naive, Scheme::DHnsw), naive),
            ("without doorbell over d-HNSW", ratio(Scheme::WithoutDoorbell, Scheme::DHnsw), without),
            ("naive over ours", ratio(Scheme::Naive, Scheme::Ours), None),
            ("d-HNSW over ours", ratio(Scheme::DHnsw, Scheme::Ours), None),
        ];
        let found =
            |(what, value, paper): (&str, Option<f64>, _)| Some(self.number(said(what), value?, paper));
        pairs.into_iter().filter_map(found).collect()
    }

    /// How often sub-indexes are read.
    fn loads(&self) -> Vec<Finding> {
        let Some(k) = self.neighbours().first().copied() else { return Vec::new() };
        let rows = (self.last(Scheme::Naive, k), self.last(Scheme::DHnsw, k));
        let (Some(naive), Some(batched)) = rows else { return Vec::new() };
        vec![
            self.number("reads, naive over d-HNSW".into(), over(naive.cost.reads, batched.cost.reads), None),
            self.number(
                "round trips, naive over d-HNSW".into(),
                over(naive.cost.round_trips, batched.cost.round_trips),
                Some("3.547 over 0.00475, 747 times (SIFT1M)"),
            ),
        ]
    }

    /// Who is ahead for a recall, and what sub-indexes cost beside other families.
    fn designs(&self, recall: f32) -> Vec<Finding> {
        let there: Vec<&Asked> = ALL.iter().filter_map(|subject| self.index(*subject, recall)).collect();
        let best = |what: &str, of: fn(&Asked) -> f64, words: fn(f64) -> String| {
            let best = there.iter().min_by(|a, b| of(a).total_cmp(&of(b)))?;
            Some(Finding {
                set: self.set.to_owned(),
                what: format!("{what}, recall {recall}"),
                value: None,
                here: format!("{} ({})", best.of.index, words(of(best).abs())),
                paper: None,
            })
        };
        let mut all: Vec<Finding> = [
            best("most queries a second", |asked| -asked.cost.qps, |qps| format!("{qps:.0} queries/s")),
            best("shortest query alone", |asked| asked.alone_p50_us, |us| format!("{us:.0} us")),
            best(
                "fewest bytes in a batch",
                |asked| asked.cost.bytes,
                |bytes| format!("{bytes:.0} bytes a query"),
            ),
            best(
                "fewest bytes alone",
                |asked| asked.alone_bytes,
                |bytes| format!("{bytes:.0} bytes a query"),
            ),
        ]
        .into_iter()
        .flatten()
        .collect();
        let pair = |a: Subject, b: Subject| Some((self.index(a, recall)?, self.index(b, recall)?));
        if let Some((paper, cluster)) = pair(PAPER, Subject::Cluster).filter(|(_, b)| b.cost.bytes > 0.0) {
            let (batch, alone) =
                (over(paper.cost.bytes, cluster.cost.bytes), over(paper.alone_bytes, cluster.alone_bytes));
            let said = |how: &str| format!("bytes of partitions over groups, {how}, recall {recall}");
            all.push(self.number(said("in a batch"), batch, None));
            all.push(self.number(said("alone"), alone, None));
        }
        if let Some((paper, balanced)) = pair(PAPER, BALANCED) {
            let what = format!("bytes, sampled over balanced pivots, in a batch, recall {recall}");
            all.push(self.number(what, over(paper.cost.bytes, balanced.cost.bytes), None));
        }
        all
    }
}
