//! How much memory this process has taken.

/// The most memory that this process has had resident so far, in bytes; `None` where the system does not say.
/// Counts mapped files as far as they were touched.
pub fn peak_rss_bytes() -> Option<u64> {
    #[cfg(unix)]
    {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a whole `rusage`, which the call fills in.
        let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
        if status != 0 {
            return None;
        }
        // SAFETY: all fields are integers, zero at the start and filled in by the call that succeeded.
        let usage = unsafe { usage.assume_init() };
        // Linux counts in KiB, macOS in bytes.
        let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
        u64::try_from(usage.ru_maxrss).ok().map(|peak| peak * unit)
    }
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn peak_covers_what_is_resident() {
        let block = vec![1u8; 64 << 20];
        assert!(super::peak_rss_bytes().unwrap() >= block.iter().map(|&b| u64::from(b)).sum::<u64>());
    }
}
