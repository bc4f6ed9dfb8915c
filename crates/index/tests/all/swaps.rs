//! Files and ranges of files of an index in another index of the same shape. They are refused or do not
//! change answers.

use crate::cases::{case_runs, quick_build};
use crate::clustered::vectors;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, PostingLayout, SearchOptions, SpannOptions, TierChoice, build, verify,
};
use bathyal_kernels::Element;
use bathyal_kernels::quantize::CodeKind;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};

const COUNT: usize = 300;
/// Bytes of a range that is replaced: a page, a block, or several records.
const RANGE_BYTES: usize = 4096;

fn kinds() -> Vec<(&'static str, BuildOptions)> {
    let code_bytes = Some(8);
    let options = |family: FamilyOptions| BuildOptions { threads: 1, ..quick_build(family) };
    let graph = |layout| {
        let (max_degree, search_list) = (8, 20);
        options(
            GraphOptions { layout, max_degree, search_list, code_bytes, ..GraphOptions::default() }.into(),
        )
    };
    let lists = |layout, code_kind| {
        let replicas = Some(4);
        options(SpannOptions { layout, code_kind, replicas, code_bytes, ..SpannOptions::default() }.into())
    };
    let groups = ClusterOptions { group_vectors: 20, code_bytes, ..ClusterOptions::default() };
    vec![
        ("cluster", options(groups.into())),
        ("padded", graph(GraphLayoutChoice::Padded)),
        ("page_local", graph(GraphLayoutChoice::PageLocal)),
        ("csr", graph(GraphLayoutChoice::Csr)),
        ("coupled", lists(PostingLayout::Coupled, None)),
        ("codes", lists(PostingLayout::Coupled, Some(CodeKind::Axes))),
        ("decoupled", lists(PostingLayout::Decoupled, None)),
        ("grouped", lists(PostingLayout::Grouped, None)),
        ("flat", options(FlatOptions::default().into())),
        ("lsh", options(LshOptions { code_bytes, ..LshOptions::default() }.into())),
        ("flat_codes", options(FlatOptions { code_bytes, ..FlatOptions::default() }.into())),
    ]
}

/// Builds indexes of the same shape: of other data, with another seed, of an earlier state of the data, with
/// more threads, and with other calibration queries.
fn relatives(folder: &Path, options: &BuildOptions) -> Vec<(&'static str, PathBuf)> {
    let data = vectors(Element::U8, COUNT, 16, 1);
    let older = {
        let mut rows = data.rows(0..COUNT).unwrap().to_vec();
        rows[16 * 7..16 * 8].fill(3);
        VectorFile::from_rows(Element::U8, 16, rows).unwrap()
    };
    let made = |name: &'static str, data: &VectorFile, options: BuildOptions| {
        let path = folder.join(name);
        build(data, &path, &options, &Silent).unwrap();
        (name, path)
    };
    vec![
        made("other data", &vectors(Element::U8, COUNT, 16, 5), options.clone()),
        made("other seed", &data, BuildOptions { seed: 8, ..options.clone() }),
        made("older", &older, options.clone()),
        made("several threads", &data, BuildOptions { threads: 3, ..options.clone() }),
        made("other queries", &data, {
            let calibration = Some(vectors(Element::U8, 20, 16, 6));
            BuildOptions { calibration, ..options.clone() }
        }),
    ]
}

/// Returns options to open an index from files, from memory, and from files in the smallest budget, in which
/// some codes stay on the tier.
fn openings(path: &Path) -> [OpenOptions; 3] {
    let little = OpenOptions { memory_bytes: Some(1), ..OpenOptions::default() };
    let Err(IndexError::Memory { needed, .. }) = Index::open(path, &little).map(|_| ()) else {
        panic!("a byte was enough")
    };
    let dram = OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
    [OpenOptions::default(), dram, OpenOptions { memory_bytes: Some(needed), ..OpenOptions::default() }]
}

fn answers(path: &Path, queries: &VectorFile, options: &OpenOptions) -> Result<Vec<u32>, IndexError> {
    let index = Index::open(path, options)?;
    // A search that compares all vectors has no candidate list.
    let compares_all = index.manifest().family == "flat" && index.memory_split().codes == 0;
    let options = SearchOptions {
        effort: if compares_all { Effort::Recall(1.0) } else { Effort::SearchList(30) },
        probes: None,
        threads: 1,
        ..SearchOptions::default()
    };
    Ok(index.search(queries, &options, Control::default())?.ids)
}

