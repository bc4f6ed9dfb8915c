//! Bits and bf16 through the command: files, metrics, answers.

use crate::harness::{DIM, QUERIES, VECTORS, bathyal, copy, numbers};
use std::path::Path;

/// Writes `count` rows of `bytes` bytes with dim `dim`, in the format of the extension of `name`.
fn write_bytes(folder: &Path, name: &str, count: usize, (dim, bytes): (u32, usize), seed: u64) {
    let rows = numbers(count * bytes, seed).into_iter().map(|value| (value * 127.0) as i8 as u8);
    let header = [count as u32, dim].into_iter().flat_map(u32::to_le_bytes);
    std::fs::write(folder.join(name), header.chain(rows).collect::<Vec<u8>>()).unwrap();
}

#[test]
fn bytes_hold_bits_under_hamming() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    write_bytes(folder, "base.u8bin", 600, (32, 32), 1);
    write_bytes(folder, "queries.u8bin", 20, (32, 32), 2);
    bathyal(folder, "groundtruth base.u8bin queries.u8bin gt.ibin -k 20 --metric hamming").good();
    let built = bathyal(folder, "build base.u8bin idx --metric Hamming --json").json();
    assert_eq!(
        (&built["metric"], &built["element"], &built["dim"]),
        (&"hamming".into(), &"b1".into(), &256.into())
    );
    let found = bathyal(folder, "search idx queries.u8bin --recall 0.99 --groundtruth gt.ibin --json").json();
    assert!(found["recall"].as_f64().unwrap() >= 0.9, "{found}");
    let measured = "bench idx queries.u8bin --groundtruth gt.ibin --data base.u8bin --repeats 1 --json";
    let measured = bathyal(folder, measured).json();
    assert_eq!(measured["exact_scan"]["vectors"], 600, "{measured}");
    assert!(measured["points"].as_array().unwrap().iter().all(|point| point["recall"].as_f64() > Some(0.5)));
    let about = bathyal(folder, "inspect idx --json").json();
    assert_eq!((&about["manifest"]["metric"], &about["data_bytes"]), (&"hamming".into(), &(600 * 32).into()));
    // A file of bits with the same bits gives the same index.
    let mut bits = std::fs::read(folder.join("base.u8bin")).unwrap();
    bits[4..8].copy_from_slice(&256_u32.to_le_bytes());
    std::fs::write(folder.join("base.b1bin"), bits).unwrap();
    let again = bathyal(folder, "build base.b1bin of_bits --metric l2 --json").json();
    assert_eq!((&again["metric"], &again["index_bytes"]), (&"hamming".into(), &built["index_bytes"]));
    bathyal(folder, "get idx 3 5 --output rows.b1bin").good();
    bathyal(folder, "convert rows.b1bin rows.fbin").good();
    let rows = std::fs::read(folder.join("rows.fbin")).unwrap();
    assert_eq!(rows.len(), 8 + 2 * 256 * 4);
    let plan = bathyal(folder, "build base.u8bin idx2 --metric hamming --plan --json").json();
    assert_eq!(plan["parameters"]["code_bytes"], 16, "{plan}");
    assert_eq!((&plan["dim"], &plan["metric"]), (&256.into(), &"hamming".into()), "{plan}");
    assert!(!folder.join("idx2").exists());
}

#[test]
fn other_elements_are_refused_under_hamming() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    write_bytes(folder, "base.i8bin", 60, (32, 32), 1);
    bathyal(folder, "build base.i8bin idx --metric hamming")
        .fails(1, &["base.i8bin", "holds i8", "hamming", "pack"]);
    write_bytes(folder, "odd.b1bin", 60, (12, 2), 1);
    bathyal(folder, "build odd.b1bin idx --metric hamming").fails(1, &["odd.b1bin", "dim", "multiple of 8"]);
    write_bytes(folder, "long.u8bin", 3, (8193, 8193), 1);
    bathyal(folder, "build long.u8bin idx --metric hamming").fails(1, &["long.u8bin", "8193 bytes", "8192"]);
    bathyal(folder, "build base.i8bin idx --metric jaccard")
        .fails(2, &["jaccard", "l2, ip, cosine", "hamming"]);
}

#[test]
fn bf16_vectors_are_built_and_searched() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    crate::harness::write_vectors(folder, "base.fbin", 500, 24, 1);
    crate::harness::write_vectors(folder, "queries.fbin", 20, 24, 2);
    for name in ["base", "queries"] {
        bathyal(folder, &format!("convert {name}.fbin {name}.bf16bin")).good();
    }
    bathyal(folder, "groundtruth base.fbin queries.fbin gt.ibin -k 20").good();
    for (family, metric) in [("cluster", "l2"), ("graph", "l2"), ("flat", "l2")] {
        let built = format!("build base.bf16bin {family}.idx --metric {metric} --family {family} --json");
        assert_eq!(bathyal(folder, &built).json()["element"], "bf16");
        let search =
            format!("search {family}.idx queries.bf16bin --recall 0.99 --groundtruth gt.ibin --json");
        let found = bathyal(folder, &search).json();
        assert!(found["recall"].as_f64().unwrap() >= 0.9, "{family}: {found}");
        bathyal(folder, &format!("verify {family}.idx")).good();
    }
    bathyal(folder, "search cluster.idx queries.fbin")
        .fails(1, &["queries are f32, the index holds bf16", "convert"]);
}

/// Writes a `.npy` file of `rows x columns` numbers.
fn write_npy(path: &std::path::Path, descr: &str, (rows, columns): (usize, usize), body: Vec<u8>) {
    let shape = format!("({rows}, {columns})");
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (text.len() as u16).to_le_bytes();
    let bytes = [&b"\x93NUMPY\x01\x00"[..], &length, text.as_bytes(), &body].concat();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn numpy_files_of_other_numbers_are_converted_with_a_note() {
    let folder = copy();
    let here = folder.path();
    let doubles = |count: usize, seed| numbers(count * DIM, seed).into_iter().map(|x| f64::from(x) + 1e-12);
    let bytes = |count, seed| doubles(count, seed).flat_map(f64::to_le_bytes).collect();
    write_npy(&here.join("base.npy"), "<f8", (VECTORS, DIM), bytes(VECTORS, 1));
    write_npy(&here.join("queries.npy"), "<f8", (QUERIES, DIM), bytes(QUERIES, 2));
    let built = bathyal(here, "build base.npy doubles.idx --metric l2 --json");
    assert_eq!(built.code, Some(0), "{built:?}");
    built.mentions(&["note: base.npy holds float64, which is rounded to f32 in memory"]);
    // The same neighbours, as numpy saves them.
    bathyal(here, "groundtruth base.npy queries.npy gt.ivecs -k 20 -q").good();
    let ids: Vec<u8> = bathyal_vectors::IdFile::open(here.join("gt.ivecs"))
        .unwrap()
        .all_ids()
        .iter()
        .flat_map(|id| i64::from(*id).to_le_bytes())
        .collect();
    write_npy(&here.join("gt.npy"), "<i8", (QUERIES, 20), ids);
    let search = "search doubles.idx queries.npy -k 10 --search-list 400 --groundtruth gt.npy --json -q";
    assert_eq!(bathyal(here, search).json()["recall"], 1.0);
    bathyal(here, "convert gt.npy again.ibin -q").good();
    bathyal(here, "convert base.npy half.f16bin -q").good();
    std::fs::write(here.join("sift.hdf5"), b"x").unwrap();
    bathyal(here, "build sift.hdf5 x --metric l2").fails(1, &["bathyal.convert(FILE"]);
}
