//! Counters that change only on purpose, for every instruction set of this processor.
//!
//! Codes and centroids are trained in floating point, and rounding differs between instruction sets. A
//! process chooses the best instruction set once. A test therefore starts a process for each of them, which
//! compares its counters with the golden file.

use bathyal_kernels::Isa;
use serde_json::{Map, Value};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Environment variable of a process that runs for one instruction set.
const ONE: &str = "BATHYAL_GOLDEN_ONE";
/// Environment variable that limits the instruction set.
const LIMIT: &str = "BATHYAL_ISA";
/// Environment variable that makes tests write the counters instead of comparing them.
const REWRITE: &str = "BATHYAL_REWRITE_GOLDEN";
/// Output of a process whose instruction set is not in the golden file.
const NONE_YET: &str = "no golden counters yet";

/// Runs the test `name` of `module` (its `module_path!()`) in a process for every instruction set, and
/// returns true. Returns false in those processes, which then continue with the test.
pub fn ran_on_every_isa(module: &str, name: &str) -> bool {
    let module = module.split_once("::").map_or("", |(_, module)| module);
    let name = &format!("{module}::{name}");
    if std::env::var_os(ONE).is_some() {
        return false;
    }
    let (available, absent): (Vec<Isa>, Vec<Isa>) = Isa::ALL.into_iter().partition(|isa| isa.is_available());
    let start = |isa: &Isa| {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args([name, "--exact", "--nocapture"]).env(ONE, "1").env(LIMIT, isa.name());
        (*isa, again.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let (mut compared, mut skipped) = (0, Vec::new());
    skipped.extend(absent.iter().map(|isa| format!("{isa} (this processor has none)")));
    // Processes that write to the same file run one after the other.
    let processes = if std::env::var_os(REWRITE).is_some() { 1 } else { available.len() };
    for group in available.chunks(processes) {
        let running: Vec<(Isa, Child)> = group.iter().map(start).collect();
        for (isa, running) in running {
            let ran = running.wait_with_output().unwrap();
            let output = String::from_utf8_lossy(&ran.stdout);
            let errors = String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success() && output.contains("1 passed"), "{isa}: {output}\n{errors}");
            if output.contains(NONE_YET) {
                skipped.push(format!("{isa} ({NONE_YET}; {REWRITE}=1 writes them)"));
            } else {
                compared += 1;
            }
        }
    }
    println!(
        "{name}: compared on {compared} instruction sets, skipped {}: {}",
        skipped.len(),
        skipped.join(", ")
    );
    true
}

/// Compares `found` with the counters of this instruction set in the golden file `name`.
pub fn compare(name: &str, found: Value) {
    let isa = Isa::best();
    let key = format!("{isa:?}");
    assert_eq!(std::env::var(LIMIT).as_deref(), Ok(isa.name()));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/golden").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
    let mut golden: Map<String, Value> = serde_json::from_str(&text).unwrap();
    if std::env::var_os(REWRITE).is_some() {
        golden.insert(key, found);
        std::fs::write(&path, serde_json::to_string_pretty(&golden).unwrap() + "\n").unwrap();
        return;
    }
    match golden.get(&key) {
        Some(expected) => assert_eq!(&found, expected, "{isa}: rewrite with {REWRITE}=1 if this is wanted"),
        None => println!("{NONE_YET}"),
    }
}
