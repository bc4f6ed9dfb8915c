//! Mutants of the kernels: each has one mistake, which the tests must detect.

mod list;

pub use list::MUTANTS;

use super::groups::Groups;
use super::losses::Grouped;
use super::pages::Paged;
use super::pairs::Pairs;
use super::walks::Walks;
use bathyal_gpu::nearest::Cells;
use bathyal_kernels::{Element, Metric};
use bathyal_simt::{EmulatedCard, EmulatedOptions, LaunchFunction};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A change of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    pub name: &'static str,
    /// Name of the changed file.
    pub source: &'static str,
    /// Text that is replaced. It occurs once.
    from: &'static str,
    to: &'static str,
}

impl Mutant {
    pub const fn new(
        name: &'static str,
        source: &'static str,
        from: &'static str,
        to: &'static str,
    ) -> Mutant {
        Mutant { name, source, from, to }
    }

    /// Returns the text of the changed file.
    pub fn text(&self) -> String {
        let text = read_source(self.source);
        assert_eq!(text.matches(self.from).count(), 1, "{}: the kernel has changed", self.name);
        text.replace(self.from, self.to)
    }
}

/// Returns the names of all sources of kernels.
fn source_names() -> Vec<String> {
    let kernels = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/kernels")).unwrap();
    let names = kernels.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".cu") || name.ends_with(".h")).collect()
}

fn read_source(name: &str) -> String {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/kernels");
    std::fs::read_to_string(kernels.join(name)).unwrap()
}

