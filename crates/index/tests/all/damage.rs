//! Damaged, truncated, missing and foreign files: found by `verify`, refused by `open` or `search` when they
//! touch them, never a wrong answer in silence.

use crate::clustered::vectors;
use crate::whole::{of_whole, quickly, taken};
use bathyal_index::families::graph::GraphEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, PostingLayout, SearchOptions, SpannOptions, TierChoice, build, inspect, verify,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

fn graph(layout: GraphLayoutChoice) -> GraphOptions {
    GraphOptions { layout, max_degree: 8, search_list: 20, code_bytes: Some(8), ..GraphOptions::default() }
}

fn lists(layout: PostingLayout, code_kind: Option<CodeKind>) -> SpannOptions {
    // Replicas, so that lists have addresses, which may be wrong.
    let (code_bytes, replicas) = (Some(8), Some(8));
    SpannOptions { layout, code_kind, code_bytes, replicas, ..SpannOptions::default() }
}

fn options_of(family: impl Into<FamilyOptions>) -> BuildOptions {
    BuildOptions { threads: 2, ..quickly(family) }
}

fn options() -> BuildOptions {
    options_of(graph(GraphLayoutChoice::Padded))
}

fn built(dir: &Path) -> (VectorFile, PathBuf) {
    built_with(dir, graph(GraphLayoutChoice::Padded))
}

fn built_with(dir: &Path, family: impl Into<FamilyOptions>) -> (VectorFile, PathBuf) {
    std::fs::create_dir_all(dir).unwrap();
    let path = dir.join("index");
    build(&vectors(Element::U8, 300, 16, 1), &path, &options_of(family), &Silent).unwrap();
    (vectors(Element::U8, 20, 16, 2), path)
}

fn answers(path: &Path, queries: &VectorFile, tier: TierChoice) -> Result<Vec<u32>, IndexError> {
    let index = Index::open(path, &OpenOptions { tier, ..OpenOptions::default() })?;
    let options = SearchOptions { effort: Effort::SearchList(30), ..SearchOptions::default() };
    Ok(index.search(queries, &options, Control::default())?.ids)
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let families: [FamilyOptions; 7] = [
        graph(GraphLayoutChoice::Padded).into(),
        graph(GraphLayoutChoice::PageLocal).into(),
        graph(GraphLayoutChoice::Csr).into(),
        lists(PostingLayout::Coupled, None).into(),
        lists(PostingLayout::Decoupled, None).into(),
        lists(PostingLayout::Grouped, None).into(),
        lists(PostingLayout::Coupled, Some(CodeKind::Axes)).into(),
    ];
    for (_, family) in families.into_iter().enumerate().filter(|(number, _)| taken(*number, 2)) {
        let dir = tempfile::tempdir().unwrap();
        let (queries, path) = built_with(dir.path(), family);
        find_flipped_bits(&queries, &path);
    }
}

/// The files of an index.
fn files(path: &Path) -> Vec<String> {
    let names = Manifest::read(path).unwrap().files.into_iter().map(|file| file.name).collect();
    [vec!["manifest.json".into()], names].concat()
}

fn find_flipped_bits(queries: &VectorFile, path: &Path) {
    let sound = answers(path, queries, TierChoice::File).unwrap();
    let flips = of_whole(60_usize, 25);
    // Centroids are searched as they are, unless a budget holds their codes only.
    let lists = Manifest::read(path).unwrap().family == "spann";
    for name in files(path) {
        let unread = lists && name.starts_with("code");
        let file = path.join(&name);
        let original = std::fs::read(&file).unwrap();
        let mut refused = 0;
        for i in 0..flips {
            let bit = (i * 7_919_911 + 13) % (original.len() * 8);
            let mut bytes = original.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&file, &bytes).unwrap();
            // A flip in the version field reads as a later version, which is refused too.
            let found = verify(path, &Silent).map_or(true, |report| !report.sound);
            assert!(found, "{name}: bit {bit} was not found");
            for tier in [TierChoice::File, TierChoice::Dram] {
                match answers(path, queries, tier) {
                    Ok(ids) => assert_eq!(ids, sound, "{name}: bit {bit} changed an answer"),
                    Err(_) => refused += 1,
                }
            }
        }
        std::fs::write(&file, &original).unwrap();
        assert!(unread || refused >= flips, "{name}: {refused}");
    }
    assert!(verify(path, &Silent).unwrap().sound);
}

