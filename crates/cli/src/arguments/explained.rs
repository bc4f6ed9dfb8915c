//! The queries that `bathyal search --explain` explains.

use std::str::FromStr;

/// Rows of the file of queries. As text: `7`, `0..100` (without the last) or `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainedRows {
    /// One query, in detail.
    One(usize),
    /// Several queries, by their means.
    Several {
        /// The first row.
        first: usize,
        /// The row after the last one; `None` for all rows of the file.
        end: Option<usize>,
    },
}

impl FromStr for ExplainedRows {
    type Err = String;

    fn from_str(text: &str) -> Result<ExplainedRows, String> {
        let row = |text: &str| {
            let expected = "expected a row (7), rows (0..100, without the last), or all";
            text.parse::<usize>().map_err(|_| format!("{expected}; found '{text}'"))
        };
        match (text, text.split_once("..")) {
            ("all", _) => Ok(ExplainedRows::Several { first: 0, end: None }),
            (_, None) => row(text).map(ExplainedRows::One),
            (_, Some((first, end))) => {
                let (first, end) = (row(first)?, row(end)?);
                match first < end {
                    true => Ok(ExplainedRows::Several { first, end: Some(end) }),
                    false => Err(format!("rows {text} are none: the second number must be larger")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_a_number_a_range_or_all() {
        assert_eq!("7".parse(), Ok(ExplainedRows::One(7)));
        assert_eq!("3..9".parse(), Ok(ExplainedRows::Several { first: 3, end: Some(9) }));
        assert_eq!("all".parse(), Ok(ExplainedRows::Several { first: 0, end: None }));
        for text in ["", "x", "-1", "3..3", "9..3", "..", "1..", "..2", "1..2..3"] {
            assert!(text.parse::<ExplainedRows>().is_err(), "{text}");
        }
    }
}
