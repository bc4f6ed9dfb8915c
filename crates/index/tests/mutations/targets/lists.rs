//! The readers of posting lists.

use super::{calibration, content, file, joined_lines, manifest_of, number, sealed};
use bathyal_index::families::spann::{
    ListCodesEntry, ListPoint, SpannEntry, check_journal, check_links, check_list_codec,
};
use bathyal_index::format::identity::Identity;
use bathyal_index::format::links;
use bathyal_index::format::manifest::{CodesEntry, Manifest};
use bathyal_index::format::postings::{
    BLOCK_BYTES, ListEntry, PackedIds, PostingLayout, Postings, check_blocks, checksums, decode_members,
    encode_members,
};
use bathyal_index::format::runs::{decode_section, encode_section};
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::{CodeKind, Codec};

const LAYOUTS: [PostingLayout; 3] =
    [PostingLayout::Coupled, PostingLayout::Decoupled, PostingLayout::Grouped];

/// Reads a layout (1 byte), the bytes of a row (2 bytes), the number of vectors (4 bytes), and a table.
pub fn table(bytes: &[u8]) {
    let Some((head, table)) = bytes.split_first_chunk::<7>() else { return };
    let layout = LAYOUTS[usize::from(head[0]) % 3];
    let (row_bytes, vectors) = (number(&head[1..3]) as usize, number(&head[3..]));
    let Ok(postings) = Postings::from_bytes(layout, row_bytes, vectors, table) else { return };
    assert_eq!(postings.lists() * 12, table.len());
    let (mut copies, mut place, mut rows_end, mut members_end) = (0, 0, 0, None);
    for list in 0..postings.lists() as u32 {
        copies += u64::from(postings.vectors_of(list));
        let (rows, members) = (postings.rows_range(list), postings.members_range(list));
        for range in [&rows, &members] {
            assert!(range.start <= range.end && range.end <= postings.file_bytes());
            assert!(range.end - range.start <= postings.longest() as u64);
        }
        assert_eq!(members.is_empty(), postings.members_of(list) == 0);
        if rows.end > rows.start {
            assert!(rows.start >= rows_end, "rows of two lists overlap");
            rows_end = rows.end;
        }
        if layout != PostingLayout::Coupled {
            assert!(members_end.is_none_or(|end| end == members.start));
            assert!(members.start >= vectors * row_bytes as u64, "members lie in the rows");
            members_end = Some(members.end);
        }
        if let Some(first) = postings.first_place(list) {
            assert_eq!(u64::from(first), place);
            place += u64::from(postings.stored_of(list));
        }
    }
    assert_eq!(copies, postings.copies());
    assert!(members_end.is_none_or(|end| end == postings.file_bytes()));
    assert!(layout != PostingLayout::Grouped || place == vectors);
}

/// Reads the bytes of a row and of a code (2 bytes each), the number of vectors (4 bytes), and a table of
/// lists of codes.
pub fn coded_table(bytes: &[u8]) {
    let Some((head, table)) = bytes.split_first_chunk::<8>() else { return };
    let (row_bytes, code_bytes) = (number(&head[..2]) as usize, number(&head[2..4]) as usize);
    let vectors = number(&head[4..]);
    let Ok(postings) = Postings::coded_from_bytes(row_bytes, code_bytes, vectors, table) else { return };
    assert_eq!(postings.lists() * 12, table.len());
    let mut end = postings.places_range(vectors as u32, 0).end;
    assert_eq!(end, vectors * (row_bytes as u64 + 4));
    let mut copies = 0;
    for list in 0..postings.lists() as u32 {
        copies += u64::from(postings.stored_of(list));
        let range = postings.rows_range(list);
        assert!(end <= range.start && range.end <= postings.file_bytes());
        assert_eq!(range.end - range.start, u64::from(postings.stored_of(list)) * (code_bytes as u64 + 4));
        assert!(range.end - range.start <= postings.longest() as u64 && postings.members_of(list) == 0);
        end = range.end;
    }
    assert!(copies == postings.copies() && end == postings.file_bytes());
}

pub fn coded_tables() -> Vec<Vec<u8>> {
    let table = |vectors: u32, stored: &[u32]| {
        let entries = stored.iter().map(|stored| ListEntry { stored: *stored, ..ListEntry::default() });
        let head = [64, 0, 12, 0].into_iter().chain(vectors.to_le_bytes());
        head.chain(entries.flat_map(|entry| entry.to_bytes())).collect::<Vec<u8>>()
    };
    let tables = [table(100, &[30, 70, 0, 64]), table(1, &[1]), table(400, &[399, 0, 280])];
    for table in &tables {
        let vectors = u64::from(table[4]) + 256 * u64::from(table[5]);
        assert!(Postings::coded_from_bytes(64, 12, vectors, &table[8..]).is_ok());
    }
    tables.to_vec()
}

