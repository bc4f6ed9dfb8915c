//! Copies in both directions, snapshots while others write, and errors for unreachable locations.

use crate::model::compare::holds;
use crate::server::batches::{after, batches, case, create, error_text, open, options, put};
use crate::server::service::service;
use bathyal_collection::{Collection, CollectionError, CompactOptions};
use bathyal_index::StoreOptions;
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_collection_is_copied_in_both_directions_while_it_is_written() {
    let Some(service) = service() else { return };
    let (place, copied) = (service.place("origin"), service.place("copy"));
    let origin = create(service, &place);
    (1..=6).for_each(|number| put(&origin, 0, number).unwrap());
    origin.flush().unwrap();
    put(&origin, 0, 7).unwrap();
    let reached = options(&copied, &service.endpoint);
    let ended = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 7;
            while !ended.load(Ordering::Relaxed) {
                number += 1;
                put(&origin, 0, number).unwrap();
                if number % 4 == 0 {
                    origin.flush().unwrap();
                }
            }
            number
        });
        let copy = origin.copy_to(copied.address("docs"), &reached.store, &Silent);
        ended.store(true, Ordering::Relaxed);
        copy.unwrap();
        writer.join().unwrap()
    });
    assert!(holds(&case(), &origin.snapshot()) == after(&[written]));
    let copy = open(&copied, &service.endpoint).unwrap();
    let content = holds(&case(), &copy.snapshot());
    let number = batches(&content, 0);
    assert!((7..=written).contains(&number) && content == after(&[number]), "{number} of {written}");
    let exists = origin.copy_to(copied.address("docs"), &reached.store, &Silent).unwrap_err();
    assert!(matches!(exists, CollectionError::Exists { .. }), "{exists}");

    // Copies it back to a folder, and to the server again; each copy is an independent collection.
    let folder = tempfile::tempdir().unwrap();
    let back = folder.path().join("back");
    copy.copy_to(&back, &StoreOptions::default(), &Silent).unwrap();
    put(&copy, 0, number + 1).unwrap();
    let back_collection = Collection::open(&back, &case().options()).unwrap();
    assert!(holds(&case(), &back_collection.snapshot()) == after(&[number]));
    assert_eq!(back_collection.verify(&Silent).unwrap(), Vec::<String>::new());
    let again = service.place("again");
    back_collection
        .copy_to(again.address("docs"), &options(&again, &service.endpoint).store, &Silent)
        .unwrap();
    assert!(holds(&case(), &open(&again, &service.endpoint).unwrap().snapshot()) == after(&[number]));
}

#[test]
fn a_snapshot_of_the_writer_stays_and_one_of_a_reader_gives_an_error() {
    let Some(service) = service() else { return };
    let place = service.place("snapshot");
    let writer = create(service, &place);
    (1..=3).for_each(|number| put(&writer, 0, number).unwrap());
    writer.flush().unwrap();
    let reader = open(&place, &service.endpoint).unwrap();
    let (mine, theirs) = (writer.snapshot(), reader.snapshot());
    (4..=6).for_each(|number| put(&writer, 0, number).unwrap());
    writer.compact(&CompactOptions { full: true }, &Silent).unwrap();
    put(&writer, 0, 7).unwrap();
    assert!(holds(&case(), &mine) == after(&[3]));
    drop(mine);
    writer.compact(&CompactOptions { full: true }, &Silent).unwrap();
    match crate::model::compare::read(&case(), &theirs) {
        Ok(content) => assert!(content == after(&[3])),
        Err(error) => assert!(error_text(service, &error).contains("docs"), "{error}"),
    }
    // The handle sees the new content after a refresh.
    reader.refresh().unwrap();
    assert_eq!(reader.count(None, Control::default()).unwrap(), after(&[7]).rows.len() as u64);
    assert!(holds(&case(), &reader.snapshot()) == after(&[7]));
}

#[test]
fn errors_of_unreachable_locations_contain_no_secret() {
    let Some(service) = service() else { return };
    let place = service.place("strangers");
    drop(create(service, &place));
    let hidden = "NotTheRight/Secret";
    let wrong = |pairs: &[(&str, &str)]| {
        let mut options = options(&place, &service.endpoint);
        options.store = place.options(&service.endpoint, pairs);
        options
    };
    for pairs in [
        vec![("secret_access_key", hidden)],
        vec![("session_token", hidden), ("access_key_id", "NOBODYSKEY")],
    ] {
        let options = wrong(&pairs);
        let address = place.address("docs");
        for error in [
            Collection::open(&address, &options).map(drop).unwrap_err(),
            Collection::create(place.address("new"), case().schema, &options).map(drop).unwrap_err(),
            open(&place, &service.endpoint)
                .unwrap()
                .copy_to(place.address("to"), &options.store, &Silent)
                .map(drop)
                .unwrap_err(),
        ] {
            let text = error_text(service, &error);
            assert!(text.contains("credentials") && text.contains("s3://"), "{text}");
            assert!(!format!("{text} {error:?}").contains(hidden), "{text}");
        }
    }
    let nobody = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let endpoint = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let text = error_text(service, &open(&place, &endpoint).map(drop).unwrap_err());
    assert!(text.contains(&place.address("docs")), "{text}");
}
