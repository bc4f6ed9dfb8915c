//! The readers that face bytes from outside: how each is called, and files from which mutations begin.
//!
//! Shared by the seeded mutations (`tests/mutations`) and the coverage-guided targets (`fuzz/`). To add a
//! reader, write a function that gives it any bytes and asserts what must hold of what it accepts, and add
//! a row to [`TARGETS`].

#[path = "changes.rs"]
mod changes;
#[path = "lists.rs"]
mod lists;
#[path = "partitions.rs"]
mod partitions;
#[path = "tables.rs"]
mod tables;

use std::path::Path;
use std::sync::OnceLock;

use bathyal_index::calibrate::list::ListPoint;
use bathyal_index::calibrate::probed::ProbedPoint;
use bathyal_index::calibrate::reach::Reach;
use bathyal_index::calibrate::{Calibration, Curve};
use bathyal_index::families::cluster::{ClusterEntry, MeasuredPrune, check_centroids, check_journal};
use bathyal_index::families::flat::{FlatCodes, FlatEntry};
use bathyal_index::families::graph::{self, GraphEntry};
use bathyal_index::families::lsh::LshEntry;
use bathyal_index::families::partitioned::PartitionedEntry;
use bathyal_index::families::spann::SpannEntry;
use bathyal_index::format::csr::{CsrLayout, LINE_BYTES};
use bathyal_index::format::groups::GroupLayout;
use bathyal_index::format::links;
use bathyal_index::format::local::LocalLayout;
use bathyal_index::format::manifest::{CodesEntry, FORMAT_VERSION, FileEntry, Manifest};
use bathyal_index::format::offsets::{self, Offsets};
use bathyal_index::format::pages::PageLayout;
use bathyal_index::format::positions;
use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec, EncodeScratch};
use bathyal_kernels::{Element, Isa, Metric};
use bathyal_remote::wire::{OperationHead, Outcome, ResponseHead, Verb};
use bathyal_vectors::{FileFormat, IdFile, IdFormat, VectorFile};
use serde::Serialize;

/// One reader.
pub struct Target {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// Valid files.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads any bytes; panics if the reader breaks a promise.
    pub read: fn(&[u8]),
}

