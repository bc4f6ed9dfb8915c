//! The syntax tree of a filter, before it is bound to columns.

use std::fmt;

/// Words that are column names only if they are quoted.
const RESERVED: [&str; 10] = ["and", "or", "not", "in", "between", "is", "null", "like", "true", "false"];

/// The deepest nesting of conditions.
pub(super) const MAX_DEPTH: usize = 100;

/// The most conditions of a filter, and the most values in its lists.
pub(super) const MAX_LITERALS: usize = 100_000;

/// Counts the conditions and values of a filter, and enforces the limits.
#[derive(Default)]
pub(super) struct SizeLimits {
    conditions: usize,
    values: usize,
}

impl SizeLimits {
    /// Counts a condition.
    pub(super) fn condition(&mut self) -> Result<(), String> {
        self.conditions += 1;
        refuse_above(self.conditions, "conditions")
    }

    /// Counts a value in a list.
    pub(super) fn value(&mut self) -> Result<(), String> {
        self.values += 1;
        refuse_above(self.values, "values in lists")
    }
}

fn refuse_above(count: usize, items: &str) -> Result<(), String> {
    if count <= MAX_LITERALS {
        Ok(())
    } else {
        Err(format!("the filter has more than {MAX_LITERALS} {items}"))
    }
}

/// A literal in a filter.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Bool(bool),
    /// A whole number from -2^63 to 2^64 - 1, exactly.
    Whole(i128),
    /// Any other finite number.
    Fraction(f64),
    Text(String),
}

/// The operator of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Which of the given values a list must contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contains {
    Any,
    All,
}

/// The syntax tree.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Constant(bool),
    /// A boolean column on its own.
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
    /// Parses a number; `None` if its magnitude exceeds all floats.
    pub(super) fn number(digits: &str) -> Option<Literal> {
        let exact_range = i64::MIN as i128..=u64::MAX as i128;
        match digits.parse::<i128>() {
            Ok(whole) if exact_range.contains(&whole) => Some(Literal::Whole(whole)),
            _ => digits.parse::<f64>().ok().filter(|number| number.is_finite()).map(Literal::Fraction),
        }
    }
}

impl Comparison {
    /// Returns the comparison with its sides exchanged.
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

    /// Joins expressions; a single one is returned as it is.
    pub(super) fn joined(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
        match parts.pop() {
            Some(only) if parts.is_empty() => only,
            last => {
                parts.extend(last);
                join(parts)
            }
        }
    }

    /// Returns the depth of nesting; 0 for a single condition.
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

/// Returns true if a column name needs no quotes.
fn is_plain(name: &str) -> bool {
    let mut characters = name.chars();
    let begins = characters.next().is_some_and(begins_word);
    begins && characters.all(continues_word) && !is_reserved(name)
}

/// Returns true if an unquoted word cannot be the name of a column.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// Returns true if a word may begin with this character.
pub(super) fn begins_word(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

/// Returns true if a word may contain this character after its first one.
pub(super) fn continues_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '.')
}

/// A column name, displayed with quotes where they are needed.
pub(super) struct QuotedName<'a>(pub(super) &'a str);

impl fmt::Display for QuotedName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain(self.0) {
            formatter.write_str(self.0)
        } else {
            write!(formatter, "\"{}\"", self.0.replace('"', "\"\""))
        }
    }
}

/// A string, displayed in quotes.
pub(super) struct QuotedText<'a>(pub(super) &'a str);

impl fmt::Display for QuotedText<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "'{}'", self.0.replace('\'', "''"))
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Bool(value) => value.fmt(formatter),
            Literal::Whole(value) => value.fmt(formatter),
            // With a point or an exponent, so that it parses as a fraction again.
            Literal::Fraction(value) => write!(formatter, "{value:?}"),
            Literal::Text(text) => QuotedText(text).fmt(formatter),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        })
    }
}

/// Literals, displayed with commas between.
struct LiteralList<'a>(&'a [Literal]);

impl fmt::Display for LiteralList<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, literal) in self.0.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(formatter, "{comma}{literal}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Constant(value) => value.fmt(formatter),
            Expression::Flag(name) => QuotedName(name).fmt(formatter),
            Expression::Compare(name, comparison, literal) => {
                write!(formatter, "{} {comparison} {literal}", QuotedName(name))
            }
            Expression::In(name, literals) => {
                write!(formatter, "{} in ({})", QuotedName(name), LiteralList(literals))
            }
            Expression::Between(name, low, high) => {
                write!(formatter, "{} between {low} and {high}", QuotedName(name))
            }
            Expression::IsNull(name) => write!(formatter, "{} is null", QuotedName(name)),
            Expression::StartsWith(name, prefix) => {
                write!(formatter, "starts_with({}, {})", QuotedName(name), QuotedText(prefix))
            }
            Expression::Contains(name, which, literals) => match (which, literals.as_slice()) {
                (Contains::Any, [literal]) => write!(formatter, "contains({}, {literal})", QuotedName(name)),
                (Contains::Any, literals) => {
                    write!(formatter, "contains_any({}, ({}))", QuotedName(name), LiteralList(literals))
                }
                (Contains::All, literals) => {
                    write!(formatter, "contains_all({}, ({}))", QuotedName(name), LiteralList(literals))
                }
            },
            Expression::And(parts) => {
                for (number, part) in parts.iter().enumerate() {
                    formatter.write_str(if number > 0 { " and " } else { "" })?;
                    write_part(part, matches!(part, Expression::And(_) | Expression::Or(_)), formatter)?;
                }
                Ok(())
            }
            Expression::Or(parts) => {
                for (number, part) in parts.iter().enumerate() {
                    formatter.write_str(if number > 0 { " or " } else { "" })?;
                    write_part(part, matches!(part, Expression::Or(_)), formatter)?;
                }
                Ok(())
            }
            Expression::Not(inner) => write_negated(inner, formatter),
        }
    }
}

fn write_part(part: &Expression, needed: bool, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    if needed { write!(formatter, "({part})") } else { write!(formatter, "{part}") }
}

fn write_negated(inner: &Expression, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    match inner {
        Expression::In(name, literals) => {
            write!(formatter, "{} not in ({})", QuotedName(name), LiteralList(literals))
        }
        Expression::Between(name, low, high) => {
            write!(formatter, "{} not between {low} and {high}", QuotedName(name))
        }
        Expression::IsNull(name) => write!(formatter, "{} is not null", QuotedName(name)),
        other => {
            formatter.write_str("not ")?;
            write_part(other, matches!(other, Expression::And(_) | Expression::Or(_)), formatter)
        }
    }
}
