//! Parts of striped indexes that are built, converted, moved, replaced, copied and deleted.

use crate::clustered::vectors;
use crate::stripes::disks::{Disks, UNIT, answers, faults};
use bathyal_index::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_index::{
    BuildOptions, IndexError, OpenOptions, StripeConversionOptions, StripeOptions, TierChoice, build,
    convert_stripes, inspect, verify_in,
};
use bathyal_index::{StoreOptions, find};
use bathyal_kernels::Element;
use bathyal_store::Store;
use bathyal_store::local::LocalStore;
use bathyal_vectors::progress::Silent;
use std::fs;
use std::path::Path;

/// Returns the number of files on each disk.
fn counts(disks: &Disks) -> [usize; 4] {
    ["a", "b", "c", "d"].map(|disk| disks.files(disk).len())
}

#[test]
fn parts_are_removed_with_their_index() {
    let disks = Disks::new();
    let index = disks.build("index", 1, &["a", "b"]);
    let one = answers(&index, &[]).unwrap();
    // Each disk has a part of the vectors and one of the codes.
    assert_eq!(counts(&disks), [2, 2, 0, 0]);
    disks.build("other", 2, &["a", "b"]);
    assert_eq!(counts(&disks), [4, 4, 0, 0], "side by side");
    assert_eq!(answers(&index, &[]).unwrap(), one);
    disks.build("index", 2, &["b", "c", "d"]);
    assert_eq!(counts(&disks), [2, 4, 2, 2], "striped by striped");
    disks.build("index", 1, &[]);
    assert_eq!(counts(&disks), [2, 2, 0, 0], "striped by one that is not");
    assert_eq!(answers(&index, &[]).unwrap(), one);
    disks.build("index", 1, &["c", "d"]);
    assert_eq!(counts(&disks), [2, 2, 2, 2], "and back");
    assert_eq!((answers(&index, &[]).unwrap(), faults(&index)), (one, vec![]));
    let (store, name) = LocalStore::holding(&index, MANIFEST_NAME).unwrap();
    store.delete(&name).unwrap();
    assert_eq!(counts(&disks), [2, 2, 0, 0], "deleted");
}

#[test]
fn the_manifest_describes_the_parts() {
    let disks = Disks::new();
    let (whole, striped) = (disks.build("whole", 1, &[]), disks.build("striped", 1, &["a", "b", "c"]));
    let (plain, manifest) = (Manifest::read(&whole).unwrap(), Manifest::read(&striped).unwrap());
    assert_eq!((plain.format_version, manifest.format_version), (2, 4));
    assert!(!plain.is_striped() && manifest.is_striped());
    let entry = manifest.paged_file();
    let stripe = entry.stripe.as_ref().unwrap();
    assert_eq!((stripe.stripe_bytes, stripe.parts.len()), (UNIT, 3));
    assert_eq!((entry.bytes, entry.crc32c), (plain.paged_file().bytes, plain.paged_file().crc32c));
    for (disk, part) in ["a", "b", "c"].iter().zip(&stripe.parts) {
        let bytes = fs::read(disks.part(disk)).unwrap();
        let content = &bytes[4096..];
        assert_eq!((content.len() as u64, crc32c::crc32c(content)), (part.bytes, part.crc32c));
    }
    let report = inspect(&striped, &Silent).unwrap();
    let paths: Vec<&str> = report.parts.iter().map(|part| part.path.as_str()).collect();
    assert_eq!(report.parts.len(), 6, "{paths:?}");
    assert_eq!(paths[1], disks.part("b").to_str().unwrap());
    assert!(!report.index_bytes.eq(&0) && inspect(&whole, &Silent).unwrap().parts.is_empty());
    // A program that does not support stripes refuses this version.
    let text = fs::read_to_string(striped.join(MANIFEST_NAME)).unwrap();
    assert!(text.contains("\"format_version\": 4"));
}

#[test]
fn moved_parts_are_found_in_the_given_folders() {
    let disks = Disks::new();
    let index = disks.build("index", 1, &["a", "b"]);
    let sound = answers(&index, &[]).unwrap();
    for path in disks.files("a") {
        fs::rename(&path, disks.path("c").join(path.file_name().unwrap())).unwrap();
    }
    assert!(answers(&index, &[]).is_err());
    // The folders of all moved parts are given. The files may have other names.
    assert_eq!(answers(&index, &[disks.path("c")]).unwrap(), sound);
    for (number, path) in disks.files("b").into_iter().enumerate() {
        fs::rename(&path, disks.path("d").join(format!("renamed {number}"))).unwrap();
    }
    let moved = ["d", "c"].map(|disk| disks.path(disk));
    assert_eq!(answers(&index, &moved).unwrap(), sound);
    assert!(
        verify_in(find(&index, &moved, &StoreOptions::default()).unwrap().as_ref(), &Silent).unwrap().sound
    );
    let error = answers(&index, &[disks.path("c")]).unwrap_err().to_string();
    assert!(error.contains("is neither there nor in"), "{error}");
    let error = answers(&index, &[disks.path("nowhere")]).unwrap_err().to_string();
    assert!(error.contains("nowhere: there is no such folder"), "{error}");
    let whole = disks.build("whole", 1, &[]);
    let error = answers(&whole, &moved).unwrap_err().to_string();
    assert!(error.contains("is not striped"), "{error}");
    // A conversion reads the moved parts and makes an index that is not striped.
    let options = StripeConversionOptions { stripe: None, from: moved.to_vec(), overwrite: true };
    convert_stripes(&index, &index, &options, &Silent).unwrap();
    assert_eq!(answers(&index, &[]).unwrap(), sound);
}