/// Every reader.
pub const TARGETS: [Target; 46] = [
    Target { name: "fbin", seeds: || bin(4), read: |bytes| vectors(FileFormat::Bin(Element::F32), bytes) },
    Target { name: "f16bin", seeds: || bin(2), read: |bytes| vectors(FileFormat::Bin(Element::F16), bytes) },
    Target { name: "b1bin", seeds: bits, read: |bytes| vectors(FileFormat::Bin(Element::B1), bytes) },
    Target { name: "u8bin", seeds: || bin(1), read: |bytes| vectors(FileFormat::Bin(Element::U8), bytes) },
    Target { name: "fvecs", seeds: || vecs(4), read: |bytes| vectors(FileFormat::Vecs(Element::F32), bytes) },
    Target { name: "bvecs", seeds: || vecs(1), read: |bytes| vectors(FileFormat::Vecs(Element::U8), bytes) },
    Target { name: "wire", seeds: wire, read: operations },
    Target { name: "npy", seeds: npy, read: |bytes| vectors(FileFormat::Npy, bytes) },
    Target {
        name: "ibin",
        seeds: || bin(4).into_iter().chain(bin(8)).collect(),
        read: |bytes| ids(IdFormat::Ibin, bytes),
    },
    Target { name: "ivecs", seeds: || vecs(4), read: |bytes| ids(IdFormat::Ivecs, bytes) },
    Target { name: "manifest", seeds: || vec![manifest()], read: manifest_file },
    Target { name: "manifest_content", seeds: || vec![content(&graph_manifest())], read: manifest_content },
    Target { name: "graph_page", seeds: || vec![graph_page()], read: graph_records },
    Target { name: "local_page", seeds: || vec![local_page()], read: local_pages },
    Target { name: "links", seeds: link_codes, read: links },
    Target { name: "packed_record", seeds: || vec![packed_record()], read: packed_records },
    Target { name: "offsets", seeds: offset_files, read: offset_file },
    Target { name: "codec", seeds: codecs, read: codec },
    Target { name: "code_blocks", seeds: code_blocks, read: blocks_of_codes },
    Target { name: "group_page", seeds: || vec![group_page()], read: group_records },
    Target { name: "centroids", seeds: || vec![centroids()], read: centroid_file },
    Target { name: "journal", seeds: || vec![sealed(JOURNALS[0].1)], read: journal },
    Target { name: "journal_content", seeds: journals, read: journal_content },
    Target { name: "list_journal", seeds: lists::journals, read: lists::journal },
    Target { name: "graph_journal", seeds: graph_journals, read: graph_journal },
    Target { name: "cluster_manifest", seeds: || vec![content(&cluster_manifest())], read: manifest_content },
    Target { name: "flat_manifest", seeds: flat_manifests, read: manifest_content },
    Target { name: "lsh_manifest", seeds: tables::manifests, read: manifest_content },
    Target { name: "hash_functions", seeds: tables::function_files, read: tables::functions },
    Target { name: "change_log", seeds: changes::logs, read: changes::log_of_changes },
    Target { name: "id_runs", seeds: changes::id_files, read: changes::ids },
    Target { name: "table_block", seeds: || vec![tables::block()], read: tables::blocks },
    Target { name: "spann_manifest", seeds: lists::manifests, read: manifest_content },
    Target { name: "partitioned_manifest", seeds: partitions::manifests, read: manifest_content },
    Target { name: "subindex", seeds: partitions::subindexes, read: partitions::subindex },
    Target { name: "partition_group", seeds: partitions::groups, read: partitions::group },
    Target { name: "partition_table", seeds: partitions::tables, read: partitions::table },
    Target { name: "manifest_of_version_1", seeds: first_manifests, read: manifest_content },
    Target { name: "list_table", seeds: lists::tables, read: lists::table },
    Target { name: "coded_table", seeds: lists::coded_tables, read: lists::coded_table },
    Target { name: "list_codec", seeds: lists::list_codecs, read: lists::list_codec },
    Target { name: "members", seeds: lists::member_sections, read: lists::members },
    Target { name: "runs", seeds: lists::run_sections, read: lists::runs },
    Target { name: "packed_ids", seeds: lists::packed_id_files, read: lists::packed_ids },
    Target { name: "centroid_links", seeds: lists::centroid_link_files, read: lists::centroid_links },
    Target { name: "block_checksums", seeds: lists::checked_files, read: lists::checked_blocks },
];

/// What is accepted has to be what the bytes hold: every row within them, and no byte unaccounted for.
fn vectors(format: FileFormat, bytes: &[u8]) {
    let Ok(file) = VectorFile::from_file_bytes(format, bytes.to_vec()) else { return };
    assert!(file.count() > 0 && file.dim() > 0);
    assert_eq!(file.row_bytes(), file.element().row_bytes(file.dim()));
    assert_eq!(
        file.as_bits().is_some(),
        matches!(file.element(), Element::U8 | Element::B1) && file.row_bytes() <= 8192
    );
    assert_eq!(file.data_bytes(), file.count() as u64 * file.row_bytes() as u64);
    let rows = file.strided(0..file.count()).expect("all rows");
    assert!(bytes.ends_with(rows), "the last row ends where the file does");
    let read: usize = (0..file.count()).map(|row| file.row(row).len()).sum();
    assert_eq!(read as u64, file.data_bytes());
    assert!(file.rows(0..file.count() + 1).is_none() && file.strided(file.count()..usize::MAX).is_none());
    if let Err(error) = file.check_finite() {
        assert!(!error.to_string().is_empty());
    }
}

/// Each kind of operation and answer of a memory node.
fn wire() -> Vec<Vec<u8>> {
    let verbs =
        [Verb::Read, Verb::Write, Verb::CompareAndSwap { expected: 1, new: 2 }, Verb::FetchAndAdd { by: 3 }];
    let heads = verbs
        .map(|verb| OperationHead { verb, linked: true, len: 8, region: 77, offset: 4096 }.encode().to_vec());
    let outcomes = [Outcome::Done(8), Outcome::Outside, Outcome::Unknown, Outcome::Denied, Outcome::Skipped];
    let answers = outcomes.map(|outcome| ResponseHead { outcome, old: 5 }.encode().to_vec());
    heads.into_iter().chain(answers).collect()
}

