//! Files of a cluster index that are damaged, also behind checksums that fit.

use super::sweep::{Lie, TestIndex, bits, data, flipped, options};
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{BuildOptions, TierChoice, build};
use bathyal_kernels::Metric;
use bathyal_vectors::progress::Silent;

fn build_index() -> TestIndex {
    TestIndex::build(super::cluster())
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    build_index().flip_bits(60);
}

#[test]
fn missing_and_truncated_files_are_named() {
    build_index().remove_and_truncate();
}

/// Searches of files do not read the places. `verify` finds the damage before a search that reads single
/// vectors needs them.
#[test]
fn verify_finds_damaged_places_that_searches_do_not_read() {
    let index = build_index();
    let original = index.read("places.bin");
    assert!(index.is_sound());
    let found = |what: &str| {
        assert!(!index.is_sound(), "{what}");
        index.answers(TierChoice::File).unwrap();
    };
    for bit in bits(original.len(), 60) {
        index.write("places.bin", &flipped(&original, bit));
        found(&format!("bit {bit}"));
    }
    for len in [0, original.len() - 1] {
        index.write("places.bin", &original[..len]);
        found(&format!("{len} bytes"));
    }
    std::fs::remove_file(index.path.join("places.bin")).unwrap();
    found("no file");
}

/// Changes the section of a manifest that describes the groups, and the list of files.
fn change(manifest: &mut Manifest, change: impl FnOnce(&mut ClusterEntry)) {
    let mut entry = ClusterEntry::read(manifest).unwrap();
    change(&mut entry);
    manifest.set_structure(&entry, entry.files()).unwrap();
}

const LIES: [Lie; 24] = [
    |m| m.vectors = u64::MAX,
    |m| m.vectors += 1,
    |m| m.dim = 0,
    |m| m.dim = u32::MAX,
    |m| change(m, |c| c.codes.code_bytes = u32::MAX),
    |m| change(m, |c| c.codes.file.name = "../codes.bin".into()),
    |m| m.metric = "manhattan".into(),
    |m| m.family = "forest".into(),
    |m| change(m, |c| c.groups += 1),
    |m| change(m, |c| c.groups = u32::MAX),
    |m| change(m, |c| c.groups = 0),
    |m| change(m, |c| c.runs = 0),
    |m| change(m, |c| c.runs = u32::MAX),
    |m| change(m, |c| c.page_bytes = 0),
    |m| change(m, |c| c.page_bytes = 512),
    |m| change(m, |c| c.group_pages = u32::MAX),
    |m| change(m, |c| c.file.name = "../vectors.bin".into()),
    |m| m.family = "graph".into(),
    |m| m.structure = "paper".into(),
    |m| m.structure["groups"] = "many".into(),
    |m| m.files.clear(),
    |m| m.files.swap(0, 1),
    |m| m.files[1] = m.files[0].clone(),
    |m| m.files.retain(|file| file.name != "rows.bin"),
];

#[test]
fn contradictory_manifests_are_refused() {
    build_index().refuse_manifests(&LIES);
}

/// Where the counts of `centroids.bin` begin: behind the mean, the unit, and the centroids and first groups
/// of the runs.
fn counts_offset(runs: usize) -> usize {
    4 * 17 + 2 * 16 * runs + 4 * runs
}

/// Each of these numbers is refused, although the checksum of the file fits.
fn check_centroids(index: &TestIndex, counts: usize) {
    let centroids = index.read("centroids.bin");
    let not_a_number = f32::NAN.to_le_bytes();
    for (what, at, value) in [
        ("mean", 0, not_a_number),
        ("unit", 4 * 16, not_a_number),
        ("no unit", 4 * 16, [0; 4]),
        ("a run", 4 * 17, [0xff; 4]),
        ("a first group", counts - 4, [1, 0, 0, 0]),
        ("no vectors", counts, [0; 4]),
        ("many vectors", counts, [0xff; 4]),
    ] {
        let mut bytes = centroids.clone();
        bytes[at..at + 4].copy_from_slice(&value);
        index.replace("centroids.bin", &bytes);
        index.check_refused(what);
    }
    index.replace("centroids.bin", &centroids);
}

/// The centroid of a group is refused if it is not a number, and found by its own checksum if it is another.
fn check_rows(index: &TestIndex) {
    let rows = index.read("rows.bin");
    let mut bytes = rows.clone();
    bytes[2..4].copy_from_slice(&[0xff; 2]);
    index.replace("rows.bin", &bytes);
    index.check_refused("a group");
    let mut bytes = rows.clone();
    bytes[0] ^= 1;
    index.replace("rows.bin", &bytes);
    assert!(!index.is_sound(), "a row and its checksum");
    index.replace("rows.bin", &rows);
}

/// Places of other vectors, and checksums of other vectors, contradict the pages.
fn check_places(index: &TestIndex) {
    let places = index.read("places.bin");
    for (what, at, value) in [("an id", 0, places[8]), ("a checksum", 4, !places[4]), ("none", 3, 0xff)] {
        let mut bytes = places.clone();
        bytes[at] = value;
        index.replace("places.bin", &bytes);
        assert!(!index.is_sound(), "places: {what}");
    }
    index.replace("places.bin", &places);
}

#[test]
fn contradictory_groups_are_refused_although_checksums_fit() {
    let index = build_index();
    let centroids = index.read("centroids.bin");
    let entry = ClusterEntry::read(&index.manifest()).unwrap();
    let counts = counts_offset(entry.runs as usize);
    check_centroids(&index, counts);
    check_rows(&index);
    check_places(&index);

    // Two groups exchange one vector: the sum of the counts fits, and the pages do not.
    let mut bytes = centroids.clone();
    let last = counts + 4 * (entry.groups as usize - 1);
    let (first, end) = (bytes[counts] - 1, bytes[last] + 1);
    (bytes[counts], bytes[last]) = (first, end);
    index.replace("centroids.bin", &bytes);
    assert!(!index.is_sound(), "counts and pages");
    index.replace("centroids.bin", &centroids);

    let pages = index.read("vectors.bin");
    let mut rotated = pages.clone();
    rotated.rotate_left(4096);
    index.replace("vectors.bin", &rotated);
    index.check_refused("pages of other groups");
    index.replace("vectors.bin", &pages);
    index.answers(TierChoice::File).unwrap();

    // A codec of another metric estimates other distances.
    let other = index.folder.path().join("other");
    let options = BuildOptions { metric: Metric::InnerProduct, ..options(super::cluster()) };
    build(&data(), &other, &options, &Silent).unwrap();
    index.replace("codec.bin", &std::fs::read(other.join("codec.bin")).unwrap());
    index.check_refused("a codec of another metric");
}
