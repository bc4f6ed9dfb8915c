//! Files of vectors and ids that are damaged, have wrong headers, or do not fit together.

use std::path::Path;

use tempfile::TempDir;

use crate::harness::{DIM, VECTORS, bathyal, copy, fbin, names, numbers, shared, write_vectors};

/// Checks that every command that reads vectors refuses the file `name` and writes nothing.
#[track_caller]
fn refused(folder: &Path, name: &str, parts: &[&str]) {
    let before = names(folder);
    for line in [
        format!("build {name} made.idx --metric l2"),
        format!("convert {name} made.npy"),
        format!("groundtruth {name} good.fbin made.ibin -k 1"),
        format!("groundtruth good.fbin {name} made.ibin -k 1"),
    ] {
        let ran = bathyal(folder, &line);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{line}: {ran:?}");
        ran.mentions(&[name]);
        ran.mentions(parts);
    }
    assert_eq!(names(folder), before);
}

fn folder_with(name: &str, content: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "good.fbin", 6, 4, 1);
    std::fs::write(folder.path().join(name), content).unwrap();
    folder
}

#[test]
fn wrong_headers_are_refused() {
    let values = numbers(24, 3);
    let cases: [(Vec<u8>, &[&str]); 9] = [
        (Vec::new(), &["holds no vectors"]),
        (vec![6, 0, 0], &["has 3 bytes", "header alone takes 8"]),
        (fbin(0, 4, &[]), &["holds no vectors"]),
        (fbin(6, 0, &[]), &["dim = 0", "expected 1 to"]),
        (fbin(6, 4, &values[..23]), &["truncated: has 100 bytes", "104"]),
        (fbin(6, 4, &numbers(25, 3)), &["over-long: has 108 bytes", "104"]),
        (fbin(u32::MAX, 4, &values), &["truncated: has 104 bytes"]),
        (fbin(6, u32::MAX, &values), &["dim = 4294967295", "expected 1 to"]),
        (fbin(u32::MAX, u32::MAX, &values), &["dim = 4294967295"]),
    ];
    for (content, parts) in cases {
        let folder = folder_with("bad.fbin", &content);
        refused(folder.path(), "bad.fbin", parts);
    }
}

#[test]
fn other_formats_are_checked_too() {
    let row = |dim: u32, values: usize| [dim.to_le_bytes().to_vec(), vec![0; values * 4]].concat();
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("bad.fvecs", [row(4, 4), row(5, 5), row(4, 4)].concat(), "bad.fvecs"),
        ("cut.fvecs", [row(4, 4), row(4, 3)].concat(), "cut.fvecs"),
        ("bad.npy", b"\x93NUMPY\x01\x00".to_vec(), "bad.npy"),
        ("text.npy", b"1.0, 2.0, 3.0\n".to_vec(), "numpy.save"),
        ("bad.u8bin", fbin(6, 4, &[]), "truncated"),
    ];
    for (name, content, part) in cases {
        let folder = folder_with(name, &content);
        let ran = bathyal(folder.path(), &format!("build {name} made.idx --metric l2"));
        ran.fails(1, &[name, part]);
    }
}

#[test]
fn unknown_extensions_are_refused_with_a_list_of_known_ones() {
    let folder = folder_with("data.csv", b"1,2,3\n");
    refused(folder.path(), "data.csv", &["the extension is \"csv\"", ".fbin"]);
    let cases: [(&str, &[&str]); 4] = [
        ("convert good.fbin out.hdf5", &["hdf5", "Python"]),
        ("convert good.fbin out.ibin", &["ibin", "ids"]),
        ("groundtruth good.fbin good.fbin out.fbin", &["fbin", ".ibin .ivecs"]),
        ("build gt.ibin idx --metric l2", &["holds ids"]),
    ];
    for (line, parts) in cases {
        bathyal(folder.path(), line).fails(1, parts);
    }
}

#[test]
fn missing_files_and_folders_in_their_place_are_refused() {
    let folder = folder_with("x.txt", b"");
    refused(folder.path(), "missing.fbin", &["cannot find the file", "No such file"]);
    std::fs::create_dir(folder.path().join("folder.fbin")).unwrap();
    refused(folder.path(), "folder.fbin", &["is not a regular file"]);
}

