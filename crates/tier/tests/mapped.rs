//! Mapped memory of every kind that this machine has: the conformance suite, sharing, damage, and files that are
//! truncated while they are searched.

use bathyal_tier::backend::mapped::{LoadEvent, MappedOptions, MappedTier, Place, Source};
use bathyal_tier::conformance::{Capabilities, check, content};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::layer::trace::{Trace, TraceTier};
use bathyal_tier::{Control, Cx, Engine, EngineOptions, RunError, Span, Tier, TierError};
use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LEN: usize = (3 << 20) + 777;

/// A folder in memory if there is one, else on disk.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Bytes in a file, as an index has them.
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

    /// The tier, and how many bytes were copied for it.
    fn load_counted(&self, options: &MappedOptions) -> (Result<MappedTier, TierError>, u64) {
        let (loading, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let go_on = |event| {
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
        let tier = MappedTier::load(options, &Source { path: &self.path, len, crc32c }, &go_on);
        (tier, most.into_inner())
    }
}

fn at(path: impl Into<PathBuf>) -> MappedOptions {
    MappedOptions::at(Place::Path(path.into()))
}

/// The conformance suite on tiers at `place`, which is told how many were made before.
fn conforms(place: impl Fn(usize) -> MappedOptions, wrap: fn(Arc<dyn Tier>) -> Arc<dyn Tier>) {
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
    conforms(|_| MappedOptions::at(Place::Node(0)), |tier| tier);
    let dir = tempfile::tempdir().unwrap();
    let original = Original::write(dir.path().join("file"), content(LEN));
    let tier = original.load(&MappedOptions::at(Place::Node(0))).unwrap();
    assert!(tier.profile().method.starts_with("NUMA node 0 (processors"), "{}", tier.profile().method);
    assert!(!tier.profile().method.contains("not confirmed"), "{}", tier.profile().method);
    let missing = original.load(&MappedOptions::at(Place::Node(77))).unwrap_err().to_string();
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
fn a_second_load_finds_the_bytes_there() {
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

    // A byte that has changed since is found on request, and what is there is loaded again.
    let region = names[0].path();
    let mut bytes = std::fs::read(&region).unwrap();
    bytes[4096 + 1000] ^= 1;
    std::fs::write(&region, bytes).unwrap();
    let (_, copied) = original.load_counted(&at(&shared));
    assert_eq!(copied, 0, "the header is all that is read");
    let (checked, copied) = original.load_counted(&MappedOptions { verify: true, ..at(&shared) });
    assert!(copied == LEN as u64 && checked.unwrap().bytes() == original.bytes);
}

#[test]
fn what_a_dead_loader_left_is_loaded_again() {
    let dir = folder();
    let original = Original::write(dir.path().join("original"), content(LEN));
    let region = dir.path().join("region");
    // Cancelled half way: as if killed, the header says "loading".
    let source = Source { path: &original.path, len: LEN as u64, crc32c: crc32c::crc32c(&original.bytes) };
    let go_on = |event| !matches!(event, LoadEvent::Done(done) if done > LEN as u64 / 2);
    let cancelled = MappedTier::load(&at(&region), &source, &go_on);
    assert!(matches!(cancelled, Err(TierError::Cancelled)));
    let (tier, copied) = original.load_counted(&at(&region));
    assert!(copied == LEN as u64 && tier.unwrap().bytes() == original.bytes);
    // One that was cut off at the end is not ready, whatever its header says.
    File::options().write(true).open(&region).unwrap().set_len(LEN as u64 / 2).unwrap();
    let (tier, copied) = original.load_counted(&at(&region));
    assert!(copied == LEN as u64 && tier.unwrap().bytes() == original.bytes);
}

#[test]
fn what_is_in_use_or_not_ours_is_not_overwritten() {
    let dir = folder();
    let one = Original::write(dir.path().join("one"), content(LEN));
    let other = Original::write(dir.path().join("other"), content(LEN / 2));
    let region = dir.path().join("region");
    let held = one.load(&at(&region)).unwrap();
    let refused = other.load(&at(&region)).unwrap_err().to_string();
    assert!(refused.contains("another process searches other bytes"), "{refused}");
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
fn many_loaders_at_once_agree() {
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

/// Reads words all over the tier, in batches that suspend, and says whether all were genuine.
async fn walk(cx: Cx, original: &[u8], seed: u64) -> bool {
    let mut genuine = true;
    for i in 0..50 {
        let place = (seed * 7919 + i * 104_729) % (original.len() as u64 - 64);
        let spans = [Span::at(place, 64)];
        let Ok(batch) = cx.read(&spans).await else { return false };
        genuine &= batch.bytes(0) == &original[place as usize..][..64];
    }
    genuine
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
            (made < 100).then(|| walk(cx.clone(), &original.bytes, made))
        };
        let outcome = engine.run(8, next, |genuine| wrong += u32::from(!genuine), Control::default());
        let Err(RunError::Tier(lost @ TierError::Lost { .. })) = outcome else {
            panic!("cut to {cut}: {outcome:?}, {wrong} wrong")
        };
        let said = lost.to_string();
        assert!(said.contains("region") && said.contains(&format!("the file has {cut} bytes")), "{said}");
        // It stays an error, for other queues too, and another load makes it good.
        let mut queue = tier.open(1).unwrap();
        assert!(matches!(queue.reap(&mut Vec::new(), None), Err(TierError::Lost { .. })));
        drop((queue, engine, tier));
        assert!(original.load(&at(&region)).unwrap().bytes() == original.bytes);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn layers_pass_on_that_bytes_are_lost() {
    let wraps: [fn(Arc<dyn Tier>) -> Arc<dyn Tier>; 2] = [
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
                    // The bytes are lent by now; the query uses them after they have gone.
                    File::options().write(true).open(region).unwrap().set_len(0).unwrap();
                    batch.map(|batch| batch.bytes(0)[0])
                }
            },
            Control::default(),
        );
        assert!(matches!(answer, Err(RunError::Tier(TierError::Lost { .. }))), "{answer:?}");
    }
}
