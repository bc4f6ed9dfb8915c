//! Damaged, truncated, missing and foreign files: found by `verify`, refused by `open` or `search` when they
//! touch them, never a wrong answer in silence.

mod clustered;

use bathyal_index::format::manifest::{CalibrationCurve, CalibrationPoint, GraphEntry, Manifest, Structure};
use bathyal_index::{
    BuildOptions, Effort, FamilyChoice, Index, IndexError, LayoutChoice, OpenOptions, SearchOptions,
    TierChoice, build, inspect, verify,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use clustered::vectors;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

fn options() -> BuildOptions {
    BuildOptions {
        max_degree: 8,
        search_list: 20,
        threads: 2,
        code_bytes: Some(8),
        family: FamilyChoice::Graph,
        // So that lists have addresses, which may be wrong.
        replicas: Some(8),
        ..BuildOptions::default()
    }
}

fn built(dir: &Path) -> (VectorFile, PathBuf) {
    laid_out(dir, LayoutChoice::Padded)
}

fn laid_out(dir: &Path, layout: LayoutChoice) -> (VectorFile, PathBuf) {
    laid_out_with(dir, layout, None)
}

fn laid_out_with(dir: &Path, layout: LayoutChoice, code_kind: Option<CodeKind>) -> (VectorFile, PathBuf) {
    std::fs::create_dir_all(dir).unwrap();
    let path = dir.join("index");
    let family = if is_graph(layout) { FamilyChoice::Graph } else { FamilyChoice::Spann };
    let options = BuildOptions { layout: Some(layout), family, code_kind, ..options() };
    build(&vectors(Element::U8, 300, 16, 1), &path, &options, &Silent).unwrap();
    (vectors(Element::U8, 20, 16, 2), path)
}

fn answers(path: &Path, queries: &VectorFile, tier: TierChoice) -> Result<Vec<u32>, IndexError> {
    let index = Index::open(path, &OpenOptions { tier, ..OpenOptions::default() })?;
    let options = SearchOptions { effort: Effort::SearchList(30), ..SearchOptions::default() };
    Ok(index.search(queries, &options, Control::default())?.ids)
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    for layout in [
        LayoutChoice::Padded,
        LayoutChoice::PageLocal,
        LayoutChoice::Csr,
        LayoutChoice::Coupled,
        LayoutChoice::Decoupled,
        LayoutChoice::Grouped,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (queries, path) = laid_out(dir.path(), layout);
        find_flipped_bits(&queries, &path);
    }
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = laid_out_with(dir.path(), LayoutChoice::Coupled, Some(CodeKind::Axes));
    find_flipped_bits(&queries, &path);
}

fn is_graph(layout: LayoutChoice) -> bool {
    matches!(layout, LayoutChoice::Padded | LayoutChoice::PageLocal | LayoutChoice::Csr)
}

/// The files of an index.
fn files(path: &Path) -> Vec<String> {
    let names = Manifest::read(path).unwrap().files().into_iter().map(|file| file.name.clone()).collect();
    [vec!["manifest.json".into()], names].concat()
}

fn find_flipped_bits(queries: &VectorFile, path: &Path) {
    let sound = answers(path, queries, TierChoice::File).unwrap();
    // Centroids are searched as they are, unless a budget holds their codes only.
    let lists = Manifest::read(path).unwrap().spann().is_ok();
    for name in files(path) {
        let unread = lists && name.starts_with("code");
        let file = path.join(&name);
        let original = std::fs::read(&file).unwrap();
        let mut refused = 0;
        for i in 0..60_usize {
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
        assert!(unread || refused >= 60, "{name}: {refused}");
    }
    assert!(verify(path, &Silent).unwrap().sound);
}

/// Behind a checksum that fits: opening and verifying refuse it, before any search goes by it.
#[test]
fn calibration_that_nobody_measured_is_refused() {
    type Lie = (&'static str, fn(&mut CalibrationCurve));
    let lies: [Lie; 9] = [
        ("recall above 1", |curve| curve.points[0].recall = 1.5),
        ("negative recall", |curve| curve.points[0].recall = -0.5),
        ("recall that falls", |curve| {
            let next = curve.points.len() - 1;
            let more = CalibrationPoint { search_list: 1 << 19, ..curve.points[next] };
            curve.points[next].recall = 0.9;
            curve.points.push(CalibrationPoint { recall: 0.1, ..more });
        }),
        ("no points", |curve| curve.points.clear()),
        ("a list of 2^31", |curve| curve.points.iter_mut().for_each(|p| p.search_list = 1 << 31)),
        ("more probes than there are", |curve| curve.points[0].probes = 1 << 20),
        ("a prune below nothing", |curve| curve.points[0].prune = -1.0),
        ("more lists than were asked for", |curve| curve.points[0].lists = 1e9),
        ("more neighbours than vectors", |curve| curve.k = 1 << 20),
    ];
    let of = |family, layout, code_kind| BuildOptions { family, layout, code_kind, ..options() };
    let codes = Some(CodeKind::Axes);
    for (name, options) in [
        ("graph", of(FamilyChoice::Graph, None, None)),
        ("cluster", of(FamilyChoice::Cluster, None, None)),
        ("lists", of(FamilyChoice::Spann, None, None)),
        ("codes", of(FamilyChoice::Spann, Some(LayoutChoice::Coupled), codes)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        build(&vectors(Element::U8, 300, 16, 1), &path, &options, &Silent).unwrap();
        let sound = Manifest::read(&path).unwrap();
        for (what, lie) in lies {
            let mut manifest = sound.clone();
            lie(manifest.calibration.curves.last_mut().unwrap());
            std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
            let opened = Index::open(&path, &OpenOptions::default()).map(|_| ());
            let error = opened.expect_err(&format!("{name}: {what}"));
            assert!(matches!(error, IndexError::Damaged { .. }), "{name}, {what}: {error}");
            assert!(!verify(&path, &Silent).unwrap().sound, "{name}: {what}");
        }
        // JSON has no NaN; what stands for it is no number.
        let text = String::from_utf8(sound.to_bytes().unwrap()).unwrap();
        let json = text.rsplit_once("\ncrc32c").unwrap().0.replace("\"recall\": 1.0", "\"recall\": null");
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
    for layout in [LayoutChoice::Csr, LayoutChoice::Grouped] {
        let (queries, path) = laid_out(&dir.path().join(layout.name()), layout);
        name_missing_and_truncated(&queries, &path);
    }
    let codes = Some(CodeKind::RaBitQ { bits: 2 });
    let (queries, path) = laid_out_with(&dir.path().join("codes"), LayoutChoice::Coupled, codes);
    name_missing_and_truncated(&queries, &path);
}

fn name_missing_and_truncated(queries: &VectorFile, path: &Path) {
    let lists = Manifest::read(path).unwrap().spann().is_ok();
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

fn graph(manifest: &mut Manifest) -> &mut GraphEntry {
    match &mut manifest.structure {
        Structure::Graph(graph) => graph,
        Structure::Cluster(_) | Structure::Spann(_) => unreachable!("the index is a graph"),
    }
}

#[test]
fn lying_manifests_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = built(dir.path());
    let sound = Manifest::read(&path).unwrap();
    let lies: [fn(&mut Manifest); 11] = [
        |m| m.vectors = u64::MAX,
        |m| m.vectors += 1,
        |m| m.dim = 0,
        |m| m.dim = u32::MAX,
        |m| graph(m).entry_point = 300,
        |m| graph(m).max_degree = 0,
        |m| graph(m).page_bytes = 0,
        |m| graph(m).page_vectors = 9,
        |m| graph(m).layout = "page_local".into(),
        |m| m.codes.code_bytes = u32::MAX,
        |m| graph(m).file.name = "../graph.bin".into(),
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
    let (queries, path) = laid_out(dir.path(), LayoutChoice::PageLocal);
    let sound = Manifest::read(&path).unwrap();
    let lies: [fn(&mut Manifest); 6] = [
        |m| m.vectors += 1000,
        |m| graph(m).page_vectors = 0,
        |m| graph(m).page_vectors = 1,
        |m| graph(m).page_vectors = u32::MAX,
        |m| graph(m).page_bytes = 8192,
        |m| graph(m).layout = "padded".into(),
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
    let (queries, path) = laid_out(dir.path(), LayoutChoice::Csr);
    let sound = Manifest::read(&path).unwrap();
    let lies: [fn(&mut Manifest); 8] = [
        |m| m.vectors += 1,
        |m| m.vectors -= 1,
        |m| graph(m).offsets = None,
        |m| graph(m).offsets = Some(graph(m).file.clone()),
        |m| graph(m).page_bytes = 4096,
        |m| graph(m).page_vectors = 1,
        |m| graph(m).file.bytes -= 1,
        |m| graph(m).layout = "padded".into(),
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
    let entry = graph(&mut manifest).offsets.as_mut().unwrap();
    (entry.bytes, entry.crc32c) = (bytes.len() as u64, crc32c::crc32c(bytes));
    std::fs::write(path.join("offsets.bin"), bytes).unwrap();
    std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
}

#[test]
fn offsets_that_lead_elsewhere_are_refused_whatever_their_checksum() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, path) = laid_out(dir.path(), LayoutChoice::Csr);
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
    let lying = BuildOptions { max_degree: 0, ..options() };
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
    assert!(refused(&queries, |o| o.beam_width = 0).contains("beam_width"));
    let small = OpenOptions { memory_bytes: Some(100), ..OpenOptions::default() };
    assert!(matches!(Index::open(&path, &small), Err(IndexError::Memory { .. })));
}
