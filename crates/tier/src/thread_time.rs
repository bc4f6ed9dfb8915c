//! Processor time of a thread.

/// Returns the processor time of this thread in nanoseconds, by a system call.
#[cfg(unix)]
pub fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every supported Unix, and the result has room.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Returns the processor time of this thread in nanoseconds, in steps of the system's clock ticks, by a
/// system call.
#[cfg(windows)]
pub fn thread_ns() -> u64 {
    use windows_sys::Win32::Foundation::FILETIME;
    use windows_sys::Win32::System::Threading::{GetCurrentThread, GetThreadTimes};
    let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    let [begun, ended, system, own] = &mut times;
    // SAFETY: the handle is this thread's and needs no closing; the results have room.
    unsafe { GetThreadTimes(GetCurrentThread(), begun, ended, system, own) };
    // In units of 100 ns.
    let ticks = |time: &FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    (ticks(&times[2]) + ticks(&times[3])) * 100
}