/// Reads the codec of lists of vectors of 4 dimensions, with codes of 8 or 9 bytes.
pub fn list_codec(bytes: &[u8]) {
    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        let accepted = [8, 9].map(|size| check_list_codec(bytes, 4, metric, size).is_ok());
        assert_ne!(accepted, [true; 2], "a code has one size");
    }
}

pub fn list_codecs() -> Vec<Vec<u8>> {
    let sample: Vec<f32> = (0..64 * 4).map(|i| (i * 37 % 101) as f32).collect();
    [(CodeKind::Axes, Metric::L2), (CodeKind::RaBitQ { bits: 2 }, Metric::InnerProduct)]
        .map(|(kind, metric)| {
            let codec = Codec::train(kind, 9, metric, &sample, 4, 1, 1).expect("trained");
            let (size, codec) = (codec.code_bytes() as u32, codec.to_bytes());
            let shift = [1.5_f32, -2.0, 0.0, 7.0].into_iter().flat_map(f32::to_le_bytes);
            let bytes: Vec<u8> = shift.chain(codec).collect();
            assert_eq!(check_list_codec(&bytes, 4, metric, size), Ok(()));
            bytes
        })
        .to_vec()
}

pub fn tables() -> Vec<Vec<u8>> {
    let entry = |stored, members, member_bytes| ListEntry { stored, members, member_bytes };
    let tables = [
        vec![entry(30, 0, 0), entry(70, 0, 0), entry(0, 0, 0), entry(64, 0, 0)],
        vec![entry(0, 60, 40), entry(0, 0, 0), entry(0, 80, 60)],
        vec![entry(40, 10, 12), entry(0, 0, 0), entry(60, 30, 25)],
    ];
    (0_u8..)
        .zip(tables)
        .map(|(layout, entries)| {
            let head = [layout, 64, 0, 100, 0, 0, 0];
            head.into_iter().chain(entries.iter().flat_map(|entry| entry.to_bytes())).collect()
        })
        .collect()
}

/// Reads the number of members (1 byte), the logarithm of the limit of places (1 byte), and a section.
pub fn members(bytes: &[u8]) {
    let Some(([count, limit], section)) = bytes.split_first_chunk::<2>() else { return };
    let (count, limit) = (u32::from(*count), 1 << (limit % 32));
    let mut found = Vec::new();
    if decode_members(section, count, limit, &mut found).is_err() {
        return;
    }
    assert!(found.len() == count as usize && found.is_sorted_by(|a, b| a < b));
    assert!(found.iter().all(|place| *place < limit));
    // The encoder chooses the best number of low bits, so that its section is not longer.
    let mut written = Vec::new();
    assert!(encode_members(&found, &mut written) <= section.len());
    let mut again = Vec::new();
    assert_eq!(decode_members(&written, count, limit, &mut again), Ok(()));
    assert_eq!(again, found);
}

pub fn member_sections() -> Vec<Vec<u8>> {
    [(0_u32, 0, 1), (1, 9, 1), (40, 500_000, 3), (200, 7, 4_000_000)]
        .map(|(count, first, step)| {
            let places: Vec<u32> = (0..count).map(|i| first + i * step + i % 3).collect();
            let mut bytes = vec![count as u8, 30];
            encode_members(&places, &mut bytes);
            bytes
        })
        .to_vec()
}

/// Reads the numbers of addresses and of lists (1 byte each), the number of rows of each list (1 byte each),
/// and a section.
pub fn runs(bytes: &[u8]) {
    let Some(([count, lists], rest)) = bytes.split_first_chunk::<2>() else { return };
    let Some((rows, section)) = rest.split_at_checked(usize::from(*lists)) else { return };
    let firsts = first_places(rows);
    let mut places = Vec::new();
    if decode_section(section, u32::from(*count), &firsts, &mut places).is_err() {
        return;
    }
    assert!(places.len() == usize::from(*count) && places.is_sorted_by(|a, b| a < b));
    assert!(places.iter().all(|place| *place < firsts[rows.len()]));
    // The encoder chooses the best number of low bits, so that its section is not longer.
    let mut written = Vec::new();
    assert!(encode_section(&places, &firsts, &mut written) <= section.len());
    let mut again = Vec::new();
    assert_eq!(decode_section(&written, u32::from(*count), &firsts, &mut again), Ok(()));
    assert_eq!(again, places);
}