/// Behind a checksum that fits: opening and verifying refuse it, before any search goes by it.
#[test]
fn calibration_that_nobody_measured_is_refused() {
    // Of the last curve and its points, as JSON; a lie about what a family does not measure is left out.
    type Lie = (&'static str, &'static str, fn(&mut Value));
    let lies: [Lie; 9] = [
        ("recall above 1", "recall", |curve| curve["points"][0]["recall"] = 1.5.into()),
        ("negative recall", "recall", |curve| curve["points"][0]["recall"] = (-0.5).into()),
        ("recall that falls", "recall", |curve| {
            let points = curve["points"].as_array_mut().unwrap();
            let last = points.last_mut().unwrap();
            last["recall"] = 0.9.into();
            let mut more = last.clone();
            (more["search_list"], more["recall"]) = ((1 << 19).into(), 0.1.into());
            points.push(more);
        }),
        ("no points", "recall", |curve| curve["points"] = Value::Array(Vec::new())),
        ("a list of 2^31", "search_list", |curve| {
            let points = curve["points"].as_array_mut().unwrap();
            points.iter_mut().for_each(|point| point["search_list"] = (1_u32 << 31).into());
        }),
        ("more probes than there are", "probes", |curve| curve["points"][0]["probes"] = (1 << 20).into()),
        ("a prune below nothing", "prune", |curve| curve["points"][0]["prune"] = (-1.0).into()),
        ("more lists than were asked for", "lists", |curve| curve["points"][0]["lists"] = 1e9.into()),
        ("more neighbours than vectors", "recall", |curve| curve["k"] = (1 << 20).into()),
    ];
    for (name, options) in [
        ("graph", options()),
        ("cluster", options_of(ClusterOptions::default())),
        ("lists", options_of(lists(PostingLayout::Grouped, None))),
        ("codes", options_of(lists(PostingLayout::Coupled, Some(CodeKind::Axes)))),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        build(&vectors(Element::U8, 300, 16, 1), &path, &options, &Silent).unwrap();
        let sound = Manifest::read(&path).unwrap();
        for (what, key, lie) in lies {
            let mut manifest = sound.clone();
            let curves = manifest.structure["calibration"]["curves"].as_array_mut().unwrap();
            let curve = curves.last_mut().unwrap();
            if curve["points"][0].get(key).is_none() {
                continue;
            }
            lie(curve);
            std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
            let opened = Index::open(&path, &OpenOptions::default()).map(|_| ());
            let error = opened.expect_err(&format!("{name}: {what}"));
            assert!(matches!(error, IndexError::Damaged { .. }), "{name}, {what}: {error}");
            assert!(!verify(&path, &Silent).unwrap().sound, "{name}: {what}");
        }
        // JSON has no NaN; what stands for it is no number.
        let text = String::from_utf8(sound.to_bytes().unwrap()).unwrap();
        let json = text.rsplit_once("\ncrc32c").unwrap().0.replace("\"recall\":1.0", "\"recall\":null");
        let seal = format!("\ncrc32c {:08x}\n", crc32c::crc32c(json.as_bytes()));
        std::fs::write(path.join("manifest.json"), json.clone() + &seal).unwrap();
        assert!(json.contains("null"), "{name}");
        assert!(Index::open(&path, &OpenOptions::default()).is_err(), "{name}");
        assert!(!verify(&path, &Silent).unwrap().sound, "{name}");
    }
}

#[test]
fn missing_and_truncated_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let codes = Some(CodeKind::RaBitQ { bits: 2 });
    let families: [(&str, FamilyOptions); 3] = [
        ("csr", graph(GraphLayoutChoice::Csr).into()),
        ("grouped", lists(PostingLayout::Grouped, None).into()),
        ("codes", lists(PostingLayout::Coupled, codes).into()),
    ];
    for (name, family) in families {
        let (queries, path) = built_with(&dir.path().join(name), family);
        name_missing_and_truncated(&queries, &path);
    }
}

fn name_missing_and_truncated(queries: &VectorFile, path: &Path) {
    let lists = Manifest::read(path).unwrap().family == "spann";
    for name in files(path).into_iter().filter(|name| !(lists && name.starts_with("code"))) {
        let file = path.join(&name);
        let original = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let error = answers(path, queries, TierChoice::File).unwrap_err().to_string();
        assert!(error.contains(&name), "{error}");
        for len in [0, 1, original.len() - 1] {
            std::fs::write(&file, &original[..len]).unwrap();
            let error = answers(path, queries, TierChoice::File).unwrap_err().to_string();
            assert!(error.contains(&name), "{error}");
        }
        std::fs::write(&file, &original).unwrap();
    }
    answers(path, queries, TierChoice::File).unwrap();
}

