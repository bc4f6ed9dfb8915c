//! What a filter says, before it is known which columns there are.

use std::fmt;

/// Words that are not names of columns unless they are quoted.
const RESERVED: [&str; 10] = ["and", "or", "not", "in", "between", "is", "null", "like", "true", "false"];

/// Nesting of conditions at most.
pub(super) const MAX_DEPTH: usize = 100;

/// Values in lists of a filter at most, and conditions at most.
pub(super) const MAX_LITERALS: usize = 100_000;

/// Counts what a filter has, while it is read.
#[derive(Default)]
pub(super) struct Size {
    conditions: usize,
    values: usize,
}

impl Size {
    /// Another condition.
    pub(super) fn condition(&mut self) -> Result<(), String> {
        self.conditions += 1;
        refuse_above(self.conditions, "conditions")
    }

    /// Another value in a list.
    pub(super) fn value(&mut self) -> Result<(), String> {
        self.values += 1;
        refuse_above(self.values, "values in lists")
    }
}

fn refuse_above(count: usize, what: &str) -> Result<(), String> {
    if count <= MAX_LITERALS {
        Ok(())
    } else {
        Err(format!("the filter has more than {MAX_LITERALS} {what}"))
    }
}

/// A value in a filter.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Bool(bool),
    /// From -2^63 to 2^64 - 1, exact.
    Whole(i128),
    /// Any other number; finite.
    Fraction(f64),
    Text(String),
}

/// How a column is compared with a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Which of some values a list has to contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contains {
    Any,
    All,
}

/// A condition.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Constant(bool),
    /// A column of booleans by itself.
    Flag(String),
    Compare(String, Comparison, Literal),
    In(String, Vec<Literal>),
    Between(String, Literal, Literal),
    IsNull(String),
    StartsWith(String, String),
    Contains(String, Contains, Vec<Literal>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Not(Box<Expression>),
}

impl Literal {
    /// The number that `digits` spell, None for one beyond all floating-point numbers.
    pub(super) fn number(digits: &str) -> Option<Literal> {
        let held = i64::MIN as i128..=u64::MAX as i128;
        match digits.parse::<i128>() {
            Ok(whole) if held.contains(&whole) => Some(Literal::Whole(whole)),
            _ => digits.parse::<f64>().ok().filter(|number| number.is_finite()).map(Literal::Fraction),
        }
    }
}

impl Comparison {
    /// The same with both sides exchanged.
    pub(super) fn mirrored(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
            same => same,
        }
    }
}

impl Expression {
    pub(super) fn not(inner: Expression) -> Expression {
        Expression::Not(Box::new(inner))
    }

    /// One condition by itself, several joined.
    pub(super) fn joined(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
        match parts.pop() {
            Some(only) if parts.is_empty() => only,
            last => {
                parts.extend(last);
                join(parts)
            }
        }
    }

    /// How deep it is nested; a single condition is 0 deep.
    pub(super) fn depth(&self) -> usize {
        match self {
            Expression::And(parts) | Expression::Or(parts) => {
                1 + parts.iter().map(Expression::depth).max().unwrap_or(0)
            }
            Expression::Not(inner) => 1 + inner.depth(),
            _ => 0,
        }
    }
}

/// Whether a word needs no quotes to be the name of a column.
fn is_plain(name: &str) -> bool {
    let mut characters = name.chars();
    let begins = characters.next().is_some_and(begins_word);
    begins && characters.all(continues_word) && !is_reserved(name)
}

/// Whether a word is never the name of a column.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// Whether a word may begin with this character.
pub(super) fn begins_word(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

/// Whether a word may go on with this character.
pub(super) fn continues_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '.')
}

/// A name as a filter has to spell it.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain(self.0) {
            to.write_str(self.0)
        } else {
            write!(to, "\"{}\"", self.0.replace('"', "\"\""))
        }
    }
}

/// A string as a filter has to spell it.
pub(super) struct QuotedText<'a>(pub(super) &'a str);

impl fmt::Display for QuotedText<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "'{}'", self.0.replace('\'', "''"))
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Bool(value) => value.fmt(to),
            Literal::Whole(value) => value.fmt(to),
            // Always with a point or an exponent, so that it stays one.
            Literal::Fraction(value) => write!(to, "{value:?}"),
            Literal::Text(text) => QuotedText(text).fmt(to),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        })
    }
}

/// Literals with commas between.
struct Listed<'a>(&'a [Literal]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, literal) in self.0.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(to, "{comma}{literal}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Constant(value) => value.fmt(to),
            Expression::Flag(name) => Quoted(name).fmt(to),
            Expression::Compare(name, comparison, literal) => {
                write!(to, "{} {comparison} {literal}", Quoted(name))
            }
            Expression::In(name, literals) => write!(to, "{} in ({})", Quoted(name), Listed(literals)),
            Expression::Between(name, low, high) => {
                write!(to, "{} between {low} and {high}", Quoted(name))
            }
            Expression::IsNull(name) => write!(to, "{} is null", Quoted(name)),
            Expression::StartsWith(name, prefix) => {
                write!(to, "starts_with({}, {})", Quoted(name), QuotedText(prefix))
            }
            Expression::Contains(name, which, literals) => match (which, literals.as_slice()) {
                (Contains::Any, [literal]) => write!(to, "contains({}, {literal})", Quoted(name)),
                (Contains::Any, literals) => {
                    write!(to, "contains_any({}, ({}))", Quoted(name), Listed(literals))
                }
                (Contains::All, literals) => {
                    write!(to, "contains_all({}, ({}))", Quoted(name), Listed(literals))
                }
            },
            Expression::And(parts) => {
                for (number, part) in parts.iter().enumerate() {
                    to.write_str(if number > 0 { " and " } else { "" })?;
                    parenthesised(part, matches!(part, Expression::And(_) | Expression::Or(_)), to)?;
                }
                Ok(())
            }
            Expression::Or(parts) => {
                for (number, part) in parts.iter().enumerate() {
                    to.write_str(if number > 0 { " or " } else { "" })?;
                    parenthesised(part, matches!(part, Expression::Or(_)), to)?;
                }
                Ok(())
            }
            Expression::Not(inner) => negated(inner, to),
        }
    }
}

fn parenthesised(part: &Expression, needed: bool, to: &mut fmt::Formatter<'_>) -> fmt::Result {
    if needed { write!(to, "({part})") } else { write!(to, "{part}") }
}

fn negated(inner: &Expression, to: &mut fmt::Formatter<'_>) -> fmt::Result {
    match inner {
        Expression::In(name, literals) => write!(to, "{} not in ({})", Quoted(name), Listed(literals)),
        Expression::Between(name, low, high) => {
            write!(to, "{} not between {low} and {high}", Quoted(name))
        }
        Expression::IsNull(name) => write!(to, "{} is not null", Quoted(name)),
        other => {
            to.write_str("not ")?;
            parenthesised(other, matches!(other, Expression::And(_) | Expression::Or(_)), to)
        }
    }
}
