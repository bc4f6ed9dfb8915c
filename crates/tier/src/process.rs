//! What the system lets this process have, and how it ranks its threads.

/// Files that a process may have open where the system does not say.
#[cfg(not(unix))]
const USUAL_FILES: u64 = 4096;

/// Files and sockets that this process may have open, as things are now.
#[cfg(unix)]
pub fn open_files_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the result has room.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    // What POSIX promises at least, where it is not known.
    if known { limit.rlim_cur } else { 20 }
}

/// Files and sockets that this process may have open, as things are now.
#[cfg(not(unix))]
pub fn open_files_limit() -> u64 {
    USUAL_FILES
}

/// Lets the calling thread, and those that it starts from now on, compute when others of this machine do not, as far as the system
/// can: it then has a tenth of what each of them has. There is no way back, so that it is for threads that are started for it.
#[cfg(target_os = "linux")]
pub fn yield_to_others() {
    // Of two threads on a core, ten steps are a ratio of 10 to 1.
    const STEPS: libc::c_int = 10;
    // SAFETY: no memory is involved; 0 is the calling thread. What is refused leaves it as it was.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, STEPS) };
}

/// Lets the calling thread compute when others of this machine do not, as far as the system can: here it cannot.
#[cfg(not(target_os = "linux"))]
pub fn yield_to_others() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_may_be_open() {
        assert!(open_files_limit() >= 16);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_yields_takes_those_that_it_starts_with_it_and_no_others() {
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // Behind the name, which may hold anything: the 19th field.
            let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            fields[16].parse::<i32>().unwrap()
        };
        let before = nice();
        let (own, started) = std::thread::spawn(move || {
            yield_to_others();
            (nice(), std::thread::spawn(nice).join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!((own, started, nice()), (before.max(10), before.max(10), before));
    }
}
