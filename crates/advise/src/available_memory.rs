//! The memory that is available to this process.

use std::fs::read_to_string;

/// Returns the bytes that the system can give to this process without swapping, at most those that are left
/// to its control group; `None` if the system does not report them.
pub(crate) fn available_memory() -> Option<u64> {
    let system = read_to_string("/proc/meminfo").ok().and_then(|text| available(&text))?;
    let group = |name: &str| {
        let text = read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    // Without a limit, the file says "max".
    let left = group("memory.max").zip(group("memory.current")).map(|(most, used)| most.saturating_sub(used));
    Some(left.map_or(system, |left| left.min(system)))
}

/// Returns the available bytes by the text of `/proc/meminfo`.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_bytes_are_read_from_the_report_of_the_system() {
        let text = "MemTotal:       16315900 kB\nMemAvailable:    8000 kB\n";
        assert_eq!(available(text), Some(8_192_000));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
        if cfg!(target_os = "linux") {
            assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
        }
    }
}
