//! Processor time of a thread and of the process.

/// Returns the processor time of this thread in nanoseconds, by a system call.
#[cfg(unix)]
pub fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of all threads of this process in nanoseconds, by a system call.
#[cfg(unix)]
pub fn process_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(unix)]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both clocks exist on every supported Unix, and the result has room.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Returns the processor time of this thread in nanoseconds, in steps of the system's clock ticks, by a
/// system call.
#[cfg(windows)]
pub fn thread_ns() -> u64 {
    use windows_sys::Win32::System::Threading::{GetCurrentThread, GetThreadTimes};
    // SAFETY: the handle is this thread's and needs no closing; the results have room.
    used_ns(|[begun, ended, system, own]| unsafe {
        GetThreadTimes(GetCurrentThread(), begun, ended, system, own);
    })
}

/// Returns the processor time of all threads of this process in nanoseconds, in steps of the system's clock
/// ticks, by a system call.
#[cfg(windows)]
pub fn process_ns() -> u64 {
    use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes};
    // SAFETY: the handle is this process's and needs no closing; the results have room.
    used_ns(|[begun, ended, system, own]| unsafe {
        GetProcessTimes(GetCurrentProcess(), begun, ended, system, own);
    })
}

/// Returns the time in the system and outside of it, which are the third and fourth time of `take`.
#[cfg(windows)]
fn used_ns(take: impl FnOnce(&mut [windows_sys::Win32::Foundation::FILETIME; 4])) -> u64 {
    use windows_sys::Win32::Foundation::FILETIME;
    let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    take(&mut times);
    // In units of 100 ns.
    let ticks = |time: &FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    (ticks(&times[2]) + ticks(&times[3])) * 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_the_time_of_its_thread_and_of_the_process() {
        let before = (thread_ns(), process_ns());
        let work = || {
            let sum = (0..20_000_000_u64).fold(0, |sum, i| sum ^ std::hint::black_box(i));
            std::hint::black_box(sum);
        };
        work();
        let alone = (thread_ns(), process_ns());
        assert!(alone.0 > before.0 && alone.1 - before.1 >= alone.0 - before.0, "{before:?} {alone:?}");
        // The work of another thread counts for the process only.
        let other = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let before = thread_ns();
                work();
                thread_ns() - before
            });
            other.join().unwrap()
        });
        assert!(process_ns() - alone.1 >= other, "{other}");
    }
}
