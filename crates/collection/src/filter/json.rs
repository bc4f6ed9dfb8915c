//! Parses filters in JSON: `{"year": {"$gte": 2020}, "lang": {"$in": ["de", "en"]}}`.

use super::error::FilterError;
use super::expression::{Comparison, Contains, Expression, Literal, MAX_DEPTH, SizeLimits};
use serde_json::{Map, Value};

/// Operators that join filters.
const JOINING: &str = "$and, $or, $not";
/// Operators of a column.
const OPERATORS: &str = "$eq, $ne, $gt, $gte, $lt, $lte, $between, $in, $nin, $exists, $prefix, $startsWith, \
                         $contains, $containsAny, $containsAll, $not";

/// Parses a filter. Returns it, and whether it contains an object without conditions.
///
/// # Errors
/// The problem, with its path.
pub(super) fn read(value: &Value) -> Result<(Expression, bool), FilterError> {
    let mut reader = FilterReader { limits: SizeLimits::default(), empty: false };
    let expression = reader.filter(value, &Path::Root, 0)?;
    if expression.depth() > MAX_DEPTH {
        return Err(too_deep());
    }
    Ok((expression, reader.empty))
}

/// A path within the filter.
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Path::Root => formatter.write_str("the filter"),
            Path::Key(Path::Root, key) => formatter.write_str(key),
            Path::Key(outer, key) => write!(formatter, "{outer}.{key}"),
            Path::Item(outer, number) => write!(formatter, "{outer}[{number}]"),
        }
    }
}

fn error_at(path: &Path, message: impl std::fmt::Display) -> FilterError {
    FilterError::without_position(format!("{path}: {message}"))
}

fn too_deep() -> FilterError {
    FilterError::without_position(format!("the filter is nested more than {MAX_DEPTH} deep"))
}

struct FilterReader {
    limits: SizeLimits,
    empty: bool,
}

