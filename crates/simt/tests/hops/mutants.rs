//! The kernels with a word changed: each has to be found out, or the tests would not see such a mistake.

use super::walks::Walks;
use bathyal_simt::{EmulatedCard, EmulatedOptions, LaunchFunction};
use std::ffi::CString;
use std::path::Path;
use std::process::Command;

/// What is changed, and to what.
const MUTANTS: [(&str, &str, &str); 11] = [
    (
        "no barrier before a merge",
        "room.links[thread] = key;\n    __syncthreads();",
        "room.links[thread] = key;",
    ),
    ("no barrier after a merge", "merge(room, held);\n    __syncthreads();", "merge(room, held);"),
    (
        "no barrier between writing and reading in a sort",
        "exchange[thread] = key;\n        __syncthreads();",
        "exchange[thread] = key;",
    ),
    (
        "no barrier between reading and writing in a sort",
        "other = exchange[thread ^ stride];\n        __syncthreads();",
        "other = exchange[thread ^ stride];",
    ),
    (
        "no barrier behind the counts of warps",
        "room.counts[warp] = __popc(ballot);\n    __syncthreads();",
        "room.counts[warp] = __popc(ballot);",
    ),
    ("no barrier before the list is stored", "next);\n  __syncthreads();", "next);"),
    (
        "a barrier that not all threads reach",
        "if (thread < 32) choose",
        "if (thread < 64) __syncthreads();\n  if (thread < 32) choose",
    ),
    ("a shuffle that forgets a lane", "__shfl_xor_sync(ALL_LANES, key", "__shfl_xor_sync(0x7fffffffu, key"),
    (
        "a ballot that counts its own lane",
        "((1u << lane) - 1));\n    for (u32 w",
        "((2u << lane) - 1));\n    for (u32 w",
    ),
    (
        "duplicates that were expanded are kept",
        "room.merged[i - 1] >> 1 != key >> 1",
        "room.merged[i - 1] != key",
    ),
    ("what is expanded stays fresh", "room.list[i] &= ~1ull;", ""),
];

/// Compiles the kernels with `changed` in place of `hop.cu`.
fn compile(folder: &Path, changed: &str) -> LaunchFunction {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kernels = own.join("../gpu/kernels");
    std::fs::write(folder.join("hop.cu"), changed).unwrap();
    for (from, name) in [(own.join("cpp"), "kernels.cpp"), (kernels, "device.h")] {
        std::fs::copy(from.join(name), folder.join(name)).unwrap();
    }
    let library = folder.join("kernels.so");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let made = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-DSIMT", "-I"])
        .arg(folder)
        .arg("-I")
        .arg(own.join("cpp"))
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

#[test]
fn kernels_with_a_mistake_are_found_out() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/kernels/hop.cu");
    let source = std::fs::read_to_string(source).unwrap();
    let walks = Walks::new("axes", 32, 128, 90, (150, 4));
    let found_out = |function: LaunchFunction| {
        (0..4).find_map(|seed| {
            let options = EmulatedOptions { seed, ..EmulatedOptions::default() };
            // SAFETY: libraries stay open.
            let card = unsafe { EmulatedCard::with(function, options) };
            walks.check(&card).err()
        })
    };
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(found_out(compile(folder.path(), &source)), None, "without a change");
    for (what, from, to) in MUTANTS {
        assert_eq!(source.matches(from).count(), 1, "{what}: the kernel has changed");
        let folder = tempfile::tempdir().unwrap();
        let reason = found_out(compile(folder.path(), &source.replace(from, to)));
        println!("{what}: {reason:?}");
        assert!(reason.is_some(), "{what}: nobody has noticed");
    }
}
