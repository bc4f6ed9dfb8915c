//! Tests of the cache in front of a store: budgets, contents, shared requests, restarts, damage, versions.

use bathyal_object::{BucketStore, CacheStatus, ObjectUrl, Shaper, Shaping, StoreOptions};
use bathyal_store::{
    COUNTED_ROUNDS, CacheUse, DraftExt, Generation, GenerationExt, Replace, Requests, Store,
};
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::layer::cache::{CacheOptions, CacheTier};
use bathyal_tier::{Queue, Read, Tier, complete_reads};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;

const MARK: &str = "manifest";
const BLOCK: u64 = 16 << 10;
const MIB: u64 = 1 << 20;

/// The folders and the name of a test's index.
struct Place {
    folder: tempfile::TempDir,
    name: String,
}

impl Place {
    fn new(name: &str) -> Place {
        Place { folder: tempfile::tempdir().unwrap(), name: format!("memory://cache-{name}/x") }
    }

    fn cache(&self) -> std::path::PathBuf {
        self.folder.path().join("cache")
    }

    /// Opens the store with a cache of these options; without a cache if there are none.
    fn store(&self, cache: &[(&str, &str)], shaper: Option<Shaper>) -> BucketStore {
        let scratch = self.folder.path().join("scratch");
        let mut pairs = vec![("scratch", scratch.to_str().unwrap())];
        pairs.extend(cache);
        let mut options = StoreOptions::new(pairs).unwrap();
        options.shaper = shaper.map(Arc::new);
        BucketStore::new(&ObjectUrl::parse(Path::new(&self.name)).unwrap(), &options, MARK).unwrap()
    }

    /// Opens the store with a cache on disk.
    fn on_disk(&self, memory: &str, disk: &str) -> BucketStore {
        let cache = self.cache();
        self.store(
            &[("cache", cache.to_str().unwrap()), ("cache_memory", memory), ("cache_disk", disk)],
            None,
        )
    }

    /// Opens the store with a cache on disk, once the previous cache has closed its files.
    fn on_disk_again(&self, memory: &str, disk: &str) -> BucketStore {
        let mut store = self.on_disk(memory, disk);
        while status(&store).trouble.is_some() {
            end(store);
            store = self.on_disk(memory, disk);
        }
        store
    }

    /// Returns the bytes that the cache's files take on disk.
    fn disk_usage(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let files = self.cache().read_dir().unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
    }
}

