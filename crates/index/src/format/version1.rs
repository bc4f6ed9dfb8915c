//! Reads manifests of format version 1 and converts them to version 2.
//!
//! A manifest of version 1 has the files of an index in its family's section, the codes and the calibration
//! beside that section, and one shape of calibration points for all families. It calls the family of graphs
//! "vamana".

use super::manifest::Manifest;
use serde_json::{Map, Value, json};

/// Reads the manifest of an index of version 1.
///
/// # Errors
/// A sentence that states what is wrong.
pub(super) fn manifest(bytes: &[u8]) -> Result<Manifest, String> {
    let mut old: Map<String, Value> = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let sections = ["graph", "cluster", "spann"];
    let name =
        sections.into_iter().find(|name| old.contains_key(*name)).ok_or("it has no family's section")?;
    let family = if name == "graph" { "vamana" } else { name };
    if old.get("family").and_then(Value::as_str) != Some(family) {
        return Err(format!("it has a section of the family {family}, but its family is another one"));
    }
    let (mut section, mut codes) = (object(&mut old, name)?, object(&mut old, "codes")?);
    let mut calibration = object(&mut old, "calibration")?;
    let mut files = Vec::new();
    // The file that searches read comes first.
    take_files(&mut section, &mut files, Some("file"));
    take_files(&mut codes, &mut files, None);
    take_files(&mut section, &mut files, None);
    if let Some(Value::Object(mut list_codes)) = section.remove("codes") {
        take_files(&mut list_codes, &mut files, None);
        section.insert("list_codes".into(), Value::Object(list_codes));
    }
    if let Some(lone) = calibration.remove("lone_curves") {
        section.insert("lone_curves".into(), lone);
    }
    section.insert("codes".into(), Value::Object(codes));
    section.insert("calibration".into(), Value::Object(calibration));
    old.insert("family".into(), json!(name));
    old.insert("files".into(), Value::Array(files));
    old.insert("structure".into(), Value::Object(section));
    serde_json::from_value(Value::Object(old)).map_err(|e| e.to_string())
}

fn object(from: &mut Map<String, Value>, key: &str) -> Result<Map<String, Value>, String> {
    match from.remove(key) {
        Some(Value::Object(found)) => Ok(found),
        _ => Err(format!("it has no {key}")),
    }
}

/// Moves the descriptions of files from a section to the list: the one under `key`, or all.
fn take_files(section: &mut Map<String, Value>, files: &mut Vec<Value>, key: Option<&str>) {
    let is_file = |value: &Value| value.get("crc32c").is_some();
    let keys: Vec<String> =
        section.iter().filter(|(_, value)| is_file(value)).map(|(key, _)| key.clone()).collect();
    for name in keys.iter().filter(|name| key.is_none_or(|key| key == *name)) {
        files.extend(section.remove(name));
    }
}
