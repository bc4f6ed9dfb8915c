//! Tests of the disk of a cache: its budget, a restart, damage, a failing disk.

use super::disk::OwnDisk;
use super::files::{Files, SlotRecord, buffer};
use super::key::{BLOCK_BYTES, BlockKey, ObjectLocation};
use super::memory::Block;
use super::opened_disk::Disk;
use crate::connect::CachePolicy;
use std::path::Path;
use std::time::Duration;

fn key(number: u64) -> BlockKey {
    ObjectLocation::new("store", "object", 1 << 40).version("etag").block(number)
}

fn block(number: u64) -> Block {
    let len = if number.is_multiple_of(7) { 1000 + number as usize } else { BLOCK_BYTES as usize };
    (0..len).map(|i| (i as u64 * 31 + number) as u8).collect()
}

fn open(folder: &Path, bytes: u64, policy: CachePolicy) -> OwnDisk {
    match Disk::open(folder, bytes, u64::MAX, 64, policy).unwrap() {
        Disk::Own(disk) => disk,
        Disk::Other(_) => panic!("another disk uses the folder"),
    }
}

fn fill(disk: &OwnDisk, numbers: std::ops::Range<u64>) {
    for number in numbers {
        while !disk.try_write(key(number), &block(number)) {
            disk.wait();
        }
    }
    disk.wait();
}

fn disk_usage(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    folder.read_dir().unwrap().map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn a_full_disk_evicts_blocks_and_stays_within_its_budget() {
    for policy in [CachePolicy::S3Fifo, CachePolicy::SegmentedLru, CachePolicy::Lru] {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(folder.path(), 4 << 20, policy);
        for round in 0..10 {
            fill(&disk, round * 200..(round + 1) * 200);
            assert!(disk_usage(folder.path()) <= 4 << 20, "{policy:?}");
            for number in 0..(round + 1) * 200 {
                if let Some(found) = disk.read(key(number)) {
                    assert!(found == block(number), "{policy:?} {number}");
                }
            }
        }
        let found_count = (0..2000).filter(|number| disk.read(key(*number)).is_some()).count() as u64;
        assert_eq!(disk.bytes(), found_count * BLOCK_BYTES, "{policy:?}");
        assert!(found_count > 200, "{policy:?}: {found_count} blocks of 4 MiB");
        assert_eq!((disk.trouble(), disk.damaged()), (None, 0));
    }
}

#[test]
fn the_next_process_finds_the_blocks_and_a_smaller_budget_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let disk = open(folder.path(), 16 << 20, CachePolicy::S3Fifo);
    fill(&disk, 0..500);
    drop(disk);
    let disk = open(folder.path(), 16 << 20, CachePolicy::Lru);
    (0..500).for_each(|number| assert!(disk.read(key(number)) == Some(block(number)), "{number}"));
    drop(disk);
    let disk = open(folder.path(), 4 << 20, CachePolicy::S3Fifo);
    assert!(disk_usage(folder.path()) <= 4 << 20);
    let found_count = (0..500).filter(|number| disk.read(key(*number)) == Some(block(*number))).count();
    assert!((200..256).contains(&found_count), "{found_count}");
    let other = ObjectLocation::new("store", "object", 1 << 40).version("another").block(1);
    assert_eq!(disk.read(other), None);
}