fn first_places(rows: &[u8]) -> Vec<u32> {
    let mut firsts = vec![0];
    rows.iter().for_each(|rows| firsts.push(firsts.last().copied().unwrap_or(0) + u32::from(*rows)));
    firsts
}

pub fn run_sections() -> Vec<Vec<u8>> {
    [(1, 1), (9, 4), (30, 3), (200, 90)]
        .map(|(lists, step)| {
            let rows: Vec<u8> = (0..lists).map(|list| (list * 37 % 101) as u8 + 1).collect();
            let firsts = first_places(&rows);
            let places: Vec<u32> = (0..firsts[lists as usize]).step_by(step).take(250).collect();
            let mut bytes = vec![places.len() as u8, lists as u8];
            bytes.extend(rows);
            encode_section(&places, &firsts, &mut bytes);
            bytes
        })
        .to_vec()
}

/// Reads the number of vectors (2 bytes), and a file of their ids.
pub fn packed_ids(bytes: &[u8]) {
    let Some((vectors, file)) = bytes.split_first_chunk::<2>() else { return };
    let vectors = number(vectors);
    let Ok(ids) = PackedIds::from_bytes(file.to_vec(), vectors) else { return };
    let all: Vec<u32> = (0..vectors as u32).map(|place| ids.get(place)).collect();
    assert!(all.iter().all(|id| u64::from(*id) < vectors));
    assert_eq!(PackedIds::encode(all.into_iter()), file, "ids that were read are written as before");
}

pub fn packed_id_files() -> Vec<Vec<u8>> {
    [1_u32, 2, 3, 64, 65, 300]
        .map(|vectors| {
            let ids = (0..vectors as usize).map(|place| (vectors as usize - 1 - place) as u32);
            [&vectors.to_le_bytes()[..2], &PackedIds::encode(ids.collect::<Vec<_>>().into_iter())].concat()
        })
        .to_vec()
}

/// Reads the number of lists (4 bytes), and the links of their centroids.
pub fn centroid_links(bytes: &[u8]) {
    let Some((lists, links)) = bytes.split_first_chunk::<4>() else { return };
    let lists = number(lists);
    if check_links(links, lists as u32).is_ok() {
        assert!(links.len() as u64 >= 2 * lists);
    }
}

pub fn centroid_link_files() -> Vec<Vec<u8>> {
    [1_u32, 2, 40, 300]
        .map(|lists| {
            let mut bytes = lists.to_le_bytes().to_vec();
            for list in 0..lists {
                let mut ids: Vec<u32> = (1..lists.min(9)).map(|i| (list + i * i) % lists).collect();
                ids.sort_unstable();
                ids.dedup();
                ids.retain(|id| *id != list);
                let (bits, low) = links::encoded_bits(&ids);
                let before = bytes.len() + 2;
                bytes.extend([ids.len() as u8, low as u8]);
                bytes.resize(before + bits.div_ceil(8), 0);
                links::encode(&ids, low, &mut bytes[before..]);
            }
            assert_eq!(check_links(&bytes[4..], lists), Ok(()));
            bytes
        })
        .to_vec()
}

/// Reads the number of checksums (1 byte), the checksums, and the file that they describe.
pub fn checked_blocks(bytes: &[u8]) {
    let Some((count, rest)) = bytes.split_first() else { return };
    let Some((sums, file)) = rest.split_at_checked(4 * usize::from(*count)) else { return };
    let Ok(sums) = checksums(sums, file.len() as u64) else { return };
    assert_eq!(sums.len(), file.len().div_ceil(BLOCK_BYTES));
    for first in [0, 1, sums.len()] {
        let from = (first * BLOCK_BYTES).min(file.len());
        match check_blocks(Identity::NONE, &sums, first, &file[from..]) {
            Ok(()) => (first..).zip(file[from..].chunks(BLOCK_BYTES)).for_each(|(number, block)| {
                assert_eq!(sums[number], crc32c::crc32c(block));
            }),
            Err(number) => assert!((first..=sums.len()).contains(&number)),
        }
    }
}

pub fn checked_files() -> Vec<Vec<u8>> {
    [1, BLOCK_BYTES, BLOCK_BYTES + 1]
        .map(|length| {
            let file: Vec<u8> = (0..length).map(|i| (i * i / 7) as u8).collect();
            let sums: Vec<u8> =
                file.chunks(BLOCK_BYTES).flat_map(|b| crc32c::crc32c(b).to_le_bytes()).collect();
            [&[(sums.len() / 4) as u8], &sums[..], &file].concat()
        })
        .to_vec()
}

