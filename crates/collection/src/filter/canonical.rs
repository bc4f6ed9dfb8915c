//! Writes the canonical text of a normal form. Filters with equal texts are equal.

use super::cuts::{Cuts, Key};
use super::domain::{Domain, Values};
use super::expression::QuotedText;
use super::json_key::KeyDomain;
use super::normal::{ListTest, Normal, Source, ValueSet};
use crate::schema::{ID_COLUMN, Schema};
use arrow_schema::DataType;
use std::fmt::Write;

/// Returns the text of `normal` for the columns of `schema`.
pub(super) fn text(normal: &Normal, schema: &Schema) -> String {
    let mut text = String::new();
    write(normal, schema, &mut text);
    text
}

fn write(normal: &Normal, schema: &Schema, out: &mut String) {
    match normal {
        Normal::Constant(value) => *out += if *value { "true" } else { "false" },
        Normal::Single(source, set) => {
            *out += &name(source, schema);
            *out += " in ";
            write_set(set, &domain(source, schema), out);
        }
        Normal::List(source, test) => {
            *out += &name(source, schema);
            let (words, values) = match test {
                ListTest::Null => (" is null", None),
                ListTest::NotNull => (" is not null", None),
                ListTest::Has(values) => (" has {", Some(values)),
                ListTest::Lacks(values) => (" lacks {", Some(values)),
            };
            *out += words;
            if let Some(values) = values {
                write_values(values, &domain(source, schema), out);
                out.push('}');
            }
        }
        Normal::All(parts) | Normal::Any(parts) => {
            let between = if matches!(normal, Normal::All(_)) { " and " } else { " or " };
            out.push('(');
            for (number, part) in parts.iter().enumerate() {
                *out += if number > 0 { between } else { "" };
                write(part, schema, out);
            }
            out.push(')');
        }
    }
}

fn name(source: &Source, schema: &Schema) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let column = quoted(source.column().map_or(ID_COLUMN, |number| &schema.columns[number].name));
    match source {
        Source::Key(_, path) => format!("{column}.{}", quoted(path)),
        _ => column,
    }
}

/// Returns the domain of a column's values, or of the elements of its lists.
fn domain(source: &Source, schema: &Schema) -> Option<Domain> {
    let of_column = |number: usize| schema.columns[number].kind.data_type().clone();
    let data_type = source.column().map_or(schema.id_kind.data_type(), of_column);
    match data_type {
        DataType::List(item) => Domain::from_type(item.data_type()),
        single => Domain::from_type(&single),
    }
}

fn write_set(set: &ValueSet, domain: &Option<Domain>, out: &mut String) {
    out.push('{');
    write_values(&set.values, domain, out);
    for (contained, name) in [(set.nan, "nan"), (set.null, "null")] {
        if contained == Some(true) {
            *out += if out.ends_with('{') { "" } else { ", " };
            *out += name;
        }
    }
    out.push('}');
}

fn write_values(values: &Values, domain: &Option<Domain>, out: &mut String) {
    match values {
        Values::Numbers(cuts) => {
            let value = |number: u64| domain.map_or(String::new(), |domain| domain.format_value(number));
            // A range without an end extends to the last value.
            write_ranges(cuts, out, |begin, end| match end {
                Some(end) if end - begin == 1 => value(*begin),
                Some(end) => format!("{}..={}", value(*begin), value(end - 1)),
                None => format!("{}..", value(*begin)),
            });
        }
        Values::Text(cuts) => write_ranges(cuts, out, |begin, end| match end {
            Some(end) if end.strip_suffix('\0') == Some(begin) => QuotedText(begin).to_string(),
            Some(end) => format!("{}..{}", QuotedText(begin), QuotedText(end)),
            None => format!("{}..", QuotedText(begin)),
        }),
        Values::Key(values) => {
            let numbers = |cuts: &Cuts<u64>| Values::Numbers(cuts.clone());
            let parts = [
                (KeyDomain::Bools, numbers(&values.bools)),
                (KeyDomain::Wholes, numbers(&values.wholes)),
                (KeyDomain::Larges, numbers(&values.larges)),
                (KeyDomain::Floats, numbers(&values.floats)),
                (KeyDomain::Texts, Values::Text(values.texts.clone())),
            ];
            for (at, (of, part)) in parts.iter().enumerate() {
                *out += if at > 0 { "; " } else { "" };
                write_values(part, &Some(of.domain()), out);
            }
        }
    }
}

fn write_ranges<K: Key>(cuts: &Cuts<K>, out: &mut String, format_range: impl Fn(&K, Option<&K>) -> String) {
    for (number, (begin, end)) in cuts.ranges().enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(out, "{comma}{}", format_range(begin, end));
    }
}