#[test]
fn foreign_directories_and_later_versions_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    let refused = |path: &Path| answers(path, &queries, TierChoice::File).unwrap_err();
    let absent = refused(&dir.path().join("nowhere"));
    assert!(absent.to_string().contains("nowhere"), "{absent}");
    assert!(matches!(refused(dir.path()), IndexError::NotAnIndex { .. }));
    assert!(matches!(refused(&path.join("graph.bin")), IndexError::NotAnIndex { .. }));
    let later = Manifest { format_version: 99, ..Manifest::read(&path).unwrap() };
    std::fs::write(path.join("manifest.json"), later.to_bytes().unwrap()).unwrap();
    let error = refused(&path);
    assert!(matches!(error, IndexError::LaterVersion { found: 99, .. }));
    assert!(error.to_string().contains("upgrade"), "{error}");
    assert!(verify(&path, &Silent).is_err() && inspect(&path, &Silent).is_err());
}

/// Versions begin at 1: what says 0 is no earlier shape that could be read.
#[test]
fn a_manifest_of_version_0_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    let text = std::fs::read_to_string(path.join("manifest.json")).unwrap();
    let mut said: serde_json::Value =
        serde_json::from_str(text.trim_end().rsplit_once('\n').unwrap().0).unwrap();
    said["format_version"] = 0.into();
    said.as_object_mut().unwrap().remove("identity");
    let json = serde_json::to_string_pretty(&said).unwrap();
    let sealed = format!("{json}\ncrc32c {:08x}\n", crc32c::crc32c(json.as_bytes()));
    std::fs::write(path.join("manifest.json"), sealed).unwrap();
    let error = answers(&path, &queries, TierChoice::File).unwrap_err();
    assert!(error.to_string().contains("version is 0"), "{error}");
}

/// Changes what the manifest says of the graph, and of its files.
fn change(manifest: &mut Manifest, change: impl FnOnce(&mut GraphEntry)) {
    let mut entry = GraphEntry::read(manifest).unwrap();
    change(&mut entry);
    manifest.set_structure(&entry, entry.files()).unwrap();
}

#[test]
fn lying_manifests_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    let sound = Manifest::read(&path).unwrap();
    let lies: [fn(&mut Manifest); 15] = [
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
    ];
    for (i, lie) in lies.iter().enumerate() {
        let mut manifest = sound.clone();
        lie(&mut manifest);
        std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
        assert!(answers(&path, &queries, TierChoice::File).is_err(), "lie {i}");
        assert!(!verify(&path, &Silent).is_ok_and(|report| report.sound), "lie {i}");
    }
}

#[test]
fn lying_manifests_of_pages_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built_with(dir.path(), graph(GraphLayoutChoice::PageLocal));
    let sound = Manifest::read(&path).unwrap();
    let lies: [fn(&mut Manifest); 6] = [
        |m| m.vectors += 1000,
        |m| change(m, |g| g.page_vectors = 0),
        |m| change(m, |g| g.page_vectors = 1),
        |m| change(m, |g| g.page_vectors = u32::MAX),
        |m| change(m, |g| g.page_bytes = 8192),
        |m| change(m, |g| g.layout = "padded".into()),
    ];
    for (i, lie) in lies.iter().enumerate() {
        let mut manifest = sound.clone();
        lie(&mut manifest);
        std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
        assert!(answers(&path, &queries, TierChoice::File).is_err(), "lie {i}");
        assert!(!verify(&path, &Silent).is_ok_and(|report| report.sound), "lie {i}");
    }
}

#[test]
fn lying_manifests_of_packed_records_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built_with(dir.path(), graph(GraphLayoutChoice::Csr));
    let sound = Manifest::read(&path).unwrap();
    let lies: [fn(&mut Manifest); 8] = [
        |m| m.vectors += 1,
        |m| m.vectors -= 1,
        |m| change(m, |g| g.offsets = None),
        |m| change(m, |g| g.offsets = Some(g.file.clone())),
        |m| change(m, |g| g.page_bytes = 4096),
        |m| change(m, |g| g.page_vectors = 1),
        |m| change(m, |g| g.file.bytes -= 1),
        |m| change(m, |g| g.layout = "padded".into()),
    ];
    for (i, lie) in lies.iter().enumerate() {
        let mut manifest = sound.clone();
        lie(&mut manifest);
        std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
        assert!(answers(&path, &queries, TierChoice::File).is_err(), "lie {i}");
        assert!(!verify(&path, &Silent).is_ok_and(|report| report.sound), "lie {i}");
    }
}