/// What is taken for an operation or an answer is written the same.
fn operations(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk()
        && let Ok(decoded) = OperationHead::decode(head)
    {
        assert!(decoded.len > 0 && decoded.encode() == *head);
    }
    if let Some(answer) = bytes.first_chunk()
        && let Ok(decoded) = ResponseHead::decode(answer)
    {
        assert!(decoded.encode() == *answer);
    }
}

fn ids(format: IdFormat, bytes: &[u8]) {
    let Ok(file) = IdFile::parse(format, bytes, Path::new("ids")) else { return };
    assert!(file.queries() > 0 && file.k() > 0);
    assert!(file.queries() * file.k() * 4 <= bytes.len());
    for query in 0..file.queries() {
        assert_eq!(file.ids(query).len(), file.k());
        assert_eq!(file.distances(query).map(<[f32]>::len), file.has_distances().then_some(file.k()));
    }
    assert!(file.ids(file.queries()).is_empty() && file.slice(0..file.queries() + 1).is_err());
}

fn manifest_file(bytes: &[u8]) {
    let Ok(manifest) = Manifest::parse(bytes, Path::new("index")) else { return };
    // What was accepted can be written and is then the same, unless it is of a version that had another shape.
    match manifest.to_bytes() {
        Ok(written) => assert_eq!(Manifest::parse(&written, Path::new("index")).expect("readable"), manifest),
        Err(_) => assert_eq!(manifest.format_version, 1, "writable"),
    }
    // So is what its family says, which no other family takes for its own.
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

/// What is read back of a family's section once it was written.
fn rewritten<E: Serialize>(
    manifest: &mut Manifest,
    entry: &E,
    files: Vec<FileEntry>,
    read: fn(&Manifest) -> Result<E, String>,
) -> E {
    manifest.set_structure(entry, files).expect("writable");
    read(manifest).expect("readable")
}

/// The same behind a checksum that fits, which mutations of the whole file would hardly ever pass.
fn manifest_content(json: &[u8]) {
    manifest_file(&sealed(json));
}

fn sealed(json: &[u8]) -> Vec<u8> {
    let seal = format!("\ncrc32c {:08x}\n", crc32c::crc32c(json));
    [json, seal.as_bytes()].concat()
}

/// Journals of builds of 100 vectors, and how many of these were placed at a time: all done, and one of two parts.
const JOURNALS: [(usize, &[u8]); 2] = [
    (
        100,
        br#"{"fingerprint":"a build","seconds":1.5,"longest":null,"parts":[{"rows":100,"written":{"bytes":0,"crc32c":0}}],"placed":1,"vectors":{"bytes":2048,"crc32c":7},"means":{"bytes":128,"crc32c":8},"order":{"bytes":400,"crc32c":9},"own":{"trained":{"name":"codec.bin","bytes":640,"crc32c":10},"codes":{"bytes":512,"crc32c":11},"places":{"bytes":800,"crc32c":12}}}"#,
    ),
    (
        50,
        br#"{"fingerprint":"a build","seconds":0.5,"longest":1065353216,"parts":[{"rows":60,"written":{"bytes":1200,"crc32c":1}},{"rows":40,"written":{"bytes":800,"crc32c":2}}],"placed":1,"vectors":{"bytes":1024,"crc32c":7},"means":{"bytes":64,"crc32c":8},"order":{"bytes":200,"crc32c":9},"own":{"trained":null,"codes":{"bytes":0,"crc32c":0},"places":{"bytes":0,"crc32c":0}}}"#,
    ),
];

fn journals() -> Vec<Vec<u8>> {
    let seed = |(rows, json): (usize, &[u8])| {
        let accepted = check_journal(&sealed(json), 100, rows, &group_layout());
        assert_eq!(accepted, Ok(()));
        json.to_vec()
    };
    JOURNALS.map(seed).to_vec()
}

fn journal(bytes: &[u8]) {
    for (rows, _) in JOURNALS {
        let _ = check_journal(bytes, 100, rows, &group_layout());
    }
}

fn journal_content(json: &[u8]) {
    journal(&sealed(json));
}

/// The journal of a graph of 100 vectors of 16 bytes, one of whose two parts is grown.
const GRAPH_JOURNAL: &[u8] = br#"{"fingerprint":"a build","seconds":0.5,"longest":null,"parts":[{"rows":100,"written":{"bytes":2000,"crc32c":1}},{"rows":100,"written":{"bytes":2000,"crc32c":2}}],"grown":[{"lists":{"bytes":4000,"crc32c":7},"late":{"bytes":640,"crc32c":8}}]}"#;

fn graph_journals() -> Vec<Vec<u8>> {
    assert_eq!(graph::check_journal(&sealed(GRAPH_JOURNAL), 100, 16, 100), Ok(()));
    vec![GRAPH_JOURNAL.to_vec()]
}

fn graph_journal(json: &[u8]) {
    let _ = graph::check_journal(&sealed(json), 100, 16, 100);
}

fn page_layout() -> PageLayout {
    PageLayout::new(Element::U8, 16, 8, 512).expect("in range")
}

fn graph_records(bytes: &[u8]) {
    let layout = page_layout();
    for id in [0, 1, 7, u32::MAX] {
        let Ok(record) = layout.decode(bytes, id) else { continue };
        assert_eq!(record.vector.len(), 16);
        assert!(record.degree() <= 8 && record.neighbors().len() == record.degree());
        let _ = layout.padding_is_zero(bytes, id, record.degree());
    }
}

fn local_layout() -> LocalLayout {
    LocalLayout::new(Element::U8, 16, 1000, 512, 20).expect("in range")
}

/// The page as it is, and with a checksum that fits, which mutations would hardly ever find.
fn local_pages(bytes: &[u8]) {
    let layout = local_layout();
    let mut sealed = bytes.to_vec();
    sealed.resize(512, 0);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&1_u32.to_le_bytes()), &sealed[4..]);
    sealed[..4].copy_from_slice(&crc.to_le_bytes());
    for (bytes, number) in [(bytes, 0), (bytes, u32::MAX), (&sealed, 1)] {
        let Ok(page) = layout.decode(bytes, number) else { continue };
        assert_eq!(page.vectors.len(), 16 * page.ids().len());
        let mut links = Vec::new();
        let Ok(used) = page.links(&mut links) else { continue };
        assert!(links.len() == page.link_count() && links.is_sorted() && links.iter().all(|l| *l < 1000));
        let _ = page.padding_is_zero(used);
    }
}

