//! A handler of SIGBUS: memory that disappears while it is read causes an error instead of ending the
//! process.
//!
//! A read of a mapped file beyond its end (after a truncation), or of memory that the hardware reports as
//! failed, raises SIGBUS. The handler, installed once, looks the address up in a table of mapped regions. If
//! the address lies in one, the handler maps a page of zeros there, so that the read can end, and marks the
//! region as lost. Queues check the mark when reads complete and once more when a run ends, so no answer
//! comes from those zeros. The handler passes any other SIGBUS on to the previous handler. It uses only
//! atomics and system calls.

use crate::error::TierError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of regions that are mapped at a time in one process.
const MOST_REGIONS: usize = 256;
/// `start` of a free slot.
const FREE: usize = 0;
/// `start` of a slot that is being filled in; no mapping begins at this address.
const TAKEN: usize = 1;

struct Slot {
    /// First address, `FREE` or `TAKEN`. The other fields are valid while this is an address.
    start: AtomicUsize,
    len: AtomicUsize,
    /// Page size of the mapping: the bytes that can be replaced at once.
    granule: AtomicUsize,
    /// One more than the offset of the first lost byte, or 0.
    lost: AtomicUsize,
}

static SLOTS: [Slot; MOST_REGIONS] = [const {
    Slot {
        start: AtomicUsize::new(FREE),
        len: AtomicUsize::new(0),
        granule: AtomicUsize::new(0),
        lost: AtomicUsize::new(0),
    }
}; MOST_REGIONS];

/// Entry of a mapped region in the table. It must be dropped before the memory is unmapped.
#[derive(Debug)]
pub(super) struct Watch {
    slot: usize,
}

impl Watch {
    /// Enters `len` bytes from `start` on, mapped in pages of `granule` bytes, into the table.
    pub(super) fn begin(start: usize, len: usize, granule: usize) -> Result<Watch, TierError> {
        #[cfg(target_os = "linux")]
        handler::install()?;
        let claim = |slot: &Slot| {
            slot.start.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(number) = SLOTS.iter().position(claim) else {
            return Err(TierError::Parameter(format!(
                "{MOST_REGIONS} regions of memory are mapped already; close some indexes first"
            )));
        };
        let slot = &SLOTS[number];
        slot.len.store(len, Ordering::Relaxed);
        slot.granule.store(granule.max(1), Ordering::Relaxed);
        slot.lost.store(0, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Ok(Watch { slot: number })
    }

    /// Returns the offset of the first byte that could not be read; `None` if there was none.
    pub(super) fn lost(&self) -> Option<usize> {
        SLOTS[self.slot].lost.load(Ordering::Acquire).checked_sub(1)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        SLOTS[self.slot].start.store(FREE, Ordering::Release);
    }
}

#[cfg(target_os = "linux")]
mod handler {
    use super::{SLOTS, Slot, TAKEN, TierError};
    use libc::{c_int, c_void, siginfo_t};
    use std::io;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The previous handler.
    static PREVIOUS: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
    /// Flags of the previous handler.
    static PREVIOUS_FLAGS: AtomicUsize = AtomicUsize::new(0);

    /// Installs the handler, once a process.
    pub(super) fn install() -> Result<(), TierError> {
        static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
        let failed = || Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        let done = DONE.get_or_init(|| {
            // SAFETY: zeroed bytes are a valid `sigaction`.
            let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: the call only reads the present handler; the result has room.
            if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut old) } != 0 {
                return failed();
            }
            PREVIOUS_FLAGS.store(old.sa_flags as usize, Ordering::Relaxed);
            PREVIOUS.store(old.sa_sigaction, Ordering::Release);
            // SAFETY: as above.
            let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
            let on_fault: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
            new.sa_sigaction = on_fault as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            // SAFETY: the handler has the signature for SA_SIGINFO and is async-signal-safe.
            match unsafe { libc::sigaction(libc::SIGBUS, &new, std::ptr::null_mut()) } {
                0 => Ok(()),
                _ => failed(),
            }
        });
        done.map_err(|errno| TierError::System {
            operation: "watch mapped memory for faults",
            source: io::Error::from_raw_os_error(errno),
        })
    }

    extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        // Restored below, since the interrupted code may be about to read it.
        // SAFETY: the thread's own errno.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: the kernel gives a valid description to a handler installed with SA_SIGINFO.
        let (by_kernel, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
        if !(by_kernel && SLOTS.iter().any(|slot| rescue(slot, address))) {
            pass_on(signal, info, context, by_kernel);
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }

    /// Marks the region of `slot` as lost and maps zeros at `address`, if it lies in the region. Returns true
    /// if the read can end.
    fn rescue(slot: &Slot, address: usize) -> bool {
        let start = slot.start.load(Ordering::Acquire);
        let (len, granule) = (slot.len.load(Ordering::Relaxed), slot.granule.load(Ordering::Relaxed));
        // Read again: another region may have taken the slot in between, but not if it was the region of the
        // faulting read.
        let unchanged = slot.start.load(Ordering::Acquire) == start;
        if start <= TAKEN || !unchanged || address < start || address - start >= len {
            return false;
        }
        let offset = (address - start) / granule * granule;
        // Marked before the zeros are mapped, so that a thread that reads them also sees the mark.
        let _ = slot.lost.compare_exchange(0, address - start + 1, Ordering::SeqCst, Ordering::SeqCst);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: whole pages of a region that is mapped while it is in the table; its owner keeps it there
        // while it is read.
        let zeros = unsafe { libc::mmap((start + offset) as *mut c_void, granule, access, how, -1, 0) };
        zeros != libc::MAP_FAILED
    }

    /// Passes the signal on to the previous handler.
    fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, by_kernel: bool) {
        let previous = PREVIOUS.load(Ordering::Acquire);
        if previous == libc::SIG_IGN && !by_kernel {
            return;
        }
        if previous == libc::SIG_DFL || previous == libc::SIG_IGN {
            // SAFETY: restores the default; the faulting instruction is then run again and ends the process.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if !by_kernel {
                    libc::raise(signal);
                }
            }
        } else if PREVIOUS_FLAGS.load(Ordering::Relaxed) & libc::SA_SIGINFO as usize != 0 {
            // SAFETY: the system had this value as a handler of this signature.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(previous) };
            handler(signal, info, context);
        } else {
            // SAFETY: as above, for a handler without SA_SIGINFO.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(previous) };
            handler(signal);
        }
    }
}
