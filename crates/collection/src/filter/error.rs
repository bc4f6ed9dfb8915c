//! Errors of filters: the problem and its position.

use crate::error::CollectionError;
use std::fmt;

/// Characters of the text that are shown before the position of an error.
const SHOWN_BEFORE: usize = 60;
/// Characters of the text that are shown after it.
const SHOWN_AFTER: usize = 40;

/// Error of parsing a filter. If it has a position, the displayed message marks it:
///
/// ```text
/// expected a number or a string, found `and`
///   year >= and lang = 'de'
///           ^
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// The problem.
    pub message: String,
    /// Number of characters before the problem. `None` for JSON, where the message contains the path.
    pub position: Option<usize>,
    /// The text of the filter; empty without a position.
    pub text: String,
}

impl FilterError {
    /// Returns an error at byte `at` of `text`.
    pub(super) fn at(text: &str, at: usize, message: impl Into<String>) -> FilterError {
        let before = text.get(..at).unwrap_or(text);
        let position = Some(before.chars().count());
        FilterError { message: message.into(), position, text: text.to_string() }
    }

    /// Returns an error without a position.
    pub(super) fn without_position(message: impl Into<String>) -> FilterError {
        FilterError { message: message.into(), position: None, text: String::new() }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        let Some(position) = self.position else { return Ok(()) };
        // Shows one line of the text, or a part of a long line.
        let mut line: Vec<char> = Vec::new();
        let mut caret = 0;
        for (at, character) in self.text.chars().enumerate() {
            if at == position {
                caret = line.len();
            }
            if character == '\n' && at >= position {
                break;
            }
            if character == '\n' {
                line.clear();
                continue;
            }
            line.push(if character.is_control() { ' ' } else { character });
            if at >= position + SHOWN_AFTER {
                break;
            }
        }
        if position >= self.text.chars().count() {
            caret = line.len();
        }
        let cut = caret.saturating_sub(SHOWN_BEFORE);
        let dots = if cut > 0 { "... " } else { "" };
        let shown: String = line[cut..].iter().collect();
        write!(formatter, "\n  {dots}{shown}\n  {:>width$}", '^', width = dots.len() + caret - cut + 1)
    }
}

impl std::error::Error for FilterError {}

impl From<FilterError> for CollectionError {
    fn from(error: FilterError) -> CollectionError {
        CollectionError::Filter(error.to_string())
    }
}
