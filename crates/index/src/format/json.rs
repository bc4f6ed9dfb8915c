//! Writes JSON that is both readable and compact: deeply nested values are on one line.

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Error, Serializer};
use std::io::{Result, Write};

/// Objects and arrays nested more deeply than this are written on one line.
const LINED_DEPTH: usize = 3;

/// Returns `value` as JSON, formatted as [`LINED_DEPTH`] states.
pub(super) fn to_vec(value: &impl Serialize) -> std::result::Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, DepthFormatter::default()))?;
    Ok(bytes)
}

#[derive(Default)]
struct DepthFormatter {
    pretty: PrettyFormatter<'static>,
    depth: usize,
}

/// Formats shallow values as the pretty formatter does, and deep ones with a bare separator.
macro_rules! shallow {
    ($name:ident, $writer:ident $(, $given:ident: $kind:ty)?; $deep:expr) => {
        fn $name<W: Write + ?Sized>(&mut self, $writer: &mut W $(, $given: $kind)?) -> Result<()> {
            if self.depth > LINED_DEPTH { $deep } else { self.pretty.$name($writer $(, $given)?) }
        }
    };
}

fn separated<W: Write + ?Sized>(writer: &mut W, first: bool) -> Result<()> {
    if first { Ok(()) } else { writer.write_all(b",") }
}

impl Formatter for DepthFormatter {
    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        self.depth += 1;
        if self.depth > LINED_DEPTH { writer.write_all(b"[") } else { self.pretty.begin_array(writer) }
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        self.depth -= 1;
        if self.depth >= LINED_DEPTH { writer.write_all(b"]") } else { self.pretty.end_array(writer) }
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        self.depth += 1;
        if self.depth > LINED_DEPTH { writer.write_all(b"{") } else { self.pretty.begin_object(writer) }
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        self.depth -= 1;
        if self.depth >= LINED_DEPTH { writer.write_all(b"}") } else { self.pretty.end_object(writer) }
    }

    shallow!(begin_array_value, writer, first: bool; separated(writer, first));
    shallow!(end_array_value, writer; Ok(()));
    shallow!(begin_object_key, writer, first: bool; separated(writer, first));
    shallow!(begin_object_value, writer; writer.write_all(b":"));
    shallow!(end_object_value, writer; Ok(()));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn deeply_nested_values_are_on_one_line() {
        let value =
            json!({ "a": [], "b": { "c": [1, { "d": [2, { "e": {} }], "f": null }], "g": {} }, "h": "i" });
        let bytes = super::to_vec(&value).unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), value);
        let expected = [
            "{",
            "  \"a\": [],",
            "  \"b\": {",
            "    \"c\": [",
            "      1,",
            "      {\"d\":[2,{\"e\":{}}],\"f\":null}",
            "    ],",
            "    \"g\": {}",
            "  },",
            "  \"h\": \"i\"",
            "}",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
