//! The processor time of this process.

/// Returns the processor time of all threads of this process so far, in seconds; `None` if the system does
/// not report it.
#[cfg(unix)]
pub(crate) fn processor_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

/// Returns `None`: not implemented on this system.
#[cfg(not(unix))]
pub(crate) fn processor_seconds() -> Option<f64> {
    None
}
