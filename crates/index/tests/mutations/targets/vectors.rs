//! The readers of files of vectors and of ids.

use bathyal_kernels::Element;
use bathyal_vectors::{FileFormat, IdFile, IdFormat, VectorFile};
use std::path::Path;

/// Reads a file of vectors. All rows of an accepted file are within its bytes, and the last row ends with the
/// file.
pub fn read_vectors(format: FileFormat, bytes: &[u8]) {
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

pub fn read_ids(format: IdFormat, bytes: &[u8]) {
    let Ok(file) = IdFile::parse(format, bytes, Path::new("ids")) else { return };
    assert!(file.queries() > 0 && file.k() > 0);
    assert!(file.queries() * file.k() * 4 <= bytes.len());
    for query in 0..file.queries() {
        assert_eq!(file.ids(query).len(), file.k());
        assert_eq!(file.distances(query).map(<[f32]>::len), file.has_distances().then_some(file.k()));
    }
    assert!(file.ids(file.queries()).is_empty() && file.slice(0..file.queries() + 1).is_err());
}

/// Returns files of two u32, and rows of elements of `size` bytes.
pub fn bin(size: usize) -> Vec<Vec<u8>> {
    [(1u32, 1u32), (3, 5), (40, 16)]
        .map(|(count, dim)| {
            let body = (0..count as usize * dim as usize * size).map(|i| (i * 7) as u8);
            count.to_le_bytes().into_iter().chain(dim.to_le_bytes()).chain(body).collect()
        })
        .to_vec()
}

pub fn bits() -> Vec<Vec<u8>> {
    [(1u32, 8u32), (3, 40), (40, 128)]
        .map(|(count, dim)| {
            let body = (0..count * dim / 8).map(|i| (i * 7) as u8);
            count.to_le_bytes().into_iter().chain(dim.to_le_bytes()).chain(body).collect()
        })
        .to_vec()
}

pub fn vecs(size: usize) -> Vec<Vec<u8>> {
    [(1usize, 1u32), (3, 5), (40, 16)]
        .map(|(count, dim)| {
            let row = || dim.to_le_bytes().into_iter().chain((0..dim as usize * size).map(|i| (i * 7) as u8));
            (0..count).flat_map(|_| row()).collect()
        })
        .to_vec()
}

pub fn npy() -> Vec<Vec<u8>> {
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
