//! The neighbours of the first queries, in the text and JSON output of a search.

use std::fmt::Write;
use std::ops::Range;

use bathyal_index::NO_ID;
use serde::Serialize;

use crate::shown::short;

/// Neighbours per line of the text output; JSON has all.
const SHOWN_NEIGHBORS: usize = 5;

/// The neighbours of one query. The names of the fields are keys of `--json`: they are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct QueryNeighbors {
    /// The query's row.
    pub query: usize,
    /// Ids, nearest first.
    pub ids: Vec<u32>,
    /// Distances, in the same order.
    pub distances: Vec<f32>,
}

/// The neighbours of the first queries.
#[derive(Debug)]
pub(super) struct FirstNeighbors {
    wanted: usize,
    found: Vec<QueryNeighbors>,
}

impl FirstNeighbors {
    /// Creates an empty collector for the first `wanted` queries.
    pub(super) fn of(wanted: u32) -> FirstNeighbors {
        FirstNeighbors { wanted: wanted as usize, found: Vec::new() }
    }

    /// Adds the neighbours of those queries of a block that are among the first. `range` maps a query's
    /// number within the block to the range of its answers in `ids` and `distances`.
    pub(super) fn take(
        &mut self,
        rows: Range<usize>,
        ids: &[u32],
        distances: &[f32],
        range: impl Fn(usize) -> Range<usize>,
    ) {
        let first = rows.start;
        for query in rows.take_while(|query| *query < self.wanted) {
            // `NO_ID` fills the end of a query that found fewer neighbours.
            let positions = range(query - first).filter(|at| ids[*at] != NO_ID);
            let (ids, distances) = positions.map(|at| (ids[at], distances[at])).unzip();
            self.found.push(QueryNeighbors { query, ids, distances });
        }
    }

    /// Returns the collected neighbours.
    pub(super) fn into_found(self) -> Vec<QueryNeighbors> {
        self.found
    }
}

/// Returns an aligned table of `found`, with a line break before it; empty if `found` is. `queries` is the
/// number of all queries, and `written` is true if their neighbours were written to a file.
pub(super) fn table(found: &[QueryNeighbors], queries: usize, written: bool) -> String {
    if found.is_empty() {
        return String::new();
    }
    let cells = found.iter().map(|found| {
        let pairs = found.ids.iter().zip(&found.distances).take(SHOWN_NEIGHBORS);
        pairs.map(|(id, distance)| (id.to_string(), short(*distance))).collect::<Vec<_>>()
    });
    let cells: Vec<Vec<(String, String)>> = cells.collect();
    let all = || cells.iter().flatten();
    let id_width = all().map(|(id, _)| id.len()).max().unwrap_or(0);
    let distance_width = all().map(|(_, distance)| distance.len()).max().unwrap_or(0);
    let mut text = "\nneighbours       id (distance), nearest first".to_owned();
    // Writing to a string does not fail.
    for (found, cells) in found.iter().zip(&cells) {
        let _ = write!(text, "\n  {:<15}", format!("query {}", found.query));
        if cells.is_empty() {
            text += "none";
        }
        for (id, distance) in cells {
            let padding = distance_width - distance.len();
            let _ = write!(text, "{id:>id_width$} ({distance}){:padding$}  ", "");
        }
        let more = found.ids.len() - cells.len();
        if more > 0 {
            let _ = write!(text, "and {more} more");
        }
        text.truncate(text.trim_end().len());
    }
    let others = queries.saturating_sub(found.len());
    match (others, written) {
        (0, _) => {}
        (_, true) => {
            let _ = write!(text, "\n  and {others} more queries, which the output file has");
        }
        (_, false) => {
            let _ = write!(text, "\n  and {others} more queries; --output FILE writes all");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(query: usize, ids: &[u32], distances: &[f32]) -> QueryNeighbors {
        QueryNeighbors { query, ids: ids.to_vec(), distances: distances.to_vec() }
    }

    #[test]
    fn the_first_queries_are_collected_from_blocks() {
        let mut first = FirstNeighbors::of(3);
        let pairs = |at: usize| 2 * at..2 * at + 2;
        first.take(0..2, &[1, 2, 3, NO_ID], &[0.0, 1.0, 2.0, f32::INFINITY], pairs);
        first.take(2..4, &[5, 6, 7, 8], &[0.5, 1.5, 2.5, 3.5], pairs);
        let expected =
            [found(0, &[1, 2], &[0.0, 1.0]), found(1, &[3], &[2.0]), found(2, &[5, 6], &[0.5, 1.5])];
        assert_eq!(first.into_found(), expected);
        let mut none = FirstNeighbors::of(0);
        none.take(0..1, &[1, 2], &[0.0, 1.0], pairs);
        assert!(none.into_found().is_empty());
    }

    #[test]
    fn the_table_is_aligned_and_counts_what_it_leaves_out() {
        let rows = [
            found(0, &[7, 1234, 9, 10, 11, 12, 13], &[0.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0]),
            found(1, &[], &[]),
        ];
        let text = table(&rows, 100, false);
        let lines: Vec<&str> = text.trim_start().lines().collect();
        assert_eq!(
            lines[1],
            "  query 0           7 (0)    1234 (1.5)     9 (2)      10 (3)      11 (4)    and 2 more"
        );
        assert_eq!(lines[2], "  query 1        none");
        assert_eq!(lines[3], "  and 98 more queries; --output FILE writes all");
        assert!(table(&rows, 100, true).ends_with("which the output file has"));
        assert!(!table(&rows, 2, false).contains("more queries"));
        assert_eq!(table(&[], 100, false), "");
    }
}
