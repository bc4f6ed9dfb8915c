//! Every store passes the suite.

use bathyal_store::conformance::check;
use bathyal_store::disk::SystemDisk;
use bathyal_store::faulty::{Faults, Platter};
use bathyal_store::local::LocalStore;
use bathyal_store::memory::MemoryStore;
use std::sync::Arc;

const MARK: &str = "manifest";

#[test]
fn a_local_folder() {
    let folder = tempfile::tempdir().unwrap();
    check(&LocalStore::new(folder.path().join("new/folder"), MARK), MARK);
    assert_eq!(folder.path().join("new/folder").read_dir().unwrap().count(), 0, "nothing is left over");
}

#[test]
fn a_local_folder_without_exchange_and_with_short_writes() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Faults::new(Arc::new(SystemDisk)).without_exchange().with_short_writes();
    check(&LocalStore::on(Arc::new(disk), folder.path(), MARK), MARK);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing is left over");
}

#[test]
fn memory() {
    check(&MemoryStore::new("memory"), MARK);
}

#[test]
fn a_disk_in_memory() {
    for without_exchange in [false, true] {
        let platter = Platter::default();
        let mut disk = Faults::new(Arc::new(platter.clone()));
        if without_exchange {
            disk = disk.without_exchange().with_short_writes();
        }
        check(&LocalStore::on(Arc::new(disk), "/folder", MARK), MARK);
        assert_eq!(platter.paths(), ["/folder"], "nothing is left over");
    }
}