fn local_page() -> Vec<u8> {
    let layout = local_layout();
    let mut page = vec![0; layout.page_bytes()];
    let ids: Vec<u32> = (20..40).collect();
    let links: Vec<u32> = (0..50).map(|i| i * 19).collect();
    layout.encode(&mut page, 1, &ids, std::iter::repeat_n([7; 16].as_slice(), 20), &links);
    page
}

fn packed_layout() -> CsrLayout {
    CsrLayout::new(Element::U8, 16, 1000, 60, LINE_BYTES).expect("in range")
}

/// The record as it is, and with a checksum that fits.
fn packed_records(bytes: &[u8]) {
    let layout = packed_layout();
    let mut sealed = bytes.to_vec();
    sealed.resize(bytes.len().max(4), 0);
    layout.seal(1, &mut sealed);
    for (bytes, place) in [(bytes, 0), (bytes, u32::MAX), (&sealed, 1)] {
        let Ok(record) = layout.decode(bytes, place) else { continue };
        assert!(record.vector.len() == 16 && record.degree <= 60);
        let mut links = Vec::new();
        let Ok(end) = layout.links(&record, &mut links) else { continue };
        assert!(links.len() == record.degree && links.is_sorted() && links.iter().all(|l| *l < 1000));
        assert!(end <= 8 * bytes.len());
        let _ = layout.padding_is_zero(&record, end);
    }
}

fn packed_record() -> Vec<u8> {
    let layout = packed_layout();
    let mut bytes = Vec::new();
    layout.encode(77, &[7; 16], &(0..50).map(|i| i * 19).collect::<Vec<u32>>(), &mut bytes);
    layout.seal(1, &mut bytes);
    bytes
}

/// The first bytes of an input as a number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// Records and bytes of the file that a file of offsets is said to be of: the first bytes of the input.
fn offset_file(bytes: &[u8]) {
    let Some((head, bytes)) = bytes.split_first_chunk::<12>() else { return };
    let (records, length) = head.split_at(4);
    let (records, length) = (number(records), number(length));
    let Ok(offsets) = Offsets::from_bytes(bytes, records, length) else { return };
    let mut end = 0;
    for record in 0..records as u32 {
        let span = offsets.span(record);
        assert!(span.offset == end && span.len > 0 && span.len <= offsets.longest());
        end = span.end();
    }
    assert_eq!(end, length);
}

