//! The readers of hash tables.

use super::{calibration, content, file, manifest_of};
use bathyal_index::calibrate::probed::ProbedPoint;
use bathyal_index::families::lsh::LshEntry;
use bathyal_index::format::groups::GroupLayout;
use bathyal_index::format::identity::Identity;
use bathyal_index::format::manifest::CodesEntry;
use bathyal_index::format::tables::TableLayout;
use bathyal_kernels::Element;
use bathyal_kernels::lsh::{CompoundHashes, HashScratch};

const DIM: usize = 5;
const TABLES: usize = 2;
const HASHES: usize = 12;

fn layout() -> TableLayout {
    TableLayout::new(4096, 128, 2, 40).expect("in range").identified(Identity::of("an index"))
}

/// Returns the content of a manifest.
pub fn manifests() -> Vec<Vec<u8>> {
    let pages = GroupLayout::new(Element::U8, 16, 512, 1).expect("in range");
    let begin = pages.file_bytes(100_u64.div_ceil(pages.group_vectors() as u64));
    let tables = TableLayout::new(begin, 512, 3, 100).expect("in range");
    let point =
        |search_list, recall| ProbedPoint { probes: 1, search_list, recall, ratio: Some(2.0 - recall) };
    let entry = LshEntry {
        file: file("tables.bin", tables.file_bytes()),
        functions: file("hashes.bin", CompoundHashes::file_bytes(16, 3, 8)),
        fences: file("fences.bin", tables.fence_bytes()),
        ids: None,
        page_bytes: 512,
        tables: 3,
        hashes: 8,
        block_bytes: 512,
        cell: 1.5,
        circle: true,
        longest: None,
        codes: CodesEntry {
            file: file("codes.bin", 800),
            codec: file("codec.bin", 640),
            kind: "axes".into(),
            code_bytes: 8,
        },
        calibration: calibration(vec![point(10, 0.5), point(20, 0.9)]),
    };
    let manifest = manifest_of("lsh", &entry, entry.files());
    assert_eq!(LshEntry::read(&manifest), Ok(entry));
    vec![content(&manifest)]
}

pub fn function_files() -> Vec<Vec<u8>> {
    vec![CompoundHashes::draw(&[1.0; DIM], 3.0, TABLES, HASHES, 7).to_bytes()]
}

pub fn functions(bytes: &[u8]) {
    let Ok(functions) = CompoundHashes::from_bytes(bytes, DIM, TABLES, HASHES) else { return };
    assert_eq!(functions.to_bytes(), bytes);
    let mut points = vec![1.0, -2.0, 0.0, 1e19, -1e-30, 7.0, 7.0, 7.0, 7.0, 7.0];
    functions.subtract_centre(&mut points);
    let (mut scratch, mut keys) = (HashScratch::default(), Vec::new());
    for table in 0..TABLES {
        functions.keys(table, &points, &mut scratch, &mut keys);
        assert_eq!(keys.len(), 2);
        let unused = 128 - functions.hashes() * functions.levels();
        assert!(keys.iter().all(|key| key.leading_zeros() as usize >= unused));
    }
}

pub fn block() -> Vec<u8> {
    let mut block = vec![0; 128];
    layout().encode(&mut block, 1, 28..40_u32);
    block
}

pub fn blocks(bytes: &[u8]) {
    let layout = layout();
    assert!(layout.ids(bytes).len() <= layout.block_ids());
    for number in [0, 1, 3] {
        if layout.check(number, bytes).is_ok() {
            assert_eq!(layout.ids(bytes).len(), layout.count(u64::from(number) % layout.blocks()));
        }
    }
}