fn content(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|i| ((i ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn publish(store: &BucketStore, bytes: &[u8], replace: Replace) {
    let draft = store.begin("index", replace).unwrap();
    draft.put("pages.bin", bytes).unwrap();
    draft.put(MARK, b"mark").unwrap();
    draft.publish(&["pages.bin", MARK], "").unwrap();
}

fn now(found: &Arc<dyn Generation>) -> Requests {
    found.traffic().unwrap().now()
}

fn pages(found: &Arc<dyn Generation>) -> CacheUse {
    found.traffic().unwrap().cache_use()["pages"]
}

fn status(store: &BucketStore) -> CacheStatus {
    store.cache().unwrap().status()
}

fn queue(found: &Arc<dyn Generation>) -> Box<dyn Queue> {
    found.get("pages.bin").unwrap().tier(FileOptions::default()).unwrap().open(64).unwrap()
}

/// Reads ranges through a queue, and compares them with the expected bytes.
fn check(queue: &mut dyn Queue, ranges: &[(u64, u32)], truth: &[u8]) {
    check_in(queue, ranges, truth, |_| 0);
}

/// Reads ranges as `check` does, each in the round that `round` returns for its number.
fn check_in(queue: &mut dyn Queue, ranges: &[(u64, u32)], truth: &[u8], round: impl Fn(usize) -> u32) {
    let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|(_, len)| vec![0; *len as usize]).collect();
    let read = |(i, buffer): (usize, &mut Vec<u8>)| Read {
        id: i as u64,
        offset: ranges[i].0,
        len: ranges[i].1,
        buffer: buffer.as_mut_ptr(),
        round: round(i),
    };
    let reads: Vec<Read> = buffers.iter_mut().enumerate().map(read).collect();
    // SAFETY: the buffers live until all reads have completed.
    for completion in unsafe { complete_reads(queue, &reads) }.unwrap() {
        let (from, len) = ranges[completion.id as usize];
        let expected = &truth[from as usize..(from as usize + len as usize).min(truth.len())];
        let read = completion.result.unwrap() as usize;
        assert!(buffers[completion.id as usize][..read] == *expected, "{len} bytes at {from}");
    }
}

#[test]
fn cached_blocks_are_not_requested_again() {
    let place = Place::new("again");
    let truth = content(3 * MIB + 100, 1);
    publish(&place.store(&[], None), &truth, Replace::Never);
    let store = place.store(&[("cache_memory", "16MiB")], None);
    let found = store.open("index").unwrap();
    let mut queue = queue(&found);
    let opened = now(&found);
    check(queue.as_mut(), &[(100, 50), (BLOCK - 10, 20), (2 * MIB, 4096), (3 * MIB + 50, 500)], &truth);
    let first = now(&found).since(&opened);
    assert_eq!(
        (first.requests, first.received_bytes),
        (3, 3 * BLOCK + 100),
        "whole blocks, and near ones in one request"
    );
    assert_eq!((pages(&found).misses, pages(&found).hits), (5, 0), "two reads look up the first block");
    assert_eq!(found.traffic().unwrap().cache_rounds(), [], "the reads have no round");
    check(queue.as_mut(), &[(0, 2 * BLOCK as u32), (2 * MIB + 4096, 4096), (3 * MIB, 100)], &truth);
    let second = now(&found).since(&opened);
    assert_eq!((second.requests, second.cache.hits, second.cache.hit_bytes), (3, 4, 3 * BLOCK + 100));
    // A second store with the same options shares the cache; without a cache, reads request exactly their
    // bytes.
    let other = place.store(&[("cache_memory", "16MiB")], None).open("index").unwrap();
    let mut out = vec![0; 3000];
    let opened = now(&other);
    other.get("pages.bin").unwrap().read_at(50, &mut out).unwrap();
    assert_eq!((now(&other).since(&opened).requests, &out[..]), (0, &truth[50..3050]));
    let bare = place.store(&[], None).open("index").unwrap();
    let opened = now(&bare);
    check(self::queue(&bare).as_mut(), &[(5, 7)], &truth);
    assert_eq!((now(&bare).since(&opened).received_bytes, now(&bare).cache), (7, CacheUse::default()));
}

#[test]
fn blocks_are_counted_in_the_round_that_requests_them() {
    let place = Place::new("rounds");
    let truth = content(3 * MIB, 9);
    publish(&place.store(&[], None), &truth, Replace::Never);
    let store = place.on_disk("16MiB", "16MiB");
    let found = store.open("index").unwrap();
    let mut queue = queue(&found);
    let rounds = || found.traffic().unwrap().cache_rounds();
    // The first two share a request, although their rounds differ.
    let ranges = [(0, 100), (BLOCK, 100), (40 * BLOCK, 2 * BLOCK as u32), (80 * BLOCK, 10)];
    check_in(queue.as_mut(), &ranges, &truth, |i| [1, 2, 2, 40][i]);
    let none = CacheUse::default();
    let missed = |blocks| CacheUse { misses: blocks, missed_bytes: blocks * BLOCK, ..none };
    let counted = rounds();
    assert_eq!(
        (counted.len(), counted[0], counted[1], counted[12]),
        (COUNTED_ROUNDS + 1, missed(1), missed(3), missed(1))
    );
    assert!(counted[2..12].iter().all(|round| *round == none), "{counted:?}");
    // A hit counts in the round that finds the block.
    check_in(queue.as_mut(), &ranges[..1], &truth, |_| 3);
    check_in(queue.as_mut(), &[(BLOCK - 1, 2 * BLOCK as u32)], &truth, |_| 1);
    let hits = |at: usize| (rounds()[at].hits, rounds()[at].hit_bytes, rounds()[at].misses);
    assert_eq!((hits(0), hits(1), hits(2)), ((2, 2 * BLOCK, 2), (0, 0, 3), (1, BLOCK, 0)));
    // The sum over rounds equals the count by kind, since there are no other readers.
    let mut sum = none;
    rounds().into_iter().for_each(|round| sum += round);
    assert_eq!(sum, pages(&found));
    // A cache of pages reads other ranges than its callers, in the same rounds.
    let tier = found.get("pages.bin").unwrap().tier(FileOptions::default()).unwrap();
    let paged = CacheTier::new(tier, CacheOptions { budget_bytes: MIB, ..CacheOptions::default() }).unwrap();
    let mut paged_queue = paged.open(8).unwrap();
    for _ in 0..2 {
        check_in(paged_queue.as_mut(), &[(100 * BLOCK, 2 * BLOCK as u32)], &truth, |_| 5);
    }
    assert_eq!((rounds()[4], paged.counters().hits), (missed(2), 8), "the second pass requests nothing");
    // After a restart, blocks come from disk.
    drop((queue, paged_queue, paged, found));
    end(store);
    let store = place.on_disk_again("16MiB", "16MiB");
    let found = store.open("index").unwrap();
    check_in(self::queue(&found).as_mut(), &ranges[3..], &truth, |_| 1);
    let counted = found.traffic().unwrap().cache_rounds();
    assert_eq!(counted, [CacheUse { disk_hits: 1, disk_hit_bytes: BLOCK, ..none }]);
}

#[test]
fn concurrent_misses_share_a_request() {
    let place = Place::new("flight");
    let truth = content(MIB, 2);
    publish(&place.store(&[], None), &truth, Replace::Never);
    let shaping = Shaping { first_byte_ms: 50.0, spread: 0.0, requests_per_s: 0.0, bytes_per_s: 0.0 };
    let store = place.store(&[("cache_memory", "16MiB"), ("hedge", "off")], Some(Shaper::new(shaping, 1)));
    let found = store.open("index").unwrap();
    let opened = now(&found);
    let together = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for i in 0..8 {
            let (found, truth, together) = (&found, &truth, &together);
            scope.spawn(move || {
                let mut queue = queue(found);
                together.wait();
                check(queue.as_mut(), &[(i * 1000, 2000), (30 * BLOCK + i, 5)], truth);
            });
        }
    });
    assert_eq!(now(&found).since(&opened).requests, 2);
    assert_eq!(pages(&found).blocks(), 16);
    // A dropped reader does not stop the fetch that others wait for.
    let (mut one, mut other) = (queue(&found), queue(&found));
    let mut buffer = vec![0; 10];
    let read = Read { id: 0, offset: 50 * BLOCK, len: 10, buffer: buffer.as_mut_ptr(), round: 0 };
    // SAFETY: the buffer outlives the queue.
    unsafe { one.submit(&[read]) }.unwrap();
    drop(one);
    check(other.as_mut(), &[(50 * BLOCK + 5, 100)], &truth);
    assert!(now(&found).since(&opened).requests <= 4);
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Runs a test of this file in a process of its own, which recognises it by an environment variable.
fn run_alone(test: &str, wrapper: &[&str]) {
    let mut words = wrapper.to_vec();
    let program = std::env::current_exe().unwrap();
    words.extend([program.to_str().unwrap(), "--exact", test, "--nocapture"]);
    let child = std::process::Command::new(words[0])
        .args(&words[1..])
        .env("BATHYAL_TEST_ALONE", "1")
        .output()
        .unwrap();
    assert!(
        child.status.success(),
        "{}{}",
        String::from_utf8_lossy(&child.stdout),
        String::from_utf8_lossy(&child.stderr)
    );
}

fn is_alone() -> bool {
    std::env::var_os("BATHYAL_TEST_ALONE").is_some()
}

#[test]
fn budgets_hold_and_bytes_are_right_when_reads_exceed_the_cache_tenfold() {
    if !is_alone() {
        return run_alone("cache::budgets_hold_and_bytes_are_right_when_reads_exceed_the_cache_tenfold", &[]);
    }
    for policy in ["s3-fifo", "slru", "lru"] {
        let place = Place::new(policy);
        let truth = content(160 * MIB, 3);
        publish(&place.store(&[], None), &truth, Replace::Never);
        let (cache, memory, disk) = (place.cache(), 8 * MIB, 16 * MIB);
        let [memory_text, disk_text] = [memory, disk].map(|bytes| bytes.to_string());
        let options = [
            ("cache", cache.to_str().unwrap()),
            ("cache_memory", &memory_text),
            ("cache_disk", &disk_text),
            ("cache_policy", policy),
        ];
        let store = place.store(&options, None);
        let found = store.open("index").unwrap();
        let before = resident();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (found, truth, store, place) = (&found, &truth, &store, &place);
                scope.spawn(move || {
                    let (mut queue, mut random) = (queue(found), SmallRng::seed_from_u64(thread));
                    for round in 0..400 {
                        let range = |_| {
                            // Half of the reads go to a hot tenth of the object.
                            let most = if random.random() { 16 * MIB } else { 160 * MIB };
                            (random.random_range(0..most), random.random_range(1..20_000))
                        };
                        let ranges: Vec<(u64, u32)> = (0..4).map(range).collect();
                        check(queue.as_mut(), &ranges, truth);
                        let status = status(store);
                        assert!(status.memory_bytes <= memory && status.disk_bytes <= disk, "{status:?}");
                        if round % 10 == 0 {
                            assert!(place.disk_usage() <= disk, "{} bytes on disk", place.disk_usage());
                        }
                    }
                });
            }
        });
        let (grown, status) = (resident().saturating_sub(before), status(&store));
        // The margin is for requests in flight (8 threads, 4 ranges of up to 20 kB, twice), stacks, and
        // memory kept by the allocator.
        assert!(grown < memory + 12 * MIB, "{policy}: {grown} bytes more in memory, {status:?}");
        let used = pages(&found);
        assert!(used.hits > 1000 && used.disk_hits > 100 && used.misses > 1000, "{policy}: {used:?}");
        assert_eq!((&status.trouble, status.damaged_blocks), (&None, 0));
        assert!(status.memory_bytes > memory / 2 && status.disk_bytes > disk / 2, "{status:?}");
        println!("{policy}: {used:?}, {grown} bytes grown, {status:?}");
    }
}

