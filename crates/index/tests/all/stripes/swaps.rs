//! Parts that are missing, exchanged, damaged, or of another index.

use crate::clustered::vectors;
use crate::stripes::disks::{Disks, answers, faults};
use bathyal_index::open::WrapTier;
use bathyal_index::{Index, IndexError, OpenOptions, SearchOptions};
use bathyal_kernels::Element;
use bathyal_store::StoreError;
use bathyal_tier::backend::sim::{FaultRates, SimOptions, SimTier};
use bathyal_tier::{Control, Tier};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Checks that the index cannot be opened, with a message that names `path` and contains all of `words`.
#[track_caller]
fn check_refused(index: &Path, path: &Path, words: &[&str]) {
    let error = answers(index, &[]).expect_err("is refused");
    let kind = matches!(
        error,
        IndexError::Store(StoreError::Part { .. } | StoreError::PartMissing { .. })
            | IndexError::Damaged { .. }
    );
    let text = error.to_string();
    assert!(kind && text.contains(path.to_str().unwrap()), "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
}

#[test]
fn missing_parts_are_named_with_their_disk() {
    let disks = Disks::new();
    let index = disks.build("index", 1, &["a", "b", "c"]);
    let (sound, part) = (answers(&index, &[]).unwrap(), disks.part("b"));
    fs::rename(&part, disks.path("aside")).unwrap();
    let folder = disks.path("b");
    check_refused(&index, &part, &["part 2 of 3 of vectors.bin", folder.to_str().unwrap(), "--stripe"]);
    assert!(faults(&index)[0].contains("part 2 of 3"), "{:?}", faults(&index));
    fs::rename(disks.path("aside"), &part).unwrap();
    fs::rename(disks.path("b"), disks.path("unmounted")).unwrap();
    check_refused(&index, &part, &["not mounted", folder.to_str().unwrap()]);
    fs::rename(disks.path("unmounted"), disks.path("b")).unwrap();
    fs::remove_file(&part).unwrap();
    fs::create_dir(&part).unwrap();
    check_refused(&index, &part, &["folder"]);
    fs::remove_dir(&part).unwrap();
    assert_ne!(sound.len(), 0);
}

#[test]
fn exchanged_disks_are_named() {
    let disks = Disks::new();
    let index = disks.build("index", 1, &["a", "b"]);
    let (sound, part) = (answers(&index, &[]).unwrap(), disks.part("a"));
    fs::rename(disks.path("a"), disks.path("x")).unwrap();
    fs::rename(disks.path("b"), disks.path("a")).unwrap();
    fs::rename(disks.path("x"), disks.path("b")).unwrap();
    check_refused(&index, &part, &["the disks were exchanged", disks.path("b").to_str().unwrap()]);
    for order in [["a", "b"], ["b", "a"]] {
        let moved = order.map(|name| disks.path(name));
        assert_eq!(answers(&index, &moved).unwrap(), sound, "found in any order");
    }
}

#[test]
fn exchanged_parts_are_named() {
    let disks = Disks::new();
    let index = disks.build("index", 1, &["a", "b"]);
    let (first, second) = (disks.part("a"), disks.part("b"));
    let (one, two) = (fs::read(&first).unwrap(), fs::read(&second).unwrap());
    fs::write(&first, &two).unwrap();
    fs::write(&second, &one).unwrap();
    check_refused(&index, &first, &["is part 2 where part 1 belongs"]);
    assert!(faults(&index)[0].contains("is part 2 where part 1 belongs"));
}

#[test]
fn parts_of_other_indexes_are_named() {
    let disks = Disks::new();
    let index = disks.build("index", 1, &["a", "b"]);
    let part = disks.part("a");
    let own = fs::read(&part).unwrap();
    // Parts of an index of other data, of the same build once more, and of the build before.
    let other = disks.build("other", 2, &["c", "d"]);
    let of_other = fs::read(disks.part("c")).unwrap();
    disks.build("other", 1, &["c", "d"]);
    let of_again = fs::read(disks.part("c")).unwrap();
    for foreign in [&of_other, &of_again] {
        fs::write(&part, foreign).unwrap();
        check_refused(&index, &part, &["another index or of another build"]);
        assert!(faults(&index)[0].contains("another build"));
    }
    fs::write(&part, &own).unwrap();
    disks.build("index", 1, &["a", "b"]);
    let newer = disks.part("a");
    assert_ne!(newer, part, "no two builds have parts of one name");
    fs::write(&newer, &own).unwrap();
    check_refused(&index, &newer, &["another index or of another build"]);

    // A part of another object of the same index.
    let codes =
        disks.files("b").into_iter().find(|path| path.to_string_lossy().contains("codes.bin")).unwrap();
    fs::copy(codes, &newer).unwrap();
    check_refused(&index, &newer, &["is a part of codes.bin, not of vectors.bin"]);
    drop(other);
}

#[test]
fn a_disk_that_fails_during_a_search_is_named() {
    let disks = Disks::new();
    let index = disks.build("index", 1, &["a", "b"]);
    let rates = FaultRates { error: 1.0, ..FaultRates::NONE };
    let wrap: WrapTier = Arc::new(move |tier| {
        Ok(Arc::new(SimTier::over(tier, SimOptions { rates, ..SimOptions::default() })) as Arc<dyn Tier>)
    });
    let options = OpenOptions { wrap: Some(wrap), ..OpenOptions::default() };
    let open = Index::open(&index, &options).unwrap();
    let queries = vectors(Element::U8, 1, 32, 9);
    let error = open.search(&queries, &SearchOptions::default(), Control::default()).unwrap_err();
    let parts = [disks.part("a"), disks.part("b")];
    assert!(matches!(&error, IndexError::Read { file, .. } if parts.contains(file)), "{error}");
}

#[test]
fn a_table_of_another_index_is_refused() {
    let disks = Disks::new();
    let (index, other) = (disks.build("index", 1, &["a", "b"]), disks.build("other", 2, &["a", "b"]));
    let table = |path: &Path| path.join("stripe.json");
    let own = fs::read(table(&index)).unwrap();
    fs::copy(table(&other), table(&index)).unwrap();
    let error = answers(&index, &[]).unwrap_err().to_string();
    assert!(error.contains("stripe.json is that of another index or build"), "{error}");
    fs::write(table(&index), &own[..own.len() - 3]).unwrap();
    let error = answers(&index, &[]).unwrap_err().to_string();
    assert!(error.contains("stripe.json") && error.contains("is damaged"), "{error}");
    fs::remove_file(table(&index)).unwrap();
    let error = answers(&index, &[]).unwrap_err().to_string();
    assert!(error.contains("vectors.bin: there is no such file"), "{error}");
}

#[test]
fn parts_that_are_cut_changed_or_overwritten_are_named() {
    let disks = Disks::new();
    let index = disks.build("index", 1, &["a", "b"]);
    let part = disks.part("b");
    let own = fs::read(&part).unwrap();
    for (bytes, words) in [
        (own[..own.len() - 1].to_vec(), &["it was cut"][..]),
        (own[..100].to_vec(), &["is no part of a striped index"]),
        (Vec::new(), &["is no part of a striped index"]),
        ([&own[..], b"more"].concat(), &["something was appended to it"]),
        (vec![7; own.len()], &["is no part of a striped index"]),
        ([&own[..17], &[own[17] ^ 1], &own[18..]].concat(), &["its header is damaged"]),
    ] {
        fs::write(&part, bytes).unwrap();
        check_refused(&index, &part, words);
    }
    // Damage behind the header is found by the checksums of pages. `verify` names the part.
    let mut changed = own.clone();
    changed[4096 + 50] ^= 1;
    fs::write(&part, &changed).unwrap();
    let found = faults(&index);
    assert!(found[0].contains(part.to_str().unwrap()), "{found:?}");
    assert!(found[1..].iter().all(|fault| !fault.contains("this part has")), "{found:?}");
    fs::write(&part, &own).unwrap();
    assert_eq!(faults(&index), [""; 0]);
}
