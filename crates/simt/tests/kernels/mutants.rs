//! The kernels with a word changed: each has to be found out, or the tests would not see such a mistake.

use super::groups::Groups;
use super::losses::Grouped;
use super::pages::Paged;
use super::pairs::Pairs;
use super::walks::Walks;
use bathyal_gpu::nearest::Cells;
use bathyal_kernels::{Element, Metric};
use bathyal_simt::{EmulatedCard, EmulatedOptions, LaunchFunction};
use std::ffi::CString;
use std::path::Path;
use std::process::Command;

/// What is changed, in which source, and to what.
pub const MUTANTS: [(&str, &str, &str, &str); 69] = [
    (
        "no barrier before a merge",
        "graph.h",
        "room.links[thread] = key;\n  __syncthreads();",
        "room.links[thread] = key;",
    ),
    ("no barrier after a merge", "graph.h", "merge(room, held);\n  __syncthreads();", "merge(room, held);"),
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
        "keys.h",
        "counts[warp] = __popc(ballot);\n  __syncthreads();",
        "counts[warp] = __popc(ballot);",
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
        "keys.h",
        "((1u << (threadIdx.x & 31)) - 1)",
        "((2u << (threadIdx.x & 31)) - 1)",
    ),
    (
        "duplicates that were expanded are kept",
        "graph.h",
        "room.merged[i - 1] >> 1 != key >> 1",
        "room.merged[i - 1] != key",
    ),
    ("all pivots are looked at", "graph.h", "ids.all[(u64)i * ids.step]", "ids.all[(u64)i]"),
    ("all pivots stay", "hop.cu", "part ? work.list : work.starts", "work.list"),
    ("what is expanded stays fresh", "graph.h", "      room.list[i] &= ~1ull;", ""),
    ("pages: places behind the last are candidates", "pages.cu", "if (place < args.vectors) key", "key"),
    ("pages: the first of a page alone", "pages.cu", "args.records + i % args.records;", "args.records;"),
    (
        "pages: no barrier before near pages are looked at",
        "pages.cu",
        "if (is_near) near[votes.before] = place / args.records;\n      __syncthreads();",
        "if (is_near) near[votes.before] = place / args.records;",
    ),
    (
        "pages: no barrier before the first are looked at",
        "pages.cu",
        "near[thread] = links[0] / args.records;\n    __syncthreads();",
        "near[thread] = links[0] / args.records;",
    ),
    ("pages: the entry point is left out", "pages.cu", "near, held + 1, 0", "near, held, 0"),
    ("pages: links are near without slack", "pages.cu", "work.list), work.slack)", "work.list), 0.0f)"),
    (
        "pages: a page that goes on forgets what was near",
        "pages.cu",
        "if (page > 0 || !work.continues) limit",
        "limit",
    ),
    ("pages: what is near is not kept", "pages.cu", "(u64)__float_as_uint(limit) << 32 | held", "held"),
    (
        "pages: the nearest candidate alone is expanded",
        "pages.cu",
        "if (((u32)room.list[i] >> 1) / records == page)",
        "if (i < first + 32 && (u32)room.list[i] / 2 / records == page)",
    ),
    (
        "pages: no barrier before the list is stored",
        "pages.cu",
        "answer + 1);\n  __syncthreads();",
        "answer + 1);",
    ),
    ("pages: a full list lets all in", "pages.cu", "bits ^ 0x80000000u : ~bits", "~bits : bits"),
    (
        "scan: no barrier behind what waits",
        "groups.h",
        "waiting += kept.all;\n      __syncthreads();",
        "waiting += kept.all;",
    ),
    (
        "scan: no barrier before a merge",
        "keys.h",
        "sorting[thread] = key;\n  __syncthreads();",
        "sorting[thread] = key;",
    ),
    (
        "scan: no barrier behind a merge",
        "keys.h",
        "kept = all < most ? all : most;\n  __syncthreads();",
        "kept = all < most ? all : most;",
    ),
    ("scan: what was not merged is lost", "groups.h", "room.waiting[thread] = left;", ""),
    (
        "scan: the worst of the list is one too good",
        "groups.h",
        "room.list[work.list - 1]",
        "room.list[work.list / 2]",
    ),
    (
        "scan: the last codes are left out",
        "groups.h",
        "if (waiting > 0) held = take_waiting",
        "if (waiting > 64) held = take_waiting",
    ),
    (
        "walk: no barrier after the next were chosen",
        "walk.cu",
        "work.width, next);\n    }\n    __syncthreads();",
        "work.width, next);\n    }",
    ),
    (
        "walk: no barrier behind distances",
        "walk.cu",
        "args.ids[next[i]]);\n    }\n    __syncthreads();",
        "args.ids[next[i]]);\n    }",
    ),
    ("walk: where it begins is forgotten", "walk.cu", "count = 1;", "count = 0;"),
    (
        "walk: links of one vector too few",
        "walk.cu",
        "count = width * args.degree;",
        "count = (width - 1) * args.degree;",
    ),
    (
        "walk: one hop too many is counted",
        "walk.cu",
        "if (width == 0) break;",
        "hops += width == 0;\n    if (width == 0) break;",
    ),
    ("rerank: places in place of ids", "rerank.cu", "args.ids[place]);", "place);"),
    (
        "rerank: what comes behind a round is left out",
        "rerank.cu",
        "if (at >= held) break;",
        "if (at >= held || first > 0) break;",
    ),
    (
        "rerank: as many answers as codes",
        "rerank.cu",
        "room.sorting, kept, wanted);",
        "room.sorting, kept, args.best_room);",
    ),
    ("exact: the last components are left out", "exact.h", "4 * w < exact.dim;", "4 * w + 4 <= exact.dim;"),
    (
        "exact: a lane is not added",
        "exact.h",
        "sums.ab += __shfl",
        "sums.ab = (threadIdx.x & 31) == 9 ? 0 : sums.ab;\n    sums.ab += __shfl",
    ),
    (
        "exact: bits that both have, where those count that differ",
        "exact.h",
        "exact.metric == SQUARED_L2 ? a ^ b : a & b",
        "a & b",
    ),
    ("exact: the last bits are left out", "exact.h", "32 * w < bits;", "32 * w + 32 <= bits;"),
    ("exact: products have no sign", "exact.h", "const bool negative = ", "const bool negative = false && "),
    (
        "nearest: no barrier before cells are taken",
        "nearest.cu",
        "    __syncthreads();\n    take_cells",
        "    take_cells",
    ),
    (
        "nearest: no barrier behind the cells",
        "nearest.cu",
        "step, vectors);\n    __syncthreads();",
        "step, vectors);",
    ),
    ("nearest: rows beyond the last", "nearest.cu", "row < count && at < words", "at < words"),
    ("nearest: words beyond the last", "nearest.cu", "row < count && at < words", "row < count"),
    ("nearest: a query that there is not", "nearest.cu", "if (query >= query_count) continue;", ""),
    ("nearest: a vector that there is not", "nearest.cu", "if (row >= count) continue;", ""),
    (
        "nearest: what is not a number stays away",
        "nearest.cu",
        "!(value > args.limits[first_query + query])",
        "value <= args.limits[first_query + query]",
    ),
    ("nearest: more pairs than there is room for", "nearest.cu", "if (at < args.room) args", "args"),
    ("nearest: bits of the query alone", "nearest.cu", "__popc(a & b)", "__popc(a)"),
    ("nearest: the lower half stays", "nearest.cu", "value & 0xffff0000u", "value"),
    ("nearest: one half of a word", "nearest.cu", "half_float(value >> 16)", "half_float(value)"),
    (
        "nearest: signed bytes as unsigned",
        "nearest.cu",
        "(u32)dot4(a, b, (int)sum)",
        "dot4_unsigned(a, b, sum)",
    ),
    (
        "nearest: the bias of another vector",
        "nearest.cu",
        "args.biases[args.first + first_vector + row]",
        "args.biases[first_vector + row]",
    ),
    ("nearest: a place for one pair of several", "nearest.cu", "(u64)__popcll(near)", "1ull"),
    (
        "nearest: the number of another vector",
        "nearest.cu",
        "(args.first + first_vector + row_of(x",
        "(first_vector + row_of(x",
    ),
    (
        "loss: no barrier before coordinates are taken",
        "loss.cu",
        "    __syncthreads();\n    for (u32 i = thread; i < COORDINATES * MEMBERS",
        "    for (u32 i = thread; i < COORDINATES * MEMBERS",
    ),
    (
        "loss: no barrier behind the coordinates",
        "loss.cu",
        "    __syncthreads();\n    // Zeros",
        "    // Zeros",
    ),
    (
        "loss: no barrier behind the squares",
        "loss.cu",
        "squares[thread] = square;\n  __syncthreads();",
        "squares[thread] = square;",
    ),
    ("loss: members beyond the last are read", "loss.cu", "member < count && at < args.dim", "at < args.dim"),
    ("loss: coordinates beyond the last", "loss.cu", "member < count && at < args.dim", "member < count"),
    (
        "loss: others beyond the last are read",
        "loss.cu",
        "other < args.others && at < args.dim",
        "at < args.dim",
    ),
    ("loss: members beyond the last are told", "loss.cu", "if (member >= count || other", "if (other"),
    (
        "loss: others beyond the last are told",
        "loss.cu",
        "member >= count || other >= args.others",
        "member >= count",
    ),
    ("loss: a block of no members goes on", "loss.cu", "if (tile >= held) return;", ""),
    (
        "loss: the mean of another group",
        "loss.cu",
        "(u64)(args.first + group) * args.dim",
        "(u64)group * args.dim",
    ),
    (
        "loss: a sum that is rounded once",
        "loss.cu",
        "__fadd_rn(sums[j][k], __fmul_rn(a[j], b[k]))",
        "__fmaf_rn(a[j], b[k], sums[j][k])",
    ),
];

