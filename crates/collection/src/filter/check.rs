//! Finds the position of a condition that does not fit the columns of a collection.

use super::bind::normal;
use super::error::FilterError;
use super::expression::Expression;
use super::tokens::{Token, Tokens};
use crate::schema::Schema;
use std::collections::BTreeMap;

/// Checks the conditions of `expression`, which is the parsed `text`, in their order.
///
/// # Errors
/// The problem of the first condition that does not fit, at the name of its column.
pub(super) fn conditions(text: &str, expression: &Expression, schema: &Schema) -> Result<(), FilterError> {
    let mut seen = BTreeMap::new();
    walk(text, expression, schema, &mut seen)
}

/// `seen` counts the conditions of each column so far: each has the column's name once in the text.
fn walk<'e>(
    text: &str,
    expression: &'e Expression,
    schema: &Schema,
    seen: &mut BTreeMap<&'e str, usize>,
) -> Result<(), FilterError> {
    let name = match expression {
        Expression::Constant(_) => return Ok(()),
        Expression::And(parts) | Expression::Or(parts) => {
            return parts.iter().try_for_each(|part| walk(text, part, schema, seen));
        }
        Expression::Not(inner) => return walk(text, inner, schema, seen),
        Expression::Flag(name)
        | Expression::IsNull(name)
        | Expression::Compare(name, ..)
        | Expression::In(name, _)
        | Expression::Between(name, ..)
        | Expression::StartsWith(name, _)
        | Expression::Contains(name, ..) => name.as_str(),
    };
    let before = seen.entry(name).or_default();
    let Err(error) = normal(expression, false, schema) else {
        *before += 1;
        return Ok(());
    };
    Err(match place_of(text, name, *before) {
        Some(at) => FilterError::at(text, at, error.to_string()),
        None => FilterError::without_position(error.to_string()),
    })
}

/// Returns the byte at which a column is named for the time number `time`, from 0.
fn place_of(text: &str, name: &str, time: usize) -> Option<usize> {
    let mut tokens = Tokens::new(text);
    let mut named = 0;
    loop {
        // The text was parsed before, so it has no errors.
        let (at, token) = tokens.next().ok()?;
        let is_named = match token {
            Token::End => return None,
            Token::Word(word) => word == name,
            Token::Name(quoted) => quoted == name,
            _ => false,
        };
        if is_named && named == time {
            return Some(at);
        }
        named += usize::from(is_named);
    }
}