fn offset_files() -> Vec<Vec<u8>> {
    [(1_u32, 0), (100, 0), (130, 90), (300, 5000)]
        .map(|(count, spread)| {
            let lengths: Vec<u32> = (0..count).map(|i| 40 + i * 7919 % (spread + 1)).collect();
            let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
            let head = count.to_le_bytes().into_iter().chain(total.to_le_bytes());
            head.chain(offsets::encode(&lengths)).collect()
        })
        .to_vec()
}

fn group_layout() -> GroupLayout {
    GroupLayout::new(Element::U8, 16, 512, 2).expect("in range")
}

fn group_records(bytes: &[u8]) {
    let layout = group_layout();
    for page in [0, 7] {
        if layout.check(page, bytes).is_ok() {
            assert!(bytes.len() >= layout.page_bytes());
        }
    }
    // What a page says is looked at without its checksum too: it was checked when it was loaded.
    let vectors = layout.vectors(bytes);
    assert!(vectors.is_empty() || vectors.len() == layout.page_vectors() * layout.vector_bytes());
    for slot in [0, 1, layout.page_vectors() - 1, usize::MAX / 8] {
        let _ = layout.id(bytes, slot);
    }
}

fn cluster_entry() -> ClusterEntry {
    ClusterEntry::read(&cluster_manifest()).expect("a cluster index")
}

fn centroid_file(bytes: &[u8]) {
    // With the rows among them, as indexes had them before, and without.
    for rows in [None, cluster_entry().rows] {
        let entry = ClusterEntry { rows, ..cluster_entry() };
        let _ = check_centroids(bytes, &entry, &group_layout(), Metric::L2, 100);
        let _ = check_centroids(bytes, &entry, &group_layout(), Metric::Cosine, 100);
    }
}

fn codec(bytes: &[u8]) {
    let Ok(codec) = Codec::from_bytes(bytes) else { return };
    assert_eq!(codec.to_bytes(), bytes, "what was accepted is written as it was read");
    let code = vec![0xa5; codec.code_bytes()];
    codec.decode(&code, &mut vec![0.0; codec.dim()]);
    for value in [0.5, 1e-20, f32::MAX] {
        let query = vec![value; codec.dim()];
        codec.encode(&query, &mut code.clone(), &mut EncodeScratch::default());
        alike(|mut prepared| {
            let (mut score, mut bound) = ([0.0], [0.0]);
            codec.prepare(&query, &mut prepared);
            prepared.score_with_bound(&codec, &code, &[0], &mut score, &mut bound);
            let mut scanned = [0.0];
            if let Some(codes) = codec.interleave(&code) {
                prepared.prepare_scan(&codec);
                prepared.scan(&codec, &codes, &mut scanned);
            }
            [score, bound, scanned].concat()
        });
        if codec.has_groups() {
            let mut block = vec![0; codec.block_bytes()];
            codec.encode_group(&query, &vec![0.25; codec.dim()], &mut block, &mut EncodeScratch::default());
            scan_blocks(&codec, &query, &vec![0xff; codec.block_bytes()], 31);
        }
    }
}

/// Runs `answers` on every instruction set of this CPU; all give the same, with NaN as one value.
fn alike(answers: impl Fn(CodeQuery) -> Vec<f32>) {
    let bits = |values: Vec<f32>| -> Vec<u32> {
        values.into_iter().map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect()
    };
    let mut first = None;
    for query in Isa::ALL.into_iter().filter_map(CodeQuery::with_isa) {
        let found = bits(answers(query));
        assert_eq!(&found, first.get_or_insert_with(|| found.clone()));
    }
}

/// Scans `count` codes of `blocks`.
fn scan_blocks(codec: &Codec, query: &[f32], blocks: &[u8], count: usize) {
    alike(|mut prepared| {
        prepared.prepare_groups(codec, query);
        let mut hits = Vec::new();
        for threshold in [f32::INFINITY, 10.0] {
            prepared.scan_group(codec, blocks, count, 1.0, threshold, 5, &mut hits);
        }
        assert!(hits.len() <= 2 * count);
        assert!(
            hits.iter().all(|hit| hit.distance < f32::INFINITY && (5..5 + count as u32).contains(&hit.id))
        );
        hits.iter().map(|hit| hit.distance).collect()
    });
}