/// The names of all sources.
fn sources() -> Vec<String> {
    let kernels = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/kernels")).unwrap();
    let names = kernels.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".cu") || name.ends_with(".h")).collect()
}

pub fn source(name: &str) -> String {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/kernels");
    std::fs::read_to_string(kernels.join(name)).unwrap()
}

/// Writes the kernels into a folder, with another text in place of one of the sources.
pub fn write_sources(folder: &Path, changed: Option<(&str, &str)>) {
    for name in sources() {
        let text = changed.filter(|(changed, _)| *changed == name).map(|(_, text)| text.to_string());
        std::fs::write(folder.join(&name), text.unwrap_or_else(|| source(&name))).unwrap();
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

/// Bytes of a card that has room for all.
const LARGE: u64 = 1 << 30;

/// Names the mutant that a process of its own tries: its number, or nothing for the kernels as they are.
const TRIED: &str = "BATHYAL_MUTANT";

/// Looks for what is wrong with one mutant. It may write wherever it likes, so that this is a process of its own.
#[test]
fn one_of_them() {
    let Ok(number) = std::env::var(TRIED) else { return };
    let mutant = number.parse::<usize>().ok().map(|number| MUTANTS[number]);
    let text = mutant.map(|(_, name, from, to)| (name, source(name).replace(from, to)));
    let folder = tempfile::tempdir().unwrap();
    let function = compile(folder.path(), text.as_ref().map(|(name, text)| (*name, &**text)));
    let changed = mutant.map(|(_, name, ..)| name);
    // What the kernels are without a change is looked at by other tests, too.
    for seed in 0..if changed.is_some() { 4 } else { 1 } {
        let card = |memory_bytes| {
            let options = EmulatedOptions { seed, memory_bytes, ..EmulatedOptions::default() };
            // SAFETY: libraries stay open.
            unsafe { EmulatedCard::with(function, options) }
        };
        for (sources, check) in CHECKS {
            if changed.is_none_or(|changed| sources.contains(&changed)) {
                check(&card).unwrap();
            }
        }
    }
}

/// Makes a card of so many bytes.
type OfBytes<'a> = &'a dyn Fn(u64) -> EmulatedCard;
type Check = fn(OfBytes<'_>) -> Result<(), String>;

/// What looks at which sources.
const CHECKS: [(&[&str], Check); 6] = [
    (&["hop.cu", "slots.h", "graph.h", "keys.h"], check_hops),
    (&["scan.cu", "groups.h", "keys.h"], check_scans),
    (&["walk.cu", "rerank.cu", "exact.h"], check_whole),
    (&["pages.cu"], check_pages),
    (&["nearest.cu"], check_pairs),
    (&["loss.cu"], check_losses),
];

fn check_hops(card: OfBytes<'_>) -> Result<(), String> {
    Walks::new("axes", 32, 128, 90, (150, 4)).check(&card(LARGE))?;
    // Of few links, so that where it begins is felt.
    Walks::new("axes", 37, 24, 5, (30, 1)).check(&card(LARGE))
}

fn check_scans(card: OfBytes<'_>) -> Result<(), String> {
    Groups::new("axes", 33, 60, 300, 150, Metric::L2).check(&card(LARGE))
}

fn check_whole(card: OfBytes<'_>) -> Result<(), String> {
    // Of lists that hold all that can be reached.
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

fn check_pages(card: OfBytes<'_>) -> Result<(), String> {
    // Of pages with more links than a launch takes; of lists that are full at once, so that few links are near, and of one that is full
    // amid a page's; of few links, so that where it begins is felt; and of pages so large that the last one is nearly empty.
    let pages = [
        Paged::new(("axes", 32, 128), (2, 60, 25), (10, 2)),
        Paged::new(("axes", 32, 128), (2, 60, 4), (25, 1)),
        Paged::new(("axes", 32, 128), (3, 1, 50), (300, 1)),
        Paged::new(("axes", 32, 128), (5, 200, 150), (60, 4)),
        Paged::new(("rabitq2", 24, 60), (140, 30, 500), (300, 2)),
    ];
    pages.iter().try_for_each(|pages| pages.check(&card(LARGE)))
}

fn check_pairs(card: OfBytes<'_>) -> Result<(), String> {
    let pairs = [
        Pairs::new(Cells::Floats, 37, 130, 300),
        Pairs::new(Cells::Halves, 33, 5, 140),
        Pairs::new(Cells::Signed, 66, 5, 140),
        Pairs::new(Cells::UpperHalves, 33, 5, 140),
        Pairs::new(Cells::Bits, 104, 5, 140),
    ];
    pairs.iter().try_for_each(|pairs| pairs.check(&card(LARGE)))
}

fn check_losses(card: OfBytes<'_>) -> Result<(), String> {
    // Of several blocks in little memory.
    let grouped = Grouped::new(37, 70 * 13 + 5, 70, 5);
    grouped.check(&card(LARGE))?;
    grouped.check(&card(4 * 37 * (70 * 13 + 5)))
}

/// Whether a mutant was found out, and what was said.
fn try_one(number: &str) -> (bool, String) {
    // Who is stopped by a signal leaves its folders.
    let scratch = tempfile::tempdir().unwrap();
    let tried = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mutants::one_of_them", "--nocapture"])
        .env(TRIED, number)
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    let said = [tried.stdout, tried.stderr].concat();
    (!tried.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Tries all of them, and writes down that they were found out: `make check-mutants`.
const ALL: &str = "BATHYAL_MUTANTS";
/// Of what sources all were found out.
const CHECKED: &str = "tests/kernels/mutants.checked";
/// What decides whether they are: the kernels, what drives them, what stands for a card, and the tests.
const DECISIVE: [&str; 5] = ["../gpu/kernels", "../gpu/src", "cpp", "src", "tests/kernels"];
/// One of so many is tried where all were found out before.
const TRIED_OF: usize = 36;

/// The fingerprint (64 bits of FNV-1a) of what decides.
fn fingerprint() -> String {
    let mut paths = Vec::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    DECISIVE.iter().for_each(|folder| collect(&own.join(folder), &mut paths));
    paths.sort();
    let bytes = paths.iter().flat_map(|path| std::fs::read(path).unwrap());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The sources in a folder and the folders in it.
fn collect(folder: &Path, paths: &mut Vec<std::path::PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|kind| ["rs", "cu", "h", "cpp"].iter().any(|of| kind == *of)) {
            paths.push(path);
        }
    }
}

/// Whether all mutants are tried: where it is asked for, and where something has changed since they were last found out.
pub fn all_are_tried() -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHECKED);
    std::env::var_os(ALL).is_some()
        || std::fs::read_to_string(path).map_or(true, |checked| checked.trim() != fingerprint())
}

/// Each takes seconds to compile.
#[test]
fn kernels_with_a_mistake_are_found_out() {
    for (what, name, from, _) in MUTANTS {
        assert_eq!(source(name).matches(from).count(), 1, "{what}: the kernel has changed");
    }
    let step = if all_are_tried() { 1 } else { TRIED_OF };
    let (failed, said) = try_one("none");
    assert!(!failed, "without a change: {said}");
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = step * next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some((what, ..)) = MUTANTS.get(number) else { return };
                    let (found_out, said) = try_one(&number.to_string());
                    assert!(!said.contains("error: "), "{what}: it was not compiled: {said}");
                    assert!(found_out, "{what}: nobody has noticed");
                }
            });
        }
    });
    println!("{} of {} tried", MUTANTS.len().div_ceil(step), MUTANTS.len());
    if std::env::var_os(ALL).is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(CHECKED), fingerprint() + "\n").unwrap();
    } else if step == 1 {
        println!("all are tried each time until `make check-mutants` writes down that they were found out");
    }
}
