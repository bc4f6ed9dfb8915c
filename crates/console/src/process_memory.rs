//! The peak memory of this process.

/// Returns the peak resident memory of this process so far, in bytes, including the touched pages of mapped
/// files; `None` if the system does not report it.
#[cfg(target_os = "linux")]
pub fn peak_rss_bytes() -> Option<u64> {
    // Not `getrusage`: its peak survives `exec`, so a small command that a large process starts would look
    // large.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = peak.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}

/// Returns the peak resident memory of this process so far, in bytes, including the touched pages of mapped
/// files; `None` if the system does not report it.
#[cfg(all(unix, not(target_os = "linux")))]
pub fn peak_rss_bytes() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole `rusage`, which the call fills in.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if status != 0 {
        return None;
    }
    // SAFETY: all fields are integers, zero at the start and filled in by the call that succeeded.
    let usage = unsafe { usage.assume_init() };
    // macOS counts in bytes, the BSDs in KiB.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    u64::try_from(usage.ru_maxrss).ok().map(|peak| peak * unit)
}

/// Returns `None`: not implemented on this system.
#[cfg(not(unix))]
pub fn peak_rss_bytes() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_peak_includes_resident_memory() {
        let block = vec![1u8; 64 << 20];
        assert!(super::peak_rss_bytes().unwrap() >= block.iter().map(|&b| u64::from(b)).sum::<u64>());
    }
}