/// Writes the sources of the kernels, or of a mutant, to `folder`.
pub fn write_sources(folder: &Path, mutant: Option<&Mutant>) {
    for name in source_names() {
        let changed = mutant.filter(|mutant| mutant.source == name).map(Mutant::text);
        std::fs::write(folder.join(&name), changed.unwrap_or_else(|| read_source(&name))).unwrap();
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp");
    std::fs::copy(own.join("kernels.cpp"), folder.join("kernels.cpp")).unwrap();
}

/// Returns the C++ compiler with the options that all sources need.
pub fn compiler() -> Command {
    let mut command = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".into()));
    command.args(["-std=c++17", "-ffp-contract=off", "-DSIMT", "-I"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp"));
    command
}

/// Compiles the kernels, or a mutant, to a shared library, and loads it.
fn compile(folder: &Path, mutant: Option<&Mutant>) -> LaunchFunction {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    write_sources(folder, mutant);
    let library = folder.join("kernels.so");
    let output = compiler()
        .args(["-O1", "-shared", "-fPIC", "-I"])
        .arg(folder)
        .arg(own.join("cpp/simt.cpp"))
        .arg(folder.join("kernels.cpp"))
        .arg("-o")
        .arg(&library)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let name = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library was compiled from sources without initializers, and is never closed.
    let function = unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null(), "the library cannot be opened");
        libc::dlsym(library, c"simt_launch".as_ptr())
    };
    assert!(!function.is_null());
    // SAFETY: the function is that of `cpp/kernels.cpp`.
    unsafe { std::mem::transmute::<*mut libc::c_void, LaunchFunction>(function) }
}

/// Bytes of a card's memory that suffice for every check.
const LARGE: u64 = 1 << 30;

/// Variable with the number of the mutant that a process tests, or another text for the unchanged kernels.
const MUTANT_VARIABLE: &str = "BATHYAL_MUTANT";

/// Checks one mutant. A mutant may write to any memory, so it runs in a process of its own.
#[test]
fn the_mutant_of_this_process_passes_all_checks() {
    let Ok(number) = std::env::var(MUTANT_VARIABLE) else { return };
    let mutant = number.parse::<usize>().ok().map(|number| &MUTANTS[number]);
    let folder = tempfile::tempdir().unwrap();
    let function = compile(folder.path(), mutant);
    // Other tests check the unchanged kernels, too.
    let seeds = if mutant.is_some() { 4 } else { 1 };
    for seed in 0..seeds {
        let card = |memory_bytes| {
            let options = EmulatedOptions { seed, memory_bytes, ..EmulatedOptions::default() };
            // SAFETY: libraries stay open.
            unsafe { EmulatedCard::with_function(function, options) }
        };
        for (sources, check) in CHECKS {
            if mutant.is_none_or(|mutant| sources.contains(&mutant.source)) {
                check(&card).unwrap();
            }
        }
    }
}

/// Creates a card with this many bytes of memory.
type NewCard<'a> = &'a dyn Fn(u64) -> EmulatedCard;
type Check = fn(NewCard<'_>) -> Result<(), String>;

/// The checks, each with the sources whose mutants it must detect.
const CHECKS: [(&[&str], Check); 6] = [
    (&["hop.cu", "slots.h", "graph.h", "keys.h"], check_hops),
    (&["scan.cu", "groups.h", "keys.h"], check_scans),
    (&["walk.cu", "rerank.cu", "exact.h"], check_resident),
    (&["pages.cu"], check_pages),
    (&["nearest.cu"], check_pairs),
    (&["loss.cu"], check_losses),
];

fn check_hops(card: NewCard<'_>) -> Result<(), String> {
    Walks::new("axes", 32, 128, 90, (150, 4)).check(&card(LARGE))?;
    // With so few links, the results depend on where the walk begins.
    Walks::new("axes", 37, 24, 5, (30, 1)).check(&card(LARGE))
}

fn check_scans(card: NewCard<'_>) -> Result<(), String> {
    Groups::new("axes", 33, 60, 300, 150, Metric::L2).check(&card(LARGE))
}

fn check_resident(card: NewCard<'_>) -> Result<(), String> {
    // The list holds all vectors that can be reached.
    let wide = Walks::new("axes", 24, 16, 2, (300, 8));
    let groups = Groups::new("axes", 33, 60, 300, 150, Metric::L2);
    let forms = [
        (Element::I8, false, Metric::InnerProduct),
        (Element::F32, true, Metric::L2),
        (Element::B1, false, Metric::L2),
    ];
    forms.into_iter().zip([37, 7, 104]).try_for_each(|(form, dim)| {
        wide.check_resident(&card(LARGE), &wide.stored(form, dim))?;
        groups.check_resident(&card(LARGE), &groups.stored(form, dim))
    })
}

fn check_pages(card: NewCard<'_>) -> Result<(), String> {
    let pages = [
        // The list is full at once, so that few links are near.
        Paged::new(("axes", 32, 128), (2, 60, 25), (10, 2)),
        // The list becomes full amid the links of a page, which take several launches.
        Paged::new(("axes", 32, 128), (2, 60, 4), (25, 1)),
        // With so few links, the results depend on where the walk begins.
        Paged::new(("axes", 32, 128), (3, 1, 50), (300, 1)),
        // Pages have more links than a launch takes.
        Paged::new(("axes", 32, 128), (5, 200, 150), (60, 4)),
        // Pages are so large that the last one is nearly empty.
        Paged::new(("rabitq2", 24, 60), (140, 30, 500), (300, 2)),
    ];
    pages.iter().try_for_each(|pages| pages.check(&card(LARGE)))
}

fn check_pairs(card: NewCard<'_>) -> Result<(), String> {
    let pairs = [
        Pairs::new(Cells::Floats, 37, 130, 300),
        Pairs::new(Cells::Halves, 33, 5, 140),
        Pairs::new(Cells::Signed, 66, 5, 140),
        Pairs::new(Cells::UpperHalves, 33, 5, 140),
        Pairs::new(Cells::Bits, 104, 5, 140),
    ];
    pairs.iter().try_for_each(|pairs| pairs.check(&card(LARGE)))
}

fn check_losses(card: NewCard<'_>) -> Result<(), String> {
    let grouped = Grouped::new(37, 70 * 13 + 5, 70, 5);
    grouped.check(&card(LARGE))?;
    // With little memory there are several blocks.
    grouped.check(&card(4 * 37 * (70 * 13 + 5)))
}

/// Outcome of a process that has checked a mutant.
struct Trial {
    detected: bool,
    /// Text of its standard output and standard error.
    output: String,
}

/// Checks the mutant `number`, or the unchanged kernels for another text, in a process of its own.
fn try_mutant(number: &str) -> Trial {
    // A process that is killed by a signal does not remove its temporary folders.
    let scratch = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mutants::the_mutant_of_this_process_passes_all_checks", "--nocapture"])
        .env(MUTANT_VARIABLE, number)
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    Trial { detected: !output.status.success(), output: String::from_utf8_lossy(&text).into_owned() }
}

/// Variable that requests all mutants, and to record that they were detected: `make check-mutants`.
const ALL_VARIABLE: &str = "BATHYAL_MUTANTS";
/// File with the fingerprint of the sources for which all mutants were detected.
const CHECKED: &str = "tests/kernels/mutants.checked";
/// Folders on which detection depends: the kernels, their host code, the emulated card, and the tests.
const DECISIVE: [&str; 5] = ["../gpu/kernels", "../gpu/src", "cpp", "src", "tests/kernels"];
/// If all mutants were detected before, one in this many is tested.
const STEP: usize = 36;

/// Returns the fingerprint (64 bits of FNV-1a) of the sources on which detection depends, without lines of
/// comments.
fn fingerprint() -> String {
    let mut paths = Vec::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    DECISIVE.iter().for_each(|folder| collect(&own.join(folder), &mut paths));
    paths.sort();
    let sources = paths.iter().map(|path| std::fs::read_to_string(path).unwrap());
    let bytes = sources.flat_map(|source| without_comments(&source).into_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Returns the lines of a source that are not whole comments.
fn without_comments(source: &str) -> String {
    let lines = source.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.collect::<Vec<&str>>().join("\n")
}

/// Appends the sources in `folder`, and in the folders within it, to `paths`.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let is_source =
            |kind: &std::ffi::OsStr| ["rs", "cu", "h", "cpp"].iter().any(|source| kind == *source);
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(is_source) {
            paths.push(path);
        }
    }
}

/// Returns true if all mutants are tested: on request, and if a source has changed since all were detected.
pub fn all_are_tested() -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHECKED);
    std::env::var_os(ALL_VARIABLE).is_some()
        || std::fs::read_to_string(path).map_or(true, |checked| checked.trim() != fingerprint())
}

/// Compiles and checks mutants. Each takes seconds.
#[test]
fn mutants_of_the_kernels_are_detected() {
    // Panics for a mutant that does not fit the kernels.
    MUTANTS.iter().for_each(|mutant| drop(mutant.text()));
    let step = if all_are_tested() { 1 } else { STEP };
    let unchanged = try_mutant("none");
    assert!(!unchanged.detected, "the unchanged kernels fail: {}", unchanged.output);
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = step * next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(Mutant { name, .. }) = MUTANTS.get(number) else { return };
                    let Trial { detected, output } = try_mutant(&number.to_string());
                    assert!(!output.contains("error: "), "{name}: it does not compile: {output}");
                    assert!(detected, "{name}: no test has failed");
                }
            });
        }
    });
    println!("{} of {} mutants tested", MUTANTS.len().div_ceil(step), MUTANTS.len());
    if std::env::var_os(ALL_VARIABLE).is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(CHECKED), fingerprint() + "\n").unwrap();
    } else if step == 1 {
        println!(
            "all mutants are tested each time until `make check-mutants` has recorded that they are detected"
        );
    }
}