/// Writes `bytes` as the offsets of the index at `path`, with a manifest that vouches for them.
fn replace_offsets(path: &Path, bytes: &[u8]) {
    let mut manifest = Manifest::read(path).unwrap();
    let entry = manifest.files.iter_mut().find(|file| file.name == "offsets.bin").unwrap();
    (entry.bytes, entry.crc32c) = (bytes.len() as u64, crc32c::crc32c(bytes));
    std::fs::write(path.join("offsets.bin"), bytes).unwrap();
    std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
}

#[test]
fn offsets_that_lead_elsewhere_are_refused_whatever_their_checksum() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built_with(dir.path(), graph(GraphLayoutChoice::Csr));
    let sound = std::fs::read(path.join("offsets.bin")).unwrap();
    let (mut refused_at_open, mut refused_later) = (0, 0);
    for bit in (0..sound.len() * 8).step_by(3) {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        replace_offsets(&path, &bytes);
        let found = verify(&path, &Silent).unwrap();
        match Index::open(&path, &OpenOptions::default()) {
            // Not rising, past the end, too few or too many.
            Err(error) => {
                assert!(error.to_string().contains("offsets"), "{error}");
                assert!(!found.sound, "bit {bit}");
                refused_at_open += 1;
            }
            // They rise to the end, but by other records: the records' own checksums tell. (Bits behind the last
            // offset mean nothing.)
            Ok(_) if !found.sound => refused_later += 1,
            Ok(_) => {
                answers(&path, &queries, TierChoice::Dram).unwrap();
            }
        }
    }
    assert!(refused_at_open > 100 && refused_later > 100, "{refused_at_open} {refused_later}");
    for cut in [0, 7, 8, sound.len() - 8, sound.len() - 1] {
        replace_offsets(&path, &sound[..cut]);
        assert!(answers(&path, &queries, TierChoice::Dram).is_err(), "cut to {cut}");
        assert!(!verify(&path, &Silent).unwrap().sound);
    }
    replace_offsets(&path, &sound);
    assert!(verify(&path, &Silent).unwrap().sound);
}

#[test]
fn existing_targets_are_kept_unless_told_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let (_, path) = built(dir.path());
    let data = vectors(Element::U8, 100, 16, 5);
    assert!(matches!(build(&data, &path, &options(), &Silent), Err(IndexError::Exists { .. })));
    assert_eq!(Manifest::read(&path).unwrap().vectors, 300);
    build(&data, &path, &BuildOptions { overwrite: true, ..options() }, &Silent).unwrap();
    assert_eq!(Manifest::read(&path).unwrap().vectors, 100);
    let precious = dir.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("thesis.txt"), "years of work").unwrap();
    let refused = build(&data, &precious, &BuildOptions { overwrite: true, ..options() }, &Silent);
    assert!(matches!(refused, Err(IndexError::NotAnIndex { .. })));
    assert!(precious.join("thesis.txt").exists());
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
    let lying = options_of(GraphOptions { max_degree: 0, ..graph(GraphLayoutChoice::Padded) });
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

#[test]
fn queries_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    let refused = |queries: &VectorFile, change: fn(&mut SearchOptions)| {
        let mut options = SearchOptions::default();
        change(&mut options);
        match index.search(queries, &options, Control::default()) {
            Err(IndexError::Parameter(message)) => message,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(&vectors(Element::U8, 3, 15, 1), |_| ()).contains("15 dimensions"));
    assert!(refused(&vectors(Element::I8, 3, 16, 1), |_| ()).contains("i8"));
    assert!(refused(&queries, |o| o.k = 0).contains("k is 0"));
    assert!(refused(&queries, |o| o.effort = Effort::Recall(1.5)).contains("recall"));
    assert!(refused(&queries, |o| o.effort = Effort::Recall(f32::NAN)).contains("recall"));
    assert!(refused(&queries, |o| o.effort = Effort::SearchList(3)).contains("at least k"));
    assert!(refused(&queries, |o| o.beam_width = Some(0)).contains("beam_width"));
    let small = OpenOptions { memory_bytes: Some(100), ..OpenOptions::default() };
    assert!(matches!(Index::open(&path, &small), Err(IndexError::Memory { .. })));
}
