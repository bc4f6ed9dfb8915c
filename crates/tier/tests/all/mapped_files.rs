//! Tests of files that are mapped as they are: changes by several mappings, truncation, and refusals.

use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::mapped::{LoadSource, MappedFile, MappedOptions, MappedPlace, MappedTier};
use bathyal_tier::conformance::{Capabilities, check};
use bathyal_tier::{Action, FaultKind, Operation, ReadFault, Tier, TierError, WriteTier};
use bathyal_tier::{complete_operations, complete_reads};
use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes a folder in memory if the system has such a file system, else on disk.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn file(folder: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("bytes");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Runs the conformance suite on files in `folder`, mapped with the options of `map`.
fn conforms(folder: &tempfile::TempDir, map: fn(MappedFile) -> MappedFile) {
    let made = Cell::new(0);
    let make = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        // An empty file cannot be mapped.
        if bytes.is_empty() {
            return Arc::new(DramTier::writable_copy(&bytes));
        }
        made.set(made.get() + 1);
        let path = folder.path().join(made.get().to_string());
        std::fs::write(&path, bytes).unwrap();
        Arc::new(map(MappedFile::at(path)).map().unwrap())
    };
    check(&make, Capabilities::default()).unwrap();
}

#[test]
fn writable_files_conform() {
    conforms(&folder(), MappedFile::for_writing);
    conforms(&tempfile::tempdir().unwrap(), MappedFile::for_writing);
}

#[test]
fn files_mapped_for_reading_conform() {
    conforms(&folder(), |file| file);
}

/// Carries one operation out and returns its result.
fn act(tier: &dyn WriteTier, offset: u64, action: Action) -> Result<u32, ReadFault> {
    let mut queue = tier.open_write(1).unwrap();
    let operation = Operation { id: 7, offset, action, linked: false };
    // SAFETY: the memory of the action is valid until its completion.
    unsafe { complete_operations(queue.as_mut(), &[operation]) }.unwrap()[0].result
}

#[test]
fn several_mappings_of_a_file_see_each_others_changes() {
    let folder = folder();
    let path = file(&folder, &[0; 10_000]);
    let map = || MappedFile::at(&path).for_writing().map().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let tier = map();
                for _ in 0..1000 {
                    let mut old = 0;
                    let add = Action::FetchAndAdd { by: 3, old: &raw mut old };
                    assert_eq!(act(&tier, 4096, add), Ok(8));
                }
            });
        }
    });
    let text = b"beyond a word";
    let write = Action::Write { from: text.as_ptr(), len: text.len() as u32 };
    assert_eq!(act(&map(), 9987, write), Ok(13));
    // A mapping for reading and the file have the changes, too.
    let reader = MappedFile::at(&path).map().unwrap();
    let (mut queue, mut found) = (reader.open(1).unwrap(), [0; 10_000]);
    let read = bathyal_tier::Read { id: 1, offset: 0, len: 10_000, buffer: found.as_mut_ptr(), round: 0 };
    // SAFETY: the buffer is valid until the completion.
    let done = unsafe { complete_reads(queue.as_mut(), &[read]) }.unwrap();
    assert_eq!(done[0].result, Ok(10_000));
    assert_eq!(u64::from_le_bytes(found[4096..4104].try_into().unwrap()), 9000);
    assert_eq!(&found[9987..], text);
    assert_eq!(std::fs::read(&path).unwrap(), found);
}

#[test]
fn files_are_mapped_for_reading_by_default() {
    let folder = folder();
    let tier = MappedFile::at(file(&folder, &[1; 100])).map().unwrap();
    assert!(tier.writable().is_none() && !tier.profile().addressable);
    let refused = tier.open_write(1).err().unwrap().to_string();
    assert!(refused.contains("for reading only"), "{refused}");
    let part = MappedFile { len: Some(60), ..MappedFile::at(file(&folder, &[1; 100])) };
    assert_eq!(part.map().unwrap().len(), 60);
}

#[test]
fn operations_on_a_truncated_file_fail() {
    let folder = folder();
    // The offset is in the last page that is left, beyond it, or the file is empty.
    for left in [9000, 4096, 0] {
        let path = file(&folder, &[1; 10_000]);
        let tier = MappedFile::at(&path).for_writing().map().unwrap();
        let mut old = 0;
        assert_eq!(act(&tier, 9992, Action::FetchAndAdd { by: 1, old: &raw mut old }), Ok(8));
        File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
        let gone = Err(ReadFault::of(FaultKind::Gone));
        assert_eq!(
            act(&tier, 9992, Action::FetchAndAdd { by: 1, old: &raw mut old }),
            gone,
            "{left} bytes left"
        );
        assert_eq!(act(&tier, 0, Action::Write { from: [2].as_ptr(), len: 1 }), gone);
    }
}

#[test]
fn files_that_cannot_be_mapped_are_refused() {
    let folder = folder();
    let refused = |file: MappedFile| file.map().err().unwrap().to_string();
    let missing = refused(MappedFile::at(folder.path().join("none")).for_writing());
    assert!(missing.contains("cannot open for writing") && missing.contains("none"), "{missing}");
    let empty = refused(MappedFile::at(file(&folder, &[])));
    assert!(empty.contains("the file is empty"), "{empty}");
    let short = refused(MappedFile { len: Some(101), ..MappedFile::at(file(&folder, &[0; 100])) });
    assert!(short.contains("101 bytes are to be mapped, but there are only 100"), "{short}");
    assert!(refused(MappedFile::at(folder.path())).contains("neither a file"));
    assert!(refused(MappedFile::at("/dev/null").for_writing()).contains("only DAX devices"));
    assert!(refused(MappedFile::at("/dev/dax77.0")).contains("no such device"));
    // Other processes may search an index that was loaded to a place, so it must not change.
    let original = file(&folder, &[5; 9000]);
    let (place, crc32c) = (folder.path().join("region"), crc32c::crc32c(&[5; 9000]));
    let source = LoadSource { path: &original, len: 9000, crc32c };
    drop(MappedTier::load(&MappedOptions::at(MappedPlace::Path(place.clone())), &source, &|_| true).unwrap());
    assert!(refused(MappedFile::at(&place).for_writing()).contains("holds an index"));
    assert!(MappedFile::at(&place).map().is_ok());
    let loading = File::open(&place).unwrap();
    loading.lock().unwrap();
    assert!(refused(MappedFile::at(&place)).contains("being loaded"));
    let path = file(&folder, &[0; 100]);
    let mut rights = std::fs::metadata(&path).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(&path, rights).unwrap();
    // Privileged users may write to any file.
    if File::options().write(true).open(&path).is_err() {
        let denied = MappedFile::at(&path).for_writing().map().err().unwrap();
        assert!(matches!(denied, TierError::Io { operation: "open for writing", .. }), "{denied}");
    }
    assert_eq!(MappedFile::at(&path).map().unwrap().len(), 100);
}