#[test]
fn values_that_are_not_finite_are_named_by_row() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = numbers(24, 3);
        values[4 * 3 + 2] = bad;
        let folder = folder_with("bad.fbin", &fbin(6, 4, &values));
        for line in ["build bad.fbin idx --metric l2", "groundtruth good.fbin bad.fbin out.ibin -k 1"] {
            bathyal(folder.path(), line).fails(1, &["bad.fbin", "row 3, dimension 2", "finite"]);
        }
        assert_eq!(names(folder.path()), ["bad.fbin", "good.fbin"]);
    }
}

#[test]
fn zero_vectors_have_no_cosine() {
    let mut values = numbers(24, 3);
    values[4 * 2..4 * 3].fill(0.0);
    let folder = folder_with("bad.fbin", &fbin(6, 4, &values));
    let build = bathyal(folder.path(), "build bad.fbin idx --metric cosine");
    build.fails(1, &["all zeros", "rows [2]"]);
    let exact = bathyal(folder.path(), "groundtruth bad.fbin good.fbin out.ibin -k 1 --metric cosine");
    exact.fails(1, &["row 2 is all zeros"]);
    bathyal(folder.path(), "build good.fbin idx --metric cosine").good();
    bathyal(folder.path(), "search idx bad.fbin -k 1").fails(1, &["bad.fbin", "query 2 is all zeros"]);
}

#[test]
fn values_that_the_new_element_cannot_hold_are_named() {
    let folder = folder_with("bad.fbin", &fbin(2, 2, &[0.0, 1.0, 2.5, 1e9]));
    let whole = bathyal(folder.path(), "convert bad.fbin out.u8bin");
    whole.fails(1, &["row 1, dimension 0 is 2.5", "u8 cannot hold"]);
    let large = bathyal(folder.path(), "convert bad.fbin out.f16bin");
    large.fails(1, &["row 1, dimension 1", "f16 cannot hold"]);
    let rows = bathyal(folder.path(), "convert bad.fbin out.fbin --rows 1..5");
    rows.fails(1, &["rows 1..5", "0..2"]);
    assert_eq!(names(folder.path()), ["bad.fbin", "good.fbin"]);
}

#[test]
fn queries_that_do_not_fit_the_index_are_refused() {
    let folder = copy();
    write_vectors(folder.path(), "wide.fbin", 3, DIM + 1, 5);
    bathyal(folder.path(), "convert queries.fbin half.f16bin").good();
    let wide = bathyal(folder.path(), "search idx wide.fbin");
    wide.fails(1, &["wide.fbin", "13 dimensions", "the index has 12"]);
    let half = bathyal(folder.path(), "search idx half.f16bin");
    half.fails(1, &["half.f16bin", "f16", "f32", "bathyal convert"]);
    let exact = bathyal(folder.path(), "groundtruth base.fbin half.f16bin out.ibin");
    exact.fails(1, &["f16", "f32", "convert"]);
}

#[test]
fn ground_truth_that_does_not_fit_is_refused() {
    let folder = copy();
    write_vectors(folder.path(), "few.fbin", 3, DIM, 5);
    bathyal(folder.path(), "groundtruth base.fbin few.fbin few.ibin -k 20").good();
    let few = bathyal(folder.path(), "search idx queries.fbin --groundtruth few.ibin");
    few.fails(1, &["few.ibin", "3 queries", "25 are searched"]);
    let short = bathyal(folder.path(), "search idx queries.fbin -k 21 --groundtruth gt.ibin");
    short.fails(1, &["gt.ibin", "20 neighbours", "-k 21"]);
    let content = std::fs::read(folder.path().join("gt.ibin")).unwrap();
    std::fs::write(folder.path().join("cut.ibin"), &content[..content.len() - 4]).unwrap();
    let cut = bathyal(folder.path(), "bench idx queries.fbin --groundtruth cut.ibin");
    cut.fails(1, &["cut.ibin", "truncated"]);
    // The ids are out of range, so recall would mean nothing.
    let mut other = content;
    other[8..12].copy_from_slice(&(VECTORS as u32).to_le_bytes());
    std::fs::write(folder.path().join("other.ibin"), &other).unwrap();
    let other = bathyal(folder.path(), "search idx queries.fbin --groundtruth other.ibin");
    other.fails(1, &["other.ibin", "query 0 names id 400", "400 vectors"]);
    assert!(names(shared()).len() < names(folder.path()).len());
}
