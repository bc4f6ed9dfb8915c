//! Damaged, truncated and missing files of a cluster index: found by `verify`, refused by `open` or `search` when they
//! touch them, never a wrong answer in silence.

use crate::clustered::vectors;
use crate::whole::quickly;
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, Index, IndexError, OpenOptions, SearchOptions, TierChoice, build,
    verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const FILES: [&str; 6] =
    ["vectors.bin", "codes.bin", "codec.bin", "centroids.bin", "rows.bin", "manifest.json"];

fn options() -> BuildOptions {
    options_of(ClusterOptions::default())
}

fn options_of(family: ClusterOptions) -> BuildOptions {
    let family = ClusterOptions { code_bytes: Some(8), ..family };
    BuildOptions { threads: 2, ..quickly(family) }
}

fn built(dir: &Path) -> (VectorFile, PathBuf) {
    let path = dir.join("index");
    build(&vectors(Element::U8, 300, 16, 1), &path, &options(), &Silent).unwrap();
    (vectors(Element::U8, 20, 16, 2), path)
}

fn answers(path: &Path, queries: &VectorFile, tier: TierChoice) -> Result<Vec<u32>, IndexError> {
    let index = Index::open(path, &OpenOptions { tier, ..OpenOptions::default() })?;
    let options = SearchOptions { effort: Effort::SearchList(30), ..SearchOptions::default() };
    Ok(index.search(queries, &options, Control::default())?.ids)
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    let sound = answers(&path, &queries, TierChoice::File).unwrap();
    for name in FILES {
        let file = path.join(name);
        let original = std::fs::read(&file).unwrap();
        let mut refused = 0;
        for i in 0..60_usize {
            let bit = (i * 7_919_911 + 13) % (original.len() * 8);
            let mut bytes = original.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&file, &bytes).unwrap();
            // A flip in the version field reads as a later version, which is refused too.
            let found = verify(&path, &Silent).map_or(true, |report| !report.sound);
            assert!(found, "{name}: bit {bit} was not found");
            for tier in [TierChoice::File, TierChoice::Dram] {
                match answers(&path, &queries, tier) {
                    Ok(ids) => assert_eq!(ids, sound, "{name}: bit {bit} changed an answer"),
                    Err(_) => refused += 1,
                }
            }
        }
        std::fs::write(&file, &original).unwrap();
        assert!(refused >= 60, "{name}: {refused}");
    }
    assert!(verify(&path, &Silent).unwrap().sound);
}

#[test]
fn missing_and_truncated_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    for name in FILES {
        let file = path.join(name);
        let original = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let error = answers(&path, &queries, TierChoice::File).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        for len in [0, 1, original.len() - 1] {
            std::fs::write(&file, &original[..len]).unwrap();
            let error = answers(&path, &queries, TierChoice::File).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        std::fs::write(&file, &original).unwrap();
    }
    answers(&path, &queries, TierChoice::File).unwrap();
}

/// Searches of files have no use for it; whoever reads vectors alone has, and `verify` is to know before.
#[test]
fn damaged_places_are_found_where_nobody_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    let file = path.join("places.bin");
    let original = std::fs::read(&file).unwrap();
    assert!(verify(&path, &Silent).unwrap().sound);
    let found = |what: &str| {
        let report = verify(&path, &Silent);
        assert!(report.map_or(true, |report| !report.sound), "{what}");
        answers(&path, &queries, TierChoice::File).unwrap();
    };
    for i in 0..60_usize {
        let bit = (i * 7_919_911 + 13) % (original.len() * 8);
        let mut bytes = original.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, &bytes).unwrap();
        found(&format!("bit {bit}"));
    }
    for len in [0, original.len() - 1] {
        std::fs::write(&file, &original[..len]).unwrap();
        found(&format!("{len} bytes"));
    }
    std::fs::remove_file(&file).unwrap();
    found("no file");
}

/// Changes what the manifest says of the groups, and of their files.
fn change(manifest: &mut Manifest, change: impl FnOnce(&mut ClusterEntry)) {
    let mut entry = ClusterEntry::read(manifest).unwrap();
    change(&mut entry);
    manifest.set_structure(&entry, entry.files()).unwrap();
}

type Lie = fn(&mut Manifest);

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
fn lying_manifests_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    let sound = Manifest::read(&path).unwrap();
    for (i, lie) in LIES.iter().enumerate() {
        let mut manifest = sound.clone();
        lie(&mut manifest);
        std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
        assert!(answers(&path, &queries, TierChoice::File).is_err(), "lie {i}");
        assert!(!verify(&path, &Silent).is_ok_and(|report| report.sound), "lie {i}");
    }
}

/// Replaces a file of the index by `bytes` and makes the manifest agree.
fn replace(path: &Path, name: &str, bytes: &[u8]) {
    let mut manifest = Manifest::read(path).unwrap();
    let entry = manifest.files.iter_mut().find(|file| file.name == name).unwrap();
    (entry.bytes, entry.crc32c) = (bytes.len() as u64, crc32c::crc32c(bytes));
    std::fs::write(path.join(name), bytes).unwrap();
    std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
}

