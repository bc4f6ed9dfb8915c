//! The text of a normal form: equal texts are of equal filters.

use super::cuts::{Cuts, Key};
use super::domain::{Domain, Values};
use super::expression::QuotedText;
use super::normal::{ListTest, Normal, Set, Source};
use crate::schema::{ID_COLUMN, Schema};
use arrow_schema::DataType;
use std::fmt::Write;

/// The text of `normal`, whose columns are those of `schema`.
pub(super) fn text(normal: &Normal, schema: &Schema) -> String {
    let mut text = String::new();
    write(normal, schema, &mut text);
    text
}

fn write(normal: &Normal, schema: &Schema, to: &mut String) {
    match normal {
        Normal::Constant(value) => *to += if *value { "true" } else { "false" },
        Normal::Single(source, set) => {
            *to += &name(*source, schema);
            *to += " in ";
            write_set(set, &domain(*source, schema), to);
        }
        Normal::List(source, test) => {
            *to += &name(*source, schema);
            let (words, values) = match test {
                ListTest::Null => (" is null", None),
                ListTest::NotNull => (" is not null", None),
                ListTest::Has(values) => (" has {", Some(values)),
                ListTest::Lacks(values) => (" lacks {", Some(values)),
            };
            *to += words;
            if let Some(values) = values {
                write_values(values, &domain(*source, schema), to);
                to.push('}');
            }
        }
        Normal::All(parts) | Normal::Any(parts) => {
            let between = if matches!(normal, Normal::All(_)) { " and " } else { " or " };
            to.push('(');
            for (number, part) in parts.iter().enumerate() {
                *to += if number > 0 { between } else { "" };
                write(part, schema, to);
            }
            to.push(')');
        }
    }
}

fn name(source: Source, schema: &Schema) -> String {
    let name = source.map_or(ID_COLUMN, |number| &schema.columns[number].name);
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Of the values of a column or of the elements of its lists.
fn domain(source: Source, schema: &Schema) -> Option<Domain> {
    let data_type =
        source.map_or(schema.id_kind.data_type(), |number| schema.columns[number].kind.data_type().clone());
    match data_type {
        DataType::List(item) => Domain::of(item.data_type()),
        single => Domain::of(&single),
    }
}

fn write_set(set: &Set, domain: &Option<Domain>, to: &mut String) {
    to.push('{');
    write_values(&set.values, domain, to);
    for (there, word) in [(set.nan, "nan"), (set.null, "null")] {
        if there == Some(true) {
            *to += if to.ends_with('{') { "" } else { ", " };
            *to += word;
        }
    }
    to.push('}');
}

fn write_values(values: &Values, domain: &Option<Domain>, to: &mut String) {
    match values {
        Values::Numbers(cuts) => {
            let word = |number: u64| domain.map_or(String::new(), |domain| domain.word(number));
            // What is left out ends at the end of all values.
            write_ranges(cuts, to, |begin, end| match end {
                Some(end) if end - begin == 1 => word(*begin),
                Some(end) => format!("{}..={}", word(*begin), word(end - 1)),
                None => format!("{}..", word(*begin)),
            });
        }
        Values::Text(cuts) => write_ranges(cuts, to, |begin, end| match end {
            Some(end) if end.strip_suffix('\0') == Some(begin) => QuotedText(begin).to_string(),
            Some(end) => format!("{}..{}", QuotedText(begin), QuotedText(end)),
            None => format!("{}..", QuotedText(begin)),
        }),
    }
}

fn write_ranges<K: Key>(cuts: &Cuts<K>, to: &mut String, word: impl Fn(&K, Option<&K>) -> String) {
    for (number, (begin, end)) in cuts.ranges().enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        // Writing to a string does not fail.
        let _ = write!(to, "{comma}{}", word(begin, end));
    }
}
