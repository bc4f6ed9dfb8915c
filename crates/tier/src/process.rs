//! What the system lets this process have, and how it ranks its threads.

#[cfg(target_os = "linux")]
use std::collections::HashMap;
#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::time::Duration;

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

/// Gives the system back what was freed. The allocator keeps, for each of its arenas, up to twice the size of the largest block that
/// was freed so far, of as much as 32 MiB, and all that lies between what is held: no budget counts it. For moments at which much was
/// given up and much else begins; it takes as long as a look at every free block of the process.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes and changes no memory that anybody holds.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// What a thread has of a core that others want, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A tenth of what each of them has.
    Tenth,
    /// Next to nothing: it computes when they do not.
    Rest,
}

/// Leaves the cores to others of this machine but for such a share, as far as the system can: the calling thread, and those that it
/// starts from now on. There is no way back, so that it is for threads that are started for it.
#[cfg(target_os = "linux")]
pub fn yield_to_others(share: Share) {
    // Of two threads on a core, ten steps are a ratio of 10 to 1.
    const STEPS: libc::c_int = 10;
    // SAFETY: no memory is involved; 0 is the calling thread. What is refused leaves it as it was.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, STEPS) };
    if share == Share::Rest {
        // SAFETY: every field may be 0, and is for threads without deadlines.
        let unused: libc::sched_param = unsafe { std::mem::zeroed() };
        // A thread that wakes up does not wait for one of these, as it may for one of a low priority until the next tick of the clock.
        // SAFETY: the parameter is valid for the call. What is refused leaves the thread as it was.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const unused) };
    }
}

/// Leaves the cores to others of this machine, as far as the system can: here it cannot.
#[cfg(not(target_os = "linux"))]
pub fn yield_to_others(_share: Share) {}

/// Looks at the threads of this process that take the rest of the cores.
#[derive(Debug, Default)]
pub struct RestWatch {
    /// What each had computed at the last look, in ticks of the system's clock, by its number.
    #[cfg(target_os = "linux")]
    computed: HashMap<OsString, u64>,
}

impl RestWatch {
    /// How long they have computed since the last look, all together, and whether one of them wants a core. `None` where the system does
    /// not say.
    #[cfg(target_os = "linux")]
    pub fn look(&mut self) -> Option<(Duration, bool)> {
        let (mut ticks, mut wants, mut seen) = (0, false, HashMap::new());
        for thread in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
            // One that has ended meanwhile is of no interest.
            let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { continue };
            let Some((computed, runs)) = of_the_rest(&stat) else { continue };
            let before = self.computed.get(&thread.file_name()).copied().unwrap_or(0);
            ticks += computed.saturating_sub(before);
            wants |= runs;
            seen.insert(thread.file_name(), computed);
        }
        self.computed = seen;
        // SAFETY: no memory is involved.
        let a_second =
            u32::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|ticks| *ticks > 0)?;
        Some((Duration::from_secs(ticks) / a_second, wants))
    }

    /// What they do is not known here.
    #[cfg(not(target_os = "linux"))]
    pub fn look(&mut self) -> Option<(Duration, bool)> {
        None
    }
}

/// What a thread has computed, in ticks, and whether it runs or waits for a core, as the line of its `stat` says; `None` for one that
/// does not take the rest.
#[cfg(target_os = "linux")]
fn of_the_rest(stat: &str) -> Option<(u64, bool)> {
    // Behind the name, which may hold anything: the fields from the third on.
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
    fn some_files_may_be_open() {
        assert!(open_files_limit() >= 16);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_yields_takes_those_that_it_starts_with_it_and_no_others() {
        // Behind the name, which may hold anything: the fields from the third on.
        let ranks = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            let (nice, policy) = (fields[16], fields[38]);
            (nice.parse::<i32>().unwrap(), policy.parse::<i32>().unwrap())
        };
        let before = ranks();
        for (share, policy) in [(Share::Tenth, before.1), (Share::Rest, libc::SCHED_IDLE)] {
            let (own, started) = std::thread::spawn(move || {
                yield_to_others(share);
                (ranks(), std::thread::spawn(ranks).join().unwrap())
            })
            .join()
            .unwrap();
            let expected = (before.0.max(10), policy);
            assert_eq!((own, started, ranks()), (expected, expected, before));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_takes_the_rest_is_seen_computing_and_nothing_else_is() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let line = |state: &'static str, policy: &'static str| {
            let mut fields = ["0"; 50];
            (fields[0], fields[11], fields[12], fields[38]) = (state, "31", "11", policy);
            format!("7 (a) b) {}", fields.join(" "))
        };
        assert_eq!(of_the_rest(&line("R", "5")), Some((42, true)));
        assert_eq!(of_the_rest(&line("S", "5")), Some((42, false)));
        assert_eq!(of_the_rest(&line("R", "0")), None);
        assert_eq!(of_the_rest("7 (short) R 1"), None);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                yield_to_others(Share::Rest);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let (mut watch, mut computed, mut wanted) = (RestWatch::default(), Duration::ZERO, false);
            // As long as it takes: other tests may want all cores.
            while computed < Duration::from_millis(50) || !wanted {
                let (more, wants) = watch.look().unwrap();
                (computed, wanted) = (computed + more, wanted | wants);
                std::thread::sleep(Duration::from_millis(10));
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
