//! The plan of an advice that an index keeps: in folders, on several disks, in a store, and in copies.

use crate::cases::quick_build;
use crate::clustered::vectors;
use bathyal_index::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_index::{
    BuildOptions, ClusterOptions, CopyOptions, GraphLayoutChoice, GraphOptions, Index, MOST_PLAN_BYTES,
    OpenOptions, StripeOptions, build, build_in, convert_layout, convert_stripes, copy, inspect, remove,
    verify,
};
use bathyal_index::{StoreOptions, StripeConversionOptions};
use bathyal_kernels::Element;
use bathyal_store::Store;
use bathyal_store::memory::MemoryStore;
use bathyal_vectors::progress::Silent;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn plan() -> Value {
    json!({ "plan_version": 1, "recall": 0.95, "reads": { "value": 12.625, "low": 1e-3, "high": 1e7 } })
}

fn kept(path: &Path) -> Option<Value> {
    Manifest::read(path).unwrap().plan
}

#[test]
fn an_index_keeps_its_plan_wherever_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let data = vectors(Element::F32, 1500, 16, 3);
    let options = BuildOptions { threads: 1, plan: Some(plan()), ..quick_build(ClusterOptions::default()) };
    build(&data, &path("idx"), &options, &Silent).unwrap();
    let index = Index::open(path("idx"), &OpenOptions::default()).unwrap();
    assert_eq!(index.manifest().plan, Some(plan()));
    assert_eq!(inspect(path("idx"), &Silent).unwrap().manifest.plan, Some(plan()));
    // It does not change the index.
    build(&data, &path("without"), &BuildOptions { plan: None, ..options.clone() }, &Silent).unwrap();
    let (with, without) = (Manifest::read(&path("idx")).unwrap(), Manifest::read(&path("without")).unwrap());
    assert_eq!((&with.files, &with.identity), (&without.files, &without.identity));
    assert_eq!(without.plan, None);
    let text = fs::read_to_string(path("without").join(MANIFEST_NAME)).unwrap();
    assert!(!text.contains("\"plan\""), "earlier programs wrote no such member");

    let disks = ["a", "b"].map(path);
    disks.iter().for_each(|disk| fs::create_dir(disk).unwrap());
    let stripe = Some(StripeOptions::over(&disks));
    build(&data, &path("striped"), &BuildOptions { stripe: stripe.clone(), ..options.clone() }, &Silent)
        .unwrap();
    assert_eq!(kept(&path("striped")), Some(plan()));
    let to = StripeConversionOptions { stripe, ..StripeConversionOptions::default() };
    convert_stripes(path("idx"), path("converted"), &to, &Silent).unwrap();
    copy(path("converted"), path("copied"), &CopyOptions::default(), &Silent).unwrap();
    assert_eq!((kept(&path("converted")), kept(&path("copied"))), (Some(plan()), Some(plan())));
    remove(path("copied"), &StoreOptions::default()).unwrap();
    assert!(!path("copied").exists());

    let store = MemoryStore::new("memory");
    build_in(&data, &store, "idx", &options, &Silent).unwrap();
    let stored = Manifest::load(store.open("idx").unwrap().as_ref()).unwrap();
    assert_eq!(stored.plan, Some(plan()));
}

#[test]
fn a_copy_in_another_layout_has_no_plan() {
    let dir = tempfile::tempdir().unwrap();
    let (padded, csr) = (dir.path().join("padded"), dir.path().join("csr"));
    let family = GraphOptions { max_degree: 8, search_list: 16, ..GraphOptions::default() };
    let family = GraphOptions { layout: GraphLayoutChoice::Padded, ..family };
    let options = BuildOptions { threads: 1, plan: Some(plan()), ..quick_build(family) };
    build(&vectors(Element::U8, 600, 16, 3), &padded, &options, &Silent).unwrap();
    convert_layout(&padded, &csr, GraphLayoutChoice::Csr, 1, &Silent).unwrap();
    assert_eq!((kept(&padded), kept(&csr)), (Some(plan()), None));
}

#[test]
fn damaged_and_impossible_plans_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("idx");
    let data = vectors(Element::F32, 300, 8, 3);
    let options =
        |plan| BuildOptions { threads: 1, plan: Some(plan), ..quick_build(ClusterOptions::default()) };
    for bad in [json!([1]), json!("plan"), json!({ "text": "x".repeat(MOST_PLAN_BYTES) })] {
        let refused = build(&data, &path, &options(bad), &Silent).unwrap_err().to_string();
        assert!(refused.contains("an object of up to"), "{refused}");
        assert!(!path.exists());
    }
    build(&data, &path, &options(plan()), &Silent).unwrap();
    let manifest = path.join(MANIFEST_NAME);
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("12.625"));
    fs::write(&manifest, text.replace("12.625", "12.626")).unwrap();
    let report = verify(&path, &Silent).unwrap();
    let fault = report.faults.concat();
    assert!(!report.sound && fault.contains(MANIFEST_NAME) && fault.contains("crc32c"), "{fault}");
}
