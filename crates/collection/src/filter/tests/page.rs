//! The examples in the guide's page about filters are correct.

use super::super::Filter;
use super::schema;
use crate::ids::IdKind;
use std::path::Path;

#[test]
fn the_examples_of_the_guide_are_equal_as_text_and_as_json() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/filters.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page.split("\n```").filter_map(|part| part.strip_prefix("text\n")).collect();
    let [words, json, keys, mistake] = blocks[..] else { panic!("{} blocks", blocks.len()) };
    let schema = schema(
        IdKind::Number,
        &[
            ("year", "int32"),
            ("lang", "string"),
            ("archived", "bool"),
            ("rating", "float32"),
            ("title", "string"),
            ("author", "string"),
            ("tags", "list<string>"),
            ("created", "timestamp"),
            ("day", "date"),
            ("meta", "json"),
        ],
    );
    let canonical = |filter: Filter| filter.bind(&schema).unwrap().canonical().to_string();
    assert_eq!(words.lines().count(), json.lines().count());
    let pairs = words.lines().zip(json.lines());
    for (words, json) in pairs.chain(keys.lines().zip(keys.lines().skip(1))) {
        let value = serde_json::from_str(json).unwrap();
        let (words, json) = (Filter::parse(words).unwrap(), Filter::from_json(&value).unwrap());
        assert_eq!(canonical(words), canonical(json));
    }
    let text = mistake.lines().nth(1).unwrap().trim();
    assert_eq!(Filter::parse(text).unwrap_err().to_string(), mistake);
}
