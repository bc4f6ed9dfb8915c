//! Manifests of flat indexes. Their pages are those of groups.

use super::cluster::group_layout;
use super::{calibration, content, file, manifest_of};
use bathyal_index::calibrate::list::ListPoint;
use bathyal_index::families::flat::{FlatCodes, FlatEntry};
use bathyal_index::format::manifest::CodesEntry;

/// Returns the contents of a manifest without codes and of one with codes.
pub fn manifests() -> Vec<Vec<u8>> {
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
