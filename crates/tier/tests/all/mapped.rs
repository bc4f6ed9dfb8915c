//! Tests of mapped memory of every kind that this machine has: the conformance suite, sharing, damage, and
//! files that are truncated while they are searched.

use bathyal_tier::backend::mapped::{LoadEvent, LoadSource, MappedOptions, MappedPlace, MappedTier};
use bathyal_tier::conformance::{Capabilities, check, content};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::layer::trace::{Trace, TraceTier};
use bathyal_tier::{Control, Cx, Engine, EngineOptions, RunError, Span, Tier, TierError};
use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const LEN: usize = (3 << 20) + 777;

/// Makes a folder in memory if the system has such a file system, else on disk.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// A file to load, as that of an index, and its bytes.
struct Original {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Original {
    fn write(path: PathBuf, bytes: Vec<u8>) -> Original {
        std::fs::write(&path, &bytes).unwrap();
        Original { path, bytes }
    }

    fn load(&self, options: &MappedOptions) -> Result<MappedTier, TierError> {
        self.load_counted(options).0
    }

    /// Loads the file. Returns the tier, and how many bytes were copied for it.
    fn load_counted(&self, options: &MappedOptions) -> (Result<MappedTier, TierError>, u64) {
        let (loading, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let progress = |event| {
            match event {
                LoadEvent::Begin(stage, _) => loading.store(u64::from(stage == "loading"), Ordering::Relaxed),
                LoadEvent::Done(done) if loading.load(Ordering::Relaxed) == 1 => {
                    most.fetch_max(done, Ordering::Relaxed);
                }
                LoadEvent::Done(_) => {}
            }
            true
        };
        let (len, crc32c) = (self.bytes.len() as u64, crc32c::crc32c(&self.bytes));
        let tier = MappedTier::load(options, &LoadSource { path: &self.path, len, crc32c }, &progress);
        (tier, most.into_inner())
    }
}

fn at(path: impl Into<PathBuf>) -> MappedOptions {
    MappedOptions::at(MappedPlace::Path(path.into()))
}

/// Function that puts a layer over a tier.
type Wrap = fn(Arc<dyn Tier>) -> Arc<dyn Tier>;

/// Runs the conformance suite on tiers at `place`, which receives the number of the tier.
fn conforms(place: impl Fn(usize) -> MappedOptions, wrap: Wrap) {
    let dir = tempfile::tempdir().unwrap();
    let made = Cell::new(0);
    let make = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        made.set(made.get() + 1);
        let original = Original::write(dir.path().join(made.get().to_string()), bytes);
        wrap(Arc::new(original.load(&place(made.get())).unwrap()))
    };
    check(&make, Capabilities::default()).unwrap();
}

#[test]
fn anonymous_memory_conforms() {
    conforms(|_| MappedOptions::default(), |tier| tier);
}

#[test]
#[cfg(target_os = "linux")]
fn a_numa_node_conforms() {
    conforms(|_| MappedOptions::at(MappedPlace::Node(0)), |tier| tier);
    let dir = tempfile::tempdir().unwrap();
    let original = Original::write(dir.path().join("file"), content(LEN));
    let tier = original.load(&MappedOptions::at(MappedPlace::Node(0))).unwrap();
    assert!(tier.profile().method.starts_with("NUMA node 0 (processors"), "{}", tier.profile().method);
    assert!(!tier.profile().method.contains("not confirmed"), "{}", tier.profile().method);
    let missing = original.load(&MappedOptions::at(MappedPlace::Node(77))).unwrap_err().to_string();
    assert!(missing.contains("no NUMA node 77") && missing.contains("0 (processors"), "{missing}");
}

#[test]
fn shared_files_conform_bare_and_under_layers() {
    let dir = folder();
    let place = |made: usize| at(dir.path().join(made.to_string()));
    conforms(place, |tier| tier);
    conforms(place, |tier| Arc::new(TraceTier::new(tier, Trace::in_memory(1000))));
    conforms(place, |tier| Arc::new(DelayTier::new(tier, DelayProfile::cxl())));
}

#[test]
fn a_second_load_finds_the_bytes_of_the_first() {
    let dir = folder();
    let original = Original::write(dir.path().join("original"), content(LEN));
    let shared = dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let (first, copied) = original.load_counted(&at(&shared));
    assert_eq!(copied, LEN as u64);
    let (second, copied) = original.load_counted(&at(&shared));
    assert_eq!(copied, 0);
    assert!(first.unwrap().bytes() == second.unwrap().bytes());
    let names: Vec<_> = shared.read_dir().unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "one file, named after the content");

