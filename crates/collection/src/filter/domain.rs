//! The domain of a column: its possible values in order, and the position of a literal among them.
//!
//! Values other than strings are numbered in order, from 0. So "less than 1.5" of a column of whole numbers
//! means "before the number of 2", and "greater than 300" of an int8 column matches nothing. NaN is not in
//! the order; 0.0 and -0.0 are one value.

use super::cuts::Cuts;
use super::expression::{Comparison, Literal};
use super::json_key::{KeyDomain, KeyValues};
use arrow_array::timezone::Tz;
use arrow_cast::parse::string_to_datetime;
use arrow_schema::{DataType, TimeUnit};

const NANOS_PER_DAY: i128 = 86_400_000_000_000;
const NANOS_PER_MICRO: i128 = 1000;

/// Kind of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Whole,
    Float32,
    Float64,
    Date,
    Timestamp,
    Text,
    /// The values of a key of JSON, of all types.
    Key,
}

/// The ordered values of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Domain {
    kind: Kind,
    /// The first value, as a whole number; for floats, as [`rank32`] or [`rank64`].
    least: i128,
    greatest: i128,
}

/// A set of values of a column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Values {
    /// Values other than strings, by their numbers.
    Numbers(Cuts<u64>),
    Text(Cuts<String>),
    /// Values of a key of JSON.
    Key(Box<KeyValues>),
}

/// The cuts before and after a literal. They are equal if the literal is not a value of the column. `None` is
/// the end of the order.
pub(super) enum Bounds {
    Numbers(Option<u64>, Option<u64>),
    Text(Option<String>, Option<String>),
}

/// Returns the position of a float among all floats of its type; -0.0 and 0.0 are at 0. The value must not be
/// NaN.
pub(super) fn rank32(value: f32) -> i128 {
    let bits = value.to_bits();
    let magnitude = i128::from(bits & (u32::MAX >> 1));
    if bits >> 31 == 1 { -magnitude } else { magnitude }
}

/// Does the same as [`rank32`], for f64.
pub(super) fn rank64(value: f64) -> i128 {
    let bits = value.to_bits();
    let magnitude = i128::from(bits & (u64::MAX >> 1));
    if bits >> 63 == 1 { -magnitude } else { magnitude }
}

/// Returns the float at a position.
pub(super) fn float32(rank: i128) -> f32 {
    let magnitude = f32::from_bits(rank.unsigned_abs() as u32);
    if rank < 0 { -magnitude } else { magnitude }
}

/// Returns the float at a position.
pub(super) fn float64(rank: i128) -> f64 {
    let magnitude = f64::from_bits(rank.unsigned_abs() as u64);
    if rank < 0 { -magnitude } else { magnitude }
}

impl Domain {
    /// The strings.
    pub(super) const TEXT: Domain = Domain { kind: Kind::Text, least: 0, greatest: 0 };

