//! The processor time of this process.

/// Returns the processor time of all threads of this process so far, in seconds; `None` if the system does
/// not report it.
#[cfg(unix)]
pub fn processor_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

/// Returns `None`: not implemented on this system.
#[cfg(not(unix))]
pub fn processor_seconds() -> Option<f64> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn work_takes_processor_time() {
        let before = super::processor_seconds().unwrap();
        let sum = (0..20_000_000_u64).fold(0, |sum, i| sum ^ std::hint::black_box(i));
        std::hint::black_box(sum);
        assert!(super::processor_seconds().unwrap() > before);
    }
}
