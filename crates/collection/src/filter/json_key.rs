//! The keys of columns of JSON: their values, and sets of such values.
//!
//! The value of a key is a list of single values: a single value is a list of one. Values of different types
//! are never equal, and never ordered. Whole numbers of 64 bits, with a sign and beyond it, and other numbers
//! are domains of their own, because an f64 cannot tell all whole numbers apart.

use super::domain::{Domain, Values, rank64};
use arrow_schema::DataType;
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

use super::cuts::Cuts;

/// A set of values of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyValues {
    pub(super) bools: Cuts<u64>,
    pub(super) wholes: Cuts<u64>,
    /// Whole numbers that are larger than those of `wholes`.
    pub(super) larges: Cuts<u64>,
    pub(super) floats: Cuts<u64>,
    pub(super) texts: Cuts<String>,
}

impl KeyValues {
    pub(super) fn none() -> KeyValues {
        let (bools, wholes, larges, floats) = (Cuts::none(), Cuts::none(), Cuts::none(), Cuts::none());
        KeyValues { bools, wholes, larges, floats, texts: Cuts::none() }
    }

    /// Returns the union of sets of the single domains.
    pub(super) fn of(sets: Vec<(KeyDomain, Values)>) -> KeyValues {
        let mut values = KeyValues::none();
        for set in sets {
            match set {
                (KeyDomain::Bools, Values::Numbers(cuts)) => values.bools = cuts,
                (KeyDomain::Wholes, Values::Numbers(cuts)) => values.wholes = cuts,
                (KeyDomain::Larges, Values::Numbers(cuts)) => values.larges = cuts,
                (KeyDomain::Floats, Values::Numbers(cuts)) => values.floats = cuts,
                (_, Values::Text(cuts)) => values.texts = cuts,
                (KeyDomain::Texts, _) | (_, Values::Key(_)) => {}
            }
        }
        values
    }

    pub(super) fn is_empty(&self) -> bool {
        let KeyValues { bools, wholes, larges, floats, texts } = self;
        let whole = wholes.is_empty() && larges.is_empty();
        whole && bools.is_empty() && floats.is_empty() && texts.is_empty()
    }

    pub(super) fn is_all(&self) -> bool {
        let KeyValues { bools, wholes, larges, floats, texts } = self;
        let whole = wholes.is_all() && larges.is_all();
        whole && bools.is_all() && floats.is_all() && texts.is_all()
    }

    pub(super) fn complement(self) -> KeyValues {
        let KeyValues { bools, wholes, larges, floats, texts } = self;
        KeyValues {
            bools: bools.complement(),
            wholes: wholes.complement(),
            larges: larges.complement(),
            floats: floats.complement(),
            texts: texts.complement(),
        }
    }

    /// Returns the intersection (`all`) or the union.
    pub(super) fn join(all: bool, sets: Vec<KeyValues>) -> KeyValues {
        let numbers = |of: fn(&KeyValues) -> &Cuts<u64>| {
            let cuts = sets.iter().map(|set| of(set).clone()).collect();
            if all { Cuts::intersection(cuts) } else { Cuts::union(cuts) }
        };
        let texts = sets.iter().map(|set| set.texts.clone()).collect();
        KeyValues {
            bools: numbers(|set| &set.bools),
            wholes: numbers(|set| &set.wholes),
            larges: numbers(|set| &set.larges),
            floats: numbers(|set| &set.floats),
            texts: if all { Cuts::intersection(texts) } else { Cuts::union(texts) },
        }
    }

    /// Returns true if a value, or an element of it, is in the set. Objects are in no set.
    pub(super) fn has_any_of(&self, value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(|item| !item.is_array() && self.has_any_of(item)),
            Value::Bool(value) => {
                let number = KeyDomain::Bools.domain().number(i128::from(*value));
                self.bools.contains_by(|cut| *cut <= number)
            }
            Value::Number(number) => match (whole(number), number.as_u64()) {
                (Some(whole), _) => {
                    let number = KeyDomain::Wholes.domain().number(i128::from(whole));
                    self.wholes.contains_by(|cut| *cut <= number)
                }
                (None, Some(large)) => {
                    let number = KeyDomain::Larges.domain().number(i128::from(large));
                    self.larges.contains_by(|cut| *cut <= number)
                }
                (None, None) => number.as_f64().is_some_and(|float| {
                    let number = KeyDomain::Floats.domain().number(rank64(float));
                    self.floats.contains_by(|cut| *cut <= number)
                }),
            },
            Value::String(text) => self.texts.contains_by(|cut| cut.as_str() <= text.as_str()),
            Value::Null | Value::Object(_) => false,
        }
    }
}