    // With `verify`, a byte that has changed since is found, and the file is loaded again.
    let region = names[0].path();
    let mut bytes = std::fs::read(&region).unwrap();
    bytes[4096 + 1000] ^= 1;
    std::fs::write(&region, bytes).unwrap();
    let (_, copied) = original.load_counted(&at(&shared));
    assert_eq!(copied, 0, "only the header is checked");
    let (checked, copied) = original.load_counted(&MappedOptions { verify: true, ..at(&shared) });
    assert!(copied == LEN as u64 && checked.unwrap().bytes() == original.bytes);
}

#[test]
fn an_unfinished_load_is_loaded_again() {
    let dir = folder();
    let original = Original::write(dir.path().join("original"), content(LEN));
    let region = dir.path().join("region");
    // After a cancellation half way, as after a kill, the state in the header is "loading".
    let source =
        LoadSource { path: &original.path, len: LEN as u64, crc32c: crc32c::crc32c(&original.bytes) };
    let progress = |event| !matches!(event, LoadEvent::Done(done) if done > LEN as u64 / 2);
    let cancelled = MappedTier::load(&at(&region), &source, &progress);
    assert!(matches!(cancelled, Err(TierError::Cancelled)));
    let (tier, copied) = original.load_counted(&at(&region));
    assert!(copied == LEN as u64 && tier.unwrap().bytes() == original.bytes);
    // A truncated file is not ready, although its header says so.
    File::options().write(true).open(&region).unwrap().set_len(LEN as u64 / 2).unwrap();
    let (tier, copied) = original.load_counted(&at(&region));
    assert!(copied == LEN as u64 && tier.unwrap().bytes() == original.bytes);
}

#[test]
fn files_in_use_and_foreign_files_are_not_overwritten() {
    let dir = folder();
    let one = Original::write(dir.path().join("one"), content(LEN));
    let other = Original::write(dir.path().join("other"), content(LEN / 2));
    let region = dir.path().join("region");
    let held = one.load(&at(&region)).unwrap();
    let refused = other.load(&at(&region)).unwrap_err().to_string();
    assert!(refused.contains("other bytes are searched there"), "{refused}");
    drop(held);
    assert!(other.load(&at(&region)).unwrap().bytes() == other.bytes);

    let foreign = dir.path().join("letter");
    std::fs::write(&foreign, "Dear sir or madam, ".repeat(10)).unwrap();
    let refused = one.load(&at(&foreign)).unwrap_err().to_string();
    assert!(refused.contains("overwrite"), "{refused}");
    assert!(std::fs::read_to_string(&foreign).unwrap().starts_with("Dear"));
    let options = MappedOptions { overwrite: true, ..at(&foreign) };
    assert!(one.load(&options).unwrap().bytes() == one.bytes);
    assert!(one.load(&at("/dev/null")).unwrap_err().to_string().contains("only DAX devices"));
}

#[test]
fn the_profile_has_the_latency_of_memory_larger_than_a_cache() {
    let dir = tempfile::tempdir().unwrap();
    for (name, len, measured) in [("small", LEN, false), ("large", 6 << 20, true)] {
        let tier = Original::write(dir.path().join(name), content(len)).load(&MappedOptions::default());
        assert_eq!(tier.unwrap().profile().latency_ns > 0, measured);
    }
}

#[test]
fn a_damaged_source_is_refused_everywhere() {
    let dir = folder();
    let original = Original::write(dir.path().join("original"), content(LEN));
    let mut wrong = original.bytes.clone();
    wrong[LEN - 1] ^= 1;
    std::fs::write(&original.path, wrong).unwrap();
    let region = dir.path().join("region");
    for options in [MappedOptions::default(), at(&region)] {
        let refused = original.load(&options);
        assert!(matches!(refused, Err(TierError::Checksum { .. })), "{refused:?}");
    }
    std::fs::write(&original.path, &original.bytes).unwrap();
    assert!(original.load(&at(&region)).unwrap().bytes() == original.bytes);
}

#[test]
fn of_many_loaders_at_once_one_loads() {
    let dir = folder();
    let original = Original::write(dir.path().join("original"), content(LEN));
    let region = dir.path().join("region");
    let copied = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (tier, bytes) = original.load_counted(&at(&region));
                copied.fetch_add(bytes, Ordering::Relaxed);
                assert!(tier.unwrap().bytes() == original.bytes);
            });
        }
    });
    assert_eq!(copied.into_inner(), LEN as u64, "one has loaded, the others have waited");
}

