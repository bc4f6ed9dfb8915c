//! Limits, memory and thread priorities of this process.

#[cfg(target_os = "linux")]
use std::collections::HashMap;
#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::time::Duration;

/// Assumed limit of open files on systems that do not report one.
#[cfg(not(unix))]
const USUAL_FILES: u64 = 4096;

/// Returns the present limit of open files and sockets of this process.
#[cfg(unix)]
pub fn open_files_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the result has room.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    // The least that POSIX allows, if the limit is unknown.
    if known { limit.rlim_cur } else { 20 }
}

/// Returns the assumed limit of open files and sockets of this process.
#[cfg(not(unix))]
pub fn open_files_limit() -> u64 {
    USUAL_FILES
}

/// Returns freed memory to the system. For each of its arenas, the allocator keeps up to twice the size of
/// the largest block freed so far (blocks up to 32 MiB), and all free memory between allocated blocks; no
/// budget counts it. Call this when much was freed and other work begins; it visits every free block of the
/// process.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it does not touch allocated memory.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// A thread's share of a core that other threads want, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A tenth of the share of each other thread.
    Tenth,
    /// Almost none: the thread runs while the core is otherwise idle.
    Rest,
}

/// Lowers the priority of the calling thread, and of threads that it starts from now on, to the given share
/// of a core, as far as the system can. It cannot be raised again, so call this on threads that are started
/// for such work.
#[cfg(target_os = "linux")]
pub fn yield_to_others(share: Share) {
    // Ten steps of niceness give two threads on one core a ratio of 10 to 1.
    const STEPS: libc::c_int = 10;
    // SAFETY: no memory is involved; 0 is the calling thread. A refusal leaves its priority unchanged.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, STEPS) };
    if share == Share::Rest {
        // SAFETY: every field may be 0, as it must be for threads without deadlines.
        let unused: libc::sched_param = unsafe { std::mem::zeroed() };
        // Another thread that wakes up preempts an idle-class thread at once. A thread of merely low priority
        // may keep the core until the next tick of the clock.
        // SAFETY: the parameter is valid for the call. A refusal leaves the thread's policy unchanged.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const unused) };
    }
}

/// Does nothing: on this system the share of a thread cannot be lowered.
#[cfg(not(target_os = "linux"))]
pub fn yield_to_others(_share: Share) {}

/// Watches the threads of this process that run with [`Share::Rest`].
#[derive(Debug, Default)]
pub struct RestWatch {
    /// Processor time of each thread at the last call, in ticks of the system's clock, by the thread's
    /// number.
    #[cfg(target_os = "linux")]
    computed: HashMap<OsString, u64>,
}

impl RestWatch {
    /// Returns the total processor time of these threads since the last call, and whether one of them runs or
    /// waits for a core. Returns `None` if the system does not report it.
    #[cfg(target_os = "linux")]
    pub fn look(&mut self) -> Option<(Duration, bool)> {
        let (mut ticks, mut wants, mut seen) = (0, false, HashMap::new());
        for thread in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
            // The thread may have ended meanwhile.
            let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { continue };
            let Some((computed, runs)) = idle_class_ticks(&stat) else { continue };
            let before = self.computed.get(&thread.file_name()).copied().unwrap_or(0);
            ticks += computed.saturating_sub(before);
            wants |= runs;
            seen.insert(thread.file_name(), computed);
        }
        self.computed = seen;
        // SAFETY: no memory is involved.
        let ticks_per_s =
            u32::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|ticks| *ticks > 0)?;
        Some((Duration::from_secs(ticks) / ticks_per_s, wants))
    }

    /// Returns `None`: this system does not report it.
    #[cfg(not(target_os = "linux"))]
    pub fn look(&mut self) -> Option<(Duration, bool)> {
        None
    }
}

/// Parses a thread's `stat` line. Returns its processor time in ticks, and whether it runs or waits for a
/// core. Returns `None` if the thread is not in the idle class ([`Share::Rest`]).
#[cfg(target_os = "linux")]
fn idle_class_ticks(stat: &str) -> Option<(u64, bool)> {
    // The fields from the third on follow the thread's name, which may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    if number(38)? != libc::SCHED_IDLE as u64 {
        return None;
    }
    Some((number(11)? + number(12)?, fields[0] == "R"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_plausible() {
        assert!(open_files_limit() >= 16);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_lowered_share_applies_to_the_thread_and_its_children_only() {
        // The fields from the third on follow the thread's name, which may contain anything.
        let nice_and_policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            let (nice, policy) = (fields[16], fields[38]);
            (nice.parse::<i32>().unwrap(), policy.parse::<i32>().unwrap())
        };
        let before = nice_and_policy();
        for (share, policy) in [(Share::Tenth, before.1), (Share::Rest, libc::SCHED_IDLE)] {
            let (thread, child) = std::thread::spawn(move || {
                yield_to_others(share);
                (nice_and_policy(), std::thread::spawn(nice_and_policy).join().unwrap())
            })
            .join()
            .unwrap();
            let expected = (before.0.max(10), policy);
            assert_eq!((thread, child, nice_and_policy()), (expected, expected, before));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_threads_of_the_idle_class_are_watched() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let line = |state: &'static str, policy: &'static str| {
            let mut fields = ["0"; 50];
            (fields[0], fields[11], fields[12], fields[38]) = (state, "31", "11", policy);
            format!("7 (a) b) {}", fields.join(" "))
        };
        assert_eq!(idle_class_ticks(&line("R", "5")), Some((42, true)));
        assert_eq!(idle_class_ticks(&line("S", "5")), Some((42, false)));
        assert_eq!(idle_class_ticks(&line("R", "0")), None);
        assert_eq!(idle_class_ticks("7 (short) R 1"), None);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                yield_to_others(Share::Rest);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let (mut watch, mut computed, mut wanted) = (RestWatch::default(), Duration::ZERO, false);
            // No time limit: other tests may use all cores.
            while computed < Duration::from_millis(50) || !wanted {
                let (more, wants) = watch.look().unwrap();
                (computed, wanted) = (computed + more, wanted | wants);
                std::thread::sleep(Duration::from_millis(10));
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