fn grouped_codecs() -> &'static [Codec] {
    static CODECS: OnceLock<Vec<Codec>> = OnceLock::new();
    CODECS.get_or_init(|| {
        let sample: Vec<f32> = (0..200 * 20).map(|i| (i * 37 % 101) as f32 / 10.0).collect();
        [(CodeKind::Axes, 9), (CodeKind::RaBitQ { bits: 1 }, 20), (CodeKind::RaBitQ { bits: 5 }, 40)]
            .map(|(kind, size)| Codec::train(kind, size, Metric::L2, &sample, 20, 1, 1).expect("trained"))
            .to_vec()
    })
}

/// A byte that chooses a codec, one with the number of codes, and two blocks as they come.
fn blocks_of_codes(bytes: &[u8]) {
    let Some(([chosen, count], blocks)) = bytes.split_first_chunk::<2>() else { return };
    let codec = &grouped_codecs()[usize::from(*chosen) % grouped_codecs().len()];
    let mut blocks = blocks.to_vec();
    blocks.resize(2 * codec.block_bytes(), 0);
    scan_blocks(codec, &[0.5; 20], &blocks, usize::from(*count) % 65);
}

fn code_blocks() -> Vec<Vec<u8>> {
    let encoded = |(number, codec): (usize, &Codec)| {
        let rows: Vec<f32> = (0..40 * 20).map(|i| (i * 41 % 103) as f32 / 10.0).collect();
        let mut blocks = vec![0; 2 * codec.block_bytes()];
        codec.encode_group(&rows, &[5.0; 20], &mut blocks, &mut EncodeScratch::default());
        [&[number as u8, 40], &blocks[..]].concat()
    };
    grouped_codecs().iter().enumerate().map(encoded).collect()
}

/// A byte each for the low bits, the number of links and what they have to be below, and their bits.
fn links(bytes: &[u8]) {
    let Some(([low, count, limit], bits)) = bytes.split_first_chunk::<3>() else { return };
    let (low, count, limit) = (u32::from(*low) % 40, usize::from(*count), 1 << (limit % 32));
    let mut found = Vec::new();
    let Ok(used) = links::decode(bits, count, low, limit, &mut found) else { return };
    assert!(found.len() == count && used <= 8 * bits.len());
    assert!(found.is_sorted_by(|a, b| a < b) && found.iter().all(|id| *id < limit));
    // There is one way to write a set with so many low bits.
    let mut written = vec![0; bits.len()];
    links::encode(&found, low.min(links::MOST_LOW_BITS), &mut written);
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (at % 8) & 1;
    assert!((0..used).all(|at| bit(&written, at) == bit(bits, at)));
}

fn link_codes() -> Vec<Vec<u8>> {
    let coded = |(count, step): (u32, u32)| {
        let ids: Vec<u32> = (0..count).map(|i| i * step + i % 3).collect();
        let (bits, low) = links::encoded_bits(&ids);
        let mut bytes = vec![0; bits.div_ceil(8) + 1];
        links::encode(&ids, low, &mut bytes);
        [&[low as u8, count as u8, 30], &bytes[..]].concat()
    };
    [(0, 1), (1, 1), (50, 19), (200, 4_000_000)].map(coded).to_vec()
}

/// Files of two u32 and then rows of `size` bytes an element.
fn bin(size: usize) -> Vec<Vec<u8>> {
    [(1u32, 1u32), (3, 5), (40, 16)]
        .map(|(count, dim)| {
            let body = (0..count as usize * dim as usize * size).map(|i| (i * 7) as u8);
            count.to_le_bytes().into_iter().chain(dim.to_le_bytes()).chain(body).collect()
        })
        .to_vec()
}

fn bits() -> Vec<Vec<u8>> {
    [(1u32, 8u32), (3, 40), (40, 128)]
        .map(|(count, dim)| {
            let body = (0..count * dim / 8).map(|i| (i * 7) as u8);
            count.to_le_bytes().into_iter().chain(dim.to_le_bytes()).chain(body).collect()
        })
        .to_vec()
}

fn vecs(size: usize) -> Vec<Vec<u8>> {
    [(1usize, 1u32), (3, 5), (40, 16)]
        .map(|(count, dim)| {
            let row = || dim.to_le_bytes().into_iter().chain((0..dim as usize * size).map(|i| (i * 7) as u8));
            (0..count).flat_map(|_| row()).collect()
        })
        .to_vec()
}