/// Reads spans all over the tier, in batches that suspend. Returns true if all bytes were correct.
async fn read_and_compare(cx: Cx, original: &[u8], seed: u64) -> bool {
    let mut correct = true;
    for i in 0..50 {
        let offset = (seed * 7919 + i * 104_729) % (original.len() as u64 - 64);
        let spans = [Span::at(offset, 64)];
        let Ok(batch) = cx.read(&spans).await else { return false };
        correct &= batch.bytes(0) == &original[offset as usize..][..64];
    }
    correct
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_truncated_while_it_is_searched_is_an_error_and_no_crash() {
    for (cut, step) in [(0, 40), (LEN as u64 / 2, 40), (LEN as u64 / 3, 1)] {
        let dir = folder();
        let original = Original::write(dir.path().join("original"), content(LEN));
        let region = dir.path().join("region");
        let tier: Arc<dyn Tier> = Arc::new(original.load(&at(&region)).unwrap());
        let mut engine = Engine::new(tier.clone(), EngineOptions::default()).unwrap();
        let (mut made, mut wrong) = (0, 0);
        let next = |cx: &Cx| {
            made += 1;
            if made == step {
                File::options().write(true).open(&region).unwrap().set_len(cut).unwrap();
            }
            (made < 100).then(|| read_and_compare(cx.clone(), &original.bytes, made))
        };
        let outcome = engine.run(8, next, |correct| wrong += u32::from(!correct), Control::default());
        let Err(RunError::Tier(lost @ TierError::Lost { .. })) = outcome else {
            panic!("cut to {cut}: {outcome:?}, {wrong} wrong")
        };
        let message = lost.to_string();
        let length = format!("the file has {cut} bytes");
        assert!(message.contains("region") && message.contains(&length), "{message}");
        // Other queues get the error, too, and another load restores the file.
        let mut queue = tier.open(1).unwrap();
        assert!(matches!(queue.reap(&mut Vec::new(), None), Err(TierError::Lost { .. })));
        drop((queue, engine, tier));
        assert!(original.load(&at(&region)).unwrap().bytes() == original.bytes);
    }
}

/// Runs searches of several threads on files that are truncated at random times and lengths, and loaded
/// again. `BATHYAL_SOAK_SECONDS` sets the duration.
#[test]
#[cfg(target_os = "linux")]
fn random_truncations_under_several_threads() {
    let seconds = std::env::var("BATHYAL_SOAK_SECONDS").ok().map(|s| s.parse::<u64>().unwrap());
    let rounds = if seconds.is_some() { u64::MAX } else { 30 };
    let start = Instant::now();
    let dir = folder();
    let original = Original::write(dir.path().join("original"), content(LEN));
    let region = dir.path().join("region");
    let (mut round, mut lost, mut sound) = (0_u64, 0, 0);
    while round < rounds && seconds.is_none_or(|s| start.elapsed().as_secs() < s) {
        round += 1;
        let tier: Arc<dyn Tier> = Arc::new(original.load(&at(&region)).unwrap());
        let cut = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (LEN as u64 + 4096);
        let runs: Vec<(Result<(), RunError>, u32)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let (tier, bytes) = (tier.clone(), &original.bytes);
                    scope.spawn(move || {
                        let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
                        let (mut made, mut wrong) = (0, 0);
                        let next = |cx: &Cx| {
                            made += 1;
                            let seed = made * 4 + thread;
                            (made < 20 + cut % 60).then(|| read_and_compare(cx.clone(), bytes, seed))
                        };
                        let sink = |correct: bool| wrong += u32::from(!correct);
                        (engine.run(8, next, sink, Control::default()), wrong)
                    })
                })
                .collect();
            File::options().write(true).open(&region).unwrap().set_len(cut).unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (outcome, wrong) in runs {
            match outcome {
                Ok(()) => {
                    assert_eq!(wrong, 0, "round {round}: a query used zeros instead of lost bytes");
                    sound += 1;
                }
                Err(RunError::Tier(TierError::Lost { .. })) => lost += 1,
                Err(other) => panic!("round {round}: {other}"),
            }
        }
    }
    println!("{round} rounds: {sound} runs without and {lost} with an error");
    assert!(lost > 0);
}

/// Runs one test of this program again in a child process, with the folder in an environment variable.
#[cfg(target_os = "linux")]
fn child(test: &str, folder: &str) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("BATHYAL_MAPPED_CHILD", folder)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns the folder that [`child`] gave to this process; `None` in the parent.
#[cfg(target_os = "linux")]
fn folder_of_child() -> Option<String> {
    std::env::var("BATHYAL_MAPPED_CHILD").ok()
}