impl FilterReader {
    fn filter(&mut self, value: &Value, path: &Path, depth: usize) -> Result<Expression, FilterError> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let Value::Object(object) = value else {
            return Err(error_at(path, format!("expected an object, found {}", kind(value))));
        };
        let mut parts = Vec::with_capacity(object.len());
        for (key, value) in object {
            let path = Path::Key(path, key);
            parts.push(match key.as_str() {
                "$and" => Expression::joined(self.filters(value, &path, depth + 1)?, Expression::And),
                "$or" => Expression::joined(self.filters(value, &path, depth + 1)?, Expression::Or),
                "$not" => Expression::not(self.filter(value, &path, depth + 1)?),
                key if key.starts_with('$') => {
                    return Err(error_at(
                        &path,
                        format!("there is no operator {key} here; there are {JOINING}, and names of columns"),
                    ));
                }
                column => self.column_condition(column, value, &path, depth + 1)?,
            });
        }
        // An object without conditions matches every row.
        Ok(if parts.is_empty() {
            self.empty = true;
            Expression::Constant(true)
        } else {
            Expression::joined(parts, Expression::And)
        })
    }

    fn filters(&mut self, value: &Value, path: &Path, depth: usize) -> Result<Vec<Expression>, FilterError> {
        let Value::Array(items) = value else {
            return Err(error_at(path, format!("expected a list of filters, found {}", kind(value))));
        };
        if items.is_empty() {
            return Err(error_at(path, "the list of filters is empty"));
        }
        let filter = |(number, item)| self.filter(item, &Path::Item(path, number), depth);
        items.iter().enumerate().map(filter).collect()
    }

    /// Parses the condition on a column.
    fn column_condition(
        &mut self,
        column: &str,
        value: &Value,
        path: &Path,
        depth: usize,
    ) -> Result<Expression, FilterError> {
        match value {
            Value::Object(operators) => self.operators(column, operators, path, depth),
            Value::Array(_) => {
                Err(error_at(path, "found a list; write {\"$in\": [...]} or {\"$containsAny\": [...]}"))
            }
            value => {
                self.limits.condition().map_err(FilterError::without_position)?;
                equal(column, value, path)
            }
        }
    }

    fn operators(
        &mut self,
        column: &str,
        operators: &Map<String, Value>,
        path: &Path,
        depth: usize,
    ) -> Result<Expression, FilterError> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        if operators.is_empty() {
            return Err(error_at(path, format!("there is no operator; there are {OPERATORS}")));
        }
        let mut parts = Vec::with_capacity(operators.len());
        for (operator, value) in operators {
            let path = Path::Key(path, operator);
            parts.push(match operator.as_str() {
                "$not" => {
                    let Value::Object(inner) = value else {
                        return Err(error_at(&path, format!("expected operators, found {}", kind(value))));
                    };
                    Expression::not(self.operators(column, inner, &path, depth + 1)?)
                }
                operator => self.operator(column, operator, value, &path)?,
            });
        }
        Ok(Expression::joined(parts, Expression::And))
    }

    fn operator(
        &mut self,
        column: &str,
        operator: &str,
        value: &Value,
        path: &Path,
    ) -> Result<Expression, FilterError> {
        self.limits.condition().map_err(FilterError::without_position)?;
        let name = || column.to_string();
        let comparison = match operator {
            "$gt" => Comparison::Greater,
            "$gte" => Comparison::GreaterOrEqual,
            "$lt" => Comparison::Less,
            "$lte" => Comparison::LessOrEqual,
            "$eq" => return equal(column, value, path),
            "$ne" if value.is_null() => return Ok(Expression::not(equal(column, value, path)?)),
            "$ne" => Comparison::NotEqual,
            "$in" => return Ok(Expression::In(name(), self.literals(value, path)?)),
            "$nin" => return Ok(Expression::not(Expression::In(name(), self.literals(value, path)?))),
            "$between" => {
                return match <[Literal; 2]>::try_from(self.literals(value, path)?) {
                    Ok([low, high]) => Ok(Expression::Between(name(), low, high)),
                    Err(_) => {
                        Err(error_at(path, "expected a list of two values, the least and the greatest"))
                    }
                };
            }
            "$exists" => {
                let exists = value.as_bool().ok_or_else(|| {
                    error_at(path, format!("expected true or false, found {}", kind(value)))
                })?;
                let null = Expression::IsNull(name());
                return Ok(if exists { Expression::not(null) } else { null });
            }
            "$prefix" | "$startsWith" => {
                let prefix = value
                    .as_str()
                    .ok_or_else(|| error_at(path, format!("expected a string, found {}", kind(value))))?;
                return Ok(Expression::StartsWith(name(), prefix.to_string()));
            }
            "$contains" => {
                return Ok(Expression::Contains(name(), Contains::Any, vec![literal(value, path)?]));
            }
            "$containsAny" => {
                return Ok(Expression::Contains(name(), Contains::Any, self.literals(value, path)?));
            }
            "$containsAll" => {
                return Ok(Expression::Contains(name(), Contains::All, self.literals(value, path)?));
            }
            other => {
                return Err(error_at(path, format!("there is no operator {other}; there are {OPERATORS}")));
            }
        };
        Ok(Expression::Compare(name(), comparison, literal(value, path)?))
    }

    fn literals(&mut self, value: &Value, path: &Path) -> Result<Vec<Literal>, FilterError> {
        let Value::Array(items) = value else {
            return Err(error_at(path, format!("expected a list of values, found {}", kind(value))));
        };
        let read = |(number, item)| {
            self.limits.value().map_err(FilterError::without_position)?;
            literal(item, &Path::Item(path, number))
        };
        items.iter().enumerate().map(read).collect()
    }
}

fn equal(column: &str, value: &Value, path: &Path) -> Result<Expression, FilterError> {
    let column = column.to_string();
    if value.is_null() {
        return Ok(Expression::IsNull(column));
    }
    Ok(Expression::Compare(column, Comparison::Equal, literal(value, path)?))
}

fn literal(value: &Value, path: &Path) -> Result<Literal, FilterError> {
    let literal = match value {
        Value::Bool(value) => Some(Literal::Bool(*value)),
        Value::String(text) => Some(Literal::Text(text.clone())),
        Value::Number(number) => number
            .as_u64()
            .map(i128::from)
            .or_else(|| number.as_i64().map(i128::from))
            .map(Literal::Whole)
            .or_else(|| number.as_f64().filter(|number| number.is_finite()).map(Literal::Fraction)),
        _ => None,
    };
    literal.ok_or_else(|| {
        error_at(path, format!("expected a number, a string, true or false, found {}", kind(value)))
    })
}

/// Describes the type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