/// Returns a number as a whole number of 64 bits, if it is one: 3 and 3.0 are the same number.
fn whole(number: &serde_json::Number) -> Option<i64> {
    if let Some(whole) = number.as_i64() {
        return Some(whole);
    }
    // The limits of i64 as floats; the upper one is the first that is too large.
    let float = number.as_f64().filter(|float| !number.is_u64() && float.fract() == 0.0)?;
    (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float).then_some(float as i64)
}

/// The types of single values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyDomain {
    Bools,
    Wholes,
    Larges,
    Floats,
    Texts,
}

impl KeyDomain {
    pub(super) fn domain(self) -> Domain {
        let data_type = match self {
            KeyDomain::Bools => DataType::Boolean,
            KeyDomain::Wholes => DataType::Int64,
            KeyDomain::Larges => DataType::UInt64,
            KeyDomain::Floats => DataType::Float64,
            KeyDomain::Texts => DataType::Utf8,
        };
        Domain::from_type(&data_type).unwrap_or(Domain::TEXT)
    }
}

/// Returns the value at `path` of a text of JSON; an empty path is the whole value. `None` if there is none,
/// and for null. The names of nested keys are joined by dots; a key whose name has dots itself is found as
/// well, and comes first.
pub(super) fn value_at(text: &str, path: &str) -> Option<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = KeySeeker { path }.deserialize(&mut reader).ok()?;
    found.filter(|value| !value.is_null())
}

/// Reads the value at a path, and skips all others.
struct KeySeeker<'a> {
    path: &'a str,
}

impl<'de> DeserializeSeed<'de> for KeySeeker<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Option<Value>, D::Error> {
        if self.path.is_empty() {
            return serde::Deserialize::deserialize(reader).map(Some);
        }
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeySeeker<'_> {
    type Value = Option<Value>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value of JSON")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Option<Value>, M::Error> {
        let (mut whole, mut nested) = (None, None);
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let rest = self.path.strip_prefix(&*key);
            if rest == Some("") {
                whole = Some(map.next_value::<Value>()?);
            } else if let Some(path) = rest.and_then(|rest| rest.strip_prefix('.')).filter(|p| !p.is_empty())
            {
                nested = map.next_value_seed(KeySeeker { path })?.or(nested);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(whole.or(nested))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Option<Value>, S::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_found_by_their_paths() {
        let text =
            r#"{"a": 1, "b": {"c": [1, 2], "d.e": "x", "n": null}, "b.c": true, "s": "v", "": {"": 7}}"#;
        let at = |path: &str| value_at(text, path);
        assert_eq!(at("a"), Some(json!(1)));
        assert_eq!(at("b.c"), Some(json!(true)), "a key with a dot comes first");
        assert_eq!(at("b.d.e"), Some(json!("x")));
        assert_eq!((at("b.n"), at("b.x"), at("a.x"), at("s.v"), at("c")), (None, None, None, None, None));
        assert_eq!(at(""), Some(serde_json::from_str(text).unwrap()));
        assert_eq!(value_at("[1, {\"a\": 2}]", "a"), None);
        assert_eq!(value_at("3", ""), Some(json!(3)));
        assert_eq!(value_at("{\"a\": ", "a"), None);
    }

    #[test]
    fn whole_numbers_are_exact_and_equal_to_floats_of_the_same_value() {
        let number = |text: &str| serde_json::from_str::<serde_json::Number>(text).unwrap();
        let wholes =
            ["3", "3.0", "-9223372036854775808", "9007199254740993", "1e3"].map(|text| whole(&number(text)));
        assert_eq!(wholes, [Some(3), Some(3), Some(i64::MIN), Some(9_007_199_254_740_993), Some(1000)]);
        assert_eq!(["2.5", "9223372036854775808", "1e300"].map(|text| whole(&number(text))), [None; 3]);
    }
}
