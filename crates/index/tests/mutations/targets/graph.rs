//! The readers of graphs: records in pages, packed records and their offsets, links, and journals.

use super::{calibration, file, joined_lines, manifest_of, number, sealed};
use bathyal_index::calibrate::list::ListPoint;
use bathyal_index::families::graph::{self, GraphEntry};
use bathyal_index::format::csr::{CsrLayout, LINE_BYTES};
use bathyal_index::format::links;
use bathyal_index::format::local::LocalLayout;
use bathyal_index::format::manifest::{CodesEntry, Manifest};
use bathyal_index::format::offsets::{self, Offsets};
use bathyal_index::format::pages::PageLayout;
use bathyal_kernels::Element;

fn page_layout() -> PageLayout {
    PageLayout::new(Element::U8, 16, 8, 512).expect("in range")
}

pub fn page() -> Vec<u8> {
    let layout = page_layout();
    let mut page = vec![0; layout.read_bytes()];
    for id in 0..layout.records_per_page() as u32 {
        layout.encode(&mut page, id, &[id as u8; 16], &(0..id % 9).collect::<Vec<_>>());
    }
    page
}

pub fn graph_records(bytes: &[u8]) {
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

pub fn local_page() -> Vec<u8> {
    let layout = local_layout();
    let mut page = vec![0; layout.page_bytes()];
    let ids: Vec<u32> = (20..40).collect();
    let links: Vec<u32> = (0..50).map(|i| i * 19).collect();
    layout.encode(&mut page, 1, &ids, std::iter::repeat_n([7; 16].as_slice(), 20), &links);
    page
}

/// Reads the page as it is, and with a checksum that fits. Mutations would hardly ever fit.
pub fn local_pages(bytes: &[u8]) {
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

fn packed_layout() -> CsrLayout {
    CsrLayout::new(Element::U8, 16, 1000, 60, LINE_BYTES).expect("in range")
}

pub fn packed_record() -> Vec<u8> {
    let layout = packed_layout();
    let mut bytes = Vec::new();
    layout.encode(77, &[7; 16], &(0..50).map(|i| i * 19).collect::<Vec<u32>>(), &mut bytes);
    layout.seal(1, &mut bytes);
    bytes
}

/// Reads the record as it is, and with a checksum that fits.
pub fn packed_records(bytes: &[u8]) {
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

pub fn offset_files() -> Vec<Vec<u8>> {
    [(1_u32, 0), (100, 0), (130, 90), (300, 5000)]
        .map(|(count, spread)| {
            let lengths: Vec<u32> = (0..count).map(|i| 40 + i * 7919 % (spread + 1)).collect();
            let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
            let head = count.to_le_bytes().into_iter().chain(total.to_le_bytes());
            head.chain(offsets::encode(&lengths)).collect()
        })
        .to_vec()
}

/// Reads the number of records (4 bytes) and the length of their file (8 bytes), and a file of offsets.
pub fn offset_file(bytes: &[u8]) {
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

pub fn link_codes() -> Vec<Vec<u8>> {
    let coded = |(count, step): (u32, u32)| {
        let ids: Vec<u32> = (0..count).map(|i| i * step + i % 3).collect();
        let (bits, low) = links::encoded_bits(&ids);
        let mut bytes = vec![0; bits.div_ceil(8) + 1];
        links::encode(&ids, low, &mut bytes);
        [&[low as u8, count as u8, 30], &bytes[..]].concat()
    };
    [(0, 1), (1, 1), (50, 19), (200, 4_000_000)].map(coded).to_vec()
}

/// Reads the number of low bits, the number of links, and the logarithm of their limit (1 byte each), and the
/// bits of the links.
pub fn links(bytes: &[u8]) {
    let Some(([low, count, limit], bits)) = bytes.split_first_chunk::<3>() else { return };
    let (low, count, limit) = (u32::from(*low) % 40, usize::from(*count), 1 << (limit % 32));
    let mut found = Vec::new();
    let Ok(used) = links::decode(bits, count, low, limit, &mut found) else { return };
    assert!(found.len() == count && used <= 8 * bits.len());
    assert!(found.is_sorted_by(|a, b| a < b) && found.iter().all(|id| *id < limit));
    // For a number of low bits, a set has one encoding.
    let mut written = vec![0; bits.len()];
    links::encode(&found, low.min(links::MOST_LOW_BITS), &mut written);
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (at % 8) & 1;
    assert!((0..used).all(|at| bit(&written, at) == bit(bits, at)));
}

pub fn manifest() -> Manifest {
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

/// The journal of a build of 100 vectors of 16 bytes in two parts, one of which is grown.
const JOURNAL: &str = r#"
    {"fingerprint":"a build","seconds":0.5,"longest":null,"parts":[{"rows":100,
    "written":{"bytes":2000,"crc32c":1}},{"rows":100,"written":{"bytes":2000,"crc32c":2}}],
    "grown":[{"lists":{"bytes":4000,"crc32c":7},"late":{"bytes":640,"crc32c":8}}]}
    "#;

pub fn journals() -> Vec<Vec<u8>> {
    let json = joined_lines(JOURNAL);
    assert_eq!(graph::check_journal(&sealed(&json), 100, 16, 100), Ok(()));
    vec![json]
}

pub fn journal(json: &[u8]) {
    let _ = graph::check_journal(&sealed(json), 100, 16, 100);
}