#[test]
fn another_process_reads_what_the_first_one_writes() {
    let folder = tempfile::tempdir().unwrap();
    let own = open(folder.path(), 16 << 20, CachePolicy::S3Fifo);
    fill(&own, 0..100);
    let opened = Disk::open(folder.path(), 1 << 30, u64::MAX, 1, CachePolicy::Lru).unwrap();
    let Disk::Other(other) = &opened else { panic!("two disks write to a folder") };
    let read = |number: u64| other.read(key(number), &mut buffer());
    (0..100).for_each(|number| assert!(read(number) == Some(block(number)), "{number}"));
    // It writes nothing itself.
    assert!(opened.try_write(key(5000), &block(5000)) && opened.read(key(5000)).is_none());
    assert_eq!((opened.trouble(), opened.is_used(), opened.bytes()), (None, true, 100 * BLOCK_BYTES));
    fill(&own, 100..200);
    assert_eq!(read(150), None);
    // The time of a change of a file may be as coarse as a timer of the system.
    std::thread::sleep(Duration::from_millis(20));
    fill(&own, 200..300);
    other.reload_after(Duration::ZERO);
    (0..300).for_each(|number| assert!(read(number) == Some(block(number)), "{number}"));
    // Slots that are used again meanwhile are never taken for the blocks before.
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            for number in (0..20_000).map(|number| number % 3000) {
                other.reload_after(Duration::from_millis(1));
                assert!(read(number).is_none_or(|found| found == block(number)), "{number}");
            }
        });
        fill(&own, 300..3000);
        reading.join().unwrap();
    });
    // The next process writes once the first one has ended.
    drop(own);
    assert!(matches!(Disk::open(folder.path(), 16 << 20, u64::MAX, 1, CachePolicy::Lru), Ok(Disk::Own(_))));
    // Files that are emptied, or of another version, have no blocks.
    std::fs::write(folder.path().join("slots"), [0; 64]).unwrap();
    other.reload_after(Duration::ZERO);
    assert_eq!((read(1), other.len()), (None, 0));
}

#[test]
fn damaged_blocks_count_as_missing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = open(folder.path(), 4 << 20, CachePolicy::S3Fifo);
    fill(&disk, 0..100);
    drop(disk);
    for (name, step) in [("blocks", 40_000), ("slots", 500)] {
        let path = folder.path().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        (100..bytes.len()).step_by(step).for_each(|i| bytes[i] ^= 0x10);
        std::fs::write(&path, bytes).unwrap();
    }
    let disk = open(folder.path(), 4 << 20, CachePolicy::S3Fifo);
    let found: Vec<_> = (0..100).map(|number| (number, disk.read(key(number)))).collect();
    let found_count = found.iter().filter(|(_, found)| found.is_some()).count();
    assert!((30..80).contains(&found_count), "{found_count}");
    assert!(found.iter().all(|(number, found)| found.as_ref().is_none_or(|found| *found == block(*number))));
    disk.wait();
    assert!(disk.damaged() > 10);
    fill(&disk, 0..100);
    (0..100).for_each(|number| assert!(disk.read(key(number)) == Some(block(number)), "{number}"));
    // A header of zeros, and one that is too short.
    drop(disk);
    for head in [&[0; 64][..], &[1; 3]] {
        std::fs::write(folder.path().join("slots"), head).unwrap();
        let disk = open(folder.path(), 4 << 20, CachePolicy::S3Fifo);
        assert_eq!(disk.bytes(), 0);
        fill(&disk, 0..10);
        assert!(disk.read(key(3)).is_some());
    }
}

#[test]
fn a_disk_that_fails_is_no_longer_used() {
    let folder = tempfile::tempdir().unwrap();
    let (files, _) = Files::open(folder.path(), 4 << 20, 100).unwrap();
    files.write(3, &block(3), SlotRecord { hash: 0, len: 1, checksum: 0 }, &mut buffer()).unwrap();
    let disk = OwnDisk::new(files.read_only(), Vec::new(), 8, CachePolicy::S3Fifo).unwrap();
    fill(&disk, 0..3);
    assert!(disk.trouble().is_some_and(|why| why.contains("cannot write")), "{:?}", disk.trouble());
    assert!(disk.read(key(1)).is_none());
    assert!(disk.try_write(key(5), &block(5)) && !disk.is_used());
    // A path that is a file and not a folder.
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert!(Disk::open(&file, 4 << 20, 100, 8, CachePolicy::S3Fifo).is_err());
}