#[test]
#[cfg(target_os = "linux")]
fn the_bytes_of_a_killed_loader_are_loaded_again() {
    const TEST: &str = "mapped::the_bytes_of_a_killed_loader_are_loaded_again";
    if let Some(dir) = folder_of_child() {
        // The load stops in the middle and waits to be killed.
        let dir = PathBuf::from(dir);
        let bytes = std::fs::read(dir.join("original")).unwrap();
        let (len, crc32c) = (bytes.len() as u64, crc32c::crc32c(&bytes));
        let source = LoadSource { path: &dir.join("original"), len, crc32c };
        let progress = |event| {
            if matches!(event, LoadEvent::Done(done) if done >= len / 2) {
                std::fs::write(dir.join("half"), "").unwrap();
                loop {
                    std::thread::park();
                }
            }
            true
        };
        let _ = MappedTier::load(&at(dir.join("region")), &source, &progress);
        return;
    }
    let dir = folder();
    let original = Original::write(dir.path().join("original"), content(LEN));
    let mut loader = child(TEST, dir.path().to_str().unwrap());
    while !dir.path().join("half").exists() {
        assert!(loader.try_wait().unwrap().is_none(), "the loader ended early");
        std::thread::yield_now();
    }
    // While it runs, another process waits for it, and can be cancelled.
    let source =
        LoadSource { path: &original.path, len: LEN as u64, crc32c: crc32c::crc32c(&original.bytes) };
    let attempts = AtomicU64::new(0);
    let waited = MappedTier::load(&at(dir.path().join("region")), &source, &|event| {
        assert!(matches!(event, LoadEvent::Begin("waiting", _) | LoadEvent::Done(0)), "{event:?}");
        attempts.fetch_add(1, Ordering::Relaxed) < 3
    });
    assert!(matches!(waited, Err(TierError::Cancelled)), "{waited:?}");
    loader.kill().unwrap();
    loader.wait().unwrap();
    let (tier, copied) = original.load_counted(&at(dir.path().join("region")));
    assert!(copied == LEN as u64 && tier.unwrap().bytes() == original.bytes);
}

#[test]
#[cfg(target_os = "linux")]
fn a_fault_outside_watched_memory_ends_the_process() {
    use std::os::fd::AsRawFd;
    use std::os::unix::process::ExitStatusExt;
    const TEST: &str = "mapped::a_fault_outside_watched_memory_ends_the_process";
    if let Some(dir) = folder_of_child() {
        let dir = PathBuf::from(dir);
        let original = Original::write(dir.join("original"), content(LEN));
        let _watched = original.load(&at(dir.join("region"))).unwrap();
        let file = File::options().read(true).write(true).create(true).truncate(true).open(dir.join("other"));
        let file = file.unwrap();
        file.set_len(4096).unwrap();
        let (access, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping of another file.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, file.as_raw_fd(), 0) };
        assert!(start != libc::MAP_FAILED);
        file.set_len(0).unwrap();
        // SAFETY: the address is mapped; the test wants the fault beyond the end of the file.
        let byte = unsafe { start.cast::<u8>().read_volatile() };
        unreachable!("read {byte}");
    }
    let dir = folder();
    let ended = child(TEST, dir.path().to_str().unwrap()).wait().unwrap();
    assert_eq!(ended.signal(), Some(libc::SIGBUS), "{ended}");
}

#[test]
#[cfg(target_os = "linux")]
fn layers_pass_the_error_of_lost_bytes_on() {
    let wraps: [Wrap; 2] = [
        |tier| Arc::new(TraceTier::new(tier, Trace::in_memory(10))),
        |tier| Arc::new(DelayTier::new(tier, DelayProfile::nvm())),
    ];
    for wrap in wraps {
        let dir = folder();
        let original = Original::write(dir.path().join("original"), content(LEN));
        let region = dir.path().join("region");
        let tier = wrap(Arc::new(original.load(&at(&region)).unwrap()));
        let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
        let answer = engine.run_one(
            |cx| {
                let cx = cx.clone();
                let region = &region;
                async move {
                    let spans = [Span::at(LEN as u64 - 100, 64)];
                    let batch = cx.read(&spans).await;
                    // The bytes are lent now; the query uses them after the truncation.
                    File::options().write(true).open(region).unwrap().set_len(0).unwrap();
                    batch.map(|batch| batch.bytes(0)[0])
                }
            },
            Control::default(),
        );
        assert!(matches!(answer, Err(RunError::Tier(TierError::Lost { .. }))), "{answer:?}");
    }
}
