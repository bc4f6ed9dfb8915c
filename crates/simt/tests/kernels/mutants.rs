//! The kernels with a word changed: each has to be found out, or the tests would not see such a mistake.

use super::groups::Groups;
use super::pages::Paged;
use super::walks::Walks;
use bathyal_kernels::Metric;
use bathyal_simt::{EmulatedCard, EmulatedOptions, LaunchFunction};
use std::ffi::CString;
use std::path::Path;
use std::process::Command;

/// What is changed, in which source, and to what.
pub const MUTANTS: [(&str, &str, &str, &str); 32] = [
    (
        "no barrier before a merge",
        "hop.cu",
        "room.links[thread] = key;\n  __syncthreads();",
        "room.links[thread] = key;",
    ),
    ("no barrier after a merge", "hop.cu", "merge(room, held);\n  __syncthreads();", "merge(room, held);"),
    (
        "no barrier between writing and reading in a sort",
        "keys.h",
        "exchange[thread] = key;\n        __syncthreads();",
        "exchange[thread] = key;",
    ),
    (
        "no barrier between reading and writing in a sort",
        "keys.h",
        "other = exchange[thread ^ stride];\n        __syncthreads();",
        "other = exchange[thread ^ stride];",
    ),
    (
        "no barrier behind the counts of warps",
        "hop.cu",
        "room.counts[warp] = __popc(ballot);\n    __syncthreads();",
        "room.counts[warp] = __popc(ballot);",
    ),
    (
        "no barrier before the list is stored",
        "hop.cu",
        "work.width, next);\n  __syncthreads();",
        "work.width, next);",
    ),
    (
        "a barrier that not all threads reach",
        "hop.cu",
        "if (thread < 32) choose(",
        "if (thread < 64) __syncthreads();\n  if (thread < 32) choose(",
    ),
    (
        "a shuffle that forgets a lane",
        "keys.h",
        "__shfl_xor_sync(ALL_LANES, key",
        "__shfl_xor_sync(0x7fffffffu, key",
    ),
    (
        "a ballot that counts its own lane",
        "hop.cu",
        "((1u << lane) - 1));\n    for (u32 w",
        "((2u << lane) - 1));\n    for (u32 w",
    ),
    (
        "duplicates that were expanded are kept",
        "hop.cu",
        "room.merged[i - 1] >> 1 != key >> 1",
        "room.merged[i - 1] != key",
    ),
    ("all pivots are looked at", "hop.cu", "ids[(first + thread) * step]", "ids[first + thread]"),
    ("all pivots stay", "hop.cu", "part ? work.list : work.starts", "work.list"),
    ("what is expanded stays fresh", "hop.cu", "      room.list[i] &= ~1ull;", ""),
    ("pages: places behind the last are candidates", "hop.cu", "if (place < args.vectors) key", "key"),
    ("pages: the first of a page alone", "hop.cu", "args.records + i % args.records;", "args.records;"),
    (
        "pages: no barrier before near pages are looked at",
        "hop.cu",
        "if (is_near) near[at] = place / args.records;\n      __syncthreads();",
        "if (is_near) near[at] = place / args.records;",
    ),
    (
        "pages: no barrier behind the counts of warps",
        "hop.cu",
        "room.counts[warp] = __popc(ballot);\n      __syncthreads();",
        "room.counts[warp] = __popc(ballot);",
    ),
    (
        "pages: no barrier before the first are looked at",
        "hop.cu",
        "near[thread] = links[0] / args.records;\n    __syncthreads();",
        "near[thread] = links[0] / args.records;",
    ),
    ("pages: the entry point is left out", "hop.cu", "near, held + 1, 0", "near, held, 0"),
    ("pages: links are near without slack", "hop.cu", "work.list), work.slack)", "work.list), 0.0f)"),
    (
        "pages: a page that goes on forgets what was near",
        "hop.cu",
        "if (page > 0 || !work.continues) limit",
        "limit",
    ),
    ("pages: what is near is not kept", "hop.cu", "(u64)__float_as_uint(limit) << 32 | held", "held"),
    (
        "pages: the nearest candidate alone is expanded",
        "hop.cu",
        "if (((u32)room.list[i] >> 1) / records == page)",
        "if (i < first + 32 && (u32)room.list[i] / 2 / records == page)",
    ),
    (
        "pages: no barrier before the list is stored",
        "hop.cu",
        "answer + 1);\n  __syncthreads();",
        "answer + 1);",
    ),
    ("pages: a full list lets all in", "hop.cu", "bits ^ 0x80000000u : ~bits", "~bits : bits"),
    (
        "scan: no barrier behind the counts of warps",
        "scan.cu",
        "room.counts[warp] = __popc(ballot);\n      __syncthreads();",
        "room.counts[warp] = __popc(ballot);",
    ),
    (
        "scan: no barrier behind what waits",
        "scan.cu",
        "room.waiting[at] = key;\n      __syncthreads();",
        "room.waiting[at] = key;",
    ),
    (
        "scan: no barrier before a merge",
        "scan.cu",
        "room.sorting[thread] = key;\n  __syncthreads();",
        "room.sorting[thread] = key;",
    ),
    (
        "scan: no barrier behind a merge",
        "scan.cu",
        "room.waiting[THREADS + thread] : NO_KEY;\n  __syncthreads();",
        "room.waiting[THREADS + thread] : NO_KEY;",
    ),
    ("scan: what was not merged is lost", "scan.cu", "room.waiting[thread] = left;", ""),
    (
        "scan: the worst of the list is one too good",
        "scan.cu",
        "room.list[work.list - 1]",
        "room.list[work.list / 2]",
    ),
    (
        "scan: the last codes are left out",
        "scan.cu",
        "if (waiting > 0) held = take_waiting",
        "if (waiting > 64) held = take_waiting",
    ),
];