#[test]
fn groups_that_lie_behind_checksums_that_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    let refused = |what: &str| {
        for tier in [TierChoice::File, TierChoice::Dram] {
            assert!(answers(&path, &queries, tier.clone()).is_err(), "{what}: {tier:?}");
        }
        assert!(!verify(&path, &Silent).is_ok_and(|report| report.sound), "{what}");
    };
    let centroids = std::fs::read(path.join("centroids.bin")).unwrap();
    let entry = ClusterEntry::read(&Manifest::read(&path).unwrap()).unwrap();
    let (groups, runs) = (entry.groups as usize, entry.runs as usize);
    // After the mean, the unit, the centroids and the first groups of the runs: the counts.
    let counts = 4 * 17 + 2 * 16 * runs + 4 * runs;
    // The mean, the unit, a run's centroid, the first run, the counts of the groups.
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
        replace(&path, "centroids.bin", &bytes);
        refused(what);
    }
    let rows = std::fs::read(path.join("rows.bin")).unwrap();
    let mut bytes = rows.clone();
    bytes[2..4].copy_from_slice(&[0xff; 2]);
    replace(&path, "rows.bin", &bytes);
    refused("a group");
    // Another row than was built: finite, so that only its own checksum tells.
    let mut bytes = rows.clone();
    bytes[0] ^= 1;
    replace(&path, "rows.bin", &bytes);
    assert!(!verify(&path, &Silent).unwrap().sound, "a row and its checksum");
    replace(&path, "rows.bin", &rows);
    // Places of other vectors than lie there, and a checksum of another: which only the pages tell.
    let places = std::fs::read(path.join("places.bin")).unwrap();
    for (what, at, value) in [("an id", 0, places[8]), ("a checksum", 4, !places[4]), ("none", 3, 0xff)] {
        let mut bytes = places.clone();
        bytes[at] = value;
        replace(&path, "places.bin", &bytes);
        assert!(!verify(&path, &Silent).unwrap().sound, "places: {what}");
    }
    replace(&path, "places.bin", &places);
    // Two groups that hold what the other should: the sum fits and the pages do not.
    let mut bytes = centroids.clone();
    let last = counts + 4 * (groups - 1);
    let (first, end) = (bytes[counts] - 1, bytes[last] + 1);
    (bytes[counts], bytes[last]) = (first, end);
    replace(&path, "centroids.bin", &bytes);
    assert!(!verify(&path, &Silent).unwrap().sound, "counts and pages");
    replace(&path, "centroids.bin", &centroids);

    let pages = std::fs::read(path.join("vectors.bin")).unwrap();
    let mut swapped = pages.clone();
    swapped.rotate_left(4096);
    replace(&path, "vectors.bin", &swapped);
    refused("pages of others");
    replace(&path, "vectors.bin", &pages);
    answers(&path, &queries, TierChoice::File).unwrap();

    // A codec of another metric estimates other distances.
    let other = dir.path().join("other");
    let ip = BuildOptions { metric: Metric::InnerProduct, ..options() };
    build(&vectors(Element::U8, 300, 16, 1), &other, &ip, &Silent).unwrap();
    replace(&path, "codec.bin", &std::fs::read(other.join("codec.bin")).unwrap());
    refused("a codec of another metric");
}

#[test]
fn bad_data_and_small_budgets_are_refused_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let mut rows = vec![1.0_f32; 40];
    rows[17] = f32::NAN;
    let bytes = |rows: &[f32]| rows.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let floats = |rows: &[f32]| VectorFile::from_rows(Element::F32, 4, bytes(rows)).unwrap();
    let error = build(&floats(&rows), &path, &options(), &Silent).unwrap_err().to_string();
    assert!(error.contains("row 4"), "{error}");
    rows[17] = 1.0;
    rows[8..12].fill(0.0);
    let cosine = BuildOptions { metric: Metric::Cosine, ..options() };
    match build(&floats(&rows), &path, &cosine, &Silent) {
        Err(IndexError::ZeroVectors { count: 1, rows }) => assert_eq!(rows, [2]),
        other => panic!("{other:?}"),
    }
    let small = BuildOptions { memory_bytes: Some(1000), ..options() };
    match build(&vectors(Element::U8, 300, 16, 1), &path, &small, &Silent) {
        Err(IndexError::Memory { needed, given: 1000, .. }) => assert!(needed > 1000),
        other => panic!("{other:?}"),
    }
    let lying = options_of(ClusterOptions { group_vectors: 0, ..ClusterOptions::default() });
    assert!(matches!(build(&floats(&rows), &path, &lying, &Silent), Err(IndexError::Parameter(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something half-built was left behind");
}

/// Cancels after so many questions.
struct Impatient(AtomicU64, u64);

impl Progress for Impatient {
    fn stage(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64) {}
    fn cancelled(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) >= self.1
    }
}

#[test]
fn cancelled_builds_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, 2000, 8, 1);
    for patience in [0, 5, 50, 150] {
        let impatient = Impatient(AtomicU64::new(0), patience);
        let outcome = build(&data, &dir.path().join("index"), &options(), &impatient);
        assert!(matches!(outcome, Err(IndexError::Cancelled)), "{patience}: {outcome:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
