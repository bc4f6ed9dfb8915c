//! Reads of vectors of a cluster index by their ids. `positions.bin` has their places, so that no others are
//! read.

use crate::cases::quick_build;
use crate::clustered::vectors;
use crate::files::replace;
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::format::positions;
use bathyal_index::{
    BuildOptions, ClusterOptions, Index, OpenOptions, RowSet, SearchOptions, TierChoice, WithinPlan, build,
    verify,
};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const COUNT: usize = 3000;

/// Builds an index of 3,000 vectors. A page has one vector of 1,024 dimensions, or many shorter ones.
fn build_index(dir: &Path, element: Element, dim: usize) -> (VectorFile, PathBuf) {
    let (data, path) = (vectors(element, COUNT, dim, 1), dir.join("index"));
    let family = ClusterOptions { code_bytes: Some(16), ..ClusterOptions::default() };
    build(&data, &path, &BuildOptions { threads: 2, ..quick_build(family) }, &Silent).unwrap();
    (data, path)
}

fn opened(path: &Path) -> Index {
    Index::open(path, &OpenOptions { tier: TierChoice::File, ..OpenOptions::default() }).unwrap()
}

/// Returns the rows of the ids.
fn rows_of(data: &VectorFile, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| data.row(*id as usize)).copied().collect()
}

/// Returns the page of each id, and the bytes of a page.
fn pages(path: &Path) -> (Vec<u32>, usize) {
    let manifest = Manifest::read(path).unwrap();
    let layout = ClusterEntry::read(&manifest).unwrap().layout(&manifest).unwrap();
    let bytes = std::fs::read(path.join("positions.bin")).unwrap();
    let places = positions::decode_all(layout.identity(), &bytes).unwrap();
    (places.into_iter().map(|place| layout.page_of(place)).collect(), layout.page_bytes())
}

/// Damages all pages but those of these vectors.
fn damage_others(path: &Path, ids: &[u32]) {
    let (pages, page_bytes) = pages(path);
    let spared: HashSet<usize> = ids.iter().map(|id| pages[*id as usize] as usize).collect();
    let mut bytes = std::fs::read(path.join("vectors.bin")).unwrap();
    for (number, page) in bytes.chunks_mut(page_bytes).enumerate() {
        if !spared.contains(&number) {
            page[page_bytes / 2] ^= 1;
        }
    }
    std::fs::write(path.join("vectors.bin"), bytes).unwrap();
}

const SHAPES: [(Element, usize); 3] = [(Element::U8, 16), (Element::F32, 24), (Element::F32, 1024)];

#[test]
fn vectors_are_read_by_their_ids_and_no_others_are_read() {
    for (element, dim) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let (data, path) = build_index(dir.path(), element, dim);
        let ids = [2999, 5, 1400, 5, 1022, 1023];
        damage_others(&path, &ids);
        let index = opened(&path);
        let found = index.vectors(&ids, Control::default()).unwrap();
        assert_eq!(found.bytes, rows_of(&data, &ids), "{element:?} x {dim}");
        // A search within a set reads only the vectors of the set.
        let set = Arc::new(RowSet::from_ids(COUNT as u32, [5, 1022, 1400, 2999].into_iter()));
        let options = SearchOptions { k: 10, ..SearchOptions::default() };
        let query = VectorFile::from_rows(element, dim, data.row(1400).to_vec()).unwrap();
        let found = opened(&path).search_within(&query, &options, &set, Control::default()).unwrap();
        assert_eq!((found.within, found.ids[0]), (Some(WithinPlan::Scan), 1400));
        assert_eq!(u64::from(found.per_query[0].reads), pages_of_set(&path, &set));
        // Other vectors are damaged.
        assert!(index.vectors(&[17], Control::default()).is_err());
    }
}

/// Returns the number of pages with vectors of a set.
fn pages_of_set(path: &Path, set: &RowSet) -> u64 {
    let pages = pages(path).0;
    set.iter().map(|id| pages[id as usize]).collect::<HashSet<u32>>().len() as u64
}

#[test]
fn each_vector_is_at_its_position() {
    for (element, dim) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let (data, path) = build_index(dir.path(), element, dim);
        let index = opened(&path);
        let mixed: Vec<u32> = (0..COUNT as u32).map(|at| at * 1009 % COUNT as u32).collect();
        // Few ids at a time, which are looked up one by one, and then all at once.
        for ids in mixed.chunks(50).chain([&mixed[..]]) {
            let found = index.vectors(ids, Control::default()).unwrap();
            assert_eq!(found.bytes, rows_of(&data, ids), "{element:?} x {dim}");
        }
    }
}