const SOURCES: [&str; 4] = ["hop.cu", "scan.cu", "keys.h", "device.h"];

pub fn source(name: &str) -> String {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/kernels");
    std::fs::read_to_string(kernels.join(name)).unwrap()
}

/// Writes the kernels into a folder, with another text in place of one of the sources.
pub fn write_sources(folder: &Path, changed: Option<(&str, &str)>) {
    for name in SOURCES {
        let text = changed.filter(|(changed, _)| *changed == name).map(|(_, text)| text.to_string());
        std::fs::write(folder.join(name), text.unwrap_or_else(|| source(name))).unwrap();
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp");
    std::fs::copy(own.join("kernels.cpp"), folder.join("kernels.cpp")).unwrap();
}

/// The compiler of C++.
pub fn compiler() -> Command {
    let mut command = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".into()));
    command.args(["-std=c++17", "-ffp-contract=off", "-DSIMT", "-I"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp"));
    command
}

/// Compiles them as a library that is opened.
fn compile(folder: &Path, changed: Option<(&str, &str)>) -> LaunchFunction {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    write_sources(folder, changed);
    let library = folder.join("kernels.so");
    let made = compiler()
        .args(["-O1", "-shared", "-fPIC", "-I"])
        .arg(folder)
        .arg(own.join("cpp/simt.cpp"))
        .arg(folder.join("kernels.cpp"))
        .arg("-o")
        .arg(&library)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let name = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library was just made of sources that begin nothing on their own; it is never closed.
    let function = unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null(), "it cannot be opened");
        libc::dlsym(library, c"simt_launch".as_ptr())
    };
    assert!(!function.is_null());
    // SAFETY: the function is that of `cpp/kernels.cpp`.
    unsafe { std::mem::transmute::<*mut libc::c_void, LaunchFunction>(function) }
}

/// Names the mutant that a process of its own tries: its number, or nothing for the kernels as they are.
const TRIED: &str = "BATHYAL_MUTANT";

/// Looks for what is wrong with one mutant. It may write wherever it likes, so that this is a process of its own.
#[test]
fn one_of_them() {
    let Ok(number) = std::env::var(TRIED) else { return };
    let mutant = number.parse::<usize>().ok().map(|number| MUTANTS[number]);
    let text = mutant.map(|(_, name, from, to)| (name, source(name).replace(from, to)));
    // What is wrong with a kernel is looked for where it runs.
    let is_of = |kernel: &str| match mutant.map(|(what, ..)| what.split_once(": ").map_or("", |(of, _)| of)) {
        None => true,
        Some(of) => of == kernel,
    };
    let folder = tempfile::tempdir().unwrap();
    let function = compile(folder.path(), text.as_ref().map(|(name, text)| (*name, &**text)));
    let walks = Walks::new("axes", 32, 128, 90, (150, 4));
    // Of few links, so that where it begins is felt.
    let sparse = Walks::new("axes", 37, 24, 5, (30, 1));
    let groups = Groups::new("axes", 33, 60, 300, 150, Metric::L2);
    // Of pages with more links than a launch takes; of lists that are full at once, so that few links are near, and of one that is full
    // amid a page's; of few links, so that where it begins is felt; and of pages so large that the last one is nearly empty.
    let pages = [
        Paged::new(("axes", 32, 128), (2, 60, 25), (10, 2)),
        Paged::new(("axes", 32, 128), (2, 60, 4), (25, 1)),
        Paged::new(("axes", 32, 128), (3, 1, 50), (300, 1)),
        Paged::new(("axes", 32, 128), (5, 200, 150), (60, 4)),
        Paged::new(("rabitq2", 24, 60), (140, 30, 500), (300, 2)),
    ];
    for seed in 0..4 {
        let options = EmulatedOptions { seed, ..EmulatedOptions::default() };
        // SAFETY: libraries stay open.
        let card = unsafe { EmulatedCard::with(function, options) };
        if is_of("scan") {
            groups.check(&card).unwrap();
        }
        if is_of("pages") {
            pages.iter().try_for_each(|pages| pages.check(&card)).unwrap();
        }
        if is_of("") {
            walks.check(&card).and_then(|()| sparse.check(&card)).unwrap();
        }
    }
}

/// Whether a mutant was found out, and what was said.
fn try_one(number: &str) -> (bool, String) {
    let tried = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mutants::one_of_them", "--nocapture"])
        .env(TRIED, number)
        .output()
        .unwrap();
    let said = [tried.stdout, tried.stderr].concat();
    (!tried.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn kernels_with_a_mistake_are_found_out() {
    let (failed, said) = try_one("none");
    assert!(!failed, "without a change: {said}");
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for (number, (what, name, from, _)) in MUTANTS.iter().enumerate().skip(half).step_by(2) {
                    assert_eq!(source(name).matches(from).count(), 1, "{what}: the kernel has changed");
                    let (found_out, said) = try_one(&number.to_string());
                    assert!(!said.contains("error: "), "{what}: it was not compiled: {said}");
                    assert!(found_out, "{what}: nobody has noticed");
                }
            });
        }
    });
}
