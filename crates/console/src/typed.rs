//! Parsers and defaults of option values that several commands share.

use bathyal_index::Effort;
use bathyal_tier::TierProfile;
use bathyal_tier::layer::delay::DelayProfile;

/// Neighbours per query when `-k` is not given, as in the tables of the papers.
pub const DEFAULT_K: u32 = 10;

/// Most neighbours per query.
pub const MAX_K: u64 = 65_536;

/// Parses a recall.
///
/// # Errors
/// A sentence that says which values are valid.
pub fn parse_recall(text: &str) -> Result<f32, String> {
    in_range(text, Effort::Recall, "recall is a share, above 0 and at most 1, for example 0.95")
}

/// Parses an overall ratio to aim for.
///
/// # Errors
/// A sentence that says which values are valid.
pub fn parse_ratio(text: &str) -> Result<f32, String> {
    in_range(text, Effort::Ratio, "ratio is a number of at least 1, for example 1.05")
}

/// Parses the number of an effort. `expected` describes it to a user who typed something else.
fn in_range(text: &str, effort: fn(f32) -> Effort, expected: &str) -> Result<f32, String> {
    let number = text.parse::<f32>().map_err(|_| expected.to_owned())?;
    effort(number).checked().map_err(|refused| refused.to_string())?;
    Ok(number)
}

/// Parses a number of threads; 0, `auto` and `all` mean all cores, for which it returns 0.
///
/// # Errors
/// A sentence that says which values are valid.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" | "all" => Ok(0),
        number => {
            number.parse().map_err(|_| "write a number of threads; 0 or auto means all cores".to_owned())
        }
    }
}

/// Parses the name of a device that can be emulated, or reads a JSON file with its profile.
///
/// # Errors
/// A sentence that lists the devices, or names the fault of the file.
pub fn parse_device(text: &str) -> Result<DelayProfile, String> {
    DelayProfile::named_or_file(text).map_err(|e| e.to_string())
}

/// Reads the profile of a device from the file that a probe wrote.
///
/// # Errors
/// A sentence that names the fault of the file.
pub fn parse_profile(path: &str) -> Result<TierProfile, String> {
    TierProfile::from_file(path).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_earlier_versions_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("profile.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            parse_profile(path.to_str().unwrap())
        };
        // A profile without the cost of issuing a read, as earlier versions saved it.
        let old = r#"{"kind": "file", "method": "io_uring", "granularity": 512, "alignment": 512,
            "addressable": false, "latency_ns": 90000, "iops": 250000.0, "bandwidth_bytes_per_s": 2e9,
            "depth": 64}"#;
        let profile = read(old).unwrap();
        assert_eq!((profile.latency_ns, profile.issue_ns), (90_000, 0));
        assert!(read(&old.replace("250000.0", "-1.0")).unwrap_err().contains("iops"));
        assert!(read("{}").unwrap_err().contains("is not a profile"));
        assert!(parse_profile("/nowhere/at/all").unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn threads_are_parsed() {
        for (text, threads) in [("0", 0), ("auto", 0), ("ALL", 0), ("12", 12)] {
            assert_eq!(parse_threads(text), Ok(threads), "{text}");
        }
        for text in ["", "-1", "many", "1.5", "99999999999999999999"] {
            assert!(parse_threads(text).is_err(), "{text}");
        }
    }

    #[test]
    fn recall_is_parsed() {
        assert_eq!(parse_recall("0.95"), Ok(0.95));
        for text in ["0", "1.01", "-1", "nan", "high", ""] {
            assert!(parse_recall(text).is_err(), "{text}");
        }
    }
}