fn npy() -> Vec<Vec<u8>> {
    let file = |version: u8, descr: &str, size: usize| {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (4, 3), }}\n");
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        let length = (text.len() as u32).to_le_bytes();
        bytes.extend(if version == 1 { &length[..2] } else { &length[..] });
        bytes.extend(text.as_bytes());
        bytes.extend((0..4 * 3 * size).map(|i| i as u8));
        bytes
    };
    vec![file(1, "<f4", 4), file(2, "<f2", 2), file(3, "|u1", 1), file(1, "|i1", 1)]
}

fn file(name: &str, bytes: u64) -> FileEntry {
    FileEntry { name: name.into(), bytes, crc32c: 0x1234_5678, stripe: None }
}

/// The manifest of an index of 100 vectors.
fn manifest_of(family: &str, structure: &impl Serialize, files: Vec<FileEntry>) -> Manifest {
    let mut manifest = Manifest {
        identity: Some("0123456789abcdef".into()),
        format_version: FORMAT_VERSION,
        written_by: "a test".into(),
        family: family.into(),
        vectors: 100,
        dim: 16,
        element: "u8".into(),
        stored: None,
        metric: "l2".into(),
        data_bytes: 1600,
        seed: 7,
        build_seconds: 1.5,
        files: Vec::new(),
        structure: serde_json::Value::Null,
    };
    manifest.set_structure(structure, files).expect("writable");
    manifest
}

fn calibration<P>(points: Vec<P>) -> Calibration<P> {
    Calibration {
        queries: 10,
        source: "held-out vectors".into(),
        curves: vec![Curve { k: 10, points }],
        reach: vec![Reach { k: 10, usual: 1.0, most: 2.0 }],
    }
}

fn graph_manifest() -> Manifest {
    let points = vec![ListPoint { search_list: 10, recall: 0.5 }, ListPoint { search_list: 20, recall: 0.9 }];
    let entry = GraphEntry {
        file: file("graph.bin", page_layout().file_bytes(100)),
        offsets: None,
        layout: "padded".into(),
        page_bytes: 512,
        page_vectors: 0,
        max_degree: 8,
        search_list: 20,
        alpha: 1.2,
        entry_point: 3,
        codes: CodesEntry {
            file: file("codes.bin", 800),
            codec: file("codec.bin", 640),
            kind: "pq".into(),
            code_bytes: 8,
        },
        calibration: calibration(points),
    };
    let manifest = manifest_of("graph", &entry, entry.files());
    assert_eq!(GraphEntry::read(&manifest), Ok(entry));
    manifest
}

fn manifest() -> Vec<u8> {
    graph_manifest().to_bytes().expect("writable")
}

fn cluster_manifest() -> Manifest {
    let layout = group_layout();
    // A page holds 25 vectors, a group 50.
    let (groups, runs, code_bytes) = (2, 1, 8);
    let point = |search_list, recall| ProbedPoint { probes: 1, search_list, recall, ratio: None };
    let blocks = u64::from(groups) * layout.group_blocks() as u64;
    let entry = ClusterEntry {
        file: file("vectors.bin", layout.file_bytes(u64::from(groups))),
        centroids: file(
            "centroids.bin",
            layout.centroid_bytes(groups.into(), runs.into(), code_bytes.into()) - layout.row_bytes(2)
                + 4 * 2,
        ),
        rows: Some(file("rows.bin", layout.row_bytes(2))),
        places: Some(file("places.bin", 2 * 50 * 8)),
        positions: Some(file("positions.bin", positions::file_bytes(100))),
        page_bytes: 512,
        group_pages: 2,
        groups,
        runs,
        codes: CodesEntry {
            file: file("codes.bin", blocks * 32 * u64::from(code_bytes)),
            codec: file("codec.bin", 640),
            kind: "pq".into(),
            code_bytes,
        },
        calibration: calibration(vec![point(10, 0.5), point(20, 0.9)]),
        lone_curves: vec![Curve { k: 10, points: vec![point(10, 0.4), point(30, 0.9)] }],
        prunes: vec![MeasuredPrune { probes: 1, prune: 0.25 }],
        shorter: Vec::new(),
    };
    let manifest = manifest_of("cluster", &entry, entry.files());
    assert_eq!(ClusterEntry::read(&manifest), Ok(entry));
    manifest
}