/// Returns the contents of manifests of posting lists, one of each layout and one of lists of codes.
pub fn manifests() -> Vec<Vec<u8>> {
    let codec = file("list_codec.bin", 900);
    let codes = ListCodesEntry { codec, kind: "axes".into(), code_bytes: 12 };
    let coded = manifest(PostingLayout::Coupled, Some(codes));
    LAYOUTS.map(|layout| manifest(layout, None)).iter().chain([&coded]).map(content).collect()
}

fn manifest(layout: PostingLayout, codes: Option<ListCodesEntry>) -> Manifest {
    let lists = 10_u32;
    let grouped = layout == PostingLayout::Grouped;
    let point = |probes, prune, recall| ListPoint {
        search_list: probes,
        probes,
        recall,
        prune,
        lists: probes as f32,
    };
    let points = vec![point(2, 0.0, 0.5), point(2, 0.3, 0.4), point(4, 0.0, 0.9), point(10, 0.5, 1.0)];
    let entry = SpannEntry {
        file: file("postings.bin", 4500),
        checksums: file("checksums.bin", 8),
        lists: file("lists.bin", u64::from(lists) * 12),
        centroids: file("centroids.bin", u64::from(lists) * 16),
        links: file("links.bin", 77),
        ids: grouped.then(|| file("ids.bin", PackedIds::file_bytes(100))),
        layout: layout.name().into(),
        list_codes: codes.map(Box::new),
        list_count: lists,
        copies: 250,
        replicas: 4,
        centroid_share: 0.1,
        list_limit: 30,
        longest_bytes: 480,
        max_degree: 32,
        entry_point: 4,
        codes: CodesEntry {
            file: file("codes.bin", u64::from(lists) * 8),
            codec: file("codec.bin", 640),
            kind: "pq".into(),
            code_bytes: 8,
        },
        calibration: calibration(points),
    };
    let manifest = manifest_of("spann", &entry, entry.files());
    assert_eq!(SpannEntry::read(&manifest), Ok(entry));
    manifest
}

/// Numbers of vectors that a build of 100 vectors of 16 bytes in leaves of 30 places at a time, and journals
/// of such builds: one that has placed one of two parts, and one that has placed all vectors and made the
/// lists.
const JOURNALS: [(usize, &str); 2] = [
    (
        60,
        r#"
        {"fingerprint":"a build","seconds":0.5,"longest":1065353216,"parts":[{"rows":60,
        "written":{"bytes":1200,"crc32c":1}},{"rows":40,"written":{"bytes":800,"crc32c":2}}],"placed":1,
        "vectors":{"bytes":968,"crc32c":7},"means":{"bytes":128,"crc32c":8},
        "order":{"bytes":240,"crc32c":9},"own":{"admitted":null}}
        "#,
    ),
    (
        100,
        r#"
        {"fingerprint":"a build","seconds":1.5,"longest":null,
        "parts":[{"rows":100,"written":{"bytes":0,"crc32c":0}}],"placed":1,
        "vectors":{"bytes":1608,"crc32c":7},"means":{"bytes":256,"crc32c":8},
        "order":{"bytes":400,"crc32c":9},
        "own":{"admitted":{"centroids":{"name":"centroids.bin","bytes":64,"crc32c":1},
        "links":{"name":"links.bin","bytes":20,"crc32c":2},"codes":{"file":{"name":"codes.bin",
        "bytes":64,"crc32c":3},"codec":{"name":"codec.bin","bytes":90,"crc32c":4},
        "entry":{"kind":"axes","code_bytes":16}},"entry_point":3,"members":{"bytes":816,"crc32c":5},
        "slots":{"bytes":16,"crc32c":6},"frequencies":{"bytes":16,"crc32c":10}}}}
        "#,
    ),
];

pub fn journals() -> Vec<Vec<u8>> {
    let seed = |(rows, json): (usize, &str)| {
        let json = joined_lines(json);
        assert_eq!(check_journal(&sealed(&json), 100, 16, 30, rows), Ok(()));
        json
    };
    JOURNALS.map(seed).to_vec()
}

pub fn journal(json: &[u8]) {
    for (rows, _) in JOURNALS {
        let _ = check_journal(&sealed(json), 100, 16, 30, rows);
    }
}
