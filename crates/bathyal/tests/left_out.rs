//! The library without its features refuses what it lacks, by the feature's name. `make check-features` runs
//! it.

#![cfg(not(any(feature = "collection", feature = "gpu", feature = "object", feature = "remote")))]

use bathyal::{
    BuildOptions, Control, DeviceChoice, Element, Index, OpenOptions, SearchOptions, Silent, VectorFile,
};

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
fn an_index_in_a_folder_needs_no_feature() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let data = vectors();
    bathyal::build(&data, &path, &BuildOptions::default(), &Silent).unwrap();
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    let found = index.search(&data, &SearchOptions { k: 1, ..SearchOptions::default() }, Control::default());
    assert_eq!(found.unwrap().ids.len(), data.count());
}
