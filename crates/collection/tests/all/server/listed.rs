//! Listing of a bucket, with any names and after removals.

use crate::model::compare::holds;
use crate::server::batches::{after, case, create, options, put};
use crate::server::service::service;
use bathyal_collection::{Collection, listing};
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;

#[test]
fn a_collection_that_another_client_emptied_is_not_listed() {
    let Some(service) = service() else { return };
    let place = service.place("emptied");
    drop(create(service, &place));
    let options = options(&place, &service.endpoint);
    let names = |folder: &str| {
        let found = listing(place.address(folder).trim_end_matches('/'), &options.store).unwrap();
        found.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(names(""), ["docs"]);
    assert!(
        listing(place.address("docs"), &options.store).unwrap_err().to_string().contains("is a collection")
    );
    let raw = place.raw();
    for key in raw.list_key(&Key::parse(&place.folder).unwrap()) {
        raw.runtime.block_on(raw.store.delete(&key)).unwrap();
    }
    // SeaweedFS keeps and lists the folders.
    assert_eq!(names(""), [""; 0]);
    assert_eq!(names("docs"), [""; 0]);
    assert!(Collection::open(place.address("docs"), &options).is_err());
}

#[test]
fn a_collection_under_an_encoded_key_is_listed_opened_and_written_to() {
    let Some(service) = service() else { return };
    let place = service.place("older");
    let options = options(&place, &service.endpoint);
    let write = |address: String, number: u64| {
        let collection = Collection::open(address, &options).unwrap();
        put(&collection, 0, number).unwrap();
        collection.flush().unwrap();
        assert!(holds(&case(), &collection.snapshot()) == after(&[number]));
    };
    drop(Collection::create(place.address("caf%C3%A9/my%7Erows"), case().schema, &options).unwrap());
    write(place.address("café/my~rows"), 1);
    let names = |folder: &str| {
        let found = listing(place.address(folder), &options.store).unwrap();
        found.into_iter().map(|one| (one.name, one.path.display().to_string())).collect::<Vec<_>>()
    };
    let address = place.address("café/my~rows");
    assert_eq!(names("café"), [("my~rows".to_string(), address.clone())]);
    write(address, 2);
    assert_eq!(names("caf%C3%A9")[0].0, "my%7Erows");
    let keys = place.raw().list_key(&Key::parse(&place.folder).unwrap());
    assert!(
        keys.iter().all(|key| key.as_ref().contains("/caf%C3%A9/my%7Erows/")),
        "one collection: {keys:?}"
    );
}
