//! Indexes whose files are damaged at random, with checksums that fit, as an attacker or a defective builder
//! would make them. Opening, searching and verifying end with answers or errors, and do not panic.
//!
//! The damage is seeded: a failure names its index and round, and is repeated by the next run.
//! `BATHYAL_MUTATIONS=100000` sets the rounds.

#[path = "../mutations/mutate.rs"]
mod mutate;

use crate::cases::{full_or_quick, quick_build};
use crate::clustered::vectors;
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::families::flat::FlatEntry;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::graph::GraphEntry;
use bathyal_index::families::graph::layout::GraphLayout;
use bathyal_index::families::lsh::LshEntry;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::families::spann::SpannEntry;
use bathyal_index::format::manifest::{FileEntry, Manifest};
use bathyal_index::format::offsets::Offsets;
use bathyal_index::format::postings::BLOCK_BYTES;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, PostingLayout, SearchOptions, SpannOptions, TierChoice, build, inspect, verify,
};
use bathyal_kernels::Element;
use bathyal_kernels::quantize::CodeKind;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Returns the number of rounds per index by default.
fn default_rounds() -> u64 {
    full_or_quick(100, 40)
}
const MANIFEST: &str = "manifest.json";

/// The files of a sound index.
struct Sound {
    manifest: Manifest,
    files: Vec<(String, Vec<u8>)>,
}

impl Sound {
    fn read(path: &Path) -> Sound {
        let manifest = Manifest::read(path).unwrap();
        let names = manifest.files.iter().map(|file| file.name.clone()).chain([MANIFEST.into()]);
        let files = names.map(|name| (name.clone(), std::fs::read(path.join(&name)).unwrap())).collect();
        Sound { manifest, files }
    }

