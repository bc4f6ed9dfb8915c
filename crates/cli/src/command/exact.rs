//! Comparison of answers with exact neighbours: recall and overall ratio.

use std::ops::Range;
use std::path::Path;

use bathyal_console::Failure;
use bathyal_index::Index;
use bathyal_kernels::Metric;
use bathyal_vectors::groundtruth::{GroundTruthError, MeanRecall, OverallRatio, check_exact};
use bathyal_vectors::{IdFile, NO_ID};
use serde::Serialize;

/// The quality of answers. The names of the fields are keys of `--json`: they are stable.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Quality {
    /// Mean recall@k; `None` without ground truth.
    pub recall: Option<f64>,
    /// Queries that `recall` leaves out because the ground truth names no neighbour for them; `None` without
    /// ground truth.
    pub recall_left_out: Option<usize>,
    /// Mean overall ratio@k; `None` without ground truth, if the ground truth has no distances, under ip, and
    /// if every query is left out.
    pub ratio: Option<f64>,
    /// 99th percentile of the ratio over the queries.
    pub ratio_p99: Option<f64>,
    /// Queries that `ratio` leaves out because they have no ratio; `None` if no query can have one.
    pub ratio_left_out: Option<usize>,
    /// The reason for which no query can have a ratio.
    #[serde(skip)]
    without_ratio: Option<String>,
}

impl Quality {
    /// Returns words about the queries that the recall leaves out; empty if there are none.
    pub(super) fn left_out_text(&self) -> String {
        match self.recall_left_out {
            None | Some(0) => String::new(),
            Some(left_out) => format!(", queries without a neighbour left out: {left_out}"),
        }
    }

    /// Returns a line about the ratio, with a line break before it; empty without ground truth.
    pub(super) fn ratio_line(&self, k: usize) -> String {
        let label = format!("\n{:<17}", format!("ratio@{k}"));
        if let Some(reason) = &self.without_ratio {
            return format!("{label}none: {reason}");
        }
        let Some(left_out) = self.ratio_left_out else { return String::new() };
        let figures = match (self.ratio, self.ratio_p99) {
            (Some(mean), Some(p99)) => format!("mean {mean:.4}, p99 {p99:.4}"),
            _ => "none".to_owned(),
        };
        let left_out = if left_out > 0 { format!(", queries left out: {left_out}") } else { String::new() };
        format!("{label}{figures}{left_out}")
    }
}

/// Accumulates the quality of blocks of answers.
pub(super) struct Judge<'a> {
    exact: &'a IdFile,
    metric: Metric,
    recall: MeanRecall,
    ratio: Option<OverallRatio>,
}

impl<'a> Judge<'a> {
    /// Creates a judge that compares answers under `metric` with `exact`.
    pub(super) fn new(exact: &'a IdFile, metric: Metric) -> Judge<'a> {
        Judge { exact, metric, recall: MeanRecall::default(), ratio: OverallRatio::new(metric, exact) }
    }

    /// Adds the answers to the queries `rows`: `rows x k` ids and distances.
    ///
    /// # Errors
    /// Answers whose shape does not agree with the exact neighbours.
    pub(super) fn add(
        &mut self,
        rows: Range<usize>,
        ids: &[u32],
        distances: &[f32],
        k: usize,
    ) -> Result<(), Failure> {
        let count = rows.len();
        let part = self.exact.slice(rows)?;
        self.recall.add(&part, ids, k, count)?;
        if let Some(ratio) = &mut self.ratio {
            ratio.add(&part, ids, distances, k, count)?;
        }
        Ok(())
    }

    /// Returns the quality of all answers so far.
    pub(super) fn quality(&self) -> Quality {
        let ratio = self.ratio.as_ref();
        let without_ratio = || match self.metric {
            Metric::InnerProduct => "an inner product is not a distance".to_owned(),
            _ => format!("{} holds no distances", self.exact.path().display()),
        };
        Quality {
            recall: self.recall.mean(),
            recall_left_out: Some(self.recall.left_out()),
            ratio: ratio.and_then(OverallRatio::mean),
            ratio_p99: ratio.and_then(OverallRatio::p99),
            ratio_left_out: ratio.map(OverallRatio::left_out),
            without_ratio: ratio.is_none().then(without_ratio),
        }
    }
}

/// Opens the file `path` of exact neighbours for a search of `index` for `k` neighbours of each of `queries`
/// queries.
///
/// # Errors
/// A bad file, or one that does not agree with the search.
pub(super) fn open(path: &Path, index: &Index, k: usize, queries: usize) -> Result<IdFile, Failure> {
    let exact = IdFile::open(path)?;
    check_exact(&exact, k, queries)?;
    check_named(&exact, index.len(), k)?;
    Ok(exact)
}

/// Checks that all ids of `exact` are below `vectors`, and that it names a neighbour for at least one query.
///
/// # Errors
/// An id out of range, or no neighbour at all.
pub(super) fn check_named(exact: &IdFile, vectors: usize, k: usize) -> Result<(), Failure> {
    exact.check_ids(vectors)?;
    if exact.all_ids().iter().all(|id| *id == NO_ID) {
        let path = exact.path().display().to_string();
        return Err(GroundTruthError::NoNeighbors { path, k, queries: exact.queries() }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_console::Kind;

    /// Returns the ratio line for one query with the exact distances 0 and 4, for which other ids were found.
    fn line(metric: Metric, truth: Option<Vec<f32>>, distances: &[f32]) -> String {
        let exact = IdFile::from_parts(2, vec![0, 1], truth).unwrap();
        let mut judge = Judge::new(&exact, metric);
        judge.add(0..1, &[7, 8], distances, 2).unwrap();
        assert_eq!(judge.quality().recall, Some(0.0));
        judge.quality().ratio_line(2)
    }

    #[test]
    fn queries_without_a_neighbour_are_left_out_and_counted() {
        let exact = IdFile::from_parts(2, vec![3, NO_ID, NO_ID, NO_ID], None).unwrap();
        check_named(&exact, 4, 2).unwrap();
        assert!(check_named(&exact, 3, 2).is_err(), "id 3 is out of range for 3 vectors");
        let mut judge = Judge::new(&exact, Metric::L2);
        judge.add(0..1, &[3, 3], &[0.0; 2], 2).unwrap();
        judge.add(1..2, &[NO_ID; 2], &[0.0; 2], 2).unwrap();
        let quality = judge.quality();
        assert_eq!((quality.recall, quality.recall_left_out), (Some(1.0), Some(1)));
        assert_eq!(quality.left_out_text(), ", queries without a neighbour left out: 1");
        let none = IdFile::from_parts(2, vec![NO_ID; 4], None).unwrap();
        let refused = check_named(&none, 4, 2).unwrap_err();
        assert_eq!(refused.kind, Kind::InvalidArgument);
    }

    #[test]
    fn a_line_says_the_ratio_or_why_there_is_none() {
        let truth = Some(vec![0.0, 4.0]);
        assert_eq!(
            line(Metric::L2, truth.clone(), &[0.0, 9.0]),
            "\nratio@2          mean 1.2500, p99 1.2500"
        );
        assert_eq!(
            line(Metric::L2, truth.clone(), &[1.0, 9.0]),
            "\nratio@2          none, queries left out: 1"
        );
        assert_eq!(
            line(Metric::InnerProduct, truth, &[0.0, 9.0]),
            "\nratio@2          none: an inner product is not a distance"
        );
        assert!(line(Metric::L2, None, &[0.0, 9.0]).ends_with("holds no distances"));
        assert_eq!(Quality::default().ratio_line(2), "");
    }
}
