//! Manifests and offsets of graphs that do not describe the file of the graph.

use super::sweep::TestIndex;
use bathyal_index::families::graph::GraphEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{GraphLayoutChoice, Index, OpenOptions, TierChoice, verify};
use bathyal_vectors::progress::Silent;

fn build(layout: GraphLayoutChoice) -> TestIndex {
    TestIndex::build(super::graph(layout))
}

/// Changes the section of a manifest that describes the graph, and the list of files.
fn change(manifest: &mut Manifest, change: impl FnOnce(&mut GraphEntry)) {
    let mut entry = GraphEntry::read(manifest).unwrap();
    change(&mut entry);
    manifest.set_structure(&entry, entry.files()).unwrap();
}

#[test]
fn contradictory_manifests_are_refused() {
    build(GraphLayoutChoice::Padded).refuse_manifests(&[
        |m| m.family = "vamana".into(),
        |m| m.family = "spann".into(),
        |m| m.structure = serde_json::Value::Null,
        |m| m.files.rotate_left(1),
        |m| m.vectors = u64::MAX,
        |m| m.vectors += 1,
        |m| m.dim = 0,
        |m| m.dim = u32::MAX,
        |m| change(m, |g| g.entry_point = 300),
        |m| change(m, |g| g.max_degree = 0),
        |m| change(m, |g| g.page_bytes = 0),
        |m| change(m, |g| g.page_vectors = 9),
        |m| change(m, |g| g.layout = "page_local".into()),
        |m| change(m, |g| g.codes.code_bytes = u32::MAX),
        |m| change(m, |g| g.file.name = "../graph.bin".into()),
    ]);
}

#[test]
fn contradictory_manifests_of_page_local_graphs_are_refused() {
    build(GraphLayoutChoice::PageLocal).refuse_manifests(&[
        |m| m.vectors += 1000,
        |m| change(m, |g| g.page_vectors = 0),
        |m| change(m, |g| g.page_vectors = 1),
        |m| change(m, |g| g.page_vectors = u32::MAX),
        |m| change(m, |g| g.page_bytes = 8192),
        |m| change(m, |g| g.layout = "padded".into()),
    ]);
}

#[test]
fn contradictory_manifests_of_packed_records_are_refused() {
    build(GraphLayoutChoice::Csr).refuse_manifests(&[
        |m| m.vectors += 1,
        |m| m.vectors -= 1,
        |m| change(m, |g| g.offsets = None),
        |m| change(m, |g| g.offsets = Some(g.file.clone())),
        |m| change(m, |g| g.page_bytes = 4096),
        |m| change(m, |g| g.page_vectors = 1),
        |m| change(m, |g| g.file.bytes -= 1),
        |m| change(m, |g| g.layout = "padded".into()),
    ]);
}

#[test]
fn wrong_offsets_are_refused_although_checksums_fit() {
    let index = build(GraphLayoutChoice::Csr);
    let sound = index.read("offsets.bin");
    let (mut refused_at_open, mut refused_later) = (0, 0);
    for bit in (0..sound.len() * 8).step_by(3) {
        index.replace("offsets.bin", &super::sweep::flipped(&sound, bit));
        let found = verify(&index.path, &Silent).unwrap();
        match Index::open(&index.path, &OpenOptions::default()) {
            // The offsets do not rise, or they do not end with the file.
            Err(error) => {
                assert!(error.to_string().contains("offsets"), "{error}");
                assert!(!found.sound, "bit {bit}");
                refused_at_open += 1;
            }
            // The offsets rise up to the end of the file, but lead to other records. The checksums of the
            // records do not match.
            Ok(_) if !found.sound => refused_later += 1,
            // The bits behind the last offset are not used.
            Ok(_) => {
                index.answers(TierChoice::Dram).unwrap();
            }
        }
    }
    assert!(refused_at_open > 100 && refused_later > 100, "{refused_at_open} {refused_later}");
    for cut in [0, 7, 8, sound.len() - 8, sound.len() - 1] {
        index.replace("offsets.bin", &sound[..cut]);
        assert!(index.answers(TierChoice::Dram).is_err(), "cut to {cut}");
        assert!(!verify(&index.path, &Silent).unwrap().sound);
    }
    index.replace("offsets.bin", &sound);
    assert!(verify(&index.path, &Silent).unwrap().sound);
}