    /// Returns the domain of single values of an Arrow type; `None` for a type that filters do not support.
    pub(super) fn from_type(data_type: &DataType) -> Option<Domain> {
        let whole = |least: i128, greatest: i128| Domain { kind: Kind::Whole, least, greatest };
        Some(match data_type {
            DataType::Boolean => Domain { kind: Kind::Bool, least: 0, greatest: 1 },
            DataType::Int8 => whole(i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => whole(i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => whole(i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => whole(i64::MIN.into(), i64::MAX.into()),
            DataType::UInt8 => whole(0, u8::MAX.into()),
            DataType::UInt16 => whole(0, u16::MAX.into()),
            DataType::UInt32 => whole(0, u32::MAX.into()),
            DataType::UInt64 => whole(0, u64::MAX.into()),
            DataType::Float32 => {
                let greatest = rank32(f32::INFINITY);
                Domain { kind: Kind::Float32, least: -greatest, greatest }
            }
            DataType::Float64 => {
                let greatest = rank64(f64::INFINITY);
                Domain { kind: Kind::Float64, least: -greatest, greatest }
            }
            DataType::Date32 => {
                Domain { kind: Kind::Date, least: i32::MIN.into(), greatest: i32::MAX.into() }
            }
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                Domain { kind: Kind::Timestamp, least: i64::MIN.into(), greatest: i64::MAX.into() }
            }
            DataType::Utf8 => Domain::TEXT,
            // The type of columns of JSON.
            DataType::LargeUtf8 => Domain { kind: Kind::Key, ..Domain::TEXT },
            _ => return None,
        })
    }

    /// Returns true if the type has NaN.
    pub(super) fn has_nan(&self) -> bool {
        matches!(self.kind, Kind::Float32 | Kind::Float64)
    }

    /// Returns the number of a value; floats are given as [`rank32`] or [`rank64`].
    #[inline]
    pub(super) fn number(&self, value: i128) -> u64 {
        (value - self.least) as u64
    }

    /// Returns the number of the last value.
    pub(super) fn last(&self) -> u64 {
        self.number(self.greatest)
    }

    /// Returns the value with this number.
    pub(super) fn value(&self, number: u64) -> i128 {
        self.least + i128::from(number)
    }

    /// Formats the value with this number.
    pub(super) fn format_value(&self, number: u64) -> String {
        let value = self.value(number);
        match self.kind {
            Kind::Bool => (value == 1).to_string(),
            Kind::Float32 => format!("{:?}", float32(value)),
            Kind::Float64 => format!("{:?}", float64(value)),
            _ => value.to_string(),
        }
    }

    pub(super) fn nothing(&self) -> Values {
        match self.kind {
            Kind::Text => Values::Text(Cuts::none()),
            Kind::Key => Values::Key(Box::new(KeyValues::none())),
            _ => Values::Numbers(Cuts::none()),
        }
    }

    /// Returns true for the values of a key of JSON.
    pub(super) fn is_key(&self) -> bool {
        self.kind == Kind::Key
    }

    /// Returns the cuts before and after a literal.
    ///
    /// # Errors
    /// A description of the expected literal.
    pub(super) fn bounds(&self, literal: &Literal) -> Result<Bounds, String> {
        let (at, exact) = match (self.kind, literal) {
            (Kind::Text, Literal::Text(text)) => {
                // The next string in the order appends the smallest character.
                return Ok(Bounds::Text(Some(text.clone()), Some(format!("{text}\0"))));
            }
            (Kind::Bool, Literal::Bool(value)) => (i128::from(*value), true),
            (Kind::Whole, Literal::Whole(value)) => (*value, true),
            // The cast saturates, beyond all domains.
            (Kind::Whole, Literal::Fraction(value)) => (value.ceil() as i128, value.fract() == 0.0),
            (Kind::Float32, Literal::Fraction(value)) => nearest32(*value),
            (Kind::Float32, Literal::Whole(value)) => {
                let near = *value as f32;
                whole_position(rank32(near), near as i128, *value)
            }
            (Kind::Float64, Literal::Fraction(value)) => (rank64(*value), true),
            (Kind::Float64, Literal::Whole(value)) => {
                let near = *value as f64;
                whole_position(rank64(near), near as i128, *value)
            }
            (Kind::Date, Literal::Text(text)) => divide_up(nanos(text)?, NANOS_PER_DAY),
            (Kind::Timestamp, Literal::Text(text)) => divide_up(nanos(text)?, NANOS_PER_MICRO),
            (kind, literal) => {
                let expected = match kind {
                    Kind::Bool => "true or false",
                    Kind::Whole | Kind::Float32 | Kind::Float64 => "a number",
                    Kind::Date => "a string with a date, such as '2024-12-31'",
                    Kind::Timestamp => "a string with a time, such as '2024-12-31T23:59:59Z'",
                    Kind::Text | Kind::Key => "a string in single quotes",
                };
                return Err(format!("it is compared with {expected}, not with {literal}"));
            }
        };
        let cut = |value: i128| (value <= self.greatest).then(|| self.number(value.max(self.least)));
        let after = if exact { at.saturating_add(1) } else { at };
        Ok(Bounds::Numbers(cut(at), cut(after)))
    }

    /// Returns the values for which the comparison with a literal is true.
    ///
    /// # Errors
    /// As [`Domain::bounds`].
    pub(super) fn compare(&self, comparison: Comparison, literal: &Literal) -> Result<Values, String> {
        if self.is_key() {
            return key_values(literal, &|domain| domain.compare(comparison, literal));
        }
        Ok(match self.bounds(literal)? {
            Bounds::Numbers(before, after) => Values::Numbers(compare(comparison, before, after)),
            Bounds::Text(before, after) => Values::Text(compare(comparison, before, after)),
        })
    }

    /// Returns the values that are equal to one of the literals.
    ///
    /// # Errors
    /// As [`Domain::bounds`].
    pub(super) fn equal_to_any(&self, literals: &[Literal]) -> Result<Values, String> {
        if self.is_key() {
            let equal = |literal: &Literal| self.compare(Comparison::Equal, literal);
            let mut sets = vec![self.nothing()];
            for literal in literals {
                sets.push(equal(literal)?);
            }
            return Ok(Values::join(false, sets));
        }
        let (mut numbers, mut texts) = (Vec::new(), Vec::new());
        for literal in literals {
            match self.bounds(literal)? {
                Bounds::Numbers(before, after) => numbers.push(Cuts::between(before, after)),
                Bounds::Text(before, after) => texts.push(Cuts::between(before, after)),
            }
        }
        Ok(match self.kind {
            Kind::Text => Values::Text(Cuts::union(texts)),
            _ => Values::Numbers(Cuts::union(numbers)),
        })
    }

    /// Returns the strings that begin with `prefix`; `None` if the values are not strings.
    pub(super) fn with_prefix(&self, prefix: &str) -> Option<Values> {
        let strings = Cuts::between(Some(prefix.to_string()), after_prefix(prefix));
        match self.kind {
            Kind::Text => Some(Values::Text(strings)),
            Kind::Key => Some(Values::Key(Box::new(KeyValues { texts: strings, ..KeyValues::none() }))),
            _ => None,
        }
    }
}

/// Returns the values of a key for which a condition on `literal` is true: those of its type.
fn key_values(literal: &Literal, test: &dyn Fn(Domain) -> Result<Values, String>) -> Result<Values, String> {
    let domains: &[KeyDomain] = match literal {
        Literal::Bool(_) => &[KeyDomain::Bools],
        Literal::Text(_) => &[KeyDomain::Texts],
        Literal::Whole(_) | Literal::Fraction(_) => {
            &[KeyDomain::Wholes, KeyDomain::Larges, KeyDomain::Floats]
        }
    };
    let sets = domains.iter().map(|of| Ok((*of, test(of.domain())?))).collect::<Result<Vec<_>, String>>()?;
    Ok(Values::Key(Box::new(KeyValues::of(sets))))
}

fn compare<K: super::cuts::Key>(comparison: Comparison, before: Option<K>, after: Option<K>) -> Cuts<K> {
    let begin = Some(K::default());
    match comparison {
        Comparison::Equal => Cuts::between(before, after),
        Comparison::NotEqual => Cuts::between(before, after).complement(),
        Comparison::Less => Cuts::between(begin, before),
        Comparison::LessOrEqual => Cuts::between(begin, after),
        Comparison::Greater => Cuts::between(after, None),
        Comparison::GreaterOrEqual => Cuts::between(before, None),
    }
}

/// Returns the first string after all strings that begin with `prefix`; `None` if there is none. Strings are
/// ordered by their bytes, which is the order of their characters.
pub(super) fn after_prefix(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        // Surrogates lie between these two; they are not characters.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

/// Returns the position of a fraction among f32 floats, and whether a float is equal to it. It is rounded
/// like the values of a column, but a finite fraction is never rounded to infinity.
fn nearest32(value: f64) -> (i128, bool) {
    let near = value as f32;
    if near.is_infinite() {
        let limit = if near > 0.0 { f32::INFINITY } else { f32::MIN };
        return (rank32(limit), false);
    }
    (rank32(near), true)
}

/// Returns the position of a whole number among floats, and whether a float is equal to it. `rank` and `near`
/// are the position and the value of the nearest float.
fn whole_position(rank: i128, near: i128, value: i128) -> (i128, bool) {
    (if near < value { rank + 1 } else { rank }, near == value)
}

/// Converts nanoseconds to a larger unit, rounded up. The flag is true if the result is exact.
fn divide_up(nanos: i128, unit: i128) -> (i128, bool) {
    let rounds = nanos.rem_euclid(unit) != 0;
    (nanos.div_euclid(unit) + i128::from(rounds), !rounds)
}

/// Parses a date or a time in ISO 8601. Returns nanoseconds since 1970 in UTC.
fn nanos(text: &str) -> Result<i128, String> {
    let wrong = || {
        format!(
            "{text:?} is no date or time; write '2024-12-31', '2024-12-31T23:59:59.5' (UTC) or \
             '2024-12-31T23:59:59+01:00'"
        )
    };
    let utc: Tz = "+00:00".parse().map_err(|_| wrong())?;
    let time = string_to_datetime(&utc, text.trim()).map_err(|_| wrong())?;
    Ok(i128::from(time.timestamp()) * 1_000_000_000 + i128::from(time.timestamp_subsec_nanos()))
}

impl Values {
    pub(super) fn complement(self) -> Values {
        match self {
            Values::Numbers(cuts) => Values::Numbers(cuts.complement()),
            Values::Text(cuts) => Values::Text(cuts.complement()),
            Values::Key(values) => Values::Key(Box::new(values.complement())),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Values::Numbers(cuts) => cuts.is_empty(),
            Values::Text(cuts) => cuts.is_empty(),
            Values::Key(values) => values.is_empty(),
        }
    }

    pub(super) fn is_all(&self) -> bool {
        match self {
            Values::Numbers(cuts) => cuts.is_all(),
            Values::Text(cuts) => cuts.is_all(),
            Values::Key(values) => values.is_all(),
        }
    }

    /// Returns the intersection (`all`) or the union of sets of one column. There is at least one set.
    pub(super) fn join(all: bool, sets: Vec<Values>) -> Values {
        let (mut numbers, mut texts, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for set in sets {
            match set {
                Values::Numbers(cuts) => numbers.push(cuts),
                Values::Text(cuts) => texts.push(cuts),
                Values::Key(values) => keys.push(*values),
            }
        }
        if !keys.is_empty() {
            return Values::Key(Box::new(KeyValues::join(all, keys)));
        }
        if texts.is_empty() {
            Values::Numbers(if all { Cuts::intersection(numbers) } else { Cuts::union(numbers) })
        } else {
            Values::Text(if all { Cuts::intersection(texts) } else { Cuts::union(texts) })
        }
    }
}
