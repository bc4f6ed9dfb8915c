//! What is wrong with a filter, and where.

use crate::error::CollectionError;
use std::fmt;

/// Characters of a text that are shown before and after the place that is wrong.
const SHOWN_BEFORE: usize = 60;
const SHOWN_AFTER: usize = 40;

/// Why a filter cannot be understood. It is displayed with the place marked, where there is one:
///
/// ```text
/// expected a number or a string, found `and`
///   year >= and lang = 'de'
///           ^
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// What is wrong.
    pub message: String,
    /// Where: the number of characters before it. None in JSON, where the message names the path.
    pub position: Option<usize>,
    /// The filter as it was given; empty where there is no position.
    pub text: String,
}

impl FilterError {
    /// Something wrong at byte `at` of `text`.
    pub(super) fn at(text: &str, at: usize, message: impl Into<String>) -> FilterError {
        let before = text.get(..at).unwrap_or(text);
        let position = Some(before.chars().count());
        FilterError { message: message.into(), position, text: text.to_string() }
    }

    /// Something wrong that has no place in a text.
    pub(super) fn anywhere(message: impl Into<String>) -> FilterError {
        FilterError { message: message.into(), position: None, text: String::new() }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.message)?;
        let Some(position) = self.position else { return Ok(()) };
        // One line of it, and of a long line a part.
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
        write!(to, "\n  {dots}{shown}\n  {:>width$}", '^', width = dots.len() + caret - cut + 1)
    }
}

impl std::error::Error for FilterError {}

impl From<FilterError> for CollectionError {
    fn from(error: FilterError) -> CollectionError {
        CollectionError::Filter(error.to_string())
    }
}