/// Drops a store and waits until its cache is dropped, as at the end of a process: tasks that still write to
/// the disk hold the cache, too.
fn end(store: BucketStore) {
    let cache = Arc::downgrade(store.cache().unwrap());
    drop(store);
    let began = std::time::Instant::now();
    while cache.strong_count() > 0 {
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "the cache is still in use");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn the_next_process_reads_from_disk_and_damage_is_a_miss() {
    let place = Place::new("restart");
    let truth = content(4 * MIB, 4);
    publish(&place.store(&[], None), &truth, Replace::Never);
    let store = place.on_disk("16MiB", "64MiB");
    assert!(store.open("index").unwrap().read("pages.bin").unwrap() == truth);
    end(store);
    let read_again = |requests: std::ops::RangeInclusive<u64>, on_disk: std::ops::RangeInclusive<u64>| {
        let store = place.on_disk_again("16MiB", "64MiB");
        let found = store.open("index").unwrap();
        let opened = now(&found);
        assert!(found.read("pages.bin").unwrap() == truth);
        let (sent, used) = (now(&found).since(&opened).requests, pages(&found));
        assert!(requests.contains(&sent) && on_disk.contains(&used.disk_hits), "{sent} requests, {used:?}");
        assert_eq!(used.blocks(), 4 * MIB / BLOCK);
        let status = status(&store);
        drop(found);
        end(store);
        status
    };
    assert_eq!(read_again(0..=0, 256..=256).damaged_blocks, 0);
    let path = place.cache().join("blocks");
    let mut bytes = std::fs::read(&path).unwrap();
    let damaged = bytes.len().min(256 * BLOCK as usize);
    (1000..damaged).step_by(10 * BLOCK as usize).for_each(|i| bytes[i] ^= 1);
    std::fs::write(&path, bytes).unwrap();
    assert!(read_again(1..=26, 225..=231).damaged_blocks > 20);
    read_again(0..=0, 256..=256);
}

#[test]
fn two_versions_of_an_object_are_never_mixed() {
    let place = Place::new("versions");
    let (old, new) = (content(MIB, 5), content(MIB, 6));
    publish(&place.store(&[], None), &old, Replace::Never);
    let store = place.on_disk("16MiB", "64MiB");
    let before = store.open("index").unwrap();
    check(queue(&before).as_mut(), &[(0, 1000), (BLOCK, 1000)], &old);
    publish(&store, &new, Replace::Generation);
    let after = store.open("index").unwrap();
    check(queue(&after).as_mut(), &[(0, 1000), (BLOCK, 1000)], &new);
    check(queue(&before).as_mut(), &[(0, 1000), (BLOCK, 1000), (40 * BLOCK, 10)], &old);
}

#[test]
fn a_second_cache_on_a_folder_reads_what_the_first_one_has_written() {
    let place = Place::new("second");
    let truth = content(MIB, 7);
    publish(&place.store(&[], None), &truth, Replace::Never);
    let all: Vec<(u64, u32)> = (0..MIB / BLOCK).map(|block| (block * BLOCK, 100)).collect();
    let first = place.on_disk("16MiB", "64MiB");
    check(queue(&first.open("index").unwrap()).as_mut(), &all, &truth);
    first.cache().unwrap().flush().unwrap();
    let second = place.on_disk("17MiB", "64MiB");
    let found = second.open("index").unwrap();
    check(queue(&found).as_mut(), &all, &truth);
    let used = pages(&found);
    assert!(used.disk_hits > 0 && used.disk_hits + used.misses >= all.len() as u64, "{used:?}");
    for store in [&first, &second] {
        let status = status(store);
        assert!(status.trouble.is_none() && status.disk_bytes > 0, "{status:?}");
    }
    assert!(found.traffic().unwrap().cache_trouble().is_none());
}

#[test]
fn a_full_disk_is_no_error() {
    if !is_alone() {
        // Limits files to 100 blocks of 512 bytes; a longer write is an error.
        let limited = ["sh", "-c", "trap '' XFSZ; ulimit -f 100; exec \"$@\"", "sh"];
        return run_alone("cache::a_full_disk_is_no_error", &limited);
    }
    // Drafts are files, too, so an object of less than the limit is not affected.
    let place = Place::new("full");
    let truth = content(MIB, 8);
    let store = place.on_disk("16MiB", "64MiB");
    let draft = store.begin("index", Replace::Never).unwrap();
    let refused = draft.put("pages.bin", &truth);
    assert!(refused.is_err(), "the limit holds");
    assert!(status(&store).trouble.is_some_and(|why| why.contains("no disk")));
}
