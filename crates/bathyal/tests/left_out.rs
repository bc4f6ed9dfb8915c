//! The library with the family `flat` alone refuses what it lacks, by the feature's name. `make
//! check-features` runs it.

#![cfg(not(any(
    feature = "collection",
    feature = "gpu",
    feature = "object",
    feature = "remote",
    feature = "lsh"
)))]

use bathyal::{
    BuildOptions, Control, DeviceChoice, Element, GivenOptions, Index, OpenOptions, SearchOptions, Silent,
    VectorFile, families,
};
use std::path::Path;

/// Returns the sentence about a family that was left out.
fn left_out(family: &str) -> String {
    format!("family '{family}' was left out of this build: enable the feature `{family}` of bathyal")
}

/// The message of `outcome`, which is an error.
fn refusal<T>(outcome: Result<T, impl std::fmt::Display>) -> String {
    match outcome {
        Ok(_) => panic!("refused where a feature is left out"),
        Err(error) => error.to_string(),
    }
}

fn vectors() -> VectorFile {
    let values = (0..3200).map(|i| (i * i % 97) as f32);
    VectorFile::from_rows(Element::F32, 16, values.flat_map(f32::to_le_bytes).collect()).unwrap()
}

#[test]
fn addresses_of_other_machines_name_the_feature_that_reaches_them() {
    for (address, feature) in [
        ("s3://bucket/index", "`object`"),
        ("gs://bucket/index", "`object`"),
        ("az://container/index", "`object`"),
        ("memory://name/index", "`object`"),
        ("remote://127.0.0.1:4000/index", "`remote`"),
    ] {
        let opened = refusal(Index::open(address, &OpenOptions::default()));
        let built = refusal(bathyal::build(&vectors(), address.as_ref(), &BuildOptions::default(), &Silent));
        for message in [opened, built] {
            assert!(message.contains(feature) && message.contains(address), "{address}: {message}");
        }
    }
}

#[test]
fn a_graphics_card_names_its_feature() {
    let message = refusal(DeviceChoice::Gpu(0).card());
    assert!(message.contains("`gpu`"), "{message}");
}

#[test]
fn a_family_that_was_left_out_names_its_feature() {
    for family in ["cluster", "graph", "spann", "lsh", "partitioned"] {
        let message = refusal(families::options(family, &GivenOptions::new()));
        assert_eq!(message, left_out(family));
    }
    let message = refusal(families::options("annoy", &GivenOptions::new()));
    assert_eq!(message, "unknown family 'annoy': it is one of flat");
}

#[test]
fn an_index_of_a_family_that_was_left_out_names_the_feature() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/indexes/version_2_later/lsh");
    let expected = format!("{}: {}", path.display(), left_out("lsh"));
    assert_eq!(refusal(Index::open(&path, &OpenOptions::default())), expected);
    assert_eq!(refusal(bathyal::inspect(&path, &Silent)), expected);
    assert_eq!(refusal(bathyal::verify(&path, &Silent)), expected);
}

#[test]
fn an_index_in_a_folder_needs_one_family() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let data = vectors();
    bathyal::build(&data, &path, &BuildOptions::default(), &Silent).unwrap();
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    let found = index.search(&data, &SearchOptions { k: 1, ..SearchOptions::default() }, Control::default());
    assert_eq!(found.unwrap().ids.len(), data.count());
}