#[test]
fn conversions_between_stripes_keep_the_index() {
    let disks = Disks::new();
    let whole = disks.build("whole", 1, &[]);
    let (sound, path) = (answers(&whole, &[]).unwrap(), disks.path("copy"));
    let mut before = 1;
    for (names, parts) in [(&["a", "b"][..], 2), (&["b", "c", "d"], 3), (&["a", "b"], 2), (&[], 1)] {
        let stripe = (!names.is_empty()).then(|| disks.stripe(names));
        let options = StripeConversionOptions { stripe, overwrite: true, ..Default::default() };
        let source = if path.exists() { &path } else { &whole };
        let made = convert_stripes(source, &path, &options, &Silent).unwrap();
        assert_eq!((made.parts_before, made.parts, made.vectors), (before, parts, 600));
        assert_eq!((answers(&path, &[]).unwrap(), faults(&path)), (sound.clone(), vec![]));
        before = parts;
    }
    assert_eq!(counts(&disks), [0; 4]);
    for name in
        Manifest::read(&whole).unwrap().files.iter().map(|file| file.name.as_str()).chain([MANIFEST_NAME])
    {
        assert_eq!(fs::read(whole.join(name)).unwrap(), fs::read(path.join(name)).unwrap(), "{name}");
    }
    let error = convert_stripes(&whole, &path, &StripeConversionOptions::default(), &Silent).unwrap_err();
    assert!(matches!(error, IndexError::Exists { .. }), "{error}");
    let file = whole.join(&Manifest::read(&whole).unwrap().paged_file().name);
    let mut bytes = fs::read(&file).unwrap();
    bytes[99] ^= 1;
    fs::write(&file, bytes).unwrap();
    let options = StripeConversionOptions { overwrite: true, ..Default::default() };
    let error = convert_stripes(&whole, &path, &options, &Silent).unwrap_err();
    assert!(matches!(error, IndexError::Damaged { .. }), "{error}");
    assert_eq!(answers(&path, &[]).unwrap(), sound, "the old index stays");
}

#[test]
fn a_copy_of_the_folder_does_not_own_the_parts() {
    let disks = Disks::new();
    let index = disks.build("index", 1, &["a", "b"]);
    let sound = answers(&index, &[]).unwrap();
    let copy = disks.path("copy");
    fs::create_dir(&copy).unwrap();
    for entry in index.read_dir().unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(answers(&copy, &[]).unwrap(), sound, "it can be read");
    disks.build("copy", 2, &[]);
    assert_eq!(answers(&index, &[]).unwrap(), sound, "a replaced copy does not remove the parts");
    // A renamed index owns its parts.
    fs::rename(&index, disks.path("renamed")).unwrap();
    disks.build("renamed", 2, &[]);
    assert_eq!(counts(&disks), [0; 4]);
}

#[test]
fn folders_that_cannot_hold_a_stripe_are_refused_before_any_work() {
    let disks = Disks::new();
    let data = vectors(Element::U8, 300, 32, 1);
    let (file, index) = (disks.path("file"), disks.path("index"));
    fs::write(&file, b"mine").unwrap();
    let refused = |stripe: StripeOptions, target: &Path| {
        let options = BuildOptions { stripe: Some(stripe), overwrite: true, ..BuildOptions::default() };
        build(&data, target, &options, &Silent).unwrap_err().to_string()
    };
    let over = |names: &[&str]| disks.stripe(names);
    std::os::unix::fs::symlink(disks.path("a"), disks.path("link")).unwrap();
    for (stripe, words) in [
        (over(&["a"]), "one folder is given"),
        (over(&["a", "a"]), "is named twice"),
        (over(&["a", "link"]), "are the same folder"),
        (over(&["a", "file"]), "is not a folder"),
        (over(&["a", "nowhere"]), "there is no such folder; mount its disk, or create the folder"),
        (StripeOptions { stripe_bytes: 1000, ..over(&["a", "b"]) }, "a multiple of 4096"),
    ] {
        let error = refused(stripe, &index);
        assert!(error.contains(words), "{words}: {error}");
    }
    disks.build("index", 1, &[]);
    fs::create_dir(index.join("within")).unwrap();
    let within = StripeOptions::over([disks.path("a"), index.join("within")]);
    assert!(refused(within, &index).contains("which is removed when it is replaced"));
    assert_eq!(counts(&disks), [0; 4]);
    let options = OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
    assert!(bathyal_index::Index::open(&index, &options).is_ok(), "the old index is there");
}