#[test]
fn wrong_and_damaged_positions_are_found_and_missing_ones_are_not_needed() {
    let dir = tempfile::tempdir().unwrap();
    let (data, path) = build_index(dir.path(), Element::U8, 16);
    let sound = std::fs::read(path.join("positions.bin")).unwrap();
    let identity = Manifest::read(&path).unwrap().identity().unwrap();
    let places = positions::decode_all(identity, &sound).unwrap();
    let (pages, _) = pages(&path);
    let other = (0..COUNT).find(|id| pages[*id] != pages[7]).unwrap();
    let check_refused = |places: &[u32], message: &str| {
        let mut bytes = Vec::new();
        positions::encode(identity, 0, places, &mut bytes);
        replace(&path, "positions.bin", &bytes);
        let found = opened(&path).vectors(&[7], Control::default());
        let error = found.map(|found| found.bytes.len()).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(!verify(&path, &Silent).unwrap().sound, "{message}");
    };
    let mut swapped = places.clone();
    swapped.swap(7, other);
    check_refused(&swapped, "it is not where it should be");
    let mut beyond = places.clone();
    beyond[7] = u32::MAX;
    check_refused(&beyond, "place 4294967295 is not below");
    replace(&path, "positions.bin", &sound);
    assert!(verify(&path, &Silent).unwrap().sound);

    for at in (0..sound.len()).step_by(37) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        std::fs::write(path.join("positions.bin"), &bytes).unwrap();
        let found = opened(&path).vectors(&[(at / 4096 * 1023) as u32], Control::default());
        let error = found.unwrap_err().to_string();
        assert!(error.contains("positions.bin") && error.contains("block"), "{error}");
        assert!(!verify(&path, &Silent).unwrap().sound, "byte {at}");
    }
    for len in [0, 4095, sound.len() - 1] {
        std::fs::write(path.join("positions.bin"), &sound[..len]).unwrap();
        assert!(!verify(&path, &Silent).is_ok_and(|report| report.sound), "{len} bytes");
    }
    std::fs::remove_file(path.join("positions.bin")).unwrap();
    let found = opened(&path).vectors(&[7, 2000], Control::default()).unwrap();
    assert_eq!(found.bytes, rows_of(&data, &[7, 2000]));
}

#[test]
fn a_scan_in_little_memory_reads_only_the_positions_of_its_set() {
    for (element, dim) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let (data, path) = build_index(dir.path(), element, dim);
        // No id is in the second of the three blocks of positions.
        let ids = [5, 900, 2500, 2999];
        let set = Arc::new(RowSet::from_ids(COUNT as u32, ids.into_iter()));
        let query = VectorFile::from_rows(element, dim, data.row(900).to_vec()).unwrap();
        let search = |memory_bytes| {
            let options = OpenOptions { tier: TierChoice::File, memory_bytes, ..OpenOptions::default() };
            let search = SearchOptions { k: 4, threads: 1, ..SearchOptions::default() };
            Index::open(&path, &options)?.search_within(&query, &search, &set, Control::default())
        };
        let expected = search(None).unwrap();
        assert_eq!(expected.within, Some(WithinPlan::Scan));
        // Search for the smallest budget of such a search.
        let (mut too_little, mut least) = (0, 1 << 30);
        while least - too_little > 512 {
            let middle = (too_little + least) / 2;
            let fits = search(Some(middle)).is_ok();
            (too_little, least) = if fits { (too_little, middle) } else { (middle, least) };
        }
        damage_others(&path, &ids);
        let reads = pages_of_set(&path, &set);
        let mut bytes = std::fs::read(path.join("positions.bin")).unwrap();
        bytes[4096 + 99] ^= 1;
        std::fs::write(path.join("positions.bin"), &bytes).unwrap();
        let found = search(Some(least)).unwrap();
        assert_eq!((&found.ids, &found.within), (&expected.ids, &expected.within), "{element:?} x {dim}");
        assert_eq!(u64::from(found.per_query[0].reads), reads);
        // With enough memory the search loads all positions, and meets the damaged block.
        assert!(search(None).is_err(), "{element:?} x {dim}");
        assert!(search(Some(1 << 30)).is_err(), "{element:?} x {dim}");
    }
}