/// Without codes, and with.
fn flat_manifests() -> Vec<Vec<u8>> {
    let layout = group_layout();
    let of_codes = FlatCodes {
        codes: CodesEntry {
            file: file("codes.bin", 800),
            codec: file("codec.bin", 640),
            kind: "axes".into(),
            code_bytes: 8,
        },
        radius: 1.5,
    };
    let point = |search_list, recall| ListPoint { search_list, recall };
    let seed = |codes: Option<FlatCodes>| {
        let measured = codes.as_ref().map(|_| calibration(vec![point(10, 0.5), point(20, 0.9)]));
        let entry = FlatEntry {
            file: file("vectors.bin", layout.file_bytes(2)),
            page_bytes: 512,
            read_pages: 2,
            reads: 2,
            codes,
            calibration: measured.unwrap_or_default(),
        };
        let manifest = manifest_of("flat", &entry, entry.files());
        assert_eq!(FlatEntry::read(&manifest), Ok(entry));
        content(&manifest)
    };
    vec![seed(None), seed(Some(of_codes))]
}

/// A file of centroids for [`cluster_manifest`]: mean, unit, a run, the first group of the run, two counts, two checksums of
/// codes and two of rows, two blocks of codes of 8 bytes.
fn centroids() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..16).flat_map(|d| (d as f32).to_le_bytes()).collect();
    bytes.extend(2.5_f32.to_le_bytes());
    bytes.extend((0..16).flat_map(|_| [0, 0x3c]));
    bytes.extend([0_u32, 50, 50, 7, 9, 5, 6].into_iter().flat_map(u32::to_le_bytes));
    bytes.extend([0_u8; 64 * 8]);
    assert!(check_centroids(&bytes, &cluster_entry(), &group_layout(), Metric::L2, 100).is_ok());
    bytes
}

fn group_page() -> Vec<u8> {
    let layout = group_layout();
    let mut page = vec![0; layout.page_bytes()];
    let rows = [[7_u8; 16]; 20];
    layout.encode(&mut page, 7, &(0..20).collect::<Vec<u32>>(), rows.iter().map(|row| &row[..]));
    page
}

/// Manifests as version 1 of the format had them.
fn first_manifests() -> Vec<Vec<u8>> {
    let sealed: [&[u8]; 5] = [
        include_bytes!("../../../../testdata/indexes/version_1/cluster/manifest.json"),
        include_bytes!("../../../../testdata/indexes/version_1/graph_csr/manifest.json"),
        include_bytes!("../../../../testdata/indexes/version_1/graph_page_local/manifest.json"),
        include_bytes!("../../../../testdata/indexes/version_1/spann_codes/manifest.json"),
        include_bytes!("../../../../testdata/indexes/version_1/spann_grouped/manifest.json"),
    ];
    let content = |bytes: &[u8]| {
        let manifest = Manifest::parse(bytes, Path::new("index")).expect("a manifest of version 1");
        assert_eq!(manifest.format_version, 1);
        unsealed(bytes)
    };
    sealed.map(content).to_vec()
}

/// A manifest without its last line.
fn content(manifest: &Manifest) -> Vec<u8> {
    unsealed(&manifest.to_bytes().expect("writable"))
}

fn unsealed(bytes: &[u8]) -> Vec<u8> {
    let last =
        bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("a line with a checksum");
    bytes[..last].to_vec()
}

fn graph_page() -> Vec<u8> {
    let layout = page_layout();
    let mut page = vec![0; layout.read_bytes()];
    for id in 0..layout.records_per_page() as u32 {
        layout.encode(&mut page, id, &[id as u8; 16], &(0..id % 9).collect::<Vec<_>>());
    }
    page
}

fn codecs() -> Vec<Vec<u8>> {
    let sample: Vec<f32> = (0..64 * 4).map(|i| (i * 37 % 101) as f32).collect();
    [(CodeKind::Pq, 2), (CodeKind::Pq4, 2), (CodeKind::Axes, 8), (CodeKind::RaBitQ { bits: 2 }, 10)]
        .map(|(kind, size)| {
            Codec::train(kind, size, Metric::L2, &sample, 4, 1, 1).expect("trained").to_bytes()
        })
        .to_vec()
}
