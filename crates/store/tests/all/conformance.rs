//! Runs the conformance suite on every store of this crate.

use bathyal_store::conformance::check;
use bathyal_store::disk::{Disk, SystemDisk};
use bathyal_store::faulty::{Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_store::memory::MemoryStore;
use bathyal_store::stripe::Striping;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MARK: &str = "manifest";

#[test]
fn a_local_folder_conforms() {
    let folder = tempfile::tempdir().unwrap();
    check(&LocalStore::new(folder.path().join("new/folder"), MARK), MARK);
    assert_eq!(folder.path().join("new/folder").read_dir().unwrap().count(), 0, "nothing is left over");
}

#[test]
fn a_local_folder_without_exchange_and_with_short_writes_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Faults::new(Arc::new(SystemDisk)).without_exchange().with_short_writes();
    check(&LocalStore::on_disk(Arc::new(disk), folder.path(), MARK), MARK);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing is left over");
}

#[test]
fn the_store_in_memory_conforms() {
    check(&MemoryStore::new("memory"), MARK);
}

#[test]
fn a_local_store_on_a_disk_in_memory_conforms() {
    for without_exchange in [false, true] {
        let simulated = SimulatedDisk::default();
        let mut disk = Faults::new(Arc::new(simulated.clone()));
        if without_exchange {
            disk = disk.without_exchange().with_short_writes();
        }
        check(&LocalStore::on_disk(Arc::new(disk), "/folder", MARK), MARK);
        assert_eq!(simulated.paths(), ["/folder"], "nothing is left over");
    }
}

/// Stripes all objects of the suite but the mark, which is replaced and so cannot be striped. The units are
/// small, so that 100,000 bytes fill several.
fn striping(folders: &[PathBuf]) -> Striping {
    Striping::new(folders, 8192, &["data", "empty", "gone", "stray", "journal"]).unwrap()
}

#[test]
fn a_local_folder_striped_over_three_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let parts = ["a", "b", "c"].map(|name| folder.path().join(name));
    parts.iter().for_each(|part| std::fs::create_dir(part).unwrap());
    let disk = Faults::new(Arc::new(SystemDisk)).with_short_writes();
    let store = LocalStore::on_disk(Arc::new(disk), folder.path().join("indexes"), MARK);
    check(&store.striped(striping(&parts)), MARK);
    for part in parts.iter().chain([&folder.path().join("indexes")]) {
        assert_eq!(part.read_dir().unwrap().count(), 0, "nothing is left over in {}", part.display());
    }
}

#[test]
fn a_striped_store_on_a_disk_in_memory_conforms() {
    for without_exchange in [false, true] {
        let simulated = SimulatedDisk::default();
        ["/a", "/b"].iter().for_each(|part| simulated.create_folder(Path::new(part)).unwrap());
        let mut disk = Faults::new(Arc::new(simulated.clone()));
        if without_exchange {
            disk = disk.without_exchange();
        }
        let store = LocalStore::on_disk(Arc::new(disk), "/folder", MARK);
        check(&store.striped(striping(&["/a", "/b"].map(PathBuf::from))), MARK);
        assert_eq!(simulated.paths(), ["/a", "/b", "/folder"], "nothing is left over");
    }
}