/// The answers of a sound index.
struct Sound {
    queries: VectorFile,
    answers: Vec<(OpenOptions, Vec<u32>)>,
}

impl Sound {
    fn read(path: &Path) -> Sound {
        let queries = vectors(Element::U8, 10, 16, 2);
        let answers = openings(path).map(|options| {
            let ids = answers(path, &queries, &options).unwrap();
            (options, ids)
        });
        Sound { queries, answers: answers.into() }
    }
}

/// Checks that searches fail or find the same as before. Returns true if a search failed.
fn refused_or_the_same(path: &Path, sound: &Sound, what: &str) -> bool {
    let mut refused = false;
    for (options, ids) in &sound.answers {
        match answers(path, &sound.queries, options) {
            Ok(found) => assert_eq!(&found, ids, "{what} changed an answer"),
            Err(error) => {
                let error = error.to_string();
                assert!(!error.contains("internal"), "{what}: {error}");
                refused = true;
            }
        }
    }
    refused
}

/// Replaces each file, and each range of a file, by that of each relative of an index.
fn swap_all(name: &str, options: &BuildOptions) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    build(&vectors(Element::U8, COUNT, 16, 1), &path, options, &Silent).unwrap();
    let sound = Sound::read(&path);
    let manifest = Manifest::read(&path).unwrap();
    let files: Vec<String> = manifest.files.iter().map(|file| file.name.clone()).collect();
    for (relation, relative) in relatives(dir.path(), options) {
        let mut refused = 0;
        for file in files.iter().map(String::as_str).chain(["manifest.json"]) {
            let own = std::fs::read(path.join(file)).unwrap();
            let Ok(foreign) = std::fs::read(relative.join(file)) else { continue };
            let mut trial = |bytes: &[u8], what: &str| {
                if bytes == own {
                    return;
                }
                let what = format!("{name}: {what} of {file} of {relation}");
                std::fs::write(path.join(file), bytes).unwrap();
                refused += usize::from(refused_or_the_same(&path, &sound, &what));
                let manifest = file == "manifest.json";
                let found = verify(&path, &Silent).map_or(true, |report| !report.sound);
                assert!(found || manifest, "{what}: not found by verify");
            };
            trial(&foreign, "all");
            if foreign.len() == own.len() && file != "manifest.json" {
                let starts = (0..own.len()).step_by(RANGE_BYTES);
                for start in starts {
                    let end = own.len().min(start + RANGE_BYTES);
                    let mixed = [&own[..start], &foreign[start..end], &own[end..]].concat();
                    trial(&mixed, &format!("bytes {start} to {end}"));
                }
            }
            std::fs::write(path.join(file), &own).unwrap();
        }
        // The number of threads does not change groups, so there may be nothing to refuse.
        assert!(refused > 0 || relation == "several threads", "{name}: nothing of {relation} was refused");
    }
    assert!(verify(&path, &Silent).unwrap().sound);
}

#[test]
fn parts_of_another_index_are_refused_or_change_no_answer() {
    for (_, (name, options)) in kinds().into_iter().enumerate().filter(|(number, _)| case_runs(*number, 2)) {
        swap_all(name, &options);
    }
}

/// The checksums of pages and records include the identity of their index.
#[test]
fn pages_of_another_index_are_refused_although_the_manifest_fits() {
    for (name, options) in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("index"), dir.path().join("other"));
        build(&vectors(Element::U8, COUNT, 16, 1), &path, &options, &Silent).unwrap();
        build(&vectors(Element::U8, COUNT, 16, 5), &other, &options, &Silent).unwrap();
        let sound = Sound::read(&path);
        let (mut manifest, foreign) = (Manifest::read(&path).unwrap(), Manifest::read(&other).unwrap());
        let (entry, theirs) = (manifest.paged_file().clone(), foreign.paged_file().clone());
        if entry.bytes != theirs.bytes {
            continue;
        }
        std::fs::copy(other.join(&entry.name), path.join(&entry.name)).unwrap();
        let json = String::from_utf8(manifest.to_bytes().unwrap()).unwrap();
        let json = json.replace(&entry.crc32c.to_string(), &theirs.crc32c.to_string());
        let json = json.rsplit_once("\ncrc32c").unwrap().0;
        manifest = serde_json::from_str(json).unwrap();
        assert_eq!(manifest.paged_file(), &theirs);
        std::fs::write(path.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
        let refused = refused_or_the_same(&path, &sound, name);
        assert!(refused, "{name}");
        assert!(!verify(&path, &Silent).unwrap().sound, "{name}");
    }
}
