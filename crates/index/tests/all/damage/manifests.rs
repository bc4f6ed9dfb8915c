//! Manifests that describe something else than the files of their index, with checksums that fit.

use super::sweep::TestIndex;
use super::{cluster, graph, lists};
use crate::files::write_manifest;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    GraphLayoutChoice, Index, IndexError, OpenOptions, PostingLayout, TierChoice, inspect, verify,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_vectors::progress::Silent;
use serde_json::Value;

/// A change of a calibration curve, as JSON.
struct CurveLie {
    what: &'static str,
    /// The field of a point that changes. A family that does not measure it is left out.
    field: &'static str,
    apply: fn(&mut Value),
}

const CURVE_LIES: [CurveLie; 9] = [
    CurveLie {
        what: "recall above 1",
        field: "recall",
        apply: |curve| curve["points"][0]["recall"] = 1.5.into(),
    },
    CurveLie {
        what: "negative recall",
        field: "recall",
        apply: |curve| curve["points"][0]["recall"] = (-0.5).into(),
    },
    CurveLie { what: "recall that falls", field: "recall", apply: add_falling_point },
    CurveLie {
        what: "no points",
        field: "recall",
        apply: |curve| curve["points"] = Value::Array(Vec::new()),
    },
    CurveLie {
        what: "a list of 2^31",
        field: "search_list",
        apply: |curve| {
            let points = curve["points"].as_array_mut().unwrap();
            points.iter_mut().for_each(|point| point["search_list"] = (1_u32 << 31).into());
        },
    },
    CurveLie {
        what: "more probes than there are",
        field: "probes",
        apply: |curve| curve["points"][0]["probes"] = (1 << 20).into(),
    },
    CurveLie {
        what: "a negative prune",
        field: "prune",
        apply: |curve| curve["points"][0]["prune"] = (-1.0).into(),
    },
    CurveLie {
        what: "more lists than probes",
        field: "lists",
        apply: |curve| curve["points"][0]["lists"] = 1e9.into(),
    },
    CurveLie {
        what: "more neighbours than vectors",
        field: "recall",
        apply: |curve| curve["k"] = (1 << 20).into(),
    },
];

/// Adds a point of more effort and less recall.
fn add_falling_point(curve: &mut Value) {
    let points = curve["points"].as_array_mut().unwrap();
    let last = points.last_mut().unwrap();
    last["recall"] = 0.9.into();
    let mut more = last.clone();
    (more["search_list"], more["recall"]) = ((1 << 19).into(), 0.1.into());
    points.push(more);
}

/// Opening and verifying refuse such a calibration, before any search uses it.
#[test]
fn an_impossible_calibration_is_refused() {
    for (name, family) in [
        ("graph", graph(GraphLayoutChoice::Padded)),
        ("cluster", cluster()),
        ("lists", lists(PostingLayout::Grouped, None)),
        ("codes", lists(PostingLayout::Coupled, Some(CodeKind::Axes))),
    ] {
        let index = TestIndex::build(family);
        let sound = index.manifest();
        for CurveLie { what, field, apply } in CURVE_LIES {
            let mut manifest = sound.clone();
            let curves = manifest.structure["calibration"]["curves"].as_array_mut().unwrap();
            let curve = curves.last_mut().unwrap();
            if curve["points"][0].get(field).is_none() {
                continue;
            }
            apply(curve);
            write_manifest(&index.path, &manifest);
            let opened = Index::open(&index.path, &OpenOptions::default()).map(|_| ());
            let error = opened.expect_err(&format!("{name}: {what}"));
            assert!(matches!(error, IndexError::Damaged { .. }), "{name}, {what}: {error}");
            assert!(!verify(&index.path, &Silent).unwrap().sound, "{name}: {what}");
        }
        // JSON has no NaN. A null is not a number.
        let text = String::from_utf8(sound.to_bytes().unwrap()).unwrap();
        let json = text.rsplit_once("\ncrc32c").unwrap().0.replace("\"recall\":1.0", "\"recall\":null");
        assert!(json.contains("null"), "{name}");
        index.write("manifest.json", &sealed(&json));
        assert!(Index::open(&index.path, &OpenOptions::default()).is_err(), "{name}");
        assert!(!verify(&index.path, &Silent).unwrap().sound, "{name}");
    }
}

/// Returns the text of a manifest with its checksum.
fn sealed(json: &str) -> Vec<u8> {
    format!("{json}\ncrc32c {:08x}\n", crc32c::crc32c(json.as_bytes())).into_bytes()
}

#[test]
fn foreign_folders_and_later_versions_are_refused_with_advice() {
    let index = TestIndex::build(graph(GraphLayoutChoice::Padded));
    let refused = |path: &std::path::Path| {
        Index::open(path, &OpenOptions { tier: TierChoice::File, ..OpenOptions::default() })
            .map(|_| ())
            .unwrap_err()
    };
    let absent = refused(&index.folder.path().join("nowhere"));
    assert!(absent.to_string().contains("nowhere"), "{absent}");
    assert!(matches!(refused(index.folder.path()), IndexError::NotAnIndex { .. }));
    assert!(matches!(refused(&index.path.join("graph.bin")), IndexError::NotAnIndex { .. }));
    write_manifest(&index.path, &Manifest { format_version: 99, ..index.manifest() });
    let error = refused(&index.path);
    assert!(matches!(error, IndexError::LaterVersion { found: 99, .. }));
    assert!(error.to_string().contains("upgrade"), "{error}");
    assert!(verify(&index.path, &Silent).is_err() && inspect(&index.path, &Silent).is_err());
}

/// Versions begin at 1. A manifest of version 0 is not read as one of an earlier version.
#[test]
fn a_manifest_of_version_0_is_refused() {
    let index = TestIndex::build(graph(GraphLayoutChoice::Padded));
    let text = String::from_utf8(index.read("manifest.json")).unwrap();
    let mut manifest: Value = serde_json::from_str(text.trim_end().rsplit_once('\n').unwrap().0).unwrap();
    manifest["format_version"] = 0.into();
    manifest.as_object_mut().unwrap().remove("identity");
    index.write("manifest.json", &sealed(&serde_json::to_string_pretty(&manifest).unwrap()));
    let error = index.answers(TierChoice::File).unwrap_err();
    assert!(error.to_string().contains("version is 0"), "{error}");
}