    /// Writes the index with one or two damaged files, and with checksums that fit.
    fn write_damaged(&self, path: &Path, rng: &mut StdRng) {
        let mut manifest = self.manifest.clone();
        let first = rng.random_range(0..self.files.len());
        let second = if rng.random_range(0..4) == 0 { rng.random_range(0..self.files.len()) } else { first };
        let mut json = None;
        let mut sums = None;
        for (i, (name, sound)) in self.files.iter().enumerate() {
            let mut bytes = sound.clone();
            if i == first || i == second {
                // Most rounds keep the length, because another length is usually refused at once.
                let cut = rng.random_range(0..8) == 0;
                bytes = mutate::mutated(std::slice::from_ref(sound), rng);
                if !cut && name != MANIFEST {
                    bytes.resize(sound.len(), 0);
                }
                if name == MANIFEST {
                    json = Some(bytes);
                    continue;
                }
                self.seal_pages(name, &mut bytes);
                if *name == manifest.paged_file().name {
                    let identity = self.manifest.identity().unwrap();
                    let blocks = bytes.chunks(BLOCK_BYTES).map(|block| identity.checksum(block));
                    sums = Some(blocks.flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
                }
            }
            if name != MANIFEST {
                std::fs::write(path.join(name), &bytes).unwrap();
                let entry = entry(&mut manifest, name);
                (entry.bytes, entry.crc32c) = (bytes.len() as u64, crc32c::crc32c(&bytes));
            }
        }
        // The checksums of the blocks of posting lists are in a file of their own.
        if let (Some(sums), Ok(lists)) = (sums, SpannEntry::read(&self.manifest)) {
            let name = &lists.checksums.name;
            std::fs::write(path.join(name), &sums).unwrap();
            let entry = entry(&mut manifest, name);
            (entry.bytes, entry.crc32c) = (sums.len() as u64, crc32c::crc32c(&sums));
        }
        let bytes = match json {
            None => manifest.to_bytes().unwrap(),
            Some(mut json) => {
                // The line with the checksum keeps its place behind the damaged text.
                json.truncate(json.len().saturating_sub("\ncrc32c 00000000\n".len()));
                let seal = format!("\ncrc32c {:08x}\n", crc32c::crc32c(&json));
                [&json[..], seal.as_bytes()].concat()
            }
        };
        std::fs::write(path.join(MANIFEST), bytes).unwrap();
    }

    /// Makes the checksums of pages or records fit, if `name` is the file of these.
    fn seal_pages(&self, name: &str, bytes: &mut [u8]) {
        if name != self.manifest.paged_file().name {
            return;
        }
        let (element, dim) = (self.manifest.element().unwrap(), self.manifest.dim);
        let identity = self.manifest.identity().unwrap();
        let graph = match self.manifest.family.as_str() {
            family @ ("cluster" | "flat") => {
                let layout = match family {
                    "flat" => FlatEntry::read(&self.manifest).unwrap().layout(&self.manifest),
                    _ => ClusterEntry::read(&self.manifest).unwrap().layout(&self.manifest),
                };
                let layout = layout.unwrap();
                for (page, bytes) in bytes.chunks_exact_mut(layout.page_bytes()).enumerate() {
                    let crc = identity.checksum(&(page as u64).to_le_bytes());
                    let crc = crc32c::crc32c_append(crc, &bytes[4..]);
                    bytes[..4].copy_from_slice(&crc.to_le_bytes());
                }
                return;
            }
            "lsh" => return self.seal_tables(bytes),
            "graph" => GraphEntry::read(&self.manifest).unwrap(),
            _ => return,
        };
        match graph.layout(&self.manifest).unwrap() {
            GraphLayout::Local(layout) => {
                for (page, bytes) in bytes.chunks_exact_mut(layout.page_bytes()).enumerate() {
                    let crc = identity.checksum(&(page as u32).to_le_bytes());
                    let crc = crc32c::crc32c_append(crc, &bytes[4..]);
                    bytes[..4].copy_from_slice(&crc.to_le_bytes());
                }
            }
            GraphLayout::Csr(layout) => {
                let offsets = graph.offsets.as_ref().unwrap();
                let (_, stored) = self.files.iter().find(|(name, _)| *name == offsets.name).unwrap();
                let vectors = self.manifest.vectors;
                let offsets = Offsets::from_bytes(stored, vectors, bytes.len() as u64);
                // A file of another length has no records to seal.
                let Ok(offsets) = offsets else { return };
                for place in 0..vectors as u32 {
                    let span = offsets.span(place);
                    layout.seal(place, &mut bytes[span.offset as usize..][..span.len as usize]);
                }
            }
            GraphLayout::Padded(layout) => {
                let most = graph.max_degree as usize;
                let (records, length) = (layout.records_per_page(), layout.record_bytes());
                for (page, bytes) in bytes.chunks_exact_mut(layout.read_bytes()).enumerate() {
                    for (slot, record) in bytes.chunks_exact_mut(length).take(records).enumerate() {
                        let id = (page * records + slot) as u32;
                        let degree =
                            u32::from_le_bytes([record[4], record[5], record[6], record[7]]) as usize;
                        let vector = 8 + 4 * most..8 + 4 * most + element.row_bytes(dim as usize);
                        let crc = identity.checksum(&id.to_le_bytes());
                        let crc = crc32c::crc32c_append(crc, &record[4..8 + 4 * degree.min(most)]);
                        let crc = crc32c::crc32c_append(crc, &record[vector]);
                        record[..4].copy_from_slice(&crc.to_le_bytes());
                    }
                }
            }
        }
    }
}

impl Sound {
    /// Makes the checksums of pages of vectors and of blocks of hash tables fit.
    fn seal_tables(&self, bytes: &mut [u8]) {
        let (entry, identity) = (LshEntry::read(&self.manifest).unwrap(), self.manifest.identity().unwrap());
        let tables = entry.table_layout(&self.manifest).unwrap();
        let pages = entry.vectors_layout(&self.manifest).unwrap();
        let begin = (tables.span(0, 0).offset as usize).min(bytes.len());
        let (vectors, blocks) = bytes.split_at_mut(begin);
        let count = entry.pages(&pages, self.manifest.vectors) as usize;
        let pages = vectors.chunks_exact_mut(pages.page_bytes()).take(count).enumerate();
        let blocks = blocks.chunks_exact_mut(tables.block_bytes()).enumerate();
        let pages = pages.map(|(page, bytes)| (page as u64, bytes));
        let all = tables.blocks() as usize * tables.tables() as usize;
        for (number, bytes) in
            pages.chain(blocks.take(all).map(|(block, bytes)| (block as u64 | 1 << 63, bytes)))
        {
            let crc = identity.checksum(&number.to_le_bytes());
            let crc = crc32c::crc32c_append(crc, &bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

fn entry<'a>(manifest: &'a mut Manifest, name: &str) -> &'a mut FileEntry {
    manifest.files.iter_mut().find(|file| file.name == name).unwrap()
}

/// Verifies, inspects, opens and searches an index.
fn use_index(path: &Path, queries: &VectorFile, round: u64) -> Result<(), IndexError> {
    verify(path, &Silent)?;
    let _ = inspect(path, &Silent);
    let tier = if round.is_multiple_of(2) { TierChoice::File } else { TierChoice::Dram };
    let index = Index::open(path, &OpenOptions { tier, ..OpenOptions::default() })?;
    // A search that compares all vectors has no candidate list.
    let compares_all = index.manifest().family == "flat" && index.memory_split().codes == 0;
    let effort = if round % 4 < 2 && !compares_all { Effort::SearchList(30) } else { Effort::Recall(0.9) };
    let options = SearchOptions { effort, threads: 1, ..SearchOptions::default() };
    index.search(queries, &options, Control::default())?;
    Ok(())
}

/// Damages an index of 200 vectors in many rounds.
fn check(name: &str, family: impl Into<FamilyOptions>) {
    let options = BuildOptions { threads: 1, ..quick_build(family) };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    build(&vectors(Element::F32, 200, 8, 1), &path, &options, &Silent).unwrap();
    let queries = vectors(Element::F32, 2, 8, 2);
    let sound = Sound::read(&path);
    let rounds = std::env::var("BATHYAL_MUTATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(default_rounds);
    let mut answered = 0;
    for round in 0..rounds {
        sound.write_damaged(&path, &mut StdRng::seed_from_u64(round));
        match catch_unwind(AssertUnwindSafe(|| use_index(&path, &queries, round))) {
            Ok(Err(IndexError::Internal(what))) => panic!("{name}, round {round}: {what}"),
            Ok(outcome) => answered += u64::from(outcome.is_ok()),
            Err(_) => panic!("{name} panicked in round {round}"),
        }
    }
    // Most damage of vectors is not detected. If all were, the test would not reach the code behind the
    // checks.
    assert!((rounds / 10..rounds).contains(&answered), "{name}: {answered} of {rounds} were answered");
}

/// Bytes of a code, in every family.
const CODE_BYTES: Option<u32> = Some(8);

fn lists(layout: PostingLayout, code_kind: Option<CodeKind>) -> SpannOptions {
    // Replicas, so that lists have addresses that damage can change.
    SpannOptions { layout, code_kind, code_bytes: CODE_BYTES, replicas: Some(8), ..SpannOptions::default() }
}

#[test]
fn contradictory_cluster_indexes_cause_no_panic() {
    let (group_vectors, code_bytes) = (20, CODE_BYTES);
    check("cluster", ClusterOptions { group_vectors, code_bytes, ..ClusterOptions::default() });
}

#[test]
fn contradictory_flat_indexes_cause_no_panic() {
    check("flat", FlatOptions::default());
    check("flat_codes", FlatOptions { code_bytes: CODE_BYTES, ..FlatOptions::default() });
}

#[test]
fn contradictory_hash_tables_cause_no_panic() {
    check("lsh", LshOptions { tables: 4, code_bytes: CODE_BYTES, ..LshOptions::default() });
}

#[test]
fn contradictory_posting_lists_cause_no_panic() {
    for layout in [PostingLayout::Coupled, PostingLayout::Decoupled, PostingLayout::Grouped] {
        check(layout.name(), lists(layout, None));
    }
    check("codes", lists(PostingLayout::Coupled, Some(CodeKind::Axes)));
}

#[test]
fn contradictory_graphs_cause_no_panic() {
    for (name, layout, code_kind) in [
        ("padded", GraphLayoutChoice::Padded, Some(CodeKind::Pq)),
        ("page_local", GraphLayoutChoice::PageLocal, Some(CodeKind::Axes)),
        ("csr", GraphLayoutChoice::Csr, None),
    ] {
        let (max_degree, search_list, code_bytes) = (8, 20, CODE_BYTES);
        let graph = GraphOptions {
            layout,
            max_degree,
            search_list,
            code_bytes,
            code_kind,
            ..GraphOptions::default()
        };
        check(name, graph);
    }
}
