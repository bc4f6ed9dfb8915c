//! The readers of cluster indexes: pages of groups, centroids, and journals.

use super::{calibration, file, joined_lines, manifest_of, sealed};
use bathyal_index::calibrate::Curve;
use bathyal_index::calibrate::probed::ProbedPoint;
use bathyal_index::families::cluster::{ClusterEntry, MeasuredPrune, check_centroids, check_journal};
use bathyal_index::format::groups::GroupLayout;
use bathyal_index::format::manifest::{CodesEntry, Manifest};
use bathyal_index::format::positions;
use bathyal_kernels::{Element, Metric};

pub fn group_layout() -> GroupLayout {
    GroupLayout::new(Element::U8, 16, 512, 2).expect("in range")
}

pub fn page() -> Vec<u8> {
    let layout = group_layout();
    let mut page = vec![0; layout.page_bytes()];
    let rows = [[7_u8; 16]; 20];
    layout.encode(&mut page, 7, &(0..20).collect::<Vec<u32>>(), rows.iter().map(|row| &row[..]));
    page
}

pub fn group_records(bytes: &[u8]) {
    let layout = group_layout();
    for page in [0, 7] {
        if layout.check(page, bytes).is_ok() {
            assert!(bytes.len() >= layout.page_bytes());
        }
    }
    // A page that was checked when it was loaded is read without its checksum.
    let vectors = layout.vectors(bytes);
    assert!(vectors.is_empty() || vectors.len() == layout.page_vectors() * layout.vector_bytes());
    for slot in [0, 1, layout.page_vectors() - 1, usize::MAX / 8] {
        let _ = layout.id(bytes, slot);
    }
}

pub fn manifest() -> Manifest {
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

fn cluster_entry() -> ClusterEntry {
    ClusterEntry::read(&manifest()).expect("a cluster index")
}

/// Returns a file of centroids for [`manifest`]: the mean, the unit, a run, the first group of the run, two
/// counts, two checksums of codes and two of rows, and two blocks of codes of 8 bytes.
pub fn centroids() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..16).flat_map(|d| (d as f32).to_le_bytes()).collect();
    bytes.extend(2.5_f32.to_le_bytes());
    bytes.extend((0..16).flat_map(|_| [0, 0x3c]));
    bytes.extend([0_u32, 50, 50, 7, 9, 5, 6].into_iter().flat_map(u32::to_le_bytes));
    bytes.extend([0_u8; 64 * 8]);
    assert!(check_centroids(&bytes, &cluster_entry(), &group_layout(), Metric::L2, 100).is_ok());
    bytes
}

pub fn centroid_file(bytes: &[u8]) {
    // Earlier versions have no file of rows: the rows are in the file of centroids.
    for rows in [None, cluster_entry().rows] {
        let entry = ClusterEntry { rows, ..cluster_entry() };
        let _ = check_centroids(bytes, &entry, &group_layout(), Metric::L2, 100);
        let _ = check_centroids(bytes, &entry, &group_layout(), Metric::Cosine, 100);
    }
}

/// Numbers of vectors that a build of 100 vectors places at a time, and journals of such builds: one that has
/// done all stages, and one that has placed one of two parts.
const JOURNALS: [(usize, &str); 2] = [
    (
        100,
        r#"
        {"fingerprint":"a build","seconds":1.5,"longest":null,
        "parts":[{"rows":100,"written":{"bytes":0,"crc32c":0}}],"placed":1,
        "vectors":{"bytes":2048,"crc32c":7},"means":{"bytes":128,"crc32c":8},
        "order":{"bytes":400,"crc32c":9},"own":{"trained":{"name":"codec.bin","bytes":640,"crc32c":10},
        "codes":{"bytes":512,"crc32c":11},"places":{"bytes":800,"crc32c":12}}}
        "#,
    ),
    (
        50,
        r#"
        {"fingerprint":"a build","seconds":0.5,"longest":1065353216,"parts":[{"rows":60,
        "written":{"bytes":1200,"crc32c":1}},{"rows":40,"written":{"bytes":800,"crc32c":2}}],"placed":1,
        "vectors":{"bytes":1024,"crc32c":7},"means":{"bytes":64,"crc32c":8},
        "order":{"bytes":200,"crc32c":9},
        "own":{"trained":null,"codes":{"bytes":0,"crc32c":0},"places":{"bytes":0,"crc32c":0}}}
        "#,
    ),
];

pub fn journals() -> Vec<Vec<u8>> {
    let seed = |(rows, json): (usize, &str)| {
        let json = joined_lines(json);
        assert_eq!(check_journal(&sealed(&json), 100, rows, &group_layout()), Ok(()));
        json
    };
    JOURNALS.map(seed).to_vec()
}

pub fn sealed_journals() -> Vec<Vec<u8>> {
    vec![sealed(&journals()[0])]
}

pub fn journal(bytes: &[u8]) {
    for (rows, _) in JOURNALS {
        let _ = check_journal(bytes, 100, rows, &group_layout());
    }
}

pub fn journal_content(json: &[u8]) {
    journal(&sealed(json));
}
