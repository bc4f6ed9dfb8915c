//! Runs of a program, and small generated files for them. The tests of `bathyal` and of `bathyal-repro` share
//! this file.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

/// The outcome of a run of a program.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    pub fn of(output: Output) -> Outcome {
        let text = |bytes| String::from_utf8(bytes).expect("the program prints UTF-8");
        Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Checks for exit code 0 and an empty stderr; returns stdout.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// Checks for exit code 0 and exactly one JSON object on stdout; returns the object.
    #[track_caller]
    pub fn json(self) -> Value {
        let stdout = self.good();
        let value: Value = serde_json::from_str(&stdout).expect("stdout is one JSON value");
        assert!(value.is_object());
        value
    }

    /// Checks for the exit code `code`, at most the error object of `--json` on stdout, and a message on
    /// stderr that contains all `parts` and is not a panic.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        if !self.stdout.is_empty() {
            let report: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{self:?}"));
            assert_eq!(report["error"]["exit_code"], code, "{self:?}");
        }
        self.mentions(parts);
    }

    /// Checks for a message on stderr that contains all `parts` and is not a panic.
    #[track_caller]
    pub fn mentions(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.stderr.contains(part), "'{part}' is missing in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(!self.stderr.contains("internal error"), "{}", self.stderr);
    }
}

/// Returns `count` pseudo-random numbers from -1 to 1, the same in every run.
pub fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Returns the bytes of an `.fbin` with `count` and `dim` in its header, whatever the number of `values`.
pub fn fbin(count: u32, dim: u32, values: &[f32]) -> Vec<u8> {
    let header = [count, dim].into_iter().flat_map(u32::to_le_bytes);
    header.chain(values.iter().flat_map(|value| value.to_le_bytes())).collect()
}

/// Writes `count x dim` numbers to `folder/name`.
pub fn write_vectors(folder: &Path, name: &str, count: usize, dim: usize, seed: u64) {
    let content = fbin(count as u32, dim as u32, &numbers(count * dim, seed));
    std::fs::write(folder.join(name), content).unwrap();
}

/// Returns the names in `folder`, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
