//! The readers of manifests.

use super::{graph, sealed, unsealed};
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::families::flat::FlatEntry;
use bathyal_index::families::graph::GraphEntry;
use bathyal_index::families::lsh::LshEntry;
use bathyal_index::families::partitioned::PartitionedEntry;
use bathyal_index::families::spann::SpannEntry;
use bathyal_index::format::manifest::{FileEntry, Manifest};
use serde::Serialize;
use std::path::Path;

pub fn manifest() -> Vec<u8> {
    graph::manifest().to_bytes().expect("writable")
}

pub fn manifest_file(bytes: &[u8]) {
    let Ok(manifest) = Manifest::parse(bytes, Path::new("index")) else { return };
    // A manifest that was read can be written, and then reads the same. Manifests of version 1 have another
    // shape.
    match manifest.to_bytes() {
        Ok(written) => assert_eq!(Manifest::parse(&written, Path::new("index")).expect("readable"), manifest),
        Err(_) => assert_eq!(manifest.format_version, 1, "writable"),
    }
    // The same holds for the section of its family, which no other family accepts.
    let cluster = ClusterEntry::read(&manifest);
    let graph = GraphEntry::read(&manifest);
    let lists = SpannEntry::read(&manifest);
    let flat = FlatEntry::read(&manifest);
    let hashed = LshEntry::read(&manifest);
    let parted = PartitionedEntry::read(&manifest);
    assert!(parted.is_err() || manifest.family == "partitioned");
    assert!(hashed.is_err() || manifest.family == "lsh");
    assert!(cluster.is_err() || manifest.family == "cluster");
    assert!(graph.is_err() || manifest.family == "graph");
    assert!(lists.is_err() || manifest.family == "spann");
    assert!(flat.is_err() || manifest.family == "flat");
    let mut again = manifest;
    if let Ok(entry) = cluster {
        assert_eq!(rewritten(&mut again, &entry, entry.files(), ClusterEntry::read), entry);
    }
    if let Ok(entry) = graph {
        assert_eq!(rewritten(&mut again, &entry, entry.files(), GraphEntry::read), entry);
    }
    if let Ok(entry) = hashed {
        assert_eq!(rewritten(&mut again, &entry, entry.files(), LshEntry::read), entry);
    }
    if let Ok(entry) = parted {
        assert_eq!(rewritten(&mut again, &entry, entry.files(), PartitionedEntry::read), entry);
    }
    if let Ok(entry) = flat {
        assert_eq!(rewritten(&mut again, &entry, entry.files(), FlatEntry::read), entry);
    }
    if let Ok(entry) = lists {
        assert_eq!(rewritten(&mut again, &entry, entry.files(), SpannEntry::read), entry);
    }
}

/// Reads a manifest without its checksum, and adds one that fits. Mutations of a whole file hardly ever fit.
pub fn manifest_content(json: &[u8]) {
    manifest_file(&sealed(json));
}

/// Writes the section of a family, and reads it back.
fn rewritten<E: Serialize>(
    manifest: &mut Manifest,
    entry: &E,
    files: Vec<FileEntry>,
    read: fn(&Manifest) -> Result<E, String>,
) -> E {
    manifest.set_structure(entry, files).expect("writable");
    read(manifest).expect("readable")
}

/// Returns the contents of manifests of version 1 of the format.
pub fn first_manifests() -> Vec<Vec<u8>> {
    let sealed: [&[u8]; 5] = [
        include_bytes!("../../../../../testdata/indexes/version_1/cluster/manifest.json"),
        include_bytes!("../../../../../testdata/indexes/version_1/graph_csr/manifest.json"),
        include_bytes!("../../../../../testdata/indexes/version_1/graph_page_local/manifest.json"),
        include_bytes!("../../../../../testdata/indexes/version_1/spann_codes/manifest.json"),
        include_bytes!("../../../../../testdata/indexes/version_1/spann_grouped/manifest.json"),
    ];
    let content = |bytes: &[u8]| {
        let manifest = Manifest::parse(bytes, Path::new("index")).expect("a manifest of version 1");
        assert_eq!(manifest.format_version, 1);
        unsealed(bytes)
    };
    sealed.map(content).to_vec()
}
