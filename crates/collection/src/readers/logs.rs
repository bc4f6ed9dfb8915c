//! Logs.

use crate::ids::IdKind;
use crate::log::LogBytes;
use crate::schema::{Column, Schema, VectorField};
use bathyal_kernels::{Element, Metric};

fn schema() -> Schema {
    let column = |name: &str, kind: &str| kind.parse().ok().map(|kind| Column { name: name.into(), kind });
    Schema {
        id_kind: IdKind::Number,
        vectors: vec![VectorField::new("v", 2, Element::F32, Metric::L2)],
        columns: [column("year", "int64"), column("lang", "string")].into_iter().flatten().collect(),
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    LogBytes::seeds(&schema()).unwrap_or_else(|error| panic!("{error}"))
}

/// A log that can be read is salvaged completely, and every change fits the schema.
pub(super) fn log(bytes: &[u8]) {
    let schema = schema();
    let log = LogBytes::with_checksums(bytes);
    if let Ok(changes) = log.read(&schema) {
        assert!(changes.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(log.salvage(&schema), changes, "what is read can be salvaged");
    } else {
        log.salvage(&schema);
    }
}
